//! The promises of the command line: statuses, streams, options, and the commands about profiles,
//! the ledger and the machine.

use std::collections::BTreeSet;
use std::fs;

use e2e::{World, fine, is_root, wait_until};
use serde_json::Value;

const NONE: [&str; 0] = [];

/// Returns whether this host can limit an ordinary user's processor time, as the profile `strict`
/// demands. Where it cannot, that is a clear error.
fn holds_cpu(world: &World) -> bool {
    let tried = world.run(["--limit", "cpu=1", "--discard"], "true").run();
    if tried.code() != 0 {
        tried.is_clear_error(["cannot enforce the limit cpu", "control group"]);
    }
    tried.code() == 0
}

// The exit status.

#[test]
fn the_status_is_the_commands_own() {
    let world = World::new("the_status_is_the_commands_own");
    for code in [0, 1, 3, 42, 255] {
        let _ = world
            .run_inside(&format!("exit {code}"))
            .expect_status(code);
    }
}

#[test]
fn a_run_out_of_time_ends_with_124() {
    let world = World::new("a_run_out_of_time_ends_with_124");
    let late = world
        .run(["--timeout", "300ms"], "sleep 60")
        .run()
        .expect_status(124);
    late.says(["time limit"]);
}

#[test]
fn errors_of_its_own_end_with_125() {
    let world = World::new("errors_of_its_own_end_with_125");
    let no_such = world
        .atoll(["run", "--no-such-option", "--", "true"])
        .run()
        .expect_status(125);
    no_such.says(["--no-such-option"]);
    let _ = world.atoll(["run"]).run().expect_status(125);
    let _ = world.atoll(["no-such-command"]).run().expect_status(125);
    let missing = world
        .atoll(["run", "--workspace", "/no/such", "--", "true"])
        .run();
    missing.expect_status(125).is_clear_error(["/no/such"]);
}

#[test]
fn what_is_not_executable_ends_with_126() {
    let world = World::new("what_is_not_executable_ends_with_126");
    world.write("plain.txt", "text");
    let _ = world
        .atoll(["run", "--", "./plain.txt"])
        .run()
        .expect_status(126);
    let _ = world.atoll(["run", "--", "/usr"]).run().expect_status(126);
}

#[test]
fn a_denied_run_ends_with_126_and_says_by_which_rule() {
    let world = World::new("a_denied_run_ends_with_126_and_says_by_which_rule");
    let denied = world
        .run(["--profile", "strict", "--live"], "true")
        .run()
        .expect_status(126);
    denied.says(["denies", "why:", "try:", "strict"]);
    let why = fine(&world, &["why"]);
    assert!(why.out().to_lowercase().contains("live"), "{why}");
}

#[test]
fn what_is_not_found_ends_with_127_and_a_hint() {
    let world = World::new("what_is_not_found_ends_with_127_and_a_hint");
    let missing = world
        .atoll(["run", "--", "no-such-program-x"])
        .run()
        .expect_status(127);
    missing.says(["not found", "no-such-program-x"]);
}

#[test]
fn a_program_of_the_hosts_that_is_not_shown_is_hinted_at() {
    let world = World::new("a_program_of_the_hosts_that_is_not_shown_is_hinted_at");
    let hidden = world.home().join("bin/only-at-home");
    world.write(&hidden, "#!/bin/sh\necho found\n");
    let _ = world
        .host_shell("chmod 755 \"$HOME/bin/only-at-home\"")
        .run()
        .success();
    let path = format!("{}:/usr/bin:/bin", world.home().join("bin").display());
    let told = world
        .atoll(["run", "--", "only-at-home"])
        .env("PATH", path)
        .run();
    told.expect_status(127)
        .says([hidden.to_str().unwrap(), "profile"]);
}

#[test]
fn a_signalled_command_ends_with_128_and_its_number() {
    let world = World::new("a_signalled_command_ends_with_128_and_its_number");
    let ended = world
        .run_inside("kill -TERM $$; sleep 60")
        .expect_status(143);
    ended.says(["SIGTERM"]);
    let _ = world
        .run_inside("kill -KILL $$; sleep 60")
        .expect_status(137);
    let _ = world
        .run_inside("kill -SEGV $$; sleep 60")
        .expect_status(139);
}

