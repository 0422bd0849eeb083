//! Where programs inside write by now, whichever run they are of.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_model::RunId;
use atoll_store::{RunError, StateDir, StateError, list_runs};

use super::WrittenInside;

/// How long a run that is about to begin has until its record is there: it is made at once.
const BEGINNING: Duration = Duration::from_millis(20);

/// Who writes inside: the programs of a run, and those of all runs that are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writers {
    workspace: Option<PathBuf>,
    state: PathBuf,
}

/// Why nobody knows where all of them write. Nothing runs outside for a run then.
#[derive(Debug, thiserror::Error)]
pub enum Unlisted {
    /// Atoll's state cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// The runs cannot be listed.
    #[error(transparent)]
    Runs(#[from] RunError),
    /// One cannot be read.
    #[error("the record of run {0} cannot be read: {1}")]
    Record(RunId, RunError),
}

impl Writers {
    /// Those in a workspace, if any, and those whose records are in this state directory.
    #[must_use]
    pub fn new(workspace: Option<&Path>, state: &Path) -> Self {
        Self {
            workspace: workspace.map(Path::to_owned),
            state: state.to_owned(),
        }
    }

    /// Where they write by now, and did: their workspaces, and what Atoll keeps of them.
    ///
    /// # Errors
    /// [`Unlisted`]: any of them could have written anything.
    pub fn written(&self) -> Result<WrittenInside, Unlisted> {
        let others = match self.others() {
            Err(Unlisted::Record(..)) => {
                std::thread::sleep(BEGINNING);
                self.others()?
            }
            others => others?,
        };
        let own = self.workspace.iter().cloned().chain([self.state.clone()]);
        Ok(own.chain(others).collect())
    }

    fn others(&self) -> Result<Vec<PathBuf>, Unlisted> {
        let facts = self.state.symlink_metadata();
        if facts.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Ok(Vec::new());
        }
        let list = list_runs(&StateDir::open_read_only(&self.state)?)?;
        // One that was removed meanwhile has none any more.
        let is_there = |(_, error): &(RunId, RunError)| !matches!(error, RunError::Missing(_));
        match list.broken.into_iter().find(is_there) {
            Some((run, error)) => Err(Unlisted::Record(run, error)),
            None => Ok(list.records.into_iter().map(|one| one.workspace).collect()),
        }
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
        let writers = Writers::new(Some(&top.join("work")), &state);
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
        assert!(matches!(refused, Err(Unlisted::Record(..))), "{refused:?}");
        std::fs::remove_dir_all(state.join("runs")).unwrap();
        std::fs::write(state.join("runs"), "").unwrap();
        assert!(writers.written().is_err());
    }
}
