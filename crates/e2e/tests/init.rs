//! `atoll init`: agents that name Atoll's tools, and call them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use e2e::{Avoidable, World, cache};
use serde_json::Value;

const MODEL: &str = include_str!("init/model.py");
const TOOLS: &str = r#"
[tool.count_words]
description = "Counts the words of a file."
kind = "command"
command = ["wc", "-w", "--", "{path}"]
effect = "read"
arguments.properties.path.type = "string"
"#;

fn world(name: &str) -> World {
    let world = World::new(name);
    world.write(world.config().join("atoll/tools.toml"), TOOLS);
    world.write("README.md", "one two three\n");
    world
}

#[test]
fn configuration_of_an_agent_is_changed_and_taken_back() {
    let world = world("configuration_of_an_agent_is_changed_and_taken_back");
    for (agent, file, before) in [
        (
            "codex",
            world.home().join(".codex/config.toml"),
            "model = \"x\" # mine\n",
        ),
        (
            "claude",
            world.home().join(".claude.json"),
            "{\n  \"theme\": \"dark\"\n}\n",
        ),
        (
            "opencode",
            world.config().join("opencode/opencode.json"),
            "{\n  \"mcp\": {\n    \"other\": {\n      \"type\": \"local\"\n    }\n  }\n}\n",
        ),
        ("gemini", world.home().join(".gemini/settings.json"), ""),
    ] {
        world.write(&file, before);
        let own = Permissions::from_mode(0o600);
        fs::set_permissions(&file, own).unwrap();
        let begun = world.atoll(["init", agent]).run().success();
        let take_back = format!("atoll init {agent} --undo");
        let _ = begun.says([&*take_back, &file.display().to_string()]);
        let after = world.read(&file);
        assert!(after.contains("atoll") && after.contains("mcp"), "{after}");
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let again = world.atoll(["init", agent]).run().success();
        let _ = again.says(["already"]);
        assert_eq!(world.read(&file), after);
        // Somebody else's server of that name stays.
        world.write(&file, after.replace("\"mcp\"]", "\"else\"]"));
        if after.contains("\"mcp\"]") {
            let other = world.atoll(["init", agent]).run().expect_status(125);
            let _ = other.is_clear_error(["another server called atoll", "by hand"]);
            let changed = world
                .atoll(["init", agent, "--undo"])
                .run()
                .expect_status(125);
            let _ = changed.is_clear_error(["was changed"]);
        }
        world.write(&file, &after);
        let _ = world.atoll(["init", agent, "--undo"]).run().success();
        let left = world.read(&file);
        let kept = if before.is_empty() { "{}\n" } else { before };
        assert_eq!(left, kept, "{agent}");
        let none = world.atoll(["init", agent, "--undo"]).run().success();
        let _ = none.says(["does not name"]);
        world.write(&file, "{ // a comment\n");
        let strange = world.atoll(["init", agent]).run().expect_status(125);
        let _ = strange.is_clear_error(["by hand"]);
        assert_eq!(world.read(&file), "{ // a comment\n");
    }
}

/// Runs an agent with a model that calls the tool.
fn works(world: &World, agent: &str, settings: impl Fn(u16) -> (PathBuf, String), script: &str) {
    let model = world.host("python3").args(["-c", MODEL, "count_words"]);
    let model = model.arg("{\"path\": \"README.md\"}").start();
    let said = model.until_stdout("port ");
    let said = if said.contains(" \n") {
        said
    } else {
        model.until_stdout(" \n")
    };
    let port = said.split_whitespace().nth(1).unwrap().parse().unwrap();
    let (file, text) = settings(port);
    world.write(&file, text);
    let _ = world.atoll(["init", agent]).run().success();
    let ran = world
        .host_shell(script)
        .within(Duration::from_secs(180))
        .run();
    assert!(ran.code() == 0, "{ran}");
    let told = model.until_stdout("told ");
    let ledger = world.atoll(["ledger", "show", "--json"]).run();
    assert!(ledger.code() == 0, "{ran}\n{told}");
    let events = e2e::traces::events(world);
    let closed = events.iter().find(|one| one["type"] == "tool.closed");
    let end = closed.map(|one| one["body"]["end"].clone());
    assert_eq!(end, Some(Value::from("done")), "{ran}\n{told}");
    model.signal(rustix::process::Signal::KILL);
    let said = model.wait();
    assert!(said.out().contains("3 README.md"), "{said}");
}

fn package(world: &World, file: &str) -> Option<PathBuf> {
    let found = cache().map(|cache| cache.join("npm/node_modules").join(file));
    let found = found.filter(|file| file.exists());
    if found.is_none() {
        world.skip(
            &format!("{file} is not in ATOLL_TEST_CACHE"),
            Avoidable::Yes,
        );
    }
    found
}

#[test]
fn codex_calls_a_tool_of_atoll() {
    let world = world("codex_calls_a_tool_of_atoll");
    let Some(codex) = package(&world, "@openai/codex/bin/codex.js") else {
        return;
    };
    let settings = |port| {
        let text = format!(
            "model = \"scripted\"\nmodel_provider = \"mine\"\n[model_providers.mine]\nname = \"mine\"\n\
             base_url = \"http://127.0.0.1:{port}/v1\"\nwire_api = \"responses\"\nsupports_websockets = false\n"
        );
        (world.home().join(".codex/config.toml"), text)
    };
    let script = format!(
        "PATH=$(dirname \"$ATOLL\"):$PATH; node '{}' exec --skip-git-repo-check \
         --dangerously-bypass-approvals-and-sandbox 'count'",
        codex.display()
    );
    works(&world, "codex", settings, &script);
}

#[test]
fn opencode_calls_a_tool_of_atoll() {
    let world = world("opencode_calls_a_tool_of_atoll");
    let opencode = match cfg!(target_arch = "aarch64") {
        true => "opencode-linux-arm64/bin/opencode",
        false => "opencode-linux-x64/bin/opencode",
    };
    let Some(opencode) = package(&world, opencode) else {
        return;
    };
    let settings = |port| {
        let text = format!(
            r#"{{"model": "mine/scripted", "small_model": "mine/scripted", "autoupdate": false, "provider": {{"mine": {{"npm": "@ai-sdk/openai-compatible", "options": {{"baseURL": "http://127.0.0.1:{port}/v1", "apiKey": "none"}}, "models": {{"scripted": {{}}}}}}}}}}"#
        );
        (world.config().join("opencode/opencode.json"), text)
    };
    let script = format!(
        "PATH=$(dirname \"$ATOLL\"):$PATH; OPENCODE_DISABLE_MODELS_FETCH=1 '{}' run 'count'",
        opencode.display()
    );
    works(&world, "opencode", settings, &script);
}
