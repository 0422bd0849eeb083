//! Executes a journal: keeps the originals, prepares the new content under temporary names, then
//! changes names. Each stage can be repeated from its start, so that a process killed anywhere
//! leaves a state that can be rolled forward or back.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode};

use crate::entries::Walker;
use crate::error::TreeError;
use crate::expected::{self, Prepared, Stamps};
use crate::facts::{Facts, Kind, Stamp};
use crate::journal::{Journal, Stage, Work};
use crate::plan::{Act, Content, Entry, Node};
use crate::tree::{Tree, facts_at, handle_at, os};
use crate::{ApplyError, Phase, PlanError, Progress, RelativePath, Step, content, host};

/// A callback for progress reports.
pub(crate) type Show<'a> = &'a mut dyn FnMut(Progress);

/// One journal's work, with its trees open.
pub(crate) struct Engine {
    pub journal: Journal,
    pub work: Work,
    pub tree: Tree,
    pub source: Option<Tree>,
    /// The layer's work directory, for content that comes from there.
    pub indexed: Option<Tree>,
}

impl Engine {
    /// Records the work in the journal and begins it.
    pub fn begin(journal: Journal, work: Work) -> Result<Self, ApplyError> {
        journal.write_json("plan.json", &work)?;
        journal.set_stage(Stage::Keeping)?;
        Self::with(journal, work)
    }

    /// Resumes work that a journal records.
    pub fn resume(journal: Journal) -> Result<Self, ApplyError> {
        let work = journal.read_json("plan.json")?;
        Self::with(journal, work)
    }

    fn with(journal: Journal, work: Work) -> Result<Self, ApplyError> {
        let root = Path::new(os(&work.root.0));
        let tree = Tree::open(root)?;
        let facts = Facts::from(
            &rustix::fs::fstat(tree.root())
                .map_err(|error| tree.error("cannot read", &RelativePath::root(), error))?,
        );
        if (facts.device, facts.inode) != work.root_identity {
            return Err(ApplyError::OtherRoot(root.to_owned()));
        }
        let comes_from = |is_it: fn(&Content) -> bool| {
            let mut entries = work.steps.iter().flat_map(Step::new_entries);
            entries.any(|entry| matches!(&entry.node, Node::File { content, .. } if is_it(content)))
        };
        let source = match comes_from(|content| matches!(content, Content::Layer(_))) {
            true => Some(Tree::open(Path::new(os(&work.content.0)))?),
            false => None,
        };
        let from_index = comes_from(|content| matches!(content, Content::Indexed(_)));
        let indexed = match work.work.as_ref().filter(|_| from_index) {
            Some(path) => Some(Tree::open_for_lookups(Path::new(os(&path.0)))?),
            None => None,
        };
        Ok(Self {
            journal,
            work,
            tree,
            source,
            indexed,
        })
    }

