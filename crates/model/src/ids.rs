use std::fmt;

use serde::{Deserialize, Serialize};

/// The id of one run: `YYMMDD-HHMMSS-xxxx`, UTC, with four random characters of Crockford's base
/// 32. It sorts by time, can be typed, and is a safe file name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

/// The error for a text that is not a run id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a run id: expected the form 261121-093012-k7qd")]
pub struct InvalidRunId(String);

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const RUN_ID_BYTES: usize = 18;

impl RunId {
    /// Makes an id from a point in time (seconds since 1970, UTC) and random
    /// bits, of which twenty are used.
    #[must_use]
    pub fn new(unix_seconds: u64, random: u32) -> Self {
        let (year, month, day) = civil_date(unix_seconds / 86_400);
        let of_day = unix_seconds % 86_400;
        let mut text = format!(
            "{:02}{month:02}{day:02}-{:02}{:02}{:02}-",
            year % 100,
            of_day / 3_600,
            of_day / 60 % 60,
            of_day % 60
        );
        for shift in [15, 10, 5, 0] {
            let index = (random >> shift & 31) as usize;
            text.push(ALPHABET.get(index).copied().map_or('0', char::from));
        }
        Self(text)
    }

    /// Reads an id that was written by [`RunId::new`].
    ///
    /// # Errors
    /// [`InvalidRunId`] for anything else, so that an id can be joined to a path.
    pub fn parse(text: &str) -> Result<Self, InvalidRunId> {
        let well_formed = text.len() == RUN_ID_BYTES
            && text.bytes().enumerate().all(|(index, byte)| match index {
                6 | 13 => byte == b'-',
                0..=12 => byte.is_ascii_digit(),
                _ => ALPHABET.contains(&byte),
            });
        if well_formed {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidRunId(text.to_owned()))
        }
    }

    /// Returns the run's start, seconds since 1970, from its id: the two digits of the year are of
    /// 2000 to 2099. `None` where the digits are no time.
    #[must_use]
    pub fn began_seconds(&self) -> Option<u64> {
        let part = |from: usize| -> Option<u64> { self.0.get(from..from + 2)?.parse().ok() };
        let (year, month, day) = (2_000 + part(0)?, part(2)?, part(4)?);
        let (hour, minute, second) = (part(7)?, part(9)?, part(11)?);
        let days = days_of_date(year, month, day)?;
        let is_time = hour < 24 && minute < 60 && second < 60;
        is_time.then(|| days * 86_400 + hour * 3_600 + minute * 60 + second)
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl TryFrom<String> for RunId {
    type Error = InvalidRunId;
    fn try_from(text: String) -> Result<Self, InvalidRunId> {
        Self::parse(&text)
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.0
    }
}

/// Returns the number of days from 1970-01-01 to a date, by the same calendar as [`civil_date`].
/// `None` for an invalid date, one before that day, and years of more than four digits.
#[must_use]
pub fn days_of_date(year: u64, month: u64, day: u64) -> Option<u64> {
    // The days before a month of a year that begins in March, and of all such years before.
    let (shifted, from_march) = match (year, month) {
        (1_970..=9_999, 1..=2) => (year - 1, month + 9),
        (1_970..=9_999, 3..=12) => (year, month - 3),
        _ => return None,
    };
    let before = 365 * shifted + shifted / 4 - shifted / 100 + shifted / 400;
    let days = (before + (153 * from_march + 2) / 5).checked_add(day)?;
    let days = days.checked_sub(719_469)?;
    (civil_date(days) == (year, month, day)).then_some(days)
}

/// Returns year, month and day of a day counted from 1970-01-01, by the proleptic Gregorian
/// calendar (the shift to March makes the leap day the last of a year).
#[must_use]
pub fn civil_date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// Formats a time as RFC 3339, UTC, whole seconds.
pub(crate) fn told_time(seconds: u64) -> String {
    /// The end of the year 9999, the last that RFC 3339 can write.
    const LAST_SECOND: u64 = 253_402_300_799;
    let seconds = seconds.min(LAST_SECOND);
    let (year, month, day) = civil_date(seconds / 86_400);
    let of_day = seconds % 86_400;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        of_day / 3_600,
        of_day / 60 % 60,
        of_day % 60
    )
}
