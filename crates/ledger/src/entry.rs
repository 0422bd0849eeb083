use std::ffi::OsString;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use atoll_model::{
    Attempt, Call, Once, Outcome, Reason, RunId, Served, Verdict, ViolationKind, VolumeMount,
};
use serde_json::{Map, Value, json};

use crate::event::Draft;
use crate::journal::Journal;
use crate::open_runs::Marker;
use crate::seals::NewKey;
use crate::tail::Tail;
use crate::{LedgerError, Position, host_text};

/// A call in the ledger, with the verdict on it, on its way to the disk: preparations without an
/// effect outside may go on meanwhile. If it is dropped without [`Entry::arm`], its run will be
/// found interrupted.
#[derive(Debug)]
pub struct Entry {
    call: Call,
    journal: Arc<Journal>,
    marker: Marker,
    seal: NewKey,
    recorded: Recorded,
    position: Position,
    tail: Tail,
}

/// The proof that a call is on disk and allowed, with its grant: a program can be started with
/// nothing else. Only the ledger makes one, and it ends at [`crate::Ledger::close`].
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
        (marker, seal): (Marker, NewKey),
        recorded: Recorded,
        (position, tail): (Position, Tail),
    ) -> Self {
        Self {
            call,
            journal,
            marker,
            seal,
            recorded,
            position,
            tail,
        }
    }

    /// Waits until the call is on disk and turns an allowed one into the right to carry it out.
    /// Deny and Ask leave the main path here, recorded (`run.denied`) on disk.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn arm<G>(self, verdict: Verdict<G>) -> Result<Armed<G>, Refused> {
        if Recorded::of(&verdict) != self.recorded {
            return Err(Refused::Contradiction(self.run().clone()));
        }
        match verdict {
            Verdict::Allow(grant) => {
                self.seal.sync()?;
                self.journal.make_durable(self.tail.clone())?;
                Ok(Armed {
                    entry: self,
                    grant,
                    used: false,
                })
            }
            Verdict::Ask(reasons) => Err(Refused::NeedsApproval(self.refuse(reasons)?)),
            Verdict::Deny(reasons) => Err(Refused::Denied(self.refuse(reasons)?)),
        }
    }

    /// Returns the run.
    #[must_use]
    pub fn run(&self) -> &RunId {
        self.marker.run()
    }

    /// Returns the position of the event that records the call.
    #[must_use]
    pub fn position(&self) -> &Position {
        &self.position
    }

    fn refuse(self, reasons: Vec<Reason>) -> Result<Box<Refusal>, LedgerError> {
        self.seal.sync()?;
        let run = self.run().clone();
        let body = json!({ "verdict": self.recorded.name(), "reasons": reasons_body(&reasons) });
        let position = self.finish("run.denied", body)?;
        Ok(Box::new(Refusal {
            run,
            reasons,
            position,
        }))
    }

    fn finish(self, kind: &str, body: Value) -> Result<Position, LedgerError> {
        let draft = Draft::sealed(kind, self.marker.run(), &body, Some(&self.seal.key))?;
        let position = self.journal.append_durable(&draft)?;
        // The closing event is on disk; a marker that cannot be removed is
        // compared with the ledger by the next opening, and removed then.
        let _ = self.marker.remove();
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
        // Where there is no room for it, somebody may.
        let _ = self.entry.marker.note_ending();
    }

    /// Returns the run.
    #[must_use]
    pub fn run(&self) -> &RunId {
        self.entry.run()
    }

    /// Returns the position of the event that records the call.
    #[must_use]
    pub fn position(&self) -> &Position {
        self.entry.position()
    }

    pub(crate) fn finish(self, kind: &str, body: Value) -> Result<Position, LedgerError> {
        self.entry.finish(kind, body)
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

/// The kind of verdict that was recorded with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    Allow,
    Ask,
    Deny,
}

