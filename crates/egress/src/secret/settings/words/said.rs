//! Secrets within a longer text: a command, a line of an environment, a header.

use std::ops::Range;

use super::{is_flag, is_holder, is_plain, is_reference, is_secret, scheme_bytes};
use crate::secret::BYTES_MIN;

/// A value long enough to be a secret under an ambiguous name, such as `key`.
const LONG: &str = "0123456789abcdef";
/// The flags that set a variable of a command.
const VARIABLES: &[&str] = &["-e", "--env", "--environment"];

/// Returns the values after names of secrets, wherever they are: after `=` and `:`, after a flag
/// such as `--api-key`, and those of variables set by a flag such as `--env`.
pub(super) fn values(text: &str) -> Vec<Range<usize>> {
    let mut values = Vec::new();
    let mut at = 0;
    let mut is_variable = false;
    while let Some(name) = next_name(text, at) {
        at = name.end;
        let value = value_after(text, &name, is_variable);
        let word = text.get(name.clone()).unwrap_or_default();
        is_variable = VARIABLES.contains(&word) || (word.starts_with('-') && is_holder(word));
        if let Some(value) = value {
            at = value.end;
            is_variable = false;
            values.push(value);
        }
    }
    values
}

/// Returns the next word of name characters.
fn next_name(text: &str, from: usize) -> Option<Range<usize>> {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    let start = from + text.get(from..)?.find(is_of_name)?;
    let rest = text.get(start..)?;
    let length = rest.find(|letter| !is_of_name(letter));
    Some(start..start + length.unwrap_or(rest.len()))
}

/// Returns the value of a name, if that is a secret.
fn value_after(text: &str, name: &Range<usize>, is_variable: bool) -> Option<Range<usize>> {
    let word = text.get(name.clone())?;
    if !is_variable && !is_secret(word, LONG) {
        return None;
    }
    let rest = text.get(name.end..)?;
    let marks = rest.trim_start_matches(is_quote);
    let (sign, after) = match marks.trim_start().strip_prefix([':', '=']) {
        Some(after) => (marks.trim_start().chars().next(), after),
        None if word.starts_with('-') && marks.starts_with(char::is_whitespace) => (None, marks),
        None => return None,
    };
    if is_variable && sign != Some('=') {
        return None;
    }
    let own = after.trim_start();
    let begun = own.trim_start_matches(is_quote);
    let quote = own.get(..own.len() - begun.len())?.chars().last();
    // A header as a whole is in quotes: `"Authorization: Bearer …"`.
    let outer = text.get(..name.start)?.chars().next_back();
    let outer = outer.filter(|letter| is_quote(*letter) && marks.len() == rest.len());
    let scheme = scheme_bytes(begun);
    let value = begun.get(scheme..)?;
    let length = match quote.filter(|one| *one != '\\').or(outer) {
        Some(quote) => value.find([quote, '\n']),
        None => value.find(is_end),
    };
    let value = value.get(..length.unwrap_or(value.len()))?;
    let is_named = match (sign, quote) {
        _ if is_variable => !is_plain(value),
        (None, _) => !value.starts_with('-') && is_flag(word, value),
        // In a sentence a word may follow.
        (Some(':'), None) if outer.is_none() && scheme == 0 => {
            is_secret(word, value) && is_told(value)
        }
        (Some(_), _) => is_secret(word, value),
    };
    let is_value = is_named
        && value.chars().any(char::is_alphanumeric)
        && !is_reference(value)
        && !["${", "$(", "{env:", "{file:"]
            .iter()
            .any(|start| value.starts_with(start));
    let start = text.len() - begun.len() + scheme;
    is_value.then(|| start..start + value.len())
}

/// Returns whether a word of a sentence looks like a secret rather than a word.
fn is_told(value: &str) -> bool {
    let has_digit = value.bytes().any(|byte| byte.is_ascii_digit());
    value.len() >= BYTES_MIN || (value.len() >= super::super::SOUGHT_BYTES_MIN && has_digit)
}

fn is_quote(letter: char) -> bool {
    "\"'`\\".contains(letter)
}

/// Returns whether a letter ends a value without quotes.
fn is_end(letter: char) -> bool {
    letter.is_whitespace() || letter.is_control() || "\"'`&;|<>".contains(letter)
}
