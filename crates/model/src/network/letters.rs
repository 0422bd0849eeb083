//! Characters beyond ASCII that programs read in different ways.

use std::iter::once;

use unicode_normalization::UnicodeNormalization;

/// Returns the reason that programs may read a text as another one: in its normal form for
/// comparison (NFKC), in the other case, or without invisible characters.
pub(super) fn unclear(text: &str) -> Option<&'static str> {
    if text.is_ascii() {
        None
    } else if text.chars().any(is_unshown) {
        Some("a character that is not shown is escaped in it")
    } else if text.chars().any(is_ascii_in_other_case) {
        Some("a letter is escaped in it that some programs read as one of ASCII")
    } else if !text.nfkc().eq(text.chars()) {
        Some("a character is escaped in it that has another form (Unicode NFKC)")
    } else {
        None
    }
}

/// Folds the case of a character, as Unicode's simple case folding does.
pub(super) fn folded(one: char) -> char {
    let upper = alone(one.to_uppercase());
    let lower = upper.and_then(|upper| alone(upper.to_lowercase()));
    lower.unwrap_or(one)
}

/// Returns the only item of an iterator; `None` if there are none or several.
fn alone(mut all: impl Iterator<Item = char>) -> Option<char> {
    let first = all.next();
    first.filter(|_| all.next().is_none())
}

/// Returns whether a character beyond ASCII has an ASCII character, or several, as its other case,
/// as U+017F, U+0131 and U+00DF do.
fn is_ascii_in_other_case(one: char) -> bool {
    let mut cases = one
        .to_lowercase()
        .flat_map(|lower| once(lower).chain(lower.to_uppercase()));
    !one.is_ascii() && (folded(one).is_ascii() || cases.any(|case| case.is_ascii()))
}

/// Returns whether programs may ignore a character in comparisons (Unicode,
/// `Default_Ignorable_Code_Point`).
fn is_unshown(one: char) -> bool {
    matches!(
        u32::from(one),
        0xad | 0x34f
            | 0x61c
            | 0x115f..=0x1160
            | 0x17b4..=0x17b5
            | 0x180b..=0x180f
            | 0x200b..=0x200f
            | 0x202a..=0x202e
            | 0x2060..=0x206f
            | 0x3164
            | 0xfe00..=0xfe0f
            | 0xfeff
            | 0xffa0
            | 0xfff0..=0xfff8
            | 0x1bca0..=0x1bca3
            | 0x1d173..=0x1d17a
            | 0xe0000..=0xe0fff
    )
}
