//! Questions at the terminal of `atoll run`, where a program has the terminal for its own.
//!
//! While one is drawn, all that the program writes waits, and nothing that is typed reaches it:
//! it can neither draw over a question nor answer it. What was typed before a question could be
//! read answers nothing: only after a second in which nothing was typed a letter and Enter count.
//! What comes with an escape sequence, as what a terminal says by itself does, counts for nothing,
//! and neither does anything between the marks of what is pasted, however long that takes. Any
//! doubt leaves a question open, and its time denies it. A port that has begun to listen is
//! published in the same way, but only a person's key brings that up.
//!
//! This module must never do I/O. Start reading at [`Desk::turn`], then `page.rs`.

mod page;
mod paste;
mod said;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use atoll_model::RunId;
use atoll_model::network::{Listener, ListensAt, PublishedPort};
use atoll_sandbox::{Answered, Decision, Pending, Size};

use crate::ask_key::AskKey;
use crate::escape::EscapeFilter;
use page::{Page, Pages, Prompt};
use paste::Paste;
use said::{Said, Subject};

/// How long nothing may be typed before an answer counts.
const SETTLING: Duration = Duration::from_secs(1);
/// How long a program is told another size, so that it draws its screen anew.
const REPAINTING: Duration = Duration::from_millis(150);
/// How much of a line is taken, characters: an answer is one.
const LINE_CHARACTERS_MAX: usize = 8;
/// How many ports that could be published are remembered.
const PORTS_MAX: usize = 8;

const CONTROL_C: u8 = 0x03;
const CONTROL_Z: u8 = 0x1a;
const BELL: u8 = 0x07;

/// The questions of a run at its terminal.
#[derive(Debug)]
pub struct Desk {
    run: RunId,
    key: AskKey,
    /// Who can say the second yes to what lasts, where that takes two persons.
    second: Option<String>,
    open: Vec<Pending>,
    /// The last question for which the bell was rung.
    rung: u32,
    /// What a person has put off.
    aside: BTreeSet<u32>,
    /// A person wants to see questions though the program has the whole screen.
    is_summoned: bool,
    /// What has begun to listen inside and could be published, the last first: nothing that a
    /// person has put off.
    ports: Vec<Listener>,
    /// The program has the whole screen, as far as is known.
    has_whole_screen: bool,
    /// A person wants to see the first of them.
    is_offered: bool,
    /// The program has ended.
    is_over: bool,
    drawn: Option<Drawn>,
    paste: Paste,
    answered: Option<Answered>,
    publishes: Option<PublishedPort>,
    repaint_at: Option<Instant>,
}

/// What has the terminal.
#[derive(Debug)]
struct Drawn {
    subject: Subject,
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

/// What comes of a look at all this.
#[derive(Debug, Default)]
pub struct Looked {
    /// What is shown, after all that was shown before.
    pub shown: Vec<u8>,
    /// What a person has answered.
    pub answered: Option<Answered>,
    /// What a person wants to have published.
    pub publishes: Option<PublishedPort>,
    /// The size that the program is told its terminal has.
    pub resized: Option<Size>,
}

impl Desk {
    /// Where nothing is asked yet.
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
            has_whole_screen: false,
            is_offered: false,
            is_over: false,
            drawn: None,
            paste: Paste::default(),
            answered: None,
            publishes: None,
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

    /// The program has ended: nothing is asked any more, nor can anything be published.
    pub fn over(&mut self) {
        self.asked(Vec::new());
        self.ports.clear();
        self.is_over = true;
    }

    /// A program inside has begun to listen. The key by which a person gets to publish it, where
    /// anything leads there.
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
            *drawn = Drawn::of(drawn.subject.clone());
        }
    }

    /// Takes of what was typed what is not for the program.
    pub fn typed(&mut self, typed: &mut Vec<u8>, now: Instant) {
        // A paste may have begun before the question was drawn.
        let is_pasted = self.paste.is_in(typed);
        let Some(drawn) = &mut self.drawn else {
            // A program with the whole screen keeps the key but for what it waits for itself.
            let has_port = !self.ports.is_empty() && !self.has_whole_screen;
            let has_any = !self.open.is_empty() || has_port;
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
            Some(Said::Decided(Decision::Grant { .. }) | Said::Publish) if !is_read => {
                drawn.next(Prompt::Unread);
            }
            Some(Said::Next) if !is_read => drawn.next(Prompt::Answer),
            Some(Said::Unknown(word)) => {
                (drawn.prompt, drawn.wants) = (Prompt::Unknown(word), Wants::Line);
            }
            Some(said) => match subject {
                Subject::Call(question) => self.said_of_call(&question, said),
                Subject::Port(listener) => self.said_of_port(&listener, said),
            },
        }
    }

    fn said_of_call(&mut self, question: &Pending, said: Said) {
        match said {
            Said::Decided(decision) => {
                self.open.retain(|one| one.approval != question.approval);
                // Where it takes another person too it stays open, and the terminal is free.
                self.aside.insert(question.approval);
                self.answered = Some(Answered {
                    approval: question.approval,
                    digest: question.digest,
                    decision,
                });
            }
            Said::Later => {
                self.aside.insert(question.approval);
                self.is_summoned = false;
            }
            Said::Next => {
                if let Some(drawn) = &mut self.drawn {
                    drawn.next(Prompt::Answer);
                }
            }
            Said::Publish | Said::Unknown(_) => {}
        }
    }

    fn said_of_port(&mut self, listener: &Listener, said: Said) {
        match said {
            Said::Publish => {
                self.ports.retain(|one| one.port != listener.port);
                self.is_offered = false;
                self.publishes = Some(PublishedPort {
                    outside: listener.port,
                    inside: listener.port,
                });
            }
            // Another port, where there is one.
            Said::Next => {
                if !self.ports.is_empty() {
                    self.ports.rotate_left(1);
                }
            }
            // Ctrl-C too: nobody has to publish anything.
            Said::Later | Said::Decided(_) | Said::Unknown(_) => {
                self.ports.retain(|one| one.port != listener.port);
                self.is_offered = false;
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
            publishes: self.publishes.take(),
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

    /// What is to have the terminal: what the program waits for before what nobody does.
    fn next(&self) -> Option<Subject> {
        let is_aside = |one: &&Pending| self.aside.contains(&one.approval);
        let mut open = self.open.iter().filter(|one| !is_aside(one));
        let call = open
            .next()
            .filter(|_| !self.has_whole_screen || self.is_summoned);
        let port = self.ports.first().filter(|_| self.is_offered);
        let port = port.map(|listener| Subject::Port(listener.clone()));
        call.map(|call| Subject::Call(Box::new(call.clone())))
            .or(port)
    }

    fn draw(&mut self, size: Size, is_shown: bool, now: Instant, shown: &mut Vec<u8>) {
        let Some(drawn) = &mut self.drawn else { return };
        let all = match drawn.subject {
            Subject::Call(_) => self.open.len(),
            Subject::Port(_) => self.ports.len(),
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
