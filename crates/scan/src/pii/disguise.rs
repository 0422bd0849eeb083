//! Personal data that is written in another way: percent-encoded, as entities or escapes, with letters
//! that look the same or that nobody sees, and in base64.

use std::ops::Range;

use super::{FoundPii, PiiKind, find_plain};
use crate::base64;

/// The shortest text in base64 that is decoded, and the longest.
const BASE64_BYTES_MIN: usize = 16;
const BASE64_BYTES_MAX: usize = 1 << 20;
/// Ends of domains that count where there are spaces around an `@`: programs write such as well.
const TOPS: [&str; 33] = [
    "com", "org", "net", "edu", "gov", "mil", "int", "info", "biz", "io", "dev", "app", "eu", "de",
    "uk", "fr", "it", "es", "nl", "pl", "ch", "at", "be", "se", "no", "us", "ca", "au", "jp", "cn",
    "in", "br", "example",
];

/// Finds what is written in another way, apart from what was found as it is.
pub(super) fn find(text: &str, found: &[FoundPii]) -> Vec<FoundPii> {
    let mut more = in_base64(text);
    let mut at = 0;
    while let Some(other) = next_written(text, at) {
        let start = text.get(..other).and_then(|before| before.rfind('\n'));
        let start = start.map_or(0, |line| line + 1);
        let rest = text.get(other..).unwrap_or_default();
        let end = rest.find('\n').map_or(text.len(), |end| other + end);
        if let Some(plain) = text.get(start..end).and_then(Plain::of) {
            more.extend(plain.found().map(|one| FoundPii {
                kind: one.kind,
                at: start + one.at.start..start + one.at.end,
            }));
        }
        at = end + 1;
    }
    more.retain(|one| {
        let overlaps =
            |other: &FoundPii| other.at.start < one.at.end && one.at.start < other.at.end;
        !found.iter().any(overlaps)
    });
    more
}

/// Returns the next place of a letter that is written in another way.
fn next_written(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = from;
    loop {
        let rest = bytes.get(at..)?;
        at += rest.iter().position(|byte| is_sign(*byte))?;
        let is_likely = match bytes.get(at..)? {
            [b'@', b' ', ..] => at.checked_sub(1).and_then(|at| bytes.get(at)) == Some(&b' '),
            [b'@', ..] => false,
            [
                b'[' | b'(' | b'{',
                b' ' | b'a' | b'A' | b'd' | b'D' | b'p' | b'P' | b'@',
                ..,
            ] => true,
            [b'[' | b'(' | b'{', ..] => false,
            [b'%', high, ..] => high.is_ascii_hexdigit(),
            [b'&', name, ..] => b"#cpnhda".contains(name),
            [b'\\', letter, ..] => matches!(letter, b'u' | b'x'),
            _ => true,
        };
        // A space may be before it.
        let is_one = |at: usize| text.get(at..).and_then(written).is_some();
        if is_likely && (is_one(at) || bytes.get(at) == Some(&b'@')) {
            return Some(at);
        }
        at += 1;
    }
}

/// Returns whether a letter may begin another way of writing.
fn is_sign(byte: u8) -> bool {
    const SIGNS: [bool; 256] = signs();
    SIGNS.get(usize::from(byte)).copied().unwrap_or_default()
}

#[expect(clippy::indexing_slicing, reason = "computed by the compiler")]
const fn signs() -> [bool; 256] {
    let mut signs = [false; 256];
    let mut at = 0;
    while at < signs.len() {
        signs[at] =
            at >= 0x80 || matches!(at as u8, b'%' | b'&' | b'\\' | b'@' | b'[' | b'(' | b'{');
        at += 1;
    }
    signs
}

/// A line as it is meant.
struct Plain {
    text: String,
    /// For each byte, the part of the line that it stands for.
    parts: Vec<(usize, usize)>,
    /// The places of each `@` with spaces around it.
    spaced: Vec<usize>,
}

impl Plain {
    /// Reads a line; `None` where it is meant as it is written.
    fn of(line: &str) -> Option<Self> {
        let mut plain = Self {
            text: String::with_capacity(line.len()),
            parts: Vec::with_capacity(line.len()),
            spaced: Vec::new(),
        };
        let mut is_other = false;
        let mut at = 0;
        while let Some(rest) = line.get(at..).filter(|rest| !rest.is_empty()) {
            let (one, length) = match written(rest) {
                Some(other) => {
                    is_other = true;
                    if rest.starts_with(" @") {
                        plain.spaced.push(plain.text.len());
                    }
                    other
                }
                None => {
                    let one = rest.chars().next()?;
                    (Some(one), one.len_utf8())
                }
            };
            if let Some(one) = one {
                plain.text.push(one);
                let bytes = std::iter::repeat_n((at, at + length), one.len_utf8());
                plain.parts.extend(bytes);
            }
            at += length;
        }
        is_other.then_some(plain)
    }

    /// Finds what it means.
    fn found(&self) -> impl Iterator<Item = FoundPii> {
        find_plain(&self.text).into_iter().filter_map(|one| {
            let is_meant = one.kind != PiiKind::Email || self.is_meant(&one.at);
            let at = self.of_text(&one.at)?;
            is_meant.then_some(FoundPii { kind: one.kind, at })
        })
    }

    /// Returns the part of the line that a part of the text stands for.
    fn of_text(&self, at: &Range<usize>) -> Option<Range<usize>> {
        let (start, _) = self.parts.get(at.start)?;
        let (_, end) = self.parts.get(at.end.checked_sub(1)?)?;
        Some(*start..*end)
    }

