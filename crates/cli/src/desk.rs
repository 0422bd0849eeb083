//! Questions at the terminal of `atoll run`, while the program has that terminal.
//!
//! While a question is drawn, the program's output waits, and no input reaches the program: it can
//! neither draw over a question nor answer it. Input typed before a question could be read answers
//! nothing: a letter and Enter count only after a second without input. Input with an escape
//! sequence, as a terminal sends by itself, counts for nothing, and neither does anything between
//! the marks of a paste, however long that takes. Any doubt leaves a question open, and its timeout
//! denies it. A port on which a program has begun to listen is published in the same way, but only
//! a person's key brings that up.
//!
//! This module must never do I/O. Start reading at [`Desk::turn`], then `page.rs`.

mod answers;
mod page;
mod paste;
mod said;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use atoll_model::RunId;
use atoll_model::network::{Listener, ListensAt, PublishedPort};
use atoll_sandbox::{Allowance, Answered, Decision, Denial, Pending, Size};

use crate::ask_key::AskKey;
use crate::escape::EscapeFilter;
use page::{Page, Pages, Prompt};
use paste::Paste;
use said::{Said, Subject};

/// The time without input after which an answer counts.
const SETTLING: Duration = Duration::from_secs(1);
/// The time for which a program is given another window size, so that it redraws its screen.
const REPAINTING: Duration = Duration::from_millis(150);
/// The longest line that is read, characters: an answer is one.
const LINE_CHARACTERS_MAX: usize = 8;
/// The most publishable ports that are remembered.
const PORTS_MAX: usize = 8;

const CONTROL_C: u8 = 0x03;
const CONTROL_Z: u8 = 0x1a;
const BELL: u8 = 0x07;

/// The prompt for a run's questions at its terminal.
#[derive(Debug)]
pub struct Desk {
    run: RunId,
    key: AskKey,
    /// The people who can give the second approval to what lasts, under dual control.
    second: Option<String>,
    open: Vec<Pending>,
    /// The number of the last question for which the bell was rung.
    rung: u32,
    /// The questions that a person has put off.
    aside: BTreeSet<u32>,
    /// Set when a person wants to see questions though the program has the whole screen.
    is_summoned: bool,
    /// The listeners in the sandbox that could be published, the newest first, without those that a
    /// person has put off.
    ports: Vec<Listener>,
    /// The newest denials that could be allowed, without those that a person has left.
    denials: Vec<Denial>,
    /// Set while the program has the whole screen, as far as is known.
    has_whole_screen: bool,
    /// Set when a person wants to see the first of the denials, then of the listeners.
    is_offered: bool,
    /// Set once the program has ended.
    is_over: bool,
    drawn: Option<Drawn>,
    paste: Paste,
    answered: Option<Answered>,
    publishes: Option<PublishedPort>,
    allows: Option<(String, Allowance)>,
    repaint_at: Option<Instant>,
}

/// The question, or the port, that is drawn on the terminal.
#[derive(Debug)]
struct Drawn {
    subject: Subject,
    page: usize,
    /// Set once the last page, and each before it, was on the screen.
    is_read: bool,
    prompt: Prompt,
    line: String,
    counts: Counts,
    wants: Wants,
}

/// The state that decides whether input counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    /// The page is not all on the screen yet.
    Unshown,
    /// There was no input since then.
    After(Instant),
    Now,
}

/// The part of the page that is to be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    Nothing,
    Line,
    All,
}

/// The result of [`Desk::turn`].
#[derive(Debug, Default)]
pub struct Looked {
    /// The bytes to write to the terminal, after all earlier ones.
    pub shown: Vec<u8>,
    /// The answer that a person has given.
    pub answered: Option<Answered>,
    /// The port that a person wants to have published.
    pub publishes: Option<PublishedPort>,
    /// The rule that a person wants to have allowed, and for which time.
    pub allows: Option<(String, Allowance)>,
    /// The window size that the program is to be given.
    pub resized: Option<Size>,
}

impl Desk {
    /// Creates a prompt without questions.
    pub fn new(run: RunId, key: AskKey, second: Option<String>) -> Self {
        Self {
            run,
            key,
            second,
            open: Vec::new(),
            rung: 0,
            aside: BTreeSet::new(),
            is_summoned: false,
            ports: Vec::new(),
            denials: Vec::new(),
            has_whole_screen: false,
            is_offered: false,
            is_over: false,
            drawn: None,
            paste: Paste::default(),
            answered: None,
            publishes: None,
            allows: None,
            repaint_at: None,
        }
    }

    /// Sets the open questions, the oldest first.
    pub fn asked(&mut self, open: Vec<Pending>) {
        let is_open = |number: &u32| open.iter().any(|one| one.approval == *number);
        self.aside.retain(is_open);
        self.is_summoned &= !open.is_empty();
        self.open = open;
    }

