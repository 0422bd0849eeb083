//! What the ledger says of a run's connections.

use atoll_model::RunId;
use atoll_model::network::{CredentialName, Flow, FlowKind, PublishedPort};
use atoll_sandbox::FlowNews;
use atoll_store::{Durability, EventBody, Ledger, LedgerError};

use crate::approvals;

/// Records what is told at once, with one wait for the disk where something waits for it.
pub(crate) fn record(
    ledger: &Ledger,
    run: &RunId,
    news: &[FlowNews<'_>],
) -> Result<(), LedgerError> {
    let waits = |news: &FlowNews<'_>| match news {
        FlowNews::Opened { waits, .. } => *waits,
        FlowNews::Published(_) => true,
        FlowNews::Approval(news) => approvals::waits(news),
        FlowNews::Closed { .. } | FlowNews::Refused(_) | FlowNews::Unpublished { .. } => false,
    };
    let durability = match news.iter().any(waits) {
        true => Durability::Durable,
        false => Durability::Buffered,
    };
    let events: Vec<_> = news.iter().map(event).collect();
    ledger.record_flows(run, events, durability)
}

/// Members come in the order of their names.
fn event(news: &FlowNews<'_>) -> (&'static str, EventBody) {
    match news {
        FlowNews::Opened {
            id, flow, approval, ..
        } => ("flow.opened", described(flow, (*approval, "flow", *id))),
        FlowNews::Closed { id, end } => {
            let mut body = EventBody::default()
                .number("down_bytes", end.down_bytes)
                .number("duration_us", end.duration_us);
            if let Some(failure) = &end.failure {
                body = body.text("failure", failure);
            }
            body = body.number("flow", *id);
            if let Some(limit) = end.limit {
                body = body.text("limit", limit.name());
            }
            if let Some(status) = end.status {
                body = body.number("status", status.into());
            }
            if end.is_unreached {
                body = body.truth("unreached");
            }
            ("flow.closed", body.number("up_bytes", end.up_bytes))
        }
        FlowNews::Refused(refused) => {
            let body = described(&refused.flow, (None, "count", refused.count));
            ("flow.refused", body.text("why", &refused.why))
        }
        FlowNews::Published(published) => {
            let body = ports(published.port);
            ("port.published", body.text("rule", &published.told()))
        }
        FlowNews::Approval(news) => approvals::event(news),
        FlowNews::Unpublished { port, why } => ("port.refused", ports(*port).text("why", why)),
    }
}

fn ports(port: PublishedPort) -> EventBody {
    EventBody::default()
        .number("host_port", port.outside.into())
        .number("port", port.inside.into())
}

/// What a flow is, with the number of its approval, and one whose name comes between
/// `approval` and `host`.
fn described(flow: &Flow, (approval, key, number): (Option<u32>, &'static str, u64)) -> EventBody {
    let mut body = EventBody::default();
    if let Some(address) = flow.address {
        body = body.text("address", &address.to_string());
    }
    if let Some(approval) = approval {
        body = body.number("approval", approval.into());
    }
    let is_before = key < "credential";
    if is_before {
        body = body.number(key, number);
    }
    if !flow.credentials.is_empty() {
        let names = flow.credentials.iter().map(CredentialName::as_str);
        body = body.text("credential", &names.collect::<Vec<_>>().join(","));
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
    if flow.port != 0 {
        body = body.number("port", flow.port.into());
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
    use atoll_model::network::{FlowEnd, FlowLogin, FlowRequest, Limit, Published, Scheme};
    use atoll_sandbox::Refused;

    use super::*;

    fn check(news: &FlowNews<'_>, kind: &str, expected: &str) {
        let (told, body) = event(news);
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
            }),
            limit: Some(Limit::Body),
            credentials: Vec::new(),
            login: None,
            via: Some("http://proxy.example:3128".to_owned()),
        };
        let opened = |flow| FlowNews::Opened {
            id: 7,
            flow,
            waits: true,
            approval: Some(3),
        };
        check(
            &opened(&all),
            "flow.opened",
            r#"{"address":"192.0.2.1","approval":3,"flow":7,"host":"example.com","kind":"request","limit":"body","method":"GET","path":"/\n","port":443,"rule":"a rule","scheme":"https","via":"http://proxy.example:3128"}"#,
        );
        let with = Flow {
            credentials: vec!["one".parse().unwrap(), "two".parse().unwrap()],
            request: None,
            ..all.clone()
        };
        check(
            &opened(&with),
            "flow.opened",
            r#"{"address":"192.0.2.1","approval":3,"credential":"one,two","flow":7,"host":"example.com","kind":"request","limit":"body","port":443,"rule":"a rule","via":"http://proxy.example:3128"}"#,
        );
        let refused = Refused {
            flow: with.clone(),
            why: "no".to_owned(),
            count: 3,
        };
        check(
            &FlowNews::Refused(&refused),
            "flow.refused",
            r#"{"address":"192.0.2.1","count":3,"credential":"one,two","host":"example.com","kind":"request","limit":"body","port":443,"rule":"a rule","via":"http://proxy.example:3128","why":"no"}"#,
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
            r#"{"approval":3,"flow":7,"host":"example.com","kind":"tunnel","port":443}"#,
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
            &FlowNews::Refused(&refused),
            "flow.refused",
            r#"{"address":"192.0.2.1","count":3,"host":"example.com","kind":"name","limit":"body","method":"GET","path":"/\n","rule":"a rule","scheme":"https","via":"http://proxy.example:3128","why":"no"}"#,
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
            r#"{"approval":3,"credential":"shop","database":"shop","flow":7,"host":"example.com","kind":"postgres","port":443,"user":"app"}"#,
        );
        let end = FlowEnd {
            up_bytes: 1,
            down_bytes: 2,
            status: Some(200),
            duration_us: 3,
            failure: Some("late".to_owned()),
            is_unreached: true,
            limit: Some(Limit::Duration),
        };
        check(
            &FlowNews::Closed { id: 7, end: &end },
            "flow.closed",
            r#"{"down_bytes":2,"duration_us":3,"failure":"late","flow":7,"limit":"duration","status":200,"unreached":true,"up_bytes":1}"#,
        );
        let port = PublishedPort {
            outside: 80,
            inside: 3000,
        };
        let published = Published {
            port,
            origin: "atoll publish".to_owned(),
        };
        check(
            &FlowNews::Published(&published),
            "port.published",
            r#"{"host_port":80,"port":3000,"rule":"publish 80:3000 (atoll publish)"}"#,
        );
        check(
            &FlowNews::Unpublished { port, why: "no" },
            "port.refused",
            r#"{"host_port":80,"port":3000,"why":"no"}"#,
        );
        let end = FlowEnd::default();
        check(
            &FlowNews::Closed { id: 7, end: &end },
            "flow.closed",
            r#"{"down_bytes":0,"duration_us":0,"flow":7,"up_bytes":0}"#,
        );
    }
}
