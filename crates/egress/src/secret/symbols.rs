//! The encoded forms of a value, symbol by symbol.

use super::units;

/// An encoding of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The value as it is.
    Plain,
    /// Hexadecimal digits.
    Hexadecimal,
    /// Base64, together with the bytes around it.
    Base64(Alignment),
    /// Hexadecimal digits of base64.
    HexadecimalBase64(Alignment),
    /// UTF-16 or UTF-32.
    Wide,
}

/// The number of bytes that precede a value in its base64 group of three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alignment {
    /// None.
    None,
    /// One.
    One,
    /// Two.
    Two,
}

impl Form {
    /// All forms that are searched for: a wide one is any of them with zero bytes between.
    pub(super) const ALL: [Self; 8] = [
        Self::Plain,
        Self::Hexadecimal,
        Self::Base64(Alignment::None),
        Self::Base64(Alignment::One),
        Self::Base64(Alignment::Two),
        Self::HexadecimalBase64(Alignment::None),
        Self::HexadecimalBase64(Alignment::One),
        Self::HexadecimalBase64(Alignment::Two),
    ];
}

impl Alignment {
    /// Returns how many bits of the first shared symbol belong to what precedes the value.
    fn bits_before(self) -> usize {
        match self {
            Self::None => 0,
            Self::One => 2,
            Self::Two => 4,
        }
    }

    /// Returns the number of symbols at the beginning that belong to the value in part.
    fn symbols_before(self) -> usize {
        usize::from(self.bits_before() > 0)
    }
}

/// One symbol of a form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Symbol {
    /// A byte; a letter matches in either case.
    Byte(u8),
    /// A hexadecimal digit.
    Digit(u8),
    /// A base64 symbol: its bits, and the mask of those that are of the value.
    Six(u8, u8),
    /// A hexadecimal digit of a base64 symbol with these bits: the first one or not.
    Half(u8, bool),
}

/// Returns the number of symbols of a form for a value of this many bytes.
pub(super) fn count(form: Form, bytes: usize) -> usize {
    match form {
        Form::Plain | Form::Wide => bytes,
        Form::Hexadecimal => bytes * 2,
        Form::Base64(alignment) => (alignment.bits_before() + bytes * 8).div_ceil(6),
        Form::HexadecimalBase64(alignment) => {
            let whole = (alignment.bits_before() + bytes * 8) / 6;
            whole.saturating_sub(alignment.symbols_before()) * 2
        }
    }
}

/// Returns the symbol at this place, if the form has one.
#[inline]
pub(super) fn at(form: Form, value: &[u8], place: usize) -> Option<Symbol> {
    Some(match form {
        Form::Plain | Form::Wide => Symbol::Byte(*value.get(place)?),
        Form::Hexadecimal => {
            let byte = *value.get(place / 2)?;
            Symbol::Digit(if place.is_multiple_of(2) {
                byte >> 4
            } else {
                byte & 0xf
            })
        }
        Form::Base64(alignment) => six(value, place * 6, alignment.bits_before())?,
        Form::HexadecimalBase64(alignment) => {
            let of_value = place / 2 + alignment.symbols_before();
            match six(value, of_value * 6, alignment.bits_before())? {
                Symbol::Six(bits, 0x3f) => Symbol::Half(bits, place.is_multiple_of(2)),
                Symbol::Six(..) | Symbol::Byte(_) | Symbol::Digit(_) | Symbol::Half(..) => {
                    return None;
                }
            }
        }
    })
}

/// Returns the base64 symbol of the six bits from this one on, where this many bits precede the
/// value.
#[inline]
fn six(value: &[u8], from: usize, before: usize) -> Option<Symbol> {
    let first = from
        .checked_sub(before)
        .filter(|first| first + 6 <= value.len() * 8);
    if let Some(first) = first {
        let byte = |place: usize| u16::from(value.get(place).copied().unwrap_or_default());
        let both = byte(first / 8) << 8 | byte(first / 8 + 1);
        return Some(Symbol::Six((both >> (10 - first % 8) & 0x3f) as u8, 0x3f));
    }
    six_in_part(value, from, before)
}

/// Returns such a symbol when some of its bits are of what is before or after the value.
#[cold]
fn six_in_part(value: &[u8], from: usize, before: usize) -> Option<Symbol> {
    let (mut bits, mut of_value) = (0, 0);
    for place in from..from + 6 {
        (bits, of_value) = (bits << 1, of_value << 1);
        let byte = place.checked_sub(before).and_then(|bit| value.get(bit / 8));
        if let Some(byte) = byte {
            bits |= byte >> (7 - (place - before) % 8) & 1;
            of_value |= 1;
        }
    }
    (of_value != 0).then_some(Symbol::Six(bits, of_value))
}