#[test]
fn a_signal_to_atoll_reaches_the_command() {
    let world = World::new("a_signal_to_atoll_reaches_the_command");
    let script = "trap 'echo got it; exit 7' TERM; echo ready; while :; do sleep 0.02; done";
    let running = world.run(NONE, script).start();
    running.until_stdout("ready");
    running.signal(rustix::process::Signal::TERM);
    let ended = running.wait().expect_status(7);
    assert!(ended.out().contains("got it"), "{ended}");
}

// Streams.

#[test]
fn standard_input_is_piped_through() {
    let world = World::new("standard_input_is_piped_through");
    let bytes: Vec<u8> = (0..200_000_u32)
        .map(|number| (number * 7 % 251) as u8)
        .collect();
    let echoed = world.run(NONE, "cat").stdin(bytes.clone()).run().success();
    assert!(
        echoed.stdout == bytes,
        "{} bytes came back",
        echoed.stdout.len()
    );
    let empty = world.run(NONE, "cat; echo end").run().success();
    assert_eq!(empty.out(), "end\n");
}

#[test]
fn a_command_that_reads_no_input_does_not_wait_for_its_end() {
    let world = World::new("a_command_that_reads_no_input_does_not_wait_for_its_end");
    // The pipe stays open.
    let running = world.run(NONE, "echo done").start();
    let _ = running.wait().success();
}

#[test]
fn output_and_errors_are_kept_apart() {
    let world = World::new("output_and_errors_are_kept_apart");
    let both = world
        .run_inside("echo to-output; echo to-errors >&2")
        .success();
    assert_eq!(both.out(), "to-output\n");
    both.says(["to-errors"]);
    assert!(!both.err().contains("to-output"), "{both}");
}

#[test]
fn ten_megabytes_of_output_come_through_whole() {
    let world = World::new("ten_megabytes_of_output_come_through_whole");
    let script = "i=0; yes 0123456789abcde | head -c 10485760";
    let long = world.run(["--discard"], script).run().success();
    assert_eq!(long.stdout.len(), 10_485_760);
    assert!(
        long.stdout
            .chunks(16)
            .all(|line| line == b"0123456789abcde\n")
    );
    let short = world
        .run(["--discard", "--limit", "output=1KiB"], script)
        .run()
        .success();
    assert_eq!(
        short.stdout.len(),
        10_485_760,
        "the limit is on what is kept, not on what is shown"
    );
}

#[test]
fn a_reader_that_leaves_early_ends_the_run() {
    let world = World::new("a_reader_that_leaves_early_ends_the_run");
    let ended = world
        .host_shell("\"$ATOLL\" run --discard -- yes 2>/dev/null | head -n 1")
        .run()
        .success();
    assert_eq!(ended.out(), "y\n");
}

// Options.

#[test]
fn json_tells_how_the_run_went() {
    let world = World::new("json_tells_how_the_run_went");
    let file = world.top().join("result.json");
    let options = ["--json", file.to_str().unwrap()];
    let _ = world
        .run(options, "echo new > new.txt; exit 3")
        .run()
        .expect_status(3);
    let told: Value = serde_json::from_str(&world.read(&file)).unwrap();
    assert_eq!(told["exit"], 3, "{told:#}");
    assert_eq!(told["state"], "kept", "{told:#}");
    assert_eq!(told["profile"], "default", "{told:#}");
    assert_eq!(
        told["workspace"],
        world.workspace().to_str().unwrap(),
        "{told:#}"
    );
    assert_eq!(told["changes"]["workspace"]["added"], 1, "{told:#}");
    assert_eq!(told["run"].as_str().unwrap(), world.last_run(), "{told:#}");
    for number in ["wall-clock-ms", "cpu-ms", "memory-peak-bytes"] {
        assert!(told[number].is_u64(), "{number}: {told:#}");
    }
}

