//! Shares: what one tenant uses up, no other one notices.

use std::fs;
use std::time::Duration;

use e2e::traces::verify_ledger;
use e2e::{World, wait_until};
use serde_json::json;

use super::Server;

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
