//! The ledger events of approvals.

use atoll_ledger::EventBody;
use atoll_model::network::{ApprovalScope, AskedCall, CallDigest, CredentialName, Scope};
use atoll_sandbox::{Agreed, ApprovalNews, Who};

/// Returns whether the run waits until this is on disk.
pub(crate) fn waits(news: &ApprovalNews) -> bool {
    match news {
        ApprovalNews::Granted { .. } => true,
        ApprovalNews::Asked { .. }
        | ApprovalNews::Agreed { .. }
        | ApprovalNews::Denied { .. }
        | ApprovalNews::LeaseEnded { .. } => false,
    }
}

/// Builds the ledger event. Its members are in the order of their names.
pub(crate) fn event(news: &ApprovalNews, versions: &[String]) -> (&'static str, EventBody) {
    match news {
        ApprovalNews::Asked {
            approval,
            digest,
            call,
        } => {
            let body = EventBody::default().number("approval", (*approval).into());
            let version = version(versions, call.policies);
            let body = asked(body, &digest.to_string(), call, version);
            ("approval.asked", body)
        }
        ApprovalNews::Granted {
            approval,
            digest,
            scope,
            breadth,
            by,
        } => {
            let (scope, breadth, by) = (*scope, *breadth, *by);
            let said = Agreed { scope, breadth, by };
            ("approval.granted", yes(*approval, *digest, said))
        }
        ApprovalNews::Agreed {
            approval,
            digest,
            said,
        } => ("approval.agreed", yes(*approval, *digest, *said)),
        ApprovalNews::Denied {
            approval,
            digest,
            why,
            by,
        } => {
            let body = EventBody::default().number("approval", (*approval).into());
            let body = body.text("digest", &digest.to_string());
            let body = match by {
                Some(by) => who(body, *by),
                None => body,
            };
            ("approval.denied", body.text("why", why.name()))
        }
        ApprovalNews::LeaseEnded { approval, uses, by } => {
            let body = EventBody::default().number("approval", (*approval).into());
            let body = match by {
                Some(by) => who(body, *by),
                None => body,
            };
            ("lease.ended", body.number("uses", *uses))
        }
    }
}

fn yes(approval: u32, digest: CallDigest, said: Agreed) -> EventBody {
    let body = EventBody::default().number("approval", approval.into());
    let body = body.text("digest", &digest.to_string());
    let body = match said.scope {
        Scope::Once => body.text("for", "once"),
        Scope::Run => covers(body.text("for", "run"), said.breadth),
        Scope::Seconds { .. } => covers(body.text("for", "time"), said.breadth),
    };
    let mut body = body.number("pid", said.by.pid.into());
    if let Scope::Seconds { seconds } = said.scope {
        body = body.number("seconds", seconds.into());
    }
    body.number("uid", said.by.uid.into())
}

/// Adds who decided: `pid` and `uid`.
fn who(body: EventBody, by: Who) -> EventBody {
    body.number("pid", by.pid.into())
        .number("uid", by.uid.into())
}

/// Adds the scope of a lease, if it is wider than the same call.
fn covers(body: EventBody, breadth: ApprovalScope) -> EventBody {
    match breadth {
        ApprovalScope::Same => body,
        ApprovalScope::Rule => body.text("of", "rule"),
    }
}

fn asked(mut body: EventBody, digest: &str, call: &AskedCall, version: Option<&str>) -> EventBody {
    let request = call.request.as_ref();
    if let Some(sent) = request.and_then(|one| one.body.as_ref()) {
        body = body
            .number("body_bytes", sent.bytes)
            .text("body_sha256", &sent.digest.to_string());
    }
    if let Some(percent) = request.and_then(|one| one.confidence) {
        body = body.number("confidence", percent.into());
    }
    if !call.credentials.is_empty() {
        let names = call.credentials.iter().map(CredentialName::as_str);
        body = body.text("credential", &names.collect::<Vec<_>>().join(","));
    }
    if let Some(login) = &call.login {
        body = body.text("database", &login.database);
    }
    body = body.text("digest", digest).text("host", &call.host);
    if let Some(request) = request {
        body = body
            .text("method", &request.method)
            .text("path", &request.path);
    }
    if let Some(version) = version {
        body = body.text("policy", version);
    }
    body = body.number("port", call.port.into());
    body = body.text("rule", &call.rule);
    if let Some(request) = request {
        body = body
            .text("scheme", &request.scheme.to_string())
            .text("target_sha256", &request.target_digest.to_string());
        if request.is_web_socket {
            body = body.truth("web_socket");
        }
    }
    if let Some(login) = &call.login {
        body = body.text("user", &login.user);
    }
    body
}

