//! The scopes of tools' arguments, and what of their results is not given.

use e2e::World;
use e2e::traces::{events, verify_ledger};
use serde_json::{Value, json};

use crate::tools::{by_mcp, called, over_mcp};

const SERVER: &str = include_str!("mcp_servers/hostile.py");

/// A tool that prints a file, in a sandbox of this life.
fn prints(name: &str, life: &str, more: &str) -> String {
    format!(
        "[tool.{name}]\ndescription = \"Prints a file.\"\nkind = \"command\"\neffect = \"read\"\n\
         command = [\"cat\", \"--\", \"{{path}}\"]\nsandbox = \"{life}\"\n\
         arguments.properties.path.type = \"string\"\n{more}\n"
    )
}

fn world(name: &str, tools: &str) -> World {
    let world = World::new(name);
    world.write(world.config().join("atoll/tools.toml"), tools);
    world
}

fn text(answer: &Value) -> &str {
    answer["content"][0]["text"].as_str().unwrap_or_default()
}

/// With no scope, each of these paths leads to what it names: the scope alone refuses them.
#[test]
fn paths_of_arguments_are_opened_beneath_their_root() {
    let scope = "paths.path = \"docs\"";
    let link = "[tool.link]\ndescription = \"Links.\"\nkind = \"command\"\neffect = \"write\"\n\
                command = [\"ln\", \"-s\", \"../secret\", \"docs/new\"]\nsandbox = \"session\"\n";
    let tools = [
        prints("read", "call", scope),
        prints("free", "call", ""),
        prints("look", "session", scope),
        prints("look_free", "session", ""),
        link.to_owned(),
    ];
    let name = "paths_of_arguments_are_opened_beneath_their_root";
    let world = world(name, &tools.concat());
    world.write("docs/a.md", "inside\n");
    world.write("docs/private.md", "private\n");
    world.write("secret/key", "the secret\n");
    std::os::unix::fs::symlink("../secret", world.workspace().join("docs/out")).unwrap();
    let policies = "permit(principal, action == Action::\"call\", resource);\n@id(\"private\")\n\
                    forbid(principal, action == Action::\"call\", resource) when { \
                    context.arguments.text.hasTag(\"path\") && \
                    context.arguments.text.getTag(\"path\") == \"docs/private.md\" };";
    world.write(world.config().join("atoll/own.cedar"), policies);
    let call = |tool: &str, path: &str| json!([tool, { "path": path }]);
    let calls = [
        call("read", "./docs//a.md"),
        call("read", "docs/./private.md"),
        call("read", "docs/out/key"),
        call("free", "docs/out/key"),
        call("read", "docs/../secret/key"),
        call("free", "docs/../secret/key"),
        call("read", "/etc/hostname"),
        call("read", "secret/key"),
        call("read", "docs/none.md"),
        json!(["link", {}]),
        call("look", "docs/new/key"),
        call("look_free", "docs/new/key"),
        call("look", "docs/out/key"),
        call("look", "docs/a.md"),
        call("look", "docs/new"),
        json!(["atoll__may_i", { "tool": "look", "arguments": { "path": "docs/new/key" } }]),
        call("read", "docs/new/key"),
    ];
    let (answers, outcome) = by_mcp(&world, &["--record", "session.jsonl"], &calls);
    for (at, expected) in [
        "inside\n",
        "Denied by policy",
        "a link leads out of it",
        "the secret\n",
        "has a part \"..\"",
        "the secret\n",
        "is absolute",
        "is not beneath \"docs\"",
        "No such file",
        "",
        // The link is in the session's sandbox alone.
        "a link leads out of it",
        "the secret\n",
        "a link leads out of it",
        "inside\n",
        "a link leads out of it",
        "Verdict: invalid",
        "No such file",
    ]
    .iter()
    .enumerate()
    {
        assert!(text(&answers[at]).contains(expected), "{at}: {outcome}");
    }
    // What was judged, recorded and sent is one form.
    let all = events(&world);
    let opened = all.iter().filter(|one| one["type"] == "tool.opened");
    let recorded: Vec<&str> = opened
        .filter_map(|one| one["body"]["arguments"].as_str())
        .collect();
    assert_eq!(recorded[0], r#"{"path":"docs/a.md"}"#, "{recorded:?}");
    let rejected = all.iter().filter(|one| one["type"] == "tool.rejected");
    assert_eq!(rejected.count(), 7);
    verify_ledger(&world);
    let compared = || world.atoll(["tools", "assert", "session.jsonl"]).run();
    let _ = compared().success();
    let (replayed, _) = by_mcp(&world, &["--replay", "session.jsonl"], &calls[..4]);
    assert_eq!(replayed, answers[..4]);
}

#[test]
fn person_is_asked_about_the_arguments_as_they_are_sent() {
    let name = "person_is_asked_about_the_arguments_as_they_are_sent";
    let world = world(name, &prints("read", "call", "paths.path = \".\""));
    world.write("a.md", "inside\n");
    let policy = "@id(\"asked\") @approve(\"person\")\n\
                  permit(principal, action == Action::\"call\", resource);";
    world.write(world.config().join("atoll/own.cedar"), policy);
    let call = world.atoll(["tools", "call", "read", "path=.//./a.md"]);
    let mut asked = call.on_terminal(24, 200);
    let shown = asked.expect("d deny: ");
    assert!(shown.contains(r#"arguments: {"path":"a.md"}"#), "{shown}");
    asked.line("o");
    assert!(asked.wait().success().out().contains("inside"));
}

#[test]
fn addresses_of_arguments_are_beneath_those_named() {
    let tool = |name: &str, more: &str| {
        format!(
            "[tool.{name}]\ndescription = \"Shows it.\"\nkind = \"command\"\neffect = \"send\"\n\
             command = [\"printf\", \"%s\", \"{{url}}\"]\n\
             arguments.properties.url = {{ type = \"string\", maxLength = 60 }}\n{more}\n"
        )
    };
    let scope = "urls.url = [\"https://api.example.com/v1/\"]";
    let tools = [tool("show", scope), tool("free", "")].concat();
    let world = world("addresses_of_arguments_are_beneath_those_named", &tools);
    let with = |tool: &str, url: &str| {
        let arguments = json!({ "url": url }).to_string();
        let call = world.atoll(["tools", "call", "--json", tool, "--arguments", &arguments]);
        call.run()
    };
    let odd = "HTTPS://API.example.com:443/v1/a/../%62";
    assert_eq!(
        with("show", odd).json()["text"],
        "https://api.example.com/v1/b"
    );
    assert_eq!(with("free", odd).json()["text"], odd);
    for (url, why) in [
        ("https://api.example.com/v1/%2e%2e/admin", "is not beneath"),
        ("https://api.example.com/v1/..%2fadmin", "\"..\""),
        (
            "https://api.example.com@evil.example/v1/",
            "name or password",
        ),
        ("https://evil.example/v1/", "is not beneath"),
        // In the form that is sent it is too long.
        ("https://api.example.com/v1/üüüüüüüüüüüüü", "longer than 60"),
    ] {
        let refused = with("show", url).expect_status(125);
        refused.is_clear_error([why]);
        assert_eq!(with("free", url).json()["text"], url);
    }
    let shown = world.atoll(["tools", "show", "show"]).run().success();
    let scope = "url is beneath https://api.example.com/v1/";
    assert!(shown.out().contains(scope), "{shown}");
}

/// Has the server be an upstream, with these words about its tools.
fn upstream(name: &str, tools: &str) -> World {
    let world = World::new(name);
    world.write("server.py", SERVER);
    world.write("words", "plain");
    describe(&world, tools);
    let pin = world.atoll(["tools", "pin", "bad", "--yes"]);
    let _ = pin.run().success();
    world
}

fn describe(world: &World, tools: &str) {
    let text = format!("[upstream.bad]\ncommand = [\"python3\", \"server.py\"]\n{tools}");
    world.write(world.config().join("atoll/tools.toml"), text);
}

#[test]
fn arguments_of_upstreams_have_scopes() {
    let scope = "tools.echo.paths.text = \"docs\"\n";
    let world = upstream("arguments_of_upstreams_have_scopes", scope);
    let _ = world.atoll(["tools", "check"]).run().success();
    let calls = [
        json!(["bad__echo", { "text": "docs//a" }]),
        json!(["bad__echo", { "text": "docs/../a" }]),
    ];
    let (answers, outcome) = over_mcp(&world, &calls);
    assert_eq!(text(&answers[0]), "docs/a", "{outcome}");
    assert!(text(&answers[1]).contains("a part \"..\""), "{outcome}");
    for (tools, why) in [
        (
            "tools.ecko.paths.text = \"docs\"\n",
            "it has no tool of this name",
        ),
        (
            "tools.echo.paths.file = \"docs\"\n",
            "\"file\" is no argument",
        ),
        ("tools.echo.paths.text = \"../docs\"\n", "a part \"..\""),
    ] {
        describe(&world, tools);
        let checked = world.atoll(["tools", "check"]).run().expect_status(1);
        assert!(checked.out().contains(why), "{checked}");
    }
    // A scope that cannot be read leaves no tool without one.
    let gone = world.atoll(["tools", "call", "bad__echo", "text=x"]).run();
    let _ = gone.expect_status(125);
}

const CUSTOMER: &str = r#"
[tool.NAME]
description = "Finds a customer."
kind = "command"
effect = "read"
output = "json"
command = ["sh", "-c", "cat customer.json; exit $(cat status)"]
result.required = ["mail"]
result.properties.mail.type = "string"
"#;

#[test]
fn fields_are_hidden_and_personal_data_is_masked() {
    let hide = "hide = [\"/mail\", \"/orders/*/card\"]\npii = \"mask\"\n";
    let named = |name: &str| CUSTOMER.replace("NAME", name);
    let tools = [named("find"), hide.to_owned(), named("free")].concat();
    let world = world("fields_are_hidden_and_personal_data_is_masked", &tools);
    let found = json!({
        "mail": "ann@example.com",
        "note": "write to bob@example.com or +14155552671",
        "orders": [{ "card": "4111111111111111", "id": 4111111111111112_u64 }, { "id": 378282246310005_u64 }],
    });
    world.write("customer.json", found.to_string());
    world.write("status", "0");
    assert_eq!(called(&world, &["free"])["structured"], found);
    let given = called(&world, &["find"]);
    let expected = json!({
        "note": "write to [masked: e-mail] or [masked: phone]",
        "orders": [{ "id": 4111111111111112_u64 }, { "id": "[masked: card]" }],
    });
    assert_eq!(given["structured"], expected, "{given}");
    assert_eq!(given["text"], expected.to_string());
    let notes = given["notes"].to_string();
    assert!(
        notes.contains("masked: 1 e-mail, 1 phone, 1 card."),
        "{notes}"
    );
    assert!(notes.contains("were hidden: 2."), "{notes}");
    // A failure gives no more, though the free tool's does.
    world.write("status", "1");
    let free = called(&world, &["free"]);
    assert!(
        free["text"].to_string().contains("ann@example.com"),
        "{free}"
    );
    let failed = called(&world, &["find"]);
    assert!(!failed.to_string().contains("example.com"), "{failed}");
    assert_eq!(failed["text"], "it failed with status 1");
    world.write("status", "0");
    world.write("customer.json", "{\"mail\": 4111111111111111}");
    let wrong = called(&world, &["find"]);
    assert!(!wrong.to_string().contains("4111"), "{wrong}");
    let all = events(&world);
    let mut closed = all.iter().filter(|one| one["type"] == "tool.closed");
    let changed = &closed.nth(1).unwrap()["body"]["details"]["changed"];
    let counts = json!({ "e-mail": 1, "phone": 1, "card": 1 });
    assert_eq!((&changed["pii"], &changed["hidden"]), (&counts, &json!(2)));
    verify_ledger(&world);
}

#[test]
fn results_of_upstreams_are_filtered_in_every_part() {
    let name = "results_of_upstreams_are_filtered_in_every_part";
    let world = upstream(name, "");
    let free = called(&world, &["bad__customer"]);
    assert_eq!(free["structured"]["ssn"], "536-90-4399", "{free}");
    assert_eq!(free["blocks"].as_array().unwrap().len(), 4, "{free}");
    describe(&world, "pii = \"mask\"\n");
    let masked = called(&world, &["bad__customer"]);
    for secret in ["ann@", "536-90", "4111111111111111", "901820"] {
        assert!(free.to_string().contains(secret), "{secret}: {free}");
        assert!(!masked.to_string().contains(secret), "{secret}: {masked}");
    }
    assert_eq!(masked["structured"]["card"], "[masked: card]");
    assert_eq!(masked["structured"]["plan"], "gold");
    let notes = masked["notes"].to_string();
    assert!(
        notes.contains("4 e-mail, 1 phone, 3 card, 3 SSN"),
        "{notes}"
    );
    describe(&world, "tools.customer.hide = [\"/mail\", \"/ssn\"]\n");
    let hidden = called(&world, &["bad__customer"]);
    let left = json!({ "card": 4111111111111111_u64, "plan": "gold" });
    assert_eq!(hidden["structured"], left, "{hidden}");
    let blocks = hidden["blocks"].as_array().unwrap();
    assert_eq!(blocks.len(), 2, "{hidden}");
    assert_eq!(blocks[0]["text"], left.to_string());
    assert_eq!(blocks[1]["resource"]["text"], left.to_string());
    let notes = hidden["notes"].to_string();
    assert!(
        notes.contains("were hidden: 6.") && notes.contains("no JSON: 2."),
        "{notes}"
    );
}
