//! The commit stage: one step at a time, each atomic, each checked against the plan. The check
//! comes after the swap where it can, because only then can nothing slip in between; what does not
//! match is swapped back.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::engine::Engine;
use crate::facts::{Facts, Stamp};
use crate::host::{self, Swap};
use crate::plan::{Act, Conflict, Entry};
use crate::read::list_with_kinds;
use crate::tree::is_absence;
use crate::{ApplyError, RelativePath, Step};

impl Engine {
    /// Does one step that is not known to be done. `prepared` is the stamp of its new content under
    /// the temporary name.
    pub fn commit_one(
        &self,
        index: usize,
        step: &Step,
        prepared: Option<Stamp>,
        log: &mut File,
    ) -> Result<(), ApplyError> {
        match &step.act {
            Act::Replace { old, .. } => {
                let temporary = self.temporary(index, step);
                let place = self.place_of(step)?;
                if !self.is_swapped(step, &temporary, place.as_fd(), prepared)? {
                    self.swap_in(step, &temporary, place.as_fd())?;
                }
                self.settle(step, &temporary, place.as_fd(), old, prepared)?;
                if step.new_entries().is_empty() {
                    // It is let go once it is sure to be noted.
                    return self.note_done(log, index);
                }
                let old = old.first().and_then(|entry| entry.stamp.as_ref());
                let expected = old.filter(|_| !self.work.loose);
                let clear = || self.clear(step, &temporary, place.as_fd(), expected);
                // A move is whole or not there, and what it moves is the only one. A directory that is
                // removed in part would not be what was planned, so that is noted before.
                if step.movable().is_some() {
                    clear()?;
                    return self.note_done(log, index);
                }
                self.note_done(log, index)?;
                clear()
            }
            Act::Facts { old, new } => {
                self.commit_facts(&step.path, old, new)?;
                self.note_done(log, index)
            }
            Act::Rename { from, directory } => {
                self.commit_rename(step, from, directory)?;
                self.note_done(log, index)
            }
        }
    }

    fn place_of(&self, step: &Step) -> Result<Arc<OwnedFd>, ApplyError> {
        let place = self.tree.place_of(&step.path);
        place.map_err(|error| self.failed("cannot open", &step.path, error))
    }

    /// Returns whether the names were swapped already, by a process that was killed then.
    pub fn is_swapped(
        &self,
        step: &Step,
        temporary: &RelativePath,
        place: BorrowedFd<'_>,
        prepared: Option<Stamp>,
    ) -> Result<bool, ApplyError> {
        let now = self.stamp_at(place, &step.path)?;
        let aside = self.stamp_at(place, temporary)?;
        Ok(match (prepared, now, aside) {
            (Some(prepared), Some(now), _) => prepared.same_entry(&now),
            (Some(_), None, _) => false,
            (None, None, Some(_)) => true,
            (None, _, _) => false,
        })
    }

    fn swap_in(
        &self,
        step: &Step,
        temporary: &RelativePath,
        place: BorrowedFd<'_>,
    ) -> Result<(), ApplyError> {
        let Act::Replace { old, new } = &step.act else {
            return Ok(());
        };
        let path = &step.path;
        let now = self.stamp_at(place, path)?;
        let expected = old.first().and_then(|entry| entry.stamp);
        let as_planned = match (expected, now) {
            (None, None) => true,
            (Some(expected), Some(now)) => expected.holds(&now),
            (None, Some(_)) | (Some(_), None) => false,
        };
        if !as_planned && !self.work.loose {
            return Err(ApplyError::ChangedMeanwhile(path.clone()));
        }
        let (name, aside) = (path.name(), temporary.name());
        let done = match (now.is_some(), new.is_empty()) {
            (false, true) => return Ok(()),
            (false, false) => host::rename_to_free(place, aside, place, name),
            (true, true) => host::rename_to_free(place, name, place, aside),
            (true, false) => host::swap(place, aside, name, || self.is_kept(step)).map(|swap| {
                match swap {
                    // The original is in the journal; there is nothing to swap back.
                    Swap::Overwritten | Swap::Exchanged => {}
                }
            }),
        };
        match done {
            Ok(()) => Ok(()),
            Err(error) if changed_meanwhile(&error) => {
                Err(ApplyError::ChangedMeanwhile(path.clone()))
            }
            Err(error) => Err(self.failed("cannot write", path, explained(error))),
        }
    }

