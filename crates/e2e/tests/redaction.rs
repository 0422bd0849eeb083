//! `@redact`: headers that are removed from requests, and from responses; and what Atoll itself
//! writes has no secrets that look like ones.

use std::fs;

use e2e::internet::{events, is_possible, on_servers};
use e2e::{Outcome, World, fine};

const SERVERS: &str = include_str!("redaction/servers.py");
const INSIDE: &str = include_str!("redaction/inside.py");
const BOUND: &str = "[network]\nallow = [\"example.com\"]\n[credential.key]\nsource = { environment = \"KEY\" }\n\
                     to = \"example.com\"\nplace = { header = \"authorization\", form = \"Bearer {}\" }\n";
/// The requests that a program sends and prints with their responses: by TLS and without, one
/// header twice, in each case.
const SCRIPT: &str = "for url in http://example.com/a https://example.com/a https://example.com/chunks; do
        case $url in https*) key=$KEY ;; *) key=none ;; esac
        curl -sS -f -m 10 -i --noproxy '*' -H 'X-Internal: SECRET-OUT' -H 'x-INTERNAL: SECRET-OUT-2' \
            -H \"Authorization: Bearer $key\" -H 'X-Other: open' $url || exit 1
    done
    python3 inside.py";

fn own(world: &World, text: &str) {
    world.write(world.config().join("atoll/own.cedar"), text);
}

/// Returns the result of a script in a new world, and the data that has reached the servers.
fn seen(world: &World, script: &str) -> (Outcome, String) {
    world.canary("the-real-key-0123456789abcdefghij", &[]);
    let command = "sh -c 'KEY=the-real-key-0123456789abcdefghij; export KEY; exec \"$ATOLL\" run --discard --profile bound -- sh -c \"$1\"' sh \"$@\"";
    let run = on_servers(world, SERVERS, &["example.com"], command);
    let outcome = run.args(["sh", script]).run();
    let came = fs::read_to_string(world.top().join("internet/came"));
    (outcome, came.unwrap_or_default())
}

#[test]
fn headers_that_policies_take_out_neither_leave_nor_come_in() {
    let world = World::new("headers_that_policies_take_out_neither_leave_nor_come_in");
    if !is_possible(&world, &[]) {
        return;
    }
    world.profile("bound", BOUND);
    world.write("inside.py", INSIDE);
    // The control: all of it goes both ways.
    let (outcome, came) = seen(&world, SCRIPT);
    let out = outcome.success().out();
    for text in [
        "SECRET-OUT\n",
        "SECRET-OUT-2",
        "trailer X-Internal",
        "Bearer the-real-key-0123456789abcdefghij",
        "open",
    ] {
        let is_there = came.to_lowercase().contains(&text.to_lowercase());
        assert!(is_there, "{text}: {came}");
    }
    for text in [
        "SECRET-INNER",
        "SECRET-INNER-2",
        "SECRET-COOKIE",
        "SECRET-TRAILER",
        "x-last: last",
        "fine",
    ] {
        assert!(out.contains(text), "{text}: {out}");
    }
    let put_in = |one: &&serde_json::Value| one["credential"] == "key";
    assert_eq!(
        events(&world, "flow.opened").iter().filter(put_in).count(),
        2
    );
    // Of two policies the union.
    own(
        &world,
        "@id(\"one\") @redact(\"header:X-Internal, response-header:x-inner\") permit(principal, action == Action::\"request\", resource);\n\
         @id(\"two\") @redact(\"response-header:set-cookie, header:authorization\") permit(principal, action == Action::\"request\", resource == Host::\"example.com\");\n",
    );
    let _ = world.atoll(["policy", "check"]).run().success();
    let (outcome, came) = seen(&world, SCRIPT);
    let out = outcome.success().out();
    assert_eq!(came.matches("open").count(), 4, "{came}\n{out}");
    assert_eq!(out.matches("x-fine").count(), 4, "{out}");
    assert_eq!(out.matches("welcome").count(), 4, "{out}");
    let lower = came.to_lowercase();
    for text in ["secret", "x-internal:", "authorization", "the-real-key"] {
        assert!(!lower.contains(text), "{text}: {came}");
    }
    assert!(!out.contains("SECRET"), "{out}");
    let opened = events(&world, "flow.opened");
    let requests: Vec<_> = opened
        .iter()
        .filter(|one| one["kind"] == "request")
        .collect();
    assert!(requests.len() >= 4, "{opened:?}");
    for one in requests {
        // Nothing of it is told that did not leave.
        assert!(one["credential"].is_null(), "{one}");
        assert_eq!(
            one["redacted"],
            "header:authorization,header:x-internal,response-header:set-cookie,response-header:x-inner"
        );
    }
    let told = world
        .atoll(["ledger", "show", "--json", "last"])
        .run()
        .success()
        .out();
    let other = told.lines().filter(|line| !line.contains("run.opened"));
    assert!(!other.collect::<String>().contains("SECRET"), "{told}");
}

