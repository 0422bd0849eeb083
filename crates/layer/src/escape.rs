//! Bytes from a hostile tree as text that no terminal, log or journal can
//! mistake for anything else.

use std::fmt::Write as _;

/// Escapes bytes for people: valid UTF-8 that prints stays, everything else becomes `\xNN`,
/// `\u{NNNN}` or a short escape. A backslash becomes two, so that nothing that was in the content
/// can pass for an escape.
pub(crate) fn text(bytes: &[u8]) -> String {
    render(bytes, true)
}

/// Escapes a line of a diff: like [`text`], but tabs and backslashes stay, because source code is
/// full of them.
pub(crate) fn line(bytes: &[u8]) -> String {
    render(bytes, false)
}

/// Writes a name as git does in diffs: plain, or quoted with C escapes.
pub(crate) fn quoted_name(prefix: &str, bytes: &[u8]) -> String {
    let plain = bytes
        .iter()
        .all(|byte| matches!(byte, 0x20..=0x7e) && !matches!(byte, b'"' | b'\\'));
    if plain {
        return format!("{prefix}{}", String::from_utf8_lossy(bytes));
    }
    let mut out = format!("\"{prefix}");
    for byte in bytes {
        let _ = match byte {
            b'"' => out.write_str("\\\""),
            b'\\' => out.write_str("\\\\"),
            b'\n' => out.write_str("\\n"),
            b'\t' => out.write_str("\\t"),
            0x20..=0x7e => out.write_char(char::from(*byte)),
            _ => write!(out, "\\{byte:03o}"),
        };
    }
    out.push('"');
    out
}

/// Escapes bytes for journals: reversible, ASCII only.
pub(crate) fn record(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        let _ = match byte {
            b'%' => out.write_str("%25"),
            0x20..=0x7e => out.write_char(char::from(*byte)),
            _ => write!(out, "%{byte:02x}"),
        };
    }
    out
}

/// Parses the output of [`record`].
pub(crate) fn parse_record(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            out.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            out.push(byte);
        }
    }
    Some(out)
}

fn render(bytes: &[u8], strict: bool) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            let _ = match letter {
                '\\' if strict => out.write_str("\\\\"),
                '\t' if !strict => out.write_char('\t'),
                '\n' => out.write_str("\\n"),
                '\r' => out.write_str("\\r"),
                '\t' => out.write_str("\\t"),
                _ if u32::from(letter) < 0x80 && letter.is_control() => {
                    write!(out, "\\x{:02x}", u32::from(letter))
                }
                _ if deceives(letter) => write!(out, "\\u{{{:x}}}", u32::from(letter)),
                _ => out.write_char(letter),
            };
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// Returns whether a character is a C1 control, which some terminals obey, or reorders or hides the
/// text around it ("Trojan Source").
fn deceives(letter: char) -> bool {
    matches!(
        u32::from(letter),
        0x80..=0x9f
            | 0xad
            | 0x61c
            | 0x180e
            | 0x200b..=0x200f
            | 0x2028..=0x202e
            | 0x2060..=0x206f
            | 0xfeff
            | 0xfff9..=0xfffb
            | 0xe0000..=0xe007f
    )
}
