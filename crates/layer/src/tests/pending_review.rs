use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::support::path;
use crate::{
    AfterTree, Bounds, Class, IdShift, LayerPaths, RelativePath, XattrFlavour, changed_outside,
    changes, set_aside,
};

fn write(top: &Path, name: &str, text: &str) {
    let path = top.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn text(top: &Path, name: &str) -> Option<String> {
    fs::read_to_string(top.join(name)).ok()
}

fn moved(top: &Path, drop: &[RelativePath]) -> Vec<String> {
    let moved = set_aside(
        &top.join("upper"),
        &top.join("aside"),
        &top.join("host"),
        drop,
    )
    .unwrap();
    let mut names: Vec<String> = moved.iter().map(ToString::to_string).collect();
    names.sort();
    names
}

fn two() -> tempfile::TempDir {
    let top = tempfile::tempdir().unwrap();
    for name in ["upper", "aside", "host"] {
        fs::create_dir(top.path().join(name)).unwrap();
    }
    top
}

/// Returns the paths in a layer of a Codex directory that wait for an approval of their own, and
/// the others.
fn classes(top: &Path) -> (Vec<String>, Vec<String>) {
    let _ = fs::create_dir(top.join("work"));
    let paths = LayerPaths {
        put_back: None,
        before: top.join("host"),
        after: AfterTree::Overlay {
            upper: top.join("upper"),
            work: top.join("work"),
            xattrs: XattrFlavour::User,
        },
        since: std::time::SystemTime::now(),
        ids: IdShift::None,
    };
    let mut set = changes(&paths, &Bounds::default()).unwrap();
    set.classify_within(&path("home/ann/.codex"), &paths);
    let (mut control, mut other) = (Vec::new(), Vec::new());
    for change in &set.changes {
        match change.class {
            Class::Control => control.push(change.path.to_string()),
            Class::Ordinary | Class::Cache | Class::Ignored => other.push(change.path.to_string()),
        }
    }
    (control, other)
}

#[test]
fn only_history_stays_in_a_kept_layer() {
    let top = two();
    let upper = top.path().join("upper");
    for name in [
        "sessions/2030/one.jsonl",
        "history.jsonl",
        "config.toml",
        "hooks/one.sh",
        "projects/p/one.jsonl",
        "projects/p/Memory/all.md",
        "tmp/repository/HEAD",
        "tmp/repository/config",
        "tmp/.envrc",
        "auth.json",
        "new-in-the-next-version",
    ] {
        write(&upper, name, name);
    }
    symlink("config.toml", upper.join("log")).unwrap();
    symlink("../config.toml", upper.join("sessions/link")).unwrap();
    let socket = upper.join("sessions/socket");
    let _listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    write(&upper, "tmp/bin/rg", "program");
    let program = fs::Permissions::from_mode(0o755);
    fs::set_permissions(upper.join("tmp/bin/rg"), program).unwrap();
    let closed = upper.join("sessions/closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    let expected = [
        "config.toml",
        "hooks",
        "log",
        "new-in-the-next-version",
        "projects/p/Memory",
        "sessions/closed",
        "sessions/link",
        "sessions/socket",
        "tmp/.envrc",
        "tmp/bin/rg",
        "tmp/repository",
    ];
    assert_eq!(moved(top.path(), &[path("auth.json")]), expected);
    for name in [
        "sessions/2030/one.jsonl",
        "history.jsonl",
        "projects/p/one.jsonl",
    ] {
        assert_eq!(text(&upper, name).as_deref(), Some(name));
    }
    let aside = top.path().join("aside");
    for name in [
        "config.toml",
        "hooks/one.sh",
        "projects/p/Memory/all.md",
        "tmp/.envrc",
    ] {
        assert_eq!(text(&aside, name).as_deref(), Some(name));
        assert_eq!(text(&upper, name), None);
    }
    assert!(!upper.join("auth.json").exists() && !aside.join("auth.json").exists());
    assert_eq!(moved(top.path(), &[]), [""; 0]);
}

#[test]
fn what_is_newer_takes_the_place_of_what_was_set_aside() {
    let top = two();
    let (upper, aside) = (top.path().join("upper"), top.path().join("aside"));
    for round in ["one", "two"] {
        write(&upper, "config.toml", round);
        write(&upper, &format!("skills/{round}/SKILL.md"), round);
        write(&upper, "skills/both", round);
        let kind = upper.join("agents");
        match round {
            "one" => write(&upper, "agents/in", round),
            _ => fs::write(kind, round).unwrap(),
        }
        assert_eq!(moved(top.path(), &[]), ["agents", "config.toml", "skills"]);
    }
    for (name, round) in [
        ("config.toml", "two"),
        ("skills/one/SKILL.md", "one"),
        ("skills/two/SKILL.md", "two"),
        ("skills/both", "two"),
        ("agents", "two"),
    ] {
        assert_eq!(text(&aside, name).as_deref(), Some(round), "{name}");
    }
}

#[test]
fn setting_aside_follows_no_link() {
    let top = two();
    let (upper, aside) = (top.path().join("upper"), top.path().join("aside"));
    let outside = top.path().join("outside");
    write(&outside, "kept", "kept");
    write(&outside, "hooks/one.sh", "kept");
    // What is aside already was made by a program, too.
    symlink(&outside, aside.join("projects")).unwrap();
    symlink(&outside, aside.join("plugins")).unwrap();
    symlink(&outside, upper.join("sessions")).unwrap();
    write(&upper, "projects/memory/one.md", "planted");
    write(&upper, "plugins/hooks", "planted");
    assert_eq!(
        moved(top.path(), &[]),
        ["plugins", "projects/memory", "sessions"]
    );
    assert_eq!(
        text(&aside, "projects/memory/one.md").as_deref(),
        Some("planted")
    );
    assert!(!aside.join("plugins").is_symlink());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 2);
    assert_eq!(text(&outside, "hooks/one.sh").as_deref(), Some("kept"));
}

