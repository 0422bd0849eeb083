//! The remains of a hostile program, which must not reach the host directory.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, makedev, mknodat, renameat_with};

use super::support::*;
use crate::*;

fn refusals(stand: &Stand) -> Vec<String> {
    let plan = stand.plan(&everything());
    plan.refused
        .iter()
        .map(|refusal| format!("{}: {}", refusal.path, refusal.why))
        .collect()
}

#[test]
fn special_files_and_rights_are_refused() {
    if !rustix::process::geteuid().is_root() {
        super::skipped("needs root");
        return;
    }
    let before = [write("kept", "original"), write("old", "1")];
    let edits = [
        Edit::Fifo(path("fifo")),
        write("suid", "1"),
        mode("suid", 0o4755),
        mode("old", 0o2755),
        write("foreign", "1"),
        write("capable", "1"),
        write("dir/file", "1"),
        xattr("kept", "user.overlay.opaque", "y"),
        append("kept", "2"),
    ];
    for mounted in [Some(Mounted::Trusted), None] {
        let (stand, _) = match mounted {
            Some(mounted) => Stand::overlay(mounted, &before, &edits, true).unwrap(),
            None => Stand::copy(&before, &edits),
        };
        let after = match &stand.paths.after {
            AfterTree::Overlay { upper, .. } => upper.clone(),
            AfterTree::Copy { path, .. } | AfterTree::Live { path, .. } => path.clone(),
        };
        std::os::unix::fs::chown(after.join("foreign"), Some(1234), None).unwrap();
        std::os::unix::fs::chown(after.join("dir"), Some(1234), None).unwrap();
        let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let none = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(
            after.join("capable"),
            "security.capability",
            &capability,
            none,
        )
        .unwrap();
        for (name, kind) in [
            ("char", FileType::CharacterDevice),
            ("block", FileType::BlockDevice),
        ] {
            let mode = Mode::from_raw_mode(0o666);
            mknodat(CWD, after.join(name), kind, mode, makedev(1, 3)).unwrap();
        }
        let _socket = std::os::unix::net::UnixListener::bind(after.join("socket")).unwrap();
        let found = refusals(&stand).join("\n");
        for expected in [
            "fifo: it is a FIFO",
            "suid: it would run with",
            "old: it would run with",
            "foreign: foreign owner",
            "capable: it carries file capabilities",
            "char: it is a device",
            "block: it is a device",
            "socket: it is a socket",
            "dir: foreign owner",
            "dir/file: a directory above it is refused",
        ] {
            assert!(found.contains(expected), "{expected} not in\n{found}");
        }
        assert!(
            stand
                .changes()
                .notes
                .iter()
                .any(|note| note.why.contains("pose"))
        );
        stand.apply_all();
        let names: Vec<_> = snapshot(&stand.host(), false)
            .keys()
            .map(ToString::to_string)
            .collect();
        assert_eq!(names, ["kept", "old"]);
        let kept = fs::read(stand.host().join("kept")).unwrap();
        assert_eq!(kept, b"original2");
        let note = rustix::fs::lgetxattr(
            stand.host().join("kept"),
            "user.overlay.opaque",
            &mut [0; 8],
        );
        assert!(note.is_err());
    }
}

#[test]
fn owners_are_shifted_back() {
    if !rustix::process::geteuid().is_root() {
        super::skipped("needs root");
        return;
    }
    let base = 500_000;
    let before = [write("a", "1"), write("b", "1")];
    let edits = [
        append("a", "2"),
        write("new", "n"),
        write("stranger", "s"),
        write("unshifted", "u"),
    ];
    let (mut stand, _) = Stand::overlay(Mounted::Trusted, &before, &edits, true).unwrap();
    let host = stand.host();
    for name in [".", "a", "b"] {
        std::os::unix::fs::chown(host.join(name), Some(ORDINARY), Some(ORDINARY)).unwrap();
    }
    stand.paths.since = SystemTime::now();
    stand.paths.ids = IdShift::Base {
        base,
        count: 65_536,
    };
    let upper = stand.place.path().join("upper");
    for (name, id) in [
        ("a", base + ORDINARY),
        ("new", base + ORDINARY),
        ("stranger", base + 7),
        ("unshifted", ORDINARY),
    ] {
        std::os::unix::fs::chown(upper.join(name), Some(id), Some(id)).unwrap();
    }
    assert_eq!(refusals(&stand).len(), 2, "{:?}", refusals(&stand));
    stand.apply_all();
    for name in ["a", "new"] {
        let facts = fs::metadata(host.join(name)).unwrap();
        assert_eq!((facts.uid(), facts.gid()), (ORDINARY, ORDINARY), "{name}");
    }
    assert!(!host.join("stranger").exists() && !host.join("unshifted").exists());
}

