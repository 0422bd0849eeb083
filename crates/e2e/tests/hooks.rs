//! `atoll hook`: decisions on the tools of agents, and their commands in a sandbox.

use std::path::Path;
use std::time::Duration;

use e2e::{Avoidable, Outcome, World, cache, traces};
use serde_json::{Value, json};

const MODEL: &str = include_str!("init/model.py");

/// Denies commands and files by a word in them, asks about others; all other calls are allowed.
const POLICIES: &str = r#"
@id("no-deploys")
forbid(principal, action == Action::"call", resource)
when { context.arguments.text.hasTag("command") && context.arguments.text.getTag("command") like "*deploy*" };

@id("no-settings")
forbid(principal, action == Action::"call", resource)
when { context.arguments.text.hasTag("file_path") && context.arguments.text.getTag("file_path") like "*/.claude/*" };

@id("releases") @approve("person")
permit(principal, action == Action::"call", resource)
when { context.arguments.text.hasTag("command") && context.arguments.text.getTag("command") like "*release*" };

@id("others")
permit(principal, action == Action::"call", resource)
unless { context.arguments.text.hasTag("command") && context.arguments.text.getTag("command") like "*release*" };
"#;

fn world(name: &str) -> World {
    let world = World::new(name);
    world.write(world.config().join("atoll/own.cedar"), POLICIES);
    world.write(world.home().join("secret.txt"), "of-the-person\n");
    world
}

/// An agent with hooks.
struct Agent {
    name: &'static str,
    /// The file that is started, below the packages of npm.
    package: &'static str,
    /// The end of the name of its tool for commands, as its model sees it.
    tool: &'static str,
    /// The name of the argument that is the command.
    argument: &'static str,
    /// The file of settings, below the home.
    settings: &'static str,
    text: &'static str,
    /// The line that starts it; `AGENT` is the file, `PORT` the model's.
    script: &'static str,
}

const CODEX: Agent = Agent {
    name: "codex",
    package: "@openai/codex/bin/codex.js",
    tool: "exec_command",
    argument: "cmd",
    settings: ".codex/config.toml",
    text: "model = \"scripted\"\nmodel_provider = \"mine\"\n[model_providers.mine]\nname = \"mine\"\n\
           base_url = \"http://127.0.0.1:PORT/v1\"\nwire_api = \"responses\"\nsupports_websockets = false\n",
    script: "node AGENT exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox \
             --dangerously-bypass-hook-trust 'work' </dev/null",
};

const CLAUDE: Agent = Agent {
    name: "claude",
    package: if cfg!(target_arch = "aarch64") {
        "@anthropic-ai/claude-code-linux-arm64/claude"
    } else {
        "@anthropic-ai/claude-code-linux-x64/claude"
    },
    tool: "Bash",
    argument: "command",
    settings: ".claude/settings.json",
    text: "{\"permissions\": {\"allow\": [\"Bash\"]}}\n",
    script: "ANTHROPIC_BASE_URL=http://127.0.0.1:PORT ANTHROPIC_API_KEY=none \
             CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 AGENT --print 'work' </dev/null",
};

const GEMINI: Agent = Agent {
    name: "gemini",
    package: "@google/gemini-cli/bundle/gemini.js",
    tool: "run_shell_command",
    argument: "command",
    settings: ".gemini/settings.json",
    text: "{\"security\": {\"auth\": {\"selectedType\": \"gemini-api-key\"}}}\n",
    script: "GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:PORT GEMINI_API_KEY=none \
             node AGENT --model gemini-2.5-flash --skip-trust --yolo --prompt 'work' </dev/null",
};

