//! Undoing: the entries that it leaves to others, those that it keeps in the journal, and its own
//! rollback.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::interrupted::{run_child, spread};
use super::modes::pause;
use super::support::*;
use crate::journal::{Journal, Stage};
use crate::*;

fn paths(list: &[&str]) -> Vec<RelativePath> {
    list.iter().map(path).collect()
}

/// Returns the paths of conflicts, as text.
fn told(conflicts: &[Conflict]) -> Vec<String> {
    let each = conflicts.iter();
    each.map(|one| format!("{}: {}", one.path, one.why))
        .collect()
}

fn preview(journals: &[PathBuf]) -> UndoPreview {
    undo_preview(journals).unwrap()
}

/// Applies the selected changes of a layer, with a journal of this name.
fn apply_some(stand: &Stand, name: &str, selection: &Selection) -> PathBuf {
    let journal = stand.place.path().join(name);
    let plan = stand.plan(selection);
    assert_eq!(plan.conflicts, []);
    assert!(!plan.is_empty(), "{name}");
    apply(plan, &journal, &mut |_| {}).unwrap();
    journal
}

fn only(list: &[&str]) -> Selection {
    Selection {
        paths: paths(list),
        ..everything()
    }
}

#[test]
fn what_others_put_into_a_directory_that_was_made_stays_with_it() {
    for force in [false, true] {
        let edits = [
            write("src/a", "1"),
            write("src/deep/b", "1"),
            write("src/gone/c", "1"),
            write("other/d", "1"),
        ];
        let (stand, _) = Stand::copy(&[write("keep", "1")], &edits);
        stand.apply_all();
        let host = stand.host();
        let later = [
            write("src/deep/mine", "work"),
            write("src/own/x", "work"),
            remove("src/gone/c"),
        ];
        perform(&host, &later);
        let stays = [RetainedDirectory {
            directory: path("src"),
            holds: paths(&["src/deep/mine", "src/own"]),
        }];
        let before = preview(&[stand.journal()]);
        assert_eq!(told(&before.conflicts), <[&str; 0]>::default());
        assert_eq!(before.stays, stays);
        let undone = undo(&stand.journal(), force).unwrap();
        assert_eq!((undone.stays, undone.aside), (stays.to_vec(), vec![]));
        assert_eq!(fs::read(host.join("src/deep/mine")).unwrap(), b"work");
        assert_eq!(fs::read(host.join("src/own/x")).unwrap(), b"work");
        for gone in ["src/a", "src/deep/b", "src/gone", "other"] {
            assert!(!host.join(gone).exists(), "{gone} is left");
        }
        take_undo_back(&stand.journal()).unwrap();
        assert_eq!(fs::read(host.join("src/deep/b")).unwrap(), b"1");
        assert_eq!(fs::read(host.join("src/deep/mine")).unwrap(), b"work");
        let state = journal_state(&stand.journal()).unwrap();
        assert_eq!(state, JournalState::Done);
    }
}

#[test]
fn what_force_overwrites_is_named_and_comes_back() {
    let before = [
        write("a", "1"),
        write("b", "1"),
        write("t/x", "1"),
        mode("b", 0o644),
    ];
    let edits = [
        append("a", "2"),
        mode("b", 0o600),
        remove("t"),
        write("n/m", "1"),
        write("n/o", "1"),
    ];
    let (stand, _) = Stand::copy(&before, &edits);
    let original = snapshot(&stand.host(), false);
    stand.apply_all();
    pause();
    let later = [
        write("a", "edited"),
        mode("b", 0o640),
        write("t/x", "new"),
        write("n/m", "edited"),
    ];
    perform(&stand.host(), &later);
    let edited = snapshot(&stand.host(), false);
    let named = preview(&[stand.journal()]).conflicts;
    let expected = [
        "a: it changed since it was applied",
        "b: it changed since it was applied",
        "n/m: it changed since it was applied",
        "t: it has come into being again since",
        "t/x: it has come into being again since",
    ];
    assert_eq!(told(&named), expected);
    let refused = undo(&stand.journal(), false);
    assert!(matches!(&refused, Err(ApplyError::Conflicts(all)) if *all == named));
    assert_same("refused", &edited, &snapshot(&stand.host(), false));
    let undone = undo(&stand.journal(), true).unwrap();
    assert_eq!(told(&undone.aside), expected);
    assert_same("undone", &original, &snapshot(&stand.host(), false));
    take_undo_back(&stand.journal()).unwrap();
    assert_same("taken back", &edited, &snapshot(&stand.host(), false));
    // The same again, with what force overwrites still known as somebody's.
    assert_eq!(told(&preview(&[stand.journal()]).conflicts), expected);
    undo(&stand.journal(), true).unwrap();
    assert_same("again", &original, &snapshot(&stand.host(), false));
}