#[test]
fn what_was_written_outside_after_the_layers_own_is_named() {
    let top = two();
    let (upper, host) = (top.path().join("upper"), top.path().join("host"));
    write(&host, "sessions/older", "outside");
    std::thread::sleep(std::time::Duration::from_millis(50));
    write(&upper, "sessions/older", "inside");
    write(&upper, "sessions/newer", "inside");
    write(&upper, "sessions/alone", "inside");
    std::thread::sleep(std::time::Duration::from_millis(50));
    write(&host, "sessions/newer", "outside");
    write(&host, "sessions/other", "outside");
    let found = changed_outside(&upper, &host, 10).unwrap();
    assert_eq!(found, [path("sessions/newer")]);
    assert_eq!(changed_outside(&upper, &host, 0).unwrap(), []);
}

#[test]
fn what_changes_in_a_repository_below_does_not_stay() {
    let top = two();
    let (upper, host) = (top.path().join("upper"), top.path().join("host"));
    write(&host, "snapshot/one/HEAD", "ref: refs/heads/main");
    write(&host, "snapshot/two/session", "text");
    // The HEAD did not change, so that the layer has none.
    for name in [
        "snapshot/one/config",
        "snapshot/one/objects/info/alternates",
        "snapshot/two/session",
    ] {
        write(&upper, name, "changed");
    }
    let (control, other) = classes(top.path());
    assert_eq!(
        control,
        [
            "snapshot/one/config",
            "snapshot/one/objects",
            "snapshot/one/objects/info",
            "snapshot/one/objects/info/alternates"
        ]
    );
    assert_eq!(other, ["snapshot/two/session"]);
    assert_eq!(moved(top.path(), &[]), ["snapshot/one"]);
    assert!(upper.join("snapshot/two/session").exists());
}

#[test]
fn a_database_of_the_layer_never_meets_the_log_of_another() {
    let top = two();
    let (upper, aside) = (top.path().join("upper"), top.path().join("aside"));
    let is_hidden = |name: &str| {
        let kind = fs::symlink_metadata(upper.join(name)).map(|facts| facts.file_type());
        kind.is_ok_and(|kind| std::os::unix::fs::FileTypeExt::is_char_device(&kind))
    };
    write(&upper, "state.sqlite", "database");
    write(&upper, "state.sqlite-wal", "log");
    write(&upper, "alone.sqlite-wal", "log");
    write(&upper, "shared.sqlite", "database");
    fs::hard_link(upper.join("shared.sqlite"), upper.join("evil")).unwrap();
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(upper.join("shared.sqlite"), executable).unwrap();
    let together = [
        "alone.sqlite-wal",
        "evil",
        "shared.sqlite",
        "shared.sqlite-journal",
        "shared.sqlite-shm",
        "shared.sqlite-wal",
    ];
    assert_eq!(moved(top.path(), &[]), together);
    assert!(aside.join("alone.sqlite-wal").exists());
    assert_eq!(text(&upper, "state.sqlite-wal").as_deref(), Some("log"));
    assert!(is_hidden("state.sqlite-shm") && is_hidden("state.sqlite-journal"));
    // What was written outside since is a change, and so a conflict.
    let log = top.path().join("host/state.sqlite-shm");
    fs::write(log, "outside").unwrap();
    let (control, other) = classes(top.path());
    assert!(
        other.contains(&"state.sqlite-shm".into()),
        "{control:?} {other:?}"
    );
    // Without its database, nothing is hidden.
    fs::remove_file(upper.join("state.sqlite")).unwrap();
    assert_eq!(moved(top.path(), &[]), ["state.sqlite-wal"]);
    assert!(!is_hidden("state.sqlite-shm"));
}

