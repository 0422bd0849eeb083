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

#[test]
fn a_question_for_the_name_of_an_address_is_told_as_one_and_no_host() {
    let name = |host: &str| {
        let mut asked = refused(0, None);
        asked.flow.kind = FlowKind::Name;
        asked.flow.host = host.to_owned();
        unreached(&asked).what
    };
    for (host, told) in [
        (
            "1.2.0.192.in-addr.arpa",
            "asking for the name that an address has (1.2.0.192.in-addr.arpa): no rule would have \
             it answered, and programs do without",
        ),
        (
            "8.B.D.0.1.0.0.2.ip6.ARPA.",
            "asking for the name that an address has (8.B.D.0.1.0.0.2.ip6.ARPA.): no rule would \
             have it answered, and programs do without",
        ),
        (
            "_dns.resolver.arpa",
            "asking for what the network says of itself (_dns.resolver.arpa): no rule would have \
             it answered, and programs do without",
        ),
        // The controls.
        ("nas.home.arpa", "reaching nas.home.arpa: no rule allows it"),
        (
            "example.comarpa",
            "reaching example.comarpa: no rule allows it",
        ),
        (
            "in-addr.arpa.example.com",
            "reaching in-addr.arpa.example.com: no rule allows it",
        ),
    ] {
        assert_eq!(name(host), told);
    }
}
