//! Approvals of network destinations: who may require them, and what they allow.

use atoll_model::network::{HostPart, Network, Request, Scheme, Target};

use super::*;

/// Returns whether a request may be sent, and whether a person is asked first.
fn judged(network: &Network, method: &str, host: &str) -> (bool, bool) {
    let (host, target) = (
        host.parse::<HostPart>().unwrap(),
        Target::parse("/a").unwrap(),
    );
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

const TABLE: &str = "network.ask = ['a.example', { to = 'b.example', methods = ['POST'] }]";

#[test]
fn your_own_profile_opens_what_it_asks_about() {
    let network = world().profile("p", TABLE).with("p").boundary().network;
    assert_eq!(judged(&network, "GET", "a.example"), (true, true));
    assert_eq!(judged(&network, "POST", "b.example"), (true, true));
    assert!(!judged(&network, "GET", "b.example").0);
    assert!(!judged(&network, "GET", "c.example").0);
    let mut world = world()
        .profile("p", "network.allow = ['a.example']")
        .with("p");
    assert_eq!(
        judged(&world.boundary().network, "GET", "a.example"),
        (true, false)
    );
    world.requested.ask = vec!["a.example".to_owned(), "c.example".to_owned()];
    let network = world.boundary().network;
    assert_eq!(judged(&network, "GET", "a.example"), (true, true));
    assert_eq!(judged(&network, "GET", "c.example"), (true, true));
    // At every port that something opens.
    world.requested.allow = vec!["a.example:22".to_owned()];
    let network = world.boundary().network;
    assert!(
        network
            .asks_of_connection(&"a.example".parse().unwrap(), 22)
            .is_some()
    );
}

#[test]
fn a_lower_layer_asks_about_what_others_allow_and_opens_nothing() {
    let allowed = || {
        world()
            .profile("p", "network.allow = ['a.example', 'c.example']")
            .with("p")
    };
    for world in [allowed().project(TABLE), allowed().organisation(TABLE)] {
        let network = world.boundary().network;
        assert_eq!(judged(&network, "GET", "a.example"), (true, true));
        assert!(!judged(&network, "POST", "b.example").0, "it opens nothing");
        assert_eq!(judged(&network, "GET", "c.example"), (true, false));
    }
    // What is asked about is not allowed without a question by a lower layer.
    let above = world().profile("p", TABLE).with("p");
    let network = above
        .project("network.allow = ['a.example']")
        .boundary()
        .network;
    assert_eq!(judged(&network, "GET", "a.example"), (true, true));
    let denied = world().profile("p", TABLE).with("p");
    let network = denied
        .project("network.deny = ['a.example']")
        .boundary()
        .network;
    assert!(!judged(&network, "GET", "a.example").0);
    let none = world()
        .profile("p", TABLE)
        .with("p")
        .project("network = 'none'");
    assert!(none.boundary().network.is_empty());
    // Nobody opened anything: then nothing is carried.
    assert!(world().project(TABLE).boundary().network.is_empty());
}

#[test]
fn what_cannot_be_asked_about_is_a_mistake() {
    for (wrong, said) in [
        ("'https://a.example/x?y=1'", "query"),
        (
            "{ registry = 'npm', packages = ['left-pad'] }",
            "packages by their names",
        ),
        ("{ methods = ['POST'] }", "needs `to`"),
        ("'host.atoll.internal'", "each port is named"),
    ] {
        let world = world()
            .profile("p", &format!("network.ask = [{wrong}]"))
            .with("p");
        let error = world.error();
        assert!(error.contains(said), "{wrong}: {error}");
    }
}
