//! Access control lists, as `setfacl` makes them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use super::skipping::{Avoidable, note_skip};
use super::support::*;
use crate::access_list::mode_without;
use crate::path::Bytes;
use crate::*;

/// Sets a list; returns whether this host can.
fn set(path: &Path, list: &str) -> bool {
    let done = Command::new("setfacl")
        .args(["-m", list])
        .arg(path)
        .output();
    match done {
        Ok(output) if output.status.success() => true,
        other => {
            println!("skipped: no setfacl here: {other:?}");
            let why = "setfacl (package acl) is missing, or the file system has no lists";
            note_skip(why, Avoidable::Yes);
            false
        }
    }
}

fn list_of(path: &Path) -> String {
    let output = Command::new("getfacl")
        .args(["--omit-header", "--absolute-names"])
        .arg(path)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn mode_of(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

/// Returns the layer's tree after.
fn after(stand: &Stand) -> &Path {
    match &stand.paths.after {
        AfterTree::Copy { path, .. } | AfterTree::Live { path, .. } => path,
        AfterTree::Overlay { upper, .. } => upper,
    }
}

#[test]
fn a_mask_is_never_taken_for_the_groups_rights() {
    let list = |entries: &[(u16, u16)]| {
        let mut bytes = vec![2, 0, 0, 0];
        for (tag, rights) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(rights.to_le_bytes());
            bytes.extend(u32::MAX.to_le_bytes());
        }
        Bytes(bytes)
    };
    let (user, named, group, mask, other) = (0x01, 0x02, 0x04, 0x10, 0x20);
    let whole = |rights| {
        list(&[
            (user, 6),
            (named, 7),
            (group, rights),
            (mask, 7),
            (other, 0),
        ])
    };
    for (list, mode, expected) in [
        (whole(0), 0o670, 0o600),
        (whole(4), 0o670, 0o640),
        (whole(7), 0o640, 0o640),
        (
            list(&[(user, 6), (group, 7), (mask, 5), (other, 0)]),
            0o650,
            0o650,
        ),
        (list(&[(user, 6), (mask, 7), (other, 4)]), 0o674, 0o604),
        (Bytes(vec![1, 0, 0, 0]), 0o660, 0o600),
        (Bytes(vec![2, 0, 0, 0, 4]), 0o660, 0o600),
        (Bytes(Vec::new()), 0o2770, 0o2700),
    ] {
        let shown = mode_without(&list, mode);
        assert_eq!(shown, expected, "{list:?} {mode:o}: {shown:o}");
    }
}

#[test]
fn a_list_of_the_layer_gives_nobody_anything_on_the_host() {
    let before = [
        write("old", "1"),
        mode("old", 0o600),
        write("same", "1"),
        mode("same", 0o600),
    ];
    let (stand, _) = Stand::copy(
        &before,
        &[write("new", "1"), append("old", "2"), directory("dir")],
    );
    let layer = after(&stand);
    for name in ["new", "old", "same", "dir"] {
        perform(layer, &[mode(name, 0o700)]);
        if !set(&layer.join(name), "u:4321:rwx,g::---") {
            return;
        }
        assert_eq!(
            mode_of(&layer.join(name)),
            0o770,
            "the mask is the group's bits"
        );
    }
    perform(layer, &[mode("same", 0o700)]);
    assert!(set(&layer.join("same"), "u::rw-,u:4321:rw-,g::---"));
    let set = stand.changes();
    let seen: Vec<(String, u32)> = set
        .changes
        .iter()
        .map(|it| (it.path.to_string(), it.after.as_ref().unwrap().mode))
        .collect();
    let expected = [("dir", 0o700), ("new", 0o700), ("old", 0o700)];
    assert_eq!(seen, expected.map(|(path, mode)| (path.to_owned(), mode)));
    assert_eq!(set.notes.len(), 4, "{:?}", set.notes);
    stand.apply_all();
    for name in ["new", "old", "dir"] {
        let host = stand.host().join(name);
        assert_eq!(mode_of(&host), 0o700, "{name}");
        assert!(!list_of(&host).contains("4321"), "{name}");
    }
    assert_eq!(mode_of(&stand.host().join("same")), 0o600);
}

#[test]
fn a_list_of_the_hosts_stays_and_keeps_its_mask() {
    let before = [write("file", "1"), write("moded", "1"), directory("dir")];
    let (stand, _) = Stand::copy(&before, &[]);
    let host = stand.host();
    for name in ["file", "moded"] {
        if !set(&host.join(name), "u:4321:rw-,g::---,m::r--") {
            return;
        }
    }
    // A directory that passes a list on to what is made in it.
    assert!(set(&host.join("dir"), "d:u:4321:rwx,d:g::---"));
    let since = std::time::SystemTime::now();
    let copy = stand.place.path().join("second");
    let finished = checkpoint(&host, &copy, IdShift::None, &mut |_| {})
        .unwrap()
        .finished;
    assert_eq!(list_of(&copy.join("file")), list_of(&host.join("file")));
    perform(
        &copy,
        &[
            append("file", "2"),
            mode("moded", 0o660),
            write("dir/new", "1"),
            mode("dir/new", 0o640),
        ],
    );
    let paths = LayerPaths {
        put_back: None,
        after: AfterTree::Copy {
            path: copy,
            finished,
        },
        since,
        ..stand.paths.clone()
    };
    let set = changes(&paths, &Bounds::default()).unwrap();
    let plan = plan_apply(&paths, &set, &everything()).unwrap();
    assert_eq!(plan.conflicts, []);
    let before = ["file", "moded"].map(|name| list_of(&host.join(name)));
    apply(plan, &stand.journal(), &mut |_| {}).unwrap();
    assert_eq!(list_of(&host.join("file")), before[0]);
    let moded = list_of(&host.join("moded"));
    assert!(
        moded.contains("user:4321:rw-") && moded.contains("mask::rw-"),
        "{moded}"
    );
    assert!(moded.contains("group::---"), "{moded}");
    let new = list_of(&host.join("dir/new"));
    assert!(
        new.contains("user:4321:rwx") && new.contains("mask::r--"),
        "{new}"
    );
    undo(&stand.journal(), false).unwrap();
    assert_eq!(
        ["file", "moded"].map(|name| list_of(&host.join(name))),
        before
    );
}

#[test]
fn a_list_that_a_live_run_gave_is_taken_back() {
    let stand = Stand::live(&[write("file", "1"), mode("file", 0o660)], &[]);
    let file = stand.host().join("file");
    let before = list_of(&file);
    // The mask is what the group's bits were: the mode does not tell.
    if !set(&file, "u:4321:rw-,m::rw-") {
        return;
    }
    let set = stand.changes();
    assert_eq!(set.changes.len(), 1, "{set:?}");
    let plan = plan_restore(&stand.paths, &set, &everything()).unwrap();
    apply(plan, &stand.journal(), &mut |_| {}).unwrap();
    assert_eq!(list_of(&file), before);
}
