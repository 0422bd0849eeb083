//! Messages to new users: they state what happened, where a rule stands, and what to type next.

use std::fs;

use e2e::{Avoidable, World, fine, is_root, program_exists, write_program};
use serde_json::Value;

const NONE: [&str; 0] = [];
const QUESTION: &str = "Apply the changes?";

/// Returns the types of the events of the last run, and the state that each names.
fn events(world: &World, run: &str) -> Vec<(String, Value)> {
    let shown = fine(world, &["ledger", "show", "--json", run]).out();
    let read = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        (
            event["type"].as_str().unwrap().to_owned(),
            event["body"].clone(),
        )
    };
    shown.lines().map(read).collect()
}

#[test]
fn why_names_the_rule_its_layer_and_what_to_do() {
    let world = World::new("why_names_the_rule_its_layer_and_what_to_do");
    let _ = world
        .run(["--profile", "strict", "--live"], "true")
        .run()
        .expect_status(126);
    let story = fine(&world, &["why"]).out();
    for words in [
        "denied by profile strict (--profile); nothing was started",
        "--live: the workspace is never live here",
        "shipped/strict.toml:3 (a profile that comes with Atoll)",
        "leave out --live",
        "atoll profile show strict",
    ] {
        assert!(story.contains(words), "{words:?} is not in\n{story}");
    }
    let told = fine(&world, &["why", "--json"]).json();
    assert_eq!(told["verdict"], "deny", "{told:#}");
    assert_eq!(told["reasons"][0]["rule"], "shipped/strict.toml:3");
}