#[test]
fn what_cannot_be_looked_at_is_told_as_not_undone() {
    let before = [write("a", "1"), mode("a", 0o644), write("b", "1")];
    let (stand, _) = Stand::copy(&before, &[mode("a", 0o600), append("b", "2")]);
    stand.apply_all();
    perform(&stand.host(), &[remove("a")]);
    let met = preview(&[stand.journal()]);
    assert_eq!(told(&met.conflicts), ["a: it changed since it was applied"]);
    let undone = undo(&stand.journal(), true).unwrap();
    for skipped in [met.skipped, undone.skipped] {
        let skipped = told(&skipped);
        assert!(
            matches!(skipped.as_slice(), [one] if one.starts_with("a: ") && one.contains("No such file")),
            "{skipped:?}"
        );
    }
    assert_eq!(undone.aside, []);
    assert_eq!(fs::read(stand.host().join("b")).unwrap(), b"1");
}

#[test]
fn a_special_file_in_the_place_of_what_was_applied_is_never_removed() {
    let fifo = |at: &str| Edit::Fifo(path(at));
    let edits = [append("a", "2"), write("d/n", "1"), remove("gone")];
    let before = [write("a", "1"), write("gone", "1")];
    for (at, later) in [
        ("a", vec![remove("a"), fifo("a")]),
        ("d/n", vec![remove("d/n"), fifo("d/n")]),
        ("d", vec![remove("d"), fifo("d")]),
        ("gone", vec![fifo("gone")]),
    ] {
        let (stand, _) = Stand::copy(&before, &edits);
        stand.apply_all();
        perform(&stand.host(), &later);
        let edited = snapshot(&stand.host(), true);
        let refused = undo(&stand.journal(), true);
        let why = "a socket, FIFO or device is there now, which could not be brought back";
        let expected = format!("{at}: {why}");
        assert!(
            matches!(&refused, Err(ApplyError::InTheWay(all)) if told(all) == [expected.clone()]),
            "{refused:?}"
        );
        assert_same("refused", &edited, &snapshot(&stand.host(), true));
        perform(&stand.host(), &[remove(at)]);
        undo(&stand.journal(), true).unwrap();
        // The same, where the undo is taken back.
        perform(&stand.host(), &[remove("a"), fifo("a")]);
        let refused = take_undo_back(&stand.journal());
        assert!(refused.is_err(), "{refused:?}");
        assert!(outlook_of_taking_back(&stand).contains(&format!("a: {why}")));
        perform(&stand.host(), &[remove("a"), write("a", "1")]);
    }
    // Others' beside what was applied stay, as all that is theirs.
    let (stand, _) = Stand::copy(&before, &edits);
    stand.apply_all();
    perform(&stand.host(), &[fifo("d/mine")]);
    let undone = undo(&stand.journal(), false).unwrap();
    assert_eq!(undone.stays[0].holds, paths(&["d/mine"]));
}

fn outlook_of_taking_back(stand: &Stand) -> Vec<String> {
    told(&take_back_preview(&[stand.journal()]).unwrap().in_the_way)
}

