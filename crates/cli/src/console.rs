//! The person's side of a run: the terminal or the pipes, the signals, and the output that is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{IsTerminal, Stderr, Stdin, Stdout, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Instant;

use atoll_model::network::{Listener, Published, PublishedPort};
use atoll_model::{RunId, TerminalRights, mask_secrets_in};
use atoll_sandbox::{
    Allowance, Attachment, Declined, Denial, Pending, Reaction, SIGWINCH, SecondApproval, Signals,
    Size, Stream, Turn,
};
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr};

use crate::ask_key::AskKey;
use crate::desk::{Desk, Looked};
use crate::escape::{Copied, EscapeFilter};
use crate::terminal::terminal_size;
use crate::{approvals, denied, ports};

/// The attachment of `atoll run`.
#[derive(Debug)]
pub struct Console {
    stdin: Stdin,
    stdout: Stdout,
    stderr: Stderr,
    signals: Option<Signals>,
    raw: Option<RawTerminal>,
    filters: [Option<EscapeFilter>; 2],
    kept: [Kept; 2],
    run: RunId,
    /// True if the next output begins a line.
    begins_line: bool,
    /// The ports that lead to this host, which cannot be published.
    host_ports: Vec<u16>,
    /// The number of further listening programs that are still announced.
    listeners_left: usize,
    /// The hosts whose denial was told.
    denied: BTreeSet<String>,
    is_quiet: bool,
    /// The prompt for questions; none where the terminal cannot draw one.
    desk: Option<Desk>,
    /// The questions not announced yet, where no prompt draws them.
    untold: Vec<Pending>,
    /// The number of the last question that was announced.
    told: u32,
}

/// The most listening programs that are announced during a run.
const LISTENERS_TOLD_MAX: usize = 8;

/// The most denials that are told during a run; the summary has all.
const DENIALS_TOLD_MAX: usize = 16;

/// The settings of a console.
#[derive(Debug)]
pub struct ConsoleSettings {
    /// The run's id.
    pub run: RunId,
    /// True if the program has a terminal of its own.
    pub terminal: bool,
    /// The program's rights on the person's terminal.
    pub rights: TerminalRights,
    /// The directory in which its output is kept; `None` keeps nothing.
    pub keep_in: Option<PathBuf>,
    /// The most that is kept of each stream, bytes.
    pub keep_bytes_max: u64,
    /// The key that brings a question back to the terminal.
    pub ask_key: AskKey,
    /// True if nothing is told but questions.
    pub quiet: bool,
    /// The people who can give the second approval to what lasts, under dual control.
    pub second: Option<String>,
    /// The ports that lead to this host.
    pub host_ports: Vec<u16>,
}

/// The name of a terminal that moves no cursor.
const DUMB: &str = "dumb";
/// The size assumed of a terminal that reports none.
const SIZE: Size = Size {
    rows: 24,
    columns: 80,
};

