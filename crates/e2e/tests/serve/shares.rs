//! Shares: what one tenant uses up, no other one notices.

use std::fs;
use std::time::Duration;

use e2e::traces::verify_ledger;
use e2e::{World, wait_until};
use rustix::process::geteuid;
use serde_json::json;

use super::{LONG, Server, all_passed_of, checks, key_of_another};

/// The descriptors of a process.
fn descriptors(pid: u32) -> usize {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    all.count()
}

#[test]
fn an_exec_that_has_ended_holds_no_descriptor() {
    let world = World::new("an_exec_that_has_ended_holds_no_descriptor");
    world.write("serve.toml", "[warm]\nsandboxes = 0\n");
    let server = Server::with(&world, &["--config", "serve.toml"]);
    let (id, _) = server.make(&world);
    let run = |name: &str| {
        let curl = world.host("curl").args(["-sS", "-f"]);
        let curl = curl.args(["-H", &format!("X-API-Key: {}", server.key)]);
        let curl = match name {
            "" => curl,
            name => curl.args(["-H", &format!("Idempotency-Key: {name}")]),
        };
        let ask = json!({ "command": ["sh", "-c", "echo kept"] }).to_string();
        let curl = curl.args(["-d", &ask]);
        let at = format!("{}/v1/sandboxes/{id}/run", server.url);
        curl.arg(at).run().success().json()
    };
    let first = run("first");
    assert_eq!(first["stdout"], "kept\n", "{first}");
    let pid = server.running.pid();
    // Those of the first request itself go with its connection.
    let before = descriptors(pid);
    for number in 0..16 {
        let _ = run("");
        let _ = run(&format!("name-{number}"));
    }
    wait_until("their descriptors to go", Duration::from_secs(20), || {
        (descriptors(pid) <= before).then_some(())
    });
    // The outcome and the output are still there.
    assert_eq!(run("first"), first);
    let _ = server.end();
    verify_ledger(&world);
}

/// The server has few descriptors, and root no right to give itself more.
#[test]
fn a_tenant_that_takes_all_is_alone_refused() {
    let world = World::new("a_tenant_that_takes_all_is_alone_refused");
    world.write("serve.toml", "[warm]\nsandboxes = 0\n");
    let mut few = vec!["prlimit", "--nofile=1024:1024"];
    if geteuid().is_root() {
        few.extend(["setpriv", "--bounding-set=-sys_resource"]);
    }
    let serve = world.atoll(["serve", "--listen", "127.0.0.1:0", "--config", "serve.toml"]);
    let server = Server::of(serve.under(few).within(LONG).start(), None);
    let hog = world.host("python3").arg(checks("shares.py"));
    let hog = hog.env("URL", &server.url).env("KEY", &server.key);
    let hog = hog.env("OTHER_KEY", key_of_another(&world));
    let hog = hog.env("SERVER", server.running.pid().to_string());
    all_passed_of(&hog.within(LONG).run(), 10);
    let _ = server.end();
    verify_ledger(&world);
}

#[test]
fn uploads_that_stall_are_given_up_slow() {
    let world = World::new("uploads_that_stall_are_given_up_slow");
    let server = Server::start(&world);
    let stalled = world.host("python3").arg(checks("shares.py"));
    let stalled = stalled.env("URL", &server.url).env("KEY", &server.key);
    let stalled = stalled.env("OTHER_KEY", key_of_another(&world));
    all_passed_of(&stalled.env("STALLED", "1").within(LONG).run(), 1);
    let _ = server.end();
}