#[test]
fn json_tells_of_runs_that_never_began() {
    let world = World::new("json_tells_of_runs_that_never_began");
    let file = world.top().join("result.json");
    let told = |options: &[&str], status: i32| {
        world.write(&file, "a longer text that was there before\n".repeat(200));
        let all = [&["--json", file.to_str().unwrap()], options].concat();
        let _ = world.run(all, "true").run().expect_status(status);
        let told: Value = serde_json::from_str(&world.read(&file)).unwrap();
        assert_eq!(told["exit"], status, "{told:#}");
        told
    };
    let denied = told(&["--profile", "strict", "--live"], 126);
    assert_eq!(denied["state"], "denied", "{denied:#}");
    assert_eq!(denied["profile"], "strict", "{denied:#}");
    assert!(denied["run"].is_string(), "{denied:#}");
    let reason = &denied["reasons"][0];
    for field in ["what", "why", "rule", "how_to_ask"] {
        assert!(reason[field].is_string(), "{field}: {denied:#}");
    }
    let failed = told(&["--profile", "no-such-profile"], 125);
    assert_eq!(failed["state"], "failed", "{failed:#}");
    assert!(
        failed["what"].is_string() && failed["run"].is_null(),
        "{failed:#}"
    );
    let failed = told(&["--workspace", "/no/such"], 125);
    assert!(
        failed["what"].as_str().unwrap().contains("/no/such"),
        "{failed:#}"
    );
}

#[test]
fn denials_are_told_as_far_as_they_are_known() {
    let world = World::new("denials_are_told_as_far_as_they_are_known");
    let told = |options: &[&str], script: &str| {
        let file = world.top().join("result.json");
        let all = [&["--json", file.to_str().unwrap()], options].concat();
        let ended = world.run(all, script).run();
        let told: Value = serde_json::from_str(&world.read(&file)).unwrap();
        assert_eq!(
            told["denials-not-seen"],
            serde_json::json!(["network", "files", "other-system-calls"]),
            "{told:#}"
        );
        (ended, told)
    };
    // Nobody saw that this was refused: an empty list does not say that nothing was.
    let (ended, quiet) = told(&[], "cat /root/.ssh/id_rsa; true");
    assert_eq!(quiet["denied"], serde_json::json!([]), "{quiet:#}");
    assert!(!ended.err().contains("denied "), "{ended}");
    let (ended, late) = told(&["--timeout", "1s"], "sleep 60");
    ended.says(["denied", "going beyond the limit wall-clock", "atoll why"]);
    assert_eq!(late["denied"][0]["times"], 1, "{late:#}");
    let (ended, file) = told(&[], "echo x > suid; chmod 4755 suid");
    ended.says([
        "files",
        "nothing that can be taken over",
        "denied",
        "setuid",
        "atoll diff",
    ]);
    let what = file["denied"][0]["what"].as_str().unwrap();
    assert!(what.contains("suid") && what.contains("setuid"), "{file:#}");
}

#[test]
fn json_to_a_dash_is_standard_error() {
    let world = World::new("json_to_a_dash_is_standard_error");
    let told = world.run(["--json", "-"], "true").run().success();
    told.says(["\"exit\": 0"]);
    assert!(!world.exists("-"), "a file was made of the dash");
}

#[test]
fn env_passes_a_variable_on_or_sets_it() {
    let world = World::new("env_passes_a_variable_on_or_sets_it");
    let script = "echo \"$PASSED|$SET|$EMPTY|${LEFT-unset}\"";
    let seen = world
        .run(
            ["--env", "PASSED", "--env", "SET=a b=c", "--env", "EMPTY="],
            script,
        )
        .env("PASSED", "from outside")
        .env("LEFT", "secret")
        .run()
        .success();
    assert_eq!(seen.out(), "from outside|a b=c||unset\n");
}

#[test]
fn secrets_of_the_environment_are_absent_inside() {
    let world = World::new("secrets_of_the_environment_are_absent_inside");
    let mut invocation = world.run(
        NONE,
        "env; tr '\\0' '\\n' < /proc/1/environ 2>/dev/null; true",
    );
    let secrets = [
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "OPENAI_API_KEY",
        "SSH_AUTH_SOCK",
        "DBUS_SESSION_BUS_ADDRESS",
        "LD_PRELOAD",
        "NODE_OPTIONS",
        "PROMPT_COMMAND",
        "BASH_ENV",
    ];
    for name in secrets {
        invocation = invocation.env(name, "sesame-4711");
    }
    // The loader complains of such a library outside, and goes on.
    let seen = invocation.run().success();
    assert!(!seen.out().contains("sesame-4711"), "{seen}");
    assert!(seen.out().contains("LANG=C.UTF-8"), "{seen}");
    let home = format!("HOME={}\n", world.home().display());
    assert!(seen.out().contains(&home), "{seen}");
    assert!(!seen.out().contains("XDG_STATE_HOME"), "{seen}");
}

