//! UTF-8, byte by byte, so that a continuation byte is never taken for a
//! control character, nor a control character for a continuation byte.

const CHARACTER_BYTES_MAX: usize = 4;

/// One unit of a program's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// 0x00 to 0x1f, or DEL.
    Control(u8),
    /// 0x20 to 0x7e.
    Ascii(u8),
    /// 0x80 to 0x9f, bare or as a two-byte character: xterm obeys both.
    HighControl(u8),
    /// Any other character, and how many of the bytes it has.
    Character([u8; CHARACTER_BYTES_MAX], usize),
    /// Bytes that are no character.
    Invalid,
}

impl Input {
    /// Classifies a byte below 0x80.
    pub(super) fn ascii(byte: u8) -> Self {
        match byte {
            0x20..=0x7e => Self::Ascii(byte),
            _ => Self::Control(byte),
        }
    }
}

/// The bytes of a character that is not complete yet.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    pending: Vec<u8>,
}

impl Decoder {
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Takes one byte. The first result is an earlier character that this byte
    /// broke off, the second what this byte is or completes.
    pub(super) fn feed(&mut self, byte: u8) -> (Option<Input>, Option<Input>) {
        if self.pending.is_empty() {
            return (None, self.begin(byte));
        }
        if continues(&self.pending, byte) {
            self.pending.push(byte);
            return (None, self.complete());
        }
        self.pending.clear();
        (Some(Input::Invalid), self.begin(byte))
    }

    /// Ends the text: returns the replacement of a pending, incomplete character.
    pub(super) fn finish(&mut self) -> Option<Input> {
        let broken = !self.pending.is_empty();
        self.pending.clear();
        broken.then_some(Input::Invalid)
    }

    fn begin(&mut self, byte: u8) -> Option<Input> {
        match byte {
            0x00..=0x7f => Some(Input::ascii(byte)),
            0x80..=0x9f => Some(Input::HighControl(byte)),
            0xc2..=0xf4 => {
                self.pending.push(byte);
                None
            }
            0xa0..=0xc1 | 0xf5..=0xff => Some(Input::Invalid),
        }
    }

    fn complete(&mut self) -> Option<Input> {
        let input = match *self.pending.as_slice() {
            [0xc2, low @ 0x80..=0x9f] => Input::HighControl(low),
            [first @ 0xc2..=0xdf, second] => Input::Character([first, second, 0, 0], 2),
            [first @ 0xe0..=0xef, second, third] => Input::Character([first, second, third, 0], 3),
            [first, second, third, fourth] => Input::Character([first, second, third, fourth], 4),
            _ => return None,
        };
        self.pending.clear();
        Some(input)
    }
}

/// Returns whether a byte may follow the beginning of a character: no overlong forms, no
/// surrogates, nothing beyond U+10FFFF.
fn continues(pending: &[u8], byte: u8) -> bool {
    match (pending, byte) {
        ([0xe0], 0xa0..=0xbf)
        | ([0xed], 0x80..=0x9f)
        | ([0xf0], 0x90..=0xbf)
        | ([0xf4], 0x80..=0x8f) => true,
        ([0xe0 | 0xed | 0xf0 | 0xf4], _) => false,
        (_, byte) => matches!(byte, 0x80..=0xbf),
    }
}

/// Returns the length of the whole character at the start, bytes: 0 when it is ASCII, a control
/// character, broken or incomplete.
pub(super) fn character_bytes(bytes: &[u8]) -> usize {
    match *bytes {
        [0xc2, 0xa0..=0xbf, ..] | [0xc3..=0xdf, 0x80..=0xbf, ..] => 2,
        [0xe0, 0xa0..=0xbf, 0x80..=0xbf, ..]
        | [0xe1..=0xec | 0xee | 0xef, 0x80..=0xbf, 0x80..=0xbf, ..]
        | [0xed, 0x80..=0x9f, 0x80..=0xbf, ..] => 3,
        [0xf0, 0x90..=0xbf, 0x80..=0xbf, 0x80..=0xbf, ..]
        | [0xf1..=0xf3, 0x80..=0xbf, 0x80..=0xbf, 0x80..=0xbf, ..]
        | [0xf4, 0x80..=0x8f, 0x80..=0xbf, 0x80..=0xbf, ..] => 4,
        _ => 0,
    }
}
