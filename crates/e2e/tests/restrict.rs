//! Runs that give up rights for good: by a person outside, and by their own program.

use std::fs;
use std::time::Duration;

use e2e::internet::{Seen, events, is_possible, on_internet, without_namespaces};
use e2e::{Avoidable, World, is_root};
use serde_json::Value;

const OUTSIDE: &str = include_str!("restrict/outside.py");
const INSIDE: &str = include_str!("restrict/inside.sh");
/// Prints the status of a request.
const CURL: &str = "curl -s -m 20 --noproxy '*' -o answer -w '%{http_code}\\n'";

/// Has a person act out a scene with runs of this script.
fn scene(world: &World, scene: &str, options: &str, script: &str, atoll: Option<&str>) -> Seen {
    let outside = world.top().join("outside.py");
    fs::write(&outside, OUTSIDE).unwrap();
    let command = format!("python3 '{}' \"$@\"", outside.display());
    let mut run = on_internet(world, &command);
    run = run.env("ATOLL_BIN", std::env::var("ATOLL_BIN").unwrap());
    if let Some(atoll) = atoll {
        run = run.env("ATOLL", atoll);
    }
    let run = run.args(["sh", options, script, scene]);
    Seen::of(world, run.within(Duration::from_secs(300)).run())
}

#[test]
fn what_a_person_gives_up_for_a_run_is_denied_from_then_on_and_open_tunnels_end() {
    let world =
        World::new("what_a_person_gives_up_for_a_run_is_denied_from_then_on_and_open_tunnels_end");
    if !is_possible(&world, &[]) {
        return;
    }
    let tunnel = "import socket\n\
        one = socket.create_connection((\"example.com\", 7))\n\
        one.sendall(b\"x\"); assert one.recv(1) == b\"x\"\n\
        open(\"open\", \"w\").close()\n\
        try: print(\"tunnel ended\", one.recv(1) == b\"\")\n\
        except OSError: print(\"tunnel ended\", True)\n";
    world.write("tunnel.py", tunnel);
    let script = format!(
        "echo before $({CURL} http://example.com/before); \
         python3 tunnel.py & while [ ! -e restricted ]; do sleep 0.05; done; wait; \
         echo after $({CURL} http://example.com/after); \
         echo by a proxy $(curl -s -m 20 -o answer -w '%{{http_code}}' -x http://proxy.atoll.internal:3128 \
         http://example.com/after); cat answer; \
         echo other $({CURL} http://93.184.216.35/other); touch second; \
         while [ ! -e closed ]; do sleep 0.05; done; \
         echo closed $({CURL} http://93.184.216.35/closed)"
    );
    let options = "--live --allow example.com --allow example.com:7 --allow 93.184.216.35";
    let seen = scene(&world, "outside", options, &script, None);
    let out = seen.output();
    for line in [
        "before 200",
        "nothing 125",
        "port 125",
        "host 0",
        "tunnel ended True",
        "after 000",
        "by a proxy 403",
        "other 200",
        "until 0",
        "closed 000",
        "ended 0",
    ] {
        let is_there = out.lines().any(|one| one == line);
        assert!(is_there, "{line}: {}", seen.outcome);
    }
    assert!(out.contains("the right to it was given up at 2"), "{out}");
    // What is there already is told as that.
    for words in [
        "Nothing more is given up by ",
        "Given up before: host example.com.",
    ] {
        assert!(out.contains(words), "{words}: {}", seen.outcome);
    }
    assert!(out.contains("Nobody gives it back"), "{out}");
    assert!(seen.first.contains("GET /other"), "{}", seen.first);
    assert!(!seen.first.contains("GET /after"), "{}", seen.first);
    assert!(!seen.first.contains("GET /closed"), "{}", seen.first);
    let given = events(&world, "rights.given-up");
    assert_eq!(given.len(), 2, "{given:?}");
    assert_eq!(given[0]["host"], "example.com", "{given:?}");
    assert_eq!(given[0]["by"], "person", "{given:?}");
    assert!(given[1]["until"].is_u64(), "{given:?}");
    let why = world.atoll(["why", "last"]).run().success();
    assert!(
        why.out().contains("the right to it was given up at"),
        "{why}"
    );
}

