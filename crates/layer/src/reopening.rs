//! Entries of the host directory that a live run made unreadable. Undoing means to read them first,
//! and their owner may: by the descriptor of what the program was seen to leave, nothing else, and
//! only to undo it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::error::TreeError;
use crate::facts::{Facts, Kind, Stamp, Time};
use crate::live_snapshot::LiveSnapshot;
use crate::manifest::{self, Whose};
use crate::plan::Entry;
use crate::tree::Tree;
use crate::unreadable::{Notes, give_back, unlock_beneath};
use crate::{AfterTree, Bounds, ChangeSet, LayerPaths, Refusal, RelativePath};

/// Entries of the host directory that were opened up, until they are undone. They get their modes
/// back with [`Opened::close`] or [`Opened::settle`]; if the process is killed, from the next one.
#[derive(Debug)]
pub struct Opened {
    checkpoint: PathBuf,
    host: PathBuf,
    /// The paths with their inodes.
    opened: BTreeMap<RelativePath, u64>,
}

impl Opened {
    /// Opens up the entries that could not be read for their permissions, as the run left them:
    /// those recorded at its end, or without a record all that changed since it started. Entries
    /// that were there before and are not in the checkpoint stay closed.
    ///
    /// # Errors
    /// When something cannot be noted or opened up.
    pub fn up(
        paths: &LayerPaths,
        set: &ChangeSet,
        note: Option<&LiveSnapshot>,
        bounds: &Bounds,
    ) -> Result<Self, TreeError> {
        let (host, finished) = match &paths.after {
            AfterTree::Live { path, finished } => (path.clone(), *finished),
            AfterTree::Overlay { upper: path, .. } | AfterTree::Copy { path, .. } => {
                (path.clone(), SystemTime::now())
            }
        };
        let mut opened = Self {
            checkpoint: paths.before.clone(),
            host,
            opened: BTreeMap::new(),
        };
        let locked = note.map_or(&set.locked, LiveSnapshot::locked);
        let AfterTree::Live { .. } = paths.after else {
            return Ok(opened);
        };
        opened.give_back(|_| true)?;
        if !locked.is_empty()
            && let Err(error) = opened.open(locked, finished, bounds)
        {
            opened.give_back(|_| true)?;
            return Err(error);
        }
        Ok(opened)
    }

    fn open(
        &mut self,
        locked: &BTreeMap<RelativePath, Stamp>,
        finished: SystemTime,
        bounds: &Bounds,
    ) -> Result<(), TreeError> {
        let places = manifest::read(&self.checkpoint, Whose::Original);
        let finished = places.finished.unwrap_or(finished);
        let may = |facts: &Facts| {
            facts.changed.system() >= finished && !places.uncopied.contains(&facts.inode)
        };
        let tree = Tree::open_for_lookups(&self.host)?;
        let mut notes = Notes::open(&self.checkpoint)?;
        for (path, stamp) in locked {
            let Ok(handle) = tree.handle(path) else {
                continue;
            };
            let facts = rustix::fs::fstat(&handle);
            let facts = facts.map_err(|error| tree.error("cannot read", path, error))?;
            let facts = Facts::from(&facts);
            // Its change time moved on where a process that was killed has been here.
            if !stamp.holds_after_rename(&facts.stamp()) || !may(&facts) {
                continue;
            }
            notes.unlock(vec![(path.clone(), handle, facts)])?;
            if facts.kind == Kind::Directory {
                unlock_beneath(&tree, &mut notes, path.clone(), bounds, may)?;
            }
        }
        self.opened = notes.opened;
        Ok(())
    }

    /// Returns whether there was nothing to open up.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.opened.is_empty()
    }

    /// Gives every entry its mode back, when nothing was undone.
    ///
    /// # Errors
    /// When an entry cannot be given its mode; it stays noted.
    pub fn close(self) -> Result<(), TreeError> {
        self.give_back(|_| true)
    }

    /// Gives only refused entries their mode back, when everything else was undone and has the mode
    /// that it is to have.
    ///
    /// # Errors
    /// As [`Opened::close`].
    pub fn settle(self, refused: &[Refusal]) -> Result<(), TreeError> {
        self.give_back(|path| {
            let mut refused = refused.iter().map(|refusal| &refusal.path);
            refused.any(|one| one.starts_with(path) || path.starts_with(one))
        })
    }

    fn give_back(&self, wanted: impl Fn(&RelativePath) -> bool) -> Result<(), TreeError> {
        // Whoever gave it another mode since meant that one.
        give_back(&self.checkpoint, &self.host, |path, facts, opened| {
            facts.mode == opened && wanted(path)
        })
    }

    /// Returns whether a path leads to an entry that was opened up, or past it.
    pub(crate) fn meets(&self, path: &RelativePath) -> bool {
        let mut opened = self.opened.keys();
        opened.any(|one| one.starts_with(path) || path.starts_with(one))
    }

    /// Returns whether an entry changed after a point in time, other than by being opened up.
    pub(crate) fn changed_after(&self, entry: &Entry, time: Time) -> bool {
        let stamp = entry.stamp;
        stamp.is_some_and(|stamp| {
            stamp.changed > time && !self.opened.values().any(|inode| *inode == stamp.inode)
        })
    }
}
