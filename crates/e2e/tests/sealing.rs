//! Sensitive parts of the ledger, which are sealed, and end with their key.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use e2e::internet::{is_possible, online};
use e2e::{Avoidable, World, fine, program_exists};

/// An independent verifier, written from the documentation alone.
const VERIFIER: &str = include_str!("ledger/verify.py");

/// A word that occurs nowhere else.
const WORD: &str = "unheard-of-argument";

/// Returns everything in the files of a directory.
fn everything_in(directory: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let more = match path.is_dir() {
            true => everything_in(&path),
            false => fs::read(&path).unwrap(),
        };
        all.extend(more);
    }
    all
}

fn says(bytes: &[u8], word: &str) -> bool {
    bytes
        .windows(word.len())
        .any(|part| part == word.as_bytes())
}

/// Returns the verifier's report on the ledger and its witness, and on an unsealed export.
fn others_check(world: &World, witness: &Path, unsealed: &str) -> Option<String> {
    if !program_exists("python3") {
        world.skip("python3 is not installed", Avoidable::Yes);
        return None;
    }
    let ledger = world.state().join("atoll/ledger");
    let key = lines(world, &["ledger", "key"]);
    let check = |arguments: &[&std::ffi::OsStr]| {
        let command = world.host("python3").args(["-c", VERIFIER]);
        command.args(arguments).run()
    };
    let whole = check(&[
        "ledger".as_ref(),
        ledger.as_ref(),
        key.trim_end().as_ref(),
        witness.as_ref(),
    ]);
    let _ = whole.success();
    let file = world.top().join("unsealed.jsonl");
    fs::write(&file, unsealed).unwrap();
    let sealed = check(&["sealed".as_ref(), ledger.as_ref(), file.as_ref()]).success();
    // It can say no.
    if unsealed.contains(WORD) {
        fs::write(&file, unsealed.replacen(WORD, "another-argument", 1)).unwrap();
        let refused = check(&["sealed".as_ref(), ledger.as_ref(), file.as_ref()]);
        assert_ne!(refused.code(), 0, "{refused}");
    }
    Some(sealed.out())
}

fn lines(world: &World, arguments: &[&str]) -> String {
    fine(world, arguments).out()
}

#[test]
fn what_is_sensitive_is_sealed_and_read_by_whoever_has_the_key() {
    let world = World::new("what_is_sensitive_is_sealed_and_read_by_whoever_has_the_key");
    let script = format!("echo {WORD}");
    let _ = world.run(["--discard"], &script).run().success();
    let workspace = world.workspace();
    let workspace = workspace.to_str().unwrap();
    let raw = fs::read_to_string(world.segment()).unwrap();
    assert!(raw.contains("\"sealed\":\""), "{raw}");
    assert!(!raw.contains(WORD) && !raw.contains(workspace), "{raw}");
    for arguments in [
        ["ledger", "show", "--json", "last"].as_slice(),
        &["ledger", "tail", "--json"],
        &["ledger", "query", "--type", "run.opened"],
        &["ledger", "query", "--path", workspace, "--json"],
        &["why", "last"],
        &["why", "last", "--json"],
        &["ledger", "export", "--format", "jsonl", "--unsealed"],
        &["ledger", "export", "--format", "ocsf", "--unsealed"],
    ] {
        let shown = lines(&world, arguments);
        assert!(shown.contains(WORD), "{arguments:?}: {shown}");
    }
    for format in ["jsonl", "ocsf"] {
        let shown = lines(&world, &["ledger", "export", "--format", format]);
        assert!(
            !shown.contains(WORD) && !shown.contains(workspace),
            "{shown}"
        );
    }
    // As it is in the ledger: what others check.
    let exported = lines(&world, &["ledger", "export", "--format", "jsonl"]);
    assert!(
        exported.lines().all(|line| raw.contains(line)),
        "{exported}"
    );
    // Nothing of the run is kept: nowhere in the state is it in the clear.
    assert!(!says(&everything_in(&world.state()), WORD));
    // Nothing inside reaches the keys.
    let keys = world.state().join("atoll/seals/keys");
    let read = format!(
        "cat '{}'; ls '{}'",
        keys.display(),
        keys.parent().unwrap().display()
    );
    let outside = world.host_shell(&read).run().success();
    assert!(outside.out().contains("atoll-seal-1 "), "{outside}");
    let inside = world.run_inside(&read);
    assert!(
        !inside.out().contains("atoll-seal-1") && inside.code() != 0,
        "{inside}"
    );
    let mode = fs::metadata(&keys).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Without the keys there is nothing to read, and nothing that is damaged.
    fs::rename(&keys, world.top().join("keys")).unwrap();
    let shown = lines(&world, &["why", "last"]);
    assert!(
        !shown.contains(WORD) && shown.contains("(sealed)"),
        "{shown}"
    );
    let _ = fine(&world, &["ledger", "verify"]);
    let _ = world.run(["--discard"], "true").run().success();
    // A file of keys that others could have put there, or read, is not used.
    fs::remove_file(&keys).unwrap();
    symlink(world.top().join("keys"), &keys).unwrap();
    for is_link in [true, false] {
        if !is_link {
            fs::remove_file(&keys).unwrap();
            fs::copy(world.top().join("keys"), &keys).unwrap();
            fs::set_permissions(&keys, fs::Permissions::from_mode(0o644)).unwrap();
        }
        let refused = world.run(["--discard"], "echo it runs").run();
        assert!(!refused.out().contains("it runs"), "{refused}");
        let _ = refused
            .expect_status(125)
            .is_clear_error(["cannot be sealed"]);
        let refused = world.atoll(["why", "last"]).run().expect_status(125);
        let _ = refused.is_clear_error(["keys of what is sealed"]);
        let _ = fine(&world, &["ledger", "verify"]);
    }
}

