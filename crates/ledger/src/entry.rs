use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use atoll_model::{Call, Ending, Reason, RunId, ToolEnd, Verdict};
use serde_json::{Value, json};

use crate::bodies::{Kinds, Recorded, reasons_body, whole_number};
use crate::event::Draft;
use crate::event::seal::SealKey;
use crate::journal::Journal;
use crate::open_runs::Marker;
use crate::seals::NewKey;
use crate::tail::Tail;
use crate::{LedgerError, Position};

/// A call in the ledger, with the verdict on it, on its way to the disk: preparations without an
/// effect outside may go on meanwhile. If that of a run is dropped without [`Entry::arm`], the run
/// will be found interrupted.
#[derive(Debug)]
pub struct Entry {
    call: Call,
    journal: Arc<Journal>,
    /// The key of the sensitive members, where its events have some.
    seal: Option<Arc<SealKey>>,
    /// Set for the call that begins a run.
    begun: Option<Begun>,
    recorded: Recorded,
    /// The event that records the call, or its body where a refused one has none of its own.
    opened: Result<(Position, Tail), Value>,
}

/// The files of a run that is open.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) marker: Marker,
    pub(crate) seal: NewKey,
}

/// The proof that a call is on disk and allowed, with its grant: nothing else has an effect. Only
/// the ledger makes one. That of a run ends at [`crate::Ledger::close`], that of an exec at
/// [`crate::Ledger::close_exec`]: one that is never closed has ended with its run.
pub struct Armed<G> {
    entry: Entry,
    grant: G,
    used: bool,
}

/// A call that goes no further.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The policy denies the call; that is recorded.
    #[error("denied: {0}")]
    Denied(Box<Refusal>),
    /// A person has to decide first; that is recorded.
    #[error("needs a person's yes: {0}")]
    NeedsApproval(Box<Refusal>),
    /// The verdict is not the one that was recorded with the call.
    #[error(
        "the verdict on run {0} is not the one in the ledger; nothing was started, \
         and this is a defect of Atoll: please report it"
    )]
    Contradiction(RunId),
    /// The refusal stands, but could not be recorded.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// A refusal, and where in the ledger it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The run that was not started.
    pub run: RunId,
    /// The reasons.
    pub reasons: Vec<Reason>,
    /// The position of the event that records the refusal.
    pub position: Position,
}

impl Entry {
    pub(crate) fn new(
        call: Call,
        journal: Arc<Journal>,
        seal: Option<Arc<SealKey>>,
        begun: Option<Begun>,
        recorded: Recorded,
        opened: Result<(Position, Tail), Value>,
    ) -> Self {
        Self {
            call,
            journal,
            seal,
            begun,
            recorded,
            opened,
        }
    }

    /// Waits until the call is on disk and turns an allowed one into the right to carry it out.
    /// Deny and Ask leave the main path here, recorded on disk (`run.denied`, `exec.denied`, …).
    ///
    /// # Errors
    /// [`Refused`].
    pub fn arm<G>(self, verdict: Verdict<G>) -> Result<Armed<G>, Refused> {
        if Recorded::of(&verdict) != self.recorded {
            return Err(Refused::Contradiction(self.run().clone()));
        }
        if let Some(begun) = &self.begun {
            begun.seal.sync()?;
        }
        match (verdict, &self.opened) {
            (Verdict::Allow(grant), Ok((_, tail))) => {
                self.journal.make_durable(tail.clone())?;
                Ok(Armed {
                    entry: self,
                    grant,
                    used: false,
                })
            }
            (Verdict::Allow(_), Err(_)) => Err(Refused::Contradiction(self.run().clone())),
            (Verdict::Ask(reasons), _) => Err(Refused::NeedsApproval(self.refuse(reasons)?)),
            (Verdict::Deny(reasons), _) => Err(Refused::Denied(self.refuse(reasons)?)),
        }
    }

    /// Returns the run.
    #[must_use]
    pub fn run(&self) -> &RunId {
        self.call.run()
    }

