//! Questions at the terminal of `atoll run`, where a program has the terminal for its own.
//!
//! While one is drawn, all that the program writes waits, and nothing that is typed reaches it:
//! it can neither draw over a question nor answer it. What was typed before a question could be
//! read answers nothing: only after a second in which nothing was typed a letter and Enter count.
//! What comes with an escape sequence, as what a terminal says by itself does, counts for nothing,
//! and neither does anything between the marks of what is pasted, however long that takes. Any
//! doubt leaves a question open, and its time denies it.
//!
//! This module must never do I/O. Start reading at [`Desk::turn`], then `page.rs`.

mod key;
mod page;
mod paste;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use atoll_model::RunId;
use atoll_model::network::{Breadth, Scope};
use atoll_sandbox::{Answered, Decision, Pending, Size};

use crate::escape::EscapeFilter;
pub use key::AskKey;
use page::{Page, Pages, Prompt};
use paste::Paste;

/// How long nothing may be typed before an answer counts.
const SETTLING: Duration = Duration::from_secs(1);
/// How long a program is told another size, so that it draws its screen anew.
const REPAINTING: Duration = Duration::from_millis(150);
/// For how long `t` grants, seconds.
const LEASE_SECONDS: u32 = 15 * 60;
/// How much of a line is taken, characters: an answer is one.
const LINE_CHARACTERS_MAX: usize = 8;

const CONTROL_C: u8 = 0x03;
const CONTROL_Z: u8 = 0x1a;
const BELL: u8 = 0x07;

/// The questions of a run at its terminal.
#[derive(Debug)]
pub struct Desk {
    run: RunId,
    key: AskKey,
    open: Vec<Pending>,
    /// The last question for which the bell was rung.
    rung: u32,
    /// What a person has put off.
    aside: BTreeSet<u32>,
    /// A person wants to see questions though the program has the whole screen.
    is_summoned: bool,
    drawn: Option<Drawn>,
    paste: Paste,
    answered: Option<Answered>,
    repaint_at: Option<Instant>,
}

/// A question that has the terminal.
#[derive(Debug)]
struct Drawn {
    question: Pending,
    page: usize,
    /// The last page was on the screen, and each before it.
    is_read: bool,
    prompt: Prompt,
    line: String,
    counts: Counts,
    wants: Wants,
}

/// Whether what is typed counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    /// It is not all on the screen yet.
    Unshown,
    /// Nothing was typed since then.
    After(Instant),
    Now,
}

/// What of it is to be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    Nothing,
    Line,
    All,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Decided(Decision),
    Later,
    Next,
    /// None of the letters, but this.
    Unknown(String),
}

impl Said {
    fn of(line: &str) -> Self {
        let grant = |scope| {
            let breadth = Breadth::Same;
            Self::Decided(Decision::Grant { scope, breadth })
        };
        let seconds = LEASE_SECONDS;
        match line.trim().to_ascii_lowercase().as_str() {
            "o" => grant(Scope::Once),
            "r" => grant(Scope::Run),
            "t" => grant(Scope::Seconds { seconds }),
            "d" => Self::Decided(Decision::Deny {}),
            "s" => Self::Decided(Decision::Stop {}),
            "l" => Self::Later,
            "n" => Self::Next,
            _ => Self::Unknown(line.trim().to_owned()),
        }
    }
}

/// What comes of a look at all this.
#[derive(Debug, Default)]
pub struct Looked {
    /// What is shown, after all that was shown before.
    pub shown: Vec<u8>,
    /// What a person has answered.
    pub answered: Option<Answered>,
    /// The size that the program is told its terminal has.
    pub resized: Option<Size>,
}

impl Desk {
    /// Where nothing is asked yet.
    pub fn new(run: RunId, key: AskKey) -> Self {
        Self {
            run,
            key,
            open: Vec::new(),
            rung: 0,
            aside: BTreeSet::new(),
            is_summoned: false,
            drawn: None,
            paste: Paste::default(),
            answered: None,
            repaint_at: None,
        }
    }