impl Console {
    /// Takes over the terminal, if there is one, and the signals.
    pub fn new(settings: ConsoleSettings, signals: Option<Signals>) -> Self {
        let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        // Text for a person's terminal is filtered; a pipe or a file gets what
        // the program wrote.
        let filter = |is_terminal: bool| is_terminal.then(|| EscapeFilter::new(settings.rights));
        let filters = [filter(stdout.is_terminal()), filter(stderr.is_terminal())];
        let kept = |name: &str| Kept {
            path: settings
                .keep_in
                .as_ref()
                .map(|directory| directory.join(name)),
            file: None,
            left_bytes: settings.keep_bytes_max,
            held: Vec::new(),
            is_cut: false,
        };
        let raw = if settings.terminal {
            RawTerminal::take(&stdin)
        } else {
            None
        };
        let can_draw =
            std::env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != DUMB);
        let desk = raw.as_ref().filter(|_| can_draw && filters[0].is_some());
        let desk = desk.map(|_| {
            Desk::new(
                settings.run.clone(),
                settings.ask_key,
                settings.second.clone(),
            )
        });
        Self {
            desk,
            untold: Vec::new(),
            told: 0,
            stdin,
            stdout,
            stderr,
            signals,
            raw,
            filters,
            kept: [kept("stdout"), kept("stderr")],
            run: settings.run.clone(),
            begins_line: true,
            host_ports: settings.host_ports,
            listeners_left: LISTENERS_TOLD_MAX,
            denied: BTreeSet::new(),
            is_quiet: settings.quiet,
        }
    }

    /// Returns the streams of which more was shown than is kept.
    pub fn cut(&self) -> impl Iterator<Item = &'static str> {
        let names = ["standard output", "standard error"].into_iter();
        names
            .zip(&self.kept)
            .filter_map(|(name, kept)| kept.is_cut.then_some(name))
    }

    /// Restores the terminal. Returns the number of escape sequences removed, by kind, and what was
    /// written to the clipboard.
    pub fn finish(mut self) -> (BTreeMap<&'static str, u64>, Copied) {
        let (mut removed, mut copied) = (BTreeMap::new(), Copied::default());
        for kept in &mut self.kept {
            kept.write(kept.held.len());
        }
        let mut last = [Vec::new(), Vec::new()];
        if let Some(desk) = &mut self.desk {
            // What has the terminal still gives it back before all else.
            desk.over();
            let looked = self.look(true);
            last[0].extend(looked.into_iter().flat_map(|looked| looked.shown));
        }
        for (filter, rest) in self.filters.iter_mut().zip(&mut last) {
            let Some(filter) = filter else { continue };
            filter.finish(rest);
            filter.restore(rest);
            for (kind, count) in filter.removed() {
                *removed.entry(*kind).or_insert(0) += count;
            }
            copied.add(filter.copied());
        }
        let [output, error] = last;
        // A terminal that has gone away needs nothing given back.
        let _ = self
            .stdout
            .lock()
            .write_all(&output)
            .and_then(|()| self.stdout.flush());
        let _ = self.stderr.lock().write_all(&error);
        if let Some(raw) = self.raw.take() {
            raw.give_back();
        }
        (removed, copied)
    }
}

impl Console {
    fn look(&mut self, is_shown: bool) -> Option<Looked> {
        let desk = self.desk.as_mut()?;
        let filter = self.filters.first().and_then(Option::as_ref)?;
        let size = terminal_size().filter(|size| size.rows > 0 && size.columns > 0);
        Some(desk.turn(filter, size.unwrap_or(SIZE), is_shown, Instant::now()))
    }

    /// Returns a message as a notification, for a terminal whose whole screen a program has.
    fn notified(&self, told: &str) -> Option<(Stream, Vec<u8>)> {
        let is_terminal = self.stdout.is_terminal();
        is_terminal.then(|| (Stream::Output, denied::notification(told)))
    }

    /// Returns a message as a line of its own.
    fn in_a_line(&mut self, told: &str) -> (Stream, Vec<u8>) {
        let (stream, end) = match self.raw {
            // The program's own terminal is shown on the output, and all of it is in step there.
            Some(_) => (Stream::Output, "\r\n"),
            None => (Stream::Error, "\n"),
        };
        let before = if self.begins_line { "" } else { end };
        self.begins_line = true;
        (stream, format!("{before}{told}{end}").into_bytes())
    }
}

