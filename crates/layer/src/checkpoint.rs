//! Copies a directory so that it can be restored: content with holes and shared
//! blocks, names, permissions, owners where allowed, times, attributes, hard links.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{AtFlags, Mode};

use crate::entries::{Walker, paths_in};
use crate::error::TreeError;
use crate::facts::{Facts, Stamp};
use crate::manifest::Manifest;
use crate::plan::{Entry, Node};
use crate::tree::{Tree, os};
use crate::{
    Bounds, CheckpointError, IdShift, Phase, Progress, Refusal, RelativePath, content, host,
};

/// A summary of a checkpoint's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointFacts {
    /// The time of completion, by the clock that the kernel stamps files with: it lags behind the
    /// one that programs read, on a busy machine by many ticks.
    pub finished: SystemTime,
    /// Regular files, each name counted.
    pub files: u64,
    /// Directories, without the top one.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Bytes of the files, as stated by the file system.
    pub bytes: u64,
    /// Entries that could not be copied, each with the reason.
    pub skipped: Vec<Refusal>,
    /// Files with further names (hard links) outside of the directory: one name of each. A write to
    /// one changes a file that lies elsewhere.
    pub shared: Vec<RelativePath>,
}

/// Copies `directory` into `into`, which is made. Entries that cannot be read, and those that are
/// neither file, directory nor symbolic link, are skipped and named. A file beside `into`, of the
/// same name with `.directories` at its end, records which directory was where, which entries
/// were not copied, and which copies have another owner; [`crate::changes`] reads it. The copy's
/// owners are shifted by `ids`, for a
/// program to which they are to look like its own.
///
/// # Errors
/// When the destination cannot be used or written; what was copied stays.
pub fn checkpoint(
    directory: &Path,
    into: &Path,
    ids: IdShift,
    progress: &mut dyn FnMut(Progress),
) -> Result<CheckpointFacts, CheckpointError> {
    let from = Tree::open(directory)?;
    let to = destination(directory, into)?;
    let mut copier = Copier {
        from,
        to,
        ids,
        walker: Walker::new(Bounds::default()),
        links: HashMap::new(),
        uncopied: Vec::new(),
        owners: Vec::new(),
        facts: CheckpointFacts {
            finished: SystemTime::UNIX_EPOCH,
            files: 0,
            directories: 0,
            symlinks: 0,
            bytes: 0,
            skipped: Vec::new(),
            shared: Vec::new(),
        },
        names: BTreeMap::new(),
    };
    let unwritten = |error| TreeError::new("cannot write beside", into.display(), error);
    let mut manifest = Manifest::create(into).map_err(unwritten)?;
    let mut waiting = vec![(RelativePath::root(), None)];
    let mut directories = Vec::new();
    let mut done = 0;
    while let Some((path, within)) = waiting.pop() {
        progress(Progress {
            phase: Phase::Copying,
            done,
            total: 0,
        });
        done += 1;
        if let Some((entry, opened)) = copier.copy(&path, within)? {
            // What lies in a directory that took its place is not copied into it.
            let itself = entry.stamp.map(|stamp| (stamp.device, stamp.inode));
            match paths_in(&opened, &path) {
                Ok(inside) => {
                    waiting.extend(inside.into_iter().rev().map(|inner| (inner, itself)));
                }
                Err(error) => copier.skip(&path, &format!("what is in it: {error}")),
            }
            directories.push((path, entry));
        }
    }
    copier.facts.shared = copier.shared();
    // Permissions and times of directories come last: they forbid or are changed
    // by what is made within.
    for (path, entry) in directories.iter().rev() {
        let copy = copier.finish_directory(path, entry)?;
        let original = entry.stamp.map_or(0, |stamp| stamp.inode);
        manifest.add(path, original, copy).map_err(unwritten)?;
    }
    for inode in &copier.uncopied {
        manifest.add_uncopied(*inode).map_err(unwritten)?;
    }
    for (path, uid, gid) in &copier.owners {
        manifest.add_owner(path, *uid, *gid).map_err(unwritten)?;
    }
    // The root was dressed last: its inode changed at the very end.
    let root = rustix::fs::fstat(copier.to.root())
        .map_err(|error| copier.to.error("cannot read", &RelativePath::root(), error))?;
    let changed = Facts::from(&root).changed;
    copier.facts.finished = changed.system();
    manifest.finish(changed).map_err(unwritten)?;
    Ok(copier.facts)
}

fn destination(directory: &Path, into: &Path) -> Result<Tree, CheckpointError> {
    let unusable = |why| CheckpointError::Destination {
        path: into.to_owned(),
        why,
    };
    let failed = |error: io::Error| TreeError::new("cannot make", into.display(), error);
    std::fs::create_dir_all(into).map_err(failed)?;
    let (source, target) = (
        std::fs::canonicalize(directory).map_err(failed)?,
        std::fs::canonicalize(into).map_err(failed)?,
    );
    if target.starts_with(&source) {
        return Err(unusable("it lies within the directory to copy"));
    }
    let tree = Tree::open(into)?;
    let top = RelativePath::root();
    let names = tree
        .names(&top)
        .map_err(|error| tree.error("cannot read", &top, error))?;
    if names.is_empty() {
        Ok(tree)
    } else {
        Err(unusable("it is not empty"))
    }
}

/// The counted names of a file with several.
struct Names {
    first: RelativePath,
    /// The number of names found.
    met: u64,
    /// The number of names that the file has.
    all: u64,
}

