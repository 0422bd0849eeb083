//! Units of text: bytes as themselves, or escaped.

/// The longest encoding of a byte: `\u{00000041}`, `&#x00000041;`.
pub(super) const BYTES_MAX: usize = 12;
/// The most digits read of an escape that fixes no number of digits.
const DIGITS_MAX: usize = 8;

/// The unit at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EncodedUnit {
    /// A byte as itself, not the beginning of an escape.
    Plain(u8),
    /// An escaped byte, and the length of the escape.
    Escaped(u8, usize),
    /// An escaped byte that may become another one, or a longer escape, when more comes.
    Growing(u8, usize),
    /// A soft line break, no part of the text (RFC 2045, 6.7), and its length.
    Soft(usize),
    /// An incomplete escape, which may become one when more comes.
    Begun,
}

/// Returns whether an escape may begin by a byte.
#[inline]
pub(super) fn is_mark(byte: u8) -> bool {
    matches!(byte, b'%' | b'\\' | b'&' | b'=')
}

/// Reads the unit at the beginning of these bytes, if there are any.
#[inline]
pub(super) fn read(bytes: &[u8]) -> Option<EncodedUnit> {
    let (first, rest) = bytes.split_first()?;
    Some(match first {
        b'%' => hexadecimal(rest).wrapped(*first, 1),
        b'\\' => escaped(rest),
        b'=' => quoted(rest),
        b'&' => reference(rest),
        _ => EncodedUnit::Plain(*first),
    })
}

fn escaped(rest: &[u8]) -> EncodedUnit {
    let Some((kind, rest)) = rest.split_first() else {
        return EncodedUnit::Begun;
    };
    let byte = match kind {
        b'u' if rest.first() == Some(&b'{') => return braced(rest),
        b'u' => return fixed(rest, 2),
        b'U' => return fixed(rest, 6),
        b'x' => return hexadecimal(rest).wrapped(b'\\', 2),
        b'0'..=b'7' => return octal(*kind, rest),
        b'"' | b'\'' | b'\\' | b'/' => *kind,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        _ => return EncodedUnit::Plain(b'\\'),
    };
    EncodedUnit::Escaped(byte, 2)
}

/// Reads a character by its number, of which this many digits are zeros.
fn fixed(rest: &[u8], zeros: usize) -> EncodedUnit {
    let is_zero = |byte: &&u8| **byte == b'0';
    let found = rest.iter().take(zeros).take_while(is_zero).count();
    match rest.get(zeros..) {
        Some(digits) if found == zeros => match hexadecimal(digits) {
            // Beyond, it is a character of two bytes.
            Digits::Both(byte) if byte >= 0x80 => EncodedUnit::Plain(b'\\'),
            digits => digits.wrapped(b'\\', 2 + zeros),
        },
        None if found == rest.len() => EncodedUnit::Begun,
        Some(_) | None => EncodedUnit::Plain(b'\\'),
    }
}

/// Reads a character by its number in braces, from the first brace on.
fn braced(rest: &[u8]) -> EncodedUnit {
    let number = Number::read(rest.get(1..).unwrap_or_default(), 16);
    match rest.get(1 + number.digits) {
        Some(b'}') if number.is_byte() => EncodedUnit::Escaped(number.value, 2 + number.digits + 2),
        None if number.is_byte() || number.digits == 0 => EncodedUnit::Begun,
        Some(_) | None => EncodedUnit::Plain(b'\\'),
    }
}

/// Reads a byte of one to three octal digits, as many as make a byte.
fn octal(first: u8, rest: &[u8]) -> EncodedUnit {
    let (mut value, mut length) = (u16::from(first - b'0'), 2);
    for byte in rest.iter().take(2) {
        let longer = value * 8 + u16::from(byte.wrapping_sub(b'0'));
        if !matches!(byte, b'0'..=b'7') || longer > 0xff {
            return EncodedUnit::Escaped(value as u8, length);
        }
        (value, length) = (longer, length + 1);
    }
    match length < 4 && value < 0o40 {
        true => EncodedUnit::Growing(value as u8, length),
        false => EncodedUnit::Escaped(value as u8, length),
    }
}

