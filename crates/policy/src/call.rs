//! The decision on a call, by what it asks for.

use atoll_model::{Action, Call, Verdict};

use crate::administration::{administration, escalation, limits};
use crate::allowed::allowing;
use crate::decide::sandbox;
use crate::exec::exec;
use crate::grant::Granted;
use crate::promotion::changing;
use crate::publishing::publishing;
use crate::rules::Rules;
use crate::source::Facts;
use crate::tool::tool;

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
        Action::PublishPort(asked) => publishing(rules, call, facts, asked.port).map(Granted::Port),
        Action::AllowHost(asked) => {
            allowing(rules, call, facts, asked).map(|grant| Granted::Host(Box::new(grant)))
        }
        Action::Escalate(asked) => {
            escalation(rules, call, facts, asked.by, asked.seconds).map(Granted::Permission)
        }
        Action::Administer(asked) => {
            administration(rules, call, facts, asked).map(Granted::Permission)
        }
        Action::Promote(_) | Action::Restore => changing(rules, call, facts).map(Granted::Change),
        Action::CallTool(asked) => {
            tool(rules, call, facts, asked).map(|grant| Granted::Tool(Box::new(grant)))
        }
        Action::ChangeLimits(asked) => limits(rules, call, facts, asked).map(Granted::Permission),
    }
}