    /// Ends the prompt after the program: nothing is asked any more, nor can anything be published.
    pub fn over(&mut self) {
        self.asked(Vec::new());
        self.ports.clear();
        self.denials.clear();
        self.is_over = true;
    }

    /// Adds a listener in the sandbox. Returns the key by which a person gets to publish it, unless
    /// its address cannot be published.
    pub fn listens(&mut self, listener: &Listener) -> Option<AskKey> {
        match listener.at {
            _ if self.is_over => None,
            ListensAt::Loopback | ListensAt::Everywhere => {
                self.ports.retain(|one| one.port != listener.port);
                self.ports.insert(0, listener.clone());
                self.ports.truncate(PORTS_MAX);
                Some(self.key)
            }
            ListensAt::Elsewhere => None,
        }
    }

    /// Adds something that was denied. Returns the key by which a person gets to allow it; none once
    /// the program has ended.
    pub fn denied(&mut self, denial: &Denial) -> Option<AskKey> {
        if self.is_over {
            return None;
        }
        self.denials.retain(|one| one.rule != denial.rule);
        self.denials.insert(0, denial.clone());
        self.denials.truncate(PORTS_MAX);
        Some(self.key)
    }

    /// Returns whether a question, or a port, has the terminal.
    pub fn has_terminal(&self) -> bool {
        self.drawn.is_some()
    }

    /// Returns the time of the next turn that is due without any event.
    pub fn due(&self) -> Option<Instant> {
        let drawn = self.drawn.as_ref().filter(|_| !self.paste.is_open());
        let counts = drawn.and_then(|drawn| match drawn.counts {
            Counts::After(since) => Some(since + SETTLING),
            Counts::Unshown | Counts::Now => None,
        });
        counts.into_iter().chain(self.repaint_at).min()
    }

    /// Redraws the page for a new window size.
    pub fn resized(&mut self) {
        if let Some(drawn) = &mut self.drawn {
            *drawn = Drawn::of(drawn.subject.clone());
        }
    }

    /// Takes the input that is not for the program out of `typed`.
    pub fn typed(&mut self, typed: &mut Vec<u8>, now: Instant) {
        // A paste may have begun before the question was drawn.
        let is_pasted = self.paste.is_in(typed);
        let Some(drawn) = &mut self.drawn else {
            // A program with the whole screen keeps the key but for what it waits for itself.
            let has_port = !self.ports.is_empty() && !self.has_whole_screen;
            let has_any = !self.open.is_empty() || has_port || !self.denials.is_empty();
            if let Some(at) = self.key.found_in(typed).filter(|_| has_any) {
                typed.truncate(at);
                self.is_summoned = !self.open.is_empty();
                self.is_offered = self.open.is_empty();
                self.aside.clear();
            }
            return;
        };
        let said = match is_pasted {
            true => drawn.dropped(now),
            false => drawn.typed(typed, now),
        };
        typed.clear();
        let (is_read, subject) = (drawn.is_read, drawn.subject.clone());
        match said {
            None => {}
            Some(Said::Decided(Decision::Grant { .. }) | Said::Publish | Said::Allow(_))
                if !is_read =>
            {
                drawn.next(Prompt::Unread);
            }
            Some(Said::Next) if !is_read => drawn.next(Prompt::Answer),
            Some(Said::Unknown(word)) => {
                (drawn.prompt, drawn.wants) = (Prompt::Unknown(word), Wants::Line);
            }
            Some(said) => match subject {
                Subject::Call(question) => self.said_of_call(&question, said),
                Subject::Port(listener) => self.said_of_port(&listener, said),
                Subject::Denied(denial) => self.said_of_denial(denial, said),
            },
        }
    }

    /// Does whatever is due. `is_shown` is true if all earlier bytes were written.
    pub fn turn(
        &mut self,
        filter: &EscapeFilter,
        size: Size,
        is_shown: bool,
        now: Instant,
    ) -> Looked {
        let mut looked = Looked {
            answered: self.answered.take(),
            publishes: self.publishes.take(),
            allows: self.allows.take(),
            ..Looked::default()
        };
        if self.repaint_at.is_some_and(|at| at <= now) {
            self.repaint_at = None;
            looked.resized = Some(size);
        }
        let shown = &mut looked.shown;
        let newest = self.open.iter().map(|one| one.approval).max();
        let is_new = newest.is_some_and(|newest| newest > self.rung);
        self.rung = self.rung.max(newest.unwrap_or(0));
        self.has_whole_screen = filter.has_whole_screen();
        let next = self.next();
        let had = self.has_terminal();
        match next {
            None if self.drawn.take().is_some() => {
                shown.extend_from_slice(b"\x1b[0m\x1b[2J\x1b[H");
                filter.take_up(shown);
                if filter.has_whole_screen() {
                    looked.resized = Some(Size {
                        rows: size.rows.saturating_sub(1).max(1),
                        ..size
                    });
                    self.repaint_at = Some(now + REPAINTING);
                }
            }
            None => {}
            Some(next)
                if self
                    .drawn
                    .as_ref()
                    .is_some_and(|drawn| drawn.subject.is(&next)) => {}
            Some(next) => {
                if !had {
                    filter.set_aside(shown);
                }
                self.drawn = Some(Drawn::of(next));
            }
        }
        if is_new {
            shown.push(BELL);
        }
        self.draw(size, is_shown, now, shown);
        looked
    }