/// A cooperating program outside of the sandbox, or a second sandbox, swaps a directory of the
/// workspace for a link to somewhere else as fast as it can.
#[test]
fn a_swapped_directory_never_leads_out() {
    let mut before = vec![write("outside-twin", "x")];
    let mut edits = Vec::new();
    for index in 0..30 {
        before.push(write(format!("d/sub/{index}"), "old"));
        before.push(write(format!("d/gone/{index}"), "old"));
        edits.push(append(&format!("d/sub/{index}"), "new"));
        edits.push(write(format!("d/sub/fresh{index}"), "new"));
    }
    edits.push(remove("d/gone"));
    let (stand, _) = Stand::copy(&before, &edits);
    let canary = stand.place.path().join("canary");
    fs::create_dir_all(canary.join("gone")).unwrap();
    for index in 0..30 {
        fs::write(canary.join(index.to_string()), "canary").unwrap();
        fs::write(canary.join("gone").join(index.to_string()), "canary").unwrap();
    }
    std::os::unix::fs::symlink("../../canary", stand.host().join("d/trap")).unwrap();
    let untouched = snapshot(&canary, true);
    let stop = AtomicBool::new(false);
    let (mut done, mut failed, mut swaps) = (0, 0, 0_u64);
    std::thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            let mut swaps = 0;
            for name in ["d/sub", "d/gone"].iter().cycle() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let (entry, trap) = (stand.host().join(name), stand.host().join("d/trap"));
                if renameat_with(CWD, &entry, CWD, &trap, RenameFlags::EXCHANGE).is_ok() {
                    let _ = renameat_with(CWD, &entry, CWD, &trap, RenameFlags::EXCHANGE);
                    swaps += 1;
                }
            }
            swaps
        });
        let begun = Instant::now();
        let mut round = 0;
        while begun.elapsed() < Duration::from_secs(3) {
            round += 1;
            let journal = stand.place.path().join(format!("journal{round}"));
            let mut paths = stand.paths.clone();
            paths.since = SystemTime::now();
            let Ok(set) = changes(&paths, &Bounds::default()) else {
                continue;
            };
            let force = Selection {
                force: true,
                ..everything()
            };
            let Ok(plan) = plan_apply(&paths, &set, &force) else {
                continue;
            };
            match apply(plan, &journal, &mut |_| {}) {
                Ok(_) => {
                    done += 1;
                    let _ = undo(&journal, true);
                }
                Err(_) => failed += 1,
            }
        }
        stop.store(true, Ordering::Relaxed);
        swaps = swapper.join().unwrap();
    });
    println!("{done} done, {failed} refused, {swaps} swaps");
    assert!(swaps > 1_000 && done + failed > 0);
    assert_same("canary", &untouched, &snapshot(&canary, true));
}

#[test]
fn links_on_the_way_are_refused() {
    let before = [write("d/f", "1"), write("e/g", "1")];
    let edits = [
        append("d/f", "2"),
        remove("e"),
        write("e", "file"),
        write("d/new/deep", "1"),
    ];
    let (stand, _) = Stand::copy(&before, &edits);
    let canary = stand.place.path().join("canary");
    fs::create_dir(&canary).unwrap();
    fs::write(canary.join("f"), "canary").unwrap();
    let host = stand.host();
    let set = stand.changes();
    fs::rename(host.join("d"), host.join("d-moved")).unwrap();
    std::os::unix::fs::symlink(&canary, host.join("d")).unwrap();
    let force = Selection {
        force: true,
        ..everything()
    };
    let plan = plan_apply(&stand.paths, &set, &force).unwrap();
    let refused: Vec<_> = plan
        .refused
        .iter()
        .map(|refusal| refusal.path.to_string())
        .collect();
    assert_eq!(refused, ["d/f", "d/new"]);
    apply(plan, &stand.journal(), &mut |_| {}).unwrap();
    assert_eq!(fs::read(canary.join("f")).unwrap(), b"canary");
    assert_eq!(fs::read_dir(&canary).unwrap().count(), 1);
}