/// Reads quoted-printable.
fn quoted(rest: &[u8]) -> EncodedUnit {
    match rest {
        [b'\n', ..] => EncodedUnit::Soft(2),
        [b'\r', b'\n', ..] => EncodedUnit::Soft(3),
        [b'\r'] => EncodedUnit::Begun,
        rest => match hexadecimal(rest) {
            Digits::Both(byte) if byte >= 0x80 => EncodedUnit::Plain(b'='),
            digits => digits.wrapped(b'=', 1),
        },
    }
}

/// A number of an ASCII character: the most digits in a row that make one.
struct Number {
    value: u8,
    digits: usize,
    /// Set if more digits follow.
    is_longer: bool,
}

impl Number {
    fn read(bytes: &[u8], radix: u32) -> Self {
        let (mut value, mut digits) = (0, 0);
        let known = bytes.iter().take(DIGITS_MAX);
        for digit in known.map_while(|byte| char::from(*byte).to_digit(radix)) {
            let longer = value * radix + digit;
            if longer >= 0x80 {
                let value = value as u8;
                return Self {
                    value,
                    digits,
                    is_longer: true,
                };
            }
            (value, digits) = (longer, digits + 1);
        }
        let value = value as u8;
        Self {
            value,
            digits,
            is_longer: false,
        }
    }

    fn is_byte(&self) -> bool {
        self.digits > 0 && !self.is_longer
    }
}

/// Reads an HTML character reference, from its second byte on.
fn reference(rest: &[u8]) -> EncodedUnit {
    let (value, length) = match rest {
        [] | [b'#'] | [b'#', b'x' | b'X'] => return EncodedUnit::Begun,
        [b'#', ..] => {
            let (before, radix) = match rest.get(1) {
                Some(b'x' | b'X') => (2, 16),
                Some(_) | None => (1, 10),
            };
            let number = Number::read(rest.get(before..).unwrap_or_default(), radix);
            if number.digits == 0 {
                return EncodedUnit::Plain(b'&');
            }
            if number.is_longer {
                return EncodedUnit::Escaped(number.value, 1 + before + number.digits);
            }
            (number.value, before + number.digits)
        }
        _ => match named(rest) {
            Named::Whole(byte, length) => (byte, length),
            Named::Begun => return EncodedUnit::Begun,
            Named::Not => return EncodedUnit::Plain(b'&'),
        },
    };
    match rest.get(length) {
        None => EncodedUnit::Growing(value, 1 + length),
        Some(b';') => EncodedUnit::Escaped(value, 1 + length + 1),
        Some(_) => EncodedUnit::Escaped(value, 1 + length),
    }
}

enum Named {
    Whole(u8, usize),
    Begun,
    Not,
}

/// Reads a named reference: the longer one of two names.
fn named(rest: &[u8]) -> Named {
    let alike = NAMES
        .iter()
        .filter(|(name, _)| name.first() == rest.first());
    let (mut longest, mut is_begun) = (None, false);
    for (name, byte) in alike {
        if rest.starts_with(name) {
            longest = longest.max(Some((name.len(), *byte)));
        } else {
            is_begun |= name.starts_with(rest);
        }
    }
    match longest {
        Some((length, byte)) => Named::Whole(byte, length),
        None if is_begun => Named::Begun,
        None => Named::Not,
    }
}

/// The names that HTML has for ASCII characters.
const NAMES: &[(&[u8], u8)] = &[
    (b"AMP", b'&'),
    (b"GT", b'>'),
    (b"Hat", b'^'),
    (b"LT", b'<'),
    (b"NewLine", b'\n'),
    (b"QUOT", b'"'),
    (b"Tab", b'\t'),
    (b"UnderBar", b'_'),
    (b"amp", b'&'),
    (b"apos", b'\''),
    (b"ast", b'*'),
    (b"bsol", b'\\'),
    (b"colon", b':'),
    (b"comma", b','),
    (b"commat", b'@'),
    (b"dollar", b'$'),
    (b"equals", b'='),
    (b"excl", b'!'),
    (b"grave", b'`'),
    (b"gt", b'>'),
    (b"lbrace", b'{'),
    (b"lbrack", b'['),
    (b"lcub", b'{'),
    (b"lowbar", b'_'),
    (b"lpar", b'('),
    (b"lsqb", b'['),
    (b"lt", b'<'),
    (b"midast", b'*'),
    (b"num", b'#'),
    (b"percnt", b'%'),
    (b"period", b'.'),
    (b"plus", b'+'),
    (b"quest", b'?'),
    (b"quot", b'"'),
    (b"rbrace", b'}'),
    (b"rbrack", b']'),
    (b"rcub", b'}'),
    (b"rpar", b')'),
    (b"rsqb", b']'),
    (b"semi", b';'),
    (b"sol", b'/'),
    (b"verbar", b'|'),
    (b"vert", b'|'),
];

