//! The person's terminal: its size, reading page by page, and typed lines.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use atoll_engine::failure::{Doing, Failure};
use atoll_sandbox::{Signals, Size};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{QueueSelector, tcflush, tcgetwinsize};

use crate::output::Output;
use crate::render::wrapped;

/// Returns the size of the person's terminal.
pub fn terminal_size() -> Option<Size> {
    let size = tcgetwinsize(std::io::stdout().as_fd()).ok()?;
    Some(Size {
        rows: size.ws_row,
        columns: size.ws_col,
    })
}

/// SIGHUP, SIGINT, SIGQUIT and SIGTERM: they are handled for the program, so that none of them ends
/// Atoll by itself.
const ENDING: [i32; 4] = [1, 2, 3, 15];

/// The columns of a terminal that does not report its size.
const COLUMNS: u16 = 80;
/// A narrower one is written to as if it were so wide.
const COLUMNS_MIN: u16 = 30;
/// The lines of a terminal that does not report its size.
const LINES: u16 = 24;
/// A lower one is written to as if it were so tall.
const LINES_MIN: u16 = 10;
/// The lines reserved for the question beneath.
const BENEATH_LINES: u16 = 4;
/// The most shown before a question, bytes: nobody reads more, so that a longer question is not
/// asked.
pub const SHOWN_BYTES_MAX: usize = 32 * 1024;

/// The text a person reads before they answer, in pages that fit the terminal: nothing of it is out
/// of sight before it was seen, and nothing in a row can be a line of its own.
#[derive(Debug)]
pub struct Pages(Vec<String>);

/// The outcome of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// All of it was shown.
    All,
    /// The person denied before the end.
    Denied,
    /// The input ended, or a signal ended the question.
    Left,
    /// The time was over.
    Late,
}

impl Pages {
    /// Creates pages of these rows; `None` if they are more than anybody reads
    /// ([`SHOWN_BYTES_MAX`]).
    pub fn of(rows: &[String]) -> Option<Self> {
        let size = terminal_size();
        let columns = size.map_or(COLUMNS, |size| size.columns);
        let lines = size.map_or(LINES, |size| size.rows);
        Self::fitting(rows, columns, lines)
    }

    fn fitting(rows: &[String], columns: u16, lines: u16) -> Option<Self> {
        let columns = usize::from(columns.max(COLUMNS_MIN));
        let room = usize::from(lines.max(LINES_MIN).saturating_sub(BENEATH_LINES));
        let all: Vec<String> = rows.iter().flat_map(|row| wrapped(row, columns)).collect();
        let bytes: usize = all.iter().map(String::len).sum();
        let page = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect();
        (bytes <= SHOWN_BYTES_MAX).then(|| Self(all.chunks(room).map(page).collect()))
    }

    /// Shows them, each further one after a line of the person's.
    ///
    /// # Errors
    /// Where the terminal cannot be asked.
    pub fn show(
        &self,
        signals: &Signals,
        until: Instant,
        output: &Output,
    ) -> Result<Read, Failure> {
        let count = self.0.len();
        for (page, number) in self.0.iter().zip(1..) {
            output.say(page);
            if number == count {
                break;
            }
            let told = format!("Page {number} of {count}");
            if let Some(ended) = Self::turned(&told, signals, until, output)? {
                return Ok(ended);
            }
        }
        Ok(Read::All)
    }

    /// Waits until the person wants the next page. What ended it, where something did.
    fn turned(
        told: &str,
        signals: &Signals,
        until: Instant,
        output: &Output,
    ) -> Result<Option<Read>, Failure> {
        loop {
            if !settle(until).doing(UNASKED)? {
                return Ok(Some(Read::Late));
            }
            output.say(&format!(
                "{told}. Enter shows the next one, d and Enter denies: "
            ));
            match typed(signals, Some(until)) {
                Typed::Line(line) => match line.trim() {
                    "" => return Ok(None),
                    "d" | "D" => return Ok(Some(Read::Denied)),
                    _ => output.say("That is none of these.\n"),
                },
                Typed::Left => return Ok(Some(Read::Left)),
                Typed::Late => return Ok(Some(Read::Late)),
            }
        }
    }
}

/// The error for a terminal that fails.
pub const UNASKED: &str = "the terminal cannot be asked";

/// The time without typing before an answer counts.
const SETTLING: Duration = Duration::from_secs(1);

/// The outcome of waiting for a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typed {
    /// A typed line, with its end.
    Line(String),
    /// The input ended, or a signal ended the question.
    Left,
    /// The time was over.
    Late,
}

/// Discards input typed before a question could be read, until no line came for a second. Returns
/// whether that was before the deadline.
///
/// # Errors
/// When standard input is no terminal.
pub fn settle(until: Instant) -> rustix::io::Result<bool> {
    let stdin = std::io::stdin();
    while Instant::now() < until {
        tcflush(&stdin, QueueSelector::IFlush)?;
        let mut on = [PollFd::new(&stdin, PollFlags::IN)];
        let wait = Timespec::try_from(SETTLING).map_err(|_| Errno::INVAL)?;
        match poll(&mut on, Some(&wait)) {
            Ok(0) => {
                tcflush(&stdin, QueueSelector::IFlush)?;
                return Ok(true);
            }
            Ok(_) if on.iter().any(|one| one.revents().contains(PollFlags::HUP)) => {
                return Err(Errno::IO);
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Reads a line that a person types, until a deadline if there is one.
pub fn typed(signals: &Signals, until: Option<Instant>) -> Typed {
    let stdin = std::io::stdin();
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let signalled = signals.descriptor();
        let mut on =
            [stdin.as_fd(), signalled].map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN));
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Typed::Late;
        }
        let wait = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut on, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Typed::Left,
        }
        while let Some(signal) = signals.next() {
            if ENDING.contains(&signal) {
                return Typed::Left;
            }
        }
        let [input, _] = on;
        if input.revents().is_empty() {
            continue;
        }
        // A terminal gives one line at a time.
        let mut part = [0; LINE_BYTES];
        match rustix::io::read(&stdin, &mut part) {
            Ok(0) => return Typed::Left,
            Ok(count) => line.extend(part.iter().take(count)),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return Typed::Left,
        }
    }
    Typed::Line(String::from_utf8_lossy(&line).into_owned())
}

/// The longest line that a terminal gives.
const LINE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_before_an_answer_fits_the_terminal_or_is_put_to_nobody() {
        let rows: Vec<String> = (0..30).map(|number| format!("  row {number}")).collect();
        let pages = Pages::fitting(&rows, 80, 24).unwrap().0;
        assert_eq!(pages.len(), 2);
        assert!(pages.iter().all(|page| page.lines().count() <= 20));
        assert_eq!(pages.concat().lines().collect::<Vec<_>>(), rows);
        // A row that goes on says so on each of its lines.
        let long = Pages::fitting(&["x".repeat(4096)], 80, 24).unwrap().0;
        let lines: Vec<&str> = long.iter().flat_map(|page| page.lines()).collect();
        assert!(lines.iter().skip(1).all(|line| line.starts_with("| ")));
        assert!(long.len() > 2 && lines.iter().all(|line| line.len() <= 80));
        let most = vec!["x".repeat(70); SHOWN_BYTES_MAX / 70];
        assert!(Pages::fitting(&most, 80, 24).is_some());
        let more = [most, vec!["x".repeat(70)]].concat();
        assert!(Pages::fitting(&more, 80, 24).is_none());
    }
}
