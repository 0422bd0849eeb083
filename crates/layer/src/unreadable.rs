//! Entries that a program made unreadable for their owner (mode 000, 0300) in an ordinary user's
//! layer. The host side owns them too, so it can open them up. Their modes are recorded beside the
//! layer first, durably: whoever reads the layer is shown these, so that nothing else is ever
//! applied, and a process that is killed here loses nothing. Only a layer at rest is opened up, and
//! before a program goes on in it, the modes are put back.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::process::geteuid;

use crate::error::TreeError;
use crate::facts::{Facts, Kind};
use crate::host::by_handle;
use crate::modes::{beside, line, lines};
use crate::tree::{Tree, facts_at, handle_at, is_absence, names_in};
use crate::{AfterTree, Bounds, LayerPaths, RelativePath};

/// Returns the bits that an owner needs to read an entry.
fn needed(kind: Kind) -> u32 {
    match kind {
        Kind::Directory => 0o500,
        Kind::File => 0o400,
        _ => 0,
    }
}

/// Returns whether the owner of an entry may not read it. Root may, whatever the mode.
pub(crate) fn is_locked(kind: Kind, mode: u32) -> bool {
    !geteuid().is_root() && mode & needed(kind) != needed(kind)
}

/// Opens up everything in the tree after that is the caller's own and that its mode keeps them from
/// reading. Returns whether there was any such entry. Nothing may be mounted on the layer or work
/// in it.
pub(crate) fn open_up(paths: &LayerPaths, bounds: &Bounds) -> Result<bool, TreeError> {
    let after = match &paths.after {
        AfterTree::Overlay { upper, .. } => upper,
        AfterTree::Copy { path, .. } => path,
        // The person's own directory: nothing in it is Atoll's to change.
        AfterTree::Live { .. } => return Ok(false),
    };
    let mut notes = Notes::open(after)?;
    let top = Tree::open_for_lookups(after)?;
    let root = RelativePath::root();
    let failed = |path: &RelativePath, error| top.error("cannot open up", path, error);
    let itself = rustix::fs::fstat(top.root());
    let itself = Facts::from(&itself.map_err(|error| failed(&root, error.into()))?);
    let handle = top.handle(&root).map_err(|error| failed(&root, error))?;
    notes.unlock(vec![(root.clone(), handle, itself)])?;
    unlock_beneath(&top, &mut notes, root, bounds, |_| true)?;
    Ok(!notes.opened.is_empty())
}

/// Opens up the entries beneath a directory for which `may` returns true.
pub(crate) fn unlock_beneath(
    top: &Tree,
    notes: &mut Notes,
    from: RelativePath,
    bounds: &Bounds,
    may: impl Fn(&Facts) -> bool,
) -> Result<(), TreeError> {
    let failed = |path: &RelativePath, error| top.error("cannot open up", path, error);
    let mut waiting = vec![from];
    let mut looked: u64 = 0;
    while let Some(path) = waiting.pop() {
        if path.depth() >= bounds.depth_max || looked > bounds.entries_max {
            continue;
        }
        // What is still closed is somebody else's: reading it is refused by name.
        let Ok(directory) = top.directory(&path) else {
            continue;
        };
        let mut locked = Vec::new();
        for name in names_in(directory.as_fd()).map_err(|error| failed(&path, error))? {
            looked += 1;
            let found = facts_at(directory.as_fd(), &name);
            let (Ok(Some(facts)), Ok(inner)) = (found, path.join(&name)) else {
                continue;
            };
            if is_locked(facts.kind, facts.mode) && is_own(&facts) && may(&facts) {
                let handle =
                    handle_at(directory.as_fd(), &name).map_err(|error| failed(&inner, error))?;
                locked.push((inner.clone(), handle, facts));
            }
            if facts.kind == Kind::Directory {
                waiting.push(inner);
            }
        }
        notes.unlock(locked)?;
    }
    Ok(())
}

fn is_own(facts: &Facts) -> bool {
    facts.uid == geteuid().as_raw()
}

