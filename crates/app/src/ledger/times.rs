//! Times of events as numbers, and as a person says them.

use std::time::SystemTime;

use atoll_ledger::format_time;
use atoll_model::parse_duration;

use super::begins_a_time;

/// Microseconds since 1970 of a time as events have it: `2026-11-21T09:30:12.123456Z`.
pub(super) fn microseconds(time: &str) -> u64 {
    let part = |from: usize, to: usize| -> i64 {
        time.get(from..to)
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(0)
    };
    let (year, month, day) = (part(0, 4), part(5, 7), part(8, 10));
    // Years that begin in March end with the day that some of them have more.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (153 * month + 2) / 5
        + day
        - 1
        - 719_468;
    let seconds = days * 86_400 + part(11, 13) * 3_600 + part(14, 16) * 60 + part(17, 19);
    u64::try_from(seconds * 1_000_000 + part(20, 26)).unwrap_or(0)
}

/// Seconds since 1970 of the same.
pub(crate) fn seconds(time: &str) -> u64 {
    microseconds(time) / 1_000_000
}

/// The beginning of a time as events have it, from what a person says: that itself, or a duration
/// before now, as 90d.
pub(crate) fn beginning(text: &str) -> Option<String> {
    match parse_duration(text) {
        Ok(ago) => {
            let from = SystemTime::now().checked_sub(ago);
            Some(format_time(from.unwrap_or(SystemTime::UNIX_EPOCH)))
        }
        Err(_) => begins_a_time(text).then(|| text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{beginning, microseconds};

    #[test]
    fn a_duration_is_before_now_and_a_time_is_that_time() {
        let [ago, longer] = ["90d", "100d"].map(|text| beginning(text).unwrap());
        assert!(longer < ago, "{longer} {ago}");
        let between = microseconds(&ago) - microseconds(&longer);
        let ten_days = 10 * 86_400_000_000;
        assert!(between.abs_diff(ten_days) < 60_000_000, "{between}");
        // Before there were clocks like this one is from the beginning.
        assert_eq!(beginning("99999d").unwrap(), "1970-01-01T00:00:00.000000Z");
        assert_eq!(beginning("2026-11").as_deref(), Some("2026-11"));
        assert_eq!(beginning("yesterday"), None);
    }

    #[test]
    fn times_are_microseconds_since_1970() {
        for (text, expected) in [
            ("1970-01-01T00:00:00.000000Z", 0),
            ("2000-02-29T23:59:59.999999Z", 951_868_799_999_999),
            ("2000-03-01T00:00:00.000000Z", 951_868_800_000_000),
            ("2026-11-21T09:30:12.123456Z", 1_795_253_412_123_456),
            ("2100-03-01T00:00:00.000000Z", 4_107_542_400_000_000),
        ] {
            assert_eq!(microseconds(text), expected, "{text}");
        }
    }
}