/// Has an agent with a scripted model run these commands; returns what the model was told.
fn told(world: &World, agent: &Agent, file: &Path, commands: &[&str]) -> String {
    let calls = commands
        .iter()
        .map(|one| json!({ agent.argument: one }).to_string());
    let model = world.host("python3").args(["-c", MODEL, agent.tool]);
    let model = model.args(calls).start();
    let said = model.until_stdout(" \n");
    let port = said.split_whitespace().nth(1).unwrap();
    let settings = world.home().join(agent.settings);
    let text = agent.text.replace("PORT", port);
    // What `atoll init` has written stays.
    match world.exists(&settings) && agent.name != "codex" {
        true => {}
        false => world.write(&settings, text),
    }
    let script = agent.script.replace("PORT", port);
    let script = script.replace("AGENT", &format!("'{}'", file.display()));
    let ran = world.host_shell(&script).within(Duration::from_secs(180));
    let ran = ran.run();
    assert_eq!(ran.code(), 0, "{ran}");
    model.signal(rustix::process::Signal::KILL);
    let said = model.wait().out();
    let told = said.lines().rev().find(|line| line.starts_with("told "));
    told.unwrap_or_else(|| panic!("{said}\n{ran}")).to_owned()
}

/// The real agent, without the hook and with it.
fn works(world: &World, agent: &Agent) {
    let file = cache().map(|cache| cache.join("npm/node_modules").join(agent.package));
    let Some(file) = file.filter(|file| file.exists()) else {
        let why = format!("{} is not in ATOLL_TEST_CACHE", agent.package);
        return world.skip(&why, Avoidable::Yes);
    };
    let commands = [
        "echo in-a-layer >made.txt; cat made.txt ~/secret.txt",
        "echo 42-r'a'n; echo deploy >denied.txt",
        "cat made.txt; echo \"and 'again'\"",
    ];
    let without = told(world, agent, &file, &commands);
    assert!(
        without.contains("of-the-person") && without.contains("42-ran"),
        "{without}"
    );
    for made in ["made.txt", "denied.txt"] {
        std::fs::remove_file(world.path(made)).unwrap();
    }
    let begun = world.atoll(["init", agent.name, "--hook"]).run().success();
    let _ = begun.says(["--hook --undo"]);
    let with = told(world, agent, &file, &commands);
    assert!(
        with.contains("in-a-layer") && with.contains("and 'again'"),
        "{with}"
    );
    assert!(
        !with.contains("of-the-person") && !with.contains("42-ran"),
        "{with}"
    );
    assert!(
        with.contains("no-deploys") && with.contains("atoll why"),
        "{with}"
    );
    assert!(!world.exists("made.txt") && !world.exists("denied.txt"));
    let changed = world.atoll(["diff", "last"]).run().success().out();
    assert!(
        changed.contains("b/made.txt") && changed.contains("+in-a-layer"),
        "{changed}"
    );
    let events = traces::events(world);
    let of = |kind: &str| {
        let of = events.iter().filter(|one| one["type"] == kind);
        of.map(|one| one["body"].clone()).collect::<Vec<_>>()
    };
    let closed = of("tool.closed");
    let is_allowed = |one: &Value| one["verdict"] == "allow";
    let (opened, denied): (Vec<_>, Vec<_>) = of("tool.opened").into_iter().partition(is_allowed);
    assert_eq!(
        (opened.len(), closed.len(), denied.len()),
        (2, 2, 1),
        "{with}"
    );
    let shell = if agent.name == "gemini" {
        "run_shell_command"
    } else {
        "Bash"
    };
    assert_eq!(opened[0]["tool"], format!("{}__{shell}", agent.name));
    // The first command reads what is not there.
    assert_eq!(
        (&closed[0]["end"], &closed[1]["end"]),
        (&json!("failed"), &json!("done"))
    );
    assert_eq!(of("exec.opened").len(), 2);
    traces::verify_ledger(world);
}

#[test]
fn commands_of_codex_run_in_a_sandbox() {
    works(&world("commands_of_codex_run_in_a_sandbox"), &CODEX);
}

#[test]
fn commands_of_claude_code_run_in_a_sandbox() {
    works(&world("commands_of_claude_code_run_in_a_sandbox"), &CLAUDE);
}

#[test]
fn commands_of_gemini_run_in_a_sandbox() {
    works(&world("commands_of_gemini_run_in_a_sandbox"), &GEMINI);
}

