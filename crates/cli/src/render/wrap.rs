//! Lines of ASCII for a terminal that shows nothing else: continuation lines begin with a mark.

/// The prefix of a continuation line.
pub(crate) const MARK: &str = "| ";

/// Splits a line into several of ASCII, none longer than `columns`, and each but the first with the
/// mark.
pub(crate) fn wrapped(line: &str, columns: usize) -> Vec<String> {
    let characters: Vec<char> = ascii(line).chars().collect();
    let (first, rest) = characters.split_at(columns.min(characters.len()));
    let mut lines = vec![first.iter().collect()];
    let room = columns.saturating_sub(MARK.len()).max(1);
    let more = rest.chunks(room);
    lines.extend(more.map(|part| format!("{MARK}{}", part.iter().collect::<String>())));
    lines
}

/// Writes each character of printable text that is not ASCII as its escape.
pub(crate) fn ascii(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            ' '..='~' => shown.push(character),
            _ => shown.extend(character.escape_unicode()),
        }
    }
    shown
}