/// Gives every entry that was opened up the mode back that the program gave it, for a program that
/// goes on in the layer.
///
/// # Errors
/// When an entry cannot be given its mode back; what is noted stays noted.
pub fn restore_modes(after: &Path) -> Result<(), TreeError> {
    give_back(after, after, |_, _, _| true)
}

/// Gives the modes recorded beside a directory back to the entries of another, as far as they exist
/// and `may` allows it; `may` is passed the mode that they were opened up with.
pub(crate) fn give_back(
    noted_beside: &Path,
    after: &Path,
    may: impl Fn(&RelativePath, &Facts, u32) -> bool,
) -> Result<(), TreeError> {
    let noted = lines(noted_beside)?;
    if noted.is_empty() {
        return Ok(());
    }
    let tree = Tree::open_for_lookups(after)?;
    // From the bottom up: a directory that is closed again hides what is in it.
    for line in noted.iter().rev() {
        let failed = |error| tree.error("cannot give back the permissions of", &line.path, error);
        let handle = match tree.handle(&line.path) {
            Err(error) if is_absence(&error) => continue,
            handle => handle.map_err(failed)?,
        };
        let facts = rustix::fs::fstat(&handle).map_err(|error| failed(error.into()))?;
        let facts = Facts::from(&facts);
        let opened = line.mode | needed(facts.kind);
        if facts.inode == line.inode && may(&line.path, &facts, opened) {
            rustix::fs::chmod(by_handle(&handle), Mode::from_raw_mode(line.mode))
                .map_err(|error| failed(error.into()))?;
        }
    }
    let path = beside(noted_beside);
    fs::remove_file(&path).map_err(|error| TreeError::new("cannot remove", path.display(), error))
}

/// The record being written; other processes that would open up the same layer wait.
pub(crate) struct Notes {
    file: File,
    path: PathBuf,
    /// The entries that were opened up, with their inodes.
    pub opened: BTreeMap<RelativePath, u64>,
}

impl Notes {
    pub fn open(after: &Path) -> Result<Self, TreeError> {
        let path = beside(after);
        let failed = |error| TreeError::new("cannot write", path.display(), error);
        let mut options = File::options();
        options.create(true).append(true).mode(0o600);
        options.custom_flags(i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0));
        let file = options.open(&path).map_err(failed)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)
            .map_err(|error| failed(error.into()))?;
        let text = fs::read(&path).map_err(failed)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n');
        let whole = whole.map_or(0, |end| end + 1);
        file.set_len(whole as u64).map_err(failed)?;
        Ok(Self {
            file,
            path,
            opened: BTreeMap::new(),
        })
    }

    /// Records the modes durably, then opens the entries up. The handles lead to exactly the
    /// entries that were looked at.
    pub fn unlock(
        &mut self,
        entries: Vec<(RelativePath, OwnedFd, Facts)>,
    ) -> Result<(), TreeError> {
        let mut text = String::new();
        let mut locked = Vec::new();
        for (path, handle, _) in entries {
            let failed = |error: rustix::io::Errno| {
                TreeError::new("cannot open up", &path, io::Error::from(error))
            };
            let flags = AtFlags::EMPTY_PATH;
            let now = rustix::fs::statat(&handle, "", flags).map_err(failed)?;
            let now = Facts::from(&now);
            // By now another process may have been here.
            if is_locked(now.kind, now.mode) && is_own(&now) {
                text.push_str(&line(now.inode, now.mode, &path));
                locked.push((path, handle, now));
            }
        }
        if locked.is_empty() {
            return Ok(());
        }
        let written = self.file.write_all(text.as_bytes());
        written
            .and_then(|()| self.file.sync_data())
            .map_err(|error| TreeError::new("cannot write", self.path.display(), error))?;
        for (path, handle, now) in locked {
            let mode = Mode::from_raw_mode(now.mode | needed(now.kind));
            rustix::fs::chmod(by_handle(&handle), mode)
                .map_err(|error| TreeError::new("cannot open up", &path, error))?;
            self.opened.insert(path, now.inode);
        }
        Ok(())
    }
}
