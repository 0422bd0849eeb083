//! Questions to a person that no program waits for.

use atoll_model::RunId;
use serde_json::Value;

use super::Ledger;
use crate::LedgerError;
use crate::Position;
use crate::event::Draft;

/// The step of a question to a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The question was put.
    Put,
    /// They said yes.
    Granted,
    /// They said no, or nothing, or are not there.
    Denied,
}

impl Ledger {
    /// Records what a person was asked before something is done that no program waits for, or
    /// what they said, on disk when it returns.
    ///
    /// # Errors
    /// [`LedgerError`]; the event is not in the ledger then.
    pub fn record_question(
        &self,
        run: Option<&RunId>,
        step: Asked,
        body: &Value,
    ) -> Result<Position, LedgerError> {
        let kind = match step {
            Asked::Put => "approval.asked",
            Asked::Granted => "approval.granted",
            Asked::Denied => "approval.denied",
        };
        self.journal.append_durable(&Draft::new(kind, run, body)?)
    }
}
