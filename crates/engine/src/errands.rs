//! Programs run on the host for a run: none that sandboxed programs have written.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_ledger::StateDir;
use atoll_store::{RunError, list_runs};

use crate::configuration::Places;
use crate::failure::{Doing, Failure, Hint};
use crate::printable::printable;
use crate::supervision::{Unfit, Writers, WrittenInside};

/// The wait for a starting run's record, which is written at once.
const BEGINNING: Duration = Duration::from_millis(20);

/// Returns the paths that sandboxed programs can write to: the workspace of one run, and those of
/// all known runs.
pub fn writers(places: &Places, workspace: Option<&Path>) -> Writers {
    Writers::new(workspace, &places.state, workspaces)
}

/// Returns the files that sandboxed programs have written so far.
pub fn written(writers: &Writers) -> Result<WrittenInside, Failure> {
    let unknown = "nobody knows where programs inside have written, so that none runs outside";
    let advice = "atoll runs says which cannot be read; mend it, or remove its directory";
    let written = writers.written().doing(unknown);
    written.map_err(|failure| failure.advise(advice))
}

/// Returns the workspaces of all known runs. A record that cannot be read is an error: nobody knows
/// where its run writes.
fn workspaces(state: &Path) -> Result<Vec<PathBuf>, String> {
    read(state).or_else(|_| {
        std::thread::sleep(BEGINNING);
        read(state)
    })
}

fn read(state: &Path) -> Result<Vec<PathBuf>, String> {
    let facts = state.symlink_metadata();
    if facts.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Ok(Vec::new());
    }
    let state = StateDir::open_read_only(state).map_err(|error| error.to_string())?;
    let list = list_runs(&state).map_err(|error| error.to_string())?;
    let mut broken = list.broken.into_iter();
    // One that was removed meanwhile has none any more.
    match broken.find(|(_, error)| !matches!(error, RunError::Missing(_))) {
        Some((run, error)) => Err(format!("run {run}: {error}")),
        None => Ok(list.records.into_iter().map(|one| one.workspace).collect()),
    }
}

/// Describes a refusal to run a program on the host.
pub fn refused(what: &str, unfit: &Unfit) -> Failure {
    let shown = |path: &Path| printable(path.as_os_str().as_encoded_bytes());
    match unfit {
        Unfit::Written(path) => Failure::new(format!(
            "{what}: {} is in the workspace or in that of another run, or a link to it is",
            shown(path)
        ))
        .because("it runs outside, and a program inside may have written it")
        .advise("name a program that nobody inside has written"),
        Unfit::Open(path) => Failure::new(format!(
            "{what}: others than you can write {}, by which its program is found",
            shown(path)
        ))
        .because("it runs outside, with what you may do")
        .advise(Hint::Naming(
            "ls -ld {} shows who; chmod go-w {} keeps it".to_owned(),
            path.clone(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_run_that_cannot_be_read_is_not_taken_for_none() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let state = top.join("state");
        let writers = Writers::new(Some(&top.join("work")), &state, workspaces);
        let places = [top.join("work"), state.clone()];
        let expected: WrittenInside = places.into_iter().collect();
        assert_eq!(writers.written().unwrap(), expected);
        // The control: no runs are not the same as runs that nobody can read.
        let run = state.join("runs/260102-030405-aaaa");
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::create_dir(&state).unwrap();
        std::fs::set_permissions(&state, private.clone()).unwrap();
        assert!(writers.written().is_ok());
        std::fs::create_dir_all(&run).unwrap();
        for made in [&state.join("runs"), &run] {
            std::fs::set_permissions(made, private.clone()).unwrap();
        }
        let other = top.join("other");
        let record = serde_json::json!({
            "v": 1, "run": "260102-030405-aaaa", "command": ["true"], "workspace": other,
            "directory": other, "profile": "base", "mode": "live", "layers": [],
            "started_at_ms": 0, "state": "running",
        });
        std::fs::write(run.join("record.json"), record.to_string()).unwrap();
        let places = [top.join("work"), state.clone(), other];
        let expected: WrittenInside = places.into_iter().collect();
        assert_eq!(writers.written().unwrap(), expected);
        std::fs::write(run.join("record.json"), "{").unwrap();
        let refused = writers.written();
        assert!(refused.is_err(), "{refused:?}");
        std::fs::remove_dir_all(state.join("runs")).unwrap();
        std::fs::write(state.join("runs"), "").unwrap();
        assert!(writers.written().is_err());
    }
}
