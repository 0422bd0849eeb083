//! How a question is drawn: what it is about on every page, what Atoll has read first, the
//! program's own words last. All of it is ASCII, so that each line takes the room that it is
//! given, nothing scrolls away, and no letter looks like another.

use atoll_model::RunId;
use atoll_sandbox::{Pending, Size};

use super::{AskKey, LINE_CHARACTERS_MAX};
use crate::approvals;

/// Fewer show no question.
const COLUMNS_MIN: usize = 30;

/// What stands before an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    /// Nothing counts yet.
    Wait,
    Answer,
    /// This is no answer: what was typed before Enter, ASCII.
    Unknown(String),
    /// There is more that was not on the screen.
    Unread,
}

impl Prompt {
    /// Its text, with room for an answer behind it wherever there can be any.
    fn text(&self, columns: usize) -> String {
        let text = match self {
            Self::Wait => "A moment, without typing ...",
            Self::Answer => "A letter, then Enter: ",
            Self::Unknown(word) => {
                let whole = format!("{word} is none of these; o, r, t, d, s, n or l, then Enter: ");
                let has_room = whole.len() + LINE_CHARACTERS_MAX <= columns;
                if has_room && !word.is_empty() {
                    return whole;
                }
                "No answer. A letter, Enter: "
            }
            Self::Unread => "Read this too. Letter, Enter: ",
        };
        text.to_owned()
    }
}

/// A question as lines for a window.
#[derive(Debug)]
pub(super) struct Pages {
    head: Vec<String>,
    body: Vec<String>,
    answers: Vec<String>,
    columns: usize,
    /// How many lines of the body are on a page.
    page_lines: usize,
}

impl Pages {
    pub(super) fn of(
        run: &RunId,
        question: &Pending,
        (further, key): (usize, AskKey),
        size: Size,
    ) -> Self {
        // One less than there are: a line that is full makes some terminals begin a new one.
        let columns = usize::from(size.columns).saturating_sub(1);
        let rows = usize::from(size.rows);
        if columns < COLUMNS_MIN {
            return Self::too_small(columns.max(1));
        }
        let waits = match further {
            0 => String::new(),
            further => format!(" ({further} more wait)"),
        };
        let title = format!("Atoll asks whether this may go out{waits}");
        let head = [
            title,
            cut(&ascii(&approvals::line(&question.call)), columns),
        ];
        let mut body = Vec::new();
        let row =
            |(name, text): (&str, String)| wrapped(&format!("{name}: {}", ascii(&text)), columns);
        body.extend(approvals::facts(run, question).into_iter().flat_map(row));
        let words = approvals::words(&question.call);
        if !words.is_empty() {
            body.push(String::new());
            body.push(cut("What follows the program has written:", columns));
        }
        body.extend(words.into_iter().flat_map(row));
        let items = [
            "o  once".to_owned(),
            "r  the same for this run".to_owned(),
            "t  the same for 15 minutes".to_owned(),
            "d  deny".to_owned(),
            "s  deny, and stop the run".to_owned(),
            "n  next page".to_owned(),
            format!("l  later ({key} brings it back)"),
        ];
        let answers = filled(&items, columns);
        // Around it: a line for the page's number, two that are empty, one to answer on.
        let taken = head.len() + answers.len() + 4;
        if taken >= rows {
            return Self::too_small(columns);
        }
        Self {
            page_lines: rows - taken,
            head: head.iter().map(|line| cut(line, columns)).collect(),
            body,
            answers,
            columns,
        }
    }

    /// Nothing can be granted that cannot be read: there is always a page to come.
    fn too_small(columns: usize) -> Self {
        Self {
            head: Vec::new(),
            body: vec![
                cut("Atoll asks: enlarge the window", columns),
                String::new(),
            ],
            answers: vec![cut("d deny  s stop  l later", columns)],
            columns,
            page_lines: 1,
        }
    }

    fn is_too_small(&self) -> bool {
        self.head.is_empty()
    }

    pub(super) fn last(&self) -> usize {
        match self.is_too_small() {
            true => usize::MAX,
            false => self.body.len().saturating_sub(1) / self.page_lines,
        }
    }
}

/// One page with its answer.
pub(super) struct Page<'a> {
    pub(super) pages: &'a Pages,
    pub(super) page: usize,
    pub(super) prompt: Prompt,
    pub(super) line: &'a str,
}

impl Page<'_> {
    pub(super) fn draw(&self, shown: &mut Vec<u8>) {
        let pages = self.pages;
        let mut text = String::from("\x1b[0m\x1b[2J\x1b[H");
        for (at, line) in pages.head.iter().enumerate() {
            let (bold, plain) = if at == 0 {
                ("\x1b[1m", "\x1b[0m")
            } else {
                ("", "")
            };
            text.push_str(&format!("{bold}{line}{plain}\r\n"));
        }
        let page = if pages.is_too_small() { 0 } else { self.page };
        if !pages.is_too_small() {
            let place = format!("page {} of {}", page + 1, pages.last() + 1);
            text.push_str(&format!("{}\r\n\r\n", cut(&place, pages.columns)));
        }
        let lines = pages
            .body
            .iter()
            .skip(page.saturating_mul(pages.page_lines));
        for line in lines.take(pages.page_lines) {
            text.push_str(&format!("{line}\r\n"));
        }
        if !pages.is_too_small() {
            text.push_str("\r\n");
        }
        for line in &pages.answers {
            text.push_str(&format!("{line}\r\n"));
        }
        shown.extend_from_slice(text.as_bytes());
        self.draw_line(shown);
    }

    pub(super) fn draw_line(&self, shown: &mut Vec<u8>) {
        let columns = self.pages.columns;
        let line = format!("{}{}", self.prompt.text(columns), self.line);
        shown.extend_from_slice(format!("\r\x1b[K{}", cut(&line, columns)).as_bytes());
    }
}

/// What is printable already, with each letter that is not ASCII written by its number.
fn ascii(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            ' '..='~' => shown.push(character),
            _ => shown.extend(character.escape_unicode()),
        }
    }
    shown
}

fn cut(line: &str, columns: usize) -> String {
    line.chars().take(columns).collect()
}

/// A line as several, none longer than there is room.
fn wrapped(line: &str, columns: usize) -> Vec<String> {
    let characters: Vec<char> = line.chars().collect();
    let parts = characters.chunks(columns.max(1));
    parts.map(|part| part.iter().collect()).collect()
}

/// Items beside each other, as many as there is room for.
fn filled(items: &[String], columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        match lines.last_mut() {
            Some(line) if line.len() + 4 + item.len() <= columns => {
                line.push_str("    ");
                line.push_str(item);
            }
            _ => lines.push(cut(item, columns)),
        }
    }
    lines
}