    /// Returns whether the journal has a copy of a step's original.
    fn is_kept(&self, step: &Step) -> bool {
        let kept = |number| matches!(self.journal.facts_of(number), Ok(Some(_)));
        step.movable().is_none_or(|(number, _)| kept(number))
    }

    /// Checks what was swapped out, and swaps it back when it is not what was planned.
    fn settle(
        &self,
        step: &Step,
        temporary: &RelativePath,
        place: BorrowedFd<'_>,
        old: &[Entry],
        prepared: Option<Stamp>,
    ) -> Result<(), ApplyError> {
        if self.is_as_planned(temporary, place, old)? {
            return Ok(());
        }
        self.swap_back(step, temporary, place, prepared)?;
        match self.work.loose {
            // Taking back goes on: what somebody wrote since it began is newer, and stays.
            true => Ok(()),
            false => Err(ApplyError::ChangedMeanwhile(step.path.clone())),
        }
    }

    /// Reverts [`Engine::swap_in`] while both sides are still there. What somebody put over the new
    /// content meanwhile stays: it is newer than both.
    pub fn swap_back(
        &self,
        step: &Step,
        temporary: &RelativePath,
        place: BorrowedFd<'_>,
        prepared: Option<Stamp>,
    ) -> Result<(), ApplyError> {
        let (name, aside) = (step.path.name(), temporary.name());
        let failed = |error| self.failed("cannot put back", &step.path, error);
        if step.new_entries().is_empty() {
            return host::rename_to_free(place, aside, place, name).map_err(failed);
        }
        let swapped = host::swap(place, aside, name, || true).map_err(failed)?;
        let out = self.stamp_at(place, temporary)?;
        let is_ours = out
            .zip(prepared)
            .is_none_or(|(out, ours)| ours.same_entry(&out));
        match swapped {
            Swap::Exchanged if !is_ours => {
                let swapped = host::swap(place, aside, name, || true);
                swapped.map(|_| ()).map_err(failed)
            }
            Swap::Exchanged | Swap::Overwritten => Ok(()),
        }
    }

    /// Gives a displaced original its name again where that is free; otherwise returns what is in
    /// its way.
    pub fn put_back(
        &self,
        step: &Step,
        temporary: &RelativePath,
        place: BorrowedFd<'_>,
    ) -> Result<Option<Conflict>, ApplyError> {
        if self.stamp_at(place, &step.path)?.is_none() {
            let (name, aside) = (step.path.name(), temporary.name());
            let failed = |error| self.failed("cannot put back", &step.path, error);
            host::rename_to_free(place, aside, place, name).map_err(failed)?;
            return Ok(None);
        }
        Ok(Some(Conflict {
            path: step.path.clone(),
            why: format!("it was made meanwhile; what was there is {temporary}"),
        }))
    }

    fn is_as_planned(
        &self,
        temporary: &RelativePath,
        place: BorrowedFd<'_>,
        old: &[Entry],
    ) -> Result<bool, ApplyError> {
        let Some(top) = self.stamp_at(place, temporary)? else {
            // Nothing was there, or it was overwritten after a look.
            return Ok(true);
        };
        let planned: HashMap<&RelativePath, Stamp> = old
            .iter()
            .filter_map(|entry| Some((&entry.beneath, entry.stamp?)))
            .collect();
        let root = RelativePath::root();
        if !planned
            .get(&root)
            .is_some_and(|stamp| stamp.holds_after_rename(&top) && !is_linked(stamp, &top))
        {
            return Ok(false);
        }
        let mut seen = 1;
        let mut directories = match top.is_directory() {
            true => vec![temporary.clone()],
            false => Vec::new(),
        };
        while let Some(directory) = directories.pop() {
            for (path, _) in list_with_kinds(&self.tree, &directory)? {
                let facts = self.tree.facts(&path);
                let facts = facts.map_err(|error| self.failed("cannot read", &path, error))?;
                let beneath = path.beneath(temporary).unwrap_or_default();
                let same = facts.is_some_and(|facts| {
                    let stamp = planned.get(&beneath);
                    stamp.is_some_and(|stamp| stamp.holds(&facts.stamp()))
                });
                if !same {
                    return Ok(false);
                }
                seen += 1;
                if facts.is_some_and(|facts| facts.stamp().is_directory()) {
                    directories.push(path);
                }
            }
        }
        Ok(seen == planned.len())
    }

