//! The ledger events of a run's connections.

use atoll_ledger::{Durability, EventBody, Ledger, LedgerError, RIGHTS_GIVEN_UP, SharedLabels};
use atoll_model::RunId;
use atoll_model::network::{CredentialName, Flow, FlowEnd, FlowKind};

use crate::approvals::version;
use crate::supervision::FlowEvent;
use crate::{approvals, given_up};

/// Records these events together, waiting once for the disk if one of them has to be there.
///
/// `versions` are those of the policies, in order; the first is that of the beginning.
pub(crate) fn record(
    ledger: &Ledger,
    run: &RunId,
    news: &[FlowEvent<'_>],
    versions: &[String],
) -> Result<(), LedgerError> {
    if news.is_empty() {
        return Ok(());
    }
    let waits = |news: &FlowEvent<'_>| match news {
        FlowEvent::Opened { waits, .. } => *waits,
        FlowEvent::GivenUp(_) | FlowEvent::Labelled { .. } => true,
        FlowEvent::Approval(news) => approvals::waits(news),
        FlowEvent::Closed { .. } | FlowEvent::Refused(_) | FlowEvent::Unheard { .. } => false,
    };
    let durability = match news.iter().any(waits) {
        true => Durability::Durable,
        false => Durability::Buffered,
    };
    let events: Vec<_> = news.iter().map(|one| event(one, versions)).collect();
    ledger.record_flows(run, events, durability)
}

