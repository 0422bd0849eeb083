//! Entries that a program makes unreadable for their owner, as an ordinary user meets them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::support::*;
use crate::*;

fn before() -> Vec<Edit> {
    vec![
        write("kept", "1"),
        write("old/file", "original"),
        write("old/other", "1"),
    ]
}

/// Half of it beneath directories that are closed, one of them within another.
fn edits() -> Vec<Edit> {
    vec![
        write("closed/inner/deep", "secret"),
        write("closed/.envrc", "echo"),
        write("blind/file", "2"),
        append("old/file", "2"),
        write("silent", "3"),
        mode("closed/inner/deep", 0o000),
        mode("closed/inner", 0o000),
        mode("closed", 0o000),
        mode("blind", 0o300),
        mode("old", 0o000),
        mode("silent", 0o200),
    ]
}

fn mode_of(path: impl AsRef<Path>) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn paths_of(list: &[Refusal]) -> Vec<String> {
    list.iter().map(|it| it.path.to_string()).collect()
}

/// Runs a test of this file as an ordinary user, since root may read everything. Returns whether
/// the caller is to continue itself.
fn as_ordinary_user(name: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    let name = format!("tests::unreadable::{name}");
    pass_as_ordinary_user(&["--exact", &name], 1);
    false
}

fn stands() -> Vec<Stand> {
    let mut stands = Vec::new();
    match Stand::overlay(Mounted::Namespace, &before(), &edits(), true) {
        Ok((stand, _)) => stands.push(stand),
        Err(why) => super::skipped_row("overlay", &why),
    }
    stands.push(unreadable_copy());
    stands
}

/// Makes the tree as it is: a copy has no kernel that shows the child everything.
fn unreadable_copy() -> Stand {
    let (stand, _) = Stand::copy(&before(), &[]);
    let AfterTree::Copy { path, .. } = &stand.paths.after else {
        unreachable!();
    };
    perform(path, &edits());
    stand
}

#[test]
fn what_a_program_made_unreadable_is_read_and_its_mode_kept() {
    if !as_ordinary_user("what_a_program_made_unreadable_is_read_and_its_mode_kept") {
        return;
    }
    for stand in stands() {
        let blind = changes(&stand.paths, &Bounds::default()).unwrap();
        assert_eq!(
            paths_of(&blind.refused),
            ["blind", "closed", "old", "silent"]
        );

        for _ in 0..2 {
            let set = stand.changes();
            assert_eq!(set.refused, []);
            let seen: Vec<(String, u32)> = set
                .changes
                .iter()
                .map(|it| (it.path.to_string(), it.after.as_ref().unwrap().mode))
                .collect();
            let expected = [
                ("blind", 0o300),
                ("blind/file", 0o644),
                ("closed", 0o000),
                ("closed/.envrc", 0o644),
                ("closed/inner", 0o000),
                ("closed/inner/deep", 0o000),
                ("old", 0o000),
                ("old/file", 0o644),
                ("silent", 0o200),
            ];
            let expected = expected.map(|(path, mode)| (path.to_owned(), mode));
            assert_eq!(seen, expected);
            assert_eq!(set.counts(Class::Control).added, 1);
            let withheld = [
                "blind",
                "closed",
                "closed/inner",
                "closed/inner/deep",
                "old",
                "silent",
            ];
            assert_eq!(paths_of(&set.withheld), withheld);
        }
    }
}

#[test]
fn nothing_unreadable_is_applied_and_the_rest_is() {
    if !as_ordinary_user("nothing_unreadable_is_applied_and_the_rest_is") {
        return;
    }
    for stand in stands() {
        let untouched = snapshot(&stand.host(), true);
        let plan = stand.plan(&everything());
        let mut refused = paths_of(&plan.refused);
        refused.sort();
        let expected = [
            "blind",
            "blind/file",
            "closed",
            "closed/.envrc",
            "closed/inner",
            "closed/inner/deep",
            "old",
            "silent",
        ];
        assert_eq!(refused, expected);
        apply(plan, &stand.journal(), &mut |_| {}).unwrap();
        assert_eq!(
            fs::read(stand.host().join("old/file")).unwrap(),
            b"original2"
        );
        assert_eq!(mode_of(stand.host().join("old")), 0o755);
        assert!(!stand.host().join("closed").exists());
        undo(&stand.journal(), false).unwrap();
        assert_same("undone", &untouched, &snapshot(&stand.host(), true));
    }
}