/// Checks the rights that a program in the sandbox gives up, however it tries to get them back.
fn from_inside(world: &World, atoll: Option<&str>) {
    let options = "--live --allow example.com --allow 93.184.216.35";
    let script = INSIDE.replace("CURL", CURL);
    let seen = scene(world, "inside", options, &script, atoll);
    let out = seen.output();
    for line in [
        "before 200",
        "nothing yet {\"given_up\":[]}",
        "form 415",
        "forged 400",
        "widened 400",
        "empty 400",
        "huge 413",
        "deleted 405",
        "elsewhere 404",
        "given 200",
        "after 000",
        "child 000",
        "later 200",
        "again 000",
        "other 200",
        "flooded 429",
        "by itself 0",
        "closed 000",
        "by a proxy 200",
        "ended 0",
    ] {
        let is_there = out.lines().any(|one| one == line);
        assert!(is_there, "{line}: {}", seen.outcome);
    }
    let given = out.lines().find_map(|one| one.strip_prefix("told "));
    let given: Value = serde_json::from_str(given.unwrap()).unwrap();
    for (list, host) in [("new", "www.example.com"), ("given_up", "example.com")] {
        let one = &given[list][0];
        let kind = (&one["kind"], &one["by"]);
        assert_eq!(kind, (&"hosts".into(), &"program".into()), "{given}");
        assert_eq!(one["hosts"], serde_json::json!([host]), "{given}");
        let why = one["why"].as_str().unwrap();
        assert!(why.contains("by the program itself"), "{given}");
    }
    for words in [
        "Given up by this run, for good: the network.",
        "Given up before: ",
    ] {
        assert!(out.contains(words), "{words}: {}", seen.outcome);
    }
    for path in ["/after", "/child", "/again", "/closed"] {
        let path = format!("GET {path}");
        assert!(!seen.first.contains(&path), "{path}: {}", seen.first);
    }
    let given = events(world, "rights.given-up");
    // Each once, and no more than there can be.
    assert_eq!(given.len(), 65, "{given:?}");
    assert!(given.iter().all(|one| one["by"] == "program"), "{given:?}");
    assert_eq!(given[64]["network"], true, "{given:?}");
}

#[test]
fn what_a_program_gives_up_it_never_has_again() {
    let world = World::new("what_a_program_gives_up_it_never_has_again");
    if is_possible(&world, &[]) {
        from_inside(&world, None);
    }
}

#[test]
fn what_a_fenced_program_gives_up_it_never_has_again() {
    let world = World::new("what_a_fenced_program_gives_up_it_never_has_again");
    if is_root() {
        return world.skip("root has namespaces", Avoidable::No);
    }
    if is_possible(&world, &[]) {
        let atoll = without_namespaces(&world).display().to_string();
        from_inside(&world, Some(&atoll));
    }
}

#[test]
fn what_a_run_of_a_session_gave_up_its_later_runs_do_not_have() {
    let world = World::new("what_a_run_of_a_session_gave_up_its_later_runs_do_not_have");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!(
        "{CURL} http://example.com/run; [ -e given ] && exit; \
         curl -s --json '{{\"deny-hosts\": [\"example.com\"]}}' http://atoll.internal/restrict \
         && touch given; sleep 600"
    );
    let options = "--live --no-tty --allow example.com";
    let seen = scene(&world, "session", options, &script, None);
    let out = seen.output();
    let statuses: Vec<&str> = out.lines().filter(|one| one.len() == 3).collect();
    // The control: a run of no session has it still.
    assert_eq!(statuses, ["200", "000", "200"], "{}", seen.outcome);
    // The second one says so before it starts, and sessions are listed with it.
    let told = "atoll: the session has given up host example.com, by the program itself at ";
    let err = seen.outcome.err();
    let lines = err.lines().filter(|line| line.starts_with(told));
    assert_eq!(lines.count(), 1, "{}", seen.outcome);
    let listed = world.atoll(["sessions"]).run().success().out();
    let told = "    given up, for good: host example.com, by the program itself";
    assert!(listed.contains(told), "{listed}");
}
