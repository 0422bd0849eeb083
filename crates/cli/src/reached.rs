//! The connections of a run, made and refused, for a person and as JSON.

use std::ffi::OsString;

use atoll_engine::explain::change::no_host;
use atoll_engine::learning::as_profile;
use atoll_engine::printable::printable;
use atoll_engine::supervision::{Flows, Refused};
use atoll_model::network::{FlowKind, Meant, Network, place};
use atoll_policy::network_entry;
use serde_json::json;

use crate::ports::{door, listened_json, published_json};
use crate::render::{self, Denied};
use crate::renewed;

/// The most of a path that a line shows, characters: a program writes paths as it likes.
const PATH_SHOWN_MAX: usize = 120;

/// The reason why such a lookup is answered under no rule.
const UNANSWERED: &str = "no rule would have it answered, and programs do without";

/// Describes a refused flow, and what would allow it.
pub(crate) fn unreached(refused: &Refused) -> Denied {
    let flow = &refused.flow;
    let what = match (&flow.request, flow.port) {
        (Some(request), port) => {
            let place = place(request.scheme, &flow.host, port);
            let path = atoll_engine::printable::shortened(&request.path, PATH_SHOWN_MAX);
            format!("{} {place}{path}", request.method)
        }
        (None, port) if flow.kind == FlowKind::Published => {
            format!("a visit to port {port} inside")
        }
        (None, 0) if is_signature(flow.kind) => "a signature".to_owned(),
        (None, _) if is_signature(flow.kind) => {
            format!("a signature by a key for {}", flow.host)
        }
        (None, port) if flow.login.is_some() => {
            let login = flow.login.as_ref();
            let whom = login
                .map(|login| format!(" as user {} to database {}", login.user, login.database));
            format!(
                "signing in to {}:{port}{}",
                flow.host,
                whom.unwrap_or_default()
            )
        }
        (None, 0) => match no_host(&flow.host) {
            Some(whose) => format!("asking for {whose} ({})", flow.host),
            None => format!("reaching {}", flow.host),
        },
        (None, port) => format!("reaching {}:{port}", flow.host),
    };
    let what = printable(what.as_bytes());
    let is_name = flow.kind == FlowKind::Name;
    let why = match (flow.limit, place_of_rule(flow.rule.as_deref())) {
        (Some(_), Some(place)) => format!("{}, in {place}", refused.why),
        (None, _) if is_name && no_host(&flow.host).is_some() => UNANSWERED.to_owned(),
        (Some(_) | None, _) => refused.why.clone(),
    };
    Denied {
        what: format!("{what}: {}", printable(why.as_bytes())),
        // A question for a name is asked in several ways, and again.
        times: if is_name { 1 } else { refused.count },
        limit: None,
    }
}

fn is_signature(kind: FlowKind) -> bool {
    match kind {
        FlowKind::SshLogin | FlowKind::CommitSignature => true,
        FlowKind::Name
        | FlowKind::Tunnel
        | FlowKind::Request
        | FlowKind::Published
        | FlowKind::Fetch
        | FlowKind::Revocation
        | FlowKind::Postgres => false,
    }
}

