//! Execs that callers of the control socket ask for: decided and recorded, then handed to the
//! session that starts them; the caller is answered at the end.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use atoll_ledger::{Armed, ClosedExec, LedgerError};
use atoll_model::Ending;
use atoll_policy::ExecGrant;
use atoll_sandbox::{
    Declined, EndedExec, ExecCommand, FilesRequest, SandboxError, SandboxRequest, StartExec, Who,
};

use super::Outside;
use crate::supervision::control::{
    Answer, ExecCaller, ExecDone, ExecRequest, OutputFilter, Staying, reply,
};

/// An exec that somebody asks for.
#[derive(Clone, Copy, Debug)]
pub struct AskedExec<'a> {
    /// The program.
    pub request: &'a ExecRequest,
    /// True if it gets a terminal of its own.
    pub terminal: bool,
    /// Its number in the sandbox.
    pub exec: u32,
    /// The process that asks.
    pub by: Who,
}

/// The decisions and records of execs in a running sandbox.
pub trait ExecGate {
    /// Decides on an exec and records it, on disk when it returns.
    ///
    /// # Errors
    /// The answer that says why it is not started, which is recorded too.
    fn open(&self, asked: &AskedExec<'_>) -> Result<Armed<ExecGrant>, Box<Answer>>;
    /// Records the end of an exec, or why it was not started.
    ///
    /// # Errors
    /// [`LedgerError`], for [`ExecGate::settle`].
    fn close(
        &self,
        armed: Armed<ExecGrant>,
        ending: Result<Ending, &str>,
        wall_clock: Duration,
    ) -> Result<ClosedExec, LedgerError>;
    /// Waits until that is on disk. Returns whether it is recorded.
    fn settle(&self, closed: Result<ClosedExec, LedgerError>) -> bool;
    /// Makes a filter for what a program writes to a person's terminal.
    fn filter(&self) -> Box<dyn OutputFilter>;
}

/// The execs of a run beside its first.
#[derive(Default)]
pub(super) struct Execs {
    /// The number of the last.
    last: u32,
    /// The requests to the sandbox that are to be carried out.
    pub(super) due: Vec<SandboxRequest>,
    /// The callers that wait for an answer.
    callers: Vec<(u32, UnixStream)>,
    /// The callers who want all processes stopped while they are connected.
    freezers: Vec<Freezer>,
}

/// A caller who wants all processes stopped.
struct Freezer {
    stream: UnixStream,
    /// The time at which they go on, whether it is gone or not.
    until: Option<Instant>,
    /// True once it knows that they have stopped.
    is_told: bool,
    /// True while it waits to know if they have stood still all along.
    asks: bool,
}

/// The longest time that a caller can have all processes stopped.
const FROZEN_MAX: Duration = Duration::from_secs(60);
/// The most such callers at once.
const FREEZERS_MAX: usize = 4;

impl Execs {
    pub(super) fn wants_frozen(&self) -> bool {
        !self.freezers.is_empty()
    }

    pub(super) fn waits_on(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.freezers.iter().map(|one| one.stream.as_fd())
    }

    pub(super) fn due_at(&self) -> Option<Instant> {
        self.freezers.iter().filter_map(|one| one.until).min()
    }

    /// Answers who waits to know if the processes have stood still all along.
    pub(super) fn check_frozen(&mut self, has_held: &dyn Fn() -> bool) {
        if !self.freezers.iter().any(|one| one.asks) {
            return;
        }
        let answer = match has_held() {
            true => Answer::Done {},
            false => Answer::Refused(Declined {
                why: "a program of it went on by itself".to_owned(),
                advice: "atoll stop RUN ends it; its changes are there then".to_owned(),
            }),
        };
        for freezer in self.freezers.iter_mut().filter(|one| one.asks) {
            reply(&freezer.stream, &answer);
            freezer.asks = false;
        }
    }

    /// Answers who waits for all processes to stop. Where they cannot be stopped, nobody waits any
    /// more.
    pub(super) fn note_frozen(&mut self, done: Result<(), String>) {
        let answer = match &done {
            Ok(()) => Answer::Done {},
            Err(why) => Answer::Refused(Declined {
                why: why.clone(),
                advice: "atoll stop RUN ends it; its changes are there then".to_owned(),
            }),
        };
        for freezer in self.freezers.iter_mut().filter(|one| !one.is_told) {
            reply(&freezer.stream, &answer);
            freezer.is_told = true;
        }
        if done.is_err() {
            self.freezers.clear();
        }
    }
}

impl Outside<'_> {
    /// Takes a caller whose request the sandbox itself answers.
    pub(super) fn keep_caller(&mut self, caller: Staying) {
        match caller {
            Staying::Exec(caller) => self.ask_exec(*caller),
            Staying::Freeze(stream) if self.execs.freezers.len() < FREEZERS_MAX => {
                self.freeze(stream, Some(Instant::now() + FROZEN_MAX));
            }
            Staying::Freeze(stream) => reply(
                &stream,
                &Answer::Refused(Declined {
                    why: "others read its changes already".to_owned(),
                    advice: "try again in a moment".to_owned(),
                }),
            ),
        }
    }

