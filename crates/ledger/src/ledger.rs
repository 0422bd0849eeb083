mod asked;
mod of_sessions;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use atoll_model::{Action, Attempt, Call, Ending, Outcome, RunId, SessionId, ToolEnd, Verdict};
use serde_json::{Value, json};

use crate::bodies::{Kinds, Recorded, attempt_body, opened_body, outcome_body};
use crate::canonical::EventBody;
use crate::checkpoint::rotation::{replace_lost, rotate};
use crate::checkpoint::{self, SigningError};
use crate::entry::Begun;
use crate::event::seal::{SealFault, SealKey, sealed_members};
use crate::event::{CLOSING_KINDS, Draft};
use crate::holds::{Evidence, ShredError};
use crate::journal::{Clock, Journal};
use crate::open_runs::{OpenCalls, OpenRuns};
use crate::read::{Events, Filter};
use crate::recovery::{InterruptedRun, RunFiles, recover};
use crate::seals::{self, ShredWhy};
use crate::settled::note_settled;
use crate::shredding::{self, Shredded};
use crate::verify::verify;
use crate::verify_report::{Verified, VerifyError};
pub use asked::Asked;

use crate::{
    Against, Armed, Checkpoint, ClosedExec, Durability, Entry, LedgerError, Position, StateDir,
    VerifierKey,
};

/// The most keys of runs that a process has at hand.
const KEYS_MAX: usize = 4_096;

/// The append-only log of every call, verdict and effect.
///
/// One value may be used by many threads, and many processes may have the same ledger open: appends
/// are ordered by a lock, and waits for the disk are shared.
#[derive(Debug)]
pub struct Ledger {
    journal: Arc<Journal>,
    open_runs: Arc<OpenRuns>,
    interrupted: Vec<InterruptedRun>,
    /// The state directory, which holds the keys that seal the sensitive members of runs' events.
    state: StateDir,
    /// The keys of runs that were used before.
    seals: Mutex<HashMap<RunId, Arc<SealKey>>>,
}

impl Ledger {
    /// Opens the ledger for appending, makes it if missing, and records as interrupted every run
    /// whose Atoll has ended without closing it; `files` settles the other files of those runs.
    ///
    /// # Errors
    /// [`LedgerError`] when its files cannot be opened or written.
    pub fn open(state: &StateDir, clock: Clock, files: &dyn RunFiles) -> Result<Self, LedgerError> {
        Self::open_journal(state, Journal::open(state, clock)?, files)
    }

    /// Opens the ledger that this journal writes; `files` settles the files of runs that are found
    /// interrupted.
    pub(crate) fn open_journal(
        state: &StateDir,
        journal: Journal,
        files: &dyn RunFiles,
    ) -> Result<Self, LedgerError> {
        let open_runs = OpenRuns::open(state)?;
        let interrupted = recover(&journal, &open_runs, state, files)?;
        // Where that cannot be, it is tried again by the next one, and nobody is shown any of
        // it meanwhile; a key file that cannot be used stops no ledger.
        let _ = shredding::finish_unfinished(state, &journal);
        Ok(Self {
            journal: Arc::new(journal),
            open_runs: Arc::new(open_runs),
            interrupted,
            state: state.again()?,
            seals: Mutex::default(),
        })
    }

    /// Returns the runs that this opening found interrupted, and recorded so.
    #[must_use]
    pub fn interrupted(&self) -> &[InterruptedRun] {
        &self.interrupted
    }

    /// Returns the losses that appends of this process found, recorded, and went on without: a line
    /// each, for people.
    #[must_use]
    pub fn losses(&self) -> Vec<String> {
        self.journal.losses()
    }

    /// Records a call and its verdict (`run.opened`, `exec.opened`, …); it is on disk once the entry
    /// is armed, and nothing may have an effect before. From here to [`Ledger::close`] a run counts
    /// as open: if this process ends before, the next one finds it interrupted.
    ///
    /// `decision` holds the subject and the rules of the decision: the profile, the digest of the
    /// policy, the limits.
    ///
    /// # Errors
    /// [`LedgerError`]; nothing may be done then.
    pub fn open_call<G>(
        &self,
        call: &Call,
        verdict: &Verdict<G>,
        decision: Value,
    ) -> Result<Entry, LedgerError> {
        let recorded = Recorded::of(verdict);
        let body = opened_body(call, recorded, decision);
        if let Action::Run(_) | Action::CreateSandbox = call.action {
            return self.open_run(call, recorded, &body);
        }
        let kinds = Kinds::of(&call.action);
        let is_sealed = !sealed_members(kinds.opened).is_empty();
        if is_sealed {
            // A ledger that is not there yet begins before its first key: one that has keys alone
            // was removed.
            self.journal.begin()?;
        }
        let seal = is_sealed.then(|| self.seal_of(call.run(), kinds.opened));
        let seal = seal.transpose()?;
        let opened = match kinds.opens_denied || recorded == Recorded::Allow {
            true => {
                let draft = Draft::sealed(kinds.opened, call.run(), &body, seal.as_deref())?;
                Ok(self.journal.append(&draft)?)
            }
            false => Err(body),
        };
        let journal = Arc::clone(&self.journal);
        Ok(Entry::new(
            call.clone(),
            journal,
            seal,
            None,
            recorded,
            opened,
        ))
    }

