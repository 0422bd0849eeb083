//! Living sandboxes: allowed more for a while, and administered.

use atoll_cedar::Asked;
use atoll_model::{Administer, Asker, Call, ChangeLimits, LimitKey, Reason, Verdict};

use crate::grant::Permission;
use crate::refusal::reason;
use crate::rules::Rules;
use crate::source::Facts;

/// Decides whether a person may allow a run more than its rules do for longer than once: for so
/// many seconds, or for as long as it goes on.
pub(crate) fn escalation(
    rules: &Rules,
    call: &Call,
    facts: &Facts<'_>,
    by: Asker,
    seconds: Option<u32>,
) -> Verdict<Permission> {
    let run = call.run().as_str();
    let seconds = seconds.map(u64::from);
    let asked = Asked::Escalate { run, seconds };
    permitted(administering(
        rules,
        call,
        facts,
        by.uid,
        asked,
        "allowing more for longer",
    ))
}

/// Decides whether the caller may administer a run by this operation.
pub(crate) fn administration(
    rules: &Rules,
    call: &Call,
    facts: &Facts<'_>,
    asked: &Administer,
) -> Verdict<Permission> {
    match asked {
        Administer::ReloadPolicies { .. } => permitted(operation(rules, call, facts, "reload")),
    }
}

/// Decides whether the limits of a served sandbox may be these: no more than the organisation's.
pub(crate) fn limits(
    rules: &Rules,
    call: &Call,
    facts: &Facts<'_>,
    asked: &ChangeLimits,
) -> Verdict<Permission> {
    let mut reasons = rules.refusals.clone();
    let most = &rules.limits;
    let limits = [
        (LimitKey::Memory, asked.memory_bytes, &most.memory_most),
        (LimitKey::Cpu, asked.cpu_millis, &most.cpu_most),
    ];
    for (key, wanted, most) in limits {
        if let (Some(wanted), Some(most)) = (wanted, most)
            && wanted > most.value
        {
            let why = "it is more than the organisation allows";
            let what = format!("limit {key}");
            reasons.push(reason(what, why, &most.origin, "ask for less"));
        }
    }
    reasons.extend(operation(rules, call, facts, "limits"));
    permitted(reasons)
}

fn operation(rules: &Rules, call: &Call, facts: &Facts<'_>, operation: &str) -> Vec<Reason> {
    let run = call.run().as_str();
    let asked = Asked::Administer { run, operation };
    let what = format!("operation {operation}");
    administering(rules, call, facts, call.principal.uid, asked, &what)
}

/// Returns the reasons of policies not to do this, as the person of this user number.
pub(crate) fn administering(
    rules: &Rules,
    call: &Call,
    facts: &Facts<'_>,
    person: u32,
    asked: Asked<'_>,
    what: &str,
) -> Vec<Reason> {
    rules.policies.as_ref().map_or_else(Vec::new, |policies| {
        policies.administering(rules, call, facts, person, asked, what)
    })
}

fn permitted(reasons: Vec<Reason>) -> Verdict<Permission> {
    match reasons.is_empty() {
        true => Verdict::Allow(Permission(())),
        false => Verdict::Deny(reasons),
    }
}
