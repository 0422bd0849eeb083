//! The messages for a run that was not started or did not go on.

use atoll_ledger::Refused;
use atoll_model::{Call, Reason};
use atoll_policy::Rules;
use atoll_sandbox::SandboxError;

use crate::call::CallError;
use crate::failure::{CallFault, Failure, Hint, Kind};
use crate::supervision::DualControlRule;

/// Returns the rule of who approves leases.
///
/// # Errors
/// When it takes two approvers, and nobody on this host could be the second.
pub fn widening(rules: &Rules) -> Result<DualControlRule, Failure> {
    crate::persons::widening(rules).map_err(|error| {
        Failure::new("nobody here could say the second of two yeses")
            .because(&error)
            .advise("approvers = [\"ada\", 1001], under [approvals]: users of this machine, or their numbers")
            .advise("without `widen = 2` one person says yes to what lasts")
    })
}

/// Explains a refusal or a failure to the person.
pub fn explain(error: CallError, rules: &Rules, asked: &Call) -> Failure {
    match error {
        CallError::Refused(Refused::Denied(refusal)) => {
            recorded("the policy denies this run", &refusal.reasons, asked)
        }
        CallError::Refused(Refused::NeedsApproval(refusal)) => {
            recorded("this run needs a person's yes", &refusal.reasons, asked)
        }
        other => {
            let what = match &other {
                CallError::Sandbox(SandboxError::Lock { .. }) => {
                    "nothing was started: a lock file that a rule of [network] names cannot be used"
                }
                CallError::Sandbox(_)
                | CallError::NeedsApproval(_)
                | CallError::Unanswered(_)
                | CallError::Declined(_)
                | CallError::Refused(_)
                | CallError::Ledger(_)
                | CallError::Run(_)
                | CallError::SharedLabels(_)
                | CallError::Limits(_)
                | CallError::Place(_) => "the run failed",
            };
            let failure = Failure::new(what).because(&other);
            failure.advise(Hint::Call(Box::new(CallFault {
                error: other,
                call: asked.clone(),
                profile: rules.profile().to_owned(),
                limits: rules.limits_of_options(),
            })))
        }
    }
    .about(asked.run(), rules.profile())
}

fn recorded(what: &str, reasons: &[Reason], asked: &Call) -> Failure {
    denied(what, reasons).advise(format!("atoll why {}", asked.run()))
}

/// Words a denial: each reason with its rule, and what would lead to another answer.
#[must_use]
pub fn denied(what: &str, reasons: &[Reason]) -> Failure {
    let lines: Vec<String> = reasons
        .iter()
        .map(|reason| format!("{}: {} ({})", reason.what, reason.why, reason.rule))
        .collect();
    let mut failure = Failure::new(what)
        .because(lines.join("\n"))
        .of_kind(Kind::Denied);
    for (index, reason) in reasons.iter().enumerate() {
        // Several reasons can have one remedy.
        let mut before = reasons.iter().take(index);
        if !before.any(|other| other.how_to_ask == reason.how_to_ask) {
            failure = failure.advise(&reason.how_to_ask);
        }
    }
    failure.reasons = reasons.to_vec();
    failure
}