    /// Has all processes stop until then, or for as long as the other end is open.
    pub(super) fn freeze(&mut self, stream: UnixStream, until: Option<Instant>) {
        self.execs.freezers.push(Freezer {
            stream,
            until,
            is_told: false,
            asks: false,
        });
    }

    /// Has a file server started.
    pub(super) fn serve_files(&mut self, served: impl FnOnce(Result<OwnedFd, Declined>) + 'static) {
        let declined = |error: SandboxError| Declined {
            why: error.to_string(),
            advice: "try again".to_owned(),
        };
        self.execs.due.push(SandboxRequest::Files(FilesRequest {
            served: Box::new(move |requests| served(requests.map_err(declined))),
        }));
    }

    /// Lets go callers who are gone, or have had all processes stopped for long enough.
    pub(super) fn drop_freezers(&mut self) {
        let now = Instant::now();
        self.execs.freezers.retain_mut(|one| {
            if one.until.is_some_and(|until| now >= until) {
                return false;
            }
            match (&one.stream).read(&mut [0; 16]) {
                Ok(1..) => {
                    one.asks = true;
                    true
                }
                Err(error) => error.kind() == io::ErrorKind::WouldBlock,
                Ok(0) => false,
            }
        });
    }

    /// Decides on the exec of a caller; an allowed one is due.
    pub(super) fn ask_exec(&mut self, caller: ExecCaller) {
        let Some(live) = self.live else {
            return;
        };
        let exec = self.execs.last.saturating_add(1);
        let asked = AskedExec {
            request: &caller.request,
            terminal: caller.terminal.is_some(),
            exec,
            by: caller.who,
        };
        // A refused one has its number too.
        self.execs.last = exec;
        let armed = match live.execs.open(&asked) {
            Ok(armed) => armed,
            Err(answer) => return caller.refuse(&answer),
        };
        let environment = caller.request.environment.clone();
        let terminal = caller.terminal;
        match caller.attach(&|| live.execs.filter()) {
            Ok((attachment, connection, streams)) => {
                self.execs.callers.push((exec, connection));
                self.execs
                    .due
                    .push(SandboxRequest::Exec(Box::new(StartExec {
                        command: ExecCommand {
                            armed,
                            environment,
                            terminal,
                            streams,
                        },
                        attachment: Box::new(attachment),
                    })));
            }
            Err(error) => {
                let why = format!("its connection cannot be kept: {error}");
                let closed = live.execs.close(armed, Err(&why), Duration::ZERO);
                self.is_unrecorded |= !live.execs.settle(closed);
            }
        }
    }

    /// Records the end of an exec, and answers its caller.
    pub(super) fn close_exec(&mut self, ended: EndedExec) {
        let EndedExec {
            armed,
            ending,
            wall_clock,
            with_run,
        } = ended;
        let exec = armed.call().id.exec.unwrap_or_default();
        let answer = match &ending {
            Ok(ending) => Answer::Exec(ExecDone {
                exec,
                ending: *ending,
                with_run,
            }),
            Err(error) => Answer::Refused(Declined {
                why: error.to_string(),
                advice: advice(error).to_owned(),
            }),
        };
        let why = ending.as_ref().err().map(ToString::to_string);
        let ending = ending.map_err(|_| why.as_deref().unwrap_or_default());
        let closed = self
            .live
            .map(|live| (live.execs, live.execs.close(armed, ending, wall_clock)));
        let callers = &mut self.execs.callers;
        if let Some(at) = callers.iter().position(|(number, _)| *number == exec) {
            let (_, connection) = callers.swap_remove(at);
            reply(&connection, &answer);
        }
        // The caller need not wait for that: nothing happens because of it.
        if let Some((execs, closed)) = closed {
            self.is_unrecorded |= !execs.settle(closed);
        }
    }
}

/// Returns what the caller can do where an exec could not be started.
fn advice(error: &SandboxError) -> &'static str {
    match error {
        SandboxError::TooManyExecs(_) => "wait for one of them to end",
        SandboxError::Making { .. } => "atoll exec RUN -- ls -la shows what is there",
        SandboxError::Word(_) => "give the data in a file or on standard input",
        SandboxError::TooLarge(_) | SandboxError::Words => {
            "give fewer or shorter arguments and variables"
        }
        _ => "start the program in a run of its own: atoll run -- …",
    }
}
