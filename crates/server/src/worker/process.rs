//! A program in a living sandbox: its input, its output window, and its end.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use atoll_engine::sandboxes::{Exec, NeedsApproval, PriorAnswer, Sandbox, Size};
use atoll_engine::supervision::ExecRequest;
use atoll_model::LimitHit;
use atoll_model::{Ending, RESIDENT, ServedExec, check_words};
use bytes::{Bytes, BytesMut};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::timeout;

use super::answers::refusal;
use super::shares::Share;
use super::window::{Reading, WINDOW_BYTES, Window};
use crate::line::Stream;
use crate::protocol::{End, Kind, Refusal, StartAsk, TerminalSize};
use crate::ready::watched;

/// The most bytes read at once.
const BLOCK_BYTES: usize = 64 * 1024;
/// Pieces shorter than this are copied, bytes.
const COPIED_BYTES: usize = 16 * 1024;
/// The longest time for a program to be executed.
const STARTED_WITHIN: Duration = Duration::from_secs(15);
/// The longest time for a program to take what is written to it.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);
/// The longest name of a program, and all of its arguments and variables, bytes.
const TAG_BYTES_MAX: usize = 256;
const WORDS_BYTES_MAX: usize = 1 << 20;
/// The memory that each program takes beside that, KiB.
const KEPT_KIB: u64 = 4;

/// The time that is counted at once of a program's own.
const TIMED: Duration = Duration::from_secs(1);
const SIGKILL: u8 = 9;
/// The longest time for the end of a program that was killed.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// A program.
pub(crate) struct Process {
    /// The request.
    pub(crate) asked: StartAsk,
    /// Its output.
    pub(crate) window: Arc<Window>,
    pid: AtomicU32,
    input: tokio::sync::Mutex<Option<pipe::Sender>>,
    /// `None` once it has ended: what is remembered holds no descriptor.
    exec: Mutex<Option<Exec>>,
    sandbox: Arc<Sandbox>,
    /// The memory that it takes, of its tenant's.
    kept: Mutex<Share>,
}

/// The shares that a program has.
pub(crate) struct Place {
    /// Those that it has until it has ended.
    pub(super) running: Vec<Share>,
    /// The memory for what is kept of it.
    pub(super) kept: Share,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Process").finish_non_exhaustive()
    }
}

/// The reason why a program was not started.
pub(crate) enum NotStarted {
    Refused(Refusal),
    /// A question of policies to an approver, which came without an answer.
    NeedsApproval(NeedsApproval),
}

