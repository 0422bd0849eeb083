//! Entries that cannot be read are left out, and nothing goes outside whose new content they may be.

use std::fs;

use super::support::*;
use crate::*;

fn before() -> Vec<Edit> {
    vec![
        write("f", "precious"),
        write("d/a", "1"),
        write("d/inner/b", "2"),
        link_to("link", "f"),
        write("other", "3"),
    ]
}

const DIRECTORIES: [&str; 2] = ["d", "d/inner"];

/// Edits after which something is unreadable for its owner.
fn rows() -> Vec<Vec<Edit>> {
    let modes = [0o000, 0o100, 0o111, 0o200, 0o300];
    let written = modes.map(|bits| vec![write("f", "new"), mode("f", bits)]);
    let renamed = [0o000, 0o111, 0o300].map(|bits| vec![rename("d", "e"), mode("e", bits)]);
    let rest = vec![
        vec![remove("d"), write("d", "x"), mode("d", 0o000)],
        vec![remove("f"), write("f/x", "x"), mode("f/x", 0o000)],
        vec![remove("f"), directory("f"), mode("f", 0o000)],
        vec![remove("link"), write("link", "x"), mode("link", 0o200)],
        vec![rename("link", "elsewhere"), mode("f", 0o000)],
        vec![rename("d", "e"), mode("e/inner/b", 0o000)],
        vec![rename("d/inner", "e"), mode("e", 0o000), remove("d")],
        vec![rename("f", "g"), mode("g", 0o000)],
        vec![hard_link("f", "g"), remove("f"), mode("g", 0o200)],
        vec![
            rename("d/a", "top"),
            mode("top", 0o000),
            remove("d"),
            write("d", "x"),
        ],
        vec![directory("new"), rename("f", "new/f"), mode("new", 0o000)],
        vec![
            directory("new"),
            rename("f", "new/f"),
            link_to("f", "new/f"),
            mode("new", 0o000),
        ],
        vec![rename("f", "g"), write("f", "new"), mode("g", 0o000)],
        vec![write("g", "precious"), write("f", ""), mode("g", 0o200)],
        vec![rename("f", "g"), write("other", "4"), mode("g", 0o000)],
    ];
    written.into_iter().chain(renamed).chain(rest).collect()
}

/// Makes the edits in a private copy: there is no kernel there that shows a child everything.
fn copy(edits: &[Edit]) -> Stand {
    let (stand, _) = Stand::copy(&before(), &[]);
    if let AfterTree::Copy { path, .. } = &stand.paths.after {
        perform(path, edits);
    }
    stand
}

/// Asserts that everything that was there is there as it was, but for `other`.
fn assert_kept(stand: &Stand, untouched: &Snapshot, edits: &[Edit]) {
    let now = snapshot(&stand.host(), true);
    for (path, was) in untouched {
        let is_directory = was.starts_with("Directory");
        if !is_directory && path.as_bytes() != b"other" {
            assert_eq!(now.get(path), Some(was), "{path}: {edits:?}");
        }
    }
}

#[test]
fn nothing_goes_whose_new_content_is_unreadable() {
    let name = "nothing_goes_whose_new_content_is_unreadable";
    if rustix::process::geteuid().is_root() {
        pass_as_ordinary_user(&["--exact", &format!("tests::left_out::{name}")], 1);
        return;
    }
    for edits in rows() {
        // Without redirects no directory moves there.
        let moves = |edit: &Edit| matches!(edit, Edit::Rename(from, _) if DIRECTORIES.contains(&&*from.to_string()));
        let overlay = match edits.iter().any(moves) {
            true => None,
            false => match Stand::overlay(Mounted::Namespace, &before(), &edits, true) {
                Ok((stand, _)) => Some(stand),
                Err(why) => {
                    super::skipped_row("overlay", &why);
                    None
                }
            },
        };
        for stand in overlay.into_iter().chain([copy(&edits)]) {
            let untouched = snapshot(&stand.host(), true);
            let plan = stand.plan(&everything());
            assert!(!plan.left_out.is_empty(), "{edits:?}");
            assert_eq!(plan.conflicts, [], "{edits:?}");
            apply(plan, &stand.journal(), &mut |_| {}).unwrap();
            assert_kept(&stand, &untouched, &edits);
            if edits.contains(&write("other", "4")) {
                assert_eq!(fs::read(stand.host().join("other")).unwrap(), b"4");
            }
            undo(&stand.journal(), false).unwrap();
            assert_same("undone", &untouched, &snapshot(&stand.host(), true));
        }
    }
}

