//! Policies that would grant something because the agent states that it is sure.
//!
//! Such a statement never grants anything, whatever a policy says; here the person learns that the
//! policy is useless. It is looked for in the text, in one pass, since policies may be deeply
//! nested.

/// The context member that the agent states.
const STATED: &str = "confidence";

/// The error message.
pub(crate) const OPENS: &str = "confidence can only tighten, since the agent states it: write it into a policy that \
     forbids, into `unless`, or beside @approve";

/// Returns whether a `when` clause of a policy's text names the member that the agent states.
pub(crate) fn is_named(policy: &str) -> bool {
    let mut rest = policy;
    let (mut depth, mut is_within, mut before) = (0_usize, false, "");
    while let Some(first) = rest.chars().next() {
        let length = token(rest, first);
        let Some((one, after)) = rest.split_at_checked(length) else {
            return true;
        };
        rest = after;
        match one {
            "{" => {
                depth += 1;
                if before == "when" && depth == 1 {
                    is_within = true;
                }
            }
            "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    is_within = false;
                }
            }
            _ if is_within => {
                let is_attribute = before == "[" || before == "has";
                let is_quoted = is_attribute && one.trim_matches('"') == STATED;
                if one == STATED || is_quoted {
                    return true;
                }
            }
            _ => {}
        }
        if !first.is_whitespace() && !one.starts_with("//") {
            before = one;
        }
    }
    false
}

/// Returns the length of the first token, bytes.
fn token(text: &str, first: char) -> usize {
    let is_word = |one: char| one.is_ascii_alphanumeric() || one == '_';
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if first == '"' {
        let mut is_escaped = false;
        let end = text.char_indices().skip(1).find(|(_, one)| {
            let ends = *one == '"' && !is_escaped;
            is_escaped = *one == '\\' && !is_escaped;
            ends
        });
        return end.map_or(text.len(), |(at, _)| at + 1);
    }
    match is_word(first) {
        true => text.find(|one| !is_word(one)).unwrap_or(text.len()),
        false => first.len_utf8(),
    }
}
