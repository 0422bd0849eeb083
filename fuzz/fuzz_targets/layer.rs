//! A layer as an attacker would like to leave it. The input is a list of things
//! done to the person's directory and, past all rules of overlayfs, to the upper
//! directory: whiteouts, notes in extended attributes, links, special files.

#![no_main]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use atoll_layer::{
    AfterTree, ApplyError, Bounds, DiffOptions, IdShift, LayerPaths, RelativePath, Selection,
    XattrFlavour, apply, changes, plan_apply, undo, write_diff,
};
use libfuzzer_sys::fuzz_target;
use rustix::fs::{CWD, FileType, Mode, XattrFlags, lsetxattr, mknodat};

const NAMES: [&[u8]; 8] = [
    b"a",
    b"b",
    b"c",
    b".git",
    b"hooks",
    b"\xff\n\x1b[",
    b"Makefile",
    b"d",
];
/// Where links point and moved directories claim to come from.
const TARGETS: [&str; 8] = [
    "a",
    "../outside",
    "/a",
    "/../outside",
    "b/a",
    "/",
    "..",
    "/a/../../outside/victim",
];
const NOTES: [&str; 6] = [
    "opaque",
    "redirect",
    "metacopy",
    "whiteout",
    "origin",
    "whiteouts",
];
const STEPS_MAX: usize = 40;
const STEP_BYTES: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    let place = tempfile::tempdir().expect("a temporary directory");
    let root = place.path();
    for name in ["host", "upper", "outside"] {
        fs::create_dir(root.join(name)).expect("a directory");
    }
    fs::write(root.join("outside/victim"), "untouched").expect("a file");
    for step in bytes.chunks_exact(STEP_BYTES).take(STEPS_MAX) {
        // What is not possible is left out.
        let _ = perform(root, step);
    }
    round_trip(root);
    assert!(fs::read(root.join("outside/victim")).is_ok_and(|text| text == b"untouched"));
    assert_eq!(
        snapshot(&root.join("outside")).len(),
        1,
        "something escaped"
    );
});

/// Reads, shows, applies and undoes the layer.
fn round_trip(root: &Path) {
    let host = root.join("host");
    let paths = LayerPaths {
        put_back: None,
        before: host.clone(),
        after: AfterTree::Overlay {
            upper: root.join("upper"),
            work: root.join("work"),
            xattrs: XattrFlavour::User,
        },
        since: SystemTime::now() + Duration::from_secs(3600),
        ids: IdShift::None,
    };
    let Ok(set) = changes(&paths, &Bounds::default()) else {
        return;
    };
    let mut diff = Vec::new();
    write_diff(&paths, &set, &[], &mut diff, &DiffOptions::default()).expect("a diff");
    let diff = String::from_utf8(diff).expect("a diff is text");
    let plain = |letter: char| !letter.is_control() || matches!(letter, '\n' | '\t');
    assert!(diff.chars().all(plain), "{diff:?}");

    let selection = Selection {
        control: true,
        caches: true,
        ignored: true,
        ..Selection::default()
    };
    let Ok(plan) = plan_apply(&paths, &set, &selection) else {
        return;
    };
    let before = snapshot(&host);
    let journal = root.join("journal");
    match apply(plan, &journal, &mut |_| {}) {
        Ok(_) => {
            assert_harmless(&before, &snapshot(&host));
            match undo(&journal, false) {
                Ok(_) => assert_eq!(snapshot(&host), before, "undo"),
                Err(error) => panic!("undo: {error}"),
            }
        }
        Err(ApplyError::Conflicts(_) | ApplyError::TakenBack { .. }) => {
            assert_eq!(snapshot(&host), before, "nothing was to change");
        }
        Err(error) => panic!("apply: {error}"),
    }
}

/// What came from the layer runs with no one's rights and is no device.
fn assert_harmless(before: &Snapshot, after: &Snapshot) {
    for (path, entry) in after {
        let special = entry.kind == "special" || entry.mode & 0o6000 != 0;
        if special {
            let known = before.values().any(|known| {
                (known.kind, known.mode & 0o6000) == (entry.kind, entry.mode & 0o6000)
            });
            // What is made in a directory of the host's takes its group from it (inode(7)).
            let group = entry.kind == "directory" && entry.mode & 0o6000 == 0o2000;
            let above = path.parent().and_then(|parent| after.get(parent));
            let inherited = group && above.is_some_and(|above| above.mode & 0o2000 != 0);
            assert!(known || inherited, "{path:?} is {entry:?}");
        }
        for (name, _) in &entry.xattrs {
            let note = name.starts_with("user.overlay.");
            let known = before
                .values()
                .any(|known| known.xattrs.iter().any(|one| one.0 == *name));
            assert!(!note || known, "{path:?} carries {name}");
        }
    }
}

