//! Execs: programs started in a sandbox that has been granted.

use std::path::Path;

use atoll_model::{Call, Reason, Verdict};

use crate::asking::Answer;
use crate::decide::{of_command, of_host};
use crate::environment;
use crate::grant::ExecGrant;
use crate::places::is_plain_absolute;
use crate::programs::search;
use crate::refusal::reason;
use crate::rules::Rules;
use crate::source::Facts;

/// Decides on starting one more program in a sandbox that these rules have granted. The same is
/// asked of the program that a sandbox begins with.
pub(crate) fn exec(rules: &Rules, call: &Call, facts: &Facts<'_>) -> Verdict<ExecGrant> {
    let mut reasons = rules.refusals.clone();
    reasons.extend(of_host(rules, call, facts));
    reasons.extend(of_command(call.command()));
    reasons.extend(of_directory(call.directory()));
    if rules.notes_labels() && facts.labels.is_none() {
        let why = "nobody says which data the session has touched";
        let instead = "start Atoll anew, and report it: this is a defect";
        reasons.push(reason("the exec", why, &"built in", instead));
    }
    let answer = match &rules.policies {
        // What is denied already needs no second opinion.
        Some(policies) if reasons.is_empty() => {
            let network = rules.boundary_network(facts.placeholders);
            let environment = environment::build(rules, call, facts, &network);
            policies.exec(rules, call, facts, search(&environment.variables))
        }
        Some(_) | None => Answer::default(),
    };
    reasons.extend(answer.reasons);
    if !reasons.is_empty() {
        return Verdict::Deny(reasons);
    }
    let unanswered = rules.unanswered(call, answer.asked);
    if !unanswered.is_empty() {
        return Verdict::Ask(unanswered);
    }
    Verdict::Allow(ExecGrant {
        command: call.command().to_vec(),
        directory: call.directory().to_owned(),
        terminal: call.has_terminal(),
        wall_clock: answer.wall_clock,
        wall_clock_by: answer.wall_clock_by,
        policy_digest: rules.digest.clone(),
        notices: answer.notices,
    })
}

/// Returns a refusal of a directory that may be another one than it seems to be.
fn of_directory(directory: &Path) -> Option<Reason> {
    (!is_plain_absolute(directory)).then(|| {
        reason(
            format!("starting in {}", directory.display()),
            "it is not an absolute path free of `.` and `..`",
            &"built in",
            "name a directory of the sandbox from its root on",
        )
    })
}