impl Attachment for Console {
    fn input(&self) -> Option<BorrowedFd<'_>> {
        Some(self.stdin.as_fd())
    }

    fn sink(&self, stream: Stream) -> BorrowedFd<'_> {
        match stream {
            Stream::Output => self.stdout.as_fd(),
            Stream::Error => self.stderr.as_fd(),
        }
    }

    fn signals(&self) -> Option<BorrowedFd<'_>> {
        self.signals.as_ref().map(Signals::descriptor)
    }

    fn next_signal(&mut self) -> Option<Reaction> {
        match self.signals.as_ref()?.next()? {
            SIGWINCH => {
                self.desk.iter_mut().for_each(Desk::resized);
                Some(terminal_size().map_or(Reaction::Ignore, Reaction::Resize))
            }
            number => Some(u8::try_from(number).map_or(Reaction::Ignore, Reaction::Forward)),
        }
    }

    fn transform(&mut self, stream: Stream, written: &[u8], shown: &mut Vec<u8>) {
        let index = stream as usize;
        if let Some(kept) = self.kept.get_mut(index) {
            kept.keep(written);
        }
        match self.filters.get_mut(index) {
            Some(Some(filter)) => filter.push(written, shown),
            _ => shown.extend_from_slice(written),
        }
        if let Some(last) = shown.last() {
            self.begins_line = *last == b'\n';
        }
    }

    /// Announces a listening program in a line, only at a person's terminal and not while a program
    /// has the whole screen.
    fn begun(&mut self, listener: &Listener) -> Option<(Stream, Vec<u8>)> {
        let is_of_host = self.host_ports.contains(&listener.port);
        if !self.stderr.is_terminal() || !self.takes_lines() || self.is_quiet || is_of_host {
            return None;
        }
        self.listeners_left = self.listeners_left.checked_sub(1)?;
        let key = self.desk.as_mut().and_then(|desk| desk.listens(listener));
        Some(self.in_a_line(&ports::told(&self.run, listener, key)))
    }

    /// Tells of each denial once: in a line, or by a notification while a program has the whole
    /// screen. Only a person's terminal is told.
    fn denied(&mut self, denial: &Denial) -> Option<(Stream, Vec<u8>)> {
        let desk = self.desk.as_mut().filter(|_| denial.can_be_lifted());
        let key = desk.and_then(|desk| desk.denied(denial));
        let is_new = self.denied.len() < DENIALS_TOLD_MAX && !self.denied.contains(&denial.rule);
        if !self.stderr.is_terminal() || !is_new || self.is_quiet {
            return None;
        }
        self.denied.insert(denial.rule.clone());
        let told = denied::told(denial, key);
        match self.takes_lines() {
            true => Some(self.in_a_line(&told)),
            false => self.notified(&told),
        }
    }

    fn allowed(
        &mut self,
        rule: &str,
        lasts: Allowance,
        done: &Result<(), Declined>,
    ) -> Option<(Stream, Vec<u8>)> {
        // Should it be denied again, that is news.
        self.denied.remove(rule);
        let told = denied::allowed(rule, lasts, done);
        match self.takes_lines() {
            true => Some(self.in_a_line(&told)),
            false => self.notified(&told),
        }
    }

    fn published(
        &mut self,
        port: PublishedPort,
        done: &Result<Option<Published>, Declined>,
    ) -> Option<(Stream, Vec<u8>)> {
        let told = ports::done(port, done)?;
        Some(self.in_a_line(&told))
    }

    fn takes_lines(&self) -> bool {
        let draws = |filter: &Option<EscapeFilter>| {
            filter.as_ref().is_some_and(EscapeFilter::has_whole_screen)
        };
        !self.filters.iter().any(draws)
    }

    fn of_two(&mut self, told: &SecondApproval) -> Option<(Stream, Vec<u8>)> {
        let told = approvals::told_of_two(&self.run, told)?;
        Some(self.in_a_line(&told))
    }

    fn asked(&mut self, open: Vec<Pending>) {
        if let Some(desk) = &mut self.desk {
            desk.asked(open);
            return;
        }
        let new = open.into_iter().filter(|one| one.approval > self.told);
        self.untold.extend(new);
        self.told = self.untold.last().map_or(self.told, |one| one.approval);
    }

    fn over(&mut self) {
        self.desk.iter_mut().for_each(Desk::over);
    }

    fn has_terminal(&self) -> bool {
        self.desk.as_ref().is_some_and(Desk::has_terminal)
    }

    fn typed(&mut self, typed: &mut Vec<u8>) {
        if let Some(desk) = &mut self.desk {
            desk.typed(typed, Instant::now());
        }
    }

    fn due(&self) -> Option<Instant> {
        self.desk.as_ref().and_then(Desk::due)
    }

    /// Draws the prompt where it can be drawn; elsewhere announces each question in a line,
    /// terminal or not.
    fn turn(&mut self, is_shown: bool) -> Turn {
        if let Some(looked) = self.look(is_shown) {
            let shown = (!looked.shown.is_empty()).then_some((Stream::Output, looked.shown));
            return Turn {
                shown: shown.into_iter().collect(),
                answered: looked.answered,
                publishes: looked.publishes,
                allows: looked.allows,
                resized: looked.resized,
            };
        }
        let untold = std::mem::take(&mut self.untold);
        let shown = untold
            .iter()
            .map(|one| self.in_a_line(&approvals::told(&self.run, one)));
        Turn {
            shown: shown.collect(),
            ..Turn::default()
        }
    }

    fn suspended(&mut self) {
        if let Some(raw) = &self.raw {
            raw.cooked();
        }
        // The shell that started Atoll takes over here, until it says `fg`. Where none can, in an
        // orphaned process group, this signal stops nothing (signal(7)), unlike SIGSTOP.
        let _ = kill_process(getpid(), Signal::TSTP);
        if let Some(raw) = &self.raw {
            raw.raw();
        }
    }
}