    /// Returns the subject that is to have the terminal: calls, for which the program waits, before
    /// ports.
    fn next(&self) -> Option<Subject> {
        let is_aside = |one: &&Pending| self.aside.contains(&one.approval);
        let mut open = self.open.iter().filter(|one| !is_aside(one));
        let call = open
            .next()
            .filter(|_| !self.has_whole_screen || self.is_summoned);
        let denial = self.denials.first().cloned().map(Subject::Denied);
        let port = self.ports.first().filter(|_| !self.has_whole_screen);
        let port = port.map(|listener| Subject::Port(listener.clone()));
        let offered = denial.or(port).filter(|_| self.is_offered);
        call.map(|call| Subject::Call(Box::new(call.clone())))
            .or(offered)
    }

    fn draw(&mut self, size: Size, is_shown: bool, now: Instant, shown: &mut Vec<u8>) {
        let Some(drawn) = &mut self.drawn else { return };
        let all = match drawn.subject {
            Subject::Call(_) => self.open.len(),
            Subject::Port(_) => self.ports.len(),
            Subject::Denied(_) => self.denials.len(),
        };
        let further = all.saturating_sub(1);
        match drawn.counts {
            Counts::Unshown if is_shown && drawn.wants == Wants::Nothing => {
                drawn.counts = Counts::After(now);
            }
            Counts::After(since) if since + SETTLING <= now && !self.paste.is_open() => {
                drawn.counts = Counts::Now;
                drawn.want_line();
            }
            Counts::Unshown | Counts::After(_) | Counts::Now => {}
        }
        if drawn.wants == Wants::Nothing {
            return;
        }
        let second = self.second.as_deref();
        let pages = Pages::of(
            (&self.run, second),
            &drawn.subject,
            (further, self.key),
            size,
        );
        drawn.page = drawn.page.min(pages.last());
        drawn.is_read |= drawn.page == pages.last();
        let prompt = match drawn.counts {
            Counts::Now => drawn.prompt.clone(),
            Counts::Unshown | Counts::After(_) => Prompt::Wait,
        };
        let page = Page {
            pages: &pages,
            page: drawn.page,
            prompt,
            line: &drawn.line,
        };
        match drawn.wants {
            Wants::All => page.draw(shown),
            Wants::Line | Wants::Nothing => page.draw_line(shown),
        }
        drawn.wants = Wants::Nothing;
    }
}

impl Drawn {
    fn of(subject: Subject) -> Self {
        Self {
            subject,
            page: 0,
            is_read: false,
            prompt: Prompt::Answer,
            line: String::new(),
            counts: Counts::Unshown,
            wants: Wants::All,
        }
    }

    fn want_line(&mut self) {
        if self.wants == Wants::Nothing {
            self.wants = Wants::Line;
        }
    }

    /// Turns to the next page; after the last one to the first.
    fn next(&mut self, prompt: Prompt) {
        self.page = match self.is_read {
            true => 0,
            false => self.page.saturating_add(1),
        };
        self.is_read = false;
        (self.prompt, self.wants) = (prompt, Wants::All);
    }

    /// Takes input. Returns its meaning, once it is a line.
    fn typed(&mut self, typed: &[u8], now: Instant) -> Option<Said> {
        match self.counts {
            Counts::Unshown => return None,
            Counts::After(_) => {
                self.counts = Counts::After(now);
                return None;
            }
            Counts::Now => {}
        }
        self.want_line();
        for byte in typed {
            match byte {
                b'\r' | b'\n' => {
                    let line = std::mem::take(&mut self.line);
                    return Some(Said::of(&line, &self.subject));
                }
                &CONTROL_C => return Some(Said::Decided(Decision::Deny {})),
                &CONTROL_Z => return Some(Said::Later),
                0x08 | 0x7f => {
                    self.line.pop();
                }
                b' '..=b'~' if self.line.len() < LINE_CHARACTERS_MAX => {
                    self.line.push(char::from(*byte));
                }
                // A key of several bytes, or what a terminal says by itself.
                _ => return self.dropped(now),
            }
        }
        None
    }

    /// Takes input that answers nothing, after which there has to be a time without input.
    fn dropped(&mut self, now: Instant) -> Option<Said> {
        self.line.clear();
        if self.counts != Counts::Unshown {
            self.counts = Counts::After(now);
            self.want_line();
        }
        None
    }
}

#[cfg(test)]
mod tests;
