//! The credentials injected into requests, how often and where, for a person: the same at a run's
//! end and in its story.

use std::collections::{BTreeMap, HashMap};

use atoll_engine::printable::printable;
use atoll_ledger::Event;
use atoll_model::network::{FlowKind, FlowLogin, HostPart};
use atoll_policy::Credential;
use serde_json::Value;

use crate::reached::signed;
use crate::render;

/// The most hosts a line names.
const HOSTS_SHOWN_MAX: usize = 4;

/// The number of times something was done with a credential at a host.
type Counts = BTreeMap<(String, String), u64>;

/// Formats a line for each credential, of how often it was injected into requests to each host, and
/// one for each host that did not accept it.
pub(crate) fn lines(used: &Counts, unauthorised: &Counts) -> Vec<String> {
    let mut lines = put_in(used);
    for ((name, host), times) in unauthorised {
        let Some(all) = used.get(&(name.clone(), host.clone())) else {
            continue;
        };
        let of = match times == all {
            true => render::counted(*all, "request", "requests"),
            false => format!("{} of {all} requests", render::grouped(*times)),
        };
        let line = format!(
            "credential {name}: {host} answered {of} with 401, so it was not accepted: it may have \
             expired, or be of another place or account"
        );
        lines.push(printable(line.as_bytes()));
    }
    lines
}

/// Returns the credentials that a run went without for hosts that answered 401 and got none
/// injected.
pub(crate) fn missed(absent: &[&Credential], used: &Counts, unauthorised: &Counts) -> Vec<String> {
    let mut lines = Vec::new();
    let nameless = unauthorised.iter().filter(|((name, _), _)| name.is_empty());
    for ((_, host), times) in nameless {
        let is_used = used.keys().any(|(_, at)| at == host);
        let Ok(part) = host.parse::<HostPart>() else {
            continue;
        };
        let is_for = |one: &&&Credential| one.binding.to.iter().any(|to| to.is_for(&part));
        let meant: Vec<String> = absent
            .iter()
            .filter(is_for)
            .map(|one| format!("{} ({} outside)", one.binding.name, one.absence()))
            .collect();
        if is_used || meant.is_empty() {
            continue;
        }
        let times = match times {
            1 => "once".to_owned(),
            times => format!("{} times", render::grouped(*times)),
        };
        let line = format!(
            "credentials: {host} answered {times} with 401, and the run went without what is for \
             it: {}",
            meant.join(", ")
        );
        lines.push(printable(line.as_bytes()));
    }
    lines
}

/// Formats a line for each credential whose placeholder was masked in requests.
pub(crate) fn masked(all: &Counts) -> Vec<String> {
    let line = |((name, host), times): (&(String, String), &u64)| {
        let requests = render::counted(*times, "request", "requests");
        let line = format!(
            "credential {name}: masked in {requests} to {host}, whose bodies told of what stands \
             for it"
        );
        printable(line.as_bytes())
    };
    all.iter().map(line).collect()
}

fn put_in(used: &Counts) -> Vec<String> {
    let mut of_each: BTreeMap<&str, Vec<(&str, u64)>> = BTreeMap::new();
    for ((name, host), times) in used {
        of_each.entry(name).or_default().push((host, *times));
    }
    let line = |(name, mut hosts): (&str, Vec<(&str, u64)>)| {
        hosts.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
        let all = hosts.iter().map(|(_, times)| times).sum();
        let shown = hosts.iter().take(HOSTS_SHOWN_MAX).map(|(host, _)| *host);
        let shown = shown.collect::<Vec<_>>().join(", ");
        let further = match hosts.len().saturating_sub(HOSTS_SHOWN_MAX) {
            0 => String::new(),
            further => format!(
                " and {}",
                render::counted(further as u64, "other", "others")
            ),
        };
        let requests = render::counted(all, "request", "requests");
        let line = format!("credential {name}: put into {requests} to {shown}{further}");
        printable(line.as_bytes())
    };
    of_each.into_iter().map(line).collect()
}

/// Formats a line for each credential whose tokens were revoked.
pub(crate) fn taken_back(all: &BTreeMap<String, u64>) -> Vec<String> {
    let line = |(name, times): (&String, &u64)| {
        let tokens = render::counted(*times, "token", "tokens");
        printable(format!("credential {name}: {tokens} taken back").as_bytes())
    };
    all.iter().map(line).collect()
}

