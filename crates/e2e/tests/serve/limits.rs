//! Limits of served sandboxes: what ends a program is named wherever it shows.

use e2e::traces::{events, verify_ledger};
use e2e::{Avoidable, World, wait_until};
use rustix::process::geteuid;
use serde_json::{Value, json};

use super::{LONG, Server};
use crate::limits::WITHOUT_GROUPS;

/// A program that uses more memory than the sandbox has, as shells start it.
const EATS: &str = "python3 -c 'x = bytearray(600 << 20); x[::4096] = b\"x\" * len(x[::4096])'";

/// Programs that do together.
const EAT: &str = "python3 -c 'import os, time; [os.fork() for _ in range(2)]; \
                   x = bytearray(b\"x\") * (150 << 20); time.sleep(60)'";

/// Starts a program by E2B's process service; returns all that it answers.
fn started(server: &Server, world: &World, id: &str, token: &str, config: &Value) -> String {
    let message = json!({ "process": config }).to_string();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    world.write("start", [&[0], &length[..], message.as_bytes()].concat());
    let start = world.host("curl").args(["-sS", "--data-binary", "@start"]);
    let start = start.args(["-H", &format!("E2b-Sandbox-Id: {id}")]);
    let start = start.args(["-H", &format!("X-Access-Token: {token}")]);
    let start = start.arg(format!("{}/process.Process/Start", server.url));
    start.within(LONG).run().success().out()
}

fn ends_by_memory_are_named(world: &World, server: &Server, eats: &str) {
    let made = || {
        let body = json!({ "memory_mib": 300 }).to_string();
        let (status, made) = server.ask(world, "POST", "/v1/sandboxes", &body);
        assert_eq!(status, 201, "{made}");
        let text = |at: &str| made.pointer(at).and_then(Value::as_str);
        let text = |at: &str| text(at).unwrap_or_else(|| panic!("{made}")).to_owned();
        (text("/sandbox/id"), text("/token"), text("/sandbox/run"))
    };
    let client = |arguments: &[&str]| {
        let client = world.atoll(["sandbox"]).args(arguments).within(LONG);
        let client = client.env("ATOLL_URL", &server.url);
        client.env("ATOLL_API_KEY", &server.key).run()
    };
    let (id, _, run) = made();
    let body = json!({ "command": ["bash", "-c", eats] }).to_string();
    let (status, ran) = server.ask(world, "POST", &format!("/v1/sandboxes/{id}/run"), &body);
    let ended = ran["ended"].as_str().unwrap_or_default();
    assert!(status == 200 && ended.starts_with("memory limit"), "{ran}");
    let told = world.atoll(["why", &run]).run().success().out();
    assert!(told.contains("memory limit was reached"), "{told}");
    let (_, logs) = server.ask(world, "GET", &format!("/v2/sandboxes/{id}/logs"), "");
    assert!(logs.to_string().contains("limited memory"), "{logs}");

    let (id, token, _) = made();
    let config = json!({ "cmd": "/bin/bash", "args": ["-l", "-c", format!("{eats}; exit $?")] });
    let answer = started(server, world, &id, &token, &config);
    assert!(
        answer.contains(r#""error":"memory limit: "#) && answer.contains("137"),
        "{answer}"
    );

    let (id, ..) = made();
    let ran = client(&["exec", &id, "--", "sh", "-c", eats]).expect_status(137);
    assert!(ran.err().contains("the memory limit was reached"), "{ran}");
    let limited = json!({ "how": "limited", "limit": "memory" });
    let all = events(world);
    let closed = all.iter().filter(|one| one["type"] == "exec.closed");
    let named = closed.filter(|one| one["body"]["ending"] == limited);
    assert_eq!(named.count(), 3, "{all:?}");
}

#[test]
fn served_memory_limit_is_named() {
    let world = World::new("served_memory_limit_is_named");
    let server = Server::start(&world);
    ends_by_memory_are_named(&world, &server, EATS);
    let _ = server.end();
    verify_ledger(&world);
}

#[test]
fn served_memory_limit_without_groups_is_named() {
    let world = World::new("served_memory_limit_without_groups_is_named");
    if !geteuid().is_root() {
        return world.skip("only root hides control groups", Avoidable::No);
    }
    let serve = world.atoll(["serve", "--listen", "127.0.0.1:0"]);
    let serve = serve.under(WITHOUT_GROUPS).within(LONG);
    let server = Server::of(serve.start(), None);
    ends_by_memory_are_named(&world, &server, EAT);
    let _ = server.end();
    verify_ledger(&world);
}

#[test]
fn served_words_too_long_are_refused_by_name() {
    let world = World::new("served_words_too_long_are_refused_by_name");
    let server = Server::start(&world);
    let (id, token) = server.make(&world);
    let long = "x".repeat(200_000);
    let run = format!("/v1/sandboxes/{id}/run");
    let table = [
        (
            json!({ "command": ["echo", "-n", long] }),
            "argument 2 has 200000 bytes",
        ),
        (
            json!({ "command": ["true"], "environment": { "DATA": long } }),
            "the variable DATA has 200005 bytes",
        ),
    ];
    for (body, expected) in table {
        world.write("body", body.to_string());
        for path in [&run, &format!("/v1/sandboxes/{id}/processes")] {
            let (status, told) = server.ask(&world, "POST", path, "@body");
            let text = told.to_string();
            assert_eq!(status, 400, "{text}");
            assert!(text.contains(expected) && text.contains("131071"), "{text}");
        }
    }
    let config = json!({ "cmd": "/bin/echo", "args": [long] });
    let answer = started(&server, &world, &id, &token, &config);
    assert!(
        answer.contains("invalid_argument") && answer.contains("argument 1 has"),
        "{answer}"
    );
    // As long as the kernel takes them.
    let body = json!({ "command": ["sh", "-c", "echo ${#1}", "sh", "x".repeat(131_071)] });
    world.write("body", body.to_string());
    let (_, ran) = server.ask(&world, "POST", &run, "@body");
    assert_eq!(ran["stdout"], "131071\n", "{ran}");
    let _ = server.end();
    verify_ledger(&world);
}

#[test]
fn memory_without_groups_is_measured() {
    let world = World::new("memory_without_groups_is_measured");
    if !geteuid().is_root() {
        return world.skip("only root hides control groups", Avoidable::No);
    }
    let serve = world.atoll(["serve", "--listen", "127.0.0.1:0"]);
    let serve = serve.under(WITHOUT_GROUPS).within(LONG);
    let server = Server::of(serve.start(), None);
    let (id, _) = server.make(&world);
    let holds = "x = bytearray(b'x') * (100 << 20); print('there', flush=True); input()";
    let body = json!({ "command": ["python3", "-c", holds], "input": true }).to_string();
    let path = format!("/v1/sandboxes/{id}/processes");
    let (status, started) = server.ask(&world, "POST", &path, &body);
    assert_eq!(status, 201, "{started}");
    wait_until("its memory to be measured", LONG, || {
        let (_, own) = server.ask(&world, "GET", &format!("/v1/sandboxes/{id}/metrics"), "");
        let (_, e2bs) = server.ask(&world, "GET", &format!("/sandboxes/{id}/metrics"), "");
        let used = [&own["memory_bytes"], &e2bs[0]["memUsed"]];
        let used = used.map(|one| one.as_u64().unwrap_or(0) >> 20);
        used.iter()
            .all(|mib| (100..200).contains(mib))
            .then_some(())
    });
    let _ = server.end();
}
