//! Executes a journal: keeps the originals, prepares the new content under temporary names, then
//! changes names. Each stage can be repeated from its start, so that a process killed anywhere
//! leaves a state that can be rolled forward or back.

use std::collections::HashSet;

use crate::building::Builder;
use crate::engine::Engine;
use crate::expected::{self, Prepared};
use crate::facts::{Facts, Stamp};
use crate::journal::Stage;
use crate::plan::{Act, Content, Entry, Node};
use crate::progress::Show;
use crate::{ApplyError, Phase, Progress, RelativePath, Step, content};

impl Engine {
    /// Continues from the journal's current stage to the end.
    pub fn run(&self, show: Show<'_>) -> Result<(), ApplyError> {
        let mut prepared = None;
        let mut is_resumed = true;
        loop {
            let stage = self.journal.stage()?;
            match stage {
                Some(Stage::Keeping) => {
                    self.keep(show)?;
                    is_resumed = false;
                    self.journal.set_stage(Stage::Preparing)?;
                }
                Some(Stage::Preparing) => {
                    if is_resumed {
                        self.remove_temporaries(|_| true)?;
                    }
                    prepared = Some(self.prepare(show)?);
                    self.journal.set_stage(Stage::Committing)?;
                }
                Some(Stage::Committing) => {
                    let (prepared, is_left): (_, fn(&Step) -> bool) = match prepared.take() {
                        Some(prepared) => (prepared, |step| step.new_entries().is_empty()),
                        None => (Prepared::read(&self.journal)?, |_| true),
                    };
                    self.commit(&prepared, is_left, show)?;
                    let results = expected::results(self, &prepared)?;
                    self.journal.write_json("results.json", &results)?;
                    self.sync_host(show)?;
                    self.journal.set_stage(Stage::Done)?;
                }
                Some(Stage::Done) => return Ok(()),
                Some(
                    Stage::TakingBack
                    | Stage::TakenBack
                    | Stage::Undoing
                    | Stage::Undone
                    | Stage::PuttingBack,
                )
                | None => {
                    return Err(ApplyError::State {
                        found: stage.map_or("empty", Stage::name),
                        needed: "begun",
                    });
                }
            }
        }
    }

    /// Copies the entries that will be replaced into the journal, and makes sure that they were
    /// copied as planned. Those that can be moved there later are only looked at.
    fn keep(&self, show: Show<'_>) -> Result<(), ApplyError> {
        let total = self.steps.totals.old + self.steps.totals.new;
        let takes = self.journal.takes_from(self.tree.root());
        let mut kept = HashSet::new();
        let mut is_copied = false;
        let mut done = 0;
        for step in self.steps.iter() {
            let (_, step) = step?;
            for entry in step.old_entries().iter().chain(step.new_entries()) {
                show(Progress {
                    phase: Phase::Keeping,
                    done,
                    total,
                });
                done += 1;
                if let Node::File {
                    content: Content::Kept { number, from },
                    ..
                } = &entry.node
                    && kept.insert(*number)
                {
                    match step.movable() {
                        Some((movable, original)) if takes && movable == *number => {
                            self.look_at(&step.path, original)?;
                        }
                        _ => {
                            self.keep_one(&step.path, entry, *number, from)?;
                            is_copied = true;
                        }
                    }
                }
            }
        }
        match is_copied {
            true => self.journal.sync(),
            false => Ok(()),
        }
    }

    fn look_at(&self, path: &RelativePath, original: &Stamp) -> Result<(), ApplyError> {
        let now = self.tree.facts(path);
        let now = now.map_err(|error| self.failed("cannot read", path, error))?;
        match self.work.loose || now.is_some_and(|now| original.holds(&now.stamp())) {
            true => Ok(()),
            false => Err(ApplyError::ChangedMeanwhile(path.clone())),
        }
    }

