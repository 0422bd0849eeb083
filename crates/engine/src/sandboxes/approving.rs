//! Sandboxes and execs that policies ask about, for the callers of a server: an approver's answer
//! comes with the same request, made again.

use atoll_ledger::{Asked, Refused};
use atoll_model::{Call, Reason, RunId, Verdict};
use atoll_policy::{Facts, PriorAnswer, Rules, agreement, decide};
use serde_json::Value;

use super::{CreateSandbox, Engine, Workspace};
use crate::CallError;
use crate::failure::{Doing, Failure};
use crate::run::refused::denied;

/// A sandbox or an exec that an approver is asked about first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeedsApproval {
    /// The digest of what would be approved, and nothing else.
    pub agreement: String,
    /// The reasons to ask, each with its rule.
    pub reasons: Vec<Reason>,
}

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
            CallError::Refused(Refused::Denied(refusal) | Refused::NeedsApproval(refusal)) => {
                denied("policies deny this sandbox", &refusal.reasons)
            }
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

/// Takes the answer about a served sandbox into its rules; returns what to ask where there is none
/// yet.
pub(super) fn asked(
    wanted: &CreateSandbox,
    rules: &mut Rules,
    call: &Call,
    facts: &Facts<'_>,
) -> Option<NeedsApproval> {
    rules.take_answer(wanted.answer.clone());
    let is_open = wanted.answer == PriorAnswer::Nobody;
    let is_served = matches!(wanted.workspace, Workspace::Own(_));
    if !(is_open && is_served && rules.ask_about_runs()) {
        return None;
    }
    match decide(rules, call, facts) {
        Verdict::Ask(reasons) => Some(NeedsApproval {
            agreement: agreement(rules, call, &reasons),
            reasons,
        }),
        Verdict::Allow(_) | Verdict::Deny(_) => None,
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
