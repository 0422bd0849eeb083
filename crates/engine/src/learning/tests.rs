use atoll_ledger::{Position, TreeHash};
use atoll_model::RunId;
use atoll_model::network::{Network, Request};
use proptest::prelude::ProptestConfig;
use serde_json::json;

use super::*;

fn event(kind: &str, body: Value) -> Event {
    Event {
        position: Position {
            seq: 0,
            leaf: TreeHash::ZERO,
            segment: 1,
            offset: 0,
        },
        prev: TreeHash::ZERO,
        time: "2026-11-21T09:30:12.123456Z".to_owned(),
        run: RunId::parse("261121-093012-k7qd").ok(),
        kind: kind.to_owned(),
        body,
    }
}

fn opened(rule: &str, mut body: Value) -> Event {
    body["rule"] = json!(rule);
    event("flow.opened", body)
}

fn learnt(body: Value) -> Event {
    opened(&NetworkRule::learning().told(), body)
}

fn request(method: &str, host: &str, path: &str) -> Event {
    learnt(json!({
        "kind": "request", "host": host, "port": 443, "scheme": "https", "method": method, "path": path,
    }))
}

fn proposed(events: &[Event]) -> String {
    as_profile(&rules(events.iter()))
}

#[test]
fn what_was_reached_becomes_the_smallest_rules() {
    let events = [
        request("POST", "api.example.com", "/v1/items"),
        request("GET", "api.example.com", "/v1/items"),
        request("GET", "api.example.com", "/v1/items"),
        request("GET", "one.example", "/a/b"),
        learnt(
            json!({ "kind": "tunnel", "host": "git.example", "port": 22, "address": "192.0.2.1" }),
        ),
        learnt(
            json!({ "kind": "tunnel", "host": "192.0.2.7", "port": 5432, "address": "192.0.2.7" }),
        ),
        // What a rule had allowed before is not learnt.
        opened(
            "known.example (--allow)",
            json!({ "kind": "tunnel", "host": "known.example", "port": 443 }),
        ),
        // What is no host is no rule.
        learnt(json!({ "kind": "tunnel", "host": "a b", "port": 443 })),
    ];
    assert_eq!(
        proposed(&events),
        "[network]\nallow = [\n    \
         \"192.0.2.7:5432\",\n    \
         \"GET,POST https://api.example.com/v1/items\",\n    \
         \"git.example:22\",\n    \
         \"GET https://one.example/a/b\",\n]\n"
    );
}

#[test]
fn many_paths_become_what_they_share_and_unclear_ones_none() {
    let many = |prefix: &str| -> Vec<Event> {
        (0..20)
            .map(|one| request("GET", "a.example", &format!("{prefix}/{one}/x")))
            .collect()
    };
    assert!(proposed(&many("/v1/items")).contains("\"GET https://a.example/v1/items/**\""));
    assert!(proposed(&many("")).contains("\"GET https://a.example\""));
    for path in ["/a//b", "/a/%2F", "/a*b", "/a;b", "/cut…", "*"] {
        let events = [
            request("GET", "a.example", "/x"),
            request("GET", "a.example", path),
        ];
        assert!(
            proposed(&events).contains("\"GET https://a.example\""),
            "{path}"
        );
    }
    let odd = [request("X'$(id)'", "a.example", "/x")];
    assert!(
        proposed(&odd).contains("\"https://a.example/x\""),
        "{}",
        proposed(&odd)
    );
    let two = [
        request("GET", "a.example", "/x"),
        request("GET", "a.example", "/y"),
    ];
    assert!(
        proposed(&two).contains("{ to = \"a.example:443\", methods = [\"GET\"], paths = [\"/x\", \"/y\"], scheme = \"https\" }"),
        "{}",
        proposed(&two)
    );
}

#[test]
fn what_was_not_reached_is_not_learnt() {
    let mut gone = request("GET", "gone.example", "/");
    gone.body["flow"] = json!(1);
    let mut there = request("GET", "there.example", "/");
    there.body["flow"] = json!(2);
    let ended = event(
        "flow.closed",
        json!({ "flow": 1, "failure": "DNS lookup failed", "unreached": true }),
    );
    let told = proposed(&[gone, there, ended]);
    assert!(
        told.contains("there.example") && !told.contains("gone.example"),
        "{told}"
    );
}

const METHODS: [&str; 3] = ["GET", "POST", "PUT"];
const PATHS: [&str; 12] = [
    "/", "/a", "/b", "/v1", "/v1/a", "/v1/b", "/v1/c", "/v1/d/e", "/v1/d/f", "/v1/g", "/v1/h",
    "/v2/a",
];

/// Returns the deepest directory, with its final slash, that contains all of these; `/` if there is
/// no other.
fn shared(paths: &BTreeSet<&str>) -> String {
    let first = paths.first().copied().unwrap_or_default();
    let ends = first.match_indices('/').map(|(at, _)| at);
    let mut directories = ends.filter_map(|at| first.get(..=at));
    let is_shared = |one: &&str| paths.iter().all(|path| path.starts_with(one));
    directories.rfind(is_shared).unwrap_or("/").to_owned()
}

fn is_allowed(network: &Network, method: &str, path: &str) -> bool {
    let (host, target) = ("a.example".parse().unwrap(), Target::parse(path).unwrap());
    let request = Request {
        host: &host,
        port: 443,
        scheme: Scheme::Https,
        method,
        target: &target,
    };
    network.request(&request).is_ok()
}

proptest::proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn learnt_rules_allow_what_was_seen_and_no_more(
        seen in proptest::collection::vec((0..METHODS.len(), 0..PATHS.len()), 1..24)
    ) {
        let seen = seen.iter().map(|(method, path)| (METHODS[*method], PATHS[*path]));
        let seen: BTreeSet<(&str, &str)> = seen.collect();
        let events = seen.iter().map(|(method, path)| request(method, "a.example", path));
        let events: Vec<Event> = events.collect();
        let of_used = used(events.iter()).into_iter().map(|(meant, _)| meant);
        for rules in [rules(events.iter()), of_used.collect()] {
            let allow = rules.into_iter().map(|meant| NetworkRule {
                to: meant.to,
                way: meant.way,
                requests: meant.requests,
                limits: meant.limits,
                origin: String::new(),
            });
            let network = Network { allow: allow.collect(), ..Network::default() };
            for method in METHODS {
                let own = seen.iter().filter(|(of, _)| *of == method);
                let own: BTreeSet<&str> = own.map(|(_, path)| *path).collect();
                for path in PATHS {
                    // A pattern that ends with `/**` is of the directory itself too.
                    let within = format!("{path}/").starts_with(&shared(&own));
                    let is_widened = own.len() > PATHS_MAX && within;
                    proptest::prop_assert_eq!(
                        is_allowed(&network, method, path),
                        own.contains(path) || is_widened,
                        "{} {}",
                        method,
                        path
                    );
                }
            }
        }
    }
}