impl From<Refusal> for NotStarted {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The worker's ends of a program's streams, and those that the sandbox gets.
struct Streams {
    input: Option<pipe::Sender>,
    outputs: Vec<(Stream, pipe::Receiver)>,
    given: [OwnedFd; 3],
}

impl Streams {
    fn open(asked: &StartAsk) -> io::Result<Self> {
        let mut outputs = Vec::new();
        let mut output = |stream| -> io::Result<OwnedFd> {
            let (near, far) = io::pipe()?;
            outputs.push((stream, pipe::Receiver::from_owned_fd(near.into())?));
            Ok(far.into())
        };
        let (first, second) = match asked.terminal {
            Some(_) => (output(Stream::Terminal)?, discarded()?),
            None => (output(Stream::Output)?, output(Stream::Error)?),
        };
        let (input, given) = match asked.input || asked.terminal.is_some() {
            true => {
                let (far, near) = io::pipe()?;
                (Some(pipe::Sender::from_owned_fd(near.into())?), far.into())
            }
            // At its end from the beginning.
            false => (None, io::pipe()?.0.into()),
        };
        Ok(Self {
            input,
            outputs,
            given: [given, first, second],
        })
    }
}

/// Opens what takes everything: a terminal writes nothing there.
fn discarded() -> io::Result<OwnedFd> {
    let nothing = File::options().write(true).open("/dev/null")?;
    Ok(nothing.into())
}

impl Process {
    /// Starts a program, of which an approver may have been asked; returns it with a place at the beginning of its output, once it is executed
    /// or has failed to be.
    pub(crate) async fn start(
        sandbox: &Arc<Sandbox>,
        asked: StartAsk,
        by: ServedExec,
        answer: PriorAnswer,
        place: Place,
    ) -> Result<(Arc<Self>, Reading), NotStarted> {
        check(&asked)?;
        let streams = Streams::open(&asked).map_err(|error| fault(&error))?;
        let variable = |(name, value): (&String, &String)| format!("{name}={value}").into();
        let request = ExecRequest {
            command: asked.command.iter().map(Into::into).collect(),
            directory: Some(asked.directory.as_deref().unwrap_or(RESIDENT.home).into()),
            environment: asked.environment.iter().map(variable).collect(),
            parent: by.parent.clone(),
            served: Some(by),
            answer,
        };
        let exec = sandbox.start(request, streams.given, asked.terminal.map(size));
        let exec = exec.map_err(|failure| refusal(&failure))?;
        let news = exec.descriptor().try_clone_to_owned();
        let news = news.and_then(watched).map_err(|error| fault(&error))?;
        let process = Arc::new(Self {
            asked,
            window: Arc::default(),
            pid: AtomicU32::new(0),
            input: tokio::sync::Mutex::new(streams.input),
            exec: Mutex::new(Some(exec)),
            sandbox: Arc::clone(sandbox),
            kept: Mutex::new(place.kept),
        });
        // One that was quick is read like any other.
        let ended = match timeout(STARTED_WITHIN, process.news(&news)).await {
            // Its process was not even there.
            Ok(Some(Ok(End::Otherwise(why)))) if process.pid() == 0 => {
                return Err(Refusal::new(Kind::Invalid, why).into());
            }
            Ok(Some(Err(refusal))) => {
                let asked = process.exec().as_mut().and_then(Exec::needs_approval);
                return Err(asked.map_or(NotStarted::Refused(refusal), NotStarted::NeedsApproval));
            }
            Ok(Some(Ok(end))) => Some(end),
            Ok(None) => None,
            Err(_) => {
                process.signal(SIGKILL);
                let what =
                    "the program was not started in time: the sandbox's processes may be stopped";
                let refusal = Refusal::new(Kind::Unavailable, what).advise("try again");
                return Err(refusal.into());
            }
        };
        let reading = process.window.read(Some(0));
        let carried = Arc::clone(&process);
        tokio::spawn(async move {
            carried
                .carry(news, streams.outputs, ended, place.running)
                .await;
        });
        Ok((process, reading))
    }

    /// Waits for the start, or the end; returns the end if that has come, or why policies deny it.
    async fn news(&self, news: &AsyncFd<OwnedFd>) -> Option<Result<End, Refusal>> {
        loop {
            let mut ready = match news.readable().await {
                Ok(ready) => ready,
                Err(error) => return Some(Ok(End::Gone(error.to_string()))),
            };
            let news = self.exec().as_mut().map(|exec| (exec.ended(), exec.pid()));
            let Some((ended, pid)) = news else {
                return Some(Ok(End::Gone("it has ended".to_owned())));
            };
            let had = self.pid.swap(pid.unwrap_or(0), Ordering::Relaxed);
            match ended {
                Ok(Some(ending)) => return Some(Ok(end_of(ending))),
                Err(failure) => {
                    return Some(match pid {
                        Some(_) => Ok(End::Gone(refusal(&failure).what)),
                        None if !failure.reasons.is_empty() => Err(refusal(&failure)),
                        None => Ok(End::Otherwise(refusal(&failure).told())),
                    });
                }
                Ok(None) if pid.is_some() && had == 0 => return None,
                Ok(None) => ready.clear_ready(),
            }
        }
    }

