//! Entries of others in an ordinary user's directory: they come back as that user's own.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::SystemTime;

use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::support::*;
use crate::*;

const EDITS: [&str; 4] = ["of-root", "of-group", "with-id", "own"];

/// Runs a function in a thread of an ordinary user, in whose directory files of root and of root's
/// group are.
fn with_files_of_root(act: impl FnOnce(&Path) + Send) {
    if !rustix::process::geteuid().is_root() {
        super::skipped("needs root");
        return;
    }
    let place = Stand::bare();
    let host = place.path().join("host");
    for (name, mode) in EDITS.iter().zip([0o644, 0o640, 0o4755, 0o600]) {
        fs::write(host.join(name), format!("{name} before")).unwrap();
        fs::set_permissions(host.join(name), Permissions::from_mode(mode)).unwrap();
    }
    for directory in [place.path(), &host] {
        chown(directory, Some(ORDINARY), Some(ORDINARY)).unwrap();
    }
    chown(host.join("of-group"), Some(ORDINARY), None).unwrap();
    chown(host.join("own"), Some(ORDINARY), Some(ORDINARY)).unwrap();
    let user = || {
        let (uid, gid) = (Uid::from_raw(ORDINARY), Gid::from_raw(ORDINARY));
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(gid, gid, gid).unwrap();
        set_thread_res_uid(uid, uid, uid).unwrap();
        act(place.path());
    };
    std::thread::scope(|scope| scope.spawn(user).join().unwrap());
}

fn edit(root: &Path) {
    for name in EDITS {
        perform(root, &[remove(name), write(name, "after")]);
    }
}

/// Returns the paths of a layer over, or a checkpoint of, the directory, after the edits.
fn edited(place: &Path, is_live: bool) -> LayerPaths {
    let (host, copy) = (place.join("host"), place.join("copy"));
    let since = SystemTime::now();
    let facts = checkpoint(&host, &copy, IdShift::None, &mut |_| {}).unwrap();
    let finished = facts.finished;
    let (before, path) = if is_live { (copy, host) } else { (host, copy) };
    edit(&path);
    let after = match is_live {
        true => AfterTree::Live { path, finished },
        false => AfterTree::Copy { path, finished },
    };
    LayerPaths {
        put_back: None,
        before,
        after,
        since,
        ids: IdShift::None,
    }
}

fn assert_restored(host: &Path) {
    // Those of another group may do what all may.
    for (name, mode) in EDITS.iter().zip([0o644, 0o600, 0o755, 0o600]) {
        let path = host.join(name);
        let before = format!("{name} before");
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
        let facts = path.metadata().unwrap();
        assert_eq!(facts.mode() & 0o7777, mode, "{name}");
        assert_eq!((facts.uid(), facts.gid()), (ORDINARY, ORDINARY), "{name}");
    }
}

fn lines(conflicts: &[Conflict]) -> Vec<String> {
    let line = |one: &Conflict| format!("{} {}", one.path, one.why);
    conflicts.iter().map(line).collect()
}

const NOT_GIVEN: [&str; 3] = [
    "of-group is of your group now: its group could not be given back",
    "of-root is yours now: its owner and group could not be given back",
    "with-id is yours now: its owner and group could not be given back",
];

#[test]
fn undo_over_files_of_others_restores_all() {
    with_files_of_root(|place| {
        let paths = edited(place, false);
        let changes = changes_at_rest(&paths, &Bounds::default()).unwrap();
        let plan = plan_apply(&paths, &changes, &everything()).unwrap();
        let journal = place.join("journal");
        apply(plan, &journal, &mut |_| {}).unwrap();
        assert_eq!(fs::read(place.join("host/of-root")).unwrap(), b"after");
        for _ in 0..2 {
            let undone = undo(&journal, false).unwrap();
            assert_eq!(lines(&undone.owners), NOT_GIVEN);
            assert_restored(&place.join("host"));
            take_undo_back(&journal).unwrap();
        }
    });
}

#[test]
fn interrupted_apply_over_files_of_others_is_taken_back() {
    with_files_of_root(|place| {
        let paths = edited(place, false);
        let changes = changes_at_rest(&paths, &Bounds::default()).unwrap();
        let plan = plan_apply(&paths, &changes, &everything()).unwrap();
        let journal = place.join("journal");
        let stop = &mut |progress: Progress| {
            assert!(
                progress.phase != Phase::Syncing || !is_applied(place),
                "stop"
            );
        };
        let stopped = catch_unwind(AssertUnwindSafe(|| apply(plan, &journal, stop)));
        assert!(stopped.is_err());
        assert_eq!(journal_state(&journal).unwrap(), JournalState::Interrupted);
        take_back(&journal).unwrap();
        assert_restored(&place.join("host"));
    });
}

fn is_applied(place: &Path) -> bool {
    fs::read(place.join("host/of-root")).unwrap() == b"after"
}

#[test]
fn undo_of_live_run_names_files_of_others() {
    with_files_of_root(|place| {
        let paths = edited(place, true);
        let changes = changes_at_rest(&paths, &Bounds::default()).unwrap();
        let plan = plan_restore(&paths, &changes, &everything()).unwrap();
        let journal = place.join("journal");
        apply(plan, &journal, &mut |_| {}).unwrap();
        assert_eq!(lines(&owners_not_given(&journal).unwrap()), NOT_GIVEN);
        assert_restored(&place.join("host"));
    });
}