/// Formats the uses of SSH keys for signatures and the logins to databases, a line each.
pub(crate) fn signed(all: &[(FlowKind, String, u64)]) -> Vec<String> {
    let line = |(kind, whom, count): &(FlowKind, String, u64)| {
        let times = match count {
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        match kind {
            FlowKind::CommitSignature => {
                format!("ssh: signed commits with the key for {whom} {times}")
            }
            FlowKind::Postgres => format!("postgres: signed in to {whom} {times}"),
            FlowKind::SshLogin
            | FlowKind::Name
            | FlowKind::Tunnel
            | FlowKind::Request
            | FlowKind::Published
            | FlowKind::Fetch
            | FlowKind::Revocation => format!("ssh: signed in to {whom} {times}"),
        }
    };
    all.iter()
        .map(|one| printable(line(one).as_bytes()))
        .collect()
}

/// Extracts the place of a rule from its description.
fn place_of_rule(rule: Option<&str>) -> Option<&str> {
    let (_, place) = rule?.rsplit_once(" (")?;
    place.strip_suffix(')')
}

/// The variables that name a proxy to programs.
const PROXIES: [&str; 6] = [
    "https_proxy",
    "HTTPS_PROXY",
    "http_proxy",
    "HTTP_PROXY",
    "all_proxy",
    "ALL_PROXY",
];

/// Notes that a proxy of the caller's environment is not used: whoever sets variables does not
/// decide how everything goes out.
pub(crate) fn unused_proxy(
    network: &Network,
    environment: &[(OsString, OsString)],
) -> Option<String> {
    if network.is_empty() || network.upstream.proxy.is_some() {
        return None;
    }
    let is_set = |name: &&&str| {
        let mut all = environment.iter();
        all.any(|(one, value)| one == **name && !value.is_empty())
    };
    PROXIES.iter().find(is_set).map(|name| {
        format!(
            "{name} is set and not used: connections go straight from this host; a profile sends \
             them through a proxy by upstream-proxy = \"http://HOST:PORT\" under [network]"
        )
    })
}

/// Formats a line for each published port.
pub(crate) fn doors(network: &Network) -> String {
    network.publish.iter().map(|one| door(one.port)).collect()
}

/// Returns the alert that placeholders were sent towards origins their credentials are not for, if
/// any were.
pub(crate) fn alert(flows: &Flows) -> Option<String> {
    let times = match flows.alerts() {
        0 => return None,
        1 => "once".to_owned(),
        times => format!("{times} times"),
    };
    Some(format!(
        "alert: the program tried {times} to send a credential's placeholder where that credential \
         is not for; nothing was sent. Somebody may have told it to: `atoll why last` shows where \
         to"
    ))
}

/// Returns the run's traffic; `None` if it made no connections and had no visits.
pub(crate) fn traffic(flows: &Flows) -> Option<render::Traffic> {
    let Flows {
        made,
        requests,
        published,
        ..
    } = *flows;
    (made > 0 || requests > 0 || published > 0).then_some(render::Traffic {
        visits: published,
        connections: flows.made,
        requests: flows.requests,
        up_bytes: flows.up_bytes,
        down_bytes: flows.down_bytes,
    })
}

/// Returns the network activity as JSON.
pub(crate) fn network_json(
    network: &Network,
    flows: &Flows,
    learnt: Option<&[Meant]>,
) -> serde_json::Value {
    let learnt = learnt.map(|rules| {
        let written = rules.iter().map(network_entry).collect::<Vec<_>>();
        json!({ "allow": written, "profile": as_profile(rules) })
    });
    let refused = |one: &Refused| {
        let mut said = json!({
            "host": one.flow.host, "port": one.flow.port, "why": one.why, "times": one.count,
        });
        if let (Some(said), Some(request)) = (said.as_object_mut(), &one.flow.request) {
            said.insert("scheme".to_owned(), json!(request.scheme));
            said.insert("method".to_owned(), json!(request.method));
            said.insert("path".to_owned(), json!(request.path));
        }
        if let (Some(said), Some(login)) = (said.as_object_mut(), &one.flow.login) {
            said.insert("user".to_owned(), json!(login.user));
            said.insert("database".to_owned(), json!(login.database));
        }
        if let (Some(said), Some(limit)) = (said.as_object_mut(), one.flow.limit) {
            said.insert("limit".to_owned(), json!(limit));
        }
        if let (Some(said), false) = (said.as_object_mut(), one.flow.credentials.is_empty()) {
            said.insert("credentials".to_owned(), json!(one.flow.credentials));
        }
        said
    };
    json!({
        "alerts": flows.alerts(),
        "connections": flows.made,
        "requests": flows.requests,
        "listened": listened_json(flows),
        "published": network.publish.iter().chain(&flows.published_later).map(published_json).collect::<Vec<_>>(),
        "visits": flows.published,
        "masked": flows.masked.iter().map(masked).collect::<Vec<_>>(),
        "renewed": renewed::json(&flows.renewed),
        "rotated": renewed::rotated_json(&flows.rotated),
        "signed": flows.signed.iter().map(signature).collect::<Vec<_>>(),
        "up-bytes": flows.up_bytes,
        "down-bytes": flows.down_bytes,
        "refused": flows.refused.iter().map(refused).collect::<Vec<_>>(),
        "failed": flows.failed.iter().map(refused).collect::<Vec<_>>(),
        "failure": flows.failure,
        "learnt": learnt,
    })
}

fn masked(((name, host), times): (&(String, String), &u64)) -> serde_json::Value {
    json!({ "credential": name, "host": host, "requests": times })
}

fn signature((kind, whom, times): &(FlowKind, String, u64)) -> serde_json::Value {
    json!({ "kind": kind, "key-for": whom, "times": times })
}

#[cfg(test)]
mod tests;
