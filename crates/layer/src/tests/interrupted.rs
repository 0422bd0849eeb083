//! Killed anywhere, applying can be rolled forward or back.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::support::*;
use crate::steps::Steps;
use crate::*;

fn big_before() -> Vec<Edit> {
    let mut edits = Vec::new();
    for index in 0..40 {
        edits.push(write(format!("keep/{index}"), format!("old {index}\n")));
        edits.push(write(
            format!("go/{}/{index}", index % 5),
            vec![b'x'; 5_000],
        ));
    }
    edits.extend([
        link_to("link", "keep/1"),
        write("swap/inner/file", "s"),
        write("plain", "p"),
    ]);
    edits.extend([
        mode("keep/3", 0o600),
        xattr("keep/4", "user.k", "v"),
        directory("ro"),
    ]);
    edits
}

fn big_edits() -> Vec<Edit> {
    let mut edits = vec![remove("go"), remove("swap"), write("swap", "now a file")];
    for index in 0..40 {
        if index % 2 == 0 {
            edits.push(append(&format!("keep/{index}"), "new\n"));
        }
        edits.push(write(
            format!("added/{}/{index}", index % 3),
            vec![b'y'; 9_000],
        ));
    }
    edits.extend([
        remove("link"),
        link_to("link", "keep/2"),
        remove("plain"),
        write("plain/x", "1"),
    ]);
    edits.extend([mode("keep/5", 0o755), write("ro/f", "1"), mode("ro", 0o555)]);
    edits
}

/// Plays the role of a child: applies or undoes, and ends by itself at the given step.
pub fn child(role: &str, root: &Path) {
    let (role, at) = role.split_once(' ').unwrap_or((role, "-"));
    let mut left: i64 = at.parse().unwrap_or(i64::MAX);
    let mut progress = |_: Progress| {
        left -= 1;
        if left < 0 {
            // As sudden as a kill: nothing is unwound, nothing flushed.
            std::process::abort();
        }
    };
    let stand_root = root.to_owned();
    match role {
        "apply" => {
            let paths = paths_of(&stand_root);
            let set = changes(&paths, &Bounds::default()).unwrap();
            let plan = plan_apply(&paths, &set, &everything()).unwrap();
            std::fs::write(root.join("begun"), "").unwrap();
            apply(plan, &root.join("journal"), &mut progress).unwrap();
        }
        "undo" => {
            std::fs::write(root.join("begun"), "").unwrap();
            undo(&root.join("journal"), false).unwrap();
        }
        "take-undo-back" => {
            std::fs::write(root.join("begun"), "").unwrap();
            take_undo_back(&root.join("journal")).unwrap();
        }
        "take-back" => {
            std::fs::write(root.join("begun"), "").unwrap();
            take_back(&root.join("journal")).unwrap();
        }
        other => panic!("no role {other}"),
    }
}

fn paths_of(root: &Path) -> LayerPaths {
    LayerPaths {
        put_back: None,
        before: root.join("host"),
        after: AfterTree::Copy {
            path: root.join("copy"),
            finished: std::fs::metadata(root.join("finished"))
                .unwrap()
                .modified()
                .unwrap(),
        },
        since: std::time::SystemTime::now(),
        ids: IdShift::None,
    }
}

pub fn run_child(root: &Path, role: &str) -> std::process::Child {
    let _ = std::fs::remove_file(root.join("begun"));
    let mut command = as_child(Command::new("env"), role, root);
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !root.join("begun").exists() && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_micros(200));
    }
    child
}

/// Returns a number that differs from round to round, without a clock.
pub fn spread(round: u64, below: u64) -> u64 {
    round.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) % below
}

fn make() -> (Stand, Snapshot, Snapshot, Snapshot) {
    let (stand, seen) = Stand::copy(&big_before(), &big_edits());
    let before = snapshot(&stand.host(), true);
    let before_without = snapshot(&stand.host(), false);
    (stand, before, before_without, seen)
}

fn settle(stand: &Stand, before: &Snapshot, seen: &Snapshot, onward: bool, what: &str) {
    let journal = stand.journal();
    let state = journal_state(&journal).unwrap();
    match (state, onward) {
        (JournalState::None, _) => {
            assert_same(what, before, &snapshot(&stand.host(), true));
        }
        (JournalState::Done, _) => assert_same(what, seen, &snapshot(&stand.host(), false)),
        (JournalState::Interrupted, true) => {
            finish(&journal).unwrap();
            assert_same(what, seen, &snapshot(&stand.host(), false));
            undo(&journal, false).unwrap();
            assert_same(what, before, &snapshot(&stand.host(), true));
        }
        (JournalState::Interrupted, false) => {
            take_back(&journal).unwrap();
            assert_same(what, before, &snapshot(&stand.host(), true));
        }
        (JournalState::Undone, _) => panic!("{what}: undone by nobody"),
    }
}

