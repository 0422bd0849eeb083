//! Texts as files write them.

pub(crate) fn quoted(text: &str) -> String {
    // Written by hand, so that no text becomes one of several lines.
    let mut quoted = String::from("\"");
    for one in text.chars() {
        match one {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            one if one.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(one))),
            one => quoted.push(one),
        }
    }
    quoted.push('"');
    quoted
}
