//! Bytes as they are written: as themselves, or escaped.

/// The longest way to write a byte: `\u0041`.
pub(super) const BYTES_MAX: usize = 6;

/// What stands at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A byte as itself, of which none is an escape's beginning.
    Plain(u8),
    /// An escaped one, and in how many bytes.
    Escaped(u8, usize),
    /// What may become an escape when more comes.
    Begun,
}

/// What stands at the beginning of these bytes, if there is anything.
#[inline]
pub(super) fn read(bytes: &[u8]) -> Option<Unit> {
    let (first, rest) = bytes.split_first()?;
    Some(match first {
        b'%' => hexadecimal(rest).wrapped(*first, 1),
        b'\\' => escaped(rest),
        _ => Unit::Plain(*first),
    })
}

fn escaped(rest: &[u8]) -> Unit {
    let Some((kind, rest)) = rest.split_first() else {
        return Unit::Begun;
    };
    let byte = match kind {
        b'u' => {
            let zeros = rest
                .iter()
                .take(2)
                .take_while(|byte| **byte == b'0')
                .count();
            return match rest.get(2..) {
                Some(digits) if zeros == 2 => match hexadecimal(digits) {
                    // Beyond, it is a character of two bytes.
                    Digits::Both(byte) if byte >= 0x80 => Unit::Plain(b'\\'),
                    digits => digits.wrapped(b'\\', 4),
                },
                None if zeros == rest.len() => Unit::Begun,
                Some(_) | None => Unit::Plain(b'\\'),
            };
        }
        b'x' => return hexadecimal(rest).wrapped(b'\\', 2),
        b'"' | b'\'' | b'\\' | b'/' => *kind,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        _ => return Unit::Plain(b'\\'),
    };
    Unit::Escaped(byte, 2)
}

enum Digits {
    Both(u8),
    Begun,
    None,
}

impl Digits {
    /// As part of an escape that begins by this byte and has so many before the digits.
    fn wrapped(self, first: u8, before: usize) -> Unit {
        match self {
            Self::Both(byte) => Unit::Escaped(byte, before + 2),
            Self::Begun => Unit::Begun,
            Self::None => Unit::Plain(first),
        }
    }
}

#[inline]
fn hexadecimal(bytes: &[u8]) -> Digits {
    if let Some([high, low]) = bytes.first_chunk()
        && let (Some(high), Some(low)) = (digit(*high), digit(*low))
    {
        return Digits::Both(high << 4 | low);
    }
    let mut digits = bytes.iter().take(2).map(|byte| digit(*byte));
    match (digits.next(), digits.next()) {
        (None, _) | (Some(Some(_)), None) => Digits::Begun,
        (Some(_), _) => Digits::None,
    }
}

/// The value of a hexadecimal digit.
#[inline]
pub(super) fn digit(byte: u8) -> Option<u8> {
    let digit = DIGITS.get(usize::from(byte)).copied();
    digit.filter(|digit| *digit != NO_DIGIT)
}

const NO_DIGIT: u8 = 0xff;

/// What each byte is as a digit: four times as fast as asking for ranges.
#[expect(
    clippy::indexing_slicing,
    reason = "the compiler evaluates it, and would say so"
)]
static DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789abcdef"[value] as usize] = value as u8;
        digits[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    digits
};

/// A hexadecimal digit in the case of another one.
pub(super) fn digit_like(value: u8, model: u8) -> u8 {
    match value & 0xf {
        value @ 0..=9 => b'0' + value,
        value if model.is_ascii_uppercase() => b'A' + value - 10,
        value => b'a' + value - 10,
    }
}

/// Writes another byte in the way in which one is written.
pub(super) fn write_like(written: &[u8], byte: u8, out: &mut Vec<u8>) {
    let is_hexadecimal = written.len() > 2;
    match written {
        [before @ .., high, low] if is_hexadecimal => {
            // A digit has no case where it is none of the letters: the other one tells.
            let model = |own: u8, other: u8| {
                if own.is_ascii_alphabetic() {
                    own
                } else {
                    other
                }
            };
            out.extend_from_slice(before);
            out.push(digit_like(byte >> 4, model(*high, *low)));
            out.push(digit_like(byte, model(*low, *high)));
        }
        // A mark with a short escape stands for itself.
        [b'\\', _] => out.extend_from_slice(written),
        _ => out.push(byte),
    }
}
