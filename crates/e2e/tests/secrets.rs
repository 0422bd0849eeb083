//! `atoll secret`: sealed values, the place of their key, and values that are never shown again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use e2e::traces::events;
use e2e::{World, holders};
use rustix::termios::LocalModes;
use serde_json::{Value, json};

const CANARY: &str = "ghp_canary4Q7xZ2mN9pL5vB8cT1wR6yK3";
const PASSPHRASE: &str = "four words for tests";

/// Returns every file beneath a directory.
fn files(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(below).into_iter().flatten().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

/// Returns the files of a world that hold these bytes.
fn holding(world: &World, wanted: &str) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        let mut parts = bytes.windows(wanted.len());
        parts.any(|part| part == wanted.as_bytes())
    };
    files(world.top()).into_iter().filter(holds).collect()
}

/// Returns the file with the vault's key.
fn key_file(world: &World) -> PathBuf {
    let mut all = files(&world.config()).into_iter();
    let is_key = |path: &PathBuf| path.extension().is_some_and(|end| end == "key");
    all.find(is_key).expect("there is a key")
}

fn set(world: &World, name: &str, value: &str) {
    let set = world.atoll(["secret", "set", name]).stdin(value);
    set.run().success().says(["sealed"]);
}

fn names(world: &World) -> Vec<String> {
    let listed = world.atoll(["secret", "list", "--json"]).run().success();
    let listed: Value = serde_json::from_str(&listed.out()).unwrap();
    let all = listed["secrets"].as_array().unwrap().iter();
    all.map(|one| one["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_secret_is_nowhere_in_the_clear() {
    let world = World::new("a_secret_is_nowhere_in_the_clear");
    assert!(names(&world).is_empty());
    world.canary(CANARY, &[]);
    // The search finds what lies open.
    world.write("open", CANARY);
    assert_eq!(holding(&world, CANARY), [world.path("open")]);
    fs::remove_file(world.path("open")).unwrap();

    set(&world, "github", &format!("{CANARY}\n"));
    set(&world, "other", "x");
    set(&world, "github", CANARY);
    assert_eq!(names(&world), ["github", "other"]);
    assert_eq!(holding(&world, CANARY), [] as [PathBuf; 0]);
    let vault = world.state().join("atoll/vault/secrets.json");
    let key = key_file(&world);
    for private in [&vault, &key] {
        let mode = fs::metadata(private).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{}", private.display());
    }
    let kept = fs::read_to_string(&vault).unwrap();
    assert!(kept.contains("\"github\""), "{kept}");

    let _ = world.atoll(["secret", "rm", "github"]).run().success();
    assert_eq!(names(&world), ["other"]);
    let told: Vec<(String, Value)> = events(&world)
        .into_iter()
        .filter(|event| event["type"].as_str().unwrap().starts_with("secret."))
        .map(|event| {
            let kind = event["type"].as_str().unwrap().to_owned();
            (kind, event["body"]["name"].clone())
        })
        .collect();
    let told: Vec<_> = told
        .iter()
        .map(|(kind, name)| (kind.as_str(), name.clone()))
        .collect();
    assert_eq!(
        told,
        [
            ("secret.set", json!("github")),
            ("secret.set", json!("other")),
            ("secret.set", json!("github")),
            ("secret.removed", json!("github")),
        ]
    );
}

#[test]
fn what_cannot_be_kept_is_told() {
    let world = World::new("what_cannot_be_kept_is_told");
    let set = |name: &str, value: Vec<u8>| world.atoll(["secret", "set", name]).stdin(value).run();
    set("a", Vec::new())
        .expect_status(125)
        .is_clear_error(["nothing was given"]);
    set("a", vec![b'x'; (64 << 10) + 1])
        .expect_status(125)
        .is_clear_error(["64 KiB"]);
    let _ = set("a", vec![b'x'; 64 << 10]).success();
    for name in ["", "-a", "a/b", "a b", "é"] {
        let _ = world
            .atoll(["secret", "set", "--", name])
            .run()
            .expect_status(125);
    }
    world
        .atoll(["secret", "rm", "a", "b"])
        .run()
        .expect_status(125)
        .is_clear_error(["there is no secret b", "nothing was removed"]);
    assert_eq!(names(&world), ["a"]);
    let file = world.path("token");
    world.canary("c4n4ry from a file\n", &["workspace/token"]);
    fs::write(&file, "c4n4ry from a file\n").unwrap();
    let _ = world
        .atoll(["secret", "set", "b", "--file", file.to_str().unwrap()])
        .run()
        .success();
    assert_eq!(names(&world), ["a", "b"]);
}

#[test]
fn a_key_that_is_gone_or_open_to_others_is_refused() {
    let world = World::new("a_key_that_is_gone_or_open_to_others_is_refused");
    world.canary(CANARY, &[]);
    set(&world, "a", CANARY);
    let key = key_file(&world);
    let mode = |mode: u32| fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o640);
    let refused = world.atoll(["secret", "set", "b"]).stdin("x").run();
    refused
        .expect_status(125)
        .is_clear_error(["vault-", "chmod go="]);
    mode(0o600);
    fs::rename(&key, world.path("kept")).unwrap();
    let refused = world.atoll(["secret", "set", "b"]).stdin("x").run();
    refused
        .expect_status(125)
        .is_clear_error(["not there", "vault-"]);
    assert!(!key.exists(), "no other key takes its place");
    fs::rename(world.path("kept"), &key).unwrap();
    set(&world, "b", "x");
    assert_eq!(names(&world), ["a", "b"]);
}

#[test]
fn a_passphrase_keeps_the_key() {
    let world = World::new("a_passphrase_keeps_the_key");
    world.canary(CANARY, &[]);
    set(&world, "a", CANARY);
    let key = key_file(&world);
    let short = world.atoll(["secret", "key", "passphrase"]).stdin("short");
    short.run().expect_status(125).is_clear_error(["too short"]);
    assert!(key.exists());
    let old = fs::read(&key).unwrap();
    let kept = world
        .atoll(["secret", "key", "passphrase"])
        .stdin(PASSPHRASE);
    kept.run()
        .success()
        .says(["A passphrase gives the key", "locked"]);
    assert!(!key.exists());
    let locked = world.atoll(["secret", "set", "b"]).stdin("x").run();
    locked
        .expect_status(125)
        .is_clear_error(["locked", "atoll secret unlock"]);
    let wrong = world
        .atoll(["secret", "unlock"])
        .stdin("four words for other")
        .run();
    wrong
        .expect_status(125)
        .is_clear_error(["stays locked", "another passphrase"]);
    let unlock = |time: &str| {
        let unlocked = world.atoll(["secret", "unlock", "--for", time]);
        let _ = unlocked.stdin(format!("{PASSPHRASE}\n")).run().success();
    };
    unlock("10m");
    set(&world, "b", "x");
    world
        .atoll(["secret", "lock"])
        .run()
        .success()
        .says(["Locked"]);
    let locked = world.atoll(["secret", "set", "c"]).stdin("x").run();
    locked.expect_status(125).is_clear_error(["locked"]);
    // A time that is over locks by itself.
    unlock("1s");
    e2e::wait_until("the key is forgotten", e2e::BOUND, || {
        let shown = world.atoll(["secret", "key"]).run().success();
        shown.err().contains("it is locked").then_some(())
    });
    unlock("10m");
    world
        .atoll(["secret", "key", "file"])
        .run()
        .success()
        .says(["The key is in"]);
    let _ = world.atoll(["secret", "lock"]).run().success();
    set(&world, "c", "y");
    assert_eq!(names(&world), ["a", "b", "c"]);
    // A copy of the key from before the passphrase opens nothing.
    let new = fs::read(&key).unwrap();
    fs::write(&key, old).unwrap();
    let other = world.atoll(["secret", "set", "d"]).stdin("x").run();
    other.expect_status(125).is_clear_error(["another key"]);
    fs::write(&key, new).unwrap();
    set(&world, "d", "y");
    assert_eq!(holding(&world, PASSPHRASE), [] as [PathBuf; 0]);
}

#[test]
fn what_is_typed_is_not_shown() {
    let world = World::new("what_is_typed_is_not_shown");
    world.canary(CANARY, &[]);
    let mut terminal = world.atoll(["secret", "set", "typed"]).on_terminal(24, 80);
    terminal.expect("nothing is shown");
    e2e::wait_until("the terminal shows nothing", e2e::BOUND, || {
        let modes = terminal.settings().local_modes;
        (!modes.contains(LocalModes::ECHO)).then_some(())
    });
    terminal.send(format!("wrong\x15{CANARY}x\x7f\r"));
    let ended = terminal.wait().success();
    assert!(!ended.out().contains("canary"), "{ended}");
    assert!(ended.out().contains("sealed"), "{ended}");
    assert_eq!(names(&world), ["typed"]);

    let mut terminal = world.atoll(["secret", "set", "none"]).on_terminal(24, 80);
    terminal.expect("nothing is shown");
    e2e::wait_until("the terminal shows nothing", e2e::BOUND, || {
        let modes = terminal.settings().local_modes;
        (!modes.contains(LocalModes::ECHO)).then_some(())
    });
    terminal.send("half\x03");
    let ended = terminal.wait().expect_status(125);
    assert!(ended.out().contains("cancelled"), "{ended}");
    assert!(terminal.settings().local_modes.contains(LocalModes::ECHO));
    assert_eq!(names(&world), ["typed"]);
}

/// Each command that reads a secret, a passphrase or the key is checked while it does.
#[test]
fn a_command_that_reads_a_secret_leaves_no_core_dump_and_nobody_looks_into_it() {
    let name = "a_command_that_reads_a_secret_leaves_no_core_dump_and_nobody_looks_into_it";
    let world = World::new(name);
    if !holders::dumps_are_files(&world) {
        return;
    }
    world.write(holders::sought(&world), CANARY);
    world.canary(CANARY, &["sought"]);
    set(&world, "a", CANARY);
    let keep = world.atoll(["secret", "key", "passphrase"]);
    let _ = keep.stdin(PASSPHRASE).run().success();
    for words in [["set", "b"].as_slice(), &["key", "passphrase"], &["unlock"]] {
        let command = world.host_shell(holders::UNBOUNDED).arg("sh");
        let command = command.arg(std::env::var_os("ATOLL_BIN").unwrap());
        let mut reading = command.arg("secret").args(words).start();
        reading.send(CANARY);
        // It waits for the rest.
        let fact = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", reading.pid()));
        e2e::wait_until("it reads", e2e::BOUND, || {
            let is_it = || fact("comm").is_ok_and(|name| name == "atoll\n");
            let sleeps = || fact("stat").is_ok_and(|stat| stat.contains(") S "));
            (is_it() && reading.has_taken_all() && sleeps()).then_some(())
        });
        holders::expect_no_dump_of_command(&world, reading.pid());
        drop(reading.wait());
    }
}

#[test]
fn many_at_once_lose_nothing() {
    let world = World::new("many_at_once_lose_nothing");
    let wanted: Vec<String> = (10..26).map(|number| format!("s{number}")).collect();
    std::thread::scope(|scope| {
        for name in &wanted {
            let value = format!("{name}-c4n4ryOfTh1sT3st");
            world.canary(&value, &[]);
            let set = world.atoll(["secret", "set", name]).stdin(value);
            let _ = scope.spawn(move || set.run().success());
        }
    });
    assert_eq!(names(&world), wanted);
}
