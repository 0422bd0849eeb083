//! Others' changes at the paths to which a run's changes would be written. An undo leaves them, and
//! they must still be found in conflict when Atoll's own writes are no longer.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use atoll_layer::Selection;

use crate::changes::LayerChanges;
use crate::failure::Failure;
use crate::promotion;

/// A file's last change (ctime: seconds, nanoseconds); none where there is no file.
pub(super) type Changed = Option<(i64, i64)>;

/// The paths in conflict, each with its last change. None where these cannot be determined.
pub struct Others(Option<Vec<(PathBuf, Changed)>>);

impl Others {
    /// Returns that there are none.
    pub fn none() -> Self {
        Self(Some(Vec::new()))
    }

    /// Reads the present conflicts, also among changes that would be held back. An error that
    /// passes is none.
    pub fn of(read: impl Fn() -> Result<Vec<LayerChanges>, Failure>) -> Self {
        let look = || read().and_then(|all| conflicts(&all));
        Self(look().or_else(|_| look()).ok())
    }

    /// Returns whether some of these paths are unchanged, so that the next apply has to find them
    /// in conflict again.
    pub fn stand(&self) -> bool {
        let is_as_it_was = |(path, before): &(PathBuf, Changed)| changed(path) == *before;
        let conflicts = self.0.as_ref();
        conflicts.is_none_or(|all| all.iter().any(is_as_it_was))
    }
}

pub(super) fn conflicts(all: &[LayerChanges]) -> Result<Vec<(PathBuf, Changed)>, Failure> {
    let mut found = Vec::new();
    for planned in promotion::plans(all, &whole())? {
        for conflict in planned.plan.conflicts {
            let path = planned.changes.layer.host.join(conflict.path.as_os_str());
            let before = changed(&path);
            found.push((path, before));
        }
    }
    Ok(found)
}

/// Returns the selection of all changes, also of those that would be held back.
pub(super) fn whole() -> Selection {
    Selection {
        control: true,
        caches: true,
        ignored: true,
        ..Selection::default()
    }
}

fn changed(path: &Path) -> Changed {
    let facts = path.symlink_metadata().ok()?;
    Some((facts.ctime(), facts.ctime_nsec()))
}