/// An event as the agent writes it.
fn event(world: &World, agent: &str, tool: &str, input: &Value) -> Value {
    let kind = if agent == "gemini" {
        "BeforeTool"
    } else {
        "PreToolUse"
    };
    json!({
        "session_id": "01a22d15-7bf2-75c3-b288-a6303699f43c",
        "transcript_path": null,
        "cwd": world.workspace(),
        "hook_event_name": kind,
        "permission_mode": "default",
        "tool_name": tool,
        "tool_input": input,
        "tool_use_id": "c1",
    })
}

fn hooked(world: &World, agent: &str, event: impl ToString) -> Outcome {
    world.atoll(["hook", agent]).stdin(event.to_string()).run()
}

/// Returns the decision on a tool, and its reason.
fn decision(world: &World, agent: &str, tool: &str, input: &Value) -> (String, String) {
    let answer = hooked(world, agent, event(world, agent, tool, input))
        .success()
        .json();
    let of = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str);
    let decision = of("/hookSpecificOutput/permissionDecision").or(of("/decision"));
    let why = of("/hookSpecificOutput/permissionDecisionReason").or(of("/reason"));
    (
        decision.unwrap_or("none").to_owned(),
        why.unwrap_or("").to_owned(),
    )
}

/// Returns the command that is in the place of another.
fn rewritten(world: &World, agent: &str, tool: &str, command: &str) -> String {
    let event = event(
        world,
        agent,
        tool,
        &json!({ "command": command, "timeout": 5 }),
    );
    let answer = hooked(world, agent, event).success().json();
    let answer = &answer["hookSpecificOutput"];
    let input = match agent {
        "gemini" => &answer["tool_input"],
        _ => &answer["updatedInput"],
    };
    assert_eq!(input["timeout"], 5, "{answer}");
    input["command"].as_str().unwrap().to_owned()
}

#[test]
fn event_that_cannot_be_judged_is_a_denial() {
    let world = world("event_that_cannot_be_judged_is_a_denial");
    let good = event(&world, "claude", "Bash", &json!({ "command": "true" }));
    let _ = hooked(&world, "claude", &good).success();
    let with = |name: &str, value: Value| {
        let mut event = good.clone();
        event[name] = value;
        event.to_string()
    };
    let twice = good
        .to_string()
        .replacen('{', "{\"tool_name\": \"Read\", ", 1);
    for (event, why) in [
        (String::new(), "EOF"),
        ("[]".to_owned(), "hook_event_name is no text"),
        (twice, "comes twice"),
        (
            with("x", json!("x".repeat(300_000))),
            "longer than 262144 bytes",
        ),
        (
            with("hook_event_name", json!("PostToolUse")),
            "not PreToolUse",
        ),
        (
            with("hook_event_name", json!("BeforeTool")),
            "not PreToolUse",
        ),
        (with("tool_name", json!(["Bash"])), "tool_name is no text"),
        (with("tool_name", json!("Bash\nRead")), "no name of a tool"),
        (
            with("tool_name", json!("x".repeat(70))),
            "no name of a tool",
        ),
        (with("tool_name", json!("REPL")), "beneath `atoll run`"),
        (with("tool_input", json!("true")), "tool_input is no object"),
        (with("tool_input", json!({})), "is no text"),
        (
            with("tool_input", json!({ "command": ["true"] })),
            "is no text",
        ),
        (
            with("tool_input", json!({ "command": "a\u{0}b" })),
            "no program can be given",
        ),
        (with("session_id", json!("../../x")), "no id of a session"),
        (with("session_id", json!(7)), "session_id is no text"),
        (with("cwd", json!("work")), "no absolute path"),
    ] {
        let refused = hooked(&world, "claude", event).expect_status(2);
        assert!(refused.err().contains(why), "{why}: {refused}");
        assert_eq!(refused.out(), "", "{why}");
    }
    // A usage that is none, and a program that is gone, are denials by what `atoll init` writes.
    let _ = world.atoll(["init", "gemini", "--hook"]).run().success();
    let settings = world.read(world.home().join(".gemini/settings.json"));
    let settings: Value = serde_json::from_str(&settings).unwrap();
    let line = &settings["hooks"]["BeforeTool"][0]["hooks"][0]["command"];
    let line = line.as_str().unwrap();
    let good = event(&world, "gemini", "read_file", &json!({ "file_path": "a" })).to_string();
    let run = |line: &str| world.host_shell(line).stdin(good.clone()).run();
    assert_eq!(run(line).success().out(), "{}\n");
    for line in [
        line.replace(" hook gemini", " hook nobody"),
        line.replace("/atoll", "/gone"),
    ] {
        let refused = run(&line).expect_status(2);
        assert!(refused.err().contains("has not allowed it"), "{refused}");
    }
}