#[test]
fn every_limit_is_understood_and_recorded() {
    let world = World::new("every_limit_is_understood_and_recorded");
    let mut limits = vec![
        "memory=512MiB",
        "swap=0",
        "processes=64",
        "open-files=128",
        "disk=64MiB",
        "inodes=5000",
        "tmp=16MiB",
        "wall-clock=50s",
        "idle=40s",
        "output=1MiB",
    ];
    // Swap that is asked for and cannot be held is refused; a test of its own sees that.
    if world
        .run(["--limit", "swap=0", "--discard"], "true")
        .run()
        .code()
        != 0
    {
        limits.retain(|limit| !limit.starts_with("swap"));
    }
    let cpu = holds_cpu(&world);
    if cpu {
        limits.push("cpu=1.5");
    }
    let options: Vec<&str> = limits.iter().flat_map(|limit| ["--limit", limit]).collect();
    let script = "ulimit -n; df -k /tmp | awk 'END { print $2, $4 }'
        head -c 16M /dev/zero > /tmp/all && echo fits
        head -c 1 /dev/zero > ~/more || echo full; wc -c < ~/more";
    let ended = world.run(options, script).run().success();
    // What the sandbox's root needs for itself is not the program's, nor taken from it.
    assert_eq!(ended.out(), "128\n16384 16384\nfits\nfull\n0\n", "{ended}");
    let events = fine(&world, &["ledger", "show", "--json", &world.last_run()]).out();
    for recorded in [
        "\"memory-bytes\":536870912",
        "\"swap-bytes\":0",
        "\"processes\":64",
        "\"open-files\":128",
        "\"disk-bytes\":67108864",
        "\"inodes\":5000",
        "\"tmp-bytes\":16777216",
        if cpu {
            "\"cpu-millis\":1500"
        } else {
            "\"cpu-millis\":null"
        },
        "\"wall-clock-ms\":50000",
        "\"idle-ms\":40000",
        "\"output-bytes\":1048576",
    ] {
        assert!(events.contains(recorded), "{recorded} is not in\n{events}");
    }
}

#[test]
fn a_directory_shown_with_ro_can_be_read_and_not_written() {
    let world = World::new("a_directory_shown_with_ro_can_be_read_and_not_written");
    let data = world.top().join("data");
    world.write(data.join("in/file"), "shown");
    let shown = data.to_str().unwrap();
    let file = data.join("in/file");
    let file = file.to_str().unwrap();
    let unseen = world.run(NONE, &format!("cat {file}")).run();
    assert_ne!(unseen.code(), 0, "it can be read without --ro\n{unseen}");
    let seen = world
        .run(["--ro", shown], &format!("cat {file}"))
        .run()
        .success();
    assert_eq!(seen.out(), "shown");
    let script = format!(
        "echo x > {file} || echo refused; rm {file} || echo refused; echo > {shown}/new || echo refused"
    );
    let written = world.run(["--ro", shown], &script).run();
    assert_eq!(written.out(), "refused\nrefused\nrefused\n", "{written}");
    assert_eq!(world.read(file), "shown");
    let one = world
        .run(
            ["--ro", file],
            &format!("cat {file}; echo x > {file} || echo refused"),
        )
        .run();
    assert_eq!(one.out(), "shownrefused\n", "{one}");
}

#[test]
fn a_profile_is_found_by_name_and_by_file() {
    let world = World::new("a_profile_is_found_by_name_and_by_file");
    world.profile(
        "mine",
        "description = \"my own\"\n[environment]\nset = { MARK = \"mine\" }\n",
    );
    world.write(
        "other.toml",
        "description = \"here\"\n[environment]\nset = { MARK = \"file\" }\n",
    );
    let named = world
        .run(["--profile", "mine"], "echo $MARK")
        .run()
        .success();
    assert_eq!(named.out(), "mine\n");
    let file = world
        .run(["--profile", "./other.toml"], "echo $MARK")
        .run()
        .success();
    assert_eq!(file.out(), "file\n");
    if holds_cpu(&world) {
        let shipped = world
            .run(["--profile", "strict"], "ulimit -n")
            .run()
            .success();
        assert_eq!(shipped.out(), "1024\n");
    }
}

#[test]
fn every_shipped_profile_runs() {
    let world = World::new("every_shipped_profile_runs");
    for name in [
        "default",
        "strict",
        "permissive",
        "rust",
        "python",
        "node",
        "go",
        "codex",
        "claude",
        "opencode",
        "gemini",
        "openclaw",
        "browser",
    ] {
        if name == "strict" && !holds_cpu(&world) {
            continue;
        }
        let ran = world
            .run(["--profile", name, "--discard"], "echo fine")
            .run()
            .success();
        assert_eq!(ran.out(), "fine\n", "{name}: {ran}");
    }
}

