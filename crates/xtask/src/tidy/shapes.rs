//! The shape of functions and types: parameters and methods, read from masked code.

use super::source::{list, words};

/// Returns the line and the name of each function, with or without a body, and the number of its
/// parameters beside `self`.
pub(crate) fn parameters(code: &str) -> Vec<(usize, &str, usize)> {
    let mut found = Vec::new();
    for (at, _) in words(code).filter(|(_, word)| *word == "fn") {
        let after = code.get(at + 2..).unwrap_or_default();
        // `fn(u8)` is a type.
        let named = words(after).next().filter(|_| after.starts_with(' '));
        let Some((start, name)) = named else {
            continue;
        };
        let rest = after.get(start + name.len()..).unwrap_or_default();
        let rest = rest
            .strip_prefix('<')
            .map_or(rest, |generics| list(generics).1);
        let parameters = rest.strip_prefix('(').map(list).unwrap_or_default().0;
        let is_self = |part: &&&str| {
            let pattern = part.split(':').next().unwrap_or_default();
            words(pattern).any(|(_, word)| word == "self")
        };
        let selves = parameters.iter().filter(is_self).count();
        let line = code.get(..at).unwrap_or_default().matches('\n').count() + 1;
        found.push((line, name, parameters.len() - selves));
    }
    found
}

/// Returns the type of each `impl` block that is not of a trait, and the number of functions in it.
pub(crate) fn methods(code: &str) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    for (at, _) in words(code).filter(|(_, word)| *word == "impl") {
        let line = code.get(..at).and_then(|before| before.rsplit('\n').next());
        let rest = code.get(at + 4..).unwrap_or_default();
        let (head, body) = rest.split_once('{').unwrap_or_default();
        let head = head
            .strip_prefix('<')
            .map_or(head, |generics| list(generics).1);
        // Inside a line it stands for a type that has a trait.
        let is_block = line.is_some_and(|before| before.trim().is_empty());
        if !is_block || head.split_whitespace().any(|word| word == "for") {
            continue;
        }
        found.push((head.trim_start(), functions_directly_in(body)));
    }
    found
}

/// Counts the functions of a block whose opening brace is before the text.
fn functions_directly_in(body: &str) -> usize {
    let (mut depth, mut count) = (0_usize, 0);
    for line in body.lines() {
        let is_function = words(line).any(|(at, word)| {
            word == "fn" && line.get(at + 2..).is_some_and(|rest| rest.starts_with(' '))
        });
        count += usize::from(depth == 0 && is_function);
        for character in line.chars() {
            match character {
                '{' => depth += 1,
                '}' if depth == 0 => return count,
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    count
}
