//! Text that an attacker made as plain text: safe in a message, a record and on a terminal.

use std::fmt::Write as _;

use atoll_model::mask_secrets_in;

/// Makes one line of untrusted text (a name, a path, an argument, a reason) safe to print: control
/// characters, bytes that are not UTF-8, and characters that are invisible or turn the direction of
/// text are written as escapes, and secrets that look like ones are masked.
///
/// The result is for people; two different names may look the same in it when one
/// of them contains backslashes.
#[must_use]
pub fn printable(text: &[u8]) -> String {
    escape(&mask_secrets_in(text), is_deceptive)
}

/// As [`printable`], with nothing masked: for what a person decides about, who has to see all of it.
#[must_use]
pub fn printable_whole(text: &[u8]) -> String {
    escape(text, is_deceptive)
}

/// Makes text printable within quotation marks, so that two different names never look the same:
/// characters that would end the quotation or begin an escape are escaped too.
#[must_use]
pub fn quoted(text: &[u8]) -> String {
    let text = escape(text, |character| {
        is_deceptive(character) || matches!(character, '"' | '\\')
    });
    format!("\"{text}\"")
}

/// Makes text of several lines printable, as the content of a diff: line feeds and tabs stay.
#[must_use]
pub fn printable_lines(text: &[u8]) -> String {
    escape(text, |character| {
        !matches!(character, '\n' | '\t') && is_deceptive(character)
    })
}

/// Makes a JSON text safe to print: the same characters are written as JSON has them (`\\u202e`,
/// RFC 8259 section 7), so that it stays JSON with the same meaning. Line feeds stay: in a JSON
/// text none is within a string.
#[must_use]
pub fn printable_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character == '\n' || !is_deceptive(character) {
            shown.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    shown
}

/// Cuts a text to this many characters, with a mark where it was cut.
#[must_use]
pub fn shortened(text: &str, characters_max: usize) -> String {
    if text.chars().count() <= characters_max {
        return text.to_owned();
    }
    let kept = text.chars().take(characters_max.saturating_sub(1));
    kept.chain(['…']).collect()
}

fn escape(text: &[u8], escaped: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            if !escaped(character) {
                shown.push(character);
            } else if character.is_ascii() && !matches!(character, '\n' | '\r' | '\t') {
                // Writing to a string cannot fail.
                let _ = write!(shown, "\\x{:02x}", u32::from(character));
            } else {
                shown.extend(character.escape_default());
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// Returns whether a character is a control, is invisible, or changes how its neighbours are shown.
#[must_use]
pub fn is_deceptive(character: char) -> bool {
    character.is_control()
        || matches!(character,
            // Soft hyphen, grapheme joiner, Arabic letter mark.
            '\u{ad}' | '\u{34f}' | '\u{61c}'
            // Fillers of Hangul and Khmer, the Mongolian separators.
            | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            // Zero width, directions, line and paragraph separators, isolates.
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            // Byte order mark, annotations.
            | '\u{feff}' | '\u{fff0}'..='\u{fffb}'
            // Tags, and the variation selectors that can carry hidden text.
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_printable() {
        let shown = |text: &[u8], expected: &str| assert_eq!(printable(text), expected);
        shown(b"plain name.txt", "plain name.txt");
        shown("ünï 你好 🏝️".as_bytes(), "ünï 你好 🏝️");
        shown(b"a\x1b[31mb\x07\x7f", "a\\x1b[31mb\\x07\\x7f");
        shown(b"a\nb\tc\rd", "a\\nb\\tc\\rd");
        shown(b"a\xffb\xe2\x82", "a\\xffb\\xe2\\x82");
        shown(b"back\\slash", "back\\slash");
        shown("gpj.\u{202e}exe".as_bytes(), "gpj.\\u{202e}exe");
        shown(
            "\u{2066}a\u{2069}\u{200b}\u{feff}\u{e0041}".as_bytes(),
            "\\u{2066}a\\u{2069}\\u{200b}\\u{feff}\\u{e0041}",
        );
        shown("\u{9b}6n".as_bytes(), "\\u{9b}6n");
        let token = "ghp_4Wf0Yc8uR2nT7kLq1Zx5Bv9Jm3Hs6Dp0Ga2E";
        shown(format!("x\n{token}").as_bytes(), "x\\nghp_[masked]");
        assert_eq!(printable_whole(token.as_bytes()), token);
        assert_eq!(
            printable_lines(b"+\tx = 1;\n-\x1b]0;y\x07\r\n"),
            "+\tx = 1;\n-\\x1b]0;y\\x07\\r\n"
        );
    }
}
