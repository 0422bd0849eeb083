//! The part of the end of a stream that could be an unfinished value in any form. It depends on
//! which bytes could be, never on whether they are.

use super::gap;
use super::units::{self, EncodedUnit};

/// The shortest line that may be base64 continued on the next one, bytes: wrapped lines usually
/// have 60, 64 or 76, and lines of text are shorter.
const LINE_BYTES_MIN: usize = 60;

/// The set of bytes that can be part of a value.
pub(super) struct Rows {
    is_letter: [bool; 256],
    /// The longest form of a value, bytes.
    bytes_max: usize,
}

/// The end of a row, besides a byte that is no part of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// None.
    NoPart,
    /// The end of a short line.
    ShortLine,
}

/// The end of a stream, as far back as it could be a part of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) bytes: usize,
    /// The number of bytes after its last line break or separator.
    pub(super) unbroken: usize,
    /// The number of bytes that are letters, digits and the like.
    pub(super) letters: usize,
}

/// A part at the end of some bytes that could be of a value.
#[derive(Clone, Copy)]
struct Part {
    bytes: usize,
    /// The number of symbols that it stands for. Each byte of an escape stands for one, which is
    /// subtracted where the escape begins.
    symbols: isize,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A letter as it is.
    Letter,
    /// A byte of an escape, or zero bytes.
    Other,
    /// A line break between two symbols.
    Line,
    /// A separator between digits.
    Separator,
}

impl Rows {
    pub(super) fn new() -> Self {
        Self {
            is_letter: std::array::from_fn(|byte| is_usual(byte as u8)),
            bytes_max: 0,
        }
    }

    /// Adds a value whose longest form has this many bytes.
    pub(super) fn add(&mut self, value: &[u8], bytes_max: usize) {
        self.bytes_max = self.bytes_max.max(bytes_max);
        for byte in value {
            if let Some(is_letter) = self.is_letter.get_mut(usize::from(*byte)) {
                *is_letter = true;
            }
        }
    }

    /// Returns how much of the end of these bytes could be of a value, at most this many symbols of
    /// it.
    pub(super) fn end(&self, bytes: &[u8], symbols_max: usize, until: Until) -> Row {
        let floor = bytes.len().saturating_sub(self.bytes_max);
        let mut left = (symbols_max + units::BYTES_MAX) as isize;
        let mut at = bytes.len();
        let (mut row, mut is_broken) = (Row::default(), false);
        while at > floor && left > 0 {
            let Some(part) = self.part(bytes, at) else {
                break;
            };
            let start = at.saturating_sub(part.bytes);
            match part.kind {
                Kind::Letter => row.letters += 1,
                Kind::Other => {}
                Kind::Line | Kind::Separator => is_broken = true,
            }
            if part.kind == Kind::Line && until == Until::ShortLine {
                let line = bytes.get(..start).unwrap_or_default().iter().rev();
                let wanted = LINE_BYTES_MIN.min(symbols_max);
                let is_of_line = |byte: &&u8| is_usual(**byte);
                if line.take(wanted).take_while(is_of_line).count() < wanted {
                    break;
                }
            }
            row.unbroken += if is_broken { 0 } else { part.bytes };
            (at, left) = (start, left - part.symbols);
        }
        row.bytes = bytes.len() - at.max(floor);
        row
    }

    #[inline]
    fn part(&self, bytes: &[u8], at: usize) -> Option<Part> {
        let last = at.checked_sub(1)?;
        let byte = *bytes.get(last)?;
        let part = |kind, bytes, symbols| Part {
            kind,
            bytes,
            symbols,
        };
        if is_usual(byte) {
            let symbols = isize::from(byte != b'-' || !is_between_digits(bytes, last));
            return Some(part(Kind::Letter, 1, symbols));
        }
        let other = match byte {
            b'%' | b'\\' | b'&' | b'=' => {
                let left = bytes.len() - last;
                escape(bytes.get(last..)?, left).map(|symbols| part(Kind::Other, 1, symbols))
            }
            b';' | b'}' => is_escape_end(bytes, at).then_some(part(Kind::Other, 1, 1)),
            b'{' => is_after(bytes, last, b"\\u").then_some(part(Kind::Other, 1, 1)),
            b'#' => is_after(bytes, last, b"&").then_some(part(Kind::Other, 1, 1)),
            0 => between(bytes, at).or_else(|| {
                // Of a wide symbol that is a separator elsewhere.
                let mut before = bytes.get(..last)?.iter().rev().take(3);
                let byte = before.find(|byte| **byte != 0)?;
                let is_wide = self.is_letter.get(usize::from(*byte)) == Some(&true);
                is_wide.then_some(part(Kind::Other, 1, 0))
            }),
            b'\n' | b'\r' | b' ' | b':' | b',' => between(bytes, at),
            _ => None,
        };
        let is_letter = self.is_letter.get(usize::from(byte)) == Some(&true);
        other.or(is_letter.then_some(part(Kind::Letter, 1, 1)))
    }
}