#[test]
fn modes_are_put_back_before_a_program_goes_on() {
    if !as_ordinary_user("modes_are_put_back_before_a_program_goes_on") {
        return;
    }
    for stand in stands() {
        stand.changes();
        let after = match &stand.paths.after {
            AfterTree::Overlay { upper, .. } => upper.clone(),
            AfterTree::Copy { path, .. } | AfterTree::Live { path, .. } => path.clone(),
        };
        assert_eq!(mode_of(after.join("closed/inner/deep")), 0o400);
        restore_modes(&after).unwrap();
        for name in ["closed", "old"] {
            assert_eq!(mode_of(after.join(name)), 0o000, "{name}");
        }
        assert_eq!(mode_of(after.join("silent")), 0o200);
        fs::set_permissions(after.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(mode_of(after.join("closed/inner")), 0o000);
        // And it can be read again.
        assert_eq!(stand.changes().refused, []);
    }
}

#[test]
fn notes_cut_short_or_damaged_never_change_what_is_shown() {
    if !as_ordinary_user("notes_cut_short_or_damaged_never_change_what_is_shown") {
        return;
    }
    let stand = unreadable_copy();
    let AfterTree::Copy { path, .. } = &stand.paths.after else {
        unreachable!();
    };
    let mut notes = path.clone().into_os_string();
    notes.push(".modes");
    // Killed while it wrote the first line.
    fs::write(&notes, "12345 0 clo").unwrap();
    let set = stand.changes();
    assert_eq!(set.refused, []);
    assert_eq!(set.changes.len(), 9);
    fs::write(&notes, "nonsense\n").unwrap();
    let error = changes_at_rest(&stand.paths, &Bounds::default()).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
}

#[test]
fn the_top_of_a_layer_can_be_closed_too() {
    if !as_ordinary_user("the_top_of_a_layer_can_be_closed_too") {
        return;
    }
    let (stand, _) = Stand::copy(&before(), &[append("kept", "2")]);
    let AfterTree::Copy { path, .. } = &stand.paths.after else {
        unreachable!();
    };
    fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    let set = stand.changes();
    assert_eq!(set.changes.len(), 1);
    assert_eq!(set.refused, []);
}

#[test]
fn in_live_mode_nothing_is_opened_up_and_what_stays_is_told() {
    if !as_ordinary_user("in_live_mode_nothing_is_opened_up_and_what_stays_is_told") {
        return;
    }
    let stand = Stand::live(&before(), &edits());
    let set = stand.changes();
    assert_eq!(mode_of(stand.host().join("closed")), 0o000);
    let unread = ["blind", "closed", "old", "silent"];
    assert_eq!(paths_of(&set.refused), unread);
    let plan = plan_restore(&stand.paths, &set, &everything()).unwrap();
    assert_eq!(paths_of(&plan.refused), unread);
}

/// Returns a live run that has ended, with the record of what it left.
fn ended(before: &[Edit], edits: &[Edit]) -> (Stand, LiveSnapshot) {
    ended_with_top(before, edits, None)
}

/// As [`ended`], where the run gave the workspace itself this mode, if any, at the end.
fn ended_with_top(before: &[Edit], edits: &[Edit], top: Option<u32>) -> (Stand, LiveSnapshot) {
    let stand = Stand::live(before, edits);
    if let Some(top) = top {
        give_top(&stand, top);
    }
    let set = stand.changes();
    let plan = plan_restore(&stand.paths, &set, &everything()).unwrap();
    let note = LiveSnapshot::of(&plan, &set, SystemTime::now());
    // What changes from here on is later for the kernel's clock too.
    std::thread::sleep(Duration::from_millis(50));
    (stand, note)
}

fn open_up(stand: &Stand, note: &LiveSnapshot) -> Opened {
    let set = stand.changes();
    Opened::up(&stand.paths, &set, Some(note), &Bounds::default()).unwrap()
}

fn plan_back(stand: &Stand, note: &LiveSnapshot, opened: &Opened) -> Plan {
    let plan = plan_restore(&stand.paths, &stand.changes(), &everything()).unwrap();
    note.narrow(plan, opened).0
}

fn modes_as_left(stand: &Stand) {
    for (name, mode) in [
        ("closed", 0),
        ("blind", 0o300),
        ("old", 0),
        ("silent", 0o200),
    ] {
        assert_eq!(mode_of(stand.host().join(name)), mode, "{name}");
    }
}

#[test]
fn what_a_live_run_made_unreadable_is_taken_back_with_the_rest() {
    if !as_ordinary_user("what_a_live_run_made_unreadable_is_taken_back_with_the_rest") {
        return;
    }
    let untouched = snapshot(&Stand::live(&before(), &[]).host(), false);
    for is_killed_first in [false, true] {
        let (stand, note) = ended(&before(), &edits());
        let opened = open_up(&stand, &note);
        let opened = match is_killed_first {
            false => opened,
            // The next one gives back what it left open, and opens it up again.
            true => open_up(&stand, &note),
        };
        let plan = plan_back(&stand, &note, &opened);
        assert_eq!((paths_of(&plan.refused), plan.conflicts.len()), (vec![], 0));
        apply(plan, &stand.journal(), &mut |_| {}).unwrap();
        opened.settle(&[]).unwrap();
        assert_same("taken back", &untouched, &snapshot(&stand.host(), false));
        assert!(!stand.place.path().join("copy.modes").exists());
    }
}

fn give_top(stand: &Stand, mode: u32) {
    fs::set_permissions(stand.host(), fs::Permissions::from_mode(mode)).unwrap();
}

/// Closed, searchable only, readable only, not writable, writable for all.
const TOP_MODES: [u32; 5] = [0o000, 0o100, 0o400, 0o555, 0o777];

#[test]
fn top_that_a_live_run_closed_is_taken_back() {
    if !as_ordinary_user("top_that_a_live_run_closed_is_taken_back") {
        return;
    }
    let stand = Stand::live(&before(), &[]);
    let untouched = (snapshot(&stand.host(), false), mode_of(stand.host()));
    let own = [write("private/own", "mine"), mode("private", 0)];
    let with_own = [before(), own.to_vec()].concat();
    for top in TOP_MODES {
        let (stand, note) = ended_with_top(&before(), &edits(), Some(top));
        let opened = open_up(&stand, &note);
        let plan = plan_back(&stand, &note, &opened);
        let met = (paths_of(&plan.refused), plan.conflicts.len());
        assert_eq!(met, (vec![], 0), "{top:o}");
        apply(plan, &stand.journal(), &mut |_| {}).unwrap();
        opened.settle(&[]).unwrap();
        assert_eq!(mode_of(stand.host()), untouched.1, "{top:o}");
        let now = snapshot(&stand.host(), false);
        assert_same("taken back", &untouched.0, &now);
        // What there is no copy of stays, and keeps nothing else from being taken back.
        let (stand, note) = ended_with_top(&with_own, &edits(), Some(top));
        let opened = open_up(&stand, &note);
        let plan = plan_back(&stand, &note, &opened);
        let refused = plan.refused.clone();
        apply(plan, &stand.journal(), &mut |_| {}).unwrap();
        opened.settle(&refused).unwrap();
        assert_eq!(mode_of(stand.host()), untouched.1, "{top:o}");
        assert_eq!(mode_of(stand.host().join("private")), 0, "{top:o}");
        assert!(!stand.host().join("blind").exists(), "{top:o}");
    }
}

#[test]
fn top_taken_back_is_given_again_by_undo() {
    for top in [0o555, 0o777] {
        let name = "top_taken_back_is_given_again_by_undo";
        if !as_ordinary_user(name) {
            return;
        }
        let edits = [write("kept", "2"), write("new/file", "1"), remove("old")];
        let (stand, note) = ended_with_top(&before(), &edits, Some(top));
        let left = snapshot(&stand.host(), false);
        let opened = open_up(&stand, &note);
        apply(
            plan_back(&stand, &note, &opened),
            &stand.journal(),
            &mut |_| {},
        )
        .unwrap();
        opened.settle(&[]).unwrap();
        assert_eq!(mode_of(stand.host()), 0o755, "{top:o}");
        let undone = undo(&stand.journal(), false).unwrap();
        assert_same("given again", &left, &snapshot(&stand.host(), false));
        assert_eq!(mode_of(stand.host()), top, "{top:o}: {undone:?}");
    }
}

#[test]
fn top_that_is_not_taken_back_is_closed_again() {
    if !as_ordinary_user("top_that_is_not_taken_back_is_closed_again") {
        return;
    }
    for top in TOP_MODES {
        let (stand, note) = ended_with_top(&before(), &edits(), Some(top));
        open_up(&stand, &note).close().unwrap();
        assert_eq!(mode_of(stand.host()), top, "{top:o}");
    }
    // A person who opened it since means that.
    let (stand, note) = ended_with_top(&before(), &edits(), Some(0));
    give_top(&stand, 0o750);
    let opened = open_up(&stand, &note);
    let plan = plan_back(&stand, &note, &opened);
    assert!(plan.steps.iter().all(|step| !step.path.is_root()));
    opened.close().unwrap();
    assert_eq!(mode_of(stand.host()), 0o750);
}

#[test]
fn what_was_opened_up_and_not_taken_back_is_closed_again() {
    if !as_ordinary_user("what_was_opened_up_and_not_taken_back_is_closed_again") {
        return;
    }
    let (stand, note) = ended(&before(), &edits());
    let opened = open_up(&stand, &note);
    assert_eq!(mode_of(stand.host().join("closed/inner/deep")), 0o400);
    opened.close().unwrap();
    modes_as_left(&stand);
    // Of what was refused in the end the same is true.
    let closed = Refusal {
        path: path("closed/inner/deep"),
        why: String::new(),
    };
    open_up(&stand, &note).settle(&[closed]).unwrap();
    assert_eq!(mode_of(stand.host().join("closed")), 0);
    assert_eq!(mode_of(stand.host().join("old")), 0o500);
}

#[test]
fn what_changed_after_a_live_run_is_not_opened_up_or_taken_back() {
    if !as_ordinary_user("what_changed_after_a_live_run_is_not_opened_up_or_taken_back") {
        return;
    }
    let (stand, note) = ended(&before(), &edits());
    // The person wrote where one may without reading, and opened up something else.
    fs::write(stand.host().join("blind/later"), "mine").unwrap();
    let closed = stand.host().join("closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let opened = open_up(&stand, &note);
    assert_eq!(mode_of(closed.join("inner")), 0);
    let plan = plan_back(&stand, &note, &opened);
    let conflicts: Vec<_> = plan
        .conflicts
        .iter()
        .map(|it| it.path.to_string())
        .collect();
    assert_eq!(conflicts, ["blind"]);
    assert!(
        plan.steps
            .iter()
            .all(|step| !step.path.starts_with(&path("closed")))
    );
    opened.close().unwrap();
    assert_eq!(mode_of(&closed), 0o700);
}

/// An entry that could not be read when the run began is in no checkpoint: whatever the program did
/// with it, it is not opened up and not removed.
#[test]
fn what_could_not_be_copied_before_a_live_run_is_never_taken_back() {
    if !as_ordinary_user("what_could_not_be_copied_before_a_live_run_is_never_taken_back") {
        return;
    }
    let private = [write("private/own", "mine"), mode("private", 0)];
    let all = [before(), private.to_vec()].concat();
    let cases: [(&[Edit], &str); 4] = [
        (&[mode("private", 0o300), mode("private", 0)], "private"),
        (&[mode("private", 0o700)], "private"),
        (
            &[
                directory("n"),
                mode("private", 0o700),
                rename("private", "n/p"),
            ],
            "n/p",
        ),
        (
            &[
                directory("n"),
                mode("private", 0o700),
                rename("private", "n/p"),
                mode("n/p", 0),
                mode("n", 0),
            ],
            "n/p",
        ),
    ];
    for (edits, at) in cases {
        let (stand, note) = ended(&all, edits);
        let left = mode_of(stand.host().join(at.split('/').next().unwrap()));
        let opened = open_up(&stand, &note);
        let plan = plan_back(&stand, &note, &opened);
        let refused = plan.refused.clone();
        assert!(!refused.is_empty(), "{edits:?}");
        apply(plan, &stand.journal(), &mut |_| {}).unwrap();
        opened.settle(&refused).unwrap();
        assert_eq!(
            mode_of(stand.host().join(at.split('/').next().unwrap())),
            left
        );
        for closed in [at.split('/').next().unwrap(), at] {
            let closed = stand.host().join(closed);
            fs::set_permissions(closed, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let own = stand.host().join(at).join("own");
        assert_eq!(fs::read(own).unwrap(), b"mine", "{edits:?}");
    }
}

#[test]
fn name_of_an_unreadable_file_outside_is_told() {
    if !as_ordinary_user("name_of_an_unreadable_file_outside_is_told") {
        return;
    }
    let place = Stand::bare();
    let (host, copy) = (place.path().join("host"), place.path().join("copy"));
    let outside = place.path().join("outside");
    fs::write(&outside, "mine").unwrap();
    fs::hard_link(&outside, host.join("closed")).unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o000)).unwrap();
    let facts = checkpoint(&host, &copy, IdShift::None, &mut |_| {}).unwrap();
    assert_eq!(paths_of(&facts.skipped), ["closed"]);
    assert_eq!(facts.shared, [path("closed")]);
}
