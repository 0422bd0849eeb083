//! The page that shows a question: its subject on every page, the facts that Atoll has parsed
//! first, the program's own words last.
//!
//! All of it is ASCII, so that each line has a known width, nothing scrolls away, and no letter
//! looks like another. Each line of the program's words, and each continuation of any text, begins
//! with a mark, and a page that begins with such a line first names what it belongs to: no text
//! passes for a line of Atoll's own.

use atoll_engine::printable::printable;
use atoll_model::RunId;
use atoll_model::network::{AskedCall, HostPart, Listener, NO_RULE, special};
use atoll_sandbox::{Denial, Pending, Size};

use super::{LINE_CHARACTERS_MAX, Subject};
use crate::approvals;
use crate::ask_key::AskKey;
use crate::render::{MARK, ascii, wrapped};

/// The fewest columns that show a question.
const COLUMNS_MIN: usize = 30;
/// The suffix of an answer that needs dual control.
const TAKES_TWO: &str = " (takes two)";
/// The sign of truncated text.
const CUT: &str = "...";
/// The heading of the program's own words, on each page that has some.
pub(super) const WORDS: &str = "Text supplied by the program:";
/// The columns reserved behind a host in the head, for its port and the sign of truncated text.
const BEHIND_HOST_COLUMNS: usize = " port 65535".len() + CUT.len();

/// The prompt before an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    /// No input counts yet.
    Wait,
    Answer,
    /// The input is no answer: the text before Enter, ASCII.
    Unknown(String),
    /// A page was not on the screen yet.
    Unread,
}