struct Copier {
    from: Tree,
    to: Tree,
    ids: IdShift,
    walker: Walker,
    /// The first path found of each file with several names, by inode.
    links: HashMap<u64, RelativePath>,
    /// The files with several names, by device and inode.
    names: BTreeMap<(u64, u64), Names>,
    /// The inodes of skipped entries.
    uncopied: Vec<u64>,
    /// The entries whose copies could not be given their owner or group.
    owners: Vec<(RelativePath, u32, u32)>,
    facts: CheckpointFacts,
}

impl Copier {
    /// Copies one entry; returns a directory, whose content is still to be copied.
    fn copy(
        &mut self,
        path: &RelativePath,
        within: Option<(u64, u64)>,
    ) -> Result<Option<(Entry, OwnedFd)>, TreeError> {
        let (mut entry, opened) = match self.walker.opened(&self.from, path, within) {
            Ok(found) => found,
            Err(error) => {
                let facts = self.from.facts(path).ok().flatten();
                self.count_name(path, facts.map(|facts| facts.stamp()));
                self.skip(path, &error.source.to_string());
                return Ok(None);
            }
        };
        self.count_name(path, entry.stamp);
        entry.uid = self.ids.to_layer(entry.uid);
        entry.gid = self.ids.to_layer(entry.gid);
        if path.is_root() {
            return Ok(Some((entry, opened)));
        }
        let made = match &entry.node {
            Node::Special => {
                self.skip(path, "it is a socket, FIFO or device");
                return Ok(None);
            }
            Node::Directory => self.make_directory(path),
            Node::Symlink { target } => self.make_link(path, &target.0, &entry),
            Node::File { bytes, .. } => {
                let made = self.make_file(path, &File::from(opened), *bytes, &entry);
                made.map_err(|error| self.to.error("cannot write", path, error))?;
                return Ok(None);
            }
        };
        made.map_err(|error| self.to.error("cannot write", path, error))?;
        Ok((entry.node == Node::Directory).then_some((entry, opened)))
    }

    fn make_directory(&mut self, path: &RelativePath) -> io::Result<()> {
        let place = self.to.place_of(path)?;
        rustix::fs::mkdirat(place, os(path.name()), Mode::from_raw_mode(0o700))?;
        self.facts.directories += 1;
        Ok(())
    }

    /// Completes a copied directory; returns the copy's inode.
    fn finish_directory(&mut self, path: &RelativePath, entry: &Entry) -> Result<u64, TreeError> {
        let mut finish = || -> io::Result<u64> {
            let handle = self.to.handle(path)?;
            Ok(self.dress(&handle, path, entry)?.inode)
        };
        finish().map_err(|error| self.to.error("cannot write", path, error))
    }

    fn make_link(&mut self, path: &RelativePath, target: &[u8], entry: &Entry) -> io::Result<()> {
        let place = self.to.place_of(path)?;
        rustix::fs::symlinkat(os(target), place, os(path.name()))?;
        self.facts.symlinks += 1;
        let handle = self.to.handle(path)?;
        self.dress(&handle, path, entry).map(drop)
    }

    fn make_file(
        &mut self,
        path: &RelativePath,
        file: &File,
        bytes: u64,
        entry: &Entry,
    ) -> io::Result<()> {
        let place = self.to.place_of(path)?;
        self.facts.files += 1;
        if let Some(first) = entry.link.and_then(|group| self.links.get(&group)) {
            let from = self.to.place_of(first)?;
            let name = os(first.name());
            rustix::fs::linkat(from, name, place, os(path.name()), AtFlags::empty())?;
            return Ok(());
        }
        let copy = File::from(host::create_file(place.as_fd(), path.name())?);
        content::copy(file, &copy, bytes)?;
        self.facts.bytes += bytes;
        self.dress(&OwnedFd::from(copy), path, entry)?;
        if let Some(group) = entry.link {
            self.links.insert(group, path.clone());
        }
        Ok(())
    }

    /// Gives a copy its owner, permissions and times; an owner that this user cannot set is recorded.
    fn dress(&mut self, copy: &OwnedFd, path: &RelativePath, entry: &Entry) -> io::Result<Facts> {
        host::dress(copy, entry)?;
        let now = Facts::from(&rustix::fs::fstat(copy)?);
        if (now.uid, now.gid) != (entry.uid, entry.gid) {
            self.owners.push((path.clone(), entry.uid, entry.gid));
        }
        Ok(now)
    }

    /// Counts one name of a file with several. Directories have only their own.
    fn count_name(&mut self, path: &RelativePath, stamp: Option<Stamp>) {
        let several = |stamp: &Stamp| stamp.links > 1 && !stamp.is_directory();
        let Some(stamp) = stamp.filter(several) else {
            return;
        };
        let names = self.names.entry((stamp.device, stamp.inode));
        let names = names.or_insert_with(|| Names {
            first: path.clone(),
            met: 0,
            all: stamp.links,
        });
        names.met += 1;
    }

    fn shared(&self) -> Vec<RelativePath> {
        let names = self.names.values();
        let shared = names.filter(|names| names.met < names.all);
        shared.map(|names| names.first.clone()).collect()
    }

    fn skip(&mut self, path: &RelativePath, why: &str) {
        let facts = self.from.facts(path).ok().flatten();
        self.uncopied.extend(facts.map(|facts| facts.inode));
        self.facts.skipped.push(Refusal {
            path: path.clone(),
            why: why.to_owned(),
        });
    }
}