fn path(byte: u8) -> PathBuf {
    let name = |index: u8| NAMES.get(usize::from(index % 8)).copied().unwrap_or(b"a");
    let first = name(byte);
    let mut bytes = first.to_vec();
    if byte & 0x80 != 0 {
        bytes.push(b'/');
        bytes.extend_from_slice(name(byte >> 3));
    }
    let checked = RelativePath::new(bytes).expect("a plain path");
    PathBuf::from(checked.as_os_str())
}

fn perform(root: &Path, step: &[u8]) -> std::io::Result<()> {
    let [what, at, argument, content] = step else {
        return Ok(());
    };
    let tree = root.join(if what & 0x80 == 0 { "upper" } else { "host" });
    let at = tree.join(path(*at));
    let target = TARGETS
        .get(usize::from(argument % 8))
        .copied()
        .unwrap_or("a");
    if let Some(parent) = at.parent() {
        // Never through a link, or this would leave the tree by itself.
        if fs::symlink_metadata(parent).is_ok_and(|facts| !facts.is_dir()) {
            return Ok(());
        }
        fs::create_dir_all(parent)?;
    }
    let is_link = fs::symlink_metadata(&at).is_ok_and(|facts| facts.is_symlink());
    let is_special = fs::symlink_metadata(&at).is_ok_and(|facts| {
        let kind = facts.file_type();
        kind.is_fifo() || kind.is_char_device()
    });
    match what % 12 {
        0 | 1 if !is_link && !is_special => {
            fs::write(&at, [&[*content; 3], b"\nx\x1b[m\n".as_slice()].concat())
        }
        2 => fs::create_dir(&at),
        3 => symlink(target, &at),
        4 => Ok(mknodat(CWD, &at, FileType::CharacterDevice, Mode::RUSR, 0)?),
        5 => Ok(mknodat(CWD, &at, FileType::Fifo, Mode::RUSR, 0)?),
        6 => {
            let from = tree.join(path(*argument));
            let through_link = from.parent().is_some_and(|parent| {
                fs::symlink_metadata(parent).is_ok_and(|facts| facts.is_symlink())
            });
            if through_link {
                Ok(())
            } else {
                fs::hard_link(from, &at)
            }
        }
        7 if !is_link => {
            let mode = 0o700 | u32::from(*content & 0o77) | u32::from(*argument & 6) << 9;
            fs::set_permissions(&at, Permissions::from_mode(mode))
        }
        8 | 9 => {
            let note = NOTES
                .get(usize::from(content % 6))
                .copied()
                .unwrap_or("opaque");
            let value = if note == "redirect" { target } else { "y" };
            let name = format!("user.overlay.{note}");
            Ok(lsetxattr(&at, name, value.as_bytes(), XattrFlags::empty())?)
        }
        10 => Ok(lsetxattr(
            &at,
            "user.own",
            &[*content],
            XattrFlags::empty(),
        )?),
        11 if !is_link && !is_special => fs::write(&at, []),
        _ => Ok(()),
    }
}

/// Everything about a tree that an undo has to bring back, by path.
type Snapshot = BTreeMap<PathBuf, Entry>;

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    kind: &'static str,
    mode: u32,
    content: Vec<u8>,
    xattrs: Vec<(String, Vec<u8>)>,
}

fn snapshot(root: &Path) -> Snapshot {
    let mut seen = Snapshot::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).expect("a directory").flatten() {
            let path = entry.path();
            let facts = fs::symlink_metadata(&path).expect("an entry");
            let (kind, content) = if facts.is_dir() {
                waiting.push(path.clone());
                ("directory", Vec::new())
            } else if facts.is_symlink() {
                let target = fs::read_link(&path).expect("a link");
                ("link", target.as_os_str().as_bytes().to_vec())
            } else if facts.is_file() {
                ("file", fs::read(&path).expect("a file"))
            } else {
                ("special", Vec::new())
            };
            let mode = facts.mode() & 0o7777;
            let xattrs = xattrs(&path);
            let entry = Entry {
                kind,
                mode,
                content,
                xattrs,
            };
            seen.insert(path, entry);
        }
    }
    seen
}

fn xattrs(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = [0_u8; 4096];
    let count = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let mut found: Vec<(String, Vec<u8>)> = names[..count]
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(b"user."))
        .map(|name| {
            let mut value = [0_u8; 256];
            let name_text = String::from_utf8_lossy(name).into_owned();
            let bytes = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..]);
            (name_text, value[..bytes.unwrap_or(0)].to_vec())
        })
        .collect();
    found.sort();
    found
}
