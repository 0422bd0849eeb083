//! Marks of runs in which an ordinary user's subordinate ids have written, so that the files
//! are given back to the user even if the run is interrupted.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use atoll_ledger::StateDir;
use atoll_model::RunId;
use atoll_sandbox::{Subordinate, reclaim};
use rustix::fs::FlockOperation;
use rustix::process::{getgid, getuid};

/// The directory of the marks in Atoll's state: one file for each such run.
const MARKS: &str = "ids";

/// Marks a run, before anything is written. The mark is locked while the file is open, here or
/// in the launcher, which ends after its sandbox. The file is open for reading only: the
/// launcher needs no more.
pub(crate) fn mark(state: &StateDir, run: &RunId) -> io::Result<File> {
    let path = mark_of(state.path(), run);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    File::create(&path)?;
    let file = File::open(&path)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Gives the files of a run back to the user, if it is marked. Its sandbox must be gone.
pub(crate) fn give_back(state: &StateDir, run: &RunId) -> io::Result<()> {
    let path = mark_of(state.path(), run);
    if !path.exists() {
        return Ok(());
    }
    let removed = PathBuf::from("runs").join(format!(".removed-{run}"));
    let directories = [
        state.run_dir(run),
        state.scratch_dir(run),
        state.path().join(removed),
    ];
    let there: Vec<PathBuf> = directories.into_iter().filter(|one| one.is_dir()).collect();
    if !there.is_empty() {
        let gone = || io::Error::other("the further ids that wrote there are not mapped any more");
        let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
        reclaim(&there, &Subordinate::of(uid, gid).ok_or_else(gone)?)?;
    }
    std::fs::remove_file(&path)
}

/// Gives back the files of interrupted runs; those that cannot be are left for the next time.
pub fn reclaim_leftovers(state: &StateDir) {
    let Ok(marks) = std::fs::read_dir(state.path().join(MARKS)) else {
        return;
    };
    for mark in marks.flatten() {
        let Some(run) = mark
            .file_name()
            .to_str()
            .and_then(|name| RunId::parse(name).ok())
        else {
            continue;
        };
        // Held until it is done: others look after what is left too.
        let Ok(file) = File::open(mark.path()) else {
            continue;
        };
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = give_back(state, &run);
        }
    }
}

fn mark_of(state: &Path, run: &RunId) -> PathBuf {
    state.join(MARKS).join(run.as_str())
}
