//! The upper directory of a layer that is kept for the next run: the entries that the next program
//! may see, and those set aside until a person has reviewed them.
//!
//! Only what is surely history stays. An agent runs or believes the rest when it starts, so that
//! one run that was led astray would lead all that follow.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, Uid};
use rustix::io::Errno;

use crate::below::{Below, is_head};
use crate::databases::{companions, database_of, is_database};
use crate::error::TreeError;
use crate::facts::{Facts, Kind};
use crate::host::{by_handle, remove_all};
use crate::read::xattrs_at;
use crate::tree::{Tree, names_in, os};
use crate::{Bounds, RelativePath, XattrFlavour, control};

/// The permissions that a directory's owner needs to list it and to move entries out of it.
pub(crate) const OWNER_RIGHTS: u32 = 0o700;
/// The execute bits: somebody may execute the file.
pub(crate) const EXECUTABLE: u32 = 0o111;

/// Moves all that is not history out of a kept layer's upper directory `from` into `to`, another
/// upper directory, where newer entries replace older ones. `host` is the lower directory of both,
/// which may be gone. `drop` names top-level entries that are deleted, not kept. Returns the paths
/// that were moved, none beneath another.
///
/// Nothing may be mounted on either directory, and no program may work in them. An interrupted call
/// can be repeated.
///
/// # Errors
/// When something cannot be looked at or moved: the layer is not to be used then.
pub fn set_aside(
    from: &Path,
    to: &Path,
    host: &Path,
    drop: &[RelativePath],
) -> Result<Vec<RelativePath>, TreeError> {
    let mut pending = PendingReview {
        below: Below::open(host)?,
        from: Tree::open(from)?,
        to: Tree::open(to)?,
        moved: Vec::new(),
        looked: 0,
    };
    for path in drop {
        remove_all(&pending.from, path, None)?;
    }
    let mut waiting = vec![RelativePath::root()];
    while let Some(path) = waiting.pop() {
        pending.sort_out(&path, &mut waiting)?;
    }
    Ok(pending.moved)
}

struct PendingReview {
    below: Below,
    from: Tree,
    to: Tree,
    moved: Vec<RelativePath>,
    looked: u64,
}

impl PendingReview {
    /// Moves out of a directory that stays whatever does not, or the whole directory.
    fn sort_out(
        &mut self,
        path: &RelativePath,
        waiting: &mut Vec<RelativePath>,
    ) -> Result<(), TreeError> {
        let failed = |error| self.from.error("cannot look into", path, error);
        let directory = self.from.directory(path).map_err(failed)?;
        let names = names_in(directory.as_fd()).map_err(failed)?;
        self.looked = self.looked.saturating_add(names.len() as u64);
        if self.looked > Bounds::default().entries_max {
            let error = std::io::Error::other("there are too many files");
            return Err(self.from.error("cannot look into", path, error));
        }
        let has_head = names.iter().any(|name| is_head(name));
        if !path.is_root() && (has_head || self.below.is_repository(path)) {
            // Whatever changes in a git repository can be what git runs, also where its HEAD
            // did not change and is not in the layer.
            return self.take(path.clone());
        }
        self.part_databases(path, &names)?;
        let names = self.from.names(path).map_err(failed)?;
        let mut entries = Vec::new();
        // Of what belongs together nothing stays without the rest.
        let mut parted: BTreeSet<Vec<u8>> = BTreeSet::new();
        for name in &names {
            let inner = self.within(path, name)?;
            let facts = self.from.facts(&inner);
            let facts = facts.map_err(|error| self.from.error("cannot look at", &inner, error))?;
            let Some(facts) = facts else {
                continue;
            };
            let database = database_of(name).map(<[u8]>::to_vec);
            let stays = stays(&inner, &facts) && !self.hides_control(&inner, &facts)?;
            let is_alone = database
                .as_ref()
                .is_some_and(|main| names.binary_search(main).is_err());
            if !stays || is_alone {
                parted.extend(database.clone());
            }
            entries.push((inner, database, stays, facts.kind));
        }
        for (inner, database, stays, kind) in entries {
            if !stays || database.is_some_and(|main| parted.contains(&main)) {
                self.take(inner)?;
            } else if kind == Kind::Directory {
                waiting.push(inner);
            }
        }
        Ok(())
    }

    /// Returns whether an entry hides something in the lower directory that is not history.
    fn hides_control(&mut self, path: &RelativePath, facts: &Facts) -> Result<bool, TreeError> {
        let is_through = facts.kind == Kind::Directory && !self.is_apart(&self.from, path)?;
        Ok(!is_through && self.below.has_control(path))
    }