#[test]
fn tools_are_decided_on_and_recorded() {
    let world = world("tools_are_decided_on_and_recorded");
    let settings = json!({ "file_path": "/home/x/.claude/settings.json", "content": "{}" });
    let deploy = json!({ "command": "make deploy" });
    let release = json!({ "command": "make release" });
    for (agent, tool, input, expected, why) in [
        ("claude", "Write", &json!({ "file_path": "/x" }), "none", ""),
        ("claude", "Write", &settings, "deny", "no-settings"),
        (
            "claude",
            "Bash",
            &json!({ "command": "make" }),
            "allow",
            "sandbox",
        ),
        ("claude", "Monitor", &deploy, "deny", "no-deploys"),
        ("claude", "Bash", &deploy, "deny", "no-deploys"),
        ("claude", "Bash", &release, "ask", "releases"),
        (
            "codex",
            "apply_patch",
            &json!({ "command": "*** Begin Patch" }),
            "none",
            "",
        ),
        ("codex", "Bash", &deploy, "deny", "no-deploys"),
        (
            "codex",
            "Bash",
            &release,
            "deny",
            "nobody can be asked here",
        ),
        (
            "gemini",
            "read_file",
            &json!({ "file_path": "x" }),
            "none",
            "",
        ),
        ("gemini", "run_shell_command", &deploy, "deny", "no-deploys"),
        (
            "gemini",
            "run_shell_command",
            &release,
            "deny",
            "nobody can be asked here",
        ),
    ] {
        let (decided, told) = decision(&world, agent, tool, input);
        assert_eq!(decided, expected, "{agent} {tool}: {told}");
        assert!(told.contains(why), "{agent} {tool}: {told}");
    }
    let events = traces::events(&world);
    // What is asked about, or allowed as a command, is on record once it is carried out.
    let opened = events.iter().filter(|one| one["type"] == "tool.opened");
    let recorded = opened.map(|one| {
        let of = |name: &str| one["body"][name].as_str().unwrap().to_owned();
        format!("{} {}", of("verdict"), of("tool"))
    });
    let recorded: Vec<String> = recorded.collect();
    assert_eq!(
        recorded,
        [
            "allow claude__Write",
            "deny claude__Write",
            "deny claude__Bash",
            "deny claude__Bash",
            "allow codex__apply_patch",
            "deny codex__Bash",
            "ask codex__Bash",
            "allow gemini__read_file",
            "deny gemini__run_shell_command",
            "ask gemini__run_shell_command",
        ]
    );
}

#[test]
fn what_a_person_approves_in_the_agent_is_what_runs() {
    let world = world("what_a_person_approves_in_the_agent_is_what_runs");
    let asked = rewritten(&world, "claude", "Bash", "echo release 1");
    assert!(asked.contains(" --agreed "), "{asked}");
    let other = asked.replace("release 1", "release 2");
    let refused = world.host_shell(&other).run().expect_status(126);
    assert!(refused.err().contains("releases"), "{refused}");
    let (before, rest) = asked.split_once(" --agreed ").unwrap();
    let unasked = format!("{before} {}", rest.split_once(' ').unwrap().1);
    let refused = world.host_shell(&unasked).run().expect_status(126);
    assert!(refused.err().contains("releases"), "{refused}");
    let ran = world.host_shell(&asked).run().success();
    assert_eq!(ran.out(), "release 1\n");
}

