//! The rows that describe a question.

use atoll_engine::printable::printable_whole;
use atoll_model::RunId;
use atoll_model::network::{AskedCall, FlowKind};
use atoll_sandbox::Pending;

use super::second::{named, persons, same};
use crate::render::counted;

/// Returns the facts that Atoll has parsed from a question's call, as pairs of a name and a text.
pub(crate) fn facts(run: &RunId, pending: &Pending) -> Vec<(&'static str, String)> {
    let call = &pending.call;
    let mut rows: Vec<(&str, String)> = vec![
        ("question", format!("{run}.{}", pending.approval)),
        ("host", printable_whole(call.host.as_bytes())),
        ("port", call.port.to_string()),
    ];
    match &call.request {
        None => rows.push(("what", what_goes(call.kind).to_owned())),
        Some(request) => {
            let what = match request.is_web_socket {
                true => "a request that opens a WebSocket: its messages are not asked about",
                false => "a request",
            };
            rows.push(("what", format!("{what} by {}", request.scheme)));
            rows.push(("method", printable_whole(request.method.as_bytes())));
            rows.push(("path", printable_whole(request.path.as_bytes())));
            if let Some(percent) = request.confidence {
                rows.push(("confidence", format!("{percent} %, as the agent says")));
            }
            if let Some(body) = &request.body {
                rows.push((
                    "body",
                    format!(
                        "{}, SHA-256 {}",
                        counted(body.bytes, "byte", "bytes"),
                        body.digest
                    ),
                ));
            }
        }
    }
    if let Some(login) = &call.login {
        rows.push(("user", printable_whole(login.user.as_bytes())));
        rows.push(("database", printable_whole(login.database.as_bytes())));
    }
    if !call.credentials.is_empty() {
        let names: Vec<&str> = call.credentials.iter().map(|one| one.as_str()).collect();
        rows.push(("credentials", names.join(", ")));
    }
    rows.push(("rule", printable_whole(call.rule.as_bytes())));
    rows.extend(of_persons(run, pending));
    rows.push(("waiting", waiting(pending)));
    rows.push(("digest", pending.digest.to_string()));
    rows
}

/// Describes a flow whose content is not inspected.
fn what_goes(kind: FlowKind) -> &'static str {
    match kind {
        FlowKind::SshLogin => "a key of SSH signs in there: nobody looks into what follows",
        FlowKind::CommitSignature => "a key of SSH signs a commit or a tag",
        FlowKind::Name
        | FlowKind::Tunnel
        | FlowKind::Request
        | FlowKind::Published
        | FlowKind::Fetch
        | FlowKind::Revocation
        | FlowKind::Postgres => "a connection: nobody looks into what it carries, both ways",
    }
}

/// Returns the rows on dual control: the number of persons it takes, and who has approved already.
fn of_persons(run: &RunId, pending: &Pending) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if pending.takes_two {
        let what = match pending.call.goes_on() {
            true => "each yes takes two, since it goes on once it is let go",
            false => "what lasts (until the run ends, for a time) takes two; once takes one",
        };
        let who = match (&pending.second, &pending.agreed) {
            (None, _) => "; no other is heard".to_owned(),
            (Some(second), None) => format!("; two of {}", persons(second)),
            (Some(_), Some(_)) => String::new(),
        };
        rows.push(("persons", format!("{what}{who}")));
    }
    if let Some(agreed) = &pending.agreed {
        let user = named(agreed.by.uid);
        let wanting = pending.second.as_ref().map(|second| {
            let said = (agreed.scope, agreed.breadth);
            let how = same(run, pending.approval, said, second.owner);
            format!(": {}, by {how}", persons(second))
        });
        let wanting = wanting.unwrap_or_default();
        let agreed = format!("{user} says yes, {agreed}; it takes another person too{wanting}");
        rows.push(("agreed", agreed));
    }
    rows
}

/// Returns the program's own words in a call.
pub(crate) fn words(call: &AskedCall) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    let request = call.request.as_ref();
    let query = request.and_then(|one| one.query.as_deref());
    let body = request.and_then(|one| one.body.as_ref());
    let quoted = |text: &str| format!("\"{}\"", printable_whole(text.as_bytes()));
    rows.extend(query.map(|query| ("the program's own words, query", quoted(query))));
    for header in request.map_or(&[][..], |one| &one.telling_headers) {
        let name = printable_whole(header.name.as_bytes());
        let header = format!("{name}: {}", quoted(&header.value));
        rows.push(("the program's own words, header", header));
    }
    if let Some(request) = request.filter(|one| one.further_headers > 0) {
        let further = format!("{}, with a digest alone", request.further_headers);
        rows.push(("the program's own words, further headers", further));
    }
    rows.extend(body.map(|body| {
        let words = "the program's own words, body begins";
        (words, quoted(&body.beginning))
    }));
    rows
}

fn waiting(pending: &Pending) -> String {
    let equal = match pending.waiting {
        1 => String::new(),
        equal => format!("{equal} equal calls, "),
    };
    format!("{equal}{} s left", pending.left_seconds)
}