impl Prompt {
    /// Returns the prompt's text, which leaves room for an answer wherever one can be given.
    fn text(&self, letters: &str, columns: usize) -> String {
        let text = match self {
            Self::Wait => "A moment, without typing ...",
            Self::Answer => "A letter, then Enter: ",
            Self::Unknown(word) => {
                let whole = format!("{word} is none of these; {letters}, then Enter: ");
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

/// A question as lines that fit a window.
#[derive(Debug)]
pub(super) struct Pages {
    head: Vec<String>,
    /// The lines of each page, between its number and the answers.
    bodies: Vec<Vec<String>>,
    answers: Vec<String>,
    /// The letters that answer, as a prompt lists them.
    letters: &'static str,
    columns: usize,
}

/// A line of a page's body.
#[derive(Debug)]
struct Line {
    text: String,
    /// The heading that is repeated first on a page that begins with this line.
    beneath: Option<String>,
}

impl Pages {
    pub(super) fn of(
        (run, second): (&RunId, Option<&str>),
        subject: &Subject,
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
        let (head, items, body, letters) = match subject {
            Subject::Call(question) => (
                [
                    format!("Atoll asks whether this may go out{waits}"),
                    call(&question.call, columns),
                ],
                answers_to_call(question, key),
                body(run, question, columns),
                "o, r, t, d, s, n or l",
            ),
            Subject::Port(listener) => (
                [
                    format!("Publish this port?{waits}"),
                    format!("port {} inside", listener.port),
                ],
                answers_to_port(second),
                body_of_port((run, second), listener, columns),
                "p, n or l",
            ),
            Subject::Denied(denial) => (
                [
                    format!("This was denied. Allow it?{waits}"),
                    ascii(&printable(denial.rule.as_bytes())),
                ],
                answers_to_denial(),
                body_of_denial(run, denial, columns),
                "o, r, a, n or l",
            ),
        };
        let answers = filled(&items, columns);
        // Around it: a line for the page's number, two that are empty, one to answer on.
        let taken = head.len() + answers.len() + 4;
        // Two lines of the body at least: the first may say what the second belongs to.
        if taken + 2 > rows {
            return Self::too_small(columns);
        }
        Self {
            head: head.iter().map(|line| cut(line, columns)).collect(),
            bodies: paged(body, rows - taken),
            answers,
            letters,
            columns,
        }
    }

    /// Creates pages for a window that is too small. Nothing that cannot be read can be granted:
    /// there is always a page to come.
    fn too_small(columns: usize) -> Self {
        Self {
            head: Vec::new(),
            bodies: vec![vec![cut("Atoll asks: enlarge the window", columns)]],
            answers: vec![cut("d deny  s stop  l later", columns)],
            letters: "d, s or l",
            columns,
        }
    }

    fn is_too_small(&self) -> bool {
        self.head.is_empty()
    }

    pub(super) fn last(&self) -> usize {
        match self.is_too_small() {
            true => usize::MAX,
            false => self.bodies.len().saturating_sub(1),
        }
    }
}

/// One page, with its prompt and the line typed so far.
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
        for line in pages.bodies.get(page).into_iter().flatten() {
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
        let line = format!(
            "{}{}",
            self.prompt.text(self.pages.letters, columns),
            self.line
        );
        shown.extend_from_slice(format!("\r\x1b[K{}", cut(&line, columns)).as_bytes());
    }
}

/// Truncates a line of ASCII, and marks where it was cut.
fn cut(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    let kept = line.chars().take(columns.saturating_sub(CUT.len()));
    kept.chain(CUT.chars()).take(columns).collect()
}

/// Returns a call in one line. A long host is cut at its beginning, since its end says whose it is.
fn call(call: &AskedCall, columns: usize) -> String {
    let line = ascii(&approvals::line(call));
    let host = ascii(&call.host);
    let room = columns.saturating_sub(BEHIND_HOST_COLUMNS);
    if line.len() <= columns || host.len() <= room {
        return cut(&line, columns);
    }
    let kept = room.saturating_sub(CUT.len());
    let end: String = host.chars().skip(host.len().saturating_sub(kept)).collect();
    cut(&format!("{CUT}{end} port {}{CUT}", call.port), columns)
}

fn answers_to_call(question: &Pending, key: AskKey) -> Vec<String> {
    let [once, lasting] = match (question.takes_two, question.call.goes_on()) {
        (false, _) => ["", ""],
        (true, false) => ["", TAKES_TWO],
        (true, true) => [TAKES_TWO, TAKES_TWO],
    };
    vec![
        format!("o  once{once}"),
        format!("r  the same for this run{lasting}"),
        format!("t  the same for 15 minutes{lasting}"),
        "d  deny".to_owned(),
        "s  deny, and stop the run".to_owned(),
        "n  next page".to_owned(),
        format!("l  later ({key} brings it back)"),
    ]
}

fn answers_to_port(second: Option<&str>) -> Vec<String> {
    let publish = match second {
        None => "p  publish".to_owned(),
        Some(_) => format!("p  publish{TAKES_TWO}"),
    };
    let others = ["n  next port", "l  leave it"].map(str::to_owned);
    std::iter::once(publish).chain(others).collect()
}

fn answers_to_denial() -> Vec<String> {
    let all = [
        "o  once",
        "r  for this run",
        "a  always, in this project",
        "n  next",
        "l  leave it denied",
    ];
    all.map(str::to_owned).to_vec()
}

/// Returns the lines about something that was denied: who asked for it, and what an answer does.
fn body_of_denial(run: &RunId, denial: &Denial, columns: usize) -> Vec<Line> {
    let rule = ascii(&printable(denial.rule.as_bytes()));
    let mut facts = vec![
        ("run", run.to_string()),
        ("rule", format!("--allow '{rule}'")),
        ("denied", NO_RULE.to_owned()),
    ];
    facts.extend(near(denial).map(|near| ("reaches", near.to_owned())));
    facts.push(("once", "one connection or request".to_owned()));
    let always = "each run by this profile in this directory, by your allowed.toml";
    facts.push(("always", always.to_owned()));
    told(facts, columns)
}

/// Describes a host that is not one of the internet.
fn near(denial: &Denial) -> Option<&'static str> {
    match denial.host.parse().ok()? {
        HostPart::Name(name) if name.is_this_host() => Some("what listens on this host itself"),
        HostPart::Address(address) if special(address).is_some() => {
            Some("a private or special address, not the internet")
        }
        HostPart::Name(_) | HostPart::Address(_) => None,
    }
}

/// Returns the lines about a port: its address, who can reach it and for how long, and who else has
/// to agree.
fn body_of_port(
    (run, second): (&RunId, Option<&str>),
    listener: &Listener,
    columns: usize,
) -> Vec<Line> {
    let Listener { port, program, .. } = listener;
    let mut facts = vec![("run", run.to_string())];
    facts.push(("address", format!("http://127.0.0.1:{port} on this host")));
    facts.push((
        "reached by",
        "your programs and root's on this host, until the run ends".to_owned(),
    ));
    facts.extend(second.map(|second| {
        let text = "it takes two: once you say yes, within two minutes";
        ("persons", format!("{text} {second}"))
    }));
    let mut lines = told(facts, columns);
    if let Some(program) = program {
        let marked = format!("{MARK}name: {}", printable(program.as_bytes()));
        lines.extend(of_program(vec![marked], columns));
    }
    lines
}

/// Returns the lines about a call: the facts that Atoll has parsed, then the program's words.
fn body(run: &RunId, question: &Pending, columns: usize) -> Vec<Line> {
    let mut lines = told(approvals::facts(run, question), columns);
    let words = approvals::words(&question.call).into_iter();
    let marked = words.map(|(name, text)| format!("{MARK}{name}: {text}"));
    lines.extend(of_program(marked.collect(), columns));
    lines
}

/// Returns the lines of Atoll's own facts.
fn told(facts: Vec<(&str, String)>, columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for (name, text) in facts {
        let mut parts = wrapped(&format!("{name}: {text}"), columns).into_iter();
        let plain = |text| Line {
            text,
            beneath: None,
        };
        lines.extend(parts.next().map(plain));
        let more = parts.map(|text| Line {
            text,
            beneath: Some(cut(&format!("More of {name}:"), columns)),
        });
        lines.extend(more);
    }
    lines
}

/// Returns the lines of the program's own words, marked already, beneath a heading that attributes
/// them.
fn of_program(marked: Vec<String>, columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    if !marked.is_empty() {
        let above = [String::new(), cut(WORDS, columns)];
        lines.extend(above.map(|text| Line {
            text,
            beneath: None,
        }));
    }
    for text in marked {
        lines.extend(wrapped(&text, columns).into_iter().map(|text| Line {
            text,
            beneath: Some(cut(WORDS, columns)),
        }));
    }
    lines
}

/// Splits lines into pages of `page_lines` lines.
fn paged(lines: Vec<Line>, page_lines: usize) -> Vec<Vec<String>> {
    let mut pages: Vec<Vec<String>> = Vec::new();
    for Line { text, beneath } in lines {
        match pages.last_mut() {
            Some(page) if page.len() < page_lines => page.push(text),
            Some(_) | None => pages.push(beneath.into_iter().chain([text]).collect()),
        }
    }
    pages
}

/// Arranges items side by side, as many to a line as fit.
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
