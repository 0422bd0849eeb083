//! Programs in a sandbox, from their start to their output.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_engine::failure::{Doing, Failure};
use atoll_engine::sandboxes::{Exec, PriorAnswer, Sandbox};
use atoll_engine::supervision::ExecRequest;
use atoll_model::{CallId, Ending, RunId, ServedExec};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_setfl};

/// The largest output that is kept, bytes of each stream: what comes after that is read and lost.
pub const OUTPUT_BYTES_MAX: usize = 8 << 20;
/// The time in which a program that was killed is gone.
const KILL_WAIT: Duration = Duration::from_secs(5);
const SIGKILL: u8 = 9;
/// The most blocks of a stream that are read before anything else is looked at: 1 MiB.
const BLOCKS_AT_ONCE: usize = 64;

/// A program to run to its end.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Its standard input.
    pub stdin: Vec<u8>,
    /// The time until it is ended.
    pub timeout: Duration,
    /// The file that its result is in, absolute.
    pub file: Option<PathBuf>,
    /// The call that it is a part of.
    pub parent: CallId,
    /// The word of its caller, by which it is ended.
    pub cancel: Cancel,
}

/// The end of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RanEnd {
    /// Its own end, or that by a limit.
    Ended(Ending),
    /// Its time was over.
    TimedOut,
    /// Its caller ended it.
    Cancelled,
}

/// A caller's word that a call is to end.
#[derive(Clone, Debug)]
pub struct Cancel(Arc<OwnedFd>);

impl Cancel {
    /// Makes one that is not given.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn new() -> Result<Self, Failure> {
        let word = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self(Arc::new(word.doing("the call cannot be made")?)))
    }

    /// Gives it.
    pub fn cancel(&self) {
        // A counter that is full was given before.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Returns the descriptor that is readable once it is given.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Returns whether it is given.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let mut one = [PollFd::new(&self.0, PollFlags::IN)];
        poll(
            &mut one,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .is_ok_and(|ready| ready > 0)
    }
}

/// A program that has ended.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The run of its sandbox.
    pub run: RunId,
    /// The way that it ended.
    pub end: RanEnd,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// The number of bytes of both that were not kept.
    pub lost: u64,
    /// The content of its file, or why it is not there.
    pub file: Option<Result<Vec<u8>, String>>,
}

/// A stream of its output.
struct Reading {
    from: Option<File>,
    kept: Vec<u8>,
    lost: u64,
}

impl Reading {
    fn new(from: OwnedFd) -> io::Result<Self> {
        fcntl_setfl(&from, OFlags::NONBLOCK)?;
        Ok(Self {
            from: Some(from.into()),
            kept: Vec::new(),
            lost: 0,
        })
    }

