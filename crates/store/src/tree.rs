use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use atoll_ledger::FileFault;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

use crate::RunError;

/// The most entries of a directory that are held in memory at once.
const BATCH_ENTRIES: usize = 4_096;
/// The most directories that are open at once while a tree is removed.
const OPEN_MAX: u32 = 16;
/// The most names that are tried when others are taken.
const NAME_ATTEMPTS_MAX: u32 = 10_000;

/// Opens a directory entry as a directory: no symbolic link, nothing that is
/// mounted there, be it of the same file system.
pub(crate) fn open_directory(
    parent: impl AsFd,
    name: &CStr,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(
        parent,
        name,
        flags | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
    )
}

/// Deletes a directory and all that is in it.
///
/// The tree was written by a program that nobody trusts: it may be deeper than
/// any stack or path is long, unreadable, and full of symbolic links. So every
/// step names one entry of one open directory; and a directory that is not empty, and too
/// deep to be opened below the others, is moved up to the top first.
pub(crate) fn delete_tree(parent: impl AsFd, name: &CStr, path: &Path) -> Result<(), RunError> {
    let parent = parent.as_fd();
    let mut deletion = Deletion {
        top: open_for_deletion(parent, name).map_err(|errno| fault(errno, "open", path))?,
        path,
        moved: 0,
    };
    deletion.run()?;
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
        .map_err(|errno| fault(errno, "remove", path))
}

struct Deletion<'a> {
    top: OwnedFd,
    path: &'a Path,
    moved: u64,
}

impl Deletion<'_> {
    fn run(&mut self) -> Result<(), RunError> {
        loop {
            let batch = self.batch(self.top.as_fd(), self.path)?;
            if batch.is_empty() {
                return Ok(());
            }
            for (name, kind) in batch {
                if !self.remove(self.top.as_fd(), &name, kind)? {
                    let top = self.top.try_clone();
                    let top = top.map_err(FileFault::on("open", self.path))?;
                    self.empty(top.as_fd(), &name, 1)?;
                }
            }
        }
    }

    /// Empties a directory with `open` others above it and removes it; directories in it that are
    /// not empty are emptied the same way, or moved up below the top.
    fn empty(&mut self, parent: BorrowedFd<'_>, name: &CStr, open: u32) -> Result<(), RunError> {
        let path = self.path.join(lossy(name));
        let directory =
            open_for_deletion(parent, name).map_err(|errno| fault(errno, "open", &path))?;
        loop {
            let batch = self.batch(directory.as_fd(), &path)?;
            if batch.is_empty() {
                break;
            }
            for (entry, kind) in batch {
                if self.remove(directory.as_fd(), &entry, kind)? {
                    continue;
                }
                match open < OPEN_MAX {
                    true => self.empty(directory.as_fd(), &entry, open + 1)?,
                    false => self.move_up(directory.as_fd(), &entry)?,
                }
            }
        }
        drop(directory);
        rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
            .map_err(|errno| fault(errno, "remove", &path))
    }

    /// Removes one entry; `false` if it is a directory that is not empty. The kind in the listing
    /// only decides what is tried first.
    fn remove(
        &self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        kind: FileType,
    ) -> Result<bool, RunError> {
        if kind != FileType::Directory {
            match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => return Ok(true),
                Err(Errno::ISDIR) => {}
                Err(errno) => return Err(self.entry_fault(errno, "remove", name)),
            }
        }
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(errno) => Err(self.entry_fault(errno, "remove", name)),
        }
    }

    fn move_up(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<(), RunError> {
        let mut permitted = false;
        for _ in 0..NAME_ATTEMPTS_MAX {
            self.moved += 1;
            let target = format!(".moved-{}", self.moved);
            let flags = RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(parent, name, &self.top, &*target, flags) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => {}
                // Its entry `..` changes, for which it must be writable.
                Err(Errno::ACCESS) if !permitted => {
                    permit(parent, name)
                        .map_err(|errno| self.entry_fault(errno, "change", name))?;
                    permitted = true;
                }
                Err(errno) => return Err(self.entry_fault(errno, "move", name)),
            }
        }
        Err(self.entry_fault(Errno::EXIST, "move", name))
    }

    fn batch(
        &self,
        directory: BorrowedFd<'_>,
        path: &Path,
    ) -> Result<Vec<(CString, FileType)>, RunError> {
        let listing = Dir::read_from(directory).map_err(|errno| fault(errno, "list", path))?;
        let mut names = Vec::new();
        for entry in listing {
            let entry = entry.map_err(|errno| fault(errno, "list", path))?;
            if !is_dots(entry.file_name()) {
                names.push((entry.file_name().to_owned(), entry.file_type()));
            }
            if names.len() >= BATCH_ENTRIES {
                break;
            }
        }
        Ok(names)
    }

    fn entry_fault(&self, errno: Errno, doing: &'static str, name: &CStr) -> RunError {
        fault(errno, doing, &self.path.join(lossy(name)))
    }
}

pub(crate) fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// Opens a directory so that it can be read and emptied, by its owner, whatever
/// its mode: overlayfs leaves `work/work` with mode 000.
fn open_for_deletion(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let directory = match open_directory(parent, name, OFlags::RDONLY) {
        Err(Errno::ACCESS) => {
            permit(parent, name)?;
            open_directory(parent, name, OFlags::RDONLY)?
        }
        other => other?,
    };
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&directory)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        rustix::fs::fchmod(&directory, Mode::RWXU)?;
    }
    Ok(directory)
}

/// Gives the owner all rights to a directory that cannot be opened. It goes through `/proc`,
/// because there is no `fchmodat` that does not follow links on all kernels, and `fchmod` refuses
/// such a descriptor.
fn permit(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let directory = open_directory(parent, name, OFlags::PATH)?;
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    rustix::fs::chmod(link, Mode::RWXU)
}

fn fault(errno: Errno, doing: &'static str, path: &Path) -> RunError {
    match errno {
        Errno::XDEV | Errno::BUSY => RunError::Mounted(path.to_owned()),
        errno => FileFault::on(doing, path)(io::Error::from(errno)).into(),
    }
}

fn lossy(name: &CStr) -> PathBuf {
    PathBuf::from(name.to_string_lossy().into_owned())
}