/// The person's terminal in raw mode; restored when dropped.
#[derive(Debug)]
pub(crate) struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    /// Takes over the terminal of standard input, if it is one.
    pub(crate) fn take(stdin: &Stdin) -> Option<Self> {
        let before = tcgetattr(stdin).ok()?;
        let terminal = Self { before };
        terminal.raw();
        Some(terminal)
    }

    fn raw(&self) {
        let mut raw = self.before.clone();
        raw.make_raw();
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &raw);
    }

    fn cooked(&self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }

    /// Discards the input that was typed or answered and not read. It belongs to the program: left
    /// there, the person's shell would run it.
    pub(crate) fn give_back(self) {
        let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        self.cooked();
    }
}

/// The most of a stream that is held until its line, or a private key, has come to its end, bytes.
const HELD_BYTES_MAX: usize = 64 << 10;
/// The end of a longer line that is held, bytes.
const TAIL_BYTES: usize = 4 << 10;

/// The beginning of one stream, kept in a file of the run without the secrets that look like ones.
#[derive(Debug)]
struct Kept {
    path: Option<PathBuf>,
    file: Option<File>,
    left_bytes: u64,
    is_cut: bool,
    /// The end that is not written yet.
    held: Vec<u8>,
}

impl Kept {
    fn keep(&mut self, written: &[u8]) {
        if self.path.is_none() {
            return;
        }
        let room = usize::try_from(self.left_bytes).unwrap_or(usize::MAX);
        self.is_cut |= written.len() > room;
        let part = written.get(..written.len().min(room)).unwrap_or_default();
        self.left_bytes -= part.len() as u64;
        self.held.extend_from_slice(part);
        let ended = part.iter().rposition(|byte| *byte == b'\n');
        let lines = ended.map_or(0, |at| self.held.len() - part.len() + at + 1);
        if self.held.len() > HELD_BYTES_MAX {
            // No secret but a long key is longer than what stays.
            self.write(self.held.len() - TAIL_BYTES);
        } else if lines > 0 && !has_open_key(self.held.get(..lines).unwrap_or_default()) {
            self.write(lines);
        }
    }

    /// Writes so much of what is held.
    fn write(&mut self, bytes: usize) {
        let (Some(path), true) = (&self.path, bytes > 0) else {
            return;
        };
        if self.file.is_none() {
            let directory = path.parent().unwrap_or(path);
            let made = std::fs::create_dir_all(directory).and_then(|()| File::create(path));
            self.file = made.ok();
        }
        let ready: Vec<u8> = self.held.drain(..bytes).collect();
        let ready = mask_secrets_in(&ready);
        let kept = self.file.as_mut().map(|file| file.write_all(&ready));
        if !matches!(kept, Some(Ok(()))) {
            // No room to keep it; showing it goes on.
            self.path = None;
        }
    }
}

/// Returns whether a private key has begun and not ended.
fn has_open_key(text: &[u8]) -> bool {
    let last = |mark: &[u8]| text.windows(mark.len()).rposition(|one| one == mark);
    last(b"-----BEGIN ").is_some_and(|begun| last(b"-----END ") < Some(begun))
}
