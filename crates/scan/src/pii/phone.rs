//! Telephone numbers: with their country's code (E.164), as North America writes them, and any that
//! a word before them calls one.

use std::ops::{Range, RangeInclusive};

use super::{is_joined, is_word};

/// The digits of a number with its country's code.
const DIGITS: RangeInclusive<usize> = 8..=15;
/// The digits of a number that a word calls one.
const NAMED_DIGITS: RangeInclusive<usize> = 7..=13;
/// The bytes before a number that such a word is in.
const NAME_BYTES: usize = 28;
/// Such words, in lower case.
const NAMES: [&str; 13] = [
    "phone",
    "tel",
    "tel.",
    "fax",
    "mobile",
    "mobil",
    "cell",
    "handy",
    "whatsapp",
    "call",
    "telefon",
    "telephone",
    "sms",
];

/// Finds the number that begins with this `+`: its digits as far as they are one, with at most two
/// signs between any of them.
pub(super) fn international(text: &[u8], at: usize) -> Option<Range<usize>> {
    if is_word(text, at.checked_sub(1)) {
        return None;
    }
    let (mut digits, mut signs, mut end) = (Vec::new(), 0, None);
    for (next, byte) in text.iter().enumerate().skip(at + 1) {
        match byte {
            b'0'..=b'9' if digits.len() < *DIGITS.end() => {
                digits.push(byte - b'0');
                signs = 0;
                let is_end = !is_word(text, Some(next + 1));
                if is_end && is_whole(&digits) {
                    end = Some(next + 1);
                }
            }
            b' ' | b'-' | b'.' | b'(' | b')' if signs < 2 && !digits.is_empty() => signs += 1,
            _ => break,
        }
    }
    end.map(|end| at..end)
}

/// Finds the number that begins with this digit or parenthesis, without a `+`.
pub(super) fn national(text: &[u8], at: usize) -> Option<Range<usize>> {
    if is_joined(text, at, at) {
        return None;
    }
    let groups = Groups::read(text, at)?;
    if is_joined(text, at, groups.end) {
        return None;
    }
    let is_one = groups.is_american()
        || groups.is_dialled()
        || NAMED_DIGITS.contains(&groups.digits.len())
            && !groups.is_date()
            && groups.is_named(text, at);
    is_one.then_some(at..groups.end)
}

/// Digits in groups, with a sign or two between any of them.
struct Groups {
    digits: Vec<u8>,
    lengths: Vec<usize>,
    /// The sign before each group but the first; 0 for several.
    signs: Vec<u8>,
    /// Set where the first or second group is in parentheses.
    is_parted: bool,
    end: usize,
}

impl Groups {
    /// Reads groups of at least seven digits together.
    fn read(text: &[u8], at: usize) -> Option<Self> {
        let mut groups = Self {
            digits: Vec::new(),
            lengths: Vec::new(),
            signs: Vec::new(),
            is_parted: false,
            end: at,
        };
        let (mut signs, mut opened) = (Vec::new(), false);
        for (next, byte) in text.iter().enumerate().skip(at) {
            match byte {
                b'0'..=b'9' if groups.digits.len() < *DIGITS.end() => {
                    if groups.lengths.is_empty() || !signs.is_empty() {
                        if !groups.lengths.is_empty() {
                            groups.signs.push(if let [sign] = signs.as_slice() {
                                *sign
                            } else {
                                0
                            });
                        }
                        groups.lengths.push(0);
                        signs.clear();
                    }
                    groups.digits.push(byte - b'0');
                    if let Some(last) = groups.lengths.last_mut() {
                        *last += 1;
                    }
                    groups.end = next + 1;
                }
                b'(' if groups.lengths.len() < 2 && !opened => {
                    opened = true;
                    signs.push(b'(');
                }
                b')' if opened && !groups.is_parted => {
                    groups.is_parted = true;
                    signs.push(b')');
                }
                b' ' | b'-' | b'.' | b'/' if signs.len() < 2 && !groups.digits.is_empty() => {
                    signs.push(*byte)
                }
                _ => break,
            }
        }
        (groups.digits.len() >= *NAMED_DIGITS.start()).then_some(groups)
    }