/// Returns the labels that a run gains by these events.
pub(crate) fn labels<'a>(news: &'a [FlowEvent<'_>]) -> impl Iterator<Item = &'a str> {
    news.iter().filter_map(|one| {
        let FlowEvent::Labelled { label, .. } = one else {
            return None;
        };
        Some(*label)
    })
}

/// Shares recorded labels with concurrent runs of the session: the flow that gives a label goes
/// on only then.
pub(crate) fn tell_beside(
    gained: Option<&SharedLabels>,
    news: &[FlowEvent<'_>],
) -> Result<(), LedgerError> {
    let labels: Vec<&str> = labels(news).collect();
    match gained {
        Some(gained) if !labels.is_empty() => gained.add(labels),
        Some(_) | None => Ok(()),
    }
}

/// Builds the ledger event. Its members are in the order of their names.
fn event(news: &FlowEvent<'_>, versions: &[String]) -> (&'static str, EventBody) {
    match news {
        FlowEvent::Opened {
            id, flow, approval, ..
        } => {
            let body = described(flow, (*approval, "flow", *id), versions);
            ("flow.opened", body)
        }
        FlowEvent::Closed { id, end } => ("flow.closed", closed(*id, end)),
        FlowEvent::Refused(refused) => {
            let body = described(&refused.flow, (None, "count", refused.count), versions);
            ("flow.refused", body.text("why", &refused.why))
        }
        FlowEvent::Unheard { why } => ("approval.unheard", EventBody::default().text("why", why)),
        FlowEvent::Approval(news) => approvals::event(news, versions),
        FlowEvent::GivenUp(given) => (RIGHTS_GIVEN_UP, given_up::event(given)),
        FlowEvent::Labelled { label, by } => {
            let body = EventBody::default().text("by", by).text("label", label);
            ("label.gained", body)
        }
    }
}

/// Describes the end of a flow.
fn closed(id: u64, end: &FlowEnd) -> EventBody {
    let mut body = EventBody::default()
        .number("down_bytes", end.down_bytes)
        .number("duration_us", end.duration_us);
    if let Some(failure) = &end.failure {
        body = body.text("failure", failure);
    }
    body = body.number("flow", id);
    if let Some(limit) = end.limit {
        body = body.text("limit", limit.name());
    }
    if !end.masked.is_empty() {
        body = body.text("masked", &joined(&end.masked));
    }
    if let Some(status) = end.status {
        body = body.number("status", status.into());
    }
    if end.is_unreached {
        body = body.truth("unreached");
    }
    body.number("up_bytes", end.up_bytes)
}

/// Describes a flow, with the number of its approval, and one more number whose name sorts
/// between `approval` and `host`.
fn described(
    flow: &Flow,
    (approval, key, number): (Option<u32>, &'static str, u64),
    versions: &[String],
) -> EventBody {
    let mut body = EventBody::default();
    if let Some(address) = flow.address {
        body = body.text("address", &address.to_string());
    }
    if let Some(approval) = approval {
        body = body.number("approval", approval.into());
    }
    let confidence = flow.request.as_ref().and_then(|one| one.confidence);
    if let Some(percent) = confidence {
        body = body.number("confidence", percent.into());
    }
    let is_before = key < "credential";
    if is_before {
        body = body.number(key, number);
    }
    if !flow.credentials.is_empty() {
        body = body.text("credential", &joined(&flow.credentials));
    }
    if let Some(login) = &flow.login {
        body = body.text("database", &login.database);
    }
    if !is_before {
        body = body.number(key, number);
    }
    body = body.text("host", &flow.host);
    body = body.text("kind", kind(flow.kind));
    if let Some(limit) = flow.limit {
        body = body.text("limit", limit.name());
    }
    if let Some(request) = &flow.request {
        body = body
            .text("method", &request.method)
            .text("path", &request.path);
    }
    if let Some(version) = version(versions, flow.policies) {
        body = body.text("policy", version);
    }
    if flow.port != 0 {
        body = body.number("port", flow.port.into());
    }
    if let Some(redacted) = flow.request.as_ref().and_then(|one| one.redacted.as_ref()) {
        body = body.text("redacted", redacted);
    }
    if let Some(rule) = &flow.rule {
        body = body.text("rule", rule);
    }
    if let Some(request) = &flow.request {
        body = body.text("scheme", &request.scheme.to_string());
    }
    if let Some(login) = &flow.login {
        body = body.text("user", &login.user);
    }
    match &flow.via {
        Some(via) => body.text("via", via),
        None => body,
    }
}

fn joined(names: &[CredentialName]) -> String {
    let names = names.iter().map(CredentialName::as_str);
    names.collect::<Vec<_>>().join(",")
}

fn kind(kind: FlowKind) -> &'static str {
    match kind {
        FlowKind::Name => "name",
        FlowKind::Tunnel => "tunnel",
        FlowKind::Request => "request",
        FlowKind::Published => "published",
        FlowKind::SshLogin => "ssh-login",
        FlowKind::CommitSignature => "commit-signature",
        FlowKind::Fetch => "fetch",
        FlowKind::Revocation => "revocation",
        FlowKind::Postgres => "postgres",
    }
}

#[cfg(test)]
mod tests {
    use crate::supervision::Refused;
    use atoll_model::network::{FlowEnd, FlowLogin, FlowRequest, Limit, Scheme};

    use super::*;

    fn check(news: &FlowEvent<'_>, kind: &str, expected: &str) {
        let (told, body) = event(news, &["v0".to_owned(), "v1".to_owned()]);
        let body = String::from_utf8(body.finish().unwrap()).unwrap();
        assert_eq!((told, body.as_str()), (kind, expected));
    }

    #[test]
    fn everything_that_is_told_of_a_flow_has_its_place() {
        let all = Flow {
            kind: FlowKind::Request,
            host: "example.com".to_owned(),
            address: Some([192, 0, 2, 1].into()),
            port: 443,
            rule: Some("a rule".to_owned()),
            request: Some(FlowRequest {
                scheme: Scheme::Https,
                method: "GET".to_owned(),
                path: "/\n".to_owned(),
                confidence: Some(40),
                redacted: Some("header:a".to_owned()),
            }),
            limit: Some(Limit::Body),
            credentials: Vec::new(),
            login: None,
            policies: 0,
            via: Some("http://proxy.example:3128".to_owned()),
        };
        let opened = |flow| FlowEvent::Opened {
            id: 7,
            flow,
            waits: true,
            approval: Some(3),
        };
        check(
            &opened(&all),
            "flow.opened",
            r#"{"address":"192.0.2.1","approval":3,"confidence":40,"flow":7,"host":"example.com","kind":"request","limit":"body","method":"GET","path":"/\n","policy":"v0","port":443,"redacted":"header:a","rule":"a rule","scheme":"https","via":"http://proxy.example:3128"}"#,
        );
        let with = Flow {
            credentials: vec!["one".parse().unwrap(), "two".parse().unwrap()],
            request: None,
            ..all.clone()
        };
        check(
            &opened(&with),
            "flow.opened",
            r#"{"address":"192.0.2.1","approval":3,"credential":"one,two","flow":7,"host":"example.com","kind":"request","limit":"body","policy":"v0","port":443,"rule":"a rule","via":"http://proxy.example:3128"}"#,
        );
        let refused = Refused {
            flow: with.clone(),
            why: "no".to_owned(),
            count: 3,
        };
        check(
            &FlowEvent::Refused(&refused),
            "flow.refused",
            r#"{"address":"192.0.2.1","count":3,"credential":"one,two","host":"example.com","kind":"request","limit":"body","policy":"v0","port":443,"rule":"a rule","via":"http://proxy.example:3128","why":"no"}"#,
        );
        let least = Flow {
            kind: FlowKind::Tunnel,
            address: None,
            rule: None,
            request: None,
            limit: None,
            credentials: Vec::new(),
            login: None,
            via: None,
            ..all.clone()
        };
        check(
            &opened(&least),
            "flow.opened",
            r#"{"approval":3,"flow":7,"host":"example.com","kind":"tunnel","policy":"v0","port":443}"#,
        );
        let refused = Refused {
            flow: Flow {
                kind: FlowKind::Name,
                port: 0,
                ..all.clone()
            },
            why: "no".to_owned(),
            count: 3,
        };
        check(
            &FlowEvent::Refused(&refused),
            "flow.refused",
            r#"{"address":"192.0.2.1","confidence":40,"count":3,"host":"example.com","kind":"name","limit":"body","method":"GET","path":"/\n","policy":"v0","redacted":"header:a","rule":"a rule","scheme":"https","via":"http://proxy.example:3128","why":"no"}"#,
        );
        let login = Flow {
            kind: FlowKind::Postgres,
            credentials: vec!["shop".parse().unwrap()],
            login: Some(FlowLogin {
                user: "app".to_owned(),
                database: "shop".to_owned(),
            }),
            ..least.clone()
        };
        check(
            &opened(&login),
            "flow.opened",
            r#"{"approval":3,"credential":"shop","database":"shop","flow":7,"host":"example.com","kind":"postgres","policy":"v0","port":443,"user":"app"}"#,
        );
        let end = FlowEnd {
            up_bytes: 1,
            down_bytes: 2,
            status: Some(200),
            duration_us: 3,
            failure: Some("late".to_owned()),
            is_unreached: true,
            limit: Some(Limit::Duration),
            masked: vec!["one".parse().unwrap(), "two".parse().unwrap()],
        };
        check(
            &FlowEvent::Closed { id: 7, end: &end },
            "flow.closed",
            r#"{"down_bytes":2,"duration_us":3,"failure":"late","flow":7,"limit":"duration","masked":"one,two","status":200,"unreached":true,"up_bytes":1}"#,
        );
        check(
            &FlowEvent::Unheard { why: "no" },
            "approval.unheard",
            r#"{"why":"no"}"#,
        );
        let (label, by) = ("untrusted", "example.com");
        check(
            &FlowEvent::Labelled { label, by },
            "label.gained",
            r#"{"by":"example.com","label":"untrusted"}"#,
        );
        let end = FlowEnd::default();
        check(
            &FlowEvent::Closed { id: 7, end: &end },
            "flow.closed",
            r#"{"down_bytes":0,"duration_us":0,"flow":7,"up_bytes":0}"#,
        );
    }

    #[test]
    fn what_policies_have_decided_names_them() {
        let flow = |policies| Flow {
            policies,
            ..Flow::to(FlowKind::Tunnel, "example.com".to_owned(), 443)
        };
        let own = r#"{"flow":7,"host":"example.com","kind":"tunnel","policy":"v0","port":443}"#;
        let later = r#"{"flow":7,"host":"example.com","kind":"tunnel","policy":"v1","port":443}"#;
        for (policies, expected) in [(0, own), (1, later)] {
            let opened = FlowEvent::Opened {
                id: 7,
                flow: &flow(policies),
                waits: true,
                approval: None,
            };
            check(&opened, "flow.opened", expected);
        }
    }
}
