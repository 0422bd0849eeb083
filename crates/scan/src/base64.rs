//! Base64 in both of its alphabets, with and without padding (RFC 4648).

/// Decodes a text; `None` where it is none. Bits beyond the last byte are ignored.
pub(crate) fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let text = text
        .strip_suffix(b"==")
        .or_else(|| text.strip_suffix(b"="))
        .unwrap_or(text);
    if text.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut held, mut count) = (0_u32, 0);
    for letter in text {
        held = held << 6 | u32::from(value(*letter)?);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((held >> count & 0xff) as u8);
        }
    }
    Some(bytes)
}

const VALUES: [u8; 256] = values();

/// Returns whether a byte is a letter of it.
pub(crate) fn is_letter(byte: u8) -> bool {
    VALUES
        .get(usize::from(byte))
        .is_some_and(|value| *value < 64)
}

/// Returns the value of a letter.
pub(crate) fn value(letter: u8) -> Option<u8> {
    let value = VALUES.get(usize::from(letter)).copied();
    value.filter(|value| *value < 64)
}

#[expect(clippy::indexing_slicing, reason = "computed by the compiler")]
const fn values() -> [u8; 256] {
    let mut values = [u8::MAX; 256];
    let mut at = 0;
    while at < values.len() {
        let letter = at as u8;
        values[at] = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => u8::MAX,
        };
        at += 1;
    }
    values
}