#[test]
fn what_nobody_knows_how_to_take_out_denies() {
    let world = World::new("what_nobody_knows_how_to_take_out_denies");
    if !is_possible(&world, &[]) {
        return;
    }
    world.profile("bound", BOUND);
    let script = "curl -sS -m 10 --noproxy '*' http://example.com/a";
    for unknown in [
        "authorization",
        "header:host",
        "response-header:grpc-encoding",
        "body:card",
        "header:x-a, query:key",
    ] {
        own(
            &world,
            &format!(
                "@id(\"odd\") @redact(\"{unknown}\") permit(principal, action == Action::\"request\", resource);\n"
            ),
        );
        let (outcome, came) = seen(&world, script);
        assert!(came.is_empty(), "{unknown}: {came}");
        // A program is not told more.
        assert!(
            outcome.out().contains("its policies cannot tell"),
            "{unknown}: {outcome}"
        );
        let checked = world.atoll(["policy", "check"]).run().expect_status(1);
        assert!(
            checked.out().contains("is nothing that is taken out here"),
            "{unknown}: {checked}"
        );
    }
    // The control.
    own(
        &world,
        "@id(\"odd\") @redact(\"header:x-a\") permit(principal, action == Action::\"request\", resource);\n",
    );
    let (outcome, came) = seen(&world, script);
    assert!(
        came.contains("GET /a") && outcome.out().contains("welcome"),
        "{outcome}"
    );
}

/// A secret of a command line is in nothing that is written of its run.
#[test]
fn secrets_of_known_kinds_are_masked_in_whatever_is_written() {
    let world = World::new("secrets_of_known_kinds_are_masked_in_whatever_is_written");
    let secret = "4Wf0Yc8uR2nT7kLq1Zx5Bv9Jm3Hs6Dp0Ga2E";
    let script = format!(
        "cat /nowhere/ghp_{secret}; : 'Authorization: Bearer {secret}' https://me:{secret}@host/; \
         mkdir /etc/sk-ant-api03-{secret} 2>/dev/null; true"
    );
    let _ = world.run(["--keep"], &script).run().success();
    let mut told = String::new();
    for words in [
        &["list"][..],
        &["list", "--json"],
        &["why", "last"],
        &["why", "last", "--json"],
        &["ledger", "show", "last", "--json"],
        &["ledger", "tail"],
    ] {
        let seen = fine(&world, words);
        told += &(seen.out() + &seen.err());
    }
    assert!(!told.contains(secret), "{told}");
    for kind in [
        "ghp_[masked]",
        "Bearer [masked]",
        "https://me:[masked]@host/",
    ] {
        assert!(told.contains(kind), "{kind} is not in {told}");
    }
    let mut waiting = vec![world.state()];
    let mut looked_at = 0;
    while let Some(directory) = waiting.pop() {
        // The kernel's own of a layer are closed to an ordinary user.
        for entry in fs::read_dir(directory).into_iter().flatten() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                waiting.push(entry.path());
            } else if kind.is_file() {
                let content = fs::read(entry.path()).unwrap();
                let text = String::from_utf8_lossy(&content);
                assert!(!text.contains(secret), "{}", entry.path().display());
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 3, "{looked_at}");
    let _ = fine(&world, &["ledger", "verify"]);
}
