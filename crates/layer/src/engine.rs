//! A journal's work with its trees open, which every stage of it shares.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use rustix::io::Errno;

use crate::entries::Walker;
use crate::error::TreeError;
use crate::facts::{Facts, Stamp};
use crate::journal::{Journal, Stage, Work};
use crate::plan::{Act, Entry};
use crate::steps::{PlanWriter, Steps};
use crate::tree::{Tree, facts_at, file_at, is_absence, os};
use crate::{ApplyError, PlanError, RelativePath, Step, host};

/// One journal's work, with its trees open.
pub(crate) struct Engine {
    pub journal: Journal,
    pub work: Work,
    pub steps: Steps,
    pub tree: Tree,
    pub source: Option<Tree>,
    /// The layer's work directory, for content that comes from there.
    pub indexed: Option<Tree>,
}

impl Engine {
    /// Begins the work that a plan records.
    pub fn begin(plan: PlanWriter) -> Result<Self, ApplyError> {
        let (journal, work, steps) = plan.finish()?;
        journal.set_stage(Stage::Keeping)?;
        Self::with(journal, work, steps)
    }

    /// Resumes work that a journal records.
    pub fn resume(journal: Journal) -> Result<Self, ApplyError> {
        let (work, steps) = Steps::read(journal.path())?;
        Self::with(journal, work, steps)
    }

    fn with(journal: Journal, work: Work, steps: Steps) -> Result<Self, ApplyError> {
        let root = Path::new(os(&work.root.0));
        let tree = Tree::open(root)?;
        let facts = Facts::from(
            &rustix::fs::fstat(tree.root())
                .map_err(|error| tree.error("cannot read", &RelativePath::root(), error))?,
        );
        if (facts.device, facts.inode) != work.root_identity {
            return Err(ApplyError::OtherRoot(root.to_owned()));
        }
        let source = match steps.totals.is_of_layer {
            true => Some(Tree::open(Path::new(os(&work.content.0)))?),
            false => None,
        };
        let indexed = match work.work.as_ref().filter(|_| steps.totals.is_of_index) {
            Some(path) => Some(Tree::open_for_lookups(Path::new(os(&path.0)))?),
            None => None,
        };
        Ok(Self {
            journal,
            work,
            steps,
            tree,
            source,
            indexed,
        })
    }

    /// Returns all entries at a path now; empty when there is nothing.
    pub fn present(
        &self,
        walker: &mut Walker,
        path: &RelativePath,
    ) -> Result<Vec<Entry>, ApplyError> {
        match self.tree.facts(path) {
            Ok(None) => Ok(Vec::new()),
            _ => walker.host(&self.tree, path).map_err(only_tree),
        }
    }

    /// Returns the stamp of the entry at a path now.
    pub fn stamp_at(
        &self,
        place: BorrowedFd<'_>,
        path: &RelativePath,
    ) -> Result<Option<Stamp>, ApplyError> {
        let facts = facts_at(place, path.name());
        let facts = facts.map_err(|error| self.failed("cannot read", path, error))?;
        Ok(facts.map(|facts| facts.stamp()))
    }

    /// Removes everything that is under temporary names. An original among it is kept.
    pub fn remove_temporaries(&self, which: fn(&Step) -> bool) -> Result<(), ApplyError> {
        for step in self.steps.iter() {
            let (index, step) = step?;
            let Act::Replace { .. } = step.act else {
                continue;
            };
            let temporary = self.temporary(index, &step);
            match self.tree.place_of(&temporary) {
                _ if !which(&step) => {}
                Ok(place) => self.clear(&step, &temporary, place.as_fd(), None)?,
                Err(error) if is_absence(&error) => {}
                Err(error) => return Err(self.failed("cannot remove", &temporary, error)),
            }
        }
        Ok(())
    }

