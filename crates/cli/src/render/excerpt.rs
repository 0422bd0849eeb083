//! A line of a file with a mark beneath the place of a mistake.

use atoll_engine::printable::printable;

/// The most of a line that is shown, characters.
const LINE_CHARS_MAX: usize = 100;
/// The characters before the place that are shown of a longer line.
const BEFORE_CHARS: usize = 60;

/// Formats the line of a place and a caret beneath its column, both counted from 1. A place behind
/// the last line of the file is shown behind the last line that has text. Empty where there is
/// none.
#[must_use]
pub fn excerpt(content: &[u8], line: u32, column: u32) -> String {
    let text = String::from_utf8_lossy(content);
    let number = usize::try_from(line).unwrap_or(usize::MAX);
    let lines: Vec<&str> = text.lines().take(number).collect();
    let is_there = |text: &str| !text.trim().is_empty();
    let found = lines
        .iter()
        .enumerate()
        .rev()
        .find(|(_, text)| is_there(text));
    let Some((index, shown)) = found else {
        return String::new();
    };
    let column = match index + 1 == number {
        true => usize::try_from(column)
            .unwrap_or(usize::MAX)
            .saturating_sub(1),
        false => shown.trim_end().chars().count(),
    };
    let column = column.min(shown.chars().count());
    let skipped = match shown.chars().count() > LINE_CHARS_MAX {
        true => column.saturating_sub(BEFORE_CHARS),
        false => 0,
    };
    // What is shown of a character can be longer than it.
    let part = |from: usize, count: usize| -> String {
        let part: String = shown.chars().skip(from).take(count).collect();
        printable(part.replace('\t', " ").as_bytes())
    };
    let before = part(skipped, column - skipped);
    let after = part(
        column,
        LINE_CHARS_MAX - (column - skipped).min(LINE_CHARS_MAX),
    );
    let margin = (index + 1).to_string();
    let blank = " ".repeat(margin.len());
    let under = " ".repeat(before.chars().count());
    format!("  {margin} | {before}{after}\n  {blank} | {under}^\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_marked() {
        let check = |text: &str, line: u32, column: u32, expected: &str| {
            assert_eq!(excerpt(text.as_bytes(), line, column), expected, "{text:?}");
        };
        check("a = 1\nb = \n", 2, 5, "  2 | b = \n    |     ^\n");
        check("a\tb", 1, 3, "  1 | a b\n    |   ^\n");
        check("é\u{1b}x", 1, 3, "  1 | é\\x1bx\n    |      ^\n");
        // Behind the end: what is missing is missing there.
        check("one\ntwo  \n\n", 4, 1, "  2 | two  \n    |    ^\n");
        check("one", 1, 99, "  1 | one\n    |    ^\n");
        check("", 1, 1, "");
        check("a", 0, 0, "");
    }

    #[test]
    fn long_line_is_cut_around_the_place() {
        let text = format!("{}!{}", "x".repeat(500), "y".repeat(500));
        let shown = excerpt(text.as_bytes(), 1, 501);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0].chars().count(), LINE_CHARS_MAX + 6);
        assert_eq!(lines[0].find('!'), lines[1].find('^'));
    }
}