#[test]
fn a_profile_is_chosen_by_the_command() {
    let world = World::new("a_profile_is_chosen_by_the_command");
    let text = "description = \"for cat\"\ncommands = [\"cat\"]\n[environment]\nset = { MARK = \"cat\" }\n";
    world.profile("feline", text);
    let chosen = world
        .atoll(["run", "--", "cat", "/proc/self/environ"])
        .run()
        .success();
    assert!(chosen.out().contains("MARK=cat"), "{chosen}");
    let other = world.run(NONE, "echo ${MARK-none}").run().success();
    assert_eq!(other.out(), "none\n");
}

#[test]
fn the_working_directory_is_the_same_inside() {
    let world = World::new("the_working_directory_is_the_same_inside");
    world.write("sub/deep/file", "");
    let sub = world.path("sub/deep");
    let workspace = world.workspace();
    let options = ["--workspace", workspace.to_str().unwrap()];
    let inside = world
        .run(options, "pwd; echo > ../made-here")
        .dir(&sub)
        .run()
        .success();
    assert_eq!(inside.out().trim(), sub.to_str().unwrap());
    let changed = fine(&world, &["diff", "last", "--stat"]).out();
    assert!(changed.contains("sub/made-here"), "{changed}");
}

// Profiles and trust.

#[test]
fn profiles_are_listed_shown_and_checked() {
    let world = World::new("profiles_are_listed_shown_and_checked");
    world.profile("mine", "description = \"my very own\"\n");
    let listed = fine(&world, &["profile", "list"]).out();
    for name in [
        "default",
        "strict",
        "permissive",
        "rust",
        "python",
        "node",
        "go",
        "codex",
        "claude",
        "mine",
    ] {
        assert!(
            listed.lines().any(|line| line.starts_with(name)),
            "{name} is not in\n{listed}"
        );
    }
    assert!(listed.contains("my very own"), "{listed}");
    let shown = fine(&world, &["profile", "show", "strict"]).out();
    assert!(shown.contains("1024"), "{shown}");
    world.write("good.toml", "description = \"good\"\n");
    let _ = fine(&world, &["profile", "check", "good.toml"]);
    for name in ["mine", "strict"] {
        fine(&world, &["profile", "check", name]).says([name, "no problems"]);
    }
    world
        .atoll(["profile", "check", "strct"])
        .run()
        .is_clear_error(["there is no profile", "strict"]);
    // What its rules make of it counts too.
    world.write(
        "unused.toml",
        "[credential.a]\nsource = { environment = \"A_TOKEN\" }\nto = \"a.example\"\n\
         place = { header = \"x-key\" }\noptional = true\n",
    );
    fine(&world, &["profile", "check", "unused.toml"])
        .says(["note: credential a is never used at a.example:443"]);
    world.write("orphan.toml", "extends = [\"nobody\"]\n");
    let orphan = world.atoll(["profile", "check", "orphan.toml"]).run();
    assert!(orphan.expect_status(1).out().contains("nobody"));
    let presets = fine(&world, &["profile", "presets"]).out();
    assert!(presets.contains("git-push"), "{presets}");
    // Their descriptions begin in one column, however long a name is.
    let column = |line: &str| {
        let (name, text) = line.split_once("  ").unwrap();
        name.len() + 2 + text.len() - text.trim_start().len()
    };
    let columns: BTreeSet<usize> = presets.lines().map(column).collect();
    assert_eq!(columns.len(), 1, "{presets}");
    let unnamed = world.atoll(["stop"]).run().expect_status(125);
    let _ = unnamed.is_clear_error(["no run is named", "stop last", "--session NAME", "--all"]);
    // A reader that has seen enough is no mistake.
    let head = world
        .host_shell("\"$ATOLL\" completions bash | head -n 1")
        .run();
    assert_eq!((head.out().lines().count(), head.err().as_str()), (1, ""));
    world.write(
        "bad.toml",
        "description = \"bad\"\n\n[limits]\nmemry = \"1GiB\"\n",
    );
    let bad = world
        .atoll(["profile", "check", "bad.toml"])
        .run()
        .expect_status(1);
    assert!(
        bad.out().contains("bad.toml:4") && bad.out().contains("memory"),
        "{bad}"
    );
}