#[test]
fn an_undo_is_not_taken_back_over_what_changed_after_it() {
    let (stand, _) = Stand::copy(&[write("a", "1")], &[append("a", "2"), write("d/n", "1")]);
    stand.apply_all();
    undo(&stand.journal(), false).unwrap();
    pause();
    perform(&stand.host(), &[write("a", "3"), write("d/n", "mine")]);
    let edited = snapshot(&stand.host(), true);
    let refused = take_undo_back(&stand.journal());
    assert!(
        matches!(&refused, Err(ApplyError::Conflicts(all)) if told(all).len() == 3),
        "{refused:?}"
    );
    assert_same("refused", &edited, &snapshot(&stand.host(), true));
    let twice = apply_some(
        &stand,
        "other",
        &Selection {
            force: true,
            ..everything()
        },
    );
    let refused = take_undo_back(&twice);
    assert!(
        matches!(refused, Err(ApplyError::State { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_removed_directory_comes_back_around_what_others_have_put_there() {
    let before = [write("t/x", "1"), write("t/sub/y", "1")];
    let (stand, _) = Stand::copy(&before, &[remove("t")]);
    stand.apply_all();
    perform(&stand.host(), &[write("t/mine", "work")]);
    let refused = undo(&stand.journal(), false);
    assert!(
        matches!(refused, Err(ApplyError::Conflicts(_))),
        "{refused:?}"
    );
    undo(&stand.journal(), true).unwrap();
    let read = |at: &str| fs::read(stand.host().join(at)).unwrap();
    assert_eq!(
        (read("t/mine"), read("t/x"), read("t/sub/y")),
        (b"work".to_vec(), b"1".to_vec(), b"1".to_vec())
    );
}

#[test]
fn a_file_is_not_put_back_over_a_directory_that_holds_others_files() {
    // Once the run itself has made the directory, once somebody else.
    let made = [remove("a"), write("a/n", "1")];
    let changed = [append("a", "2")];
    for (edits, later) in [
        (&made[..], &[write("a/mine", "work")][..]),
        (&changed[..], &[remove("a"), write("a/mine", "work")][..]),
    ] {
        let (stand, _) = Stand::copy(&[write("a", "1"), write("b", "1")], edits);
        stand.apply_all();
        perform(&stand.host(), later);
        let edited = snapshot(&stand.host(), true);
        assert_eq!(preview(&[stand.journal()]).in_the_way.len(), 1);
        let refused = undo(&stand.journal(), true);
        assert!(
            matches!(refused, Err(ApplyError::InTheWay(_))),
            "{refused:?}"
        );
        assert_same("refused", &edited, &snapshot(&stand.host(), true));
        perform(&stand.host(), &[rename("a/mine", "mine")]);
        undo(&stand.journal(), true).unwrap();
        assert_eq!(fs::read(stand.host().join("a")).unwrap(), b"1");
    }
}

#[test]
fn what_a_later_apply_wrote_is_no_change_to_an_earlier_one() {
    let edits = [
        write("d/a", "1"),
        write("d/b", "1"),
        write("d/sub/c", "1"),
        append("text", "2"),
    ];
    let (stand, seen) = Stand::copy(&[write("text", "1")], &edits);
    let original = snapshot(&stand.host(), false);
    let first = apply_some(&stand, "first", &only(&["d/a", "text"]));
    let second = apply_some(&stand, "second", &only(&["d/sub"]));
    let third = apply_some(&stand, "third", &everything());
    assert_same("applied", &seen, &snapshot(&stand.host(), false));
    let all = [third, second, first];
    let none = preview(&all);
    assert_eq!(told(&none.conflicts), <[&str; 0]>::default());
    assert_eq!(none.stays, []);
    // Of the first alone it is others' work.
    assert_eq!(preview(&all[2..]).stays.len(), 1);
    pause();
    perform(
        &stand.host(),
        &[write("d/sub/c", "later"), write("d/sub/mine", "work")],
    );
    let named = preview(&all);
    let expected = ["d/sub/c: it changed since it was applied"];
    assert_eq!(told(&named.conflicts), expected);
    let stays = [RetainedDirectory {
        directory: path("d"),
        holds: paths(&["d/sub/mine"]),
    }];
    assert_eq!(named.stays, stays);
    perform(
        &stand.host(),
        &[write("d/sub/c", "1"), remove("d/sub/mine")],
    );
    for journal in &all {
        undo(journal, false).unwrap();
    }
    assert_same("undone", &original, &snapshot(&stand.host(), false));
    for journal in all.iter().rev() {
        take_undo_back(journal).unwrap();
    }
    assert_same("taken back", &seen, &snapshot(&stand.host(), false));
}

#[test]
fn the_taking_back_of_several_undos_is_looked_at_whole() {
    let edits = [append("a", "2"), write("d/b", "1"), write("e/c", "1")];
    let (stand, _) = Stand::copy(&[write("a", "1"), write("e/keep", "1")], &edits);
    let first = apply_some(&stand, "first", &only(&["a", "d/b"]));
    let second = apply_some(&stand, "second", &everything());
    pause();
    perform(
        &stand.host(),
        &[write("a", "edited"), write("e/c", "edited")],
    );
    let edited = snapshot(&stand.host(), false);
    for journal in [&second, &first] {
        undo(journal, true).unwrap();
    }
    let all = [first.clone(), second.clone()];
    let taken = |all: &[PathBuf]| take_back_preview(all).unwrap();
    assert_eq!(told(&taken(&all).conflicts), <[&str; 0]>::default());
    pause();
    // Only the last of them meets it.
    perform(&stand.host(), &[write("e/c", "mine")]);
    assert_eq!(told(&taken(&all[..1]).conflicts), <[&str; 0]>::default());
    let expected = ["e/c: it has come into being again since"];
    assert_eq!(told(&taken(&all).conflicts), expected);
    perform(&stand.host(), &[remove("e/c")]);
    for journal in &all {
        take_undo_back(journal).unwrap();
    }
    assert_same("taken back", &edited, &snapshot(&stand.host(), false));
}

#[test]
fn what_changed_between_two_applies_is_told_before_either_is_undone() {
    let edits = [append("a", "2"), write("n", "1")];
    let (stand, _) = Stand::copy(&[write("a", "1")], &edits);
    let first = apply_some(&stand, "first", &everything());
    pause();
    perform(
        &stand.host(),
        &[write("a", "between"), write("n", "between")],
    );
    let force = Selection {
        force: true,
        ..everything()
    };
    let second = apply_some(&stand, "second", &force);
    let expected = [
        "a: it changed since it was applied",
        "n: it changed since it was applied",
    ];
    let all = [second.clone(), first.clone()];
    assert_eq!(told(&preview(&all).conflicts), expected);
    undo(&second, false).unwrap();
    assert_eq!(fs::read(stand.host().join("a")).unwrap(), b"between");
    let refused = undo(&first, false);
    assert!(matches!(refused, Err(ApplyError::Conflicts(all)) if told(&all) == expected));
}

#[test]
fn a_repository_that_was_made_and_written_to_since_is_a_conflict() {
    let edits = [
        write("p/.git/HEAD", "ref: refs/heads/main\n"),
        write("p/.git/config", "[core]\n"),
        write("p/f", "1"),
    ];
    let (stand, _) = Stand::copy(&[write("keep", "1")], &edits);
    let original = snapshot(&stand.host(), false);
    stand.apply_all();
    perform(&stand.host(), &[write("p/.git/refs/heads/main", "abc")]);
    let expected = ["p/.git: it is a git repository that others have written to since"];
    assert_eq!(told(&preview(&[stand.journal()]).conflicts), expected);
    assert!(undo(&stand.journal(), false).is_err());
    perform(&stand.host(), &[remove("p/.git/refs")]);
    undo(&stand.journal(), false).unwrap();
    assert_same("undone", &original, &snapshot(&stand.host(), false));
}

/// An apply that was interrupted, with a file put into a directory that it had made.
#[test]
fn taking_back_an_apply_that_was_cut_short_leaves_others_files() {
    let mut met = 0;
    for at in (0..).step_by(3) {
        let edits: Vec<Edit> = (0..20)
            .flat_map(|index| {
                [
                    write(format!("n{index}/m"), "1"),
                    write(format!("n{index}/d/o"), "1"),
                ]
            })
            .collect();
        let (stand, _) = Stand::copy(&[write("keep", "1")], &edits);
        let mut child = run_child(stand.place.path(), &format!("apply {at}"));
        if child.wait().unwrap().success() {
            break;
        }
        let mine = stand.host().join("n0/d/mine");
        let made = mine.parent().is_some_and(Path::exists);
        if made {
            fs::write(&mine, "work").unwrap();
            met += 1;
        }
        if journal_state(&stand.journal()).unwrap() == JournalState::Interrupted {
            take_back(&stand.journal()).unwrap();
        }
        assert_eq!(mine.exists(), made, "at {at}");
        for gone in ["n0/m", "n0/d/o", "n1"] {
            assert!(!stand.host().join(gone).exists(), "{gone} is left, at {at}");
        }
    }
    assert!(met > 3, "{met}");
}

#[test]
fn the_taking_back_of_an_undo_can_be_killed_too() {
    let mut interrupted = 0;
    // The time that one takes which nobody kills, as busy as the machine is now.
    let mut whole = Duration::ZERO;
    for round in 0..=16 {
        let edits: Vec<Edit> = (0..60)
            .flat_map(|index| {
                [
                    write(format!("n{index}/m"), vec![b'y'; 9_000]),
                    append("a", "2"),
                ]
            })
            .collect();
        let (stand, seen) = Stand::copy(&[write("a", "1")], &edits);
        let before = snapshot(&stand.host(), false);
        let journal = stand.journal();
        stand.apply_all();
        undo(&journal, false).unwrap();
        let mut child = run_child(stand.place.path(), "take-undo-back");
        let begun = Instant::now();
        if round > 0 {
            std::thread::sleep(whole * u32::try_from(spread(round, 1_000)).unwrap() / 1_000);
            child.kill().unwrap();
        }
        child.wait().unwrap();
        if round == 0 {
            whole = begun.elapsed();
        }
        let what = format!("round {round}");
        let state = journal_state(&journal).unwrap();
        if state == JournalState::Interrupted {
            interrupted += 1;
            match round % 2 == 0 {
                true => finish(&journal).unwrap(),
                false => take_back(&journal).unwrap(),
            };
        }
        let now = snapshot(&stand.host(), false);
        match journal_state(&journal).unwrap() {
            JournalState::Done => {
                assert_same(&what, &seen, &now);
                undo(&journal, false).unwrap();
            }
            JournalState::Undone => {
                assert_same(&what, &before, &now);
                take_undo_back(&journal).unwrap();
                assert_same(&what, &seen, &snapshot(&stand.host(), false));
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    println!("{interrupted} of 16 were interrupted in the middle");
    assert!(interrupted > 0);
}

/// Returns an apply that was killed before it changed anything, and the temporary name of its one
/// step.
fn killed_before(edit: Edit) -> (Stand, PathBuf) {
    for at in 0.. {
        let before = [write("d/f", "original"), write("x", "original")];
        let (stand, _) = Stand::copy(&before, std::slice::from_ref(&edit));
        let mut child = run_child(stand.place.path(), &format!("apply {at}"));
        assert!(!child.wait().unwrap().success(), "it never came to that");
        let journal = Journal::open(&stand.journal(), false).unwrap();
        if journal.stage().unwrap() != Some(Stage::Committing) {
            continue;
        }
        let engine = crate::engine::Engine::resume(journal).unwrap();
        let temporary = engine.temporary(0, &engine.steps.get(0).unwrap());
        let aside = stand.host().join(temporary.to_string());
        return (stand, aside);
    }
    unreachable!()
}

#[test]
fn an_original_is_kept_whose_name_somebody_takes_before_it_is_noted() {
    // Removed, and made again by another program.
    let (stand, aside) = killed_before(remove("d"));
    let (host, journal) = (stand.host(), stand.journal());
    fs::rename(host.join("d"), &aside).unwrap();
    fs::create_dir(host.join("d")).unwrap();
    fs::write(aside.join("log"), "late").unwrap();
    for _ in 0..2 {
        let error = take_back(&journal).unwrap_err();
        assert!(error.to_string().contains("cannot be put back"), "{error}");
        let error = finish(&journal).unwrap_err().to_string();
        assert!(!error.contains("nothing was changed"), "{error}");
        assert_eq!(fs::read_to_string(aside.join("f")).unwrap(), "original");
    }
    fs::remove_dir(host.join("d")).unwrap();
    take_back(&journal).unwrap();
    assert_eq!(fs::read_to_string(host.join("d/f")).unwrap(), "original");
    assert_eq!(fs::read_to_string(host.join("d/log")).unwrap(), "late");
    assert!(!aside.exists());

    // Replaced, and what replaces it gone, or saved by another program.
    for save in [false, true] {
        let (stand, aside) = killed_before(write("x", "of the run"));
        let (host, journal) = (stand.host(), stand.journal());
        let other = host.join("other");
        fs::rename(host.join("x"), &other).unwrap();
        fs::rename(&aside, host.join("x")).unwrap();
        fs::rename(&other, &aside).unwrap();
        if save {
            fs::write(&other, "saved").unwrap();
            fs::rename(&other, host.join("x")).unwrap();
            take_back(&journal).unwrap_err();
            assert_eq!(fs::read_to_string(host.join("x")).unwrap(), "saved");
            assert_eq!(fs::read_to_string(&aside).unwrap(), "original");
        }
        fs::remove_file(host.join("x")).unwrap();
        take_back(&journal).unwrap();
        assert_eq!(fs::read_to_string(host.join("x")).unwrap(), "original");
        assert!(!aside.exists());
    }
}

/// Atoll's own writes are no conflict for what is applied next; somebody's are, then as before.
#[test]
fn own_writes_are_no_conflict_for_the_next_apply() {
    let before = [
        write("a", "1"),
        write("d/b", "1"),
        write("gone/c", "1"),
        write("m", "1"),
        mode("m", 0o644),
    ];
    let edits = [
        append("a", "2"),
        append("d/b", "2"),
        remove("gone"),
        mode("m", 0o600),
        write("new/x", "1"),
    ];
    let (mut stand, _) = Stand::copy(&before, &edits);
    let original = snapshot(&stand.host(), false);
    let record = stand.place.path().join("put-back");
    stand.paths.put_back = Some(record.clone());
    for round in ["first", "second", "third"] {
        pause();
        let journal = apply_some(&stand, round, &everything());
        assert!(!stand.host().join("gone").exists(), "{round}");
        undo(&journal, false).unwrap();
        assert_eq!(snapshot(&stand.host(), false), original, "{round}");
    }
    pause();
    perform(&stand.host(), &[append("a", "theirs")]);
    let conflicts = told(&stand.plan(&everything()).conflicts);
    assert_eq!(conflicts, ["a: it changed outside meanwhile"]);
    // Without the record everything that was put back would be one.
    stand.paths.put_back = None;
    let conflicts = stand.plan(&everything()).conflicts;
    let conflicts: Vec<String> = conflicts.iter().map(|one| one.path.to_string()).collect();
    // A directory that seems to be new stays where the run had removed it.
    assert_eq!(conflicts, ["a", "d/b", "m"]);
}

/// An apply that was killed and taken back leaves no conflict either.
#[test]
fn apply_after_a_taken_back_one_meets_no_conflict() {
    let edits = [append("a", "2"), remove("b"), write("c/d", "1")];
    let (mut stand, _) = Stand::copy(&[write("a", "1"), write("b", "1")], &edits);
    stand.paths.put_back = Some(stand.place.path().join("put-back"));
    pause();
    stand.apply_all();
    // As if it had been killed before it said that it was done.
    let journal = Journal::open(&stand.journal(), false).unwrap();
    journal.set_stage(Stage::Committing).unwrap();
    drop(journal);
    take_back(&stand.journal()).unwrap();
    let plan = stand.plan(&everything());
    assert_eq!(told(&plan.conflicts), <[&str; 0]>::default());
    assert!(!plan.is_empty());
}

/// A run that began while something else stood there is based on that: to it what was put back is
/// somebody's change.
#[test]
fn undo_is_seen_by_a_run_that_began_before_it() {
    let before = [write("a", "1"), write("gone/c", "1")];
    let (mut first, _) = Stand::copy(&before, &[append("a", "2"), remove("gone")]);
    let record = first.place.path().join("put-back");
    first.paths.put_back = Some(record.clone());
    pause();
    first.apply_all();
    pause();
    // Another run's copy, made now.
    let copy = first.place.path().join("second");
    let since = SystemTime::now();
    let made = checkpoint(&first.host(), &copy, IdShift::None, &mut |_| {}).unwrap();
    perform(&copy, &[append("a", "3")]);
    pause();
    undo(&first.journal(), false).unwrap();
    let paths = LayerPaths {
        put_back: Some(record),
        after: AfterTree::Copy {
            path: copy,
            finished: made.finished,
        },
        since,
        ..first.paths.clone()
    };
    let changes = changes_at_rest(&paths, &Bounds::default()).unwrap();
    let plan = plan_apply(&paths, &changes, &everything()).unwrap();
    assert_eq!(told(&plan.conflicts), ["a: it changed outside meanwhile"]);
    assert!(plan.is_empty(), "what was put back is removed again");
}