    /// Removes what is under a step's temporary name; but the original, of which there is no copy,
    /// is moved into the journal.
    pub fn clear(
        &self,
        step: &Step,
        temporary: &RelativePath,
        place: BorrowedFd<'_>,
        expected: Option<&Stamp>,
    ) -> Result<(), ApplyError> {
        if let Some((_, original)) = step.movable() {
            let aside = self.stamp_at(place, temporary)?;
            if aside.is_some_and(|aside| original.same_entry(&aside)) {
                return self.keep_original(step, temporary, place);
            }
        }
        Ok(host::remove_all_at(&self.tree, place, temporary, expected)?)
    }

    /// Moves an original into the journal where no copy of it is, and looks at what was moved.
    fn keep_original(
        &self,
        step: &Step,
        temporary: &RelativePath,
        place: BorrowedFd<'_>,
    ) -> Result<(), ApplyError> {
        let Some((number, original)) = step.movable() else {
            return Ok(());
        };
        let name = temporary.name();
        let failed = |error| self.failed("cannot keep", &step.path, error);
        let Err(error) = self.journal.take(place, name, number) else {
            let kept = self.journal.facts_of(number).map_err(failed)?;
            if kept.is_some_and(|kept| original.same_entry(&kept.stamp())) {
                return Ok(());
            }
            self.journal.give(number, place, name).map_err(failed)?;
            return Err(ApplyError::ChangedMeanwhile(step.path.clone()));
        };
        if self.journal.facts_of(number).map_err(failed)?.is_none() {
            // Within one file system too, where a directory has a quota of its own.
            if error != Errno::XDEV {
                return Err(failed(error.into()));
            }
            let (file, _) = file_at(place, name).map_err(failed)?;
            self.journal.keep_whole(number, &file).map_err(failed)?;
        }
        Ok(host::remove_all_at(
            &self.tree,
            place,
            temporary,
            Some(original),
        )?)
    }

    /// Gives an original that was moved into the journal its temporary name again.
    pub fn give_back(
        &self,
        step: &Step,
        temporary: &RelativePath,
        place: BorrowedFd<'_>,
    ) -> Result<(), ApplyError> {
        let Some((number, original)) = step.movable() else {
            return Ok(());
        };
        let failed = |error| self.failed("cannot put back", &step.path, error);
        let kept = self.journal.facts_of(number).map_err(failed)?;
        match kept.is_some_and(|kept| original.same_entry(&kept.stamp())) {
            true => self
                .journal
                .give(number, place, temporary.name())
                .map_err(failed),
            false => Ok(()),
        }
    }

    /// Returns the temporary name of a step, beside its path.
    pub fn temporary(&self, index: usize, step: &Step) -> RelativePath {
        let name = temporary_name(&self.work.tag, index);
        let place = step.path.parent().unwrap_or_default();
        place.join(name.as_bytes()).unwrap_or_default()
    }

    pub fn failed(
        &self,
        doing: &'static str,
        path: &RelativePath,
        error: impl Into<io::Error>,
    ) -> ApplyError {
        ApplyError::from_tree(self.tree.error(doing, path, error))
    }

    /// Records that a step is done. The page cache outlives a killed process; after a power cut the
    /// step itself is checked.
    pub fn note_done(&self, log: &mut File, index: usize) -> Result<(), ApplyError> {
        log.write_all(format!("{index}\n").as_bytes())
            .map_err(|error| self.not_logged(error))
    }

    pub fn not_logged(&self, error: io::Error) -> ApplyError {
        let path = self.journal.path().join("log");
        ApplyError::from_tree(TreeError::new("cannot write", path.display(), error))
    }
}

/// Returns the temporary name of a step, unique by its tag.
fn temporary_name(tag: &str, index: usize) -> String {
    format!(".atoll-{tag}-{index}")
}

pub(crate) fn only_tree(error: PlanError) -> ApplyError {
    match error {
        PlanError::Tree(error) => ApplyError::from_tree(error),
        PlanError::TooManyEntries { .. } | PlanError::WrongMode(_) => {
            let source = io::Error::other(error.to_string());
            ApplyError::Tree(TreeError::new("cannot read", "", source))
        }
    }
}
