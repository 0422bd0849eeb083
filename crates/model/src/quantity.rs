use std::time::Duration;

/// The error for a text that is not a size or a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuantity {
    /// Not a size in bytes.
    #[error("{0:?} is not a size: write a whole number with an optional unit, as 512MiB or 2G")]
    Bytes(String),
    /// Not a duration.
    #[error("{0:?} is not a duration: write a number with a unit, as 90s, 5m, 1h30m or 250ms")]
    Duration(String),
}

/// Reads a size: a whole number with an optional unit. `K`, `M`, `G`, `T` and
/// their `KiB` forms are powers of 1,024; `KB` and such are powers of 1,000.
///
/// # Errors
/// [`InvalidQuantity::Bytes`] when the text is anything else or does not fit.
pub fn parse_bytes(text: &str) -> Result<u64, InvalidQuantity> {
    let invalid = || InvalidQuantity::Bytes(text.to_owned());
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let number: u64 = digits.parse().map_err(|_| invalid())?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(invalid()),
    };
    number.checked_mul(factor).ok_or_else(invalid)
}

/// Reads a duration: numbers with the units `ms`, `s`, `m`, `h`, `d`, largest first.
///
/// # Errors
/// [`InvalidQuantity::Duration`] when the text is anything else, zero or does not fit.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidQuantity> {
    let invalid = || InvalidQuantity::Duration(text.to_owned());
    let mut rest = text;
    let mut total_ms: u64 = 0;
    let mut last_factor = u64::MAX;
    while !rest.is_empty() {
        let split = rest
            .find(|c: char| !c.is_ascii_digit())
            .ok_or_else(invalid)?;
        let (digits, tail) = rest.split_at(split);
        let unit_bytes = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_bytes);
        let factor: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(invalid()),
        };
        if factor >= last_factor {
            return Err(invalid());
        }
        last_factor = factor;
        let number: u64 = digits.parse().map_err(|_| invalid())?;
        total_ms = number
            .checked_mul(factor)
            .and_then(|part| total_ms.checked_add(part))
            .ok_or_else(invalid)?;
        rest = tail;
    }
    if total_ms == 0 {
        Err(invalid())
    } else {
        Ok(Duration::from_millis(total_ms))
    }
}

/// Formats a size for people: up to three digits and a binary unit.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1_024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1_024.0;
    let mut unit = UNITS[0];
    for next in UNITS.iter().skip(1) {
        if value < 1_024.0 {
            break;
        }
        value /= 1_024.0;
        unit = next;
    }
    let digits = if value < 9.95 { 1 } else { 0 };
    format!("{value:.digits$} {unit}")
}

/// Formats a duration for people.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.1} s", duration.as_secs_f64()),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
        3_600_000..172_800_000 => format!("{} h {} min", ms / 3_600_000, ms / 60_000 % 60),
        _ => format!("{} d {} h", ms / 86_400_000, ms / 3_600_000 % 24),
    }
}