    fn open_run(
        &self,
        call: &Call,
        recorded: Recorded,
        body: &Value,
    ) -> Result<Entry, LedgerError> {
        let run = call.run();
        self.journal.begin()?;
        let marker = self.open_runs.mark(run, self.journal.scan_start()?)?;
        let sealed = seals::add(&self.state, run, call.session.as_ref()).and_then(|seal| {
            let draft = Draft::sealed("run.opened", run, body, Some(&seal.key))?;
            Ok((self.journal.append(&draft)?, seal))
        });
        match sealed {
            Ok((opened, seal)) => {
                let key = Some(Arc::clone(&seal.key));
                remember(&mut self.seals(), run, &seal.key);
                let journal = Arc::clone(&self.journal);
                let begun = Some(Begun { marker, seal });
                let opened = Ok(opened);
                Ok(Entry::new(
                    call.clone(),
                    journal,
                    key,
                    begun,
                    recorded,
                    opened,
                ))
            }
            Err(error) => {
                // Nothing was acknowledged, so the run never was; a marker that
                // stays behind is found to be so by the next opening.
                let _ = marker.remove();
                Err(error)
            }
        }
    }

    /// Records the end of an exec (`exec.closed`), or why it was not started. It is on disk once the
    /// returned value is [settled](ClosedExec::settle).
    ///
    /// # Errors
    /// [`LedgerError`]; the exec counts as ended with its run then.
    pub fn close_exec<G>(
        &self,
        armed: Armed<G>,
        ending: Result<Ending, &str>,
        wall_clock: Duration,
    ) -> Result<ClosedExec, LedgerError> {
        armed.close_exec(ending, wall_clock)
    }

