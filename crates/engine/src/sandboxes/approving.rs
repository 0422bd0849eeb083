//! Sandboxes and execs that policies ask about, for the callers of a server: an approver's answer
//! comes with the same request, made again.

use atoll_ledger::{Asked, Refused};
use atoll_model::RunId;
use serde_json::Value;

use super::Engine;
use crate::call::NeedsApproval;
use crate::failure::{Doing, Failure, Kind};
use crate::run::refused::denied;
use crate::{CallError, PlaceError};

/// The reason why a sandbox was not made.
#[derive(Debug)]
pub enum NotMade {
    /// A refusal, or a failure to make it.
    Failed(Failure),
    /// A question of policies about it, which came without an answer. Nothing is recorded.
    NeedsApproval(NeedsApproval),
}

impl NotMade {
    /// Tells why: of a denial each reason, with its rule.
    pub(super) fn of(error: &CallError) -> Self {
        Self::Failed(match error {
            CallError::NeedsApproval(asked) => return Self::NeedsApproval(asked.clone()),
            CallError::Refused(Refused::Denied(refusal) | Refused::NeedsApproval(refusal)) => {
                denied("policies deny this sandbox", &refusal.reasons)
            }
            CallError::Place(PlaceError::Input(error)) => Failure::new("the sandbox was not made")
                .because(error)
                .of_kind(Kind::Denied),
            other => Failure::new("the sandbox was not made").because(other),
        })
    }

    /// Returns the failure for whoever asks nobody.
    #[must_use]
    pub fn failure(self) -> Failure {
        match self {
            Self::Failed(failure) => failure,
            Self::NeedsApproval(asked) => denied("policies ask about this sandbox", &asked.reasons),
        }
    }
}

impl Engine {
    /// Records a step of a question to an approver about a sandbox or an exec, on disk when it
    /// returns.
    ///
    /// # Errors
    /// When it is not recorded.
    pub fn record_question(
        &self,
        run: Option<&RunId>,
        step: Asked,
        body: &Value,
    ) -> Result<(), Failure> {
        let recorded = self.shared.ledger.record_question(run, step, body);
        recorded.map(drop).doing("the question is not recorded")
    }
}