#[test]
fn stopped_at_each_step() {
    let mut stops = 0;
    for at in (0..).step_by(7) {
        let (stand, before, _, seen) = make();
        let mut child = run_child(stand.place.path(), &format!("apply {at}"));
        let status = child.wait().unwrap();
        settle(
            &stand,
            &before,
            &seen,
            at % 2 == 0,
            &format!("stopped at {at}"),
        );
        if status.success() {
            break;
        }
        stops += 1;
    }
    assert!(stops > 10, "{stops}");
}

#[test]
fn killed_at_random_moments() {
    let mut interrupted = 0;
    for round in 0..20 {
        let (stand, before, _, seen) = make();
        let mut child = run_child(stand.place.path(), "apply");
        std::thread::sleep(Duration::from_micros(spread(round, 60_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let state = journal_state(&stand.journal()).unwrap();
        interrupted += u32::from(state == JournalState::Interrupted);
        settle(
            &stand,
            &before,
            &seen,
            round % 2 == 0,
            &format!("round {round}, {state:?}"),
        );
    }
    println!("{interrupted} of 20 were interrupted in the middle");
    assert!(interrupted > 0);
}

#[test]
fn undo_and_take_back_can_be_killed_too() {
    for round in 0..10 {
        let (stand, before, _, seen) = make();
        let journal = stand.journal();
        stand.apply_all();
        let mut child = run_child(stand.place.path(), "undo");
        std::thread::sleep(Duration::from_micros(spread(round, 60_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let what = format!("round {round}");
        match (journal_state(&journal).unwrap(), round % 2 == 0) {
            (JournalState::Done, _) => assert_same(&what, &seen, &snapshot(&stand.host(), false)),
            (JournalState::Interrupted, true) => {
                finish(&journal).unwrap();
                assert_same(&what, &before, &snapshot(&stand.host(), true));
                assert_eq!(journal_state(&journal).unwrap(), JournalState::Undone);
            }
            (JournalState::Interrupted, false) => {
                take_back(&journal).unwrap();
                let state = journal_state(&journal).unwrap();
                let now = snapshot(&stand.host(), false);
                match state {
                    JournalState::Done => assert_same(&what, &seen, &now),
                    _ => assert_same(&what, &before, &snapshot(&stand.host(), true)),
                }
            }
            (_, _) => assert_same(&what, &before, &snapshot(&stand.host(), true)),
        }
    }
    for round in 0..8 {
        let (stand, before, _, _) = make();
        let journal = stand.journal();
        let mut child = run_child(stand.place.path(), &format!("apply {}", 330 + round * 11));
        child.wait().unwrap();
        if journal_state(&journal).unwrap() != JournalState::Interrupted {
            continue;
        }
        let mut child = run_child(stand.place.path(), "take-back");
        std::thread::sleep(Duration::from_micros(spread(round, 40_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        take_back(&journal).unwrap();
        assert_same("taken back twice", &before, &snapshot(&stand.host(), true));
    }
}

/// Returns an apply that was killed while names were changed, with files that it has written by
/// then: one in the place of another, one in a directory that was not there.
fn stopped_midway() -> (Stand, Snapshot, [String; 2]) {
    for at in (150..).step_by(5) {
        let (stand, before, _, _) = make();
        let mut child = run_child(stand.place.path(), &format!("apply {at}"));
        assert!(!child.wait().unwrap().success(), "nothing was midway");
        let says = |file: String, end: &str| {
            let path = stand.host().join(&file);
            let is_so = std::fs::read_to_string(path).is_ok_and(|text| text.ends_with(end));
            is_so.then_some(file)
        };
        let written = (0..40).find_map(|index| says(format!("keep/{index}"), "new\n"));
        let added = (0..40).find_map(|index| says(format!("added/{}/{index}", index % 3), "yyy"));
        if let (Some(written), Some(added)) = (written, added) {
            return (stand, before, [written, added]);
        }
    }
    unreachable!()
}

const OF_A_PERSON: &str = "of a person";

#[test]
fn what_somebody_wrote_after_a_kill_is_not_taken_back() {
    let (stand, before, files) = stopped_midway();
    let journal = stand.journal();
    for file in &files {
        let path = stand.host().join(file);
        std::fs::write(&path, OF_A_PERSON).unwrap();
        for _ in 0..2 {
            let Err(ApplyError::InTheWay(told)) = take_back(&journal) else {
                panic!("{file} was taken back");
            };
            let told: Vec<String> = told.iter().map(|one| one.path.to_string()).collect();
            assert_eq!(told, [file.as_str()]);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), OF_A_PERSON);
        }
        std::fs::rename(&path, stand.place.path().join("elsewhere")).unwrap();
    }
    take_back(&journal).unwrap();
    assert_same("taken back", &before, &snapshot(&stand.host(), true));
}

#[test]
fn what_somebody_wrote_after_a_kill_is_no_part_of_what_is_finished() {
    let (stand, _, files) = stopped_midway();
    let journal = stand.journal();
    let paths = files.each_ref().map(|file| stand.host().join(file));
    for path in &paths {
        std::fs::write(path, OF_A_PERSON).unwrap();
    }
    finish(&journal).unwrap();
    let Err(ApplyError::Conflicts(told)) = undo(&journal, false) else {
        panic!("it was undone");
    };
    let told: Vec<String> = told.iter().map(|one| one.path.to_string()).collect();
    let mut expected = files.clone();
    expected.sort();
    assert_eq!(told, expected);
    for path in &paths {
        assert_eq!(std::fs::read_to_string(path).unwrap(), OF_A_PERSON);
    }
}

/// Returns a file that the killed apply has not reached.
fn not_come_to(stand: &Stand) -> String {
    let is_old = |at: &String| {
        let text = std::fs::read_to_string(stand.host().join(at)).unwrap();
        !text.ends_with("new\n")
    };
    let mut all = (0..40).step_by(2).map(|index| format!("keep/{index}"));
    all.find(is_old).unwrap()
}

/// As a kill leaves it right after names have changed places, before that is noted.
fn swap_unnoted(stand: &Stand, at: &str) {
    let (work, steps) = Steps::read(&stand.journal()).unwrap();
    let mut steps = steps.iter().map(Result::unwrap);
    let (index, _) = steps.find(|(_, step)| step.path == path(at)).unwrap();
    let at = stand.host().join(at);
    let prepared = at.with_file_name(format!(".atoll-{}-{index}", work.tag));
    let exchange = rustix::fs::RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(rustix::fs::CWD, prepared, rustix::fs::CWD, at, exchange).unwrap();
}

#[test]
fn what_somebody_wrote_into_what_had_just_come_is_not_lost() {
    for (swapped, written) in [
        (None, None),
        (Some("plain"), Some("plain/x")),
        (Some("plain"), Some("plain/mine")),
    ] {
        let (stand, before, _) = stopped_midway();
        let file = not_come_to(&stand);
        swap_unnoted(&stand, swapped.unwrap_or(&file));
        let file = written.unwrap_or(&file);
        let at = stand.host().join(file);
        std::fs::write(&at, OF_A_PERSON).unwrap();
        for _ in 0..2 {
            let taken = take_back(&stand.journal());
            let Err(ApplyError::InTheWay(told)) = taken else {
                panic!("{file}: {taken:?}");
            };
            let told: Vec<String> = told.iter().map(|one| one.path.to_string()).collect();
            assert_eq!(told, [file]);
            assert_eq!(std::fs::read_to_string(&at).unwrap(), OF_A_PERSON);
        }
        std::fs::rename(&at, stand.place.path().join("elsewhere")).unwrap();
        take_back(&stand.journal()).unwrap();
        assert_same(file, &before, &snapshot(&stand.host(), true));
    }
}

#[test]
fn what_somebody_wrote_into_what_had_just_come_is_no_part_of_what_is_finished() {
    let (stand, ..) = stopped_midway();
    let file = not_come_to(&stand);
    swap_unnoted(&stand, &file);
    std::fs::write(stand.host().join(&file), OF_A_PERSON).unwrap();
    finish(&stand.journal()).unwrap();
    expect_conflict(&stand, &file);
}

#[test]
fn what_somebody_writes_while_an_apply_goes_on_is_no_part_of_it() {
    let (stand, ..) = make();
    let mut later = |now: Progress| {
        if now.phase == Phase::Committing && now.done + 1 == now.total {
            std::fs::write(stand.host().join("keep/0"), OF_A_PERSON).unwrap();
        }
    };
    apply(stand.plan(&everything()), &stand.journal(), &mut later).unwrap();
    expect_conflict(&stand, "keep/0");
}

fn expect_conflict(stand: &Stand, at: &str) {
    let undone = undo(&stand.journal(), false);
    let Err(ApplyError::Conflicts(told)) = undone else {
        panic!("{undone:?}");
    };
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].path, path(at));
    let text = std::fs::read_to_string(stand.host().join(at)).unwrap();
    assert_eq!(text, OF_A_PERSON);
}

#[test]
fn permissions_that_somebody_gave_after_a_kill_stay() {
    use std::os::unix::fs::PermissionsExt as _;
    let (stand, ..) = stopped_midway();
    let at = stand.host().join("keep/5");
    std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o400)).unwrap();
    take_back(&stand.journal()).unwrap();
    assert_eq!(
        std::fs::metadata(&at).unwrap().permissions().mode() & 0o777,
        0o400
    );
}

/// After a power cut the log of a finished step may be gone, and the step itself be there.
#[test]
fn what_was_removed_comes_back_also_where_no_note_tells_of_it() {
    for onward in [true, false] {
        let (stand, before, _) = stopped_midway();
        assert!(!stand.host().join("go").exists());
        std::fs::write(stand.journal().join("log"), "").unwrap();
        if onward {
            finish(&stand.journal()).unwrap();
            undo(&stand.journal(), false).unwrap();
        } else {
            take_back(&stand.journal()).unwrap();
        }
        assert_same("without notes", &before, &snapshot(&stand.host(), true));
    }
}