    /// Reads what it writes, until it has ended and all is read.
    async fn carry(
        self: Arc<Self>,
        news: AsyncFd<OwnedFd>,
        outputs: Vec<(Stream, pipe::Receiver)>,
        ended: Option<End>,
        running: Vec<Share>,
    ) {
        let (is_over, over) = watch::channel(false);
        let reads = outputs.into_iter().map(|(stream, pipe)| {
            let (process, over) = (Arc::clone(&self), over.clone());
            tokio::spawn(async move { process.read(stream, pipe, over).await })
        });
        let reads: Vec<_> = reads.collect();
        let end = match ended {
            Some(end) => end,
            None => match self.asked.timeout_ms {
                None => self.end(&news).await,
                Some(most) => self.end_within(Duration::from_millis(most), &news).await,
            },
        };
        is_over.send_replace(true);
        for read in reads {
            let _ = read.await;
        }
        *self.input.lock().await = None;
        drop((news, self.exec().take(), running));
        let kept = kib(words_bytes(&self.asked)) + kib(self.window.bytes());
        self.kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .shrink(KEPT_KIB + kept);
        self.window.close(end);
    }

    /// Ends it once it has run for so long; the time that its sandbox stood still is none of it.
    async fn end_within(&self, most: Duration, news: &AsyncFd<OwnedFd>) -> End {
        let mut left = most;
        while !left.is_zero() {
            let part = left.min(TIMED);
            if let Ok(end) = timeout(part, self.end(news)).await {
                return end;
            }
            if !self.sandbox.is_still() {
                left = left.saturating_sub(part);
            }
        }
        self.signal(SIGKILL);
        // Whoever waits is answered, whatever becomes of it.
        let _ = timeout(KILLED_WITHIN, self.end(news)).await;
        End::Late
    }

    async fn end(&self, news: &AsyncFd<OwnedFd>) -> End {
        loop {
            if let Some(end) = self.news(news).await {
                return end.unwrap_or_else(|refusal| End::Gone(refusal.what));
            }
        }
    }

