use crate::network::*;

fn rule(text: &str) -> NetworkRule {
    let Meant {
        to,
        way,
        requests,
        limits,
    } = text
        .parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    NetworkRule {
        to,
        way,
        requests,
        limits,
        origin: "a test".to_owned(),
    }
}

fn network(allow: &[&str], ask: &[&str], deny: &[&str]) -> Network {
    let list = |texts: &[&str]| texts.iter().map(|text| rule(text)).collect();
    Network {
        allow: list(allow),
        ask: list(ask),
        deny: list(deny),
        ..Network::default()
    }
}

fn host(text: &str) -> HostPart {
    text.parse().unwrap()
}

/// Returns whether a request may be sent, and whether a person is asked first.
fn judged(network: &Network, method: &str, name: &str, target: &str) -> (bool, bool) {
    let target = Target::parse(target).unwrap();
    let host = host(name);
    let request = Request {
        host: &host,
        port: 443,
        scheme: Scheme::Https,
        method,
        target: &target,
    };
    let asks = network.asks_of_request(&request).is_some();
    (network.request(&request).is_ok(), asks)
}

#[test]
fn a_denial_beats_a_question_and_a_question_beats_what_is_allowed() {
    let all = network(
        &["example.com", "other.example"],
        &["POST https://example.com/v1/**"],
        &["POST https://example.com/v1/keys"],
    );
    let of = |method, target| judged(&all, method, "example.com", target);
    assert_eq!(of("GET", "/v1/a"), (true, false));
    assert_eq!(of("POST", "/v2"), (true, false));
    assert_eq!(of("POST", "/v1/a"), (true, true));
    assert_eq!(of("POST", "/v1/%61?q"), (true, true));
    assert!(!of("POST", "/v1/keys").0, "denied, whoever would say yes");
    // What some server may take for the same is asked about, or not judged at all.
    assert_eq!(of("post", "/v1/a"), (true, true));
    assert!(!of("POST", "/x/..;/v1/a").0);
    assert_eq!(
        judged(&all, "POST", "other.example", "/v1/a"),
        (true, false)
    );
    // A question opens nothing.
    let alone = network(&[], &["example.com"], &[]);
    assert!(alone.is_empty());
    assert!(!judged(&alone, "GET", "example.com", "/").0);
    assert!(alone.connection(&host("example.com"), 443).is_err());
    // The control: allowed, it is asked about.
    let both = network(&["example.com"], &["example.com"], &[]);
    assert_eq!(judged(&both, "GET", "example.com", "/"), (true, true));
}

#[test]
fn what_is_asked_about_in_part_is_looked_into() {
    let tunnel = |ask: &[&str]| {
        let mut all = network(&["example.com", "example.com:22"], ask, &[]);
        for one in &mut all.allow {
            one.way = Way::Tunnel;
        }
        all
    };
    let look = |all: &Network, port| {
        let judged = all.connection(&host("example.com"), port);
        judged.map(|(_, look)| look).ok()
    };
    let asks = |all: &Network, port| all.asks_of_connection(&host("example.com"), port).is_some();
    let part = tunnel(&["POST https://example.com/v1/**"]);
    assert_eq!(look(&part, 443), Some(Look::Into));
    assert!(part.is_inspected());
    assert_eq!(look(&part, 22), Some(Look::Past));
    assert!(!asks(&part, 22));
    let whole = tunnel(&["example.com:*"]);
    assert_eq!(look(&whole, 443), Some(Look::Past));
    assert!(asks(&whole, 443) && asks(&whole, 22));
    assert!(!asks(&tunnel(&[]), 443), "the control");
    // A person reads the method: a header may not name another one.
    assert!(whole.is_about_methods(&host("example.com"), 443));
    assert!(!tunnel(&[]).is_about_methods(&host("example.com"), 443));
}

#[test]
fn a_name_does_not_lead_to_an_address_that_is_asked_about() {
    let all = network(
        &["db.example:5432", "10.0.0.0/8:5432"],
        &["10.0.0.0/8:5432"],
        &[],
    );
    let address = "10.1.2.3".parse().unwrap();
    let by_name = all.dials(&host("db.example"), address, 5432, None);
    assert!(matches!(by_name, Err(Unreachable::Asked(_))), "{by_name:?}");
    let mapped = "64:ff9b::10.1.2.3".parse().unwrap();
    assert!(all.address_of_name(mapped, 5432, None).is_err());
    // By itself it is asked about, in each form.
    assert!(all.dials(&host("10.1.2.3"), address, 5432, None).is_ok());
    assert!(all.asks_of_connection(&host("10.1.2.3"), 5432).is_some());
    let mapped = HostPart::address(mapped);
    assert!(all.asks_of_connection(&mapped, 5432).is_some());
    // The control: without the question the name leads there.
    let all = network(&["db.example:5432", "10.0.0.0/8:5432"], &[], &[]);
    assert!(all.dials(&host("db.example"), address, 5432, None).is_ok());
}
