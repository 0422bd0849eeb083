//! A report of named lines, folded so that it can be read on a narrow terminal.

use atoll_engine::printable::printable;

use super::{Paint, Style};

/// The width of the names of lines.
const LABEL_COLUMNS: usize = 10;
/// Lines are folded there, at a space.
const COLUMNS: usize = 80;

/// Lines under a title; of neighbours with the same name only the first shows it.
#[derive(Debug)]
pub struct Report {
    paint: Paint,
    text: String,
    label: &'static str,
}

impl Report {
    /// Creates an empty report.
    #[must_use]
    pub fn new(paint: Paint) -> Self {
        Self {
            paint,
            text: String::new(),
            label: "",
        }
    }

    /// Adds the title: the subject in bold, then the rest.
    pub fn title(&mut self, what: &str, more: &str) {
        let what = self.paint.style(Style::Strong, &clean(what));
        let more = clean(more);
        self.text.push_str(format!("{what}  {more}").trim_end());
        self.text.push('\n');
    }

    /// Adds a line in words.
    pub fn line(&mut self, label: &'static str, words: &str) {
        self.styled(label, words, None);
    }

    /// Adds a line in words, in the look of their meaning.
    pub fn styled(&mut self, label: &'static str, words: &str, style: Option<Style>) {
        let words = clean(words);
        for folded in fold(&words, COLUMNS - LABEL_COLUMNS - 2) {
            let folded = match style {
                Some(style) => self.paint.style(style, folded),
                None => folded.to_owned(),
            };
            self.push(label, &folded);
        }
    }

    /// Adds a command to type; it is never folded.
    pub fn command(&mut self, label: &'static str, command: &str) {
        let command = self.paint.style(Style::Command, &clean(command));
        self.push(label, &command);
    }

    /// Returns the whole text.
    #[must_use]
    pub fn finish(self) -> String {
        self.text
    }

    fn push(&mut self, label: &'static str, text: &str) {
        let shown = if label == self.label { "" } else { label };
        self.label = label;
        let shown = self
            .paint
            .style(Style::Faint, &format!("{shown:LABEL_COLUMNS$}"));
        self.text.push_str(format!("  {shown}{text}").trim_end());
        self.text.push('\n');
    }
}

fn clean(text: &str) -> String {
    // A reason can be several lines; here each is one sentence.
    let lines: Vec<String> = text
        .lines()
        .map(|line| printable(line.trim().as_bytes()))
        .collect();
    lines.join(" ")
}

/// Cuts a text at spaces into pieces of at most so many characters; a word that is
/// longer stays whole.
#[must_use]
pub fn fold(text: &str, columns: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while rest.chars().count() > columns {
        let end = rest
            .char_indices()
            .nth(columns + 1)
            .map_or(rest.len(), |(at, _)| at);
        let within = rest.get(..end).unwrap_or(rest);
        let space = within.rfind(' ').or_else(|| rest.find(' '));
        let Some((piece, after)) =
            space.and_then(|at| Some((rest.get(..at)?, rest.get(at + 1..)?)))
        else {
            break;
        };
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_folded_and_commands_are_not() {
        let mut report = Report::new(Paint::new(false));
        report.title("Run x", "sh -c '\x1b[2J'");
        report.line("denied", &"word ".repeat(30));
        report.line("denied", "again\nhere");
        report.command("allow", &"c ".repeat(60));
        let text = report.finish();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Run x  sh -c '\\x1b[2J'");
        assert!(lines[1].starts_with("  denied    word word"), "{text}");
        assert!(lines[2].starts_with("            word"), "{text}");
        assert!(
            lines[1..4].iter().all(|line| line.len() <= COLUMNS),
            "{text}"
        );
        assert_eq!(lines[4], "            again here");
        assert!(lines[5].starts_with("  allow     c c"), "{text}");
        assert_eq!(lines.len(), 6, "{text}");
        assert_eq!(fold("ab cd", 2), ["ab", "cd"]);
        assert_eq!(fold("abcdef gh", 3), ["abcdef", "gh"]);
        assert_eq!(fold("äöü äöü", 3), ["äöü", "äöü"]);
        assert_eq!(fold("", 3), [""]);
    }
}