impl Recorded {
    pub(crate) fn of<G>(verdict: &Verdict<G>) -> Self {
        match verdict {
            Verdict::Allow(_) => Self::Allow,
            Verdict::Ask(_) => Self::Ask,
            Verdict::Deny(_) => Self::Deny,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

pub(crate) fn opened_body(call: &Call, recorded: Recorded, decision: Value) -> Value {
    let texts = |list: &[OsString]| list.iter().map(host_text).collect::<Vec<_>>();
    let mut body = json!({
        "verdict": recorded.name(),
        "decision": decision,
        "principal": {
            "uid": call.principal.uid,
            "gid": call.principal.gid,
            "name": call.principal.name,
        },
        "command": texts(&call.command),
        "workspace": host_text(&call.workspace),
        "directory": host_text(&call.directory),
        "terminal": call.terminal,
    });
    if let (Some(body), [_, ..]) = (body.as_object_mut(), &*call.options) {
        body.insert("options".to_owned(), json!(texts(&call.options)));
    }
    if let (Some(body), true) = (body.as_object_mut(), call.lives) {
        body.insert("lives".to_owned(), json!(true));
    }
    if let (Some(body), Some(served)) = (body.as_object_mut(), &call.served) {
        body.insert("served".to_owned(), served_body(served));
    }
    if let (Some(body), Some(session)) = (body.as_object_mut(), &call.session) {
        body.insert("session".to_owned(), json!(session.as_str()));
    }
    body
}

/// Describes the caller and the kind of a served sandbox.
#[must_use]
pub fn served_body(served: &Served) -> Value {
    let mut told = json!({
        "sandbox": served.sandbox,
        "tenant": served.tenant,
        "caller": served.caller,
        "template": served.template,
        // A member's name is ASCII; these are any text.
        "metadata": served.metadata.iter().collect::<Vec<_>>(),
        "session": served.session,
        "trace": served.trace,
    });
    if let (Some(told), [_, ..]) = (told.as_object_mut(), &*served.volumes) {
        let volumes: Vec<Value> = served.volumes.iter().map(volume).collect();
        told.insert("volumes".to_owned(), json!(volumes));
    }
    if let (Some(told), Some(once)) = (told.as_object_mut(), &served.once) {
        told.insert("once".to_owned(), once_body(once));
    }
    told
}

/// Describes the name of a request.
pub(crate) fn once_body(once: &Once) -> Value {
    json!({
        "tenant": once.tenant,
        "sandbox": once.sandbox,
        "key": once.key,
        "digest": once.digest,
    })
}

/// Describes a volume that is mounted.
fn volume(mount: &VolumeMount) -> Value {
    json!({
        "id": mount.id,
        "name": mount.name,
        "path": host_text(&mount.inside),
        "access": if mount.read_only { "read" } else { "write" },
    })
}

pub(crate) fn outcome_body(outcome: &Outcome, details: Value) -> Value {
    let usage = &outcome.usage;
    let mut body = json!({
        "ending": ending_body(outcome),
        "status": outcome.ending.exit_status(),
        "usage": {
            "wall_clock_us": whole_number(usage.wall_clock.as_micros()),
            "cpu_us": whole_number(usage.cpu.as_micros()),
            "memory_peak_bytes": whole_number(u128::from(usage.memory_peak_bytes)),
            "memory_is_whole": usage.memory_is_whole,
            "memory_kills": whole_number(u128::from(usage.memory_kills)),
        },
        "enforcement": outcome
            .enforcement
            .iter()
            .map(|held| (held.limit.clone(), Value::String(held.by.clone())))
            .collect::<Map<_, _>>(),
        "details": details,
    });
    if let (Some(body), [_, ..]) = (body.as_object_mut(), &*outcome.attempts) {
        body.insert(
            "attempts".to_owned(),
            attempts_body(&outcome.attempts).into(),
        );
    }
    body
}

/// Returns each violation that was seen, with the system calls that led to it.
fn attempts_body(attempts: &[Attempt]) -> Vec<Value> {
    let mut walls: Vec<ViolationKind> = Vec::new();
    for one in attempts {
        if !walls.contains(&one.wall) {
            walls.push(one.wall);
        }
    }
    let of = |wall: ViolationKind| {
        let at_it = || attempts.iter().filter(|one| one.wall == wall);
        let total = at_it().fold(0, |sum: u128, one| sum + u128::from(one.count));
        let calls = at_it().map(|one| {
            let count = whole_number(u128::from(one.count));
            (one.call.to_owned(), Value::from(count))
        });
        json!({
            "wall": wall.name(),
            "atlas": wall.technique().id,
            "count": whole_number(total),
            "calls": calls.collect::<Map<_, _>>(),
        })
    };
    walls.into_iter().map(of).collect()
}

/// Returns the body of a first attempt's event.
pub(crate) fn attempt_body(attempt: &Attempt) -> Value {
    json!({
        "wall": attempt.wall.name(),
        "atlas": attempt.wall.technique().id,
        "call": attempt.call,
        "pid": attempt.pid,
    })
}

/// Returns the ending as `atoll-model` serializes it, so that both stay the same.
fn ending_body(outcome: &Outcome) -> Value {
    serde_json::to_value(outcome.ending).unwrap_or(Value::Null)
}

pub(crate) fn reasons_body(reasons: &[Reason]) -> Vec<Value> {
    reasons
        .iter()
        .map(|reason| {
            json!({
                "what": reason.what,
                "why": reason.why,
                "rule": reason.rule,
                "how_to_ask": reason.how_to_ask,
            })
        })
        .collect()
}

/// Limits a count to a number that every JSON reader keeps exactly; a larger one (285 years in
/// microseconds) is a defect elsewhere and must not lose the event.
pub(crate) fn whole_number(count: u128) -> u64 {
    u64::try_from(count).map_or(crate::canonical::INTEGER_MAX, |count| {
        count.min(crate::canonical::INTEGER_MAX)
    })
}
