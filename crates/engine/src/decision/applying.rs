//! Applies the plans of a run's layers, all or none, and keeps Atoll's own writes from being
//! conflicts for the next apply.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use atoll_layer::{Class, Plan, RelativePath, Selection, has_written, undo};
use atoll_store::{LayerHow, RunError, RunLock, RunRecord, lock_run};
use serde_json::json;

use super::Work;
use super::others::{Changed, Others, conflicts, whole};
use crate::changes::{self, LayerChanges};
use crate::failure::{Doing, Failure};
use crate::promotion::{self, Allowed, Planned};

/// The lag of a change's time behind the clock: file systems take it from the kernel's last tick
/// (inode(7)), of which there are at least a hundred a second.
pub(crate) const TICK: Duration = Duration::from_millis(20);

impl Work<'_> {
    /// Locks a run for work on its changes.
    ///
    /// # Errors
    /// When another process works on them, or the lock cannot be written.
    pub(super) fn lock(&self, record: &RunRecord) -> Result<RunLock, Failure> {
        lock_run(self.state, &record.run).map_err(|error| match &error {
            RunError::File(fault) => Failure::of_file("the run cannot be locked", fault),
            other => Failure::new("the run is in use").because(other),
        })
    }

    /// Applies the plans of all layers, or none of them.
    pub(super) fn apply_plans<'b>(
        &self,
        record: &RunRecord,
        plans: Vec<Planned<'b>>,
        allowed: &Allowed,
    ) -> Result<(u64, Vec<&'b LayerChanges>), Failure> {
        let mut steps = 0;
        let mut done: Vec<&'b LayerChanges> = Vec::new();
        for Planned { changes: one, plan } in plans {
            self.tell_refused(one, &plan);
            self.tell_unwhole(&plan, &one.set);
            if plan.is_empty() {
                continue;
            }
            match self.apply_layer(record, one, plan, allowed) {
                Ok(more) => steps += more,
                Err(failure) => {
                    self.undo_applied_layers(record, &done)?;
                    return Err(failure);
                }
            }
            done.push(one);
        }
        Ok((steps, done))
    }

    /// Undoes the layers that an apply wrote before it failed.
    pub(super) fn undo_applied_layers(
        &self,
        record: &RunRecord,
        done: &[&LayerChanges],
    ) -> Result<(), Failure> {
        for one in done.iter().rev() {
            let journals = changes::journals(self.state, record, &one.layer)?;
            if let Some(journal) = journals.last() {
                let undone = undo(journal, false).doing(
                    "the changes could not be applied, and what was written before could not be \
                     taken back",
                )?;
                let what = json!({ "layer": one.layer.name, "entries": undone.applied.entries });
                self.record(record, "apply.taken-back", what)?;
            }
        }
        Ok(())
    }

    /// Counts only what is changed on the host from now on as others' changes, after an apply that
    /// began then and has written at these paths, in part, or until it was taken back. Where others'
    /// changes are there too, the time stays: the two can no longer be told apart.
    pub(super) fn forget_own_writes(
        &self,
        record: &mut RunRecord,
        begun: SystemTime,
        written: &BTreeSet<PathBuf>,
        others: &Others,
    ) -> Result<(), Failure> {
        if others.stand() {
            return Ok(());
        }
        let now = SystemTime::now();
        // What somebody writes from here on is stamped with a later time than this.
        sleep(TICK);
        let mut then = record.clone();
        count_from(&mut then, begun);
        // A name that is gone may seem so only because its directory was written to.
        let found = conflicts(&changes::read(self.state, &then)?)?;
        let is_own =
            |(path, is_there): &(PathBuf, Changed)| written.contains(path) || is_there.is_none();
        match found.iter().all(is_own) {
            true => self.count_others_from(record, now),
            false => Ok(()),
        }
    }

    /// As [`Work::forget_own_writes`], after interrupted applies were taken back. What is gone
    /// outside where one of them was to write was so already when it was planned, or it would have
    /// been a conflict then.
    pub(super) fn forget_taken_back(
        &self,
        record: &mut RunRecord,
        journals: &[PathBuf],
    ) -> Result<(), Failure> {
        let now = SystemTime::now();
        sleep(TICK);
        let all = changes::read(self.state, record)?;
        let is_written =
            |path: &RelativePath| journals.iter().any(|journal| has_written(journal, path));
        let is_own = |one: &Planned<'_>, path: &RelativePath| {
            let place = one.changes.layer.host.join(path.as_os_str());
            is_written(path) && place.symlink_metadata().is_err()
        };
        let mut plans = promotion::plans(&all, &whole())?;
        plans.retain(|one| !one.plan.conflicts.is_empty());
        let is_all_own = plans.iter().all(|one| {
            let mut conflicts = one.plan.conflicts.iter();
            conflicts.all(|conflict| is_own(one, &conflict.path))
        });
        match is_all_own {
            true => self.count_others_from(record, now),
            false => Ok(()),
        }
    }

    /// Sets the time from which changes on the host count as others'.
    pub(super) fn count_others_from(
        &self,
        record: &mut RunRecord,
        from: SystemTime,
    ) -> Result<(), Failure> {
        self.update(record, |kept| count_from(kept, from))
    }
}

fn count_from(record: &mut RunRecord, from: SystemTime) {
    let from = from
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let seconds = i64::try_from(from.as_secs()).unwrap_or(i64::MAX);
    for layer in &mut record.layers {
        if !matches!(layer.how, LayerHow::Live) {
            layer.since = (seconds, from.subsec_nanos());
        }
    }
}

/// Returns whether an apply leaves none of the changes.
pub(super) fn is_whole(all: &[LayerChanges], selection: &Selection) -> bool {
    let mut changes = all.iter().flat_map(|one| &one.set.changes);
    selection.paths.is_empty()
        && changes.all(|change| match change.class {
            Class::Ordinary => true,
            Class::Control => selection.control,
            Class::Cache => selection.caches,
            Class::Ignored => selection.ignored,
        })
}

/// Returns the places on the host at which plans write.
pub(super) fn places<'a>(plans: impl Iterator<Item = (&'a Path, &'a Plan)>) -> BTreeSet<PathBuf> {
    let of_plan = |(host, plan): (&'a Path, &'a Plan)| {
        let steps = plan.steps.iter();
        steps.map(move |step| host.join(step.path().as_os_str()))
    };
    plans.flat_map(of_plan).collect()
}

/// Returns whether the selection omits changes of a layer that an apply would otherwise take.
pub(super) fn is_partly(one: &LayerChanges, selection: &Selection) -> bool {
    if !selection.paths.is_empty() {
        return true;
    }
    one.set.changes.iter().any(|change| match change.class {
        Class::Ordinary => false,
        Class::Control => !selection.control,
        Class::Cache | Class::Ignored => false,
    })
}