#[test]
fn a_project_file_counts_only_when_trusted() {
    let world = World::new("a_project_file_counts_only_when_trusted");
    world.write("atoll.toml", "[limits]\nopen-files = 333\n");
    let untrusted = world.run_inside("ulimit -n").success();
    assert_ne!(untrusted.out(), "333\n");
    untrusted.says(["warning", "atoll.toml", "atoll trust"]);

    fine(&world, &["trust"]).says(["open-files = 333", "trusted"]);
    let trusted = world.run_inside("ulimit -n").success();
    assert_eq!(trusted.out(), "333\n");
    assert!(!trusted.err().contains("warning"), "{trusted}");
    let listed = fine(&world, &["trust", "--list"]).out();
    assert!(
        listed.contains(world.path("atoll.toml").to_str().unwrap()),
        "{listed}"
    );

    world.write("atoll.toml", "[limits]\nopen-files = 334\n");
    let changed = world.run_inside("ulimit -n").success();
    assert_ne!(changed.out(), "334\n");
    changed.says(["warning", "changed", "atoll trust"]);

    let _ = fine(&world, &["trust"]);
    let _ = fine(&world, &["trust", "--revoke"]);
    let revoked = world.run_inside("ulimit -n").success();
    assert_ne!(revoked.out(), "334\n");
    assert!(fine(&world, &["trust", "--list"]).out().is_empty());
    let again = world.atoll(["trust", "--revoke"]).run().expect_status(125);
    again.is_clear_error(["not trusted"]);
}

#[test]
fn a_project_file_can_only_tighten() {
    let world = World::new("a_project_file_can_only_tighten");
    world.profile(
        "tight",
        "description = \"tight\"\n[limits]\nopen-files = 100\n",
    );
    world.write(
        "atoll.toml",
        "[limits]\nopen-files = 60000\nprocesses = 1000000\n",
    );
    let _ = fine(&world, &["trust"]);
    let low = world
        .run(["--profile", "tight"], "ulimit -n")
        .run()
        .success();
    assert_eq!(low.out(), "100\n");
    low.says(["ignored", "open-files"]);
}

#[test]
fn a_run_cannot_make_its_project_file_trusted() {
    let world = World::new("a_run_cannot_make_its_project_file_trusted");
    world.write("atoll.toml", "[limits]\nopen-files = 333\n");
    let _ = fine(&world, &["trust"]);
    let _ = world
        .run(["--apply"], "echo 'workspace = \"live\"' > atoll.toml")
        .run();
    let after = world.run_inside("true").success();
    let content = world.read("atoll.toml");
    if content.contains("live") {
        after.says(["warning", "atoll trust"]);
    }
}

// The ledger.

#[test]
fn the_ledger_is_shown_followed_and_verified() {
    let world = World::new("the_ledger_is_shown_followed_and_verified");
    let _ = world.run_inside("true").success();
    let verified = fine(&world, &["ledger", "verify"]).out();
    assert!(
        verified.contains("whole") && verified.contains("root"),
        "{verified}"
    );
    let run = world.last_run();
    let shown = fine(&world, &["ledger", "show", "--json", &run]).out();
    for line in shown.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["run"], run.as_str(), "{line}");
    }
    assert!(shown.lines().count() >= 2, "{shown}");
    let tail = fine(&world, &["ledger", "tail", "--json", "-n", "1"]).out();
    assert_eq!(tail.lines().count(), 1, "{tail}");
    // Without --json each is a row for people.
    let table = fine(&world, &["ledger", "show", &run]).out();
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), shown.lines().count() + 1, "{table}");
    assert!(
        rows[0].contains("TIME") && rows[0].ends_with("OUTCOME"),
        "{table}"
    );
    let opened = format!(" UTC  run.opened          {run}  allow: sh -c true");
    assert!(table.contains(&opened), "{opened} is not in\n{table}");
    assert!(table.contains(&format!("  {run}  succeeded\n")), "{table}");

    let following = world
        .atoll(["ledger", "tail", "--json", "-n", "1", "-f"])
        .start();
    following.until_stdout("\n");
    let _ = world.run_inside("true").success();
    following.until_stdout(&world.last_run());
}

