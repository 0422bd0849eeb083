//! Agents at work, with a model that has its answers ready under the name of a real one:
//! one turn runs a command, which makes a file and tries to reach somebody else.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use e2e::internet::{events, is_possible, on_servers, without_namespaces};
use e2e::{Avoidable, Outcome, World, cache, is_root};

const LONG: Duration = Duration::from_secs(300);
const MODEL: &str = include_str!("agents/servers.py");
const KEY: &str = "key-of-this-test";
/// What the model has the agent do.
const COMMAND: &str = "echo made by an agent > made.txt; cat made.txt; \
                       curl -sS -m 60 http://example.com/ 2>&1 || echo kept in";

/// Where a package of npm lies in the cache, if this file of it is there.
fn package(world: &World, file: &str) -> Option<PathBuf> {
    let path = cache().map(|cache| cache.join("npm/node_modules").join(file));
    let found = path.filter(|path| path.is_file());
    if found.is_none() {
        let reason = format!("{file} is not in ATOLL_TEST_CACHE");
        world.skip(&reason, Avoidable::Yes);
    }
    found
}

/// How a run is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// With namespaces.
    Full,
    /// Where there are none: the workspace is the program's own.
    Fence,
}

/// Runs an agent by a shell script, where the model is.
fn at_work(world: &World, mode: Mode, options: &[&str], script: &str) -> Outcome {
    let npm = cache().unwrap().join("npm");
    let command = match mode {
        Mode::Full => "\"$ATOLL\" run --keep \"$@\"".to_owned(),
        Mode::Fence => {
            let path = without_namespaces(world);
            format!("'{}' run --keep \"$@\"", path.display())
        }
    };
    let run = on_servers(world, MODEL, &["api.openai.com"], &command);
    let run = run.env("COMMAND", COMMAND).env("OPENAI_API_KEY", KEY);
    let run = run
        .within(LONG)
        .args(["sh", "--env", "OPENAI_API_KEY", "--ro"]);
    run.arg(npm)
        .args(options)
        .args(["--", "sh", "-c", script])
        .run()
}

/// What holds of each agent.
fn check(world: &World, mode: Mode, outcome: &Outcome) {
    let requests = fs::read_to_string(world.top().join("internet/requests")).unwrap_or_default();
    let what = format!("{outcome}\n{requests}");
    assert!(outcome.out().contains("ALL IS DONE"), "{what}");
    // The model was asked with the key, by its own name, and heard what the command said.
    let asked = format!("Bearer {KEY}");
    assert!(
        requests
            .lines()
            .any(|line| line.starts_with("POST api.openai.com /v1/") && line.ends_with(&asked)),
        "{what}"
    );
    assert!(requests.contains("made by an agent"), "{what}");
    let reached = fs::read_to_string(world.top().join("internet/reached")).unwrap_or_default();
    assert_eq!(reached, "", "{what}");
    // Its file is a change of the run, and in a fence alone in the workspace.
    let is_fenced = outcome.err().contains("only fenced in");
    assert_eq!(is_fenced, mode == Mode::Fence, "{what}");
    assert_eq!(world.exists("made.txt"), is_fenced, "{what}");
    let changed = world.atoll(["diff", "last"]).run().success();
    assert!(
        changed.out().contains("made.txt") && changed.out().contains("+made by an agent"),
        "{changed}"
    );
    let opened = events(world, "flow.opened");
    assert!(
        opened.iter().any(|one| one["kind"] == "request"
            && one["method"] == "POST"
            && one["host"] == "api.openai.com"),
        "{opened:?}"
    );
    let refused = events(world, "flow.refused");
    assert!(
        refused.iter().any(|one| one["host"] == "example.com"),
        "{refused:?}"
    );
}

#[test]
fn codex_works_with_a_model_that_its_profile_lets_it_reach() {
    let world = World::new("codex_works_with_a_model_that_its_profile_lets_it_reach");
    codex(&world, Mode::Full);
}

#[test]
fn codex_works_in_a_fence_too() {
    let world = World::new("codex_works_in_a_fence_too");
    if is_root() {
        return world.skip("root always has namespaces", Avoidable::No);
    }
    codex(&world, Mode::Fence);
}

fn codex(world: &World, mode: Mode) {
    if !is_possible(world, &["openssl", "node"]) {
        return;
    }
    let Some(codex) = package(world, "@openai/codex/bin/codex.js") else {
        return;
    };
    let settings = "model = \"scripted\"\nmodel_provider = \"openai-by-key\"\n\
                    [model_providers.openai-by-key]\nname = \"openai\"\nbase_url = \"https://api.openai.com/v1\"\n\
                    env_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\nsupports_websockets = false\n";
    world.write(world.home().join(".codex/config.toml"), settings);
    // In a fence what a profile gives in a layer can only be read, and Codex writes there.
    let own = match mode {
        Mode::Full => "",
        Mode::Fence => "cp -RL ~/.codex ~/codex && export CODEX_HOME=~/codex && ",
    };
    let script = format!(
        "{own}node '{}' exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox 'do the work'",
        codex.display()
    );
    let outcome = at_work(world, mode, &["--profile", "codex"], &script);
    check(world, mode, &outcome);
    let is_told = outcome.err().contains(".codex can be read and not changed");
    assert_eq!(is_told, mode == Mode::Fence, "{outcome}");
}

#[test]
fn opencode_works_with_a_model_that_its_profile_lets_it_reach() {
    let world = World::new("opencode_works_with_a_model_that_its_profile_lets_it_reach");
    if let Some(outcome) = opencode(&world, Mode::Full) {
        check(&world, Mode::Full, &outcome);
    }
}

#[test]
fn opencode_aborts_in_a_fence_and_it_is_told_why() {
    let world = World::new("opencode_aborts_in_a_fence_and_it_is_told_why");
    if is_root() {
        return world.skip("root always has namespaces", Avoidable::No);
    }
    let Some(outcome) = opencode(&world, Mode::Fence) else {
        return;
    };
    assert!(!outcome.out().contains("ALL IS DONE"), "{outcome}");
    let outcome = outcome.expect_status(134);
    let _ = outcome.says([
        "OpenCode aborts where namespaces are missing",
        "/proc of its own process",
        "atoll doctor says how",
    ]);
}

fn opencode(world: &World, mode: Mode) -> Option<Outcome> {
    if !is_possible(world, &["openssl"]) {
        return None;
    }
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    let file = format!("opencode-linux-{architecture}/bin/opencode");
    let opencode = package(world, &file)?;
    let settings = r#"{"provider": {"scripted": {"npm": "@ai-sdk/openai-compatible", "name": "scripted",
        "options": {"baseURL": "https://api.openai.com/v1", "apiKey": "{env:OPENAI_API_KEY}"},
        "models": {"model": {"name": "model"}}}}, "permission": {"bash": "allow"}}"#;
    world.write("opencode.json", settings);
    let script = format!(
        "'{}' run --model scripted/model 'do the work'",
        opencode.display()
    );
    let options = [
        "--profile",
        "opencode",
        "--env",
        "OPENCODE_DISABLE_MODELS_FETCH=1",
        "--env",
        "OPENCODE_DISABLE_AUTOUPDATE=1",
    ];
    Some(at_work(world, mode, &options, &script))
}