/// Returns the bits of a base64 symbol in either alphabet.
#[inline]
pub(super) fn bits(byte: u8) -> Option<u8> {
    let bits = BITS.get(usize::from(byte)).copied();
    bits.filter(|bits| *bits != NO_BITS)
}

const NO_BITS: u8 = 0xff;

/// The bits of each byte as a base64 symbol.
#[expect(
    clippy::indexing_slicing,
    reason = "the compiler evaluates it, and would say so"
)]
static BITS: [u8; 256] = {
    let mut bits = [NO_BITS; 256];
    let mut value = 0;
    while value < 64 {
        bits[letter(value, false) as usize] = value;
        bits[letter(value, true) as usize] = value;
        value += 1;
    }
    bits
};

/// Returns the base64 symbol with these bits.
pub(super) const fn letter(bits: u8, is_for_addresses: bool) -> u8 {
    match bits & 0x3f {
        bits @ 0..=25 => b'A' + bits,
        bits @ 26..=51 => b'a' + bits - 26,
        bits @ 52..=61 => b'0' + bits - 52,
        62 if is_for_addresses => b'-',
        62 => b'+',
        _ if is_for_addresses => b'_',
        _ => b'/',
    }
}

/// Returns a digit of the base64 symbol with these bits.
pub(super) const fn half(bits: u8, is_first: bool, is_for_addresses: bool) -> u8 {
    let letter = letter(bits, is_for_addresses);
    if is_first { letter >> 4 } else { letter & 0xf }
}

/// The variant in which ambiguous symbols are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    is_for_addresses: bool,
    is_in_capitals: bool,
}

impl Style {
    /// Returns the variant of these bytes.
    pub(super) fn of(written: &[u8]) -> Self {
        let any = |kind: fn(&u8) -> bool| written.iter().any(kind);
        Self {
            is_for_addresses: any(|byte| matches!(byte, b'-' | b'_')),
            is_in_capitals: any(u8::is_ascii_uppercase) && !any(u8::is_ascii_lowercase),
        }
    }

    /// Returns a digit in the variant of the one that it replaces.
    fn digit(self, value: u8, written: u8) -> u8 {
        let is_like = written.is_ascii_alphabetic() || !self.is_in_capitals;
        units::digit_like(value, if is_like { written } else { b'A' })
    }
}

impl Symbol {
    /// Returns whether a byte is this symbol.
    #[inline]
    pub(super) fn is(self, byte: u8) -> bool {
        match self {
            Self::Byte(own) => own.eq_ignore_ascii_case(&byte) || own == b' ' && byte == b'+',
            Self::Digit(own) => units::digit(byte) == Some(own),
            Self::Six(own, of_value) => bits(byte).is_some_and(|bits| (bits ^ own) & of_value == 0),
            Self::Half(bits, is_first) => units::digit(byte).is_some_and(|digit| {
                digit == half(bits, is_first, false) || digit == half(bits, is_first, true)
            }),
        }
    }

    /// Returns whether all of it is of the value.
    #[inline]
    pub(super) fn is_whole(self) -> bool {
        match self {
            Self::Byte(_) | Self::Digit(_) | Self::Half(..) => true,
            Self::Six(_, of_value) => of_value == 0x3f,
        }
    }

    /// Returns the byte that replaces this symbol's byte by another symbol.
    pub(super) fn replaced(self, byte: u8, other: Self, style: Style) -> u8 {
        match (self, other) {
            (Self::Byte(own), Self::Byte(other)) => {
                if own == other {
                    byte
                } else if own == byte || !other.is_ascii_alphabetic() {
                    other
                } else {
                    other ^ 0x20
                }
            }
            (Self::Digit(_), Self::Digit(other)) => style.digit(other, byte),
            (Self::Half(..), Self::Half(bits, is_first)) => {
                style.digit(half(bits, is_first, false), byte)
            }
            (Self::Six(own, of_value), Self::Six(other, _)) => {
                let kept = bits(byte).unwrap_or(own) & !of_value;
                let new = kept | other & of_value;
                if bits(byte) == Some(new) {
                    byte
                } else {
                    letter(new, style.is_for_addresses)
                }
            }
            // Both are of one form, so they are of one kind.
            (Self::Byte(_), Self::Digit(_) | Self::Six(..) | Self::Half(..))
            | (Self::Digit(_), Self::Byte(_) | Self::Six(..) | Self::Half(..))
            | (Self::Six(..), Self::Byte(_) | Self::Digit(_) | Self::Half(..))
            | (Self::Half(..), Self::Byte(_) | Self::Digit(_) | Self::Six(..)) => b'*',
        }
    }
}
