//! Runs that go on: allowed more for a while, and administered.

use atoll_cedar::Asked;
use atoll_model::{Call, Reason};

use crate::rules::Rules;
use crate::source::Facts;

/// The operation of giving a run other policies.
pub const RELOAD: &str = "reload";

/// Decides whether a person may allow a run more than its rules do for longer than once: for so
/// many seconds, or for as long as it goes on. `person` is the user number of who answers. This
/// function is pure.
///
/// # Errors
/// The reasons against it, each with its rule.
pub fn decide_escalation(
    rules: &Rules,
    call: &Call,
    facts: &Facts<'_>,
    person: u32,
    seconds: Option<u64>,
) -> Result<(), Vec<Reason>> {
    let run = call.run().as_str();
    let asked = Asked::Escalate { run, seconds };
    let what = "allowing more for longer";
    decided(rules, call, facts, person, asked, what)
}

/// Decides whether the caller may administer a run by this operation, as [`RELOAD`]. This function
/// is pure.
///
/// # Errors
/// The reasons against it, each with its rule.
pub fn decide_administration(
    rules: &Rules,
    call: &Call,
    facts: &Facts<'_>,
    operation: &str,
) -> Result<(), Vec<Reason>> {
    let run = call.run().as_str();
    let asked = Asked::Administer { run, operation };
    let what = format!("operation {operation}");
    let person = call.principal.uid;
    decided(rules, call, facts, person, asked, &what)
}

fn decided(
    rules: &Rules,
    call: &Call,
    facts: &Facts<'_>,
    person: u32,
    asked: Asked<'_>,
    what: &str,
) -> Result<(), Vec<Reason>> {
    let reasons = rules.policies.as_ref().map_or_else(Vec::new, |policies| {
        policies.administering(rules, call, facts, person, asked, what)
    });
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(reasons),
    }
}
