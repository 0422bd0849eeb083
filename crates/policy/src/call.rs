//! The decision on a call, by what it asks for.

use atoll_model::{Action, Call, Verdict};

use crate::decide::sandbox;
use crate::exec::exec;
use crate::grant::Granted;
use crate::rules::Rules;
use crate::source::Facts;

/// Decides on one call: a grant of exact rights, or a denial with every reason at once. This
/// function is pure: the same arguments give the same verdict.
///
/// `Verdict::Ask` is returned if policies require a person's approval and exactly this call has not
/// been approved ([`agreement`](crate::agreement)); callers must handle it as a denial.
#[must_use]
pub fn decide(rules: &Rules, call: &Call, facts: &Facts<'_>) -> Verdict<Granted> {
    match &call.action {
        Action::Run(_) | Action::CreateSandbox | Action::AssignSandbox | Action::ReplaceNetwork => {
            sandbox(rules, call, facts).map(|grant| Granted::Sandbox(Box::new(grant)))
        }
        Action::Exec(_) => exec(rules, call, facts).map(Granted::Exec),
    }
}