/// Returns the version of the policies that decided.
pub(crate) fn version(versions: &[String], policies: u32) -> Option<&str> {
    let index = usize::try_from(policies).ok()?;
    versions.get(index).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use atoll_model::network::{AskedBody, AskedRequest, FlowKind, FlowLogin, NoConsent, Scheme};

    use super::*;

    fn check(news: &ApprovalNews, kind: &str, expected: &str) {
        let (told, body) = event(news, &["v0".to_owned()]);
        let body = String::from_utf8(body.finish().unwrap()).unwrap();
        assert_eq!((told, body), (kind, expected.replace("D", &"0".repeat(64))));
    }

    #[test]
    fn everything_that_is_told_of_a_question_has_its_place() {
        let digest = CallDigest::new([0; 32]);
        let by = Who { uid: 7, pid: 8 };
        let all = AskedCall {
            signs: None,
            kind: FlowKind::Request,
            host: "example.com".to_owned(),
            port: 443,
            request: Some(AskedRequest {
                scheme: Scheme::Https,
                method: "POST".to_owned(),
                path: "/a".to_owned(),
                query: Some("q".to_owned()),
                path_digest: digest,
                target_digest: digest,
                confidence: Some(40),
                is_web_socket: true,
                headers_digest: digest,
                telling_headers_digest: digest,
                telling_headers: Vec::new(),
                further_headers: 0,
                body: Some(AskedBody {
                    bytes: 5,
                    digest,
                    beginning: "hello".to_owned(),
                }),
            }),
            login: None,
            credentials: vec!["one".parse().unwrap(), "two".parse().unwrap()],
            rule: "a rule".to_owned(),
            policies: 0,
        };
        let least = AskedCall {
            kind: FlowKind::Tunnel,
            request: None,
            credentials: Vec::new(),
            ..all.clone()
        };
        let login = AskedCall {
            kind: FlowKind::Postgres,
            login: Some(FlowLogin {
                user: "app".to_owned(),
                database: "shop".to_owned(),
            }),
            ..least.clone()
        };
        let asked = |call| ApprovalNews::Asked {
            approval: 1,
            digest,
            call: Box::new(call),
        };
        check(
            &asked(all),
            "approval.asked",
            r#"{"approval":1,"body_bytes":5,"body_sha256":"D","confidence":40,"credential":"one,two","digest":"D","host":"example.com","method":"POST","path":"/a","policy":"v0","port":443,"rule":"a rule","scheme":"https","target_sha256":"D","web_socket":true}"#,
        );
        check(
            &asked(least),
            "approval.asked",
            r#"{"approval":1,"digest":"D","host":"example.com","policy":"v0","port":443,"rule":"a rule"}"#,
        );
        check(
            &asked(login),
            "approval.asked",
            r#"{"approval":1,"database":"shop","digest":"D","host":"example.com","policy":"v0","port":443,"rule":"a rule","user":"app"}"#,
        );
        let granted = |scope, breadth| ApprovalNews::Granted {
            approval: 1,
            digest,
            scope,
            breadth,
            by,
        };
        check(
            &granted(Scope::Once, ApprovalScope::Rule),
            "approval.granted",
            r#"{"approval":1,"digest":"D","for":"once","pid":8,"uid":7}"#,
        );
        check(
            &granted(Scope::Seconds { seconds: 60 }, ApprovalScope::Rule),
            "approval.granted",
            r#"{"approval":1,"digest":"D","for":"time","of":"rule","pid":8,"seconds":60,"uid":7}"#,
        );
        let (scope, breadth) = (Scope::Run, ApprovalScope::Rule);
        let agreed = ApprovalNews::Agreed {
            approval: 1,
            digest,
            said: Agreed { scope, breadth, by },
        };
        check(
            &agreed,
            "approval.agreed",
            r#"{"approval":1,"digest":"D","for":"run","of":"rule","pid":8,"uid":7}"#,
        );
        for (by, said) in [(None, ""), (Some(by), r#""pid":8,"uid":7,"#)] {
            let why = NoConsent::Late;
            let denied = ApprovalNews::Denied {
                approval: 1,
                digest,
                why,
                by,
            };
            let expected = format!(r#"{{"approval":1,"digest":"D",{said}"why":"late"}}"#);
            check(&denied, "approval.denied", &expected);
            let (approval, uses) = (1, 3);
            let ended = ApprovalNews::LeaseEnded { approval, uses, by };
            let expected = format!(r#"{{"approval":1,{said}"uses":3}}"#);
            check(&ended, "lease.ended", &expected);
        }
    }
}
