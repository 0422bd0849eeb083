//! Execs that callers of the control socket ask for: decided and recorded, then handed to the
//! session that starts them; the caller is answered at the end.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use atoll_ledger::ArmedExec;
use atoll_model::Ending;
use atoll_policy::ExecGrant;

use super::Outside;
use crate::SandboxError;
use crate::approvals::Who;
use crate::attachment::{EndedExec, StartExec};
use crate::control::{Answer, Declined, ExecCaller, ExecDone, ExecRequest, OutputFilter, reply};
use crate::exec::ExecCommand;

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
    /// The reason why it is not started, which is recorded too.
    fn open(&self, asked: &AskedExec<'_>) -> Result<ArmedExec<ExecGrant>, Declined>;
    /// Records the end of an exec, or why it was not started. Returns whether it is recorded.
    fn close(
        &self,
        armed: ArmedExec<ExecGrant>,
        ending: Result<Ending, &str>,
        wall_clock: Duration,
    ) -> bool;
    /// Makes a filter for what a program writes to a person's terminal.
    fn filter(&self) -> Box<dyn OutputFilter>;
}

/// The execs of a run beside its first.
#[derive(Default)]
pub(super) struct Execs {
    /// The number of the last.
    last: u32,
    /// Those that are to be started.
    due: Vec<StartExec>,
    /// The callers that wait for an answer.
    callers: Vec<(u32, UnixStream)>,
}

impl Outside<'_> {
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
        let armed = match live.execs.open(&asked) {
            Ok(armed) => armed,
            Err(declined) => return caller.refuse(&Answer::Refused(declined)),
        };
        self.execs.last = exec;
        let environment = caller.request.environment.clone();
        let terminal = caller.terminal;
        match caller.attach(&|| live.execs.filter()) {
            Ok((attachment, connection)) => {
                self.execs.callers.push((exec, connection));
                self.execs.due.push(StartExec {
                    command: ExecCommand {
                        armed,
                        environment,
                        terminal,
                    },
                    attachment: Box::new(attachment),
                });
            }
            Err(error) => {
                let why = format!("its connection cannot be kept: {error}");
                self.is_unrecorded |= !live.execs.close(armed, Err(&why), Duration::ZERO);
            }
        }
    }

    /// Takes the execs that are due.
    pub(super) fn take_execs(&mut self) -> Vec<StartExec> {
        std::mem::take(&mut self.execs.due)
    }

    /// Records the end of an exec, and answers its caller.
    pub(super) fn close_exec(&mut self, ended: EndedExec) {
        let EndedExec {
            armed,
            ending,
            wall_clock,
        } = ended;
        let exec = armed.call().exec;
        let answer = match &ending {
            Ok(ending) => Answer::Exec(ExecDone {
                exec,
                ending: *ending,
            }),
            Err(error) => Answer::Refused(Declined {
                why: error.to_string(),
                advice: advice(error).to_owned(),
            }),
        };
        let why = ending.as_ref().err().map(ToString::to_string);
        let ending = ending.map_err(|_| why.as_deref().unwrap_or_default());
        if let Some(live) = self.live {
            self.is_unrecorded |= !live.execs.close(armed, ending, wall_clock);
        }
        let callers = &mut self.execs.callers;
        if let Some(at) = callers.iter().position(|(number, _)| *number == exec) {
            let (_, connection) = callers.swap_remove(at);
            reply(&connection, &answer);
        }
    }
}

/// Returns what the caller can do where an exec could not be started.
fn advice(error: &SandboxError) -> &'static str {
    match error {
        SandboxError::TooManyExecs(_) => "wait for one of them to end",
        SandboxError::TooLarge(_) => "give fewer or shorter arguments and variables",
        _ => "start the program in a run of its own: atoll run -- …",
    }
}