#[test]
fn a_removal_that_hides_memories_does_not_stay() {
    let top = two();
    let (upper, host) = (top.path().join("upper"), top.path().join("host"));
    for name in ["projects/p/memory/MEMORY.md", "todos/one/memories/one.md"] {
        write(&host, name, "remembered");
    }
    write(&host, "sessions/2030/one.jsonl", "said");
    let device = rustix::fs::FileType::CharacterDevice;
    for name in ["projects", "sessions"] {
        let mode = rustix::fs::Mode::empty();
        rustix::fs::mknodat(rustix::fs::CWD, upper.join(name), device, mode, 0).unwrap();
    }
    write(&upper, "todos/two/one.json", "new");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(upper.join("todos"), "user.overlay.opaque", b"y", flags).unwrap();
    let (control, other) = classes(top.path());
    assert_eq!(control, ["projects", "todos/one"]);
    assert_eq!(other, ["sessions", "todos/two", "todos/two/one.json"]);
    assert_eq!(moved(top.path(), &[]), ["projects", "todos"]);
    assert!(fs::symlink_metadata(upper.join("sessions")).is_ok());
}

#[test]
fn what_can_be_run_or_was_closed_is_no_history() {
    let top = two();
    let upper = top.path().join("upper");
    for name in [
        "sessions/x/program",
        "sessions/closed/in",
        "sessions/x/said",
    ] {
        write(&upper, name, "text");
    }
    for (name, mode) in [("sessions/x/program", 0o755), ("sessions/closed", 0o500)] {
        fs::set_permissions(upper.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let (control, other) = classes(top.path());
    let expected = [
        "sessions/closed",
        "sessions/closed/in",
        "sessions/x/program",
    ];
    assert_eq!(control, expected);
    assert_eq!(other, ["sessions", "sessions/x", "sessions/x/said"]);
}

#[test]
fn a_file_of_several_names_does_not_stay() {
    let top = two();
    let (upper, aside) = (top.path().join("upper"), top.path().join("aside"));
    write(&upper, "sessions/one", "first");
    write(&upper, "sessions/other", "alone");
    fs::hard_link(upper.join("sessions/one"), upper.join("settings.json")).unwrap();
    assert_eq!(moved(top.path(), &[]), ["sessions/one", "settings.json"]);
    write(&upper, "sessions/one", "second");
    assert_eq!(text(&aside, "settings.json").as_deref(), Some("first"));
}

#[test]
fn of_directories_of_which_one_hides_the_newer_is_set_aside_alone() {
    let top = two();
    let (upper, aside) = (top.path().join("upper"), top.path().join("aside"));
    write(&top.path().join("host"), "hooks/mine.sh", "mine");
    let flags = rustix::fs::XattrFlags::empty();
    for (round, opaque) in [
        ("one", Some("hooks")),
        ("two", None),
        ("three", Some("skills")),
    ] {
        write(&upper, &format!("hooks/{round}"), round);
        write(&upper, &format!("skills/{round}"), round);
        if let Some(name) = opaque {
            rustix::fs::setxattr(upper.join(name), "user.overlay.opaque", b"y", flags).unwrap();
        }
        assert_eq!(moved(top.path(), &[]), ["hooks", "skills"]);
    }
    assert_eq!(text(&aside, "hooks/one"), None);
    assert!(aside.join("hooks/two").exists() && aside.join("hooks/three").exists());
    // Where there is nothing to be hidden, nothing is lost.
    assert!(aside.join("skills/one").exists() && aside.join("skills/three").exists());
}
