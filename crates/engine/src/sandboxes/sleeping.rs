//! Sandboxes that stand still for as long as a caller wants, with all that they hold in memory.

use std::sync::atomic::Ordering;

use atoll_ledger::Durability;
use atoll_model::ServedExec;
use serde_json::json;

use super::Sandbox;
use super::home::settle;
use crate::control::{refused, unanswered};
use crate::failure::{Doing, Failure};
use crate::supervision::Frozen;

/// A sandbox whose processes have all stopped, until this is dropped.
#[derive(Debug)]
pub struct Still(Frozen);

impl Still {
    /// Returns whether no thread of it has run since: a program's own timer can have continued it.
    #[must_use]
    pub fn has_held(&self) -> bool {
        self.0.has_held()
    }
}

impl Sandbox {
    /// Stops all of its processes, and records that. From then on its home, and root's changes of the
    /// system, stay where they lie, however it ends.
    ///
    /// # Errors
    /// When it has ended, cannot stop, or its home lies where it cannot stay; it goes on then.
    pub fn stand_still(&self, by: &ServedExec) -> Result<Still, Failure> {
        // Before anything else: it can end at any time.
        if !self.home.stay() {
            return Err(Failure::new("its home lies where it cannot stay"));
        }
        let still = self.frozen().and_then(|still| {
            self.note_stillness("run.paused", by)?;
            Ok(still)
        });
        still.inspect_err(|_| self.home.stay_no_more())
    }

    fn frozen(&self) -> Result<Still, Failure> {
        let frozen = self.owner.freeze();
        let frozen = frozen.map_err(|error| unanswered(&self.run, &error))?;
        let frozen = frozen.map_err(|declined| refused(&self.run, declined))?;
        self.is_still.store(true, Ordering::SeqCst);
        Ok(Still(frozen))
    }

    /// Returns whether its processes stand still for a caller.
    #[must_use]
    pub fn is_still(&self) -> bool {
        self.is_still.load(Ordering::SeqCst)
    }

    /// Records that its processes are to go on, as they do once the value is dropped by which they stand
    /// still.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub fn go_on(&self, by: &ServedExec) -> Result<(), Failure> {
        self.note_stillness("run.resumed", by)
    }

    /// Has its home, and root's changes of the system, be gone at its end again.
    pub fn stay_no_more(&self) {
        self.is_still.store(false, Ordering::SeqCst);
        self.home.stay_no_more();
    }

    /// Ends it where it stands still; its home, and root's changes of the system, stay, on disk before
    /// this returns.
    ///
    /// # Errors
    /// When it did not come to its end, or the disk fails.
    pub fn end_still(&self) -> Result<(), Failure> {
        self.kill().and_then(|()| self.settle_home())
    }

    /// Has the kernel write its home to disk, and all else on that file system.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn settle_home(&self) -> Result<(), Failure> {
        settle(&self.home_path())
    }

    fn note_stillness(&self, kind: &str, by: &ServedExec) -> Result<(), Failure> {
        let body = json!({ "caller": by.caller, "trace": by.trace });
        let (ledger, run) = (&self.shared.ledger, Some(&self.run));
        let recorded = ledger.record(run, kind, body, Durability::Durable);
        recorded.map(drop).doing("that is not recorded")
    }
}
