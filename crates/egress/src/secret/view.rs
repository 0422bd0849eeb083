//! Encoded parts of some bytes, decoded: escapes read, gaps between symbols removed. Only these and
//! the few bytes around them: the rest is searched as it is.

use super::gap;
use super::table::ANCHOR;
use super::units::{self, EncodedUnit};

/// The number of bytes classified at once.
const BLOCK: usize = 32;
/// The number of bytes before and after an encoded part that suffice to find a value there.
const AROUND: usize = ANCHOR - 1;
/// The number of bytes in a row that could all be of separated digits, from which on these are
/// looked for.
const LANE: usize = 8;

/// The lowest bit of each byte of a lane.
const EACH: u64 = 0x0101_0101_0101_0101;

/// The decoded parts of some bytes, and where each was.
#[derive(Debug, Default)]
pub(super) struct DecodedView {
    bytes: Vec<u8>,
    /// Pairs of a decoded and an original index, from each of which on both advance together.
    turns: Vec<(u32, u32)>,
    /// The places of digits with separators.
    digits: Vec<(usize, usize)>,
}

impl DecodedView {
    /// Decodes these bytes.
    pub(super) fn read(&mut self, written: &[u8]) {
        self.bytes.clear();
        self.turns.clear();
        self.digits.clear();
        let mut from = 0_usize;
        for (number, block) in written.chunks(BLOCK).enumerate() {
            let start = number * BLOCK;
            let kinds = Block::of(block);
            if kinds.has_digits {
                self.note_digits(written, start);
            }
            // A mark within what is escaped is none.
            let mut marks = kinds.marks & from_bit(from.saturating_sub(start));
            while marks != 0 {
                let at = start + marks.trailing_zeros() as usize;
                let Some(first) = turn(written, at) else {
                    marks &= marks - 1;
                    continue;
                };
                self.around(written, from, at);
                from = self.push(first);
                // One after the other is what is escaped as a whole.
                while let Some(next) = turn(written, from) {
                    from = self.push(next);
                }
                marks &= from_bit(from - start);
            }
        }
        if !self.turns.is_empty() {
            self.copy(written, from, written.len().min(from + AROUND));
        }
        let digits = std::mem::take(&mut self.digits);
        for (start, end) in &digits {
            self.joined(written, *start, *end);
        }
        self.digits = digits;
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Releases memory beyond this; what was read is read again.
    pub(super) fn give_back(&mut self, kept_bytes: usize) {
        if self.bytes.capacity() > kept_bytes {
            *self = Self::default();
        }
    }

    /// Returns the index that a decoded byte was at.
    pub(super) fn place(&self, here: usize) -> usize {
        let after = self
            .turns
            .partition_point(|(view, _)| *view as usize <= here);
        let turn = after.checked_sub(1).and_then(|last| self.turns.get(last));
        turn.map_or(here, |(view, written)| {
            *written as usize + here - *view as usize
        })
    }

    #[inline]
    fn push(&mut self, turn: EncodedPart) -> usize {
        if let Some(byte) = turn.byte {
            self.bytes.push(byte);
        }
        self.turn(turn.after);
        turn.after
    }

    #[inline]
    fn turn(&mut self, at: usize) {
        self.turns.push((self.bytes.len() as u32, at as u32));
    }

    fn copy(&mut self, written: &[u8], from: usize, to: usize) {
        let part = written.get(from..to).unwrap_or_default();
        self.bytes.extend_from_slice(part);
    }

    /// Copies what is between two encoded parts: only both ends of it if it is long.
    fn around(&mut self, written: &[u8], from: usize, to: usize) {
        match written.get(from..to) {
            Some([]) => return,
            Some([byte]) => return self.bytes.push(*byte),
            Some(_) | None => {}
        }
        if to - from <= 2 * AROUND {
            return self.copy(written, from, to);
        }
        if from > 0 {
            self.copy(written, from, from + AROUND);
        }
        self.turn(to - AROUND);
        self.copy(written, to - AROUND, to);
    }

    /// Copies the digits among these bytes, without their separators.
    fn joined(&mut self, written: &[u8], start: usize, end: usize) {
        self.turn(start);
        let (mut at, mut is_begin) = (start, true);
        while at < end {
            let Some(byte) = written.get(at) else { break };
            if units::digit(*byte).is_some() {
                if is_begin && gap::is_prefix(written.get(at..).unwrap_or_default()) {
                    at += 2;
                    continue;
                }
                if is_begin {
                    self.turn(at);
                    is_begin = false;
                }
                self.bytes.push(*byte);
                at += 1;
                continue;
            }
            is_begin = true;
            match turn(written, at) {
                Some(next) => {
                    let digit = next.byte.filter(|byte| units::digit(*byte).is_some());
                    if digit.is_some() {
                        self.turn(at);
                    }
                    self.bytes.extend(digit);
                    at = next.after;
                }
                None => at += 1,
            }
        }
    }

    fn note_digits(&mut self, written: &[u8], from: usize) {
        let is_of = |byte: &&u8| is_of_digits(**byte);
        let block = written.get(from..).unwrap_or_default();
        for place in (0..block.len().min(BLOCK)).step_by(LANE) {
            let start = from + place;
            let known = self.digits.last().map_or(0, |(_, end)| *end);
            let lane = written.get(start..start + LANE).unwrap_or_default();
            let is_lane = lane.len() == LANE && lane.iter().all(|byte| is_of_digits(*byte));
            if start < known || !is_lane {
                continue;
            }
            let before = written.get(known.max(start.saturating_sub(2 * LANE))..start);
            let before = before.unwrap_or_default().iter().rev();
            let begin = start - before.take_while(is_of).count();
            let mut end = start + LANE;
            while let Some(rest) = written.get(end..) {
                let more = rest.iter().take_while(is_of).count();
                end += more;
                match turn(written, end) {
                    Some(next) if next.byte.is_none_or(is_of_digits) => end = next.after,
                    Some(_) | None if more == 0 => break,
                    Some(_) | None => {}
                }
            }
            self.digits.push((begin, end));
        }
    }
}

/// Returns the mask of a block's bits from this one on.
fn from_bit(place: usize) -> u32 {
    let bits = u32::try_from(place).ok();
    bits.and_then(|bits| u32::MAX.checked_shl(bits))
        .unwrap_or(0)
}

/// An encoded part.
struct EncodedPart {
    /// The byte that it stands for; `None` for a gap between symbols.
    byte: Option<u8>,
    after: usize,
}

/// Decodes the part at this index, if it is encoded.
#[inline(always)]
fn turn(written: &[u8], at: usize) -> Option<EncodedPart> {
    let rest = written.get(at..)?;
    // By far the most of what is written so throughout.
    match rest {
        [b'%', high, low, ..] => {
            let (high, low) = (units::digit(*high)?, units::digit(*low)?);
            let byte = high << 4 | low;
            Some(EncodedPart {
                byte: (!is_dropped(byte)).then_some(byte),
                after: at + 3,
            })
        }
        [0, other, ..] if *other != 0 => Some(EncodedPart {
            byte: None,
            after: at + 1,
        }),
        [b'%' | b'\\' | b'&' | b'=' | b'\n' | b'\r' | 0, ..] => any_turn(written, at),
        _ => None,
    }
}

#[inline(never)]
fn any_turn(written: &[u8], at: usize) -> Option<EncodedPart> {
    let rest = written.get(at..)?;
    let (byte, length) = match *rest.first()? {
        0 => {
            let is_run = rest.len() > 3 && rest.iter().take(4).all(|byte| *byte == 0);
            (!is_run).then_some((None, 1))?
        }
        b'\n' | b'\r' => {
            let length = if rest.starts_with(b"\r\n") { 2 } else { 1 };
            let before = at.checked_sub(1).and_then(|before| written.get(before));
            let is_between = before.is_some_and(|byte| is_within(*byte))
                && rest.get(length).is_some_and(|byte| is_within(*byte));
            is_between.then_some((None, length))?
        }
        b'%' | b'\\' | b'&' | b'=' => match units::read(rest)? {
            EncodedUnit::Escaped(byte, length) | EncodedUnit::Growing(byte, length) => {
                ((!is_dropped(byte)).then_some(byte), length)
            }
            EncodedUnit::Soft(length) => (None, length),
            // What it becomes is known when there is more.
            EncodedUnit::Plain(_) | EncodedUnit::Begun => return None,
        },
        _ => return None,
    };
    let after = at + length;
    Some(EncodedPart { byte, after })
}

/// Returns whether a byte is never of a value, only between its symbols.
fn is_dropped(byte: u8) -> bool {
    matches!(byte, 0 | b'\n' | b'\r')
}

/// Returns whether a byte may be one of separated digits.
#[inline]
fn is_of_digits(byte: u8) -> bool {
    OF_DIGITS.get(usize::from(byte)) == Some(&true)
}

/// The bytes that may be one of separated digits.
#[expect(
    clippy::indexing_slicing,
    reason = "the compiler evaluates it, and would say so"
)]
static OF_DIGITS: [bool; 256] = {
    let all = b"0123456789abcdefABCDEFxX :-,\n\r";
    let (mut are, mut place) = ([false; 256], 0);
    while place < all.len() {
        are[all[place] as usize] = true;
        place += 1;
    }
    are
};

