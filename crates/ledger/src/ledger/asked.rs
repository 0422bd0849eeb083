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
    /// The person approved.
    Granted,
    /// The person denied, did not answer, or is not there.
    Denied,
}

impl Ledger {
    /// Records a question to a person about an operation that no program waits for, or the answer,
    /// on disk when it returns.
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