    /// Reads one of its outputs until it is closed, or the program is over and what it wrote is
    /// read: a process beneath it can keep the pipe open, and write on.
    async fn read(
        &self,
        stream: Stream,
        mut pipe: pipe::Receiver,
        mut over: watch::Receiver<bool>,
    ) {
        let mut block = BytesMut::new();
        loop {
            self.window.room().await;
            block.reserve(BLOCK_BYTES);
            let got = tokio::select! {
                got = pipe.read_buf(&mut block) => got,
                _ = over.wait_for(|over| *over) => break,
            };
            match got {
                Ok(got @ 1..) => self.take(stream, &mut block, got),
                Ok(0) | Err(_) => return,
            }
        }
        let mut left = rustix::io::ioctl_fionread(&pipe).unwrap_or(0);
        while left > 0 {
            self.window.room().await;
            block.resize(BLOCK_BYTES, 0);
            // Of the kernel itself: the runtime may not know yet that there is something.
            match rustix::io::read(&pipe, &mut block[..]) {
                Ok(got @ 1..) => {
                    left = left.saturating_sub(got as u64);
                    self.take(stream, &mut block, got);
                }
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Takes the beginning of a block into the window.
    fn take(&self, stream: Stream, block: &mut BytesMut, got: usize) {
        let written = match got {
            // It may be kept for long, and is not to keep a whole block.
            0..COPIED_BYTES => Bytes::copy_from_slice(block.get(..got).unwrap_or_default()),
            _ => block.split_to(got).freeze(),
        };
        block.clear();
        self.window.push(stream, written);
    }

    /// Returns the number of its process in the sandbox.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Writes to its input, as soon as it reads.
    pub(crate) async fn write(&self, content: &[u8]) -> Result<(), Refusal> {
        let written = timeout(TAKEN_WITHIN, self.write_all(content)).await;
        written.unwrap_or_else(|_| {
            let what = "the program does not read its input";
            Err(Refusal::new(Kind::Late, what).advise("send the rest once it does"))
        })
    }

    async fn write_all(&self, content: &[u8]) -> Result<(), Refusal> {
        let mut input = self.input.lock().await;
        let Some(pipe) = input.as_mut() else {
            return Err(no_input());
        };
        match pipe.write_all(content).await {
            Ok(()) => Ok(()),
            Err(_) => {
                *input = None;
                Err(no_input())
            }
        }
    }

    /// Closes its input.
    pub(crate) async fn close_input(&self) -> Result<(), Refusal> {
        if self.asked.terminal.is_some() {
            return Err(Refusal::new(
                Kind::Invalid,
                "a terminal's input cannot be closed: send it the key, as Ctrl-D",
            ));
        }
        match timeout(TAKEN_WITHIN, self.input.lock())
            .await
            .map(|mut input| input.take())
        {
            Ok(Some(_)) => Ok(()),
            Ok(None) | Err(_) => Err(no_input()),
        }
    }

    /// Sends its process group a signal.
    pub(crate) fn signal(&self, number: u8) {
        if let Some(exec) = &*self.exec() {
            exec.signal(number);
        }
    }

    /// Sets the size of its terminal.
    pub(crate) fn resize(&self, terminal: TerminalSize) {
        if let Some(exec) = &*self.exec() {
            exec.resize(size(terminal));
        }
    }

    fn exec(&self) -> MutexGuard<'_, Option<Exec>> {
        self.exec.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the length of its arguments and variables, bytes.
fn words_bytes(asked: &StartAsk) -> usize {
    let variables = asked.environment.iter();
    let variables = variables.map(|(name, value)| name.len() + value.len());
    let words = asked.command.iter().map(String::len).chain(variables);
    words.sum()
}

/// Returns the most memory that a program takes here while it runs, KiB: what was asked, its output
/// as far as it is kept, and a block of each stream.
pub(super) fn most_kib(asked: &StartAsk) -> u64 {
    KEPT_KIB + kib(words_bytes(asked)) + kib(WINDOW_BYTES as usize) + 2 * kib(BLOCK_BYTES)
}

fn kib(bytes: usize) -> u64 {
    bytes.div_ceil(1 << 10) as u64
}

/// Checks what is kept of a request for as long as its program is.
fn check(asked: &StartAsk) -> Result<(), Refusal> {
    if words_bytes(asked) > WORDS_BYTES_MAX {
        let what = "arguments and variables have 1 MiB at most, together";
        return Err(Refusal::new(Kind::Invalid, what).advise("write the data to a file"));
    }
    let words = asked.command.iter().map(String::as_bytes);
    let variable = |(name, value): (&String, &String)| format!("{name}={value}").into_bytes();
    let variables: Vec<Vec<u8>> = asked.environment.iter().map(variable).collect();
    if let Err(error) = check_words(words, variables.iter().map(Vec::as_slice)) {
        let refusal = Refusal::new(Kind::Invalid, error.to_string());
        return Err(refusal.advise("write the data to a file"));
    }
    if asked
        .tag
        .as_ref()
        .is_some_and(|tag| tag.len() > TAG_BYTES_MAX)
    {
        let what = format!("a tag has {TAG_BYTES_MAX} bytes at most");
        return Err(Refusal::new(Kind::Invalid, what));
    }
    match asked.command.is_empty() {
        true => Err(Refusal::new(Kind::Invalid, "no program is named")),
        false => Ok(()),
    }
}

fn size(terminal: TerminalSize) -> Size {
    Size {
        rows: terminal.rows,
        columns: terminal.columns,
    }
}

fn no_input() -> Refusal {
    Refusal::new(
        Kind::Invalid,
        "the program has no input, or it is closed: start it with stdin",
    )
}

fn end_of(ending: Ending) -> End {
    match ending {
        Ending::Exited { status } => End::Exited(status),
        Ending::Signalled { signal } => End::Signalled(signal),
        Ending::NotFound => End::Otherwise("there is no such program in the sandbox".to_owned()),
        Ending::NotExecutable => End::Otherwise("it cannot be executed".to_owned()),
        Ending::Limited { limit } => End::Limited(limit_name(limit)),
        Ending::Interrupted => End::Gone("its supervision was interrupted".to_owned()),
    }
}

fn fault(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(Kind::Fault, format!("the program was not started: {error}"))
}

/// Returns the name of a limit, as `--limit` has it.
pub(super) fn limit_name(limit: LimitHit) -> String {
    serde_json::to_value(limit)
        .ok()
        .and_then(|name| name.as_str().map(str::to_owned))
        .unwrap_or_default()
}