/// The suggested profile works, and drops nothing that counted before.
#[test]
fn a_program_that_no_profile_shows_is_found_with_the_profile_that_is_told() {
    let world =
        World::new("a_program_that_no_profile_shows_is_found_with_the_profile_that_is_told");
    let place = world.top().join("tools/bin");
    fs::create_dir_all(&place).unwrap();
    write_program(&place.join("codex"), "#!/bin/sh\necho found\n");
    let path = format!("{}:/usr/bin:/bin", place.display());
    let run = || world.atoll(["run", "--", "codex"]).env("PATH", &path).run();
    let told = run().expect_status(127).err();
    let file = world.config().join("atoll/profiles/codex.toml");
    for words in [
        "which profile codex does not show inside",
        &format!("write a profile, {}:", file.display()),
    ] {
        assert!(told.contains(words), "{words:?} is not in\n{told}");
    }
    let lines = told.lines().map(str::trim_start);
    let lines: Vec<&str> = lines
        .skip_while(|one| !one.starts_with("extends"))
        .collect();
    let read = format!("read = [{:?}]", place.to_str().unwrap());
    assert_eq!(
        lines[..4],
        [
            "extends = [\"codex\"]",
            "commands = [\"codex\"]",
            "[files]",
            &read
        ]
    );
    let why = world.atoll(["why", "--json"]).env("PATH", &path).run();
    let shown = &why.success().json()["show-by-profile"];
    assert_eq!(shown["file"], file.to_str().unwrap(), "{shown}");
    let written: Vec<&str> = shown["lines"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(Value::as_str)
        .collect();
    assert_eq!(written, lines[..4]);
    world.write(file, written.join("\n"));
    assert_eq!(run().success().out(), "found\n");
    let profile = fine(&world, &["why", "--json"]).json();
    assert!(
        profile["decision"]["network"]
            .to_string()
            .contains("api.openai.com")
    );
    // A program that is shown, and what it names is not.
    write_program(&place.join("codex"), "#!/not/there\n");
    let told = run().expect_status(127).err();
    assert!(told.contains("shows it inside: the interpreter"), "{told}");
}

#[test]
fn what_is_nearly_right_is_refused_with_what_was_meant() {
    let world = World::new("what_is_nearly_right_is_refused_with_what_was_meant");
    let _ = world.run_inside("true").success();
    let config = world.config();
    let profile = "[files]\nread = [\"/nowhere/at-all\"]\n[network]\nallow = [\"a.example\"]\n\
                   [credential.one]\nsource = { vault = \"none-such\" }\nto = \"a.example\"\n\
                   place = { header = \"authorization\" }\nvariable = \"ONE\"\n";
    world.write(config.join("atoll/profiles/lacks.toml"), profile);
    let request = "request GTE https://a.example/";
    for (words, expected) in [
        (
            &["run", "--purpose", "reveiw", "--", "true"][..],
            &["did you mean \"review\"?"][..],
        ),
        (
            &["stop", "--agent", "codx"],
            &["no run of profile codx", "did you mean codex?"],
        ),
        (
            &["token", "issue", "--allow", request],
            &["no method GTE", "did you mean GET?"],
        ),
        (
            &["policy", "ask", "connect", "a.example", "--port", "web"],
            &["\"web\"", "--port", "a whole number"],
        ),
        (
            &[
                "policy",
                "ask",
                "request",
                "a.example",
                "--confidence",
                "lots",
            ],
            &["\"lots\"", "--confidence", "a whole number"],
        ),
        (
            &["ledger", "tail", "-n", "many"],
            &["\"many\"", "--number", "a whole number"],
        ),
        (
            &["policy", "diff", "a", "b"],
            &["no file a", "atoll policy show"],
        ),
        (
            &["policy", "test", "nosuch.cedar"],
            &["no file nosuch.cedar", "atoll policy show"],
        ),
        (
            &["run", "--token", "/nope", "--", "true"],
            &["/nope", "atoll token issue"],
        ),
        (
            &["run", "--json", "--", "true"],
            &["--json names a file", "--json -"],
        ),
    ] {
        let outcome = world.atoll(words).run();
        outcome.is_clear_error(expected.iter().copied());
    }
    let idle = fine(&world, &["stop", "--agent", "codex"]);
    idle.says(["No run of profile codex goes on."]);
    let ask = fine(&world, &["policy", "ask", "request", "a.example"]);
    assert!(
        ask.out().contains("\n  by policies alone: ") && ask.out().contains("atoll policy explain"),
        "{ask}"
    );
    let token = fine(&world, &["token", "issue", "--allow", "resolve a.example"]);
    token.says(["the token has no end: with --until 2h"]);
    let tiny = world.atoll(["secret", "set", "tiny"]).stdin("12345").run();
    tiny.success().says(["5 bytes", "takes 16"]);
    fine(&world, &["profile", "check", "lacks"]).says([
        "no problems",
        "lacks.toml:2: warning: there is no /nowhere/at-all",
        "warning: the vault has no secret none-such",
        "atoll secret set none-such",
    ]);
}

#[test]
fn why_tells_the_boundary_and_a_command_that_allows_more() {
    let world = World::new("why_tells_the_boundary_and_a_command_that_allows_more");
    let data = world.top().join("data");
    world.write(data.join("file"), "1\n");
    let data = data.to_str().unwrap();
    let options = ["--timeout", "300ms", "--ro", data];
    let _ = world.run(options, "sleep 60").run().expect_status(124);
    let story = fine(&world, &["why"]).out();
    let unfolded = story.split_whitespace().collect::<Vec<_>>().join(" ");
    let again = format!("atoll run --ro {data} --limit wall-clock=1s -- sh -c 'sleep 60'");
    for words in [
        &again,
        "allowed by profile default (no other profile applies)",
        "copy-on-write; the system read-only",
        "network: none",
        "the home is empty",
        "wall-clock 300 ms",
        "the time limit was reached",
        "going beyond the limit wall-clock",
    ] {
        // Where a line is folded depends on how long the paths are.
        assert!(
            unfolded.contains(words) || story.contains(words),
            "{words:?} is not in\n{story}"
        );
    }
    // A long path stands on a line of its own.
    assert!(
        story.contains("may also read:") && story.contains(data),
        "{story}"
    );
    assert!(!story.contains('{'), "raw JSON in\n{story}");
    let told = fine(&world, &["why", "--json"]).json();
    assert_eq!(told["exit"], 124, "{told:#}");
    assert_eq!(told["decision"]["chosen-by"], "built in");
    assert!(told["limits-held-by"]["disk"].is_string(), "{told:#}");
    assert!(told["events"].as_array().unwrap().len() >= 3, "{told:#}");
    // The command that it names does allow more.
    let again = world.run(["--limit", "wall-clock=10s"], "sleep 0.5").run();
    let _ = again.success();
    let _ = world.run(["--discard"], "true").run().success();
    let story = fine(&world, &["why"]).out();
    assert!(story.contains("nothing of it was kept"), "{story}");
}

#[test]
fn names_in_the_ledger_do_not_speak_to_the_terminal_of_why() {
    let world = World::new("names_in_the_ledger_do_not_speak_to_the_terminal_of_why");
    let odd = "\x1b]52;c;eA==\x07";
    let _ = world
        .atoll(["run", "--", "printf", "%s", odd])
        .run()
        .success();
    let story = fine(&world, &["why"]).out();
    assert!(
        story.contains("printf") && !story.contains('\x1b'),
        "{story}"
    );
}

#[test]
fn a_workspace_within_the_system_is_refused_before_anything_is_made() {
    let world = World::new("a_workspace_within_the_system_is_refused_before_anything_is_made");
    for place in ["/usr/share", "/usr/lib"] {
        let tried = world
            .atoll(["run", "--workspace", place, "--discard", "--", "true"])
            .run();
        if is_root() {
            let refused = tried.expect_status(126);
            refused.is_clear_error(["lies in /usr", "cp -a", "ordinary user"]);
        } else {
            assert!(!tried.err().contains("Read-only file system"), "{tried}");
        }
    }
}

#[test]
fn what_the_system_shows_already_can_be_named_with_ro() {
    let world = World::new("what_the_system_shows_already_can_be_named_with_ro");
    let ran = world.run(["--ro", "/usr/share"], "ls -d /usr/share").run();
    assert_eq!(ran.success().out(), "/usr/share\n");
}

#[test]
fn a_limit_that_cannot_be_held_comes_with_ways_on() {
    let world = World::new("a_limit_that_cannot_be_held_comes_with_ways_on");
    let tried = world
        .run(["--profile", "strict", "--discard"], "true")
        .run();
    let doctor = world.atoll(["doctor"]).run().out();
    if !std::path::Path::new("/run/systemd/system").exists() {
        assert!(!doctor.contains("systemd-run"), "{doctor}");
        assert!(!tried.err().contains("systemd-run"), "{tried}");
    }
    if tried.code() == 0 {
        assert!(doctor.contains("\nok      cpu "), "{doctor}");
        return;
    }
    let refused = tried.expect_status(125);
    refused.is_clear_error([
        "cannot enforce the limit cpu",
        "control group",
        "atoll profile show strict",
        "unenforced-limits",
    ]);
    assert!(doctor.contains("weaker  control-groups"), "{doctor}");
    assert!(doctor.contains("\nweaker  cpu "), "{doctor}");
    // The way on that is named works, and is recorded.
    world.profile(
        "unheld",
        "extends = [\"strict\"]\n[dangerous]\nunenforced-limits = true\n",
    );
    let started = world.run(["--profile", "unheld"], "true").run().success();
    started.says(["limits", "not held on this machine: cpu"]);
    let story = fine(&world, &["why"]).out();
    assert!(story.contains("limits not held here: cpu"), "{story}");
}

#[test]
fn only_limits_that_were_asked_for_are_told_at_the_end() {
    let world = World::new("only_limits_that_were_asked_for_are_told_at_the_end");
    let usual = world.run(["--json", "-"], "true").run().success();
    assert!(!usual.err().contains("  limits "), "{usual}");
    assert!(usual.err().contains("supervisor, in part"), "{usual}");
    let story = fine(&world, &["why"]).out();
    assert!(story.contains("held in part: disk"), "{story}");
    let asked = world.run(["--limit", "disk=1GiB"], "true").run().success();
    asked.says(["limits", "held in part: disk"]);
    let doctor = world.atoll(["doctor"]).run().out();
    assert!(doctor.contains("\nnote    disk "), "{doctor}");
}

#[test]
fn swap_that_was_asked_for_is_held_or_refused() {
    let world = World::new("swap_that_was_asked_for_is_held_or_refused");
    let tried = world
        .run(["--limit", "swap=0", "--json", "-"], "true")
        .run();
    let has_swap = fs::read_to_string("/proc/swaps").unwrap().lines().count() > 1;
    // What is held, by whom or by what ever, is not said to be refused.
    let doctor = world.atoll(["doctor"]).run().out();
    let grade = if tried.code() == 0 { "ok" } else { "weaker" };
    assert!(doctor.contains(&format!("\n{grade:8}swap ")), "{doctor}");
    if tried.code() == 0 {
        let by = fine(&world, &["why", "--json"]).json()["limits-held-by"]["swap"].clone();
        assert!(by != "none", "{tried}");
        assert!(
            !has_swap || by.as_str().unwrap().starts_with("cgroup"),
            "{by}"
        );
    } else {
        assert!(has_swap, "{tried}");
        tried
            .expect_status(125)
            .is_clear_error(["cannot enforce the limit swap"]);
    }
}

#[test]
fn a_removed_ledger_is_found_and_told_by_the_next_run() {
    let world = World::new("a_removed_ledger_is_found_and_told_by_the_next_run");
    let _ = world.run_inside("echo new > new").success();
    fs::remove_dir_all(world.state().join("atoll/ledger")).unwrap();
    let verified = world.atoll(["ledger", "verify"]).run().expect_status(1);
    verified.is_clear_error(["damaged", "keep a copy"]);
    assert!(verified.out().contains("the ledger is gone"), "{verified}");
    let next = world.run_inside("echo started").success();
    assert_eq!(next.out(), "started\n");
    next.says(["warning: the ledger was gone", "atoll ledger verify"]);
    let first = fine(&world, &["ledger", "show", "--json"]).out();
    let first: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    assert_eq!(first["type"], "ledger.repaired", "{first:#}");
    assert_eq!(first["body"]["cause"], "removed", "{first:#}");
    let verified = world.atoll(["ledger", "verify"]).run().expect_status(1);
    assert!(verified.out().contains("recorded"), "{verified}");
    // It is told once.
    let later = world.run_inside("true").success();
    assert!(!later.err().contains("ledger"), "{later}");
}

#[test]
fn a_removed_segment_is_found_and_told_by_the_next_run() {
    let world = World::new("a_removed_segment_is_found_and_told_by_the_next_run");
    let _ = world.run_inside("echo new > new").success();
    fs::remove_file(world.segment()).unwrap();
    let _ = world.atoll(["ledger", "verify"]).run().expect_status(1);
    let next = world.run_inside("true").success();
    next.says(["warning: the ledger has lost its end"]);
    let _ = world.atoll(["ledger", "verify"]).run().expect_status(1);
}

#[test]
fn a_broken_profile_stops_only_the_runs_that_use_it() {
    let world = World::new("a_broken_profile_stops_only_the_runs_that_use_it");
    let text = "commands = [\"cat\"]\nmemory = \"1GiB\"\n";
    world.profile("mine", text);
    let other = world.run(NONE, "echo fine").run().success();
    assert_eq!(other.out(), "fine\n");
    other.says(["warning", "profile mine has a mistake", "mine.toml:2"]);
    let named = world.run(["--profile", "default"], "true").run().success();
    assert!(!named.err().contains("warning"), "{named}");
    for line in [
        vec!["run", "--profile", "mine", "--", "true"],
        vec!["run", "--", "cat", "/dev/null"],
    ] {
        let stopped = world.atoll(line).run().expect_status(125);
        stopped.is_clear_error(["mine.toml:2", "memory"]);
    }
    let listed = fine(&world, &["profile", "list"]).out();
    let broken = listed
        .lines()
        .find(|line| line.starts_with("mine"))
        .unwrap();
    assert!(
        broken.contains("broken") && broken.contains("mine.toml:2"),
        "{listed}"
    );
    let told = fine(&world, &["profile", "list", "--json"]).json();
    let mine = told
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"] == "mine");
    assert_eq!(mine.unwrap()["problems"].as_array().unwrap().len(), 1);
    let path = world.config().join("atoll/profiles/mine.toml");
    let _ = world
        .atoll(["profile", "check", path.to_str().unwrap()])
        .run()
        .expect_status(1);
}

#[test]
fn a_shown_profile_is_a_profile_file() {
    let world = World::new("a_shown_profile_is_a_profile_file");
    let shown = fine(&world, &["profile", "show", "strict"]).out();
    assert!(
        shown.contains("processes = 256                # shipped/strict.toml:7"),
        "{shown}"
    );
    world.profile("pasted", &shown);
    let path = world.config().join("atoll/profiles/pasted.toml");
    let _ = fine(&world, &["profile", "check", path.to_str().unwrap()]);
    let of =
        |name: &str| fine(&world, &["profile", "show", name, "--json"]).json()["rules"].clone();
    let values = |rules: &Value| -> Vec<Value> {
        let list = rules["limits"].as_array().unwrap();
        list.iter().map(|one| one["value"].clone()).collect()
    };
    assert_eq!(values(&of("pasted")), values(&of("strict")));
    let unknown = world
        .atoll(["profile", "show", "strickt"])
        .run()
        .expect_status(125);
    unknown.is_clear_error(["did you mean \"strict\"", "atoll profile list"]);
}

#[test]
fn runs_are_filtered_and_found_by_the_words_of_habit() {
    let world = World::new("runs_are_filtered_and_found_by_the_words_of_habit");
    let _ = world.run_inside("echo 1 > one").success();
    let applied = world.last_run();
    let _ = fine(&world, &["apply", "last"]);
    let _ = world.run_inside("echo 2 > two").success();
    let kept = world.last_run();
    let shown = |arguments: &[&str]| {
        let line = [&["runs", "--json"], arguments].concat();
        let told = fine(&world, &line).json();
        let list = told.as_array().unwrap().iter();
        list.map(|one| one["run"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let both = [kept.clone(), applied.clone()];
    assert_eq!(shown(&[]), both);
    assert_eq!(shown(&["list"]), both);
    assert_eq!(shown(&["ls"]), both);
    assert_eq!(shown(&["--state", "kept"]), both[..1]);
    assert_eq!(shown(&["--state", "applied"]), both[1..]);
    assert_eq!(shown(&[&applied]), both[1..]);
    assert_eq!(shown(&["--workspace", "."]), both);
    assert_eq!(shown(&["--workspace", "/usr"]), NONE);
    let none = fine(&world, &["runs", "--state", "failed"]);
    none.says(["no run is like that", "--all"]);
    let wrong = world.atoll(["runs", "--state", "open"]).run();
    wrong.expect_status(125).says(["kept", "applied"]);
}

#[test]
fn a_run_that_was_decided_about_is_not_resumed_and_says_what_to_do() {
    let world = World::new("a_run_that_was_decided_about_is_not_resumed_and_says_what_to_do");
    let resume = |run: &str| world.run(["--resume", run], "true").run();
    let _ = world.run_inside("echo 1 > one").success();
    let run = world.last_run();
    let _ = fine(&world, &["apply", &run]);
    let before = events(&world, &run).len();
    let applied = resume(&run).expect_status(125);
    applied.is_clear_error(["was applied", "in the workspace already", "atoll undo"]);
    let _ = fine(&world, &["undo", &run]);
    let undone = resume(&run).expect_status(125);
    undone.is_clear_error(["applied and taken back", "atoll apply"]);
    assert!(events(&world, &run).len() > before);
    let _ = world.run(["--live"], "echo 2 > two").run().success();
    let live = resume(&world.last_run()).expect_status(125);
    live.is_clear_error(["--live", "in the workspace already"]);
    let _ = world.run_inside("echo 3 > three").success();
    let first = world.last_run();
    let _ = resume(&first).success();
    let again = resume(&first).expect_status(125);
    again.is_clear_error(["went on with its changes", world.last_run().as_str()]);
    let _ = fine(&world, &["discard", "last"]);
    let gone = resume("last").expect_status(125);
    gone.is_clear_error(["was discarded"]);
}

#[test]
fn a_link_in_the_list_of_programs_stands_for_where_it_leads() {
    let world = World::new("a_link_in_the_list_of_programs_stands_for_where_it_leads");
    let shell = fs::canonicalize("/bin/sh").unwrap();
    let loader = fs::canonicalize("/lib64/ld-linux-x86-64.so.2").unwrap();
    assert_ne!(loader.to_str(), Some("/lib64/ld-linux-x86-64.so.2"));
    let profile = |programs: &str| {
        world.profile("few", &format!("[programs]\nexecute = [{programs}]\n"));
    };
    profile("\"/bin/sh\", \"/lib64/ld-linux-x86-64.so.2\"");
    let ran = world
        .run(["--profile", "few"], "echo fine; /bin/ls / && echo more")
        .run();
    assert_eq!(ran.out(), "fine\n", "{} {ran}", shell.display());
    let not_there = "\"/bin/sh\", \"/usr/bin/no-such-program\"";
    profile(not_there);
    let missing = world
        .run(["--profile", "few"], "true")
        .run()
        .expect_status(125);
    missing.is_clear_error(["no-such-program does not exist", "atoll profile show few"]);
}

#[test]
fn the_question_explains_itself_and_enter_keeps() {
    let world = World::new("the_question_explains_itself_and_enter_keeps");
    let mut terminal = world.run(NONE, "echo new > new").on_terminal(24, 80);
    terminal.expect(QUESTION);
    terminal.line("nonsense");
    terminal.expect("\"nonsense\" is no answer here");
    terminal.expect(QUESTION);
    terminal.line("?");
    terminal.expect("throw it away, for good");
    terminal.expect(QUESTION);
    terminal.line("");
    terminal.expect("Kept. `atoll apply ");
    let _ = terminal.wait().success();
    assert!(!world.exists("new"));
    assert_eq!(world.runs()[0]["state"], "kept");
}

#[test]
fn whoever_interrupts_the_question_keeps() {
    let world = World::new("whoever_interrupts_the_question_keeps");
    for typed in ["\x03", "di\x1c", "\x04"] {
        let mut terminal = world.run(NONE, "echo new > new").on_terminal(24, 80);
        terminal.expect(QUESTION);
        terminal.expect("]: ");
        terminal.send(typed);
        terminal.expect("Kept. `atoll apply ");
        let _ = terminal.wait().success();
        assert!(!world.exists("new"), "{typed:?}");
        assert_eq!(world.runs()[0]["state"], "kept", "{typed:?}");
        assert_eq!(world.runs()[0]["changes"]["added"], 1, "{typed:?}");
    }
}

#[test]
fn the_question_of_a_live_run_is_about_taking_back() {
    let world = World::new("the_question_of_a_live_run_is_about_taking_back");
    world.write("old", "old\n");
    let mut terminal = world
        .run(["--live"], "echo new > new; echo more >> old")
        .on_terminal(24, 80);
    let shown = terminal.expect("Keep the changes?");
    assert!(!shown.contains("atoll apply"), "{shown}");
    terminal.expect("take back");
    terminal.line("a");
    terminal.expect("no answer here");
    terminal.line("x");
    terminal.expect("Taken back. ");
    let _ = terminal.wait().success();
    assert!(!world.exists("new"));
    assert_eq!(world.read("old"), "old\n");
}

#[test]
fn what_is_answered_at_the_question_is_recorded_as_by_commands() {
    let world = World::new("what_is_answered_at_the_question_is_recorded_as_by_commands");
    let after_end = |run: &str| -> Vec<(String, Value)> {
        let all = events(&world, run);
        let end = all
            .iter()
            .position(|(kind, _)| kind == "run.closed")
            .unwrap();
        all[end + 1..].to_vec()
    };
    let kinds = |list: &[(String, Value)]| -> Vec<String> {
        list.iter().map(|(kind, _)| kind.clone()).collect()
    };
    let mut by_question = Vec::new();
    for answer in ["x", "a"] {
        let mut terminal = world.run(NONE, "echo $ATOLL_RUN > new").on_terminal(24, 80);
        terminal.expect(QUESTION);
        let run = world.last_run();
        terminal.line(answer);
        let _ = terminal.wait().success();
        by_question.push(after_end(&run));
    }
    let mut by_command = Vec::new();
    for command in ["discard", "apply"] {
        let _ = world.run_inside("echo $ATOLL_RUN > new").success();
        let run = world.last_run();
        let _ = fine(&world, &[command, &run]);
        by_command.push(after_end(&run));
    }
    for (one, other) in by_question.iter().zip(&by_command) {
        assert_eq!(kinds(one), kinds(other));
    }
    assert_eq!(by_question[0], by_command[0]);
    assert_eq!(kinds(&by_question[0]), ["run.discarded"]);
    assert_eq!(
        kinds(&by_question[1]),
        ["promotion.opened", "apply.started", "apply.finished"]
    );
}

#[test]
fn an_apply_that_leaves_something_out_does_not_say_that_all_is_applied() {
    let world = World::new("an_apply_that_leaves_something_out_does_not_say_that_all_is_applied");
    let mut terminal = world
        .run(NONE, "echo a > a; echo run > .envrc")
        .on_terminal(24, 80);
    terminal.expect(QUESTION);
    terminal.line("a");
    terminal.expect("Applied in part. ");
    let _ = terminal.wait().success();
    assert!(world.exists("a") && !world.exists(".envrc"));
}

#[test]
fn what_does_not_start_is_told_with_its_reason() {
    let world = World::new("what_does_not_start_is_told_with_its_reason");
    world.write("script", "echo hi\n");
    fs::create_dir(world.path("directory")).unwrap();
    for (command, status, words) in [
        ("./script", 126, "chmod +x ./script"),
        ("./directory", 126, "is a directory"),
        ("nosuch", 127, "not in the PATH of the host either"),
    ] {
        let ended = world.atoll(["run", "--", command]).run();
        ended.expect_status(status).says([words]);
    }
    let ended = world.atoll(["run", "--env", "PATH=", "--", "ls"]).run();
    ended
        .expect_status(127)
        .says(["also inside, but not in the PATH there"]);
    let small = world.run(["--limit", "memory=1"], "true").run();
    small
        .expect_status(125)
        .is_clear_error(["1 B is too small to start anything; at least 4.0 MiB"]);
    let held = world.run(["--limit", "cpu=1"], "true").run();
    assert!(
        held.code() == 0 || held.err().contains("try: without --limit cpu it starts"),
        "{held}"
    );
}

#[test]
fn what_a_command_did_not_do_it_does_not_say() {
    let world = World::new("what_a_command_did_not_do_it_does_not_say");
    let _ = world.run_inside("echo new > new").success();
    fine(&world, &["apply", "last"]).says(["applied"]);
    let again = fine(&world, &["apply", "last"]);
    again.says(["nothing to apply"]);
    assert!(!again.err().contains("takes it back"), "{again}");
    let discarded = fine(&world, &["discard", "last"]);
    discarded.says(["stays in the workspace", "cannot be taken back now"]);
    assert!(world.exists("new"));
    let _ = world.run_inside("echo newer > new").success();
    let discarded = fine(&world, &["discard", "last"]);
    assert!(!discarded.err().contains("warning"), "{discarded}");
}

/// Returns the number of programs within these bytes, each with its own headers.
fn programs_within(bytes: &[u8]) -> usize {
    let starts = |at: &[u8]| at[..7] == *b"\x7fELF\x02\x01\x01" && at[52..56] == [64, 0, 56, 0];
    bytes.windows(56).filter(|at| starts(at)).count()
}

/// The download is no larger than it has to be: it holds itself, the launcher, and the program
/// that goes on from an interpreter's memory.
#[test]
fn the_program_holds_its_parts_once() {
    let program = std::env::var_os("ATOLL_BIN").unwrap();
    assert_eq!(programs_within(&fs::read(program).unwrap()), 3);
}

#[test]
fn a_clone_that_lacks_its_configuration_is_told_of() {
    let world = World::new("a_clone_that_lacks_its_configuration_is_told_of");
    if !program_exists("git") {
        return world.skip("there is no git", Avoidable::Yes);
    }
    let _ = world
        .run_inside("git init -q made && echo x >made/file")
        .success();
    let said = fine(&world, &["apply", "last"]).err();
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("made is not whole without made/.git/config"),
        "{said}"
    );
    assert!(world.exists("made/file") && !world.exists("made/.git/config"));
    // The control.
    let whole = fine(&world, &["apply", "last", "--control"]);
    assert!(!whole.err().contains("not whole"), "{whole}");
    assert!(world.exists("made/.git/config"), "{whole}");
    let _ = world
        .run_inside("git -C made config a.b c && echo y >made/other")
        .success();
    let changed = fine(&world, &["apply", "last"]);
    assert!(!changed.err().contains("not whole"), "{changed}");
    assert!(world.exists("made/other"), "{changed}");
}
