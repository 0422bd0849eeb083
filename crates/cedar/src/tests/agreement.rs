//! The Cedar text of a profile decides as the profile's rules do.

use atoll_model::WorkspaceMode;
use atoll_model::network::{
    Conditions, Destination, HostName, HostPart, HostPattern, Look as Carried, Meant, Network,
    NetworkRule, PathPattern, Request, RuleLimits, Scheme, Target, Way,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::{compiled, facts, principal};
use crate::{Asked, Effect, Follows, Granted, Look, Policies, Question, written};

const DESTINATIONS: [&str; 14] = [
    "example.com",
    "api.example.com",
    "*.example.com",
    "*.example.com:443",
    "*",
    "*:*",
    "example.com:*",
    "example.com:22",
    "api.example.com:22,8000-8080",
    "10.0.0.0/8",
    "10.1.2.3:22",
    "[2001:db8::/32]:*",
    "host.atoll.internal:8080",
    "host.atoll.internal",
];
const HOSTS: [&str; 9] = [
    "example.com",
    "api.example.com",
    "a.b.api.example.com",
    "badexample.com",
    "other.org",
    "10.1.2.3",
    "192.0.2.1",
    "[2001:db8::1]",
    "host.atoll.internal",
];
const PORTS: [u16; 6] = [22, 80, 443, 8000, 8080, 9999];
const PATTERNS: [&str; 20] = [
    "/v1/**",
    "/v1",
    "/v1/",
    "/",
    "/**",
    "/*",
    "/*/x",
    "/v1/*/x",
    "/repos/*/git/**",
    "/repos/**/info",
    "/**/info",
    "/a*b",
    "/v1/a*b/**",
    "/**/a*b/*",
    "/v1/x?q=1",
    "/V1/X",
    "/v%20b",
    "/a/**/",
    "/b*/**/",
    "/v1/**?q=1",
];
const TARGETS: [&str; 40] = [
    "/",
    "/v1",
    "/v1/",
    "/V1",
    "/v1/x",
    "/v1/x/",
    "/v1/x/x",
    "/v1/y/x",
    "/v1/%78",
    "/v1/x?q=1",
    "/v1/x?",
    "/v1/x?q=2",
    "/v1//x",
    "/v1/../x",
    "/v1/;a",
    "/ab",
    "/aXb",
    "/aXYb",
    "/AXB",
    "/v1/aXb",
    "/v1/ab/y",
    "/v1/aXb/y/z",
    "/q/aXb/z",
    "/q/r/aXb/z",
    "/aXb/z",
    "/repos/o/git",
    "/repos/o/git/x",
    "/repos/o/p/git/x",
    "/repos/info",
    "/repos/a/b/info",
    "/info",
    "/x/info/",
    "/v%20b",
    "/V%20B/",
    "/v1%2Fx",
    "/a/",
    "/a/x/",
    "/bc/q/",
    "/%ff",
    "*",
];
const METHODS: [&str; 5] = ["GET", "get", "POST", "PUT", "Get"];

fn way() -> impl Strategy<Value = Way> {
    prop_oneof![3 => Just(Way::Usual), 1 => Just(Way::Inspect), 1 => Just(Way::Tunnel)]
}

prop_compose! {
    fn rule()(
        to in 0..DESTINATIONS.len(),
        way in way(),
        scheme in prop_oneof![3 => Just(None), 1 => Just(Some(Scheme::Http)), 1 => Just(Some(Scheme::Https))],
        methods in prop_oneof![2 => Just(vec![]), 1 => vec(prop::sample::select(vec!["GET", "POST"]), 1..3)],
        paths in prop_oneof![2 => Just(vec![]), 2 => vec(0..PATTERNS.len(), 1..3)],
        is_limited in prop::bool::weighted(0.3),
    ) -> NetworkRule {
        let path = |at: usize| PathPattern::try_from(PATTERNS[at].to_owned()).unwrap();
        let mut meant = Meant::from(DESTINATIONS[to].parse::<Destination>().unwrap());
        // A tunnel is not looked into, so nothing is said of its requests.
        if way != Way::Tunnel {
            meant.requests = Conditions {
                scheme,
                methods: methods.into_iter().map(str::to_owned).collect(),
                paths: paths.into_iter().map(path).collect(),
                packages: None,
            };
        }
        let limits = match is_limited {
            true => RuleLimits { body: Some(1), ..RuleLimits::default() },
            false => RuleLimits::default(),
        };
        NetworkRule { to: meant.to, way, requests: meant.requests, limits, origin: "test".to_owned() }
    }
}

prop_compose! {
    fn network()(allow in vec(rule(), 0..5), mut deny in vec(rule(), 0..3)) -> Network {
        for rule in &mut deny {
            rule.limits = RuleLimits::default();
        }
        Network { allow, deny, ..Network::default() }
    }
}

pub(super) fn text_of(network: &Network) -> String {
    written(&Granted {
        profile: "test",
        network,
        credentials: &[],
        places: &[],
        workspace: (WorkspaceMode::CopyOnWrite, None),
        root: false,
        nesting: false,
        started: &[],
        asks: &[],
    })
}

pub(super) fn allows(policies: &Policies, asked: Asked<'_>) -> bool {
    let (principal, facts) = (principal(), facts());
    let question = Question {
        principal: &principal,
        asked,
        facts: &facts,
    };
    let decision = policies.authorize(&question);
    assert!(
        decision.errors.is_empty(),
        "{asked:?}: {:?}",
        decision.errors
    );
    let whole = policies.authorize_unindexed(&question);
    assert_eq!(decision, whole, "{asked:?}");
    decision.effect == Effect::Allow
}

/// The number of comparisons by answer: an answer that never comes up proves nothing.
#[derive(Debug, Default)]
struct Seen {
    allowed: usize,
    denied: usize,
}

fn compare(network: &Network, seen: &mut Seen) {
    let text = text_of(network);
    let policies = compiled(&text);
    let mut check = |what: String, rules: bool, asked: Asked<'_>| {
        assert_eq!(
            rules,
            allows(&policies, asked),
            "{what}\n{network:#?}\n{text}"
        );
        match rules {
            true => seen.allowed += 1,
            false => seen.denied += 1,
        }
    };
    for host in HOSTS {
        let host: HostPart = host.parse().unwrap();
        if let HostPart::Name(name) = &host {
            check(
                format!("{name}"),
                network.name(name).is_ok(),
                Asked::Resolve(name),
            );
        }
        for port in PORTS {
            let found = network.connection(&host, port).map(|(_, look)| look);
            for (look, allowed) in [
                (Look::Into, found.is_ok()),
                (Look::Past, found == Ok(Carried::Past)),
            ] {
                let host = &host;
                check(
                    format!("{host}:{port} {look:?}"),
                    allowed,
                    Asked::Connect { host, port, look },
                );
            }
        }
    }
}

