//! What others have changed where a run's changes would be written: an undo leaves it, and it must
//! not be forgotten with the writes of Atoll's own.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use atoll_layer::Selection;

use crate::changes::LayerChanges;
use crate::failure::Failure;
use crate::promotion;

/// When something was changed last, by the kernel's word; none where there is nothing.
type Changed = Option<(i64, i64)>;

/// What would be in conflict, and when that was changed. None where it cannot be told.
pub struct Others(Option<Vec<(PathBuf, Changed)>>);

impl Others {
    /// What is in conflict now, also of what would be held back.
    pub fn of(all: Result<Vec<LayerChanges>, Failure>) -> Self {
        Self(all.and_then(|all| conflicts(&all)).ok())
    }

    /// Whether some of it is as it was, so that the next apply has to find it in conflict again.
    pub fn stand(&self) -> bool {
        let is_as_it_was = |(path, before): &(PathBuf, Changed)| changed(path) == *before;
        let conflicts = self.0.as_ref();
        conflicts.is_none_or(|all| all.iter().any(is_as_it_was))
    }
}

fn conflicts(all: &[LayerChanges]) -> Result<Vec<(PathBuf, Changed)>, Failure> {
    let whole = Selection {
        control: true,
        caches: true,
        ignored: true,
        ..Selection::default()
    };
    let mut found = Vec::new();
    for planned in promotion::plans(all, &whole)? {
        for conflict in planned.plan.conflicts {
            let path = planned.changes.layer.host.join(conflict.path.as_os_str());
            let before = changed(&path);
            found.push((path, before));
        }
    }
    Ok(found)
}

fn changed(path: &Path) -> Changed {
    let facts = path.symlink_metadata().ok()?;
    Some((facts.ctime(), facts.ctime_nsec()))
}
