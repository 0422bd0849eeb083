//! Ports inside that programs of the host visit, on a network of each test's own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::fs;
use std::time::Duration;

use e2e::internet::{Seen, events, is_possible, on_internet};
use e2e::{Avoidable, World, is_root};

const INSIDE: &str = include_str!("published/inside.py");
const VISIT: &str = include_str!("published/visit.py");

/// Runs the visits, with these options of the run.
fn visit(world: &World, options: &[&str]) -> Seen {
    world.write("inside.py", INSIDE);
    let script = world.top().join("visit.py");
    fs::write(&script, VISIT).unwrap();
    let command = format!("python3 '{}' \"$@\"", script.display());
    let run = on_internet(world, &command).env("INTERNET_PORTS", "22");
    let run = run.args(["sh", "inside.py"]).args(options);
    Seen::of(world, run.within(Duration::from_secs(300)).run())
}

const PUBLISH: [&str; 6] = [
    "--publish",
    "8080:3000",
    "--publish",
    "0:3001",
    "--publish",
    "5000",
];

#[test]
fn a_published_port_leads_to_what_listens_inside_and_to_nothing_else() {
    let world = World::new("a_published_port_leads_to_what_listens_inside_and_to_nothing_else");
    if !is_possible(&world, &[]) {
        return;
    }
    let seen = visit(&world, &PUBLISH);
    assert_eq!(
        seen.output(),
        "early True\n\
         port 3000 for 127.0.0.1:8080\n\
         port 3000 for [::1]:8080\n\
         port 3001 for 127.0.0.1:3001\n\
         not 3000 ConnectionRefusedError\n\
         not 4000 ConnectionRefusedError\n\
         not 15001 ConnectionRefusedError\n\
         large True\n\
         many 150\n\
         at once 100\n\
         another user True\n\
         ended 0 ConnectionRefusedError\n\
         held ended",
        "{}",
        seen.outcome
    );
    let outcome = seen.outcome.says([
        "http://127.0.0.1:8080 leads to port 3000 inside",
        "http://127.0.0.1:3001 leads to port 3001 inside",
    ]);
    if is_root() {
        let _ = outcome.says(["a visit to port 3000 inside: it came from user 61234"]);
        let refused = events(&world, "flow.refused");
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert_eq!(refused[0]["kind"], "published");
    }
    let (opened, closed) = (events(&world, "flow.opened"), events(&world, "flow.closed"));
    assert_eq!(opened.len(), closed.len());
    let of = |port: u64| opened.iter().filter(move |one| one["port"] == port);
    assert_eq!(of(5000).count(), 101);
    assert_eq!(of(3001).count(), 1);
    // The one that came before the server did, and those that ended the run.
    assert_eq!(of(3000).count(), 1 + 2 + 150 + 2);
    for one in &opened {
        assert_eq!(
            (&one["kind"], &one["host"]),
            (&"published".into(), &"localhost".into())
        );
    }
    assert_eq!(
        of(3000).next().unwrap()["rule"],
        "publish 8080:3000 (--publish)"
    );
    let large = 48 << 20;
    let is_large = |one: &&serde_json::Value| one["down_bytes"] == large;
    let large = closed.iter().find(is_large).expect("the large one");
    assert!(large["up_bytes"].as_u64().unwrap() > 48 << 20, "{large}");
    let decided = events(&world, "run.opened");
    assert_eq!(decided[0]["decision"]["network"]["publish"][0], "8080:3000");
}

/// Nothing inside reaches more because a port is published, and other rules hold beside.
#[test]
fn what_is_published_opens_no_way_out() {
    let world = World::new("what_is_published_opens_no_way_out");
    if !is_possible(&world, &[]) {
        return;
    }
    let tries = "for to in example.com:22 93.184.216.34:22 host.atoll.internal:22 \
                 host.atoll.internal:8080 10.1.2.3:22; do \
                 curl -sS -m 60 --http0.9 --noproxy '*' http://$to/ > got 2>&1; grep -q SSH got && echo reached $to; \
                 done; python3 -m http.server -b 127.0.0.1 8080 > /dev/null 2>&1 & for i in $(seq 600); do \
                 curl -sS -m 60 -o /dev/null http://127.0.0.1:8080/ 2> /dev/null && echo its own && break; sleep 0.1; done";
    let run = |options: &[&str]| {
        let command = "\"$ATOLL\" run --discard --publish 8080 \"$@\"";
        let run = on_internet(&world, command).arg("sh").args(options);
        Seen::of(&world, run.args(["--", "sh", "-c", tries]).run())
    };
    let seen = run(&[]);
    assert_eq!(seen.output(), "its own", "{}", seen.outcome);
    assert!(seen.asked.is_empty() && seen.reached.is_empty(), "{seen:?}");
    let seen = run(&["--allow", "93.184.216.34:22"]);
    assert_eq!(
        seen.output(),
        "reached 93.184.216.34:22\nits own",
        "{}",
        seen.outcome
    );
    assert_eq!(seen.reached, ["93.184.216.34 22"]);
}

#[test]
fn a_port_that_is_taken_is_told_with_who_has_it_before_anything_starts() {
    let world = World::new("a_port_that_is_taken_is_told_with_who_has_it_before_anything_starts");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let script = "echo started; echo > made";
    let told = world
        .run(["--live", "--publish", &format!("{port}:80")], script)
        .run();
    let own = format!("(process {}) listens there already", std::process::id());
    let told = told.expect_status(125);
    let _ = told.says([
        &format!("port {port} of this host cannot be published")[..],
        &own,
        &format!("--publish {}:80", port + 1),
    ]);
    assert_eq!(told.out(), "");
    assert!(!world.path("made").exists());
    // The record says so too, and nothing is left of the run.
    let failed = world.atoll(["why", "last"]).run().success();
    assert!(failed.out().contains("listens there already"), "{failed}");
    if !is_root() {
        let told = world.run(["--publish", "80"], script).run();
        let _ = told
            .expect_status(125)
            .says(["ports below 1024", "--publish 8080:80"]);
    }
}

#[test]
fn a_fence_publishes_nothing_and_says_why() {
    let world = World::new("a_fence_publishes_nothing_and_says_why");
    if is_root() {
        world.skip("root always has namespaces", Avoidable::No);
        return;
    }
    let run = world.run(["--publish", "3000"], "echo started");
    let told = run.without_namespaces().run().expect_status(126);
    let _ = told.says(["publishing port 3000", "on this host's loopback already"]);
    assert_eq!(told.out(), "");
}
