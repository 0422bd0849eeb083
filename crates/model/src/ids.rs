use std::fmt;

use serde::{Deserialize, Serialize};

/// The name of one run: `YYMMDD-HHMMSS-xxxx`, UTC, with four random characters
/// of Crockford's base 32. It sorts by time, can be typed, and is a safe file
/// name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

/// The text is not a run id.
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

    /// The id as text.
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

/// Year, month and day of a day counted from 1970-01-01, by the proleptic
/// Gregorian calendar (the shift to March makes the leap day the last of a year).
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