/// Returns whether a byte may be next to a line break within base64 or digits.
#[inline]
fn is_within(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'+' | b'/' | b'-' | b'_' | b';' | b'}' | 0)
        || units::is_mark(byte)
}

/// The classes of the bytes in a block.
struct Block {
    /// A bit for each byte by which an encoded part may begin.
    marks: u32,
    /// Set if there are digits with separators.
    has_digits: bool,
}

impl Block {
    fn of(bytes: &[u8]) -> Self {
        match bytes.first_chunk() {
            Some(bytes) => Self::whole(bytes),
            None => {
                let mut filled = [b'z'; BLOCK];
                std::iter::zip(&mut filled, bytes).for_each(|(to, byte)| *to = *byte);
                Self::whole(&filled)
            }
        }
    }

    /// Classifies all bytes at once, without a branch.
    #[inline]
    fn whole(bytes: &[u8; BLOCK]) -> Self {
        let (mut marks, mut digits) = ([0_u8; BLOCK], [0_u8; BLOCK]);
        let mut all = 0;
        for (mark, byte) in std::iter::zip(&mut marks, bytes) {
            let byte = *byte;
            let is_escape = (byte == b'%') | (byte == b'\\') | (byte == b'&') | (byte == b'=');
            let is_gap = (byte == b'\n') | (byte == b'\r') | (byte == 0);
            *mark = u8::from(is_escape | is_gap);
            all |= byte;
        }
        for (digit, byte) in std::iter::zip(&mut digits, bytes) {
            let (byte, folded) = (*byte, *byte | 0x20);
            let is_between = (byte == b' ') | (byte == b':') | (byte == b'-') | (byte == b',');
            let is_between = is_between | (byte == b'\n') | (byte == b'\r');
            let is_digit = (byte.wrapping_sub(b'0') < 10) | (folded.wrapping_sub(b'a') < 6);
            let is_other = is_digit | (folded == b'x');
            *digit = u8::from(is_between | is_other) | u8::from(is_between) << 1;
        }
        let (lanes, _) = digits.as_chunks::<LANE>();
        let is_lane = |lane: &[u8; LANE]| {
            let lane = u64::from_le_bytes(*lane);
            lane & EACH == EACH && lane & (EACH << 1) != 0
        };
        Self {
            // No value has so many zero bytes in a row.
            marks: if all == 0 { 0 } else { bits(&marks) },
            has_digits: lanes.iter().any(is_lane),
        }
    }
}

/// Packs bytes that are 0 or 1 into bits.
fn bits(bytes: &[u8; BLOCK]) -> u32 {
    let (lanes, _) = bytes.as_chunks::<LANE>();
    let lanes = lanes.iter().enumerate();
    lanes.fold(0, |all, (place, lane)| {
        let lane = u64::from_le_bytes(*lane).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        all | (lane as u32) << (place * LANE)
    })
}
