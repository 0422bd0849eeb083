//! Substring search in bytes.

/// Returns whether a text contains another one, in any case of letters.
pub(crate) fn holds_in_any_case(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty()
        && text
            .windows(part.len())
            .any(|window| window.eq_ignore_ascii_case(part))
}

/// Returns whether a text contains another one.
pub(crate) fn holds(text: &[u8], part: &[u8]) -> bool {
    let Some((first, rest)) = part.split_first() else {
        return false;
    };
    let mut text = text;
    while let Some(at) = text.iter().position(|byte| byte == first) {
        text = text.get(at + 1..).unwrap_or_default();
        if text.starts_with(rest) {
            return true;
        }
    }
    false
}