#[test]
fn a_changed_byte_in_the_ledger_is_found() {
    let world = World::new("a_changed_byte_in_the_ledger_is_found");
    for _ in 0..3 {
        let _ = world.run_inside("true").success();
    }
    let path = world.segment();
    let whole = fs::read(&path).unwrap();
    for at in [10, whole.len() / 3, whole.len() / 2, whole.len() - 10] {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(&path, &changed).unwrap();
        let found = world.atoll(["ledger", "verify"]).run().expect_status(1);
        found.is_clear_error(["damaged"]);
    }
    fs::write(&path, &whole).unwrap();
    let _ = fine(&world, &["ledger", "verify"]);
}

#[test]
fn a_cut_and_a_swap_in_the_ledger_are_found() {
    let world = World::new("a_cut_and_a_swap_in_the_ledger_are_found");
    for _ in 0..3 {
        let _ = world.run_inside("true").success();
    }
    let path = world.segment();
    let whole = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let last = lines.len() - 1;
    let mut swapped = lines.clone();
    swapped.swap(1, 2);
    let mut missing = lines.clone();
    missing.remove(2);
    for (what, text) in [
        ("the end cut", lines[..last].join("\n") + "\n"),
        ("half of it cut", lines[..last / 2].join("\n") + "\n"),
        ("a swap", swapped.join("\n") + "\n"),
        ("a line missing", missing.join("\n") + "\n"),
        ("everything cut", String::new()),
    ] {
        fs::write(&path, text).unwrap();
        let found = world.atoll(["ledger", "verify"]).run();
        assert_eq!(found.code(), 1, "{what} was not found\n{found}");
        found.is_clear_error(["damaged"]);
    }
}

// About the machine and the program itself.

#[test]
fn doctor_tells_what_this_machine_can_hold() {
    let world = World::new("doctor_tells_what_this_machine_can_hold");
    let told = world.atoll(["doctor", "--json"]).run().json();
    let text = world.atoll(["doctor"]).run().out();
    for name in [
        "kernel",
        "launcher",
        "landlock",
        "seccomp",
        "no-new-privileges",
        "user-namespaces",
        "copy-on-write",
        "network",
        "nested-namespaces",
        "moved-directories",
        "control-groups",
        "memory",
        "swap",
        "processes",
        "cpu",
        "disk",
    ] {
        let findings = told["findings"].as_array().unwrap();
        let finding = findings.iter().find(|one| one["name"] == name).expect(name);
        let grade = finding["grade"].as_str().unwrap();
        let found = finding["found"].as_str().unwrap();
        // Each is a line of the text, with the same words.
        let line = format!("{grade:8}{name:18}{found}");
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }
}

#[test]
fn help_and_version_and_manuals_are_there() {
    let world = World::new("help_and_version_and_manuals_are_there");
    let help = fine(&world, &["--help"]).out();
    let commands = [
        "run",
        "runs",
        "diff",
        "apply",
        "discard",
        "undo",
        "why",
        "gc",
        "profile",
        "trust",
        "ca",
        "ledger",
        "doctor",
        "completions",
        "man",
    ];
    for command in commands {
        assert!(help.contains(command), "{command} is not in\n{help}");
        let own = fine(&world, &[command, "--help"]).out();
        assert!(own.contains("Usage:"), "{own}");
    }
    assert!(fine(&world, &["--version"]).out().starts_with("atoll "));
    let _ = world.atoll(NONE).run().expect_status(125);
    let pages = world.top().join("man");
    let _ = fine(&world, &["man", pages.to_str().unwrap()]);
    assert!(world.read(pages.join("atoll-run.1")).contains(".TH"));
    assert!(fine(&world, &["man"]).out().contains(".TH"));
}

#[test]
fn documents_are_part_of_the_program() {
    let world = World::new("documents_are_part_of_the_program");
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let docs = std::path::Path::new(&package).join("../../docs");
    let document = |name: &str| std::fs::read_to_string(docs.join(name)).unwrap();
    let help = |name: &str| fine(&world, &["help", name]).out();
    assert_eq!(help("network"), document("network.md"));
    assert_eq!(help("codex"), document("agents/codex.md"));
    // A command's own help is clap's, and comes first where a document has the same name.
    assert_eq!(help("run"), fine(&world, &["run", "--help"]).out());
    let both = fine(&world, &["policy", "--help"]).out() + "\n" + &document("policy.md");
    assert_eq!(help("policy"), both);
    let nested = fine(&world, &["help", "ledger", "query"]).out();
    assert_eq!(nested, fine(&world, &["ledger", "query", "--help"]).out());
    let all = fine(&world, &["help"]).out();
    let list = all
        .split_once("Documents, by `atoll help NAME`:")
        .unwrap()
        .1;
    assert!(
        list.contains("\n  network ") && list.contains("\n  codex "),
        "{all}"
    );
    let unknown = world.atoll(["help", "netwrok"]).run().expect_status(125);
    unknown.is_clear_error(["no document \"netwrok\"", "atoll help network"]);
    let unknown = world
        .atoll(["help", "ledger", "qery"])
        .run()
        .expect_status(125);
    unknown.is_clear_error(["atoll ledger has no command", "atoll help ledger query"]);
}