enum Digits {
    Both(u8),
    Begun,
    None,
}

impl Digits {
    /// Completes an escape that begins by this byte and has this many before the digits.
    fn wrapped(self, first: u8, before: usize) -> EncodedUnit {
        match self {
            Self::Both(byte) => EncodedUnit::Escaped(byte, before + 2),
            Self::Begun => EncodedUnit::Begun,
            Self::None => EncodedUnit::Plain(first),
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

/// Returns the value of a hexadecimal digit.
#[inline]
pub(super) fn digit(byte: u8) -> Option<u8> {
    let digit = DIGITS.get(usize::from(byte)).copied();
    digit.filter(|digit| *digit != NO_DIGIT)
}

const NO_DIGIT: u8 = 0xff;

/// The value of each byte as a digit: four times as fast as range checks.
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

/// Returns a hexadecimal digit in the case of another one.
pub(super) fn digit_like(value: u8, model: u8) -> u8 {
    match value & 0xf {
        value @ 0..=9 => b'0' + value,
        value if model.is_ascii_uppercase() => b'A' + value - 10,
        value => b'a' + value - 10,
    }
}

/// Writes another byte in the same notation and length. If that has no room for its number, a byte
/// with a smaller number is written.
pub(super) fn write_like(written: &[u8], byte: u8, out: &mut Vec<u8>) {
    let (before, digits, after, radix) = match written {
        [b'&', b'#', kind @ (b'x' | b'X'), digits @ .., b';'] => {
            (&[b'&', b'#', *kind][..], digits, &b";"[..], 16)
        }
        [b'&', b'#', kind @ (b'x' | b'X'), digits @ ..] => {
            (&[b'&', b'#', *kind][..], digits, &b""[..], 16)
        }
        [b'&', b'#', digits @ .., b';'] => (&b"&#"[..], digits, &b";"[..], 10),
        [b'&', b'#', digits @ ..] => (&b"&#"[..], digits, &b""[..], 10),
        // A name is one of this byte alone.
        [b'&', _, digits @ .., b';'] if digits.len() >= 3 => (&b"&#"[..], digits, &b";"[..], 10),
        [b'&', _, digits @ ..] => (&b"&#"[..], digits, &b""[..], 10),
        [b'\\', b'u', b'{', digits @ .., b'}'] => (&b"\\u{"[..], digits, &b"}"[..], 16),
        [b'\\', digits @ ..] if digits.first().is_some_and(u8::is_ascii_digit) => {
            (&b"\\"[..], digits, &b""[..], 8)
        }
        // A mark with a short escape stands for itself.
        [b'\\', _] => {
            out.extend_from_slice(written);
            return;
        }
        [before @ .., _, _] if !before.is_empty() => {
            let (before, digits) = written.split_at(before.len());
            (before, digits, &b""[..], 16)
        }
        _ => {
            out.push(byte);
            return;
        }
    };
    out.extend_from_slice(before);
    let room = u32::saturating_pow(radix, digits.len() as u32);
    let has_room = |byte: &u8| u32::from(*byte) < room;
    let fit = [byte, byte.to_ascii_uppercase(), b'0' + byte % 8];
    let mut number = u32::from(fit.into_iter().find(has_room).unwrap_or(b'0'));
    let model = digits
        .iter()
        .rev()
        .find(|digit| digit.is_ascii_alphabetic());
    let begin = out.len();
    for _ in digits {
        let (digit, rest) = match radix {
            16 => (number & 0xf, number >> 4),
            8 => (number & 7, number >> 3),
            _ => (number % 10, number / 10),
        };
        out.push(digit_like(digit as u8, *model.unwrap_or(&b'0')));
        number = rest;
    }
    out.get_mut(begin..).unwrap_or_default().reverse();
    out.extend_from_slice(after);
}