    /// Returns whether it is written as in North America: `(415) 555-2671`, `415-555-2671`.
    fn is_american(&self) -> bool {
        let (digits, lengths) = match (self.digits.as_slice(), self.lengths.as_slice()) {
            ([1, digits @ ..], [1, lengths @ ..]) => (digits, lengths),
            (digits, lengths) => (digits, lengths),
        };
        let [area, _, _, office, ..] = digits else {
            return false;
        };
        let is_written = match self.signs.as_slice() {
            [.., sign @ (b'-' | b'.'), last] => sign == last,
            _ => self.is_parted && matches!(self.signs.last(), Some(b'-' | b'.' | b' ')),
        };
        lengths == [3, 3, 4] && *area >= 2 && *office >= 2 && (is_written || self.is_parted)
    }

    /// Returns whether it is written with the sign for other countries, in groups: `0049 30 901820`.
    fn is_dialled(&self) -> bool {
        let [0, 0, digits @ ..] = self.digits.as_slice() else {
            return false;
        };
        let is_code = matches!(self.lengths.as_slice(), [2 | 4 | 5, _, ..] | [3, _, _, ..]);
        let is_list = self.lengths.iter().all(|length| *length == 4);
        is_code && !is_list && digits.len() >= 9 && !self.signs.contains(&b'.') && is_whole(digits)
    }

    /// Returns whether it is a date, or an address of a network.
    fn is_date(&self) -> bool {
        let is_year = matches!(self.digits.as_slice(), [1, 9, ..] | [2, 0, ..]);
        is_year && matches!(self.lengths.as_slice(), [4, 2, 2, ..])
            || matches!(self.lengths.as_slice(), [1 | 2, 1 | 2, 4, ..])
            || self.signs.iter().filter(|sign| **sign == b'.').count() == 3
                && self.lengths.iter().all(|one| *one <= 3)
    }

    /// Returns whether a word before it calls it a telephone number.
    fn is_named(&self, text: &[u8], at: usize) -> bool {
        let before = text
            .get(at.saturating_sub(NAME_BYTES)..at)
            .unwrap_or_default();
        let line = before
            .rsplit(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        let lower = String::from_utf8_lossy(line).to_lowercase();
        let words = lower.split(|one: char| !one.is_alphanumeric());
        let mut words = words.rev().filter(|word| !word.is_empty()).take(3);
        words.any(|word| match word {
            // A function is called as well.
            "call" => self.lengths.len() > 2,
            word => NAMES.contains(&word),
        })
    }
}

/// Returns whether digits are a number with its country's code.
fn is_whole(digits: &[u8]) -> bool {
    match digits {
        // North America: areas and offices begin with 2 to 9. Russia and Kazakhstan.
        [1, area, _, _, office, ..] => digits.len() == 11 && *area >= 2 && *office >= 2,
        [7, area, ..] => digits.len() == 11 && *area >= 3,
        [0 | 1, ..] => false,
        [first, second, third, ..] => {
            let two = u16::from(*first) * 10 + u16::from(*second);
            DIGITS.contains(&digits.len()) && is_country(two, two * 10 + u16::from(*third))
        }
        _ => false,
    }
}

/// Returns whether numbers of some country begin like this: by a code of two digits, or of three.
fn is_country(two: u16, three: u16) -> bool {
    let is_two = matches!(two, 20 | 27 | 30..=34 | 36 | 39..=41 | 43..=49 | 51..=58 | 60..=66)
        || matches!(two, 81 | 82 | 84 | 86 | 90..=95 | 98);
    let is_nobodys = matches!(two, 28 | 83 | 89)
        || matches!(three, 210 | 214 | 215 | 217 | 219 | 292..=296 | 384 | 388 | 422 | 424..=429)
        || matches!(three, 671 | 684 | 693..=699 | 801..=807 | 809 | 851 | 854 | 857..=859)
        || matches!(
            three,
            871..=879 | 884 | 885 | 887 | 889 | 969 | 978 | 990 | 991 | 997 | 999
        );
    is_two || !is_nobodys
}
