use atoll_model::network::{Flow, FlowRequest, NO_RULE, Scheme};

use super::*;

fn refused(port: u16, request: Option<FlowRequest>) -> Refused {
    Refused {
        flow: Flow {
            kind: FlowKind::Request,
            host: "api.example.com".to_owned(),
            address: None,
            via: None,
            port,
            rule: None,
            request,
            limit: None,
            credentials: Vec::new(),
            login: None,
            policies: 0,
        },
        why: NO_RULE.to_owned(),
        count: 2,
    }
}

#[test]
fn what_was_refused_is_told_as_what_it_was() {
    let request = |path: &str| FlowRequest {
        scheme: Scheme::Https,
        method: "POST".to_owned(),
        path: path.to_owned(),
        confidence: None,
        redacted: None,
    };
    for (refused, told) in [
        (
            refused(443, Some(request("/x"))),
            "POST https://api.example.com/x: no rule allows it",
        ),
        (
            refused(8443, Some(request("/x"))),
            "POST https://api.example.com:8443/x: no rule allows it",
        ),
        (
            refused(22, None),
            "reaching api.example.com:22: no rule allows it",
        ),
        (
            refused(0, None),
            "reaching api.example.com: no rule allows it",
        ),
        (
            refused(443, Some(request("/\u{1b}[2J"))),
            "POST https://api.example.com/\\x1b[2J: no rule allows it",
        ),
    ] {
        assert_eq!(unreached(&refused).what, told);
    }
}

#[test]
fn machines_are_told_of_requests_too() {
    let request = FlowRequest {
        scheme: Scheme::Https,
        method: "POST".to_owned(),
        path: "/x".to_owned(),
        confidence: None,
        redacted: None,
    };
    let flows = Flows {
        requests: 3,
        refused: vec![refused(443, Some(request)), refused(22, None)],
        ..Flows::default()
    };
    let told = network_json(&Network::default(), &flows, None);
    assert_eq!(told["requests"], 3);
    assert_eq!(told["refused"][0]["method"], "POST");
    assert_eq!(told["refused"][0]["path"], "/x");
    assert!(told["refused"][1].get("method").is_none());
    assert!(told["learnt"].is_null());
    assert_eq!(traffic(&flows).map(|traffic| traffic.requests), Some(3));
}
