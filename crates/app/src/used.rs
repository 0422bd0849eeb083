//! Which credentials were put into requests, how often and where, for a person: the same
//! at a run's end and in its story.

use std::collections::{BTreeMap, HashMap};

use atoll_model::network::{FlowKind, FlowLogin};
use atoll_store::Event;
use serde_json::Value;

use crate::escape::printable;
use crate::reached::signed;
use crate::render;

/// How many hosts a line names.
const HOSTS_SHOWN_MAX: usize = 4;

/// A line for each credential, of how often it was put into requests to each host.
pub(crate) fn lines(used: &BTreeMap<(String, String), u64>) -> Vec<String> {
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

/// The same from the ledger's events of a run: which credentials were put into requests that
/// were answered, and what keys of SSH have signed.
pub(crate) fn of_events(events: &[Event]) -> Vec<String> {
    let mut opened: HashMap<u64, &Value> = HashMap::new();
    let mut used = BTreeMap::new();
    let mut signatures: Vec<(FlowKind, String, u64)> = Vec::new();
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
            None if !is_unreached => {
                let names = said("credential").split(',');
                for name in names.filter(|name| !name.is_empty()) {
                    let key = (name.to_owned(), said("host").to_owned());
                    *used.entry(key).or_default() += 1;
                }
            }
            Some(_) | None => {}
        }
    }
    [lines(&used), signed(&signatures)].concat()
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
        assert_eq!(lines(&used), told);
        for number in 0..9 {
            used.insert(("git".to_owned(), format!("{number}.example")), 1);
        }
        let told = "credential git: put into 10 requests to 0.example, 1.example, 2.example, 3.example and 6 others";
        assert_eq!(lines(&used)[0], told);
        assert!(lines(&BTreeMap::new()).is_empty());
    }
}