    /// Marks a session of calls as this process's, before its first one: calls that it leaves open
    /// when it goes are recorded as unknown.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn open_calls(&self, session: &RunId) -> Result<OpenCalls, LedgerError> {
        let marker = self.open_runs.mark(session, self.journal.scan_start()?)?;
        marker.note_calls()?;
        Ok(OpenCalls(Some(marker)))
    }

    /// Records the end of a tool's call (`tool.closed`). It is on disk once the returned value is
    /// [settled](ClosedExec::settle).
    ///
    /// # Errors
    /// [`LedgerError`]; the end of the call is unknown then.
    pub fn close_tool<G>(
        &self,
        armed: Armed<G>,
        end: ToolEnd,
        wall_clock: Duration,
        details: Value,
    ) -> Result<ClosedExec, LedgerError> {
        armed.close_tool(end, wall_clock, details)
    }

    /// Records an event: of a run, or of Atoll itself. The types that this crate writes by itself
    /// (`run.opened` and the like) are refused.
    ///
    /// # Errors
    /// [`LedgerError`]; the event is not in the ledger then.
    pub fn record(
        &self,
        run: Option<&RunId>,
        kind: &str,
        body: Value,
        durability: Durability,
    ) -> Result<Position, LedgerError> {
        if crate::event::is_reserved(kind) {
            return Err(LedgerError::Kind {
                kind: kind.to_owned(),
                why: "the ledger itself writes events of this type",
            });
        }
        let sealed_of = run.filter(|_| !sealed_members(kind).is_empty());
        if sealed_of.is_some() {
            // As for calls: a ledger begins before its first key.
            self.journal.begin()?;
        }
        let key = sealed_of.map(|run| self.seal_of(run, kind)).transpose()?;
        let draft = match sealed_of {
            Some(run) => Draft::sealed(kind, run, &body, key.as_deref())?,
            None => Draft::new(kind, run, &body)?,
        };
        match durability {
            Durability::Durable => self.journal.append_durable(&draft),
            Durability::Buffered => self.journal.append_buffered(&draft),
        }
    }

    /// Records the first attempt of each kind of violation in a run (`attempt.seen`), on disk when
    /// it returns. `run.closed` has their numbers.
    ///
    /// # Errors
    /// [`LedgerError`]; the event is not in the ledger then.
    pub fn record_attempt(&self, run: &RunId, attempt: &Attempt) -> Result<Position, LedgerError> {
        let body = attempt_body(attempt);
        self.journal
            .append_durable(&Draft::new("attempt.seen", Some(run), &body)?)
    }

    /// Records the events of a run's flows (`flow.opened`, `flow.closed`, `flow.refused`) and of
    /// its ports (`port.published`, `port.refused`), in order: types and bodies.
    ///
    /// # Errors
    /// [`LedgerError`]; the last of the events is not in the ledger then.
    pub fn record_flows(
        &self,
        run: &RunId,
        events: Vec<(&'static str, EventBody)>,
        durability: Durability,
    ) -> Result<(), LedgerError> {
        let is_sealed = |(kind, body): &(&str, EventBody)| body.has_any(sealed_members(kind));
        let has_sealed = events.iter().any(is_sealed);
        let key = has_sealed
            .then(|| self.seal_of(run, "flow.opened"))
            .transpose()?;
        let drafts = events
            .into_iter()
            .map(|(kind, body)| Draft::with_body(kind, run, body, key.as_deref()))
            .collect::<Result<Vec<_>, _>>()?;
        let tail = self.journal.append_all(&drafts)?;
        match durability {
            Durability::Durable => self.journal.make_durable(tail),
            Durability::Buffered => Ok(()),
        }
    }

    fn seals(&self) -> MutexGuard<'_, HashMap<RunId, Arc<SealKey>>> {
        self.seals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the key that seals the sensitive members of a run's events of this type. A run
    /// without one (of an earlier release, or lost) gets one; in place of a destroyed one a key is
    /// used that is not kept.
    fn seal_of(&self, run: &RunId, kind: &str) -> Result<Arc<SealKey>, LedgerError> {
        // Held until the key is known, so that two threads do not look for one at once.
        let mut known = self.seals();
        if let Some(key) = known.get(run) {
            return Ok(Arc::clone(key));
        }
        let kept = match seals::find(&self.state, run)? {
            Some(key) => key.map(Arc::new),
            None => {
                let session = match kind.starts_with("tool.") {
                    // It is of no session of runs, and the ledger is long.
                    true => None,
                    false => crate::sessions::of_run(&self.state, run)?,
                };
                seals::find_or_add(&self.state, run, session.as_ref())?
            }
        };
        let unkept = || SealKey::generate().map(Arc::new);
        let key = kept.or_else(unkept);
        let key = key.ok_or_else(|| LedgerError::Seal(SealFault.to_string()))?;
        remember(&mut known, run, &key);
        Ok(key)
    }

    /// Records the end of a run (`run.closed`), on disk when it returns.
    ///
    /// # Errors
    /// [`LedgerError`]; the run will be found interrupted then.
    pub fn close<G>(
        &self,
        armed: Armed<G>,
        outcome: &Outcome,
        details: Value,
    ) -> Result<Position, LedgerError> {
        armed.finish("run.closed", &outcome_body(outcome, details))
    }

    /// Records that Atoll itself failed after arming (`run.failed`): the operation and the cause.
    /// On disk when it returns.
    ///
    /// # Errors
    /// [`LedgerError`]; the run will be found interrupted then.
    pub fn close_failed<G>(
        &self,
        armed: Armed<G>,
        what: &str,
        why: &str,
    ) -> Result<Position, LedgerError> {
        armed.finish("run.failed", &json!({ "what": what, "why": why }))
    }

    /// Destroys the keys of the sealed content of a run, or of all runs of a session or a tenant. Runs
    /// under a hold, or that go on, are left.
    ///
    /// # Errors
    /// [`ShredError`]; what was destroyed before is.
    pub fn shred(&self, what: &Evidence) -> Result<Shredded, ShredError> {
        shredding::shred_evidence(&self.state, &self.journal, what)
    }

    /// Shreds all runs that began before this time. The names of runs have two digits of a year:
    /// none began before 2000, and a run whose name is not a time is left.
    ///
    /// # Errors
    /// As those of [`Ledger::shred`].
    pub fn shred_older(&self, before: SystemTime) -> Result<Shredded, ShredError> {
        let Ok(before) = before.duration_since(SystemTime::UNIX_EPOCH) else {
            return Ok(Shredded::default());
        };
        let before = before.as_secs();
        let is_meant = |run: &RunId, _: Option<&SessionId>| {
            run.began_seconds().is_some_and(|began| began < before)
        };
        shredding::shred(&self.state, &self.journal, ShredWhy::Age, is_meant)
    }

    /// Sets a hold, or releases it: what is under one is neither shredded nor swept.
    ///
    /// # Errors
    /// [`ShredError`]; it is as it was then. [`ShredError::Gone`] for a run that is shredded.
    pub fn hold(&self, what: &Evidence, on: bool) -> Result<(), ShredError> {
        shredding::hold(&self.state, &self.journal, what, on)
    }

    /// Reads the whole ledger and checks every hash, the chain, the canonical form, and that its
    /// end is the acknowledged one. Needs no right to write, and little memory.
    ///
    /// # Errors
    /// [`VerifyError::Damaged`] with all that was found, or
    /// [`VerifyError::Unreadable`].
    pub fn verify(state: &StateDir) -> Result<Verified, VerifyError> {
        verify(state, &Against::default())
    }

    /// Verifies the ledger as [`Ledger::verify`] does, and compares it with what is known of it
    /// from elsewhere.
    ///
    /// # Errors
    /// As those of [`Ledger::verify`].
    pub fn verify_against(state: &StateDir, against: &Against) -> Result<Verified, VerifyError> {
        verify(state, against)
    }

    /// Signs the size and root of the part of the ledger that is on disk (C2SP tlog-checkpoint),
    /// and replaces the newest checkpoint; without new events, returns that one. The key is made if
    /// there is none.
    ///
    /// # Errors
    /// [`SigningError`]; the checkpoint before is the newest still, and events are as they
    /// were.
    pub fn checkpoint(&self, state: &StateDir) -> Result<Checkpoint, SigningError> {
        let made = checkpoint::make(state, &self.journal)?;
        // It only saves time.
        let _ = note_settled(&self.journal, &self.open_runs);
        Ok(made)
    }

    /// Replaces the key that signs checkpoints, and records the hand-over (`key.rotated`); one
    /// checkpoint is signed by both. `verify` follows it from either key.
    ///
    /// # Errors
    /// [`SigningError`]; where the hand-over is recorded already, the next checkpoint
    /// finishes it.
    pub fn rotate_key(&self, state: &StateDir) -> Result<VerifierKey, SigningError> {
        rotate(state, &self.journal)
    }

    /// Begins to sign with a new key after the old one was lost, and records that for ever
    /// (`key.lost`). Earlier signatures are not compared with the ledger any more.
    ///
    /// # Errors
    /// [`SigningError`], among them that no key was lost.
    pub fn replace_lost_key(&self, state: &StateDir) -> Result<VerifierKey, SigningError> {
        replace_lost(state, &self.journal)
    }

    /// Returns the key that verifies the ledger's checkpoints. It is made if there is none.
    ///
    /// # Errors
    /// [`SigningError`].
    pub fn key(state: &StateDir) -> Result<VerifierKey, SigningError> {
        checkpoint::open_key(state)
    }

    /// Returns all events that pass the filter, oldest first.
    ///
    /// # Errors
    /// [`LedgerError`] when the ledger cannot be opened for reading.
    pub fn events(state: &StateDir, filter: Filter) -> Result<Events, LedgerError> {
        Events::from_start(state, filter)
    }

    /// Returns those of the last `count` events that pass. After its end the iterator can be polled
    /// again, and goes on with events that were appended meanwhile: so callers follow the ledger. A
    /// session and a principal are known by the openings of runs among these events.
    ///
    /// # Errors
    /// [`LedgerError`] when the ledger cannot be opened for reading.
    pub fn tail(state: &StateDir, count: usize, filter: Filter) -> Result<Events, LedgerError> {
        Events::from_last(state, count, filter)
    }

    /// Returns whether the end of a run is recorded: none of its processes is alive then.
    ///
    /// # Errors
    /// [`LedgerError`] when the ledger cannot be read to where that would be.
    pub fn is_over(state: &StateDir, run: &RunId) -> Result<bool, LedgerError> {
        for event in Self::show(state, run)? {
            if CLOSING_KINDS.contains(&event?.kind.as_str()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the events of one run, oldest first.
    ///
    /// # Errors
    /// [`LedgerError`] when the ledger cannot be opened for reading.
    pub fn show(state: &StateDir, run: &RunId) -> Result<Events, LedgerError> {
        let filter = Filter {
            run: Some(run.clone()),
            ..Filter::default()
        };
        Events::from_start(state, filter)
    }
}

/// Has a key at hand. They are all looked for again once there are too many: a run that has ended
/// needs none.
fn remember(keys: &mut HashMap<RunId, Arc<SealKey>>, run: &RunId, key: &Arc<SealKey>) {
    if keys.len() >= KEYS_MAX {
        keys.clear();
    }
    keys.insert(run.clone(), Arc::clone(key));
}
