//! Large profiles are written as policies that can be read back, with the same meaning.

use atoll_model::network::{
    Conditions, HostPart, Look as Carried, Meant, Network, NetworkRule, Request, RuleLimits,
    Scheme, Target,
};

use super::agreement::{allows, text_of};
use super::compiled;
use crate::{Asked, Follows, Look, Policies};

fn rule(text: &str) -> NetworkRule {
    let meant: Meant = text.parse().unwrap();
    NetworkRule {
        to: meant.to,
        way: meant.way,
        requests: meant.requests,
        limits: RuleLimits::default(),
        origin: "test".to_owned(),
    }
}

/// A rule about a host with these paths.
fn with_paths(host: &str, paths: impl Iterator<Item = String>) -> NetworkRule {
    let mut whole = rule(host);
    whole.requests = Conditions {
        paths: paths.map(|one| one.try_into().unwrap()).collect(),
        ..Conditions::default()
    };
    whole
}

/// Counts the allowed requests among these; text and rules have to agree on each.
fn requests(network: &Network, policies: &Policies, host: &str, targets: &[String]) -> usize {
    let host: HostPart = host.parse().unwrap();
    let all = targets.iter().filter(|target| {
        let target = Target::parse(target).unwrap();
        let request = Request {
            host: &host,
            port: 443,
            scheme: Scheme::Https,
            method: "GET",
            target: &target,
        };
        let rules = network.request(&request).is_ok();
        let cedar = allows(policies, Asked::Request(&request, Follows::Nothing));
        assert_eq!(rules, cedar, "{request:?}");
        cedar
    });
    all.count()
}

/// Counts the allowed ways to connect; text and rules have to agree on each.
fn connections(network: &Network, policies: &Policies, host: &str) -> usize {
    let host: &HostPart = &host.parse().unwrap();
    let all = [22, 80, 443, 8000].into_iter().flat_map(|port| {
        let found = network.connection(host, port).map(|(_, look)| look);
        [
            (port, Look::Into, found.is_ok()),
            (port, Look::Past, found == Ok(Carried::Past)),
        ]
    });
    let all = all.filter(|(port, look, rules)| {
        let (port, look) = (*port, *look);
        let cedar = allows(policies, Asked::Connect { host, port, look });
        assert_eq!(*rules, cedar, "{host}:{port} {look:?}");
        cedar
    });
    all.count()
}

#[test]
fn four_hundred_hosts_and_two_hundred_paths_are_read_back_and_mean_the_same() {
    // Short ones, whose row was too deep, and ones of which all are longer than a policy can be.
    let paths = [
        (0..120).map(|at| format!("/{at}")).collect::<Vec<_>>(),
        (0..200)
            .map(|at| format!("/repos/of-somebody/{at}*x/**"))
            .collect(),
    ];
    for (paths, is_denied) in paths.iter().flat_map(|one| [(one, false), (one, true)]) {
        let some = with_paths("api.example.com", paths.iter().cloned());
        let mut allow: Vec<NetworkRule> = (0..400)
            .map(|at| {
                rule(&format!(
                    "h{at}.example.org:{}",
                    if at % 2 == 0 { 443 } else { 22 }
                ))
            })
            .collect();
        // Each is looked into by itself, and no other for its sake.
        for one in allow.iter_mut().skip(100) {
            one.limits.body = Some(1);
        }
        let mut network = Network::default();
        if is_denied {
            allow.push(rule("api.example.com"));
            network.deny.push(some);
        } else {
            allow.push(some);
        }
        network.allow = allow;
        let text = text_of(&network);
        let policies = compiled(&text);
        assert!(policies.len() > 800, "{}", policies.len());
        let targets = paths.iter().step_by(7).map(|one| one.replace('*', "y"));
        let targets: Vec<String> = targets
            .chain(["/".to_owned(), "/repos".to_owned(), "/other/x".to_owned()])
            .collect();
        let allowed = requests(&network, &policies, "api.example.com", &targets);
        let expected = if is_denied { 3 } else { targets.len() - 3 };
        assert_eq!(allowed, expected);
        for (host, expected) in [
            ("h0.example.org", 1),
            ("h1.example.org", 2),
            ("h399.example.org", 2),
            ("h400.example.org", 0),
            ("api.example.com", 2),
        ] {
            assert_eq!(connections(&network, &policies, host), expected, "{host}");
        }
    }
}

/// Anything that one policy cannot express is not permitted by it: here, connections that no
/// earlier rule limits.
#[test]
fn what_is_limited_for_very_many_hosts_is_never_wider_in_the_text() {
    let limited = |many: usize| {
        let all = (0..many).map(|at| {
            let mut one = rule(&format!("h{at}.example.org:8000"));
            one.requests.methods = vec!["GET".to_owned()];
            one.limits.body = Some(1);
            one
        });
        Network {
            allow: all.chain([rule("*:*")]).collect(),
            ..Network::default()
        }
    };
    // As many as a policy says, in groups: the same.
    let few = limited(30);
    let policies = compiled(&text_of(&few));
    assert_eq!(connections(&few, &policies, "h7.example.org"), 5);
    assert_eq!(connections(&few, &policies, "other.org"), 6);
    let many = limited(300);
    let text = text_of(&many);
    assert!(text.contains("// looked into alone here"), "{text}");
    let policies = compiled(&text);
    let host: &HostPart = &"other.org".parse().unwrap();
    for (look, allowed) in [(Look::Into, true), (Look::Past, false)] {
        let asked = Asked::Connect {
            host,
            port: 8000,
            look,
        };
        assert_eq!(allows(&policies, asked), allowed);
    }
}

/// A pattern with as many segments as have names, each with a condition of three parts.
#[test]
fn the_longest_pattern_is_read_back() {
    let side = "/a*b".repeat(12);
    let allow = vec![with_paths(
        "example.com",
        [format!("{side}/**{side}")].into_iter(),
    )];
    let network = Network {
        allow,
        ..Network::default()
    };
    let policies = compiled(&text_of(&network));
    let good = "/axb".repeat(24);
    let targets = [good.clone(), "/axb".repeat(23), good.replace("axb", "ab")];
    assert_eq!(requests(&network, &policies, "example.com", &targets), 1);
}

#[test]
fn more_methods_than_a_list_has_entries_are_read_back() {
    let methods: Vec<String> = (0..600).map(|at| format!("M{at}")).collect();
    let mut some = rule("example.com");
    some.requests.methods = methods.clone();
    for is_denied in [false, true] {
        let mut network = Network::default();
        if is_denied {
            network.allow.push(rule("example.com"));
            network.deny.push(some.clone());
        } else {
            network.allow.push(some.clone());
        }
        let policies = compiled(&text_of(&network));
        let (host, target) = ("example.com".parse().unwrap(), Target::parse("/").unwrap());
        for (method, is_named) in [
            ("M0", true),
            ("M255", true),
            ("M256", true),
            ("M599", true),
            ("M600", false),
        ] {
            let request = Request {
                host: &host,
                port: 443,
                scheme: Scheme::Https,
                method,
                target: &target,
            };
            let asked = Asked::Request(&request, Follows::Nothing);
            assert_eq!(allows(&policies, asked), is_named != is_denied, "{method}");
            assert_eq!(network.request(&request).is_ok(), is_named != is_denied);
        }
    }
}