    /// Reads what is there, more than a pipe has room for. It comes back from one that is filled
    /// without a pause, too.
    fn read(&mut self) -> io::Result<()> {
        let mut block = [0; 16 << 10];
        for _ in 0..BLOCKS_AT_ONCE {
            let Some(from) = &mut self.from else {
                return Ok(());
            };
            match from.read(&mut block) {
                Ok(0) => self.from = None,
                Ok(got) => {
                    let room = OUTPUT_BYTES_MAX - self.kept.len();
                    let kept = block.get(..got.min(room)).unwrap_or_default();
                    self.kept.extend_from_slice(kept);
                    self.lost += (got - kept.len()) as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Its standard input.
struct Writing {
    to: Option<File>,
    left: Vec<u8>,
    at: usize,
}

impl Writing {
    /// Writes what there is room for. A program that closes its input has read enough.
    fn write(&mut self) {
        while let Some(to) = &mut self.to {
            let left = self.left.get(self.at..).unwrap_or_default();
            if left.is_empty() {
                self.to = None;
                return;
            }
            match to.write(left) {
                Ok(written) => self.at += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.to = None,
            }
        }
    }
}

/// Runs a program in a sandbox to its end.
///
/// # Errors
/// When it is refused, or cannot be started.
pub fn run(
    sandbox: &Sandbox,
    program: &Program,
    served: Option<ServedExec>,
) -> Result<Ran, Failure> {
    let until = Instant::now() + program.timeout;
    let pipe = || std::io::pipe().doing("no pipe can be made");
    let ((input, to), (out, out_end), (err, err_end)) = (pipe()?, pipe()?, pipe()?);
    let request = ExecRequest {
        command: program.command.clone(),
        directory: None,
        environment: Vec::new(),
        served,
        answer: PriorAnswer::Nobody,
        parent: Some(Box::new(program.parent.clone())),
    };
    let streams = [input.into(), out_end.into(), err_end.into()];
    let exec = sandbox.start(request, streams, None)?;
    let to: OwnedFd = to.into();
    fcntl_setfl(&to, OFlags::NONBLOCK).doing("its input cannot be written")?;
    let read = |from: OwnedFd| Reading::new(from).doing("its output cannot be read");
    let mut following = Following {
        exec,
        input: Writing {
            to: Some(to.into()),
            left: program.stdin.clone(),
            at: 0,
        },
        out: read(out.into())?,
        err: read(err.into())?,
        cancel: program.cancel.clone(),
    };
    let end = following.follow(until)?;
    let file = program.file.as_ref().map(|path| content(sandbox, path));
    let Following { out, err, .. } = following;
    Ok(Ran {
        run: sandbox.run().clone(),
        end,
        lost: out.lost + err.lost,
        stdout: out.kept,
        stderr: err.kept,
        file,
    })
}

/// A running program with its streams.
struct Following {
    exec: Exec,
    input: Writing,
    out: Reading,
    err: Reading,
    cancel: Cancel,
}

impl Following {
    fn follow(&mut self, until: Instant) -> Result<RanEnd, Failure> {
        let mut until = until;
        // The reason why it was killed.
        let mut killed = None;
        loop {
            self.input.write();
            self.out.read().doing("its output cannot be read")?;
            self.err.read().doing("its output cannot be read")?;
            if let Some(ending) = self.exec.ended()? {
                // What a program has written before its end is there by now.
                self.out.read().doing("its output cannot be read")?;
                self.err.read().doing("its output cannot be read")?;
                return Ok(killed.unwrap_or(RanEnd::Ended(ending)));
            }
            let left = until.saturating_duration_since(Instant::now());
            let why = match (left.is_zero(), self.cancel.is_cancelled()) {
                (_, true) => Some(RanEnd::Cancelled),
                (true, false) => Some(RanEnd::TimedOut),
                (false, false) => None,
            };
            match (why, &killed) {
                (Some(why), None) => {
                    killed = Some(why);
                    until = Instant::now() + KILL_WAIT;
                    self.exec.signal(SIGKILL);
                    continue;
                }
                (Some(_), Some(why)) if left.is_zero() => return Ok(why.clone()),
                (Some(_) | None, _) => {}
            }
            self.wait(left, killed.is_none())
                .doing("its output cannot be awaited")?;
        }
    }

    /// Waits until something can be read or written.
    fn wait(&self, most: Duration, may_be_cancelled: bool) -> io::Result<()> {
        let news = self.exec.descriptor();
        let mut watched = vec![PollFd::from_borrowed_fd(news, PollFlags::IN)];
        if may_be_cancelled {
            watched.push(PollFd::new(&self.cancel.0, PollFlags::IN));
        }
        for from in [&self.out.from, &self.err.from].into_iter().flatten() {
            watched.push(PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN));
        }
        if let Some(to) = &self.input.to {
            watched.push(PollFd::from_borrowed_fd(to.as_fd(), PollFlags::OUT));
        }
        let most = Timespec {
            tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: most.subsec_nanos().into(),
        };
        match poll(&mut watched, Some(&most)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Reads a file of the sandbox, by its absolute path, with the rights of its programs.
///
/// # Errors
/// Describes why it cannot be read.
pub fn content(sandbox: &Sandbox, path: &Path) -> Result<Vec<u8>, String> {
    let failed = |failure: Failure| match failure.why {
        Some(why) => format!("{}: {why}", failure.what),
        None => failure.what,
    };
    let file = sandbox.open(path).map_err(failed)?;
    let mut content = Vec::new();
    file.take(OUTPUT_BYTES_MAX as u64 + 1)
        .read_to_end(&mut content)
        .map_err(|error| error.to_string())?;
    match content.len() > OUTPUT_BYTES_MAX {
        true => Err(format!(
            "{} is larger than {OUTPUT_BYTES_MAX} bytes",
            path.display()
        )),
        false => Ok(content),
    }
}

/// Describes the way that a program ended that has not succeeded.
pub(crate) fn described(ending: &Ending) -> String {
    match ending {
        Ending::Exited { status } => format!("it failed with status {status}"),
        Ending::Signalled { signal } => format!("it was ended by signal {signal}"),
        Ending::Limited { limit } => format!("it was ended by its limit: {limit:?}"),
        Ending::NotFound => "its program is not in the sandbox".to_owned(),
        Ending::NotExecutable => "its program cannot be executed".to_owned(),
        Ending::Interrupted => "it was ended from outside".to_owned(),
    }
}