#[test]
fn paths_of_requests_are_sealed() {
    let world = World::new("paths_of_requests_are_sealed");
    if !is_possible(&world, &[]) {
        return;
    }
    let script =
        format!("curl -sS -m 5 --noproxy '*' 'http://example.com/{WORD}?query=of-{WORD}'; true");
    let _ = online(&world, &["--allow", "example.com"], &script);
    let raw = everything_in(&world.state().join("atoll/ledger"));
    assert!(says(&raw, "example.com") && says(&raw, "\"type\":\"flow.opened\""));
    assert!(!says(&raw, WORD));
    let found = [
        "ledger",
        "query",
        "--type",
        "flow",
        "--path",
        &format!("/{WORD}"),
    ];
    let shown = lines(&world, &found);
    assert!(
        shown.contains("example.com") && shown.contains(WORD),
        "{shown}"
    );
    let why = lines(&world, &["why", "last"]);
    assert!(why.contains("example.com"), "{why}");
    let _ = fine(&world, &["ledger", "shred", "last"]).says(["What was sealed of 1 run (run "]);
    let shown = lines(&world, &["ledger", "query", "--type", "flow"]);
    assert!(
        shown.contains("example.com") && shown.contains("(shredded)"),
        "{shown}"
    );
    assert!(!shown.contains(WORD), "{shown}");
    for format in ["jsonl", "ocsf"] {
        let export = ["ledger", "export", "--format", format, "--unsealed"];
        assert!(!lines(&world, &export).contains(WORD));
    }
    let _ = fine(&world, &["why", "last"]);
    let _ = fine(&world, &["ledger", "verify"]);
}