    fn keep_one(
        &self,
        path: &RelativePath,
        entry: &Entry,
        number: u64,
        from: &RelativePath,
    ) -> Result<(), ApplyError> {
        let failed = |error| ApplyError::from_tree(self.tree.error("cannot keep", from, error));
        let (file, facts) = self.tree.file(from).map_err(failed)?;
        let copy = self.journal.keep(number)?;
        content::copy(&file, &copy, facts.bytes).map_err(failed)?;
        let after = Facts::from(&rustix::fs::fstat(&file).map_err(|error| failed(error.into()))?);
        let unchanged = entry
            .stamp
            .is_none_or(|stamp| stamp.holds(&facts.stamp()) && stamp.holds(&after.stamp()));
        if unchanged || self.work.loose {
            Ok(())
        } else {
            Err(ApplyError::ChangedMeanwhile(path.clone()))
        }
    }

    /// Writes all new content under temporary names, each in its destination's directory, and makes
    /// it durable. A full disk is found here, before any change.
    fn prepare(&self, show: Show<'_>) -> Result<Prepared, ApplyError> {
        self.widen()?;
        let total = self.steps.totals.new;
        let mut builder = Builder::new(self);
        let mut prepared = Prepared::default();
        let mut done = 0;
        for step in self.steps.iter() {
            let (index, step) = step?;
            show(Progress {
                phase: Phase::Preparing,
                done,
                total,
            });
            done += step.new_entries().len() as u64;
            let (top, beneath) = builder.build(index, &step)?;
            prepared.push(top, beneath);
        }
        prepared.write(&self.journal)?;
        self.sync_host(show)?;
        Ok(prepared)
    }

    /// Makes directories writable first where a step does so, for what is written into them.
    fn widen(&self) -> Result<(), ApplyError> {
        let logged = self.journal.logged()?;
        let mut log = self.journal.log()?;
        for step in self.steps.iter() {
            let (index, step) = step?;
            if let Act::Facts { old, new } = &step.act
                && old.node == Node::Directory
                && !old.mode & new.mode & 0o700 != 0
                && !logged.contains(&index)
            {
                self.commit_one(index, &step, None, &mut log)?;
            }
        }
        Ok(())
    }

    /// Changes the names, step by step; permissions of directories last, since
    /// they can forbid the rest.
    fn commit(
        &self,
        prepared: &Prepared,
        is_left: fn(&Step) -> bool,
        show: Show<'_>,
    ) -> Result<(), ApplyError> {
        let logged = self.journal.logged()?;
        let mut log = self.journal.log()?;
        let total = self.steps.len() as u64;
        let mut done = 0;
        let mut commit = |(index, step): (usize, &Step)| {
            show(Progress {
                phase: Phase::Committing,
                done,
                total,
            });
            done += 1;
            match logged.contains(&index) {
                true => Ok(()),
                false => self.commit_one(index, step, prepared.top(index), &mut log),
            }
        };
        let mut last = Vec::new();
        for step in self.steps.iter() {
            let (index, step) = step?;
            match is_directory_facts(&step) {
                true => last.push((index, step)),
                false => commit((index, &step))?,
            }
        }
        self.let_go(is_left)?;
        let mut last = last.iter().rev();
        last.try_for_each(|(index, step)| commit((*index, step)))
    }

    /// Deletes the replaced entries, or moves them into the journal. Their absence proves nothing,
    /// so the log is made durable first.
    fn let_go(&self, is_left: fn(&Step) -> bool) -> Result<(), ApplyError> {
        let log = self.journal.log()?;
        log.sync_data().map_err(|error| self.not_logged(error))?;
        self.remove_temporaries(is_left)
    }

    fn sync_host(&self, show: Show<'_>) -> Result<(), ApplyError> {
        show(Progress {
            phase: Phase::Syncing,
            done: 0,
            total: 1,
        });
        rustix::fs::syncfs(self.tree.root()).map_err(|error| {
            ApplyError::from_tree(self.tree.error("cannot sync", &RelativePath::root(), error))
        })
    }
}

fn is_directory_facts(step: &Step) -> bool {
    matches!(&step.act, Act::Facts { old, .. } if old.node == Node::Directory)
}