/// Summarises a run's use of credentials from its ledger events: those injected into answered
/// requests, signatures with SSH keys, and revoked tokens.
pub(crate) fn of_events(events: &[Event]) -> Vec<String> {
    let mut opened: HashMap<u64, &Value> = HashMap::new();
    let (mut used, mut unauthorised) = (BTreeMap::new(), BTreeMap::new());
    let mut signatures: Vec<(FlowKind, String, u64)> = Vec::new();
    let (mut returned, mut without) = (BTreeMap::new(), BTreeMap::new());
    for event in events {
        let id = event.body.get("flow").and_then(Value::as_u64);
        let Some(id) = id else { continue };
        if event.kind == "flow.opened" {
            opened.insert(id, &event.body);
            continue;
        }
        let flow = opened.remove(&id).filter(|_| event.kind == "flow.closed");
        let Some(flow) = flow else { continue };
        let said = |member: &str| flow.get(member).and_then(Value::as_str).unwrap_or_default();
        let has_failed = event.body.get("failure").is_some();
        let is_unreached = event.body.get("unreached") == Some(&Value::Bool(true));
        match said("kind") {
            "fetch" => continue,
            "revocation" => {
                if !has_failed {
                    *returned.entry(said("credential").to_owned()).or_default() += 1;
                }
                continue;
            }
            _ => {}
        }
        let signature = match said("kind") {
            "ssh-login" => Some(FlowKind::SshLogin),
            "commit-signature" => Some(FlowKind::CommitSignature),
            "postgres" => Some(FlowKind::Postgres),
            _ => None,
        };
        let login = match (flow.get("user"), flow.get("database")) {
            (Some(Value::String(user)), Some(Value::String(database))) => Some(FlowLogin {
                user: user.clone(),
                database: database.clone(),
            }),
            (_, _) => None,
        };
        match signature {
            Some(FlowKind::Postgres) => {
                if let (Some(login), false) = (login, is_unreached) {
                    count(
                        &mut signatures,
                        FlowKind::Postgres,
                        &login.told(said("host")),
                    );
                }
            }
            Some(kind) if !has_failed => {
                let whom = said("rule").split(' ').next().unwrap_or_default();
                count(&mut signatures, kind, whom);
            }
            None if !is_unreached => tally(
                flow,
                &event.body,
                (&mut used, &mut unauthorised, &mut without),
            ),
            Some(_) | None => {}
        }
    }
    let accepted = lines(&used, &unauthorised);
    let masked = masked(&without);
    [accepted, masked, signed(&signatures), taken_back(&returned)].concat()
}

/// Counts an answered request: by the credentials injected, and by those whose placeholder was
/// masked.
fn tally(
    opened: &Value,
    closed: &Value,
    (used, unauthorised, without): (&mut Counts, &mut Counts, &mut Counts),
) {
    let said = |of: &Value, member: &str| {
        let said = of.get(member).and_then(Value::as_str);
        said.unwrap_or_default().to_owned()
    };
    let host = said(opened, "host");
    let named = |names: &str| {
        let names = names.split(',').filter(|name| !name.is_empty());
        let keys = names.map(|name| (name.to_owned(), host.clone()));
        keys.collect::<Vec<_>>()
    };
    for key in named(&said(opened, "credential")) {
        if closed.get("status").and_then(Value::as_u64) == Some(401) {
            *unauthorised.entry(key.clone()).or_default() += 1;
        }
        *used.entry(key).or_default() += 1;
    }
    for key in named(&said(closed, "masked")) {
        *without.entry(key).or_default() += 1;
    }
}

fn count(signatures: &mut Vec<(FlowKind, String, u64)>, kind: FlowKind, whom: &str) {
    let mut known = signatures.iter_mut();
    match known.find(|one| one.0 == kind && one.1 == whom) {
        Some((_, _, count)) => *count += 1,
        None => signatures.push((kind, whom.to_owned(), 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_how_often_and_where() {
        let mut used = BTreeMap::new();
        for (name, host, times) in [
            ("git", "example.com", 1),
            ("hub", "a.example", 2),
            ("hub", "b.example", 5),
        ] {
            used.insert((name.to_owned(), host.to_owned()), times);
        }
        let told = [
            "credential git: put into 1 request to example.com",
            "credential hub: put into 7 requests to b.example, a.example",
        ];
        assert_eq!(lines(&used, &BTreeMap::new()), told);
        for number in 0..9 {
            used.insert(("git".to_owned(), format!("{number}.example")), 1);
        }
        let told = "credential git: put into 10 requests to 0.example, 1.example, 2.example, 3.example and 6 others";
        assert_eq!(lines(&used, &BTreeMap::new())[0], told);
        assert!(lines(&BTreeMap::new(), &BTreeMap::new()).is_empty());
    }

    #[test]
    fn a_host_that_does_not_accept_a_credential_is_told() {
        let at = |name: &str, times| {
            let key = (name.to_owned(), "api.example.com".to_owned());
            BTreeMap::from([(key, times)])
        };
        let told = |times| lines(&at("hub", 3), &at("hub", times))[1].clone();
        let all = "credential hub: api.example.com answered 3 requests with 401, so it was not";
        assert!(told(3).starts_with(all), "{}", told(3));
        let some = "credential hub: api.example.com answered 2 of 3 requests with 401";
        assert!(told(2).starts_with(some), "{}", told(2));
        // Of what is in the ledger too.
        let event = crate::why::event;
        let events = [
            event(
                "flow.opened",
                serde_json::json!({ "flow": 1, "kind": "request", "host": "api.example.com", "credential": "hub" }),
            ),
            event(
                "flow.closed",
                serde_json::json!({ "flow": 1, "status": 401 }),
            ),
        ];
        let lines = of_events(&events);
        assert!(
            lines[1].contains("answered 1 request with 401"),
            "{lines:?}"
        );
    }

    #[test]
    fn what_was_masked_in_requests_is_told() {
        let event = crate::why::event;
        let events = [1, 2].map(|flow| {
            let opened = serde_json::json!({
                "flow": flow, "kind": "request", "host": "api.example.com", "credential": "hub"
            });
            let closed = serde_json::json!({ "flow": flow, "masked": "git,web", "status": 200 });
            [event("flow.opened", opened), event("flow.closed", closed)]
        });
        let told = of_events(&events.concat());
        for name in ["git", "web"] {
            let line = format!(
                "credential {name}: masked in 2 requests to api.example.com, whose bodies told of \
                 what stands for it"
            );
            assert!(told.contains(&line), "{told:?}");
        }
    }

    #[test]
    fn what_was_taken_back_is_told_by_credential() {
        let returned = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]);
        let told = [
            "credential a: 1 token taken back",
            "credential b: 2 tokens taken back",
        ];
        assert_eq!(taken_back(&returned), told);
    }
}
