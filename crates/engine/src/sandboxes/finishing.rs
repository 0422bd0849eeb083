//! Sandboxes that have done their work: what they have changed is kept, and nothing else.

use atoll_ledger::Durability;
use atoll_store::{load_run, remove_run_if};
use serde_json::json;

use super::{Engine, Sandbox};
use crate::changes::{grouped, read};
use crate::failure::{Doing, Failure};

impl Engine {
    /// Ends a sandbox, and returns whether it has changed anything, which is kept for a decision
    /// then; of one that has not, nothing is kept but in the ledger.
    ///
    /// # Errors
    /// As [`Sandbox::kill`]; also when its changes cannot be read.
    pub fn finish(&self, sandbox: &Sandbox) -> Result<bool, Failure> {
        sandbox.kill()?;
        if sandbox.wanted.is_discarded() {
            return Ok(false);
        }
        let (state, run) = (&self.shared.state, &sandbox.run);
        let record = load_run(state, run).doing("its record cannot be read")?;
        if grouped(&read(state, &record)?).total() > 0 {
            return Ok(true);
        }
        let note = || {
            let body = json!({ "state": record.state });
            let ledger = &self.shared.ledger;
            let noted = ledger.record(Some(run), "run.discarded", body, Durability::Durable);
            noted.map(drop)
        };
        let removed = remove_run_if(state, run, note).doing("its record cannot be removed")?;
        removed.map(|()| false).doing("its end is not recorded")
    }
}
