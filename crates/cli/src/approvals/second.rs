//! The texts of dual control: shown where two persons are needed and one has approved.

use atoll_engine::configuration::user_name;
use atoll_engine::printable::printable;
use atoll_engine::supervision::DualControlRule;
use atoll_model::RunId;
use atoll_model::network::{ApprovalScope, PublishedPort, Scope};
use atoll_sandbox::{Agreed, PortAgreed, Second, SecondApproval, Settled, SettledOf};

use super::line;

/// The most approvers that are named; the rest are counted.
const NAMED_MAX: usize = 4;

/// Returns a user's name, or their number.
pub(crate) fn named(uid: u32) -> String {
    printable(user_name(uid).as_bytes())
}

/// Returns the approvers as a list: `ada or ben`.
pub(crate) fn persons(second: &Second) -> String {
    let further = second.persons.len().saturating_sub(NAMED_MAX);
    let mut names: Vec<String> = second
        .persons
        .iter()
        .take(NAMED_MAX)
        .copied()
        .map(named)
        .collect();
    if further > 0 {
        names.push(format!("{further} more"));
    }
    match names.split_last() {
        None => "nobody".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
    }
}

/// Returns the names of those who can give the second approval to what the run's owner has
/// approved, under dual control.
pub(crate) fn second_of(widening: &DualControlRule) -> Option<String> {
    match widening {
        DualControlRule::OnePerson | DualControlRule::Unheard {} => None,
        DualControlRule::TwoPersons { owner, approvers } => {
            let others = approvers.iter().filter(|one| *one != owner);
            Some(persons(&Second {
                owner: *owner,
                persons: others.copied().collect(),
            }))
        }
    }
}

/// Returns the command by which a second person gives the same answer to a question as the first.
pub(crate) fn same(
    run: &RunId,
    approval: u32,
    (scope, breadth): (Scope, ApprovalScope),
    owner: u32,
) -> String {
    let scope = match scope {
        Scope::Once => String::new(),
        Scope::Run => " --run".to_owned(),
        Scope::Seconds { seconds } => format!(" --for {seconds}s"),
    };
    let breadth = match breadth {
        ApprovalScope::Same => "",
        ApprovalScope::Rule => " --whole-rule",
    };
    let owner = named(owner);
    format!("atoll approvals grant {run}.{approval}{scope}{breadth} --of {owner}")
}

/// Returns the command by which a second person agrees to publish a port.
pub(crate) fn same_port(run: &RunId, port: PublishedPort, owner: u32) -> String {
    let PublishedPort { outside, inside } = port;
    let to = match outside == inside {
        true => String::new(),
        false => format!(" --to {outside}"),
    };
    format!("atoll publish {run} {inside}{to} --of {}", named(owner))
}

/// Returns the line that lists a port which one person has approved.
pub(crate) fn waiting_port(run: &RunId, agreed: &PortAgreed) -> String {
    let PortAgreed {
        port,
        by,
        second,
        left_seconds,
    } = agreed;
    format!(
        "{run}  port {} waits for a second person ({left_seconds} s left): {} says yes, {}: {}\n",
        port.inside,
        named(by.uid),
        persons(second),
        same_port(run, *port, second.owner)
    )
}

/// Returns the message about a second approval for the run's own terminal.
pub(crate) fn told(run: &RunId, of_two: &SecondApproval) -> Option<String> {
    let (by, second, left, what, how) = match of_two {
        SecondApproval::Unheard => {
            return Some(
                "atoll: no second person can be heard in this run: something else on this host has \
                 the name by which they speak to it. What takes two persons is denied; start the \
                 run anew"
                    .to_owned(),
            );
        }
        SecondApproval::Question(pending) => {
            let (agreed, second) = (pending.agreed.as_ref()?, pending.second.as_ref()?);
            let how = same(
                run,
                pending.approval,
                (agreed.scope, agreed.breadth),
                second.owner,
            );
            let what = line(&pending.call);
            (agreed.by, second, pending.left_seconds, what, how)
        }
        SecondApproval::Settled(settled) => return Some(answered(settled)),
        SecondApproval::Port(agreed) => {
            let how = same_port(run, agreed.port, agreed.second.owner);
            let what = format!("port {}", agreed.port.inside);
            (agreed.by, &agreed.second, agreed.left_seconds, what, how)
        }
    };
    Some(format!(
        "atoll: {} agreed; it waits {left} s for a second person, {}: `{how}` ({what})",
        named(by.uid),
        persons(second)
    ))
}

/// Describes a second person's answer, and its effect.
fn answered(settled: &Settled) -> String {
    let (by, first) = (named(settled.by.uid), named(settled.first.uid));
    let (says, what, comes) = match &settled.of {
        SettledOf::Question {
            approval,
            call,
            granted: Some((scope, breadth)),
        } => {
            let said = Agreed {
                scope: *scope,
                breadth: *breadth,
                by: settled.by,
            };
            let comes = format!("it is granted {said} ({})", line(call));
            ("yes", format!("question .{approval}"), comes)
        }
        SettledOf::Question {
            approval,
            call,
            granted: None,
        } => {
            let comes = format!("it is denied ({})", line(call));
            ("no", format!("question .{approval}"), comes)
        }
        SettledOf::Port {
            port,
            refused: None,
        } => {
            let comes = format!("it is at http://127.0.0.1:{}", port.outside);
            ("yes", format!("port {}", port.inside), comes)
        }
        SettledOf::Port {
            port,
            refused: Some(why),
        } => {
            let comes = format!("it is not published: {}", printable(why.as_bytes()));
            ("yes", format!("port {}", port.inside), comes)
        }
    };
    format!("atoll: {by} said {says} to {what}, after a yes of {first}: {comes}")
}