fn compare_requests(
    network: &Network,
    seen: &mut Seen,
    pick: &[(usize, usize, usize, usize, bool)],
) {
    let text = text_of(network);
    let policies = compiled(&text);
    for (host, port, method, target, is_https) in pick {
        let host: HostPart = HOSTS[*host].parse().unwrap();
        let target = Target::parse(TARGETS[*target]).unwrap();
        let request = Request {
            host: &host,
            port: PORTS[*port],
            scheme: if *is_https {
                Scheme::Https
            } else {
                Scheme::Http
            },
            method: METHODS[*method],
            target: &target,
        };
        let rules = network.request(&request).is_ok();
        let cedar = allows(&policies, Asked::Request(&request, Follows::Nothing));
        assert_eq!(rules, cedar, "{request:?}\n{network:#?}\n{text}");
        match rules {
            true => seen.allowed += 1,
            false => seen.denied += 1,
        }
    }
}

fn pick() -> impl Strategy<Value = Vec<(usize, usize, usize, usize, bool)>> {
    let one = (
        0..HOSTS.len(),
        1..4_usize,
        0..METHODS.len(),
        0..TARGETS.len(),
        any::<bool>(),
    );
    vec(one, 60)
}

#[test]
fn names_and_connections_are_decided_by_the_text_as_by_the_rules() {
    let mut seen = Seen::default();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(60));
    let seen_by_run = std::cell::RefCell::new(&mut seen);
    runner
        .run(&network(), |network| {
            compare(&network, &mut seen_by_run.borrow_mut());
            Ok(())
        })
        .unwrap();
    assert!(seen.allowed > 200 && seen.denied > 200, "{seen:?}");
}