    /// What is open by now, the oldest first.
    pub fn asked(&mut self, open: Vec<Pending>) {
        let is_open = |number: &u32| open.iter().any(|one| one.approval == *number);
        self.aside.retain(is_open);
        self.is_summoned &= !open.is_empty();
        self.open = open;
    }

    /// Whether a question has the terminal.
    pub fn has_terminal(&self) -> bool {
        self.drawn.is_some()
    }

    /// When there is something to do, whatever else comes.
    pub fn due(&self) -> Option<Instant> {
        let drawn = self.drawn.as_ref().filter(|_| !self.paste.is_open());
        let counts = drawn.and_then(|drawn| match drawn.counts {
            Counts::After(since) => Some(since + SETTLING),
            Counts::Unshown | Counts::Now => None,
        });
        counts.into_iter().chain(self.repaint_at).min()
    }

    /// The window has another size.
    pub fn resized(&mut self) {
        if let Some(drawn) = &mut self.drawn {
            *drawn = Drawn::of(drawn.question.clone());
        }
    }

    /// Takes of what was typed what is not for the program.
    pub fn typed(&mut self, typed: &mut Vec<u8>, now: Instant) {
        // A paste may have begun before the question was drawn.
        let is_pasted = self.paste.is_in(typed);
        let Some(drawn) = &mut self.drawn else {
            let at = self.key.found_in(typed).filter(|_| !self.open.is_empty());
            if let Some(at) = at {
                typed.truncate(at);
                self.is_summoned = true;
                self.aside.clear();
            }
            return;
        };
        let said = match is_pasted {
            true => drawn.dropped(now),
            false => drawn.typed(typed, now),
        };
        typed.clear();
        let (question, is_read) = (drawn.question.clone(), drawn.is_read);
        match said {
            None => {}
            Some(Said::Decided(Decision::Grant { .. })) if !is_read => drawn.next(Prompt::Unread),
            Some(Said::Decided(decision)) => {
                self.open.retain(|one| one.approval != question.approval);
                self.answered = Some(Answered {
                    approval: question.approval,
                    digest: question.digest,
                    decision,
                });
            }
            Some(Said::Later) => {
                self.aside.insert(question.approval);
                self.is_summoned = false;
            }
            Some(Said::Next) => drawn.next(Prompt::Answer),
            Some(Said::Unknown(word)) => {
                (drawn.prompt, drawn.wants) = (Prompt::Unknown(word), Wants::Line);
            }
        }
    }

    /// Does what there is to do. `is_shown` says whether all is shown that was to be.
    pub fn turn(
        &mut self,
        filter: &EscapeFilter,
        size: Size,
        is_shown: bool,
        now: Instant,
    ) -> Looked {
        let mut looked = Looked {
            answered: self.answered.take(),
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
        let next = self.next(filter.has_whole_screen()).cloned();
        let had = self.has_terminal();
        let is_same = |drawn: &Drawn, next: &Pending| {
            drawn.question.digest == next.digest && drawn.question.approval == next.approval
        };
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
                    .is_some_and(|drawn| is_same(drawn, &next)) => {}
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

    /// The question that is to have the terminal.
    fn next(&self, has_whole_screen: bool) -> Option<&Pending> {
        if has_whole_screen && !self.is_summoned {
            return None;
        }
        let is_aside = |one: &&Pending| self.aside.contains(&one.approval);
        self.open.iter().find(|one| !is_aside(one))
    }

    fn draw(&mut self, size: Size, is_shown: bool, now: Instant, shown: &mut Vec<u8>) {
        let further = self.open.len().saturating_sub(1);
        let Some(drawn) = &mut self.drawn else { return };
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
        let pages = Pages::of(&self.run, &drawn.question, (further, self.key), size);
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
    fn of(question: Pending) -> Self {
        Self {
            question,
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

    /// The next page; after the last one the first.
    fn next(&mut self, prompt: Prompt) {
        self.page = match self.is_read {
            true => 0,
            false => self.page.saturating_add(1),
        };
        self.is_read = false;
        (self.prompt, self.wants) = (prompt, Wants::All);
    }

    /// Takes what was typed. What is said by it, once it is a line.
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
                    return Some(Said::of(&line));
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

    /// Takes what answers nothing, after which nothing may be typed for a while.
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
