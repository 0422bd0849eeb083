use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use atoll_model::{Call, Ending, Reason, ServedExec, Verdict};
use serde_json::{Value, json};

use crate::entry::{Recorded, once_body, reasons_body, whole_number};
use crate::event::Draft;
use crate::event::seal::SealKey;
use crate::journal::Journal;
use crate::tail::Tail;
use crate::{LedgerError, Position, host_text};

/// An exec in a living sandbox, as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecCall {
    /// The sandbox, by its run, with the exec's own command, directory and terminal.
    pub call: Call,
    /// The exec's number in the sandbox, whose first is 0.
    pub exec: u32,
    /// The names of the variables that it has besides the sandbox's own.
    pub variables: Vec<String>,
    /// The process that asked for it, as the kernel says: user and process id.
    pub by_uid: u32,
    /// See [`ExecCall::by_uid`].
    pub by_pid: u32,
    /// Set for one in a served sandbox.
    pub served: Option<ServedExec>,
}

/// An exec in the ledger (`exec.opened`), with the verdict on it, on its way to the disk.
pub struct ExecEntry {
    call: ExecCall,
    journal: Arc<Journal>,
    seal: Arc<SealKey>,
    recorded: Recorded,
    tail: Tail,
}

/// The proof that an exec is on disk and allowed, with its grant: nothing else starts a program in
/// a living sandbox. Only the ledger makes one, and it ends at
/// [`Ledger::close_exec`](crate::Ledger::close_exec). One that is never closed has ended with its
/// run.
pub struct ArmedExec<G> {
    entry: ExecEntry,
    grant: G,
}

/// An exec that was not started.
#[derive(Debug, thiserror::Error)]
pub enum RefusedExec {
    /// Policy denies it, or asks for a person, for these reasons; that is recorded.
    #[error("denied")]
    Denied(Vec<Reason>),
    /// The verdict is not the one that was recorded with it.
    #[error(
        "the verdict is not the one in the ledger; this is a defect of Atoll: please report it"
    )]
    Contradiction,
    /// The exec could not be recorded.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl ExecEntry {
    pub(crate) fn new(
        call: ExecCall,
        journal: Arc<Journal>,
        seal: Arc<SealKey>,
        recorded: Recorded,
        tail: Tail,
    ) -> Self {
        Self {
            call,
            journal,
            seal,
            recorded,
            tail,
        }
    }

    /// Waits until the exec is on disk and turns an allowed one into the right to start it. A
    /// denied one, and one that needs a person, leave here, recorded (`exec.denied`) on disk.
    ///
    /// # Errors
    /// [`RefusedExec`].
    pub fn arm<G>(self, verdict: Verdict<G>) -> Result<ArmedExec<G>, RefusedExec> {
        if Recorded::of(&verdict) != self.recorded {
            return Err(RefusedExec::Contradiction);
        }
        match verdict {
            Verdict::Allow(grant) => {
                self.journal.make_durable(self.tail.clone())?;
                Ok(ArmedExec { entry: self, grant })
            }
            Verdict::Ask(reasons) | Verdict::Deny(reasons) => {
                let body = json!({
                    "exec": self.call.exec,
                    "verdict": self.recorded.name(),
                    "reasons": reasons_body(&reasons),
                });
                self.finish("exec.denied", &body)?;
                Err(RefusedExec::Denied(reasons))
            }
        }
    }

    fn finish(&self, kind: &str, body: &Value) -> Result<Position, LedgerError> {
        let draft = Draft::sealed(kind, &self.call.call.run, body, Some(&self.seal))?;
        self.journal.append_durable(&draft)
    }
}

impl<G> ArmedExec<G> {
    /// Returns the rights that were granted.
    #[must_use]
    pub fn grant(&self) -> &G {
        &self.grant
    }

    /// Returns the exec that was recorded.
    #[must_use]
    pub fn call(&self) -> &ExecCall {
        &self.entry.call
    }

    pub(crate) fn close(
        self,
        ending: Result<Ending, &str>,
        wall_clock: Duration,
    ) -> Result<ClosedExec, LedgerError> {
        let mut body = json!({
            "exec": self.entry.call.exec,
            "wall_clock_us": whole_number(wall_clock.as_micros()),
        });
        if let Some(body) = body.as_object_mut() {
            match ending {
                Ok(ending) => {
                    let how = serde_json::to_value(ending).unwrap_or(Value::Null);
                    body.insert("ending".to_owned(), how);
                    body.insert("status".to_owned(), json!(ending.exit_status()));
                }
                Err(why) => drop(body.insert("failure".to_owned(), json!(why))),
            }
        }
        let ExecEntry {
            call,
            journal,
            seal,
            ..
        } = self.entry;
        let draft = Draft::sealed("exec.closed", &call.call.run, &body, Some(&seal))?;
        let (_, tail) = journal.append(&draft)?;
        Ok(ClosedExec { journal, tail })
    }
}

/// The end of an exec that is recorded, and handed to the kernel: it survives Atoll's end.
#[must_use]
pub struct ClosedExec {
    journal: Arc<Journal>,
    tail: Tail,
}

impl ClosedExec {
    /// Waits until it is on disk: it survives a loss of power from then on.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn settle(self) -> Result<(), LedgerError> {
        self.journal.make_durable(self.tail)
    }
}

impl fmt::Debug for ExecEntry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = out.debug_struct("ExecEntry");
        out.field("run", &self.call.call.run)
            .finish_non_exhaustive()
    }
}

/// Leaves out the grant: its content is not for logs.
impl<G> fmt::Debug for ArmedExec<G> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = out.debug_struct("ArmedExec");
        out.field("run", &self.entry.call.call.run)
            .finish_non_exhaustive()
    }
}

/// Returns the body of `exec.opened`.
pub(crate) fn opened_body(call: &ExecCall, recorded: Recorded, decision: Value) -> Value {
    let texts = |list: &[OsString]| list.iter().map(host_text).collect::<Vec<_>>();
    let mut body = json!({
        "exec": call.exec,
        "verdict": recorded.name(),
        "decision": decision,
        "by": { "uid": call.by_uid, "pid": call.by_pid },
        "command": texts(&call.call.command),
        "directory": host_text(&call.call.directory),
        "terminal": call.call.terminal,
        "variables": call.variables,
    });
    if let (Some(body), Some(served)) = (body.as_object_mut(), &call.served) {
        let mut told = json!({ "caller": served.caller, "trace": served.trace });
        if let (Some(told), Some((uid, _))) = (told.as_object_mut(), served.user) {
            told.insert("user".to_owned(), json!(uid));
        }
        if let (Some(told), Some(once)) = (told.as_object_mut(), &served.once) {
            told.insert("once".to_owned(), once_body(once));
        }
        body.insert("served".to_owned(), told);
    }
    body
}