    /// Returns whether a directory does not merge with the lower one of the same name: it is opaque
    /// or redirected.
    fn is_apart(&self, tree: &Tree, path: &RelativePath) -> Result<bool, TreeError> {
        let failed = |error| tree.error("cannot look at", path, error);
        let bytes_max = Bounds::default().xattr_bytes_max;
        for flavour in [XattrFlavour::User, XattrFlavour::Trusted] {
            let notes = xattrs_at(tree, path, Kind::Directory, Some(flavour), bytes_max);
            let notes = notes.map_err(failed)?;
            if notes.overlay("opaque").is_some() || notes.overlay("redirect").is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn within(&self, path: &RelativePath, name: &[u8]) -> Result<RelativePath, TreeError> {
        let inner = path.join(name);
        let inner = inner.map_err(|error| std::io::Error::other(error.to_string()));
        inner.map_err(|error| self.from.error("cannot look at", path, error))
    }

    /// Hides the companion files of each of the layer's databases in the lower directory: read with
    /// the log of another database, a database would be destroyed. Where the layer has no database
    /// of that name any more, nothing is hidden.
    fn part_databases(&self, path: &RelativePath, names: &[Vec<u8>]) -> Result<(), TreeError> {
        for main in names.iter().filter(|name| is_database(name)) {
            for name in companions(main).filter(|name| names.binary_search(name).is_err()) {
                let inner = self.within(path, &name)?;
                let failed = |error| self.from.error("cannot hide", &inner, error);
                let place = self.from.place_of(&inner).map_err(failed)?;
                rustix::fs::mknodat(
                    place,
                    os(&name),
                    FileType::CharacterDevice,
                    Mode::empty(),
                    0,
                )
                .map_err(|errno| failed(errno.into()))?;
            }
        }
        for name in names {
            let main = database_of(name).filter(|main| *main != name.as_slice());
            if main.is_none_or(|main| {
                names
                    .binary_search_by(|name| name.as_slice().cmp(main))
                    .is_ok()
            }) {
                continue;
            }
            let inner = self.within(path, name)?;
            let facts = self.from.facts(&inner);
            let facts = facts.map_err(|error| self.from.error("cannot look at", &inner, error))?;
            if facts.is_some_and(|facts| facts.kind == Kind::CharacterDevice) {
                remove_all(&self.from, &inner, None)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, path: RelativePath) -> Result<(), TreeError> {
        self.make_above(&path)?;
        self.lay(&path)?;
        self.moved.push(path);
        Ok(())
    }

    /// Makes the missing directories above a path, as they are in the layer.
    fn make_above(&self, path: &RelativePath) -> Result<(), TreeError> {
        let above: Vec<RelativePath> = path.ancestors().collect();
        for directory in above.into_iter().rev() {
            let failed = |error| self.to.error("cannot make", &directory, error);
            let there = self.to.facts(&directory).map_err(failed)?;
            match there.map(|facts| facts.kind) {
                Some(Kind::Directory) => continue,
                Some(_) => remove_all(&self.to, &directory, None)?,
                None => {}
            }
            let like = self.from.facts(&directory).map_err(failed)?;
            let like = like.ok_or_else(|| failed(Errno::NOENT.into()))?;
            let make = || -> std::io::Result<()> {
                let place = self.to.place_of(&directory)?;
                rustix::fs::mkdirat(&place, os(directory.name()), Mode::RWXU)?;
                let made = self.to.directory(&directory)?;
                let facts = Facts::from(&rustix::fs::fstat(&made)?);
                if (facts.uid, facts.gid) != (like.uid, like.gid) {
                    let owner = (Uid::from_raw(like.uid), Gid::from_raw(like.gid));
                    rustix::fs::fchown(&made, Some(owner.0), Some(owner.1))?;
                }
                rustix::fs::fchmod(&made, Mode::from_raw_mode(like.mode))?;
                Ok(())
            };
            make().map_err(failed)?;
        }
        Ok(())
    }

    /// Moves one entry into its destination. Two directories are merged, unless one hides the lower
    /// one.
    fn lay(&mut self, top: &RelativePath) -> Result<(), TreeError> {
        let mut waiting = vec![top.clone()];
        let mut merged = Vec::new();
        while let Some(path) = waiting.pop() {
            let failed = |error| self.from.error("cannot set aside", &path, error);
            let facts = self.from.facts(&path).map_err(failed)?;
            let there = self.to.facts(&path).map_err(failed)?;
            let Some(facts) = facts else {
                continue;
            };
            let is_directory = |kind| kind == Kind::Directory;
            if is_directory(facts.kind) {
                self.open_up(&path, &facts).map_err(failed)?;
            }
            let are_both = there.is_some_and(|there| is_directory(there.kind));
            if is_directory(facts.kind) && are_both && !self.replaces(&path)? {
                let names = self.from.names(&path).map_err(failed)?;
                waiting.extend(names.iter().filter_map(|name| path.join(name).ok()));
                merged.push(path);
                continue;
            }
            if there.is_some() {
                remove_all(&self.to, &path, None)?;
            }
            self.rename(&path).map_err(failed)?;
        }
        // From the bottom up; each is empty by now.
        for path in merged.iter().rev() {
            let failed = |error| self.from.error("cannot set aside", path, error);
            let place = self.from.place_of(path).map_err(failed)?;
            rustix::fs::unlinkat(place, os(path.name()), AtFlags::REMOVEDIR)
                .map_err(|errno| failed(errno.into()))?;
        }
        Ok(())
    }

    /// Returns whether one of two directories hides the lower one: merged, they would mean what
    /// neither does.
    fn replaces(&self, path: &RelativePath) -> Result<bool, TreeError> {
        let is_apart = self.is_apart(&self.from, path)? || self.is_apart(&self.to, path)?;
        Ok(is_apart && self.below.has_directory(path))
    }

    fn rename(&self, path: &RelativePath) -> std::io::Result<()> {
        let (from, to) = (self.from.place_of(path)?, self.to.place_of(path)?);
        let name = os(path.name());
        Ok(rustix::fs::renameat(from, name, to, name)?)
    }

    /// Makes a directory writable to its owner, as moving it elsewhere requires.
    fn open_up(&self, path: &RelativePath, facts: &Facts) -> std::io::Result<()> {
        if facts.mode & OWNER_RIGHTS == OWNER_RIGHTS {
            return Ok(());
        }
        let handle = self.from.handle(path)?;
        let mode = Mode::from_raw_mode(facts.mode | OWNER_RIGHTS);
        Ok(rustix::fs::chmod(by_handle(&handle), mode)?)
    }
}

/// Returns whether an entry stays where the next program sees it.
fn stays(path: &RelativePath, facts: &Facts) -> bool {
    let is_plain = match facts.kind {
        // Gemini CLI puts programs among what it has for a while, and runs them.
        // One of several names stands for what is written by another of them, later.
        Kind::File => facts.mode & EXECUTABLE == 0 && facts.links == 1,
        Kind::Directory => facts.mode & OWNER_RIGHTS == OWNER_RIGHTS,
        // The removal of a file below, in overlayfs' words.
        Kind::CharacterDevice => facts.device_number == 0,
        Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::BlockDevice | Kind::Unknown => false,
    };
    let is_directory = facts.kind == Kind::Directory;
    let too_deep = is_directory && path.depth() >= Bounds::default().depth_max;
    let is_control = control::reason(path, is_directory, false).is_some();
    is_plain && !too_deep && !is_control && control::is_history(path)
}

/// Returns up to `shown` files of a kept layer that the host directory has changed since they were
/// written to the layer: in the sandbox, the layer's own are seen.
///
/// # Errors
/// When the layer cannot be looked at.
pub fn changed_outside(
    upper: &Path,
    host: &Path,
    shown: usize,
) -> Result<Vec<RelativePath>, TreeError> {
    let (upper, host) = (Tree::open(upper)?, Tree::open(host)?);
    let mut found = Vec::new();
    let mut waiting = vec![RelativePath::root()];
    let mut looked: u64 = 0;
    while let Some(path) = waiting.pop() {
        let failed = |error| upper.error("cannot look into", &path, error);
        let directory = upper.directory(&path).map_err(failed)?;
        for name in names_in(directory.as_fd()).map_err(failed)? {
            looked += 1;
            let Ok(inner) = path.join(&name) else {
                continue;
            };
            if found.len() >= shown || looked > Bounds::default().entries_max {
                return Ok(found);
            }
            match kind_at(directory.as_fd(), &name) {
                Some(Kind::Directory) => waiting.push(inner),
                Some(Kind::File) if is_newer(&host, &upper, &inner) => found.push(inner),
                Some(_) | None => {}
            }
        }
    }
    Ok(found)
}

fn kind_at(directory: BorrowedFd<'_>, name: &[u8]) -> Option<Kind> {
    let facts = crate::tree::facts_at(directory, name).ok().flatten();
    facts.map(|facts| facts.kind)
}

/// Returns whether the host's file was written after the layer's was created.
fn is_newer(host: &Tree, upper: &Tree, path: &RelativePath) -> bool {
    let (Ok(Some(facts)), Ok(born)) = (host.facts(path), upper.born(path)) else {
        return false;
    };
    facts.kind == Kind::File && facts.modified > born
}
