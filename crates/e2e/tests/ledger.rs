//! The ledger as others verify it: signed checkpoints, proofs, tiles, witnesses.

use std::fs;
use std::path::{Path, PathBuf};

use e2e::{Avoidable, Outcome, World, can_be_ordinary_root, fine, is_root, program_exists};
use serde_json::Value;

/// A verifier that was written from `docs/ledger.md` alone.
const VERIFIER: &str = include_str!("ledger/verify.py");

fn ledger_directory(world: &World) -> PathBuf {
    world.state().join("atoll/ledger")
}

fn key(world: &World) -> String {
    let key = fine(world, &["ledger", "key"]).out();
    key.trim_end().to_owned()
}

/// Runs an independent verifier; `None` where Python is missing.
fn others_say<'a>(world: &World, arguments: impl IntoIterator<Item = &'a str>) -> Option<Outcome> {
    if !program_exists("python3") {
        world.skip("python3 is not installed", Avoidable::Yes);
        return None;
    }
    let command = world.host("python3").args(["-c", VERIFIER]);
    Some(command.args(arguments).run())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Writes another letter in the place of the first of these.
fn alter(path: &Path, from: &str, to: &str) {
    let content = fs::read_to_string(path).unwrap();
    let changed = content.replacen(from, to, 1);
    assert_ne!(content, changed, "{from}");
    fs::write(path, changed).unwrap();
}

#[test]
fn a_run_ends_with_a_signed_checkpoint() {
    let world = World::new("a_run_ends_with_a_signed_checkpoint");
    let directory = ledger_directory(&world);
    let mut sizes = Vec::new();
    for _ in 0..3 {
        let run = world.run_inside("echo new > new").success();
        assert!(!run.err().contains("signed"), "{run}");
        let note = fs::read_to_string(directory.join("checkpoint")).unwrap();
        let lines: Vec<&str> = note.lines().collect();
        assert!(lines[0].starts_with("atoll-ledger/"), "{note}");
        sizes.push(lines[1].parse::<u64>().unwrap());
        assert_eq!(lines[4].split(' ').nth(1), Some(lines[0]), "{note}");
    }
    assert!(sizes[0] < sizes[1] && sizes[1] < sizes[2], "{sizes:?}");
    let verified = fine(&world, &["ledger", "verify"]).out();
    assert!(
        verified.contains("its signature and root hold"),
        "{verified}"
    );
    let key = key(&world);
    assert!(key.starts_with("atoll-ledger/"), "{key}");
    let _ = fine(&world, &["ledger", "verify", "--key", &key]);
    // Only that key.
    let other = World::new("a_run_ends_with_a_signed_checkpoint");
    let foreign = self::key(&other);
    let refused = world.atoll(["ledger", "verify", "--key", &foreign]).run();
    let refused = refused.expect_status(1);
    assert!(refused.out().contains("by another key"), "{refused}");
    let arguments = ["ledger", text(&directory), &key];
    let Some(said) = others_say(&world, arguments) else {
        return;
    };
    let said = said.success();
    assert!(said.out().contains(", 1 checkpoints"), "{said}");
    let refused = others_say(&world, ["ledger", text(&directory), &foreign]).unwrap();
    assert_ne!(refused.code(), 0, "{refused}");
    // A word of it altered: found by both.
    let checkpoint = directory.join("checkpoint");
    let size = format!("\n{}\n", sizes[2]);
    let smaller = format!("\n{}\n", sizes[1]);
    alter(&checkpoint, &size, &smaller);
    assert_ne!(others_say(&world, arguments).unwrap().code(), 0);
    let refused = world.atoll(["ledger", "verify"]).run().expect_status(1);
    assert!(refused.out().contains("does not hold"), "{refused}");
    alter(&checkpoint, &smaller, &size);
    let _ = fine(&world, &["ledger", "verify"]);
}

#[test]
fn proofs_and_tiles_are_checked_by_others() {
    let world = World::new("proofs_and_tiles_are_checked_by_others");
    let _ = world.run_inside("true").success();
    let witness = world.top().join("witness");
    let _ = fine(&world, &["ledger", "witness", text(&witness)]);
    let old = fs::read_to_string(&witness).unwrap();
    let old = old.lines().nth(1).unwrap().to_owned();
    let _ = world.run_inside("true").success();
    let proofs = world.top().join("proofs");
    let shown = fine(
        &world,
        &[
            "ledger",
            "prove",
            "inclusion",
            "last",
            "--to",
            text(&proofs),
        ],
    );
    assert!(
        shown.out().contains("run.opened, is in the ledger"),
        "{shown}"
    );
    let prove = [
        "ledger",
        "prove",
        "consistency",
        &old,
        "--to",
        text(&proofs),
    ];
    let shown = fine(&world, &prove);
    assert!(shown.out().contains("are the beginning"), "{shown}");
    let json = ["ledger", "prove", "inclusion", "0", "--json"];
    let json = fine(&world, &json).json();
    assert_eq!(json[0]["seq"], 0, "{json}");
    let key = key(&world);
    let names: Vec<PathBuf> = fs::read_dir(&proofs)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(names.len() >= 3, "{names:?}");
    // Without any ledger: in another world.
    let other = World::new("proofs_and_tiles_are_checked_by_others");
    for path in &names {
        let ours = ["ledger", "check-proof", text(path), "--key", &key];
        let ours = || other.atoll(ours).args(["--witness", text(&witness)]).run();
        let theirs = || others_say(&world, ["proof", text(path), &key, text(&witness)]);
        let _ = ours().success();
        if let Some(said) = theirs() {
            let _ = said.success();
        }
        let first = fs::read_to_string(path).unwrap();
        let nth = first.lines().position(|line| line.len() == 44).unwrap();
        let hash = first.lines().nth(nth).unwrap().to_owned();
        let changed: String = hash.chars().rev().skip(1).collect();
        alter(path, &hash, &format!("{changed}="));
        let refused = ours().expect_status(1);
        refused.is_clear_error(["proves nothing"]);
        if let Some(said) = theirs() {
            assert_ne!(said.code(), 0, "{said}");
        }
    }
    let tiles = world.top().join("tiles");
    let _ = fine(&world, &["ledger", "export", "--tiles", text(&tiles)]);
    let Some(said) = others_say(&world, ["tiles", text(&tiles), &key]) else {
        return;
    };
    let _ = said.success();
    let tile = fs::read_dir(tiles.join("tile/0/000.p")).unwrap().next();
    let tile = tile.unwrap().unwrap().path();
    let mut bytes = fs::read(&tile).unwrap();
    bytes[0] ^= 1;
    fs::write(&tile, bytes).unwrap();
    let refused = others_say(&world, ["tiles", text(&tiles), &key]).unwrap();
    assert_ne!(refused.code(), 0, "{refused}");
}

#[test]
fn a_witness_finds_what_fits_in_itself() {
    let world = World::new("a_witness_finds_what_fits_in_itself");
    let _ = world.run(["--discard"], "true").run().success();
    let state = world.state().join("atoll");
    let kept = world.top().join("kept");
    let _ = world
        .host("cp")
        .args(["-a", text(&state), text(&kept)])
        .run()
        .success();
    let _ = world.run(["--discard"], "true").run().success();
    let (file, given) = (world.top().join("witness"), world.top().join("given"));
    let _ = fine(&world, &["ledger", "witness", text(&file)]);
    let save = format!("cat > '{}'", given.display());
    let _ = fine(
        &world,
        &["ledger", "witness", "--command", "sh", "-c", &save],
    );
    let witnessed = fs::read_to_string(&file).unwrap();
    assert_eq!(
        witnessed,
        format!("{}\n", fs::read_to_string(&given).unwrap())
    );
    let failed = world
        .atoll(["ledger", "witness", "--command", "false"])
        .run();
    failed
        .expect_status(125)
        .is_clear_error(["witness's command failed"]);
    let verify = ["ledger", "verify", "--witness", text(&file)];
    let verified = fine(&world, &verify).out();
    assert!(
        verified.contains("what was witnessed: 1 checkpoint"),
        "{verified}"
    );
    let key = key(&world);
    let directory = ledger_directory(&world);
    let arguments = ["ledger", text(&directory), &key, text(&file)];
    let theirs = || others_say(&world, arguments).map(|said| said.code());
    assert!(theirs().is_none_or(|code| code == 0));
    // The whole state is put back as it was: nothing in it tells.
    fs::remove_dir_all(&state).unwrap();
    let _ = world
        .host("cp")
        .args(["-a", text(&kept), text(&state)])
        .run()
        .success();
    let _ = fine(&world, &["ledger", "verify"]);
    let found = world.atoll(verify).run().expect_status(1);
    assert!(found.out().contains("but the ledger ends after"), "{found}");
    assert!(theirs().is_none_or(|code| code != 0));
    // It goes on from there, and is a fork.
    for _ in 0..2 {
        let _ = world.run(["--discard"], "true").run().success();
    }
    let _ = fine(&world, &["ledger", "verify"]);
    let found = world.atoll(verify).run().expect_status(1);
    assert!(found.out().contains("is a fork"), "{found}");
    assert!(theirs().is_none_or(|code| code != 0));
}

#[test]
fn a_witness_is_given_each_checkpoint_and_holds_up_no_run() {
    let world = World::new("a_witness_is_given_each_checkpoint_and_holds_up_no_run");
    let _ = world.run_inside("true").success();
    let directory = world.top().join("elsewhere");
    fs::create_dir(&directory).unwrap();
    let file = directory.join("witness");
    let _ = fine(&world, &["ledger", "witness", text(&file), "--always"]);
    for count in 2..4 {
        let run = world.run_inside("true").success();
        assert!(!run.err().contains("witness"), "{run}");
        let verified = fine(&world, &["ledger", "verify", "--witness", text(&file)]).out();
        let expected = format!("what was witnessed: {count} checkpoints");
        assert!(verified.contains(&expected), "{verified}");
    }
    let set = fine(&world, &["ledger", "query", "--type", "witness", "--json"]).out();
    assert!(set.contains(text(&file)), "{set}");
    // It is gone: the run is as good as ever, and says so.
    fs::remove_dir_all(&directory).unwrap();
    let run = world.run_inside("echo inside").success();
    assert_eq!(run.out(), "inside\n");
    run.says(["warning: the witness's file cannot be added to", "--never"]);
    let stop = world.top().join("stop");
    let command = [
        "ledger",
        "witness",
        "--always",
        "--command",
        "sh",
        "-c",
        &format!(
            "test -e '{}' && exit 3; grep -q atoll-ledger",
            stop.display()
        ),
    ];
    // One that takes nothing takes nobody's place; one that does is kept, and then fails.
    let refused = ["ledger", "witness", "--always", "--command", "false"];
    let _ = world.atoll(refused).run().expect_status(125);
    let run = world.run_inside("true").success();
    run.says(["warning: the witness's file cannot be added to"]);
    let _ = fine(&world, &command);
    let run = world.run_inside("true").success();
    assert!(!run.err().contains("witness"), "{run}");
    fs::write(&stop, "").unwrap();
    let run = world.run_inside("true").success();
    run.says(["warning: the witness's command failed", "exit status: 3"]);
    let _ = fine(&world, &["ledger", "witness", "--never"]);
    let run = world.run_inside("true").success();
    assert!(!run.err().contains("witness"), "{run}");
    let _ = fine(&world, &["ledger", "verify"]);
}

#[test]
fn no_witness_of_the_workspace_runs_outside() {
    let world = World::new("no_witness_of_the_workspace_runs_outside");
    let _ = world.run_inside("true").success();
    let mark = world.top().join("mark");
    let script = format!("#!/bin/sh\ncat > '{}'\n", mark.display());
    let (inside, outside) = (world.workspace().join("bin"), world.top().join("bin"));
    for (bin, runs) in [(&outside, true), (&inside, false)] {
        fs::create_dir(bin).unwrap();
        e2e::write_program(&bin.join("send"), &script);
        let path = format!("{}:/usr/bin:/bin", text(bin));
        let keep = ["ledger", "witness", "--always", "--command", "send"];
        let _ = world.atoll(keep).env("PATH", &path).run().success();
        assert!(mark.exists());
        fs::remove_file(&mark).unwrap();
        let run = world
            .run([""; 0], "true")
            .env("PATH", &path)
            .run()
            .success();
        assert_eq!(mark.exists(), runs, "{run}");
        let _ = fs::remove_file(&mark);
        if !runs {
            run.says([
                "warning: the witness's command was not run",
                "is in the workspace",
            ]);
        }
    }
    // Nor does an interpreter from there, or what it is led to by a name beside it.
    let by_name = world.top().join("by-name");
    e2e::write_program(&by_name, "#!/usr/bin/env send\n");
    for (bin, runs) in [(&outside, true), (&inside, false)] {
        let keep = ["ledger", "witness", "--always", "--command", text(&by_name)];
        let sound = format!("{}:/usr/bin:/bin", text(&outside));
        let _ = world.atoll(keep).env("PATH", sound).run().success();
        fs::remove_file(&mark).unwrap();
        let path = format!("{}:/usr/bin:/bin", text(bin));
        let run = world.run([""; 0], "true").env("PATH", path).run().success();
        assert_eq!(mark.exists(), runs, "{run}");
        let _ = fs::remove_file(&mark);
    }
}

#[test]
fn nothing_inside_reaches_the_key_of_the_ledger() {
    let world = World::new("nothing_inside_reaches_the_key_of_the_ledger");
    let _ = world.run_inside("true").success();
    let key = world.state().join("atoll/ledger-key/key");
    let read = format!("cat '{}'", key.display());
    let outside = world.host_shell(&read).run().success();
    assert!(outside.out().starts_with("PRIVATE+KEY+"));
    let inside = world.run_inside(&read);
    assert_ne!(inside.code(), 0, "{inside}");
    assert!(!inside.out().contains("PRIVATE"), "{inside}");
    // Nor is it in what Atoll itself puts inside: memory, variables, descriptors.
    // By way of a file: a pipe between the two could be found among what is read, for ever.
    let look = "cat /proc/[0-9]*/environ /proc/[0-9]*/fd/[3-9] > /tmp/all 2> /dev/null; \
        grep -c PRIVATE+KEY /tmp/all";
    assert_eq!(world.run_inside(look).out().trim(), "0");
}

#[test]
fn a_full_disk_keeps_a_checkpoint_from_being_written_and_no_run_from_ending() {
    let world =
        World::new("a_full_disk_keeps_a_checkpoint_from_being_written_and_no_run_from_ending");
    let _ = world.run_inside("true").success();
    // Room for events, and for no further file.
    let script = "cd \"$XDG_STATE_HOME/atoll\" && cp -a ledger ../copy && touch ../copy/room && \
        mount -t tmpfs -o mode=700,nr_inodes=$(($(ls -A ../copy | wc -l) + 1)) tmpfs ledger && \
        cp -a ../copy/. ledger && cd \"$WORKSPACE\" || exit 9
        \"$ATOLL\" run --discard -- echo inside; echo status $?
        \"$ATOLL\" ledger show --json last | grep -c run.closed
        \"$ATOLL\" ledger verify
        rm \"$XDG_STATE_HOME/atoll/ledger/room\" && \"$ATOLL\" run --discard -- true
        \"$ATOLL\" ledger verify";
    if !is_root() && !can_be_ordinary_root() {
        world.skip("nobody but root can mount here", Avoidable::No);
        return;
    }
    let ended = world
        .mount_shell(script)
        .env("WORKSPACE", world.workspace());
    let ended = ended.run();
    let out = ended.out();
    assert!(out.contains("inside\nstatus 0\n1\n"), "{ended}");
    ended.says(["warning: the ledger's end could not be signed", "space"]);
    assert_eq!(out.matches("The ledger is whole").count(), 2, "{ended}");
    let sizes: Vec<&str> = out
        .lines()
        .filter(|line| line.contains("newest checkpoint is of"))
        .collect();
    assert!(sizes.len() == 2 && sizes[0] != sizes[1], "{ended}");
}

/// Characters that would reverse the text of a terminal are written as JSON escapes them, and not
/// as text for people.
#[test]
fn what_the_ledger_prints_is_json_whatever_was_run() {
    let world = World::new("what_the_ledger_prints_is_json_whatever_was_run");
    let hostile = "echo \u{202e}gpj \u{200b}\u{e0041}";
    let _ = world.run_inside(hostile).success();
    for arguments in [
        &["ledger", "show", "--json", "last"][..],
        &["ledger", "tail", "--json"],
        &["ledger", "query", "--type", "run.opened", "--json"],
        &["ledger", "export", "--format", "jsonl", "--unsealed"],
        &["ledger", "export", "--format", "ocsf", "--unsealed"],
        &["why", "last", "--json"],
        &["runs", "--all", "--json"],
    ] {
        let out = fine(&world, arguments).out();
        let is_lines = arguments[0] == "ledger";
        let read = |text: &str| serde_json::from_str::<Value>(text).map(drop);
        let wrong = match is_lines {
            true => out.lines().find_map(|line| read(line).err()),
            false => read(&out).err(),
        };
        assert!(wrong.is_none(), "{arguments:?}: {wrong:?}: {out}");
        assert!(out.contains(r"\u202e"), "{arguments:?}: {out}");
        assert!(!out.contains('\u{202e}'), "{arguments:?}: {out}");
    }
}

#[test]
fn what_is_asked_for_is_found_in_the_ledger() {
    let world = World::new("what_is_asked_for_is_found_in_the_ledger");
    let _ = world.run_inside("echo first").success();
    let first = world.last_run();
    let _ = world.run_inside("echo second").success();
    let found = |arguments: &[&str]| -> Vec<Value> {
        let all = [&["ledger", "query", "--json"], arguments].concat();
        let out = fine(&world, &all).out();
        out.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let all = found(&[]);
    assert_eq!(found(&["--type", "run"]).len(), all.len());
    assert_eq!(found(&["--type", "run.opened"]).len(), 2);
    assert_eq!(found(&["--type", "ru"]).len(), 0);
    let of_first = found(&["--run", &first]);
    assert!(of_first.iter().all(|event| event["run"] == first.as_str()));
    assert_eq!(found(&["--verdict", "allow"]).len(), 2);
    assert_eq!(found(&["--verdict", "deny"]).len(), 0);
    let slip = world.atoll(["ledger", "query", "--type", "run.opend"]);
    slip.run()
        .is_clear_error(["no event of type run.opend", "did you mean run.opened?"]);
    let typed = fine(&world, &["ledger", "query", "--type", "opened"]);
    for words in [
        "No event of the ledger fits.",
        "no event of type opened",
        "run.opened",
    ] {
        assert!(typed.err().contains(words), "{words}: {typed}");
    }
    let workspace = world.workspace();
    assert_eq!(found(&["--path", text(&workspace)]).len(), 2);
    assert_eq!(found(&["--path", "/not/there"]).len(), 0);
    // No rule allows it, so it is refused, and on record.
    let _ = world
        .run(
            ["--discard", "--allow", "api.example"],
            "getent hosts www.example.com; true",
        )
        .run()
        .success();
    let opened = found(&["--type", "run.opened"]);
    let third = opened[2]["run"].as_str().unwrap().to_owned();
    for host in ["www.example.com", "example"] {
        let of_host = found(&["--host", host]);
        assert!(!of_host.is_empty(), "{host}");
        assert!(of_host.iter().all(|event| event["run"] == third.as_str()));
    }
    assert_eq!(found(&["--host", "example.org"]).len(), 0);
    let resolved = found(&["--action", "resolve"]);
    assert!(!resolved.is_empty());
    assert!(
        resolved
            .iter()
            .all(|event| event["body"]["host"] == "www.example.com")
    );
    assert_eq!(found(&["--action", "run"]).len(), 3);
    for none in [
        "read",
        "write",
        "use_credential",
        "publish",
        "request",
        "promote",
    ] {
        assert_eq!(found(&["--action", none]).len(), 0, "{none}");
    }
    let _ = world
        .atoll(["ledger", "query", "--action", "fly"])
        .run()
        .expect_status(125);
    // Whose run it was, by number and name, whatever else is asked for.
    let all = found(&[]);
    let principal = &found(&["--type", "run.opened"])[0]["body"]["principal"];
    let own = [
        principal["uid"].to_string(),
        principal["name"].as_str().unwrap().to_owned(),
    ];
    for own in &own {
        let of_own = found(&["--principal", own]);
        let has_run = all.iter().filter(|event| event["run"].is_string());
        assert_eq!(of_own.len(), has_run.count(), "{own}");
        let closed = found(&["--principal", own, "--type", "run.closed"]);
        assert_eq!(closed.len(), 3);
        assert_eq!(
            found(&["--principal", own, "--run", &third, "--action", "run"]).len(),
            1
        );
    }
    assert_eq!(found(&["--principal", "nobody-of-this-name"]).len(), 0);
    let time = all[0]["time"].as_str().unwrap();
    assert_eq!(found(&["--since", time]).len(), all.len());
    assert_eq!(found(&["--until", &time[..10]]).len(), all.len());
    assert_eq!(found(&["--until", "2020"]).len(), 0);
    assert_eq!(found(&["--since", "2999-01-01"]).len(), 0);
    // So long ago.
    assert_eq!(found(&["--since", "90d"]).len(), all.len());
    assert_eq!(found(&["--until", "1h30m"]).len(), 0);
    let told = fine(&world, &["ledger", "query", "--type", "run.closed"]);
    assert_eq!(told.out().lines().count(), 3, "{told}");
    // For people words, which --json has as they are.
    assert!(told.out().contains("ending (how exited"), "{told}");
    assert!(!told.out().contains('{'), "{told}");
    let refused = world
        .atoll(["ledger", "query", "--since", "yesterday"])
        .run();
    refused
        .expect_status(125)
        .is_clear_error(["--since yesterday", "2026-11-21"]);
}

#[test]
fn a_key_of_the_ledger_is_exchanged() {
    let world = World::new("a_key_of_the_ledger_is_exchanged");
    let nothing = world.atoll(["ledger", "key", "rotate"]).run();
    nothing.expect_status(125).is_clear_error(["no ledger yet"]);
    let _ = world.run(["--discard"], "true").run().success();
    let witness = world.top().join("witness");
    let _ = fine(&world, &["ledger", "witness", text(&witness), "--always"]);
    let first = key(&world);
    let printed = fine(&world, &["ledger", "key", "rotate"]).out();
    let second = key(&world);
    assert_eq!(printed.trim_end(), second);
    assert_ne!(first, second);
    let run = world.run(["--discard"], "true").run().success();
    assert!(!run.err().contains("warning"), "{run}");
    for by in [&first, &second] {
        let verify = ["ledger", "verify", "--key", by, "--witness", text(&witness)];
        let verified = fine(&world, &verify).out();
        assert!(
            verified.contains("what was witnessed: 3 checkpoints"),
            "{verified}"
        );
    }
    let directory = ledger_directory(&world);
    let other = World::new("a_key_of_the_ledger_is_exchanged");
    let _ = other.run(["--discard"], "true").run().success();
    let foreign = key(&other);
    for (by, holds) in [(&second, true), (&first, true), (&foreign, false)] {
        let all = ["ledger", text(&directory), by, text(&witness)];
        if let Some(said) = others_say(&world, all) {
            assert_eq!(said.code() == 0, holds, "{said}");
        }
    }
    proofs_lead_over_a_hand_over(&world, &witness, (&first, &second, &foreign));
    let told = fine(&world, &["ledger", "query", "--type", "key", "--json"]).out();
    assert!(told.contains(&first) && told.contains(&second), "{told}");
    let refused = world.atoll(["ledger", "key", "lost"]).run();
    refused
        .expect_status(125)
        .is_clear_error(["is signed by the key", "key rotate"]);
    fs::remove_dir_all(world.state().join("atoll/ledger-key")).unwrap();
    let run = world.run(["--discard"], "true").run().success();
    run.says([
        "warning: the ledger's end could not be signed",
        "by a key that is not here",
        "atoll ledger key lost",
    ]);
    // Neither is it called damaged, nor is another key given out as the one that signed.
    for command in ["verify", "key"] {
        let told = world.atoll(["ledger", command]).run();
        assert_ne!(told.code(), 0, "{told}");
        assert!(!format!("{told}").contains("damaged"), "{told}");
        assert!(!told.out().contains("\natoll-ledger/"), "{told}");
        told.is_clear_error(["key", "atoll ledger key lost"]);
    }
    let _ = fine(&world, &["ledger", "key", "lost"]).says(["the new key: give it to whoever"]);
    let verify = ["ledger", "verify", "--witness", text(&witness)];
    let old = world.atoll(verify).run().expect_status(1);
    assert!(old.out().contains("begin a new witness file"), "{old}");
    assert!(!format!("{old}").contains("damaged"), "{old}");
    let verify = ["ledger", "verify", "--key", &second];
    let old = world.atoll(verify).run().expect_status(1);
    assert!(old.out().contains("the key was lost (event "), "{old}");
    let run = world.run(["--discard"], "true").run().success();
    assert!(!run.err().contains("warning"), "{run}");
    let verified = fine(&world, &["ledger", "verify"]).out();
    assert!(
        verified.contains("The key that had signed was lost before event"),
        "{verified}"
    );
}

/// Checks a proof with nothing but the old key and a proof of the hand-over; also by the
/// independent verifier, which follows the hand-over in an export of tiles, too.
fn proofs_lead_over_a_hand_over(
    world: &World,
    witness: &Path,
    (first, second, foreign): (&str, &str, &str),
) {
    let proofs = world.top().join("proofs");
    let to = |what: &[&str]| {
        let to = ["--to", text(&proofs)];
        let _ = fine(world, &[&["ledger", "prove"], what, &to].concat());
    };
    let query = ["ledger", "query", "--type", "key.rotated", "--json"];
    let seq = fine(world, &query).json()["seq"].to_string();
    to(&["inclusion", &seq]);
    to(&["inclusion", "last"]);
    to(&["inclusion", "0"]);
    let old = fs::read_to_string(witness).unwrap();
    let old = old.lines().nth(1).unwrap().to_owned();
    to(&["consistency", &old]);
    let named = |end: &str| {
        let all = fs::read_dir(&proofs).unwrap();
        let mut all = all.map(|entry| entry.unwrap().path());
        all.find(|path| text(path).ends_with(end)).unwrap()
    };
    let (event, hand_over) = (named("/0.tlog-proof"), named(&format!("/{seq}.tlog-proof")));
    let grown = named(".consistency");
    for (file, by, by_hand_over, holds) in [
        (&event, second, false, true),
        (&event, first, false, false),
        (&event, first, true, true),
        (&event, second, true, true),
        (&event, foreign, true, false),
        (&grown, first, true, true),
        (&grown, second, true, true),
        (&grown, second, false, false),
    ] {
        let mut command = vec!["ledger", "check-proof", text(file), "--key", by];
        command.extend(["--witness", text(witness)]);
        let mut other = vec!["proof", text(file), by, text(witness)];
        if by_hand_over {
            command.extend(["--handover", text(&hand_over)]);
            other.push(text(&hand_over));
        }
        let said = world.atoll(&command).run();
        assert_eq!(said.code(), i32::from(!holds), "{command:?}: {said}");
        if let Some(said) = others_say(world, other) {
            assert_eq!(said.code() == 0, holds, "{command:?}: {said}");
        }
    }
    // Another event is no hand-over, and neither is one that was altered.
    let altered = proofs.join("altered");
    let content = fs::read_to_string(&hand_over).unwrap();
    fs::write(&altered, content.replacen("extra ", "extra A", 1)).unwrap();
    for none in [&event, &altered] {
        let command = ["ledger", "check-proof", text(&event), "--key", first];
        let refused = world.atoll(command).args(["--handover", text(none)]).run();
        let refused = refused.expect_status(1);
        let _ = refused.is_clear_error(["none of a hand-over"]);
        let all = ["proof", text(&event), first, "-", text(none)];
        if let Some(said) = others_say(world, all) {
            assert_ne!(said.code(), 0, "{said}");
        }
    }
    let tiles = world.top().join("tiles");
    let _ = fine(world, &["ledger", "export", "--tiles", text(&tiles)]);
    for (by, holds) in [(first, true), (second, true), (foreign, false)] {
        if let Some(said) = others_say(world, ["tiles", text(&tiles), by]) {
            assert_eq!(said.code() == 0, holds, "{said}");
        }
    }
}

/// Makes a ledger with an event of every type that has words of its own there.
fn ledger_of_every_type(world: &World) {
    use atoll_ledger::{Durability, EventBody, StateDir};
    use atoll_model::{Action, Call, Ending, Outcome, Principal, Program, RunId, Usage, Verdict};
    let state = StateDir::open(&world.state().join("atoll")).unwrap();
    let ledger = atoll_store::open_ledger(&state, std::time::SystemTime::now).unwrap();
    let call = |number: u32| {
        Call::new(
            RunId::new(1_795_253_412, number),
            Principal {
                uid: 1000,
                gid: 1000,
                name: "person".to_owned(),
            },
            atoll_model::Place::Directory {
                workspace: "/srv/project".into(),
                directory: "/srv/project".into(),
            },
            Action::Run(Program {
                command: vec!["/bin/echo".into(), "a b".into()],
                ..Program::default()
            }),
        )
    };
    let allow = || Verdict::Allow(());
    let open = |number: u32| {
        let entry = ledger.open_call(&call(number), &allow(), serde_json::json!({}));
        entry.unwrap().arm(allow()).unwrap()
    };
    let told = EventBody::default;
    let flows = vec![
        (
            "flow.opened",
            told()
                .text("address", "203.0.113.7")
                .number("flow", 1)
                .text("host", "example.com")
                .text("kind", "request")
                .text("method", "GET")
                .text("path", "/a?b")
                .number("port", 443)
                .text("rule", "r")
                .text("scheme", "https"),
        ),
        (
            "flow.opened",
            told()
                .number("flow", 2)
                .text("host", "example.com")
                .text("kind", "request")
                .text("method", "BREW")
                .number("port", 80)
                .text("scheme", "http")
                .text("via", "proxy.example"),
        ),
        (
            "flow.opened",
            told()
                .text("address", "2001:db8::1")
                .number("flow", 3)
                .text("host", "example.org")
                .text("kind", "tunnel")
                .number("port", 22),
        ),
        (
            "flow.opened",
            told()
                .number("flow", 4)
                .text("host", "127.0.0.1")
                .text("kind", "published")
                .number("port", 8080),
        ),
        (
            "flow.opened",
            told()
                .number("flow", 5)
                .text("host", "a.example.com")
                .text("kind", "name"),
        ),
        (
            "flow.closed",
            told()
                .number("down_bytes", 5)
                .number("duration_us", 7_000)
                .number("flow", 1)
                .number("up_bytes", 3),
        ),
        (
            "flow.closed",
            told()
                .number("down_bytes", 0)
                .number("duration_us", 7)
                .text("failure", "nobody answers")
                .number("flow", 2)
                .number("up_bytes", 0),
        ),
        (
            "flow.refused",
            told()
                .number("count", 1)
                .text("host", "evil.example")
                .text("kind", "tunnel")
                .number("port", 443)
                .text("why", "no rule allows it"),
        ),
        (
            "flow.refused",
            told()
                .number("count", 1)
                .text("host", "evil.example")
                .text("kind", "name")
                .text("rule", "*.example")
                .text("why", "denied"),
        ),
    ];
    let run = call(1).id.run;
    let first = open(1);
    ledger
        .record_flows(&run, flows, Durability::Buffered)
        .unwrap();
    let attempt = atoll_model::Attempt::told(b"mount", 3, 1).unwrap();
    ledger.record_attempt(&run, &attempt).unwrap();
    let outcome = Outcome {
        ending: Ending::Exited { status: 3 },
        usage: Usage::default(),
        enforcement: Vec::new(),
        attempts: Vec::new(),
    };
    ledger
        .close(first, &outcome, serde_json::json!({}))
        .unwrap();
    ledger
        .close_failed(open(2), "make the sandbox", "why")
        .unwrap();
    let denied: Verdict<()> = Verdict::Deny(Vec::new());
    let entry = ledger.open_call(&call(3), &denied, serde_json::json!({}));
    assert!(entry.unwrap().arm(denied).is_err());
    drop(
        ledger
            .open_call(&call(4), &allow(), serde_json::json!({}))
            .unwrap(),
    );
    assert_eq!(
        atoll_store::open_ledger(&state, std::time::SystemTime::now)
            .unwrap()
            .interrupted()
            .len(),
        1
    );
    for (kind, body) in [
        ("secret.set", serde_json::json!({ "name": "token" })),
        ("secret.removed", serde_json::json!({ "name": "token" })),
        (
            "trust.given",
            serde_json::json!({ "path": "/srv/project/atoll.toml", "sha256": "0" }),
        ),
        (
            "trust.revoked",
            serde_json::json!({ "path": { "hex": "ff" } }),
        ),
        ("run.discarded", serde_json::json!({ "state": "finished" })),
        ("weather.changed", serde_json::json!({ "to": ["rain"] })),
    ] {
        ledger
            .record(None, kind, body, Durability::Durable)
            .unwrap();
    }
}

#[test]
fn events_are_exported_in_the_words_of_ocsf() {
    let world = World::new("events_are_exported_in_the_words_of_ocsf");
    ledger_of_every_type(&world);
    let sealed = fine(&world, &["ledger", "export", "--format", "jsonl"]).out();
    let lines = fine(&world, &["ledger", "show", "--json"]).out();
    assert_eq!(lines.lines().last(), sealed.lines().last());
    let sealed = fine(&world, &["ledger", "export", "--format", "ocsf"]).out();
    let unsealed = ["ledger", "export", "--format", "ocsf", "--unsealed"];
    let exported = fine(&world, &unsealed).out();
    assert_eq!(exported.lines().count(), lines.lines().count());
    let events: Vec<Value> = exported
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let classes = |kind: &str| -> Vec<u64> {
        let of_kind = events
            .iter()
            .filter(|event| event["metadata"]["event_code"] == kind);
        of_kind
            .map(|event| event["type_uid"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(
        classes("flow.opened"),
        [400_203, 400_299, 400_101, 400_101, 400_301]
    );
    assert_eq!(classes("flow.closed"), [400_102, 400_104]);
    assert_eq!(classes("flow.refused"), [400_105, 400_105]);
    assert_eq!(classes("attempt.seen"), [200_401]);
    assert_eq!(classes("run.denied"), [100_701]);
    assert_eq!(classes("run.interrupted"), [100_702]);
    assert_eq!(classes("weather.changed"), [99]);
    let original: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(events[0]["unmapped"], original["body"]);
    let wheels = e2e::cache().map(|cache| cache.join("pip/wheels"));
    let wheel = wheels.iter().flat_map(fs::read_dir).flatten().flatten();
    let wheel = wheel
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().contains("ocsf_json_schema-"));
    let (Some(wheel), true) = (wheel, program_exists("python3")) else {
        return world.skip(
            "python3 or the wheel of ocsf-json-schema is missing",
            Avoidable::Yes,
        );
    };
    let check = |events: String| {
        let command = world
            .host("python3")
            .args(["-c", include_str!("ledger/ocsf.py")]);
        command.args([text(&wheel), "1.6.0"]).stdin(events).run()
    };
    let said = check(exported.clone()).success();
    assert_eq!(said.out(), format!("{} events\n", events.len()));
    let said = check(sealed.clone()).success();
    assert_eq!(said.out(), format!("{} events\n", events.len()));
    assert!(
        exported.contains("\"cmd_line\"") && !sealed.contains("cmd_line"),
        "{sealed}"
    );
    // It can be wrong: a member missing, unknown, or with a word that there is not.
    for (from, to) in [
        ("\"severity_id\":1,", ""),
        ("\"device\":", "\"devices\":"),
        ("\"direction_id\":2", "\"direction_id\":7"),
        ("\"port\":443", "\"port\":\"443\""),
    ] {
        assert!(exported.contains(from), "{from}");
        assert_ne!(check(exported.replacen(from, to, 1)).code(), 0, "{from}");
    }
    let refused = world.atoll(["ledger", "export"]).run();
    assert_ne!(refused.code(), 0, "{refused}");
}

/// A witness that was written from C2SP's documents alone.
const WITNESS: &str = include_str!("ledger/witness.py");

/// A running witness for the ledgers of these keys: its URL, by its path, and its key.
struct OnNetwork {
    _running: e2e::Running,
    url: String,
    key: String,
    /// The authority of the certificate that it shows, in PEM.
    authority: PathBuf,
    state: PathBuf,
}

impl OnNetwork {
    fn start(world: &World, ledger_keys: &[&str]) -> Option<Self> {
        if !program_exists("python3") || !program_exists("openssl") {
            world.skip("python3 or openssl is not installed", Avoidable::Yes);
            return None;
        }
        let place = world.top().join("witness-outside");
        fs::create_dir_all(&place).unwrap();
        let at = |name: &str| place.join(name);
        fs::write(at("verify.py"), VERIFIER).unwrap();
        fs::write(at("witness.py"), WITNESS).unwrap();
        let made = world.host("openssl").args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=witness",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-keyout",
            text(&at("key.pem")),
            "-out",
            text(&at("certificate.pem")),
        ]);
        let _ = made.run().success();
        let arguments = [
            "witness.py",
            "verify.py",
            "certificate.pem",
            "key.pem",
            "state",
        ];
        let paths = arguments.map(|name| at(name).into_os_string());
        let server = world.host("python3").args(paths).args(ledger_keys).start();
        let said = server.until_stdout("\n");
        let words: Vec<&str> = said.split_whitespace().collect();
        assert_eq!((words[0], words[2]), ("port", "key"), "{said}");
        Some(Self {
            url: format!("https://127.0.0.1:{}", words[1]),
            key: words[3].to_owned(),
            authority: at("certificate.pem"),
            state: at("state"),
            _running: server,
        })
    }

    fn ask(&self, world: &World, path: &str, options: &[&str]) -> Outcome {
        let url = format!("{}/{path}", self.url);
        let command = ["ledger", "witness", "--url", &url, "--key", &self.key];
        let asked = world.atoll(command).args(options);
        asked.env("SSL_CERT_FILE", &self.authority).run()
    }

    /// Returns the number of events that it has seen of the one ledger that it knows.
    fn has_seen(&self) -> u64 {
        let state: Value = serde_json::from_str(&fs::read_to_string(&self.state).unwrap()).unwrap();
        let (_, seen) = state.as_object().unwrap().iter().next().unwrap();
        seen[0].as_u64().unwrap()
    }
}

fn signed_size(world: &World) -> u64 {
    let note = fs::read_to_string(ledger_directory(world).join("checkpoint")).unwrap();
    note.lines().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_witness_over_the_network_signs_what_only_grew() {
    let world = World::new("a_witness_over_the_network_signs_what_only_grew");
    let _ = world.run(["--discard"], "true").run().success();
    let Some(witness) = OnNetwork::start(&world, &[&key(&world)]) else {
        return;
    };
    let kept = world.state().join("atoll/ledger-key/cosigned");
    // None that is not to be believed: nothing of it is kept.
    for (path, why) in [
        ("liar", "does not hold"),
        ("stranger", "by another key"),
        ("rude", "it answers 409"),
        ("nowhere", "does not know this ledger"),
    ] {
        let refused = witness.ask(&world, path, &["--always"]).expect_status(125);
        let _ = refused.is_clear_error(["has not signed the checkpoint", why]);
        assert!(!refused.err().contains('\u{1b}'), "{refused}");
        assert!(!kept.exists(), "{path}");
    }
    let url = format!("{}/good", witness.url);
    let command = ["ledger", "witness", "--url", &url, "--key", &witness.key];
    let refused = world.atoll(command).run().expect_status(125);
    let _ = refused.is_clear_error(["certificate", "SSL_CERT_FILE"]);
    for (option, url, key) in [
        ("--url", "http://127.0.0.1", witness.key.as_str()),
        ("--key", witness.url.as_str(), "witness+00000000+AAAA"),
        ("--key", witness.url.as_str(), key(&world).as_str()),
    ] {
        let command = ["ledger", "witness", "--url", url, "--key", key];
        let refused = world.atoll(command).run().expect_status(125);
        let _ = refused.is_clear_error([option, "not usable"]);
    }
    // It signs, and goes on from what it has seen; also where that was forgotten here.
    for forgotten in [false, false, true] {
        let _ = world.run(["--discard"], "true").run().success();
        if forgotten {
            fs::remove_file(&kept).unwrap();
        }
        let given = witness.ask(&world, "good", &[]).success();
        let note = given.out();
        assert_eq!(note.matches('\u{2014}').count(), 2, "{note}");
        assert_eq!(fs::read_to_string(&kept).unwrap(), note);
        assert_eq!(witness.has_seen(), signed_size(&world));
        let _ = witness.ask(&world, "good", &[]).success();
        // The signed note is one that `verify` takes, and others take.
        let file = world.top().join("cosigned");
        fs::write(&file, format!("{note}\n")).unwrap();
        let _ = fine(&world, &["ledger", "verify", "--witness", text(&file)]);
    }
    // At the end of each run.
    let _ = witness.ask(&world, "good", &["--always"]).success();
    let run = |warned: bool| {
        let run = world.run(["--discard"], "true");
        let run = run.env("SSL_CERT_FILE", &witness.authority).run().success();
        assert_eq!(run.err().contains("warning"), warned, "{run}");
        run
    };
    let before = witness.has_seen();
    let _ = run(false);
    assert!(witness.has_seen() > before);
    assert_eq!(witness.has_seen(), signed_size(&world));
    let told = fine(&world, &["ledger", "query", "--type", "witness.set"]).out();
    assert!(told.contains(&witness.url), "{told}");
    the_witness_finds(&world, &witness, run);
}

/// Checks that the witness detects a past that was restored, and one that was rewritten with the
/// ledger's own key.
fn the_witness_finds(world: &World, witness: &OnNetwork, run: impl Fn(bool) -> Outcome) {
    let atoll = world.state().join("atoll");
    let copy = world.top().join("copy");
    let copied = |from: &Path, to: &Path| {
        let _ = fs::remove_dir_all(to);
        let copy = world.host("cp").args(["-a", text(from), text(to)]);
        let _ = copy.run().success();
    };
    copied(&atoll, &copy);
    let _ = run(false);
    let _ = run(false);
    copied(&copy, &atoll);
    let refused = witness.ask(world, "good", &[]).expect_status(125);
    let _ = refused.is_clear_error(["has signed more than there is", "cut, or put back"]);
    let _ = run(true).says(["it was cut, or put back", "what is in the ledger is safe"]);
    // Longer than what it has seen, but another: signed by the same key.
    while signed_size(world) <= witness.has_seen() {
        let _ = world.run(["--discard"], "true").run().success();
    }
    let _ = fine(world, &["ledger", "verify"]);
    let refused = witness.ask(world, "good", &[]).expect_status(125);
    let _ = refused.is_clear_error(["has signed another ledger", "rewritten"]);
    // A key that it does not know.
    let _ = fine(world, &["ledger", "witness", "--never"]);
    let _ = fine(world, &["ledger", "key", "rotate"]);
    let _ = world.run(["--discard"], "true").run().success();
    let refused = witness.ask(world, "good", &[]).expect_status(125);
    let _ = refused.is_clear_error(["does not trust the key", "atoll ledger key"]);
}