#[test]
fn nothing_goes_whose_content_is_in_what_is_not_selected() {
    let places = [
        "node_modules/f",
        ".envrc",
        ".git/hooks/pre-commit",
        "node_modules/d/e/f",
    ];
    for place in places {
        let (above, _) = place.rsplit_once('/').unwrap_or_default();
        let made = (!above.is_empty()).then(|| directory(above));
        let rest = [rename("f", place), write("other", "4"), remove("d/a")];
        let edits: Vec<Edit> = made.into_iter().chain(rest).collect();
        let linked = [edits.clone(), vec![link_to("f", place)]].concat();
        for edits in [edits, linked] {
            let stand = copy(&edits);
            let selection = Selection::default();
            let plan = stand.plan(&selection);
            assert_eq!(plan.unremoved, [path("f")], "{edits:?}");
            assert!(plan.leaves_out());
            apply(plan, &stand.journal(), &mut |_| {}).unwrap();
            let content = |name: &str| fs::read(stand.host().join(name)).ok();
            assert_eq!(content("f").as_deref(), Some(&b"precious"[..]));
            assert_eq!(content("other").as_deref(), Some(&b"4"[..]));
            assert_eq!(content("d/a"), None);
            // With what it went to, or named alone, it goes.
            let named = Selection {
                paths: vec![path("f")],
                ..Selection::default()
            };
            assert_eq!(stand.plan(&named).unremoved, []);
            assert_eq!(stand.plan(&everything()).unremoved, []);
        }
    }
    // A copy beside a change is no move.
    let kept = [
        directory("node_modules"),
        write("node_modules/f", "precious"),
        write("f", "new"),
    ];
    assert_eq!(copy(&kept).plan(&Selection::default()).unremoved, []);
}

#[test]
fn removal_named_alone_is_done_beside_what_is_left_out() {
    let name = "removal_named_alone_is_done_beside_what_is_left_out";
    if rustix::process::geteuid().is_root() {
        pass_as_ordinary_user(&["--exact", &format!("tests::left_out::{name}")], 1);
        return;
    }
    let edits = [remove("f"), write("g", "x"), mode("g", 0o000)];
    let stand = copy(&edits);
    let all = stand.plan(&everything());
    assert_eq!(all.unremoved, [path("f")]);
    assert!(all.steps.is_empty());
    let alone = Selection {
        paths: vec![path("f")],
        ..everything()
    };
    let plan = stand.plan(&alone);
    assert!(plan.left_out.is_empty() && plan.unremoved.is_empty());
    apply(plan, &stand.journal(), &mut |_| {}).unwrap();
    assert!(!stand.host().join("f").exists());
}

#[test]
fn renamed_directory_applied_before_is_not_emptied() {
    let before = [write("t/x", "1"), write("t/y", "2"), write("o", "3")];
    let moved = vec![rename("t", "u"), append("o", "4")];
    let written = vec![rename("t", "u"), append("u/x", "4"), append("o", "4")];
    for edits in [moved, written] {
        let (stand, _) = match Stand::overlay(Mounted::Trusted, &before, &edits, true) {
            Ok(stand) => stand,
            Err(why) => return super::skipped(&why),
        };
        // A rename that is not one in itself is a new tree and a removal.
        let alone = Selection {
            paths: vec![path("u"), path("t")],
            ..everything()
        };
        apply(stand.plan(&alone), &stand.journal(), &mut |_| {}).unwrap();
        let set = stand.changes();
        let left: Vec<String> = set.changes.iter().map(|it| it.path.to_string()).collect();
        assert_eq!(left, ["o"], "{edits:?}");
        assert_eq!(set.refused, []);
        let second = stand.place.path().join("second");
        apply(stand.plan(&everything()), &second, &mut |_| {}).unwrap();
        for name in ["u/x", "u/y", "o"] {
            assert!(stand.host().join(name).exists(), "{name}: {edits:?}");
        }
    }
}

#[test]
fn directory_renamed_from_nowhere_is_left_out() {
    let before = [write("t/x", "1"), write("o", "3")];
    let edits = [rename("t", "u"), append("u/x", "4"), remove("o")];
    let (stand, _) = match Stand::overlay(Mounted::Trusted, &before, &edits, true) {
        Ok(stand) => stand,
        Err(why) => return super::skipped(&why),
    };
    fs::rename(stand.host().join("t"), stand.place.path().join("elsewhere")).unwrap();
    let plan = stand.plan(&everything());
    assert!(plan.left_out.contains(&path("u")));
    assert_eq!(plan.unremoved, [path("o")]);
    assert!(plan.steps.is_empty());
}