#[test]
fn a_full_disk_leaves_everything_as_it_was() {
    if !rustix::process::geteuid().is_root() {
        super::skipped("needs root");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    let script = format!(
        "mkdir -p '{0}/small' && mount -t tmpfs -o size=4m tmpfs '{0}/small' && exec \"$@\"",
        place.path().display()
    );
    command.args(["-m", "sh", "-c", &script, "sh"]);
    let output = as_child(command, "no-space", place.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("no space: as it was"),
        "{text}"
    );
}

/// Plays the child's part: the host directory is on a small file system.
pub fn no_space(root: &Path) {
    let host = root.join("small/host");
    fs::create_dir(&host).unwrap();
    perform(
        &host,
        &[
            write("a", "1"),
            write("d/b", vec![b'b'; 100_000]),
            write("gone", "1"),
        ],
    );
    let copy = root.join("copy");
    checkpoint(&host, &copy, IdShift::None, &mut |_| {}).unwrap();
    let edits = [
        append("a", "2"),
        remove("gone"),
        write("d/big", vec![b'x'; 6 << 20]),
        remove("d/b"),
    ];
    perform(&copy, &edits);
    let before = snapshot(&host, true);
    let paths = LayerPaths {
        put_back: None,
        before: host.clone(),
        after: AfterTree::Copy {
            path: copy,
            finished: SystemTime::UNIX_EPOCH,
        },
        since: SystemTime::now(),
        ids: IdShift::None,
    };
    let set = changes(&paths, &Bounds::default()).unwrap();
    let plan = plan_apply(&paths, &set, &everything()).unwrap();
    let error = apply(plan, &root.join("journal"), &mut |_| {}).unwrap_err();
    assert!(
        matches!(&error, ApplyError::TakenBack { cause } if matches!(**cause, ApplyError::NoSpace(_))),
        "{error:?}"
    );
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    assert_same("host", &before, &snapshot(&host, true));
    // The journal itself on the full file system.
    let plan = plan_apply(&paths, &set, &everything()).unwrap();
    fs::write(root.join("small/filler"), vec![0; 3_800_000]).unwrap();
    let error = apply(plan, &root.join("small/journal"), &mut |_| {}).unwrap_err();
    assert_same("host", &before, &snapshot(&host, true));
    println!("no space: as it was ({error})");
}

#[test]
fn a_shifted_copy_is_read_with_its_owners_shifted_back() {
    if !rustix::process::geteuid().is_root() {
        super::skipped("only root gives files away");
        return;
    }
    let place = Stand::bare();
    let (host, copy) = (place.path().join("host"), place.path().join("copy"));
    fs::create_dir(host.join("dir")).unwrap();
    for name in ["mine", "theirs", "beyond", "dir/in"] {
        fs::write(host.join(name), name).unwrap();
    }
    let own = |path: &std::path::Path, id: u32| {
        std::os::unix::fs::chown(path, Some(id), Some(id)).unwrap();
    };
    own(&host.join("theirs"), 1_000);
    own(&host.join("beyond"), 100_000);
    let (base, count) = (1_879_048_192, 65_536);
    let ids = IdShift::Base { base, count };
    let finished = checkpoint(&host, &copy, ids, &mut |_| {}).unwrap().finished;
    let owner = |name: &str| {
        let facts = fs::symlink_metadata(copy.join(name)).unwrap();
        (facts.uid(), facts.gid())
    };
    assert_eq!(owner(""), (base, base));
    assert_eq!(owner("mine"), (base, base));
    assert_eq!(owner("dir/in"), (base, base));
    assert_eq!(owner("theirs"), (base + 1_000, base + 1_000));
    assert_eq!(owner("beyond"), (100_000, 100_000), "no id stands for it");
    let paths = LayerPaths {
        put_back: None,
        before: host.clone(),
        after: AfterTree::Copy {
            path: copy.clone(),
            finished,
        },
        since: SystemTime::now(),
        ids,
    };
    assert!(
        changes(&paths, &Bounds::default())
            .unwrap()
            .changes
            .is_empty()
    );
    fs::write(copy.join("new"), "new").unwrap();
    own(&copy.join("new"), base);
    // Outside of its ids a program owns nothing: someone else has been there.
    fs::write(copy.join("strange"), "strange").unwrap();
    own(&copy.join("strange"), 0);
    let set = changes(&paths, &Bounds::default()).unwrap();
    let plan = plan_apply(&paths, &set, &everything()).unwrap();
    assert_eq!(plan.refused.len(), 1, "{:?}", plan.refused);
    apply(plan, &place.path().join("journal"), &mut |_| {}).unwrap();
    assert_eq!(fs::metadata(host.join("new")).unwrap().uid(), 0);
    assert!(!host.join("strange").exists());
}

#[test]
fn deep_trees_and_odd_modes() {
    let mut deep = String::from("top");
    for level in 0..300 {
        deep.push_str(&format!(
            "/{level:03}-a-name-of-some-length-to-pass-the-kernel's-limit"
        ));
    }
    let (stand, _) = Stand::copy(&[write("x", "1")], &[]);
    let copy = stand.place.path().join("copy");
    // The standard library takes no path this long: level by level instead.
    let tree = crate::tree::Tree::open(&copy).unwrap();
    let mut at = RelativePath::root();
    for name in path(&deep).components() {
        let place = tree.place(&at).unwrap();
        rustix::fs::mkdirat(&place, crate::tree::os(name), Mode::from_raw_mode(0o755)).unwrap();
        at = at.join(name).unwrap();
    }
    let place = tree.place(&at).unwrap();
    let file = crate::host::create_file(std::os::fd::AsFd::as_fd(&place), b"end").unwrap();
    rustix::io::write(file, b"deep").unwrap();
    stand.apply_all();
    let found = crate::tree::Tree::open(&stand.host()).unwrap();
    assert!(found.facts(&at.join(b"end").unwrap()).unwrap().is_some());
    undo(&stand.journal(), false).unwrap();
    assert_eq!(snapshot(&stand.host(), false).len(), 1);
    crate::host::remove_all(&tree, &path("top"), None).unwrap();
    let bounds = Bounds {
        entries_max: 3,
        ..Bounds::default()
    };
    perform(&copy, &[write("1", ""), write("2", ""), write("3", "")]);
    assert!(matches!(
        changes(&stand.paths, &bounds),
        Err(ReadError::TooManyEntries { .. })
    ));
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
}