#[test]
fn sealed_content_is_shredded_and_a_hold_keeps_it() {
    let world = World::new("sealed_content_is_shredded_and_a_hold_keeps_it");
    let script = format!("echo {WORD}");
    let run = |session: &str| {
        let options = ["--discard", "--session", session];
        let _ = world.run(options, &script).run().success();
    };
    run("one");
    run("one");
    run("two");
    let witness = world.top().join("witness");
    let _ = fine(&world, &["ledger", "witness", witness.to_str().unwrap()]);
    let unsealed = || {
        lines(
            &world,
            &["ledger", "export", "--format", "jsonl", "--unsealed"],
        )
    };
    if let Some(said) = others_check(&world, &witness, &unsealed()) {
        assert_eq!(said, "3 are what was sealed, 0 nobody knows\n");
    }
    let kept = unsealed();
    let readable = || {
        let shown = lines(&world, &["ledger", "query", "--type", "run.opened"]);
        let of = |word: &str| shown.lines().filter(|line| line.contains(word)).count();
        (of(WORD), of("(shredded)"))
    };
    assert_eq!(readable(), (3, 0));
    let _ = fine(&world, &["ledger", "hold", "one"]).says(["Held: session one"]);
    let refused = world.atoll(["ledger", "shred", "one"]).run();
    let _ = refused
        .expect_status(125)
        .is_clear_error(["is held", "ledger release"]);
    assert_eq!(readable(), (3, 0));
    for age in ["9900d", "36500d"] {
        let shred = ["ledger", "shred", "--older-than", age];
        let _ = fine(&world, &shred).says(["0 runs"]);
    }
    assert_eq!(readable(), (3, 0));
    // By age all but what is held, once they are that old.
    let _ = fine(&world, &["ledger", "shred", "--older-than", "1h"]).says(["0 runs"]);
    std::thread::sleep(Duration::from_secs(2));
    let shred = ["ledger", "shred", "--older-than", "1s"];
    let _ = fine(&world, &shred).says(["What was sealed of 1 run can be read", "is held: 2 runs"]);
    assert_eq!(readable(), (2, 1));
    let _ = fine(&world, &["ledger", "release", "one"]);
    let keys = fs::read_to_string(world.state().join("atoll/seals/keys")).unwrap();
    let _ = fine(&world, &["ledger", "shred", "one"]).says(["2 runs"]);
    assert_eq!(readable(), (0, 3));
    let after = fs::read_to_string(world.state().join("atoll/seals/keys")).unwrap();
    assert_eq!(keys.len(), after.len(), "written over in place");
    let digits = "0".repeat(64);
    assert_eq!(after.matches(&digits).count(), 3, "{after}");
    assert!(!says(&everything_in(&world.state()), WORD));
    // The ledger is as it was, and tells of it: whoever has kept what was sealed can show that
    // it was that.
    let _ = fine(
        &world,
        &["ledger", "verify", "--witness", witness.to_str().unwrap()],
    );
    if let Some(said) = others_check(&world, &witness, &unsealed()) {
        assert_eq!(said, "0 are what was sealed, 3 nobody knows\n");
        let later = unsealed()
            .lines()
            .skip(kept.lines().count())
            .collect::<Vec<_>>()
            .join("\n");
        let said = others_check(&world, &witness, &format!("{kept}{later}\n"));
        assert_eq!(said.unwrap(), "3 are what was sealed, 0 nobody knows\n");
    }
    let _ = fine(&world, &["ledger", "checkpoint"]);
    let proofs = world.top().join("proofs");
    let prove = ["ledger", "prove", "inclusion", "last", "--to"];
    let _ = world.atoll(prove).arg(&proofs).run().success();
    let told = lines(&world, &["ledger", "query", "--type", "seal.shredded"]);
    assert_eq!(told.lines().count(), 3, "{told}");
    let why = lines(&world, &["why", "last"]);
    assert!(why.contains("its sealed content was shredded"), "{why}");
    assert!(why.contains("(shredded)") && !why.contains(WORD), "{why}");
    // One that goes on is not shredded, and the next run of the session has its own key.
    let going = world
        .run(["--session", "one", "--no-tty"], "echo begun; read x")
        .start();
    let _ = going.until_stdout("begun");
    let refused = world.atoll(["ledger", "shred", "one"]).run();
    let _ = refused.expect_status(125).is_clear_error(["goes on"]);
    let _ = fine(&world, &["stop", "--session", "one"]);
    assert_ne!(going.wait().code(), 0);
    run("one");
    assert_eq!(readable().0, 1);
}

/// A run is named in full, and has to exist: the operation cannot be undone.
#[test]
fn what_is_held_or_shredded_is_a_run_that_there_is() {
    let world = World::new("what_is_held_or_shredded_is_a_run_that_there_is");
    let _ = world
        .run(["--discard"], &format!("echo {WORD}"))
        .run()
        .success();
    let opened = lines(
        &world,
        &["ledger", "query", "--type", "run.opened", "--json"],
    );
    let event: serde_json::Value = serde_json::from_str(opened.lines().next().unwrap()).unwrap();
    let run = event["run"].as_str().unwrap().to_owned();
    for action in ["hold", "release", "shred"] {
        for what in [
            "991231-235959-zzzz",
            &run[14..],
            &run[..13],
            "no-such-session",
            "2",
        ] {
            let refused = world.atoll(["ledger", action, what]).run();
            let _ = refused
                .expect_status(125)
                .is_clear_error(["there is no session and no run"]);
        }
    }
    assert_eq!(lines(&world, &["ledger", "query", "--type", "hold"]), "");
    assert!(lines(&world, &["ledger", "query", "--type", "run.opened"]).contains(WORD));
    let held = format!("Held: run {run}");
    let _ = fine(&world, &["ledger", "hold", "last"]).says([held.as_str()]);
    let _ = fine(&world, &["ledger", "release", &run]).says(["Released: run "]);
    let _ = fine(&world, &["policy", "replay"]);
    let _ = fine(&world, &["ledger", "shred", &run]).says([run.as_str(), "1 run"]);
    let again = world.atoll(["ledger", "shred", &run]).run();
    let _ = again
        .expect_status(125)
        .is_clear_error(["is shredded", "no key of it"]);
    // Nothing is concluded from what nobody can read.
    let replayed = world.atoll(["policy", "replay"]).run().expect_status(3);
    assert!(replayed.out().contains("was shredded"), "{replayed}");
    let learnt = world.atoll(["policy", "learn", &run]).run();
    let _ = learnt.expect_status(125).is_clear_error(["was shredded"]);
}
