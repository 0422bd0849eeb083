//! Rules about requests, presets and learning, on a small internet of each test's own.

use std::fs;

use e2e::World;
use e2e::internet::{is_possible, online};
use serde_json::Value;

const CURL: &str = "curl -sS -m 10 --noproxy '*'";

/// Returns the report of `atoll why` on the last run.
fn why(world: &World) -> String {
    world.atoll(["why", "last"]).run().success().out()
}

fn told(path: &std::path::Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn what_a_rule_about_requests_does_not_allow_reaches_nobody() {
    let world = World::new("what_a_rule_about_requests_does_not_allow_reaches_nobody");
    if !is_possible(&world, &[]) {
        return;
    }
    let forms = [
        "http://example.com/secret",
        "http://example.com/open/../secret",
        "http://example.com/open/%2e%2e/secret",
        "http://example.com//secret",
        "http://example.com/open;x/secret",
        "http://example.com/open%2f..%2fsecret",
        "http://example.com/SECRET",
    ];
    let script: String = forms
        .iter()
        .map(|form| format!("{CURL} --path-as-is '{form}'; "))
        .collect();
    let script = format!("{script} {CURL} -X POST http://example.com/open/secret; true");
    for options in [
        &["--allow", "GET http://example.com/open/**"][..],
        &[
            "--allow",
            "example.com",
            "--deny",
            "http://example.com/**/secret",
        ],
        &[
            "--tunnel",
            "example.com",
            "--deny",
            "http://example.com/**/secret",
        ],
    ] {
        let seen = online(&world, options, &script);
        let lower = seen.first.to_ascii_lowercase();
        assert!(!lower.contains("secret"), "{options:?}: {}", seen.first);
        assert!(!seen.outcome.out().contains("this is"), "{}", seen.outcome);
    }
    // The control: without those rules the same requests arrive as they were written.
    for options in [["--allow", "example.com"], ["--tunnel", "example.com"]] {
        let seen = online(&world, &options, &script);
        assert_eq!(seen.first.matches("secret").count(), 7, "{}", seen.first);
        assert!(
            seen.first.contains("GET /open%2f..%2fsecret"),
            "{}",
            seen.first
        );
    }
}

#[test]
fn what_is_learnt_allows_the_same_again_and_nothing_private() {
    let world = World::new("what_is_learnt_allows_the_same_again_and_nothing_private");
    if !is_possible(&world, &[]) {
        return;
    }
    let ssh = "python3 -c 'import socket; print(socket.create_connection((\"example.com\", 22)).recv(64).decode().strip())'";
    let script = format!("{CURL} http://example.com/a; {ssh}");
    let denied = format!(
        "{script}; for host in other.example private.example 10.1.2.3 169.254.169.254; do \
         {CURL} -o /dev/null http://$host/; done; true"
    );
    let json = world.top().join("outcome.json");
    let path = json.display().to_string();
    let options = ["--learn", "--deny", "other.example", "--json", &path];
    let seen = online(&world, &options, &denied);
    assert_eq!(seen.output(), "this is 93.184.216.34\nSSH-2.0-here");
    assert_eq!(seen.reached, ["93.184.216.34 80", "93.184.216.34 22"]);
    let _ = seen
        .outcome
        .says(["--learn", "to learn of it", "example.com:22"]);
    let learnt = &told(&json)["network"]["learnt"];
    assert_eq!(learnt["allow"].as_array().unwrap().len(), 2, "{learnt}");
    assert!(why(&world).contains("example.com:22"), "{}", why(&world));
    // Recorded: that it was weaker, and what passed because of it.
    let ledger = world
        .atoll(["ledger", "show", "--json", "last"])
        .run()
        .success()
        .out();
    assert!(ledger.contains("\"learn\":true"), "{ledger}");
    assert!(ledger.contains("\"rule\":\"*:* (--learn)\""), "{ledger}");
    world.profile("learnt", learnt["profile"].as_str().unwrap());
    let seen = online(&world, &["--profile", "learnt"], &denied);
    assert_eq!(seen.reached, ["93.184.216.34 80", "93.184.216.34 22"]);
    assert_eq!(seen.output(), "this is 93.184.216.34\nSSH-2.0-here");
    // The control: without it nothing is reached.
    let seen = online(&world, &[], &script);
    assert_eq!(seen.reached, [""; 0]);
}

#[test]
fn learning_is_refused_where_nothing_may_be_reached() {
    let world = World::new("learning_is_refused_where_nothing_may_be_reached");
    let run = [
        "run",
        "--discard",
        "--learn",
        "--profile",
        "strict",
        "--",
        "true",
    ];
    let refused = world.atoll(run).run().expect_status(126);
    let _ = refused.is_clear_error(["learning what is reached", "deny-sockets"]);
}

#[test]
fn what_was_refused_is_told_with_what_allows_it() {
    let world = World::new("what_was_refused_is_told_with_what_allows_it");
    if !is_possible(&world, &[]) {
        return;
    }
    let script =
        format!("{CURL} http://other.example/; {CURL} https://registry.npmjs.org/left-pad; true");
    let _ = online(&world, &["--allow", "example.com"], &script);
    let told = why(&world);
    for words in [
        "--allow other.example",
        "--preset npm",
        "presets = [\"npm\"]",
        "allow = [\"other.example\"]",
    ] {
        assert!(told.contains(words), "{words} is not in {told}");
    }
    let json = world
        .atoll(["why", "last", "--json"])
        .run()
        .success()
        .json();
    let lines = json["allow-in-profile"].as_array().unwrap();
    let lines: Vec<&str> = lines.iter().filter_map(Value::as_str).collect();
    // What is told can be pasted.
    world.profile("pasted", &format!("[network]\n{}\n", lines.join("\n")));
    let shown = world
        .atoll(["profile", "show", "pasted"])
        .run()
        .success()
        .out();
    assert!(shown.contains("registry.npmjs.org"), "{shown}");
}

#[test]
fn presets_are_listed_and_shown() {
    let world = World::new("presets_are_listed_and_shown");
    let list = world.atoll(["profile", "presets"]).run().success().out();
    for name in [
        "apt",
        "cargo",
        "go",
        "npm",
        "pip",
        "git-read",
        "github-read",
    ] {
        assert!(list.lines().any(|line| line.starts_with(name)), "{list}");
        let shown = world
            .atoll(["profile", "presets", name])
            .run()
            .success()
            .out();
        assert!(shown.contains("allow"), "{shown}");
        let run = ["run", "--discard", "--preset", name, "--", "echo", "fine"];
        let run = world.atoll(run).run().success();
        assert_eq!(run.out(), "fine\n");
    }
    let wrong = world.atoll(["profile", "presets", "gti-read"]).run();
    let _ = wrong.is_clear_error(["git-read"]);
    let wrong = world.atoll(["run", "--preset", "nmp", "--", "true"]).run();
    let _ = wrong.is_clear_error(["npm"]);
}

#[test]
fn packages_that_are_denied_are_not_fetched_whatever_allows_them() {
    let world = World::new("packages_that_are_denied_are_not_fetched_whatever_allows_them");
    if !is_possible(&world, &[]) {
        return;
    }
    let paths = [
        "left-pad",
        "evil",
        "evil/-/evil-1.0.0.tgz",
        "EVIL",
        "%65vil",
        "%2565vil",
        "/evil",
        "left-pad/../evil",
        "@evil%2fthing",
        "@good%2fthing",
        "-/all",
    ];
    let script: String = paths
        .iter()
        .map(|path| {
            format!("{CURL} --path-as-is -o /dev/null -w '%{{http_code}} ' 'http://registry.npmjs.org/{path}'; ")
        })
        .collect();
    let expected = "200 403 403 403 403 403 403 403 403 200 403";
    let denied = "{ registry = \"npm\", packages = [\"evil\", \"@evil/*\"] }";
    world.profile("registry", &format!("[network]\ndeny = [{denied}]\n"));
    for option in ["--allow", "--tunnel"] {
        let options = ["--profile", "registry", option, "registry.npmjs.org"];
        let seen = online(&world, &options, &script);
        assert_eq!(seen.output(), expected, "{option}: {}", seen.outcome);
        assert_eq!(seen.first.matches("GET /").count(), 2, "{}", seen.first);
        assert!(
            !seen.first.to_lowercase().contains("evil"),
            "{}",
            seen.first
        );
    }
    let told = why(&world);
    assert!(told.contains("for packages evil, @evil/* of npm"), "{told}");
    // The control: without that rule they arrive.
    let seen = online(&world, &["--allow", "registry.npmjs.org"], &script);
    assert_eq!(seen.output(), ["200"; 11].join(" "));
}
