//! The owners and groups that entries were to get and do not have: only root gives a file to another
//! user, and only members to a group.

use std::path::Path;

use crate::journal::Journal;
use crate::plan::{Act, Entry};
use crate::steps::Steps;
use crate::tree::{Tree, os};
use crate::{ApplyError, Conflict, RelativePath};

/// Returns the entries that an apply has written, as they were before, but for their owner or group.
///
/// # Errors
/// When the journal or the directory cannot be read.
pub fn owners_not_given(journal: &Path) -> Result<Vec<Conflict>, ApplyError> {
    let opened = Journal::open(journal, false)?;
    let (work, steps) = Steps::read(opened.path())?;
    not_given(&Tree::open(Path::new(os(&work.root.0)))?, &steps)
}

/// As [`owners_not_given`], of the steps done in a directory.
pub(crate) fn not_given(tree: &Tree, steps: &Steps) -> Result<Vec<Conflict>, ApplyError> {
    let mut found = Vec::new();
    for step in steps.iter() {
        let (_, step) = step?;
        let entries = match &step.act {
            Act::Replace { new, .. } => new.as_slice(),
            Act::Facts { new, .. } => std::slice::from_ref(new.as_ref()),
            Act::Rename { .. } => &[],
        };
        for entry in entries {
            let path = step.path.concat(&entry.beneath);
            let why = difference(tree, &path, entry);
            found.extend(why.map(|why| Conflict {
                path,
                why: why.to_owned(),
            }));
        }
    }
    found.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(found)
}

/// Returns the words for what an entry was not given, which follow its path.
fn difference(tree: &Tree, path: &RelativePath, entry: &Entry) -> Option<&'static str> {
    let now = tree.facts(path).ok()??;
    match (now.uid != entry.uid, now.gid != entry.gid) {
        (false, false) => None,
        (true, true) => Some("is yours now: its owner and group could not be given back"),
        (true, false) => Some("is yours now: its owner could not be given back"),
        (false, true) => Some("is of your group now: its group could not be given back"),
    }
}