#[test]
fn requests_are_decided_by_the_text_as_by_the_rules() {
    let mut seen = Seen::default();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(120));
    let seen_by_run = std::cell::RefCell::new(&mut seen);
    runner
        .run(&(network(), pick()), |(network, pick)| {
            compare_requests(&network, &mut seen_by_run.borrow_mut(), &pick);
            Ok(())
        })
        .unwrap();
    assert!(seen.allowed > 200 && seen.denied > 200, "{seen:?}");
}

/// Compares every pattern with every target, allowed and denied.
#[test]
fn every_pattern_of_paths_means_the_same() {
    let mut seen = Seen::default();
    for (pattern, is_denied) in PATTERNS.iter().flat_map(|one| [(one, false), (one, true)]) {
        let to: Destination = "example.com".parse().unwrap();
        let mut rule = NetworkRule {
            to,
            way: Way::Usual,
            requests: Conditions::default(),
            limits: RuleLimits::default(),
            origin: "test".to_owned(),
        };
        let whole = rule.clone();
        rule.requests.paths = vec![PathPattern::try_from((*pattern).to_owned()).unwrap()];
        let network = match is_denied {
            true => Network {
                allow: vec![whole],
                deny: vec![rule],
                ..Network::default()
            },
            false => Network {
                allow: vec![rule],
                ..Network::default()
            },
        };
        let all: Vec<_> = (0..TARGETS.len())
            .map(|target| (0, 2, 0, target, true))
            .collect();
        compare_requests(&network, &mut seen, &all);
    }
    assert!(seen.allowed > 100 && seen.denied > 100, "{seen:?}");
}

/// Anything that the text cannot express is no wider in it than in the rules.
#[test]
fn what_has_no_policy_is_denied() {
    let deep = format!("/{}**", "a/".repeat(20));
    let text: Meant = format!("GET https://example.com{deep}").parse().unwrap();
    let rule = |meant: &Meant| NetworkRule {
        to: meant.to.clone(),
        way: meant.way,
        requests: meant.requests.clone(),
        limits: RuleLimits::default(),
        origin: "test".to_owned(),
    };
    let host: HostPart = "example.com".parse().unwrap();
    let target = Target::parse(&deep.replace("**", "x")).unwrap();
    let request = Request {
        host: &host,
        port: 443,
        scheme: Scheme::Https,
        method: "GET",
        target: &target,
    };
    let allowed = Network {
        allow: vec![rule(&text)],
        ..Network::default()
    };
    assert!(allowed.request(&request).is_ok());
    assert!(!allows(
        &compiled(&text_of(&allowed)),
        Asked::Request(&request, Follows::Nothing)
    ));
    let whole: Meant = "example.com".parse().unwrap();
    let denied = Network {
        allow: vec![rule(&whole)],
        deny: vec![rule(&text)],
        ..Network::default()
    };
    assert!(!allows(
        &compiled(&text_of(&denied)),
        Asked::Request(&request, Follows::Nothing)
    ));
    // And without that rule it would be allowed.
    let open = Network {
        allow: vec![rule(&whole)],
        ..Network::default()
    };
    assert!(allows(
        &compiled(&text_of(&open)),
        Asked::Request(&request, Follows::Nothing)
    ));
}

#[test]
fn what_a_file_says_of_a_rule_stays_in_its_comment() {
    let mut rule = NetworkRule::learning();
    rule.to = Destination {
        host: HostPattern::Exact(HostName::parse("example.com").unwrap()),
        ports: rule.to.ports,
    };
    rule.origin = "x\npermit(principal, action, resource);//\u{202e}".to_owned();
    let network = Network {
        allow: vec![rule],
        ..Network::default()
    };
    let policies = compiled(&text_of(&network));
    let other = HostName::parse("other.org").unwrap();
    assert!(!allows(&policies, Asked::Resolve(&other)));
    assert!(allows(
        &policies,
        Asked::Resolve(&HostName::parse("example.com").unwrap())
    ));
}