#[test]
fn command_reaches_the_shell_inside_as_it_is() {
    let world = world("command_reaches_the_shell_inside_as_it_is");
    for nasty in [
        "'; touch escaped; '",
        "\"; touch escaped; \"",
        "$(touch escaped) `touch escaped` ${x}",
        "\\' \\\" \\\n !! !x * ? ~ # %s \t",
        "' '' ''' \u{1b}[31m \u{202e} ä",
        "-- --agreed x --session y",
        "EOF\n'EOF'\nexit 3",
    ] {
        // The rest is never read: bash executes line by line.
        let command = format!("printf %s \"$BASH_EXECUTION_STRING\"; exit 7\n{nasty}");
        for (agent, tool) in [("claude", "Bash"), ("gemini", "run_shell_command")] {
            let line = rewritten(&world, agent, tool, &command);
            let ran = world.host_shell(&line).run().expect_status(7);
            assert_eq!(ran.out(), command, "{line}");
        }
    }
    assert!(!world.exists("escaped"));
}

/// The sandbox of a session lives while any command of it runs, and is made anew after that.
#[test]
fn commands_of_a_session_share_a_sandbox() {
    let world = world("commands_of_a_session_share_a_sandbox");
    let line = |command: &str| rewritten(&world, "claude", "Bash", command);
    let wait = "echo 1 >first; until [ -e second ]; do sleep 0.05; done; sleep 0.5; cat second";
    let waiting = world.host_shell(&line(wait)).start();
    let second = "until [ -e first ]; do sleep 0.05; done; echo 2 >second; cat first";
    let second = world.host_shell(&line(second)).run().success();
    assert_eq!(second.out(), "1\n");
    let first = waiting.wait().success();
    assert_eq!(first.out(), "2\n");
    let is_running = |one: &Value| one["state"] == "running";
    assert!(!world.runs().iter().any(is_running), "{:?}", world.runs());
    let run = world.last_run();
    // What an editor outside does meanwhile is seen, and what was changed inside too.
    world.write("outside.txt", "old\n");
    let shown = "cat outside.txt; cat first";
    assert_eq!(
        world.host_shell(&line(shown)).run().success().out(),
        "old\n1\n"
    );
    world.write("new.txt", "new\n");
    std::fs::rename(world.path("new.txt"), world.path("outside.txt")).unwrap();
    let shown = world.host_shell(&line(shown)).run().success();
    assert_eq!(shown.out(), "new\n1\n");
    assert_ne!(world.last_run(), run);
    // One that is ended takes no other along, and leaves nothing behind.
    let waiting = world
        .host_shell(&format!("exec {}", line("echo here; sleep 600")))
        .start();
    let _ = waiting.until_stdout("here");
    waiting.signal(rustix::process::Signal::KILL);
    let _ = waiting.wait();
    e2e::wait_until("the sandbox's end", e2e::BOUND, || {
        let goes_on = world.runs().iter().any(is_running);
        (!goes_on).then_some(())
    });
    assert_eq!(
        world.host_shell(&line("cat first")).run().success().out(),
        "1\n"
    );
    // What was applied is in the workspace, and the next one begins with that.
    let _ = world.atoll(["apply", "last"]).run().success();
    assert_eq!(world.read("first"), "1\n");
    let again = world.host_shell(&line("cat second")).run().success();
    assert_eq!(again.out(), "2\n");
}

