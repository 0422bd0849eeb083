//! Floods from the sandbox: of slow request heads, of endless ones, of certificates, of frames of
//! HTTP/2. A program may stand in its own way; the egress process stays small, the server receives
//! little of it, and a neighbour's run goes on.

use std::fs;
use std::time::Duration;

use e2e::internet::{is_possible, measured, measuring, on_servers};
use e2e::{Outcome, World};

const LONG: Duration = Duration::from_secs(400);
const SERVERS: &str = include_str!("upstreams/servers.py");
const FLOOD: &str = include_str!("floods/flood.py");

/// The most memory of its own that the egress process may take beyond a run without a flood, KiB.
const GROWTH_KIB_MAX: u64 = 48 * 1024;

/// The result of a flood.
struct Came {
    outcome: Outcome,
    /// Its output.
    told: String,
    /// The servers' records.
    noted: Vec<String>,
}

/// Makes a flood, with a neighbour who visits meanwhile, ten times.
fn flood(world: &World, way: &str) -> Came {
    world.write("flood.py", FLOOD);
    let visits = "for i in 1 2 3 4 5 6 7 8 9 10; do \
                  test \"$(curl -sS -m 60 --noproxy '*' http://example.com/ok)\" = ok || echo missed; sleep 0.2; done; \
                  echo visited";
    let neighbour = world.top().join("neighbour");
    let command = format!(
        "sh -c '(sleep 0.5; \"$ATOLL\" run --discard --allow example.com -- sh -c \"$0\") >{} 2>&1 & \"$@\"; status=$?; wait; exit $status' \"$0\" \
         {} \"$ATOLL\" run --discard --allow example.com --allow '*.example.com' --tunnel example.com:8443 -- python3 flood.py \"$@\"",
        neighbour.display(),
        measuring(world)
    );
    let run = on_servers(world, SERVERS, &["example.com"], &command);
    let outcome = run.args([visits, way]).within(LONG).run();
    let neighbour = fs::read_to_string(neighbour).unwrap();
    assert!(
        neighbour.starts_with("visited\n"),
        "{way}: {neighbour} {outcome}"
    );
    let noted = fs::read_to_string(world.top().join("internet/noted")).unwrap_or_default();
    Came {
        told: outcome.out().trim().to_owned(),
        noted: noted.lines().map(str::to_owned).collect(),
        outcome,
    }
}

/// Each way of a flood, and its reported result: a little of the same goes on.
const WAYS: &[[&str; 2]] = &[
    ["slow-heads", "True True"],
    ["endless-heads", "40 {'ended'} True"],
    ["certificates", "600 True True"],
    ["resets", "went on then error 11 True"],
    ["own-resets", "went on then error 11 True"],
    ["continuations", "went on 1 then error 11 and error 11 True"],
    ["unread", "True True"],
    ["streams", "True True"],
    ["unread-bodies", "4 True"],
];

#[test]
fn floods_from_inside_are_borne_and_leave_neighbours_alone() {
    let world = World::new("floods_from_inside_are_borne_and_leave_neighbours_alone");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let came = flood(&world, "nothing");
    assert_eq!(came.told, "True True", "{}", came.outcome);
    let ordinary = measured(&world);
    for [way, expected] in WAYS {
        let came = flood(&world, way);
        assert_eq!(came.told, *expected, "{way}: {}", came.outcome);
        let most = measured(&world);
        assert!(
            most < ordinary + GROWTH_KIB_MAX,
            "{way}: {most} KiB of memory, where {ordinary} KiB are ordinary"
        );
        // The neighbour's visits and the flood's own one, and little of what was taken back.
        let reached = came.noted.len();
        assert!((11..600).contains(&reached), "{way}: {reached} requests");
        println!("{way}: {most} KiB, {ordinary} of them as ever, {reached} requests");
    }
}

#[test]
fn an_upgrade_to_http_2_that_nobody_agreed_to_carries_nothing() {
    let world = World::new("an_upgrade_to_http_2_that_nobody_agreed_to_carries_nothing");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let came = flood(&world, "upgrade");
    assert_eq!(came.told, "200 no 101 True", "{}", came.outcome);
    assert!(
        !came.noted.iter().any(|line| line.contains("denied")),
        "{:?}",
        came.noted
    );
    let said = came.outcome.err();
    assert!(said.contains("found HTTP2 preface"), "{said}");
}
