//! The one way from a request to its effect.

use std::io;

use atoll_ledger::{Armed, Ledger, LedgerError, Refused, SessionError};
use atoll_model::{Call, Reason, Verdict};
use atoll_policy::{Facts, Granted, Rules, decide};
use atoll_sandbox::{Declined, SandboxError};
use atoll_store::RunError;
use serde_json::Value;

use crate::place_error::PlaceError;
use crate::supervision::ControlError;

/// An error that ended a call early.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Policies ask about it, and its caller asks an approver. Nothing is recorded.
    #[error("policies ask an approver about it")]
    NeedsApproval(NeedsApproval),
    /// Policy refused it; the refusal is recorded.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The sandbox could not be made, or failed.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The ledger could not record the call.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The run's own files could not be made.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The labels that other runs of the session gain cannot be shared.
    #[error("what other runs of its session have touched cannot be told: {0}")]
    SharedLabels(#[from] SessionError),
    /// The sandbox that it is about does not answer.
    #[error(transparent)]
    Unanswered(#[from] ControlError),
    /// The sandbox that it is about cannot do it.
    #[error("{}", .0.why)]
    Declined(Declined),
    /// The limits could not be changed.
    #[error(transparent)]
    Limits(io::Error),
    /// The run's layers could not be made.
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// A call that an approver is asked about first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeedsApproval {
    /// The digest of what would be approved, and nothing else.
    pub agreement: String,
    /// The reasons to ask, each with its rule.
    pub reasons: Vec<Reason>,
}

/// The rules, facts and ledger of a call.
pub(crate) struct Gate<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) facts: Facts<'a>,
    pub(crate) ledger: &'a Ledger,
}

/// The effect of a call, by the rights that are granted for it.
pub(crate) trait Effect: Sized {
    /// The rights that it needs.
    type Grant: TryFrom<Granted>;
    /// Its result.
    type Done;
    /// The reason why it did not happen.
    type Error: From<LedgerError> + From<Refused>;

    /// Looks at the verdict before anything is recorded: an error leaves no trace.
    fn consider(&mut self, _verdict: &Verdict<Self::Grant>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Returns why something else than policies forbids it, if it does.
    fn forbidden(&self) -> Option<Vec<Reason>> {
        None
    }

    /// Describes the basis of the verdict, for the ledger.
    fn told(&self, verdict: &Verdict<Self::Grant>) -> Value;

    /// Prepares it, without an effect outside, while the record goes to disk.
    fn prepare(&mut self, _grant: &Self::Grant) {}

    /// Carries it out, by the right that the ledger has made, and closes its entry.
    fn carry_out(self, armed: Armed<Self::Grant>) -> Result<Self::Done, Self::Error>;
}

/// Carries out a call: decided, recorded and armed before it has an effect.
///
/// # Errors
/// Those of the effect; a refusal by policies is recorded.
pub(crate) fn carry_out<E: Effect>(
    gate: &Gate<'_>,
    call: &Call,
    mut effect: E,
) -> Result<E::Done, E::Error> {
    let verdict = match effect.forbidden() {
        Some(reasons) => Verdict::Deny(reasons),
        None => preview(gate.rules, call, &gate.facts),
    };
    effect.consider(&verdict)?;
    let entry = gate
        .ledger
        .open_call(call, &verdict, effect.told(&verdict))?;
    if let Verdict::Allow(grant) = &verdict {
        effect.prepare(grant);
    }
    let armed = entry.arm(verdict)?;
    effect.carry_out(armed)
}

/// Returns the verdict on a call, without its effect and without a record.
#[must_use]
pub fn preview<G: TryFrom<Granted>>(rules: &Rules, call: &Call, facts: &Facts<'_>) -> Verdict<G> {
    match decide(rules, call, facts) {
        Verdict::Allow(granted) => match G::try_from(granted) {
            Ok(grant) => Verdict::Allow(grant),
            Err(_) => Verdict::Deny(vec![Reason {
                what: "the call".to_owned(),
                why: "the rights are those of another action".to_owned(),
                rule: "built in".to_owned(),
                how_to_ask: "report it: this is a defect".to_owned(),
            }]),
        },
        Verdict::Ask(reasons) => Verdict::Ask(reasons),
        Verdict::Deny(reasons) => Verdict::Deny(reasons),
    }
}