    fn commit_facts(
        &self,
        path: &RelativePath,
        old: &Entry,
        new: &Entry,
    ) -> Result<(), ApplyError> {
        let failed = |error: io::Error| self.failed("cannot change", path, error);
        let handle = match self.tree.handle(path) {
            Err(error) if self.work.loose && is_absence(&error) => return Ok(()),
            handle => handle.map_err(failed)?,
        };
        let now = Facts::from(&rustix::fs::fstat(&handle).map_err(|error| failed(error.into()))?);
        // Nothing is to be taken back of what took the place of the entry that was changed:
        // a file's mode would meet somebody's directory.
        let is_itself = |entry: &Entry| {
            let stamp = entry.stamp;
            stamp.is_none_or(|stamp| stamp.same_entry(&now.stamp()))
        };
        if self.work.loose && !(is_itself(old) && is_itself(new)) {
            return Ok(());
        }
        // The permissions may have been set already by a process that was killed
        // before it could say so: then only identity is left to compare.
        let as_planned = old.stamp.is_some_and(|stamp| {
            let is_set = now.mode == new.mode || Some(now.mode) == new.listed_mode;
            stamp.holds(&now.stamp()) || (stamp.same_entry(&now.stamp()) && is_set)
        });
        if !as_planned && !self.work.loose {
            return Err(ApplyError::ChangedMeanwhile(path.clone()));
        }
        host::redress(&handle, old, new).map_err(failed)
    }

    fn commit_rename(
        &self,
        step: &Step,
        from: &RelativePath,
        directory: &Stamp,
    ) -> Result<(), ApplyError> {
        let failed = |error: io::Error| self.failed("cannot move", &step.path, explained(error));
        let to = self.place_of(step)?;
        let there = self.stamp_at(to.as_fd(), &step.path)?;
        if there.is_some_and(|there| directory.same_entry(&there)) {
            return Ok(());
        }
        let out_of = self.tree.place_of(from).map_err(failed)?;
        let now = self.stamp_at(out_of.as_fd(), from)?;
        if !now.is_some_and(|now| directory.same_entry(&now)) {
            return Err(ApplyError::ChangedMeanwhile(from.clone()));
        }
        match host::rename_to_free(out_of.as_fd(), from.name(), to.as_fd(), step.path.name()) {
            Ok(()) => {}
            Err(error) if changed_meanwhile(&error) => {
                return Err(ApplyError::ChangedMeanwhile(step.path.clone()));
            }
            Err(error) => return Err(failed(error)),
        }
        let moved = self.stamp_at(to.as_fd(), &step.path)?;
        if moved.is_some_and(|moved| directory.same_entry(&moved)) {
            return Ok(());
        }
        let back = host::rename_to_free(to.as_fd(), step.path.name(), out_of.as_fd(), from.name());
        back.map_err(failed)?;
        Err(ApplyError::ChangedMeanwhile(from.clone()))
    }
}

/// Returns whether a file got another name, by which somebody can write to what is kept of it.
fn is_linked(then: &Stamp, now: &Stamp) -> bool {
    !now.is_directory() && then.links == 1 && now.links > 1
}

/// Explains a failed rename: a move within one directory never crosses file systems, but the kernel
/// says so of a directory that shows through from the lower layer of an overlay.
fn explained(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::CrossesDevices {
        return error;
    }
    io::Error::other(
        "the directory comes from below an overlay, where it cannot be moved in one step; put a \
         copy of it (cp -a) in its place, or apply the other paths alone",
    )
}

/// Returns whether a rename failed because another process was there first.
fn changed_meanwhile(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound
    )
}
