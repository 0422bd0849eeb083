//! Times of events as numbers, and as a person writes them.

use std::time::SystemTime;

use atoll_ledger::format_time;
use atoll_model::parse_duration;

/// The shape of a complete time.
const TIME_SHAPE: &str = "0000-00-00T00:00:00.000000Z";

/// Microseconds since 1970 of a time as events have it: `2026-11-21T09:30:12.123456Z`.
pub fn microseconds(time: &str) -> u64 {
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
pub fn seconds(time: &str) -> u64 {
    microseconds(time) / 1_000_000
}

/// Returns the beginning of a time as events have it, from what a person typed: that itself, or a
/// duration before now, as 90d.
pub fn beginning(text: &str) -> Option<String> {
    match parse_duration(text) {
        Ok(ago) => {
            let from = SystemTime::now().checked_sub(ago);
            Some(format_time(from.unwrap_or(SystemTime::UNIX_EPOCH)))
        }
        Err(_) => begins_a_time(text).then(|| text.to_owned()),
    }
}

/// Returns whether the text is a time as events have it, perhaps truncated.
fn begins_a_time(text: &str) -> bool {
    let fits = |(byte, shape): (u8, u8)| match shape {
        b'0' => byte.is_ascii_digit(),
        shape => byte == shape,
    };
    // Months and days are counted from 1, hours and the rest from 0; what is cut short fits.
    let ranges = [
        (5, 1..=12),
        (8, 1..=31),
        (11, 0..=23),
        (14, 0..=59),
        (17, 0..=60),
    ];
    let is_there = ranges.iter().all(|(at, range)| {
        let number = text.get(*at..at + 2).and_then(|number| number.parse().ok());
        number.is_none_or(|number: u8| range.contains(&number))
    });
    let is_one = (4..=TIME_SHAPE.len()).contains(&text.len());
    is_one && is_there && text.bytes().zip(TIME_SHAPE.bytes()).all(fits)
}

#[cfg(test)]
mod tests {
    use super::{beginning, begins_a_time, microseconds};

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

    #[test]
    fn a_time_can_be_cut_short_and_has_to_be_one() {
        for (text, expected) in [
            ("2026", true),
            ("2026-1", true),
            ("2026-11-21T09:30", true),
            ("2026-11-21T09:30:12.000000Z", true),
            ("2026-13-01", false),
            ("2026-00", false),
            ("2026-11-45", false),
            ("2026-11-21T24", false),
            ("2026-11-21 09", false),
            ("202", false),
            ("yesterday", false),
        ] {
            assert_eq!(begins_a_time(text), expected, "{text}");
        }
    }
}