/// The commands and policies of the page, as they stand there.
#[test]
fn page_on_hooks_works() {
    let world = World::new("page_on_hooks_works");
    let page = include_str!("../../../docs/hooks.md");
    let block = |kind: &str| {
        let (_, rest) = page.split_once(&format!("```{kind}\n")).unwrap();
        rest.split_once("```").unwrap().0
    };
    world.write(world.config().join("atoll/own.cedar"), block("cedar"));
    let commands = block("console").lines();
    let commands: Vec<&str> = commands
        .filter_map(|line| line.strip_prefix("$ "))
        .collect();
    assert_eq!(commands.len(), 4);
    for command in commands {
        let script = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {command}");
        let _ = world.host_shell(&script).run().success();
    }
    let own = json!({ "file_path": world.home().join(".claude/settings.json") });
    let publish = json!({ "command": "npm publish" });
    for (agent, tool, input, expected) in [
        ("claude", "Edit", &own, "deny"),
        ("claude", "Bash", &publish, "ask"),
        ("codex", "Bash", &publish, "deny"),
        ("codex", "Bash", &json!({ "command": "npm test" }), "allow"),
    ] {
        let (decided, why) = decision(&world, agent, tool, input);
        assert_eq!(decided, expected, "{agent} {tool}: {why}");
    }
}

#[test]
fn hook_in_a_sandbox_of_atoll_decides_nothing() {
    let world = world("hook_in_a_sandbox_of_atoll_decides_nothing");
    let event = event(
        &world,
        "claude",
        "Bash",
        &json!({ "command": "make deploy" }),
    );
    world.write("event", event.to_string());
    let own = std::env::var("ATOLL_BIN").unwrap();
    let shown = ["--ro", &own];
    let inside = world
        .run(shown, &format!("'{own}' hook claude <event"))
        .run();
    assert_eq!(inside.success().out(), "{}\n");
    // Outside the variable alone says nothing.
    let outside = world.atoll(["hook", "claude"]).env("ATOLL_RUN", "x");
    let outside = outside.stdin(event.to_string()).run().success();
    assert!(outside.out().contains("deny"), "{outside}");
}

#[test]
fn settings_of_an_agent_name_the_hook_and_not() {
    let world = world("settings_of_an_agent_name_the_hook_and_not");
    for (agent, file, event, before) in [
        ("codex", ".codex/hooks.json", "PreToolUse", ""),
        (
            "claude",
            ".claude/settings.json",
            "PreToolUse",
            "{\n  \"theme\": \"dark\"\n}\n",
        ),
        (
            "gemini",
            ".gemini/settings.json",
            "BeforeTool",
            "{\n  \"hooks\": {\n    \"BeforeTool\": [\n      {\n        \"hooks\": []\n      }\n    ]\n  }\n}\n",
        ),
    ] {
        let file = world.home().join(file);
        if !before.is_empty() {
            world.write(&file, before);
        }
        let init = |words: &[&str]| world.atoll(["init", agent, "--hook"]).args(words).run();
        let begun = init(&[]).success();
        let shown = file.display().to_string();
        let _ = begun.says([&*format!("atoll init {agent} --hook --undo"), &shown]);
        assert_eq!(begun.err().contains("/hooks"), agent == "codex", "{begun}");
        let after = world.read(&file);
        let settings: Value = serde_json::from_str(&after).unwrap();
        let entries = settings["hooks"][event].as_array().unwrap();
        let command = &entries.last().unwrap()["hooks"][0]["command"];
        assert!(
            command
                .as_str()
                .unwrap()
                .contains(&format!(" hook {agent} ")),
            "{after}"
        );
        let _ = init(&[]).success().says(["already"]);
        assert_eq!(world.read(&file), after);
        world.write(&file, after.replace("exit 2", "exit 0"));
        let _ = init(&[])
            .expect_status(125)
            .is_clear_error(["another hook of Atoll", "by hand"]);
        let _ = init(&["--undo"])
            .expect_status(125)
            .is_clear_error(["another hook of Atoll"]);
        world.write(&file, &after);
        let _ = init(&["--undo"]).success();
        let kept = if before.is_empty() { "{}\n" } else { before };
        assert_eq!(world.read(&file), kept, "{agent}");
        let _ = init(&["--undo"]).success().says(["does not name"]);
    }
    let refused = world
        .atoll(["init", "opencode", "--hook"])
        .run()
        .expect_status(125);
    let _ = refused.is_clear_error(["OpenCode", "atoll run"]);
}