    /// Returns whether an address is one: with spaces around its `@`, if it ends as known ones do.
    fn is_meant(&self, at: &Range<usize>) -> bool {
        let is_spaced = self.spaced.iter().any(|sign| at.contains(sign));
        let address = self.text.get(at.clone()).unwrap_or_default();
        let top = address.rsplit('.').next().unwrap_or_default();
        !is_spaced || TOPS.contains(&&*top.to_ascii_lowercase())
    }
}

/// Returns the letter that a text begins with in another way of writing, if any, and its length.
fn written(text: &str) -> Option<(Option<char>, usize)> {
    match text.as_bytes() {
        [b'%', ..] => {
            let code = u32::from_str_radix(text.get(1..3)?, 16).ok()?;
            let one = char::from_u32(code).filter(|one| matches!(one, ' '..='~'))?;
            Some((Some(one), 3))
        }
        [b'&', ..] => entity(text),
        [b'\\', b'u', ..] => escaped(text, 2, 6),
        [b'\\', b'x', ..] => escaped(text, 2, 4),
        [b' ', b'@', b' ', ..] => Some((Some('@'), 3)),
        [b' ' | b'[' | b'(' | b'{', ..] => bracketed(text),
        [0x80..=0xff, ..] => {
            let one = text.chars().next()?;
            let other = seen_as(one);
            (other != Some(one)).then_some((other, one.len_utf8()))
        }
        _ => None,
    }
}

fn escaped(text: &str, from: usize, to: usize) -> Option<(Option<char>, usize)> {
    let code = u32::from_str_radix(text.get(from..to)?, 16).ok()?;
    let one = char::from_u32(code).filter(|one| !one.is_control())?;
    Some((seen_as(one), to))
}

/// Reads an entity of HTML.
fn entity(text: &str) -> Option<(Option<char>, usize)> {
    let end = text.bytes().take(12).position(|byte| byte == b';')?;
    let one = match text.get(1..end)? {
        "commat" => '@',
        "period" => '.',
        "plus" => '+',
        "nbsp" => ' ',
        "hyphen" | "dash" => '-',
        "amp" => '&',
        name => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?).filter(|one| !one.is_control())?
        }
    };
    Some((seen_as(one), end + 1))
}

/// Reads `[at]` and `(dot)`, with spaces around.
fn bracketed(text: &str) -> Option<(Option<char>, usize)> {
    let inner = text.trim_start_matches(' ').strip_prefix(['[', '(', '{'])?;
    let inner = inner.trim_start_matches(' ');
    let is = |word: &str| {
        inner
            .get(..word.len())
            .is_some_and(|own| own.eq_ignore_ascii_case(word))
    };
    let words = [("at", '@'), ("@", '@'), ("dot", '.'), ("punkt", '.')];
    let (word, one) = words.into_iter().find(|(word, _)| is(word))?;
    let rest = inner.get(word.len()..)?.trim_start_matches(' ');
    let rest = rest.strip_prefix([']', ')', '}'])?;
    Some((Some(one), text.len() - rest.trim_start_matches(' ').len()))
}

/// Returns the letter that one is seen as; `None` where it is not seen.
fn seen_as(one: char) -> Option<char> {
    let digit = |first: u32| char::from_u32(u32::from('0') + (u32::from(one) - first) % 10);
    match one {
        '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' => {
            None
        }
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => Some(' '),
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' => Some('-'),
        '\u{fe6b}' => Some('@'),
        '\u{2024}' | '\u{fe52}' => Some('.'),
        '\u{fe62}' => Some('+'),
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(one) - 0xfee0),
        '\u{660}'..='\u{669}' => digit(0x660),
        '\u{6f0}'..='\u{6f9}' => digit(0x6f0),
        '\u{966}'..='\u{96f}' => digit(0x966),
        '\u{1d7ce}'..='\u{1d7ff}' => digit(0x1d7ce),
        one => Some(one),
    }
}

/// Finds texts in base64 with personal data in them: each is one of its first kind, whole.
fn in_base64(text: &str) -> Vec<FoundPii> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    // Each text that is long enough has one of these places in it.
    let mut probe = BASE64_BYTES_MIN - 1;
    while let Some(byte) = bytes.get(probe) {
        if !base64::is_letter(*byte) {
            probe += BASE64_BYTES_MIN;
            continue;
        }
        let (before, after) = bytes.split_at_checked(probe).unwrap_or_default();
        let ends = |byte: &u8| !base64::is_letter(*byte);
        let start = before.iter().rposition(ends).map_or(0, |end| end + 1);
        let end = after.iter().position(ends);
        let end = end.map_or(bytes.len(), |end| probe + end);
        if end - start >= BASE64_BYTES_MIN {
            let own = bytes.get(start..end.min(start + BASE64_BYTES_MAX));
            found.extend(own.and_then(kind_in).map(|kind| FoundPii {
                kind,
                at: start..end,
            }));
        }
        probe = end + BASE64_BYTES_MIN;
    }
    found
}

/// Returns the kind of the first personal data in a text in base64.
fn kind_in(text: &[u8]) -> Option<PiiKind> {
    // Most names and paths end here: six bytes that are no text.
    let head = text.get(..8)?.iter().try_fold(0_u64, |head, letter| {
        Some(head << 6 | u64::from(base64::value(*letter)?))
    })?;
    let is_text = |byte: u8| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t');
    let [_, _, head @ ..] = head.to_be_bytes();
    if head.into_iter().filter(|byte| is_text(*byte)).count() < 5 {
        return None;
    }
    let whole = text.get(..text.len() - usize::from(text.len() % 4 == 1))?;
    let plain = String::from_utf8(base64::decoded(whole)?).ok()?;
    let is_control = |one: char| one.is_control() && !one.is_whitespace();
    if plain.contains(is_control) {
        return None;
    }
    find_plain(&plain).first().map(|one| one.kind)
}
