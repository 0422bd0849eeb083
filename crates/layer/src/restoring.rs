//! Plans the return to a checkpoint, after a run that wrote to the host directory itself.

use std::collections::BTreeSet;

use crate::plan::{Act, Content, Entry};
use crate::planning::Planner;
use crate::read::UNCOPIED;
use crate::{
    AfterTree, Change, ChangeKind, ChangeSet, LayerPaths, Plan, PlanError, RelativePath, Selection,
};

/// Plans to make the selected paths of the host directory what they were at the checkpoint. Control
/// files are always restored with the rest: the checkpoint is the person's own.
///
/// # Errors
/// [`PlanError::WrongMode`] unless the layer is of live mode.
pub fn plan_restore(
    paths: &LayerPaths,
    changes: &ChangeSet,
    selection: &Selection,
) -> Result<Plan, PlanError> {
    let AfterTree::Live { .. } = paths.after else {
        return Err(PlanError::WrongMode(
            "only a run in live mode has a checkpoint to restore",
        ));
    };
    let selection = Selection {
        control: true,
        ..selection.clone()
    };
    let mut planner = Planner::new(paths, changes, &selection)?;
    // What reading refused is there already; restoring removes it, except for what
    // could not be read.
    let known: BTreeSet<&RelativePath> = changes.changes.iter().map(|it| &it.path).collect();
    planner
        .plan
        .refused
        .retain(|refusal| !known.contains(&refusal.path));
    let mut covered: BTreeSet<&RelativePath> = BTreeSet::new();
    for change in &changes.changes {
        let within = change
            .path
            .ancestors()
            .any(|above| covered.contains(&above));
        if within || !(planner.selection.is_named(change) && planner.is_of_selected_class(change)) {
            continue;
        }
        // What cannot be brought back is not removed with what it lies in.
        let mut uncopied = changes.uncopied.iter();
        if change.kind != ChangeKind::Mode && uncopied.any(|path| path.starts_with(&change.path)) {
            planner.refuse(&change.path, UNCOPIED);
            continue;
        }
        let taken = planner.restore_one(change);
        match taken {
            Ok(()) => {}
            Err(PlanError::Tree(error)) => planner.refuse(&change.path, &error.to_string()),
            Err(error) => return Err(error),
        }
        if change.kind != ChangeKind::Mode {
            covered.insert(&change.path);
        }
    }
    planner.refuse_faults(changes)?;
    Ok(planner.plan)
}

impl Planner<'_> {
    fn restore_one(&mut self, change: &Change) -> Result<(), PlanError> {
        let path = &change.path;
        let host = &self.reader.after;
        let act = match &change.kind {
            ChangeKind::Added => Act::Replace {
                old: self.walker.host(host, path)?,
                new: Vec::new(),
            },
            ChangeKind::Removed => Act::Replace {
                old: Vec::new(),
                new: self.copied(path)?,
            },
            ChangeKind::Modified | ChangeKind::Type => Act::Replace {
                old: self.walker.host(host, path)?,
                new: self.copied(path)?,
            },
            ChangeKind::Mode => {
                let old = self.walker.one(host, path, Content::Untouched)?;
                let checkpoint = &self.reader.before;
                let mut new = self.walker.one(checkpoint, path, Content::Untouched)?;
                self.owned_as_before(path, &mut new);
                if !old.is_of_the_kind_of(&new) {
                    self.refuse(path, "it is of another type outside now");
                    return Ok(());
                }
                let (old, new) = (Box::new(old), Box::new(new));
                Act::Facts { old, new }
            }
            ChangeKind::Renamed { .. } => return Ok(()),
        };
        self.push(path, act);
        Ok(())
    }

    /// Returns all entries at a path of the checkpoint.
    fn copied(&mut self, path: &RelativePath) -> Result<Vec<Entry>, PlanError> {
        let mut entries = self.walker.checkpoint(&self.reader.before, path)?;
        for entry in &mut entries {
            self.owned_as_before(&path.concat(&entry.beneath), entry);
        }
        Ok(entries)
    }

    /// Gives an entry of the checkpoint the owner and group of the original, which the copy may not
    /// have.
    fn owned_as_before(&self, path: &RelativePath, entry: &mut Entry) {
        if let Some(owner) = self.reader.places.owners.get(path) {
            (entry.uid, entry.gid) = *owner;
        }
    }
}
