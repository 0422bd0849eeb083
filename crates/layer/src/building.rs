//! Builds the new content of a journal's steps under temporary names, each in its destination's
//! directory.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode};

use crate::engine::Engine;
use crate::expected::Stamps;
use crate::facts::{Facts, Kind, Stamp};
use crate::plan::{Content, Entry, Node};
use crate::tree::{Tree, facts_at, handle_at, os};
use crate::{ApplyError, RelativePath, Step, content, host};

/// The stamp of the content built for a step, and the stamps of the entries beneath it.
pub(crate) type Built = (Option<Stamp>, Stamps);

/// A builder of new content under temporary names.
pub(crate) struct Builder<'a> {
    engine: &'a Engine,
    /// The first path of each group of hard links, and its inode.
    links: HashMap<u64, (RelativePath, (u64, u64))>,
    /// The inodes of the new directories whose permissions are still to be set.
    made: HashMap<RelativePath, (u64, u64)>,
    /// The directory last worked in, still open.
    place: Option<(RelativePath, OwnedFd)>,
}

impl<'a> Builder<'a> {
    pub fn new(engine: &'a Engine) -> Self {
        Self {
            engine,
            links: HashMap::new(),
            made: HashMap::new(),
            place: None,
        }
    }

    /// Builds one step's content; returns the stamps of its top and of the entries beneath.
    pub fn build(&mut self, index: usize, step: &Step) -> Result<Built, ApplyError> {
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
        if new.iter().any(|entry| entry.node == Node::Directory) {
            self.place = None;
        }
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
        let above = temporary.parent().unwrap_or_default();
        let place = self.place.as_ref().filter(|(known, _)| *known == above);
        let facts = |path: &RelativePath| match place {
            Some((_, place)) if *path == temporary => facts_at(place.as_fd(), path.name()),
            _ => self.engine.tree.facts(path),
        };
        let stamp = |path: RelativePath| match facts(&path) {
            Ok(facts) => Ok(facts.map(|facts| facts.stamp())),
            Err(error) => Err(self.engine.failed("cannot read", &path, error)),
        };
        let mut beneath = Vec::new();
        for entry in new.iter().skip(1) {
            let at = stamp(temporary.concat(&entry.beneath))?;
            beneath.extend(at.map(|at| (entry.beneath.clone(), at)));
        }
        Ok((stamp(temporary.clone())?, beneath))
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
                    let file = self.fill(File::from(file), content, path)?;
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

    fn fill(&self, to: File, content: &Content, path: &RelativePath) -> Result<File, ApplyError> {
        let engine = self.engine;
        let failed = |error| engine.failed("cannot write", path, error);
        let from = match content {
            Content::Layer(at) => self.written(&engine.source, at)?,
            Content::Indexed(at) => self.written(&engine.indexed, at)?,
            Content::Kept { number, .. } => engine.journal.kept(*number)?,
            Content::Outer { number } => engine.journal.kept_outside(*number)?,
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
            return Err(self.engine.failed("cannot read", at, nowhere));
        };
        let opened = source.file(at);
        let (file, _) = opened.map_err(|error| source.error("cannot read", at, error))?;
        Ok(file)
    }
}
