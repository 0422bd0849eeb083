//! Bytes between two symbols of a value that are no part of it: zero bytes of UTF-16 and UTF-32,
//! line breaks, and separators between bytes written as digits.

use super::symbols::Form;
use super::units::{self, EncodedUnit};

/// The most units of a gap.
pub(super) const UNITS_MAX: usize = 12;
/// The longest gap, bytes.
pub(super) const BYTES_MAX: usize = 24;

/// The gap at some index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// A gap of this many bytes, which may be 0.
    Bytes(usize),
    /// A gap that reaches the end of the available bytes.
    Open,
}

/// Returns whether a byte separates bytes that are written as digits.
#[inline]
pub(super) fn is_separator(byte: u8) -> bool {
    matches!(byte, b' ' | b':' | b'-' | b',')
}

/// Returns whether the prefix of a byte's digits begins here.
pub(super) fn is_prefix(bytes: &[u8]) -> bool {
    matches!(bytes, [b'0', b'x' | b'X', ..])
}

/// Returns whether a byte may be in a gap before the symbol at this place.
pub(super) fn is_of(form: Form, place: usize, byte: u8) -> bool {
    match form {
        Form::Plain | Form::Wide => byte == 0,
        Form::Base64(_) => matches!(byte, 0 | b'\n' | b'\r'),
        Form::Hexadecimal | Form::HexadecimalBase64(_) => {
            matches!(byte, 0 | b'\n' | b'\r') || place.is_multiple_of(2) && is_separator(byte)
        }
    }
}

/// Returns whether digits of a byte begin at this place, which may have a prefix each.
pub(super) fn is_prefixed(form: Form, place: usize) -> bool {
    matches!(form, Form::Hexadecimal | Form::HexadecimalBase64(_)) && place.is_multiple_of(2)
}

/// Reads the gap at the beginning of these bytes, before the symbol at this place.
pub(super) fn read(form: Form, place: usize, bytes: &[u8]) -> Gap {
    let (mut length, mut lines, mut returns) = (0, 0, 0);
    for _ in 0..UNITS_MAX {
        let rest = bytes.get(length..).unwrap_or_default();
        let (byte, unit) = match units::read(rest) {
            None | Some(EncodedUnit::Begun) => return Gap::Open,
            Some(EncodedUnit::Soft(unit)) => (b'\n', unit),
            Some(EncodedUnit::Plain(byte)) if is_of(form, place, byte) => (byte, 1),
            Some(EncodedUnit::Growing(byte, _)) if is_of(form, place, byte) => return Gap::Open,
            Some(EncodedUnit::Escaped(byte, unit)) if is_of(form, place, byte) => (byte, unit),
            Some(EncodedUnit::Plain(_) | EncodedUnit::Growing(..) | EncodedUnit::Escaped(..)) => {
                if length > 0 && is_prefixed(form, place) {
                    match rest {
                        [b'0'] => return Gap::Open,
                        [b'0', b'x' | b'X', ..] => length += 2,
                        _ => {}
                    }
                }
                break;
            }
        };
        lines += usize::from(byte == b'\n');
        returns += usize::from(byte == b'\r');
        if lines > 1 || returns > 1 || length + unit > BYTES_MAX {
            break;
        }
        length += unit;
    }
    match length == bytes.len() {
        true => Gap::Open,
        false => Gap::Bytes(length),
    }
}
