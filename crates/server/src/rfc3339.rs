//! Times, as RFC 3339 has them.

use std::time::{SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Writes a time, milliseconds since 1970.
pub(crate) fn time_of(milliseconds: u64) -> String {
    rfc3339(i128::from(milliseconds) * 1_000_000)
}

/// Writes a time, nanoseconds since 1970.
pub(crate) fn rfc3339(nanoseconds: i128) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds);
    let text = time.ok().and_then(|time| time.format(&Rfc3339).ok());
    text.unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned())
}

/// Returns a time, milliseconds since 1970.
pub(crate) fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns this time, milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    milliseconds(SystemTime::now())
}
