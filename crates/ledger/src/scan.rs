//! A quick reading of an event: whether its bytes are the canonical form of one, and which place in
//! the chain it has, without making a value of its body.
//!
//! The scanner passes only events that [`crate::Event`] would read, and a test compares the two;
//! bytes that it does not pass may still be an event, and are read in full.

use atoll_model::RunId;

use crate::canonical::{INTEGER_MAX, NESTING_MAX};
use crate::event::{EVENT_VERSION, is_kind, is_time};
use crate::{Event, TreeHash};

/// The number of digits of the largest number.
const DIGITS_MAX: usize = 16;

/// An event in its canonical form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanned<'a> {
    pub(crate) prev: TreeHash,
    pub(crate) seq: u64,
    pub(crate) kind: &'a str,
}

/// Scans an event's bytes; `None` if they are not an event, or need a full reading.
pub(crate) fn scan(event: &[u8]) -> Option<Scanned<'_>> {
    // Strings are cut at quotes, which are no part of a longer character.
    std::str::from_utf8(event).ok()?;
    let mut rest = Rest(event);
    rest.pass(b"{\"body\":")?;
    rest.object(NESTING_MAX)?;
    rest.pass(b",\"prev\":")?;
    let prev = TreeHash::parse(rest.text()?).ok()?;
    rest.pass(b",")?;
    if rest.pass(b"\"run\":").is_some() {
        RunId::parse(rest.text()?).ok()?;
        rest.pass(b",")?;
    }
    rest.pass(b"\"seq\":")?;
    let seq = rest.digits()?;
    rest.pass(b",\"time\":")?;
    rest.text().filter(|time| is_time(time))?;
    rest.pass(b",\"type\":")?;
    let kind = rest.text().filter(|kind| is_kind(kind))?;
    rest.pass(b",\"v\":")?;
    let version = rest.digits()?;
    rest.pass(b"}")?;
    let is_one = version == EVENT_VERSION && rest.0.is_empty();
    is_one.then_some(Scanned { prev, seq, kind })
}

impl<'a> Scanned<'a> {
    /// Makes the result of a scan from an event that was read in full.
    pub(crate) fn of(event: &'a Event) -> Self {
        Self {
            prev: event.prev,
            seq: event.position.seq,
            kind: &event.kind,
        }
    }
}

/// The text that is left to read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn pass(&mut self, expected: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(expected)?;
        Some(())
    }

    /// Reads a text without any escape.
    fn text(&mut self) -> Option<&'a str> {
        let text = self.string()?;
        std::str::from_utf8(text)
            .ok()
            .filter(|text| !text.contains('\\'))
    }

    /// Reads a string, and returns what is between the quotes, in the one form that it may have.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.pass(b"\"")?;
        let begin = self.0;
        loop {
            let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | ..0x20);
            let at = self.0.iter().position(is_special)?;
            let (_, special) = self.0.split_at_checked(at)?;
            match special {
                [b'"', after @ ..] => {
                    self.0 = after;
                    return begin.get(..begin.len() - special.len());
                }
                [
                    b'\\',
                    b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't',
                    after @ ..,
                ] => {
                    self.0 = after;
                }
                [b'\\', b'u', b'0', b'0', high, low, after @ ..] if has_no_name(*high, *low) => {
                    self.0 = after;
                }
                _ => return None,
            }
        }
    }

    /// Reads a whole number that is not negative, of at most 2^53.
    fn digits(&mut self) -> Option<u64> {
        let count = self
            .0
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (digits, rest) = self.0.split_at_checked(count)?;
        let is_one =
            count > 0 && count <= DIGITS_MAX && (count == 1 || digits.first() != Some(&b'0'));
        if !is_one {
            return None;
        }
        let number = digits
            .iter()
            .fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
        self.0 = rest;
        (number <= INTEGER_MAX).then_some(number)
    }

    fn number(&mut self) -> Option<()> {
        match self.pass(b"-") {
            None => self.digits().map(|_| ()),
            Some(()) => self.digits().filter(|number| *number != 0).map(|_| ()),
        }
    }

    /// Passes one value. `depth` is the number of arrays and objects that may still be nested in
    /// one another.
    fn value(&mut self, depth: usize) -> Option<()> {
        match self.0.first()? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string().map(|_| ()),
            b't' => self.pass(b"true"),
            b'f' => self.pass(b"false"),
            b'n' => self.pass(b"null"),
            _ => self.number(),
        }
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        self.pass(b"[")?;
        if self.pass(b"]").is_some() {
            return Some(());
        }
        loop {
            self.value(depth)?;
            if self.pass(b"]").is_some() {
                return Some(());
            }
            self.pass(b",")?;
        }
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        self.pass(b"{")?;
        if self.pass(b"}").is_some() {
            return Some(());
        }
        let mut last: Option<&[u8]> = None;
        loop {
            let key = self.string()?;
            // An escaped key sorts by what it stands for.
            let is_plain = key.iter().all(|byte| byte.is_ascii() && *byte != b'\\');
            let in_order = last.is_none_or(|last| last < key);
            if !(is_plain && in_order) {
                return None;
            }
            last = Some(key);
            self.pass(b":")?;
            self.value(depth)?;
            if self.pass(b"}").is_some() {
                return Some(());
            }
            self.pass(b",")?;
        }
    }
}

/// Returns whether a control character of these two hexadecimal digits is escaped by its number:
/// others have a letter of their own.
fn has_no_name(high: u8, low: u8) -> bool {
    let named = matches!(low, b'8' | b'9' | b'a' | b'c' | b'd');
    match high {
        b'0' => matches!(low, b'0'..=b'9' | b'a'..=b'f') && !named,
        b'1' => matches!(low, b'0'..=b'9' | b'a'..=b'f'),
        _ => false,
    }
}