/// Returns whether a byte is of base64 or a digit.
#[inline]
fn is_usual(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

/// Returns whether the byte here may separate digits rather than be a symbol.
fn is_between_digits(bytes: &[u8], at: usize) -> bool {
    let after = bytes.get(at + 1..).unwrap_or_default();
    is_pair(bytes.get(..at).unwrap_or_default().iter().rev()) && is_pair_begun(after)
}

fn is_after(bytes: &[u8], at: usize, before: &[u8]) -> bool {
    bytes.get(..at).is_some_and(|all| all.ends_with(before))
}

/// Returns the number of symbols that the beginning of an escape stands for, with its other bytes
/// subtracted.
fn escape(bytes: &[u8], left: usize) -> Option<isize> {
    match units::read(bytes)? {
        EncodedUnit::Escaped(0 | b'\n' | b'\r', length) => Some(1 - length as isize),
        EncodedUnit::Escaped(_, length) | EncodedUnit::Growing(_, length) => {
            Some(2 - length as isize)
        }
        EncodedUnit::Soft(_) => Some(0),
        EncodedUnit::Begun => Some(2 - left as isize),
        EncodedUnit::Plain(_) => None,
    }
}

/// Returns whether an escape that has an end of its own ends here.
fn is_escape_end(bytes: &[u8], at: usize) -> bool {
    (3..=units::BYTES_MAX).any(|length| {
        let written = at
            .checked_sub(length)
            .and_then(|start| bytes.get(start..at));
        let written = written.filter(|written| matches!(written, [b'&' | b'\\', ..]));
        let unit = written.and_then(units::read);
        matches!(unit, Some(EncodedUnit::Escaped(_, read)) if read == length)
    })
}

/// Returns the part that may lie between two symbols and ends here.
fn between(bytes: &[u8], at: usize) -> Option<Part> {
    // A dash can be a symbol as well.
    let is_of = |byte: &&u8| matches!(**byte, 0 | b'\n' | b'\r' | b' ' | b':' | b',');
    let before = bytes.get(..at)?.iter().rev();
    let length = before.take(gap::UNITS_MAX + 1).take_while(is_of).count();
    let (rest, gap) = bytes.get(..at)?.split_at_checked(at - length)?;
    let count = |wanted: u8| gap.iter().filter(|byte| **byte == wanted).count();
    if length > gap::UNITS_MAX || count(b'\n') > 1 || count(b'\r') > 1 {
        return None;
    }
    let kind = if gap.iter().any(|byte| gap::is_separator(*byte)) {
        Kind::Separator
    } else if gap.iter().any(|byte| *byte != 0) {
        Kind::Line
    } else {
        Kind::Other
    };
    let last = rest.last();
    let is_escape_end = || is_escape_end(bytes, rest.len());
    let is_between = match kind {
        Kind::Other | Kind::Letter => true,
        Kind::Line => last.is_some_and(|byte| is_usual(*byte) || *byte == b'=') || is_escape_end(),
        Kind::Separator => {
            let digits = rest.iter().rev().skip_while(|byte| **byte == b'-');
            is_pair(digits) && is_pair_begun(bytes.get(at..).unwrap_or_default())
        }
    };
    // What stands before each byte's digits is no symbol.
    let symbols = match bytes.get(at..) {
        Some(after) if kind == Kind::Separator && gap::is_prefix(after) => -2,
        Some(_) | None => 0,
    };
    is_between.then_some(Part {
        bytes: length,
        symbols,
        kind,
    })
}

/// Returns whether two digits come first.
fn is_pair<'a>(mut bytes: impl Iterator<Item = &'a u8>) -> bool {
    let is_digit = |byte: Option<&u8>| byte.is_some_and(|byte| units::digit(*byte).is_some());
    is_digit(bytes.next()) && is_digit(bytes.next())
}

/// Returns whether two digits come first, or may come after what is there: an incomplete pair, or
/// something before one.
fn is_pair_begun(bytes: &[u8]) -> bool {
    let mut both = bytes.iter().take(2);
    gap::is_prefix(bytes)
        || bytes.first() == Some(&b'-')
        || both.all(|byte| units::digit(*byte).is_some())
}