    fn refuse(self, reasons: Vec<Reason>) -> Result<Box<Refusal>, LedgerError> {
        let run = self.run().clone();
        let unopened = self.opened.as_ref().err().cloned();
        let mut body = unopened.unwrap_or_else(|| json!({}));
        if let Some(body) = body.as_object_mut() {
            body.insert("verdict".to_owned(), json!(self.recorded.name()));
            body.insert("reasons".to_owned(), json!(reasons_body(&reasons)));
            let id = &self.call.id;
            body.extend(id.exec.map(|exec| ("exec".to_owned(), json!(exec))));
            body.extend(id.tool.map(|tool| ("call".to_owned(), json!(tool))));
        }
        let kind = Kinds::of(&self.call.action).denied;
        let position = self.finish(kind, &body)?;
        Ok(Box::new(Refusal {
            run,
            reasons,
            position,
        }))
    }

    fn finish(self, kind: &str, body: &Value) -> Result<Position, LedgerError> {
        let draft = Draft::sealed(kind, self.run(), body, self.seal.as_deref())?;
        let position = self.journal.append_durable(&draft)?;
        if let Some(begun) = self.begun {
            // The closing event is on disk; a marker that cannot be removed is
            // compared with the ledger by the next opening, and removed then.
            let _ = begun.marker.remove();
        }
        Ok(position)
    }
}

impl<G> Armed<G> {
    /// Returns the rights that were granted.
    #[must_use]
    pub fn grant(&self) -> &G {
        &self.grant
    }

    /// Returns the call that was recorded.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.entry.call
    }

    /// Uses up the right to start one program, once. Returns whether it was there.
    #[must_use]
    pub fn use_up(&mut self) -> bool {
        !std::mem::replace(&mut self.used, true)
    }

    /// Notes that the program has ended: from here on the run is only closed, and nothing
    /// interrupts that.
    pub fn note_ending(&self) {
        if let Some(begun) = &self.entry.begun {
            // Where there is no room for it, somebody may.
            let _ = begun.marker.note_ending();
        }
    }

    /// Returns the run.
    #[must_use]
    pub fn run(&self) -> &RunId {
        self.entry.run()
    }

    /// Records the end of an exec; see [`crate::Ledger::close_exec`].
    pub(crate) fn close_exec(
        self,
        ending: Result<Ending, &str>,
        wall_clock: Duration,
    ) -> Result<ClosedExec, LedgerError> {
        let mut body = json!({
            "exec": self.entry.call.id.exec,
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
        let Entry {
            call,
            journal,
            seal,
            ..
        } = self.entry;
        let draft = Draft::sealed("exec.closed", call.run(), &body, seal.as_deref())?;
        let (_, tail) = journal.append(&draft)?;
        Ok(ClosedExec { journal, tail })
    }

    /// Records the end of a tool's call; see [`crate::Ledger::close_tool`].
    pub(crate) fn close_tool(
        self,
        end: ToolEnd,
        wall_clock: Duration,
        details: Value,
    ) -> Result<ClosedExec, LedgerError> {
        let body = json!({
            "call": self.entry.call.id.tool,
            "end": end.name(),
            "wall_clock_us": whole_number(wall_clock.as_micros()),
            "details": details,
        });
        let Entry {
            call,
            journal,
            seal,
            ..
        } = self.entry;
        let draft = Draft::sealed("tool.closed", call.run(), &body, seal.as_deref())?;
        let (_, tail) = journal.append(&draft)?;
        Ok(ClosedExec { journal, tail })
    }

    pub(crate) fn finish(self, kind: &str, body: &Value) -> Result<Position, LedgerError> {
        self.entry.finish(kind, body)
    }
}

/// The end of an exec, or of a tool's call, that is recorded, and handed to the kernel: it survives Atoll's end.
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

impl<G> Deref for Armed<G> {
    type Target = G;
    fn deref(&self) -> &G {
        &self.grant
    }
}

/// Leaves out the grant: its content is not for logs.
impl<G> fmt::Debug for Armed<G> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Armed")
            .field("run", self.run())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for reason in &self.reasons {
            write!(out, "{separator}{}: {}", reason.what, reason.why)?;
            separator = "; ";
        }
        if self.reasons.is_empty() {
            out.write_str("no reason was given")?;
        }
        Ok(())
    }
}