#[test]
fn completions_are_made_for_each_shell() {
    let world = World::new("completions_are_made_for_each_shell");
    for shell in ["bash", "zsh", "fish"] {
        let script = fine(&world, &["completions", shell]).out();
        assert!(script.contains("discard"), "{script}");
    }
    let syntax = world
        .host_shell("\"$ATOLL\" completions bash > c && bash -n c")
        .run();
    let _ = syntax.success();
}

#[test]
fn what_a_run_prints_is_kept_up_to_a_limit() {
    let world = World::new("what_a_run_prints_is_kept_up_to_a_limit");
    let options = ["--limit", "output=100"];
    let _ = world
        .run(options, "yes | head -c 5000; echo err >&2")
        .run()
        .success();
    let directory = world
        .state()
        .join("atoll/runs")
        .join(world.last_run())
        .join("output");
    assert_eq!(fs::read(directory.join("stdout")).unwrap().len(), 100);
    assert_eq!(fs::read(directory.join("stderr")).unwrap(), b"err\n");
}

#[test]
fn several_runs_at_once_do_not_disturb_each_other() {
    let world = World::new("several_runs_at_once_do_not_disturb_each_other");
    let script = |index: u32| {
        format!(
            "echo {index} > /tmp/mine; echo {index} > f{index}; echo ready; read x; cat /tmp/mine; ls"
        )
    };
    let mut running: Vec<_> = (0..4)
        .map(|index| world.run(NONE, &script(index)).start())
        .collect();
    for one in &running {
        one.until_stdout("ready");
    }
    for one in &mut running {
        one.send("go\n");
    }
    for (index, one) in running.into_iter().enumerate() {
        let ended = one.wait().success();
        assert_eq!(
            ended.out(),
            format!("ready\n{index}\nf{index}\n"),
            "{ended}"
        );
    }
    assert_eq!(world.runs().len(), 4);
    let _ = fine(&world, &["ledger", "verify"]);
}

#[test]
fn a_run_still_going_can_be_neither_applied_nor_discarded() {
    let world = World::new("a_run_still_going_can_be_neither_applied_nor_discarded");
    let mut running = world
        .run(NONE, "echo new > new; echo ready; read x")
        .start();
    running.until_stdout("ready");
    for command in ["apply", "discard", "undo"] {
        let refused = world.atoll([command, "last"]).run().expect_status(125);
        refused.is_clear_error(["running"]);
    }
    assert_eq!(world.runs()[0]["state"], "running");
    running.send("\n");
    let _ = running.wait().success();
    let _ = fine(&world, &["apply", "last"]);
    assert!(world.exists("new"));
}

#[test]
fn root_and_others_alike_see_themselves_inside() {
    let world = World::new("root_and_others_alike_see_themselves_inside");
    let seen = world
        .run_inside("id -u; id -g; test -O . && echo mine")
        .success();
    let (user, group) = e2e::id();
    assert_eq!(
        seen.out(),
        format!("{user}\n{group}\nmine\n"),
        "{seen} (root: {})",
        is_root()
    );
}

#[test]
fn the_end_of_the_main_command_is_the_end_of_all() {
    let world = World::new("the_end_of_the_main_command_is_the_end_of_all");
    let mark = format!("{}", 100_000 + std::process::id());
    let script = format!(
        "sleep {mark} & setsid sleep {mark} & nohup sleep {mark} >/dev/null 2>&1 & echo started"
    );
    let ended = world.run_inside(&script).success();
    assert_eq!(ended.out(), "started\n");
    wait_until("everything to end", e2e::BOUND, || {
        e2e::pids_of_command(&format!("sleep {mark}"))
            .is_empty()
            .then_some(())
    });
}