    /// Continues from the journal's current stage to the end.
    pub fn run(&self, show: Show<'_>) -> Result<(), ApplyError> {
        let mut prepared = None;
        loop {
            let stage = self.journal.stage()?;
            match stage {
                Some(Stage::Keeping) => {
                    self.keep(show)?;
                    self.journal.set_stage(Stage::Preparing)?;
                }
                Some(Stage::Preparing) => {
                    self.remove_temporaries()?;
                    prepared = Some(self.prepare(show)?);
                    self.journal.set_stage(Stage::Committing)?;
                }
                Some(Stage::Committing) => {
                    let prepared = match prepared.take() {
                        Some(prepared) => prepared,
                        None => Prepared::read(&self.journal)?,
                    };
                    self.commit(&prepared, show)?;
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
    /// copied as planned.
    fn keep(&self, show: Show<'_>) -> Result<(), ApplyError> {
        let entries = self.work.steps.iter().flat_map(|step| {
            let both = step.old_entries().iter().chain(step.new_entries());
            both.map(move |entry| (step, entry))
        });
        let total = entries.clone().count() as u64;
        let mut kept = HashSet::new();
        for (done, (step, entry)) in entries.enumerate() {
            show(Progress {
                phase: Phase::Keeping,
                done: done as u64,
                total,
            });
            if let Node::File {
                content: Content::Kept { number, from },
                ..
            } = &entry.node
                && kept.insert(*number)
            {
                self.keep_one(&step.path, entry, *number, from)?;
            }
        }
        self.journal.sync()
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
        let total = self
            .work
            .steps
            .iter()
            .map(|step| step.new_entries().len() as u64)
            .sum();
        let mut builder = Builder {
            engine: self,
            links: HashMap::new(),
            made: HashMap::new(),
            place: None,
        };
        let mut prepared = Prepared::default();
        let mut done = 0;
        for (index, step) in self.work.steps.iter().enumerate() {
            show(Progress {
                phase: Phase::Preparing,
                done,
                total,
            });
            done += step.new_entries().len() as u64;
            let (top, beneath) = builder.build(index, step)?;
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
        for (index, step) in self.work.steps.iter().enumerate() {
            if let Act::Facts { old, new } = &step.act
                && old.node == Node::Directory
                && !old.mode & new.mode & 0o700 != 0
                && !logged.contains(&index)
            {
                self.commit_one(index, step, None, &mut log)?;
            }
        }
        Ok(())
    }

    /// Changes the names, step by step; permissions of directories last, since
    /// they can forbid the rest.
    fn commit(&self, prepared: &Prepared, show: Show<'_>) -> Result<(), ApplyError> {
        let logged = self.journal.logged()?;
        let mut log = self.journal.log()?;
        let (last, first): (Vec<usize>, Vec<usize>) = (0..self.work.steps.len())
            .partition(|index| self.work.steps.get(*index).is_some_and(is_directory_facts));
        let total = self.work.steps.len() as u64;
        let (first, last) = (
            first.into_iter().map(Some),
            last.into_iter().rev().map(Some),
        );
        let mut done = 0;
        for index in first.chain([None]).chain(last) {
            let Some(index) = index else {
                self.let_go(&log)?;
                continue;
            };
            show(Progress {
                phase: Phase::Committing,
                done,
                total,
            });
            done += 1;
            if let Some(step) = self.work.steps.get(index)
                && !logged.contains(&index)
            {
                self.commit_one(index, step, prepared.top(index), &mut log)?;
            }
        }
        Ok(())
    }

    /// Deletes the replaced entries. Their absence proves nothing, so the log is made durable
    /// first.
    fn let_go(&self, log: &File) -> Result<(), ApplyError> {
        log.sync_data().map_err(|error| self.not_logged(error))?;
        self.remove_temporaries()
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

    /// Removes everything that was written under temporary names.
    pub fn remove_temporaries(&self) -> Result<(), ApplyError> {
        for (index, step) in self.work.steps.iter().enumerate() {
            if let Act::Replace { .. } = step.act {
                host::remove_all(&self.tree, &self.temporary(index, step), None)?;
            }
        }
        Ok(())
    }

    /// Returns the temporary name of a step, beside its path.
    pub fn temporary(&self, index: usize, step: &Step) -> RelativePath {
        let name = temporary_name(&self.work.tag, index);
        let place = step.path.parent().unwrap_or_default();
        place.join(name.as_bytes()).unwrap_or_default()
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

    fn not_logged(&self, error: io::Error) -> ApplyError {
        let path = self.journal.path().join("log");
        ApplyError::from_tree(TreeError::new("cannot write", path.display(), error))
    }
}

/// The stamp of the content built for a step, and the stamps of the entries beneath it.
type Built = (Option<Stamp>, Stamps);

/// Builds new content under temporary names.
struct Builder<'a> {
    engine: &'a Engine,
    /// The first path of each group of hard links, and its inode.
    links: HashMap<u64, (RelativePath, (u64, u64))>,
    /// The inodes of the new directories whose permissions are still to be set.
    made: HashMap<RelativePath, (u64, u64)>,
    /// The directory last worked in, still open.
    place: Option<(RelativePath, OwnedFd)>,
}

impl Builder<'_> {
    /// Builds one step's content; returns the stamps of its top and of the entries beneath.
    fn build(&mut self, index: usize, step: &Step) -> Result<Built, ApplyError> {
        let new = step.new_entries();
        if new.is_empty() {
            return Ok(Built::default());
        }
        let temporary = self.engine.temporary(index, step);
        for entry in new {
            self.build_one(&temporary.concat(&entry.beneath), entry)?;
        }
        // Directories get their permissions last and from the bottom up: they could
        // forbid what is still to be made in them.
        self.place = None;
        for entry in new
            .iter()
            .rev()
            .filter(|entry| entry.node == Node::Directory)
        {
            let path = temporary.concat(&entry.beneath);
            let made = self.made.remove(&path);
            let handle = self.engine.tree.handle(&path).and_then(|handle| {
                let now = Facts::from(&rustix::fs::fstat(&handle)?).identity();
                let is_ours = made == Some(now);
                is_ours
                    .then_some(handle)
                    .ok_or_else(host::replaced_meanwhile)
            });
            let dressed = handle.and_then(|handle| host::dress(&handle, entry));
            dressed.map_err(|error| self.engine.failed("cannot write", &path, error))?;
        }
        let stamp = |path: RelativePath| match self.engine.tree.facts(&path) {
            Ok(facts) => Ok(facts.map(|facts| facts.stamp())),
            Err(error) => Err(self.engine.failed("cannot read", &path, error)),
        };
        let mut beneath = Vec::new();
        for entry in new.iter().skip(1) {
            let at = stamp(temporary.concat(&entry.beneath))?;
            beneath.extend(at.map(|at| (entry.beneath.clone(), at)));
        }
        Ok((stamp(temporary)?, beneath))
    }

    fn build_one(&mut self, path: &RelativePath, entry: &Entry) -> Result<(), ApplyError> {
        let failed = |error: io::Error| self.engine.failed("cannot write", path, error);
        let directory = path.parent().unwrap_or_default();
        let place = match self.place.take().filter(|(known, _)| *known == directory) {
            Some((_, place)) => place,
            None => self.engine.tree.place(&directory).map_err(failed)?,
        };
        let name = path.name();
        match &entry.node {
            Node::Directory => {
                rustix::fs::mkdirat(&place, os(name), Mode::from_raw_mode(0o700))
                    .map_err(|error| failed(error.into()))?;
                let made = facts_at(place.as_fd(), name).map_err(failed)?;
                let made = made.filter(|made| made.kind == Kind::Directory);
                let made = made.ok_or_else(|| failed(host::replaced_meanwhile()))?;
                self.made.insert(path.clone(), made.identity());
            }
            Node::Symlink { target } => {
                rustix::fs::symlinkat(os(&target.0), &place, os(name))
                    .map_err(|error| failed(error.into()))?;
                let handle = handle_at(place.as_fd(), name);
                handle
                    .and_then(|handle| host::dress(&handle, entry))
                    .map_err(failed)?;
            }
            Node::File { content, .. } => {
                if !self.link(place.as_fd(), name, entry) {
                    let file = host::create_file(place.as_fd(), name).map_err(failed)?;
                    let file = self.engine.fill(File::from(file), content, path)?;
                    let file = OwnedFd::from(file);
                    host::dress(&file, entry).map_err(failed)?;
                    if let Some(group) = entry.link {
                        let made = rustix::fs::fstat(&file);
                        let made = Facts::from(&made.map_err(|error| failed(error.into()))?);
                        self.links.insert(group, (path.clone(), made.identity()));
                    }
                }
            }
            // What cannot be kept cannot be brought back; that was agreed to.
            Node::Special => {}
        }
        self.place = Some((directory, place));
        Ok(())
    }

    /// Makes a further name of a file that was made already. Returns false where that is not
    /// possible and a copy is needed.
    fn link(&self, place: BorrowedFd<'_>, name: &[u8], entry: &Entry) -> bool {
        let known = entry.link.and_then(|group| self.links.get(&group));
        let Some((known, identity)) = known else {
            return false;
        };
        let Ok(from) = self.engine.tree.handle(known) else {
            return false;
        };
        let now = rustix::fs::fstat(&from).map(|now| Facts::from(&now).identity());
        // By its descriptor: a name could be that of another file by now.
        let (from, follow) = (host::by_handle(&from), AtFlags::SYMLINK_FOLLOW);
        now.is_ok_and(|now| now == *identity)
            && rustix::fs::linkat(CWD, from, place, os(name), follow).is_ok()
    }
}

impl Engine {
    fn fill(&self, to: File, content: &Content, path: &RelativePath) -> Result<File, ApplyError> {
        let failed = |error| self.failed("cannot write", path, error);
        let from = match content {
            Content::Layer(at) => self.written(&self.source, at)?,
            Content::Indexed(at) => self.written(&self.indexed, at)?,
            Content::Kept { number, .. } => self.journal.kept(*number)?,
            Content::Outer { number } => self.journal.kept_outside(*number)?,
            Content::Untouched => return Ok(to),
        };
        let bytes = from.metadata().map_err(failed)?.len();
        content::copy(&from, &to, bytes).map_err(failed)?;
        Ok(to)
    }

    /// Opens a file that the program wrote.
    fn written(&self, source: &Option<Tree>, at: &RelativePath) -> Result<File, ApplyError> {
        let Some(source) = source else {
            let nowhere = io::Error::other("the journal does not say where the layer is");
            return Err(self.failed("cannot read", at, nowhere));
        };
        let opened = source.file(at);
        let (file, _) = opened.map_err(|error| source.error("cannot read", at, error))?;
        Ok(file)
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
}

/// Returns the temporary name of a step, unique by its tag.
fn temporary_name(tag: &str, index: usize) -> String {
    format!(".atoll-{tag}-{index}")
}

fn is_directory_facts(step: &Step) -> bool {
    matches!(&step.act, Act::Facts { old, .. } if old.node == Node::Directory)
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
