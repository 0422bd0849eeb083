//! The files of a volume, read and written on the host, while programs that nobody trusts may change
//! them: every path is resolved beneath the volume's directory, and no link is followed, as in
//! openat2(2); only regular files and directories are ever opened.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use atoll_model::RESIDENT;
use atoll_store::remove_directory;
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Uid};
use rustix::io::Errno;

use super::paths::Within;

/// The most entries of a list.
const ENTRIES_MAX: usize = 10_000;
/// The mode of what is made where none is asked for.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;
/// The bits of a mode that are kept: none that gives a program another user's rights.
const MODE_BITS: u32 = 0o777;
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// The files of one volume.
#[derive(Debug)]
pub struct VolumeFiles {
    top: OwnedFd,
    staging: OwnedFd,
    staging_path: PathBuf,
    is_root: bool,
}

/// A file or directory in a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct VolumeEntry {
    /// From the volume's top on.
    pub path: String,
    /// `file`, `directory`, `symlink` or `unknown`.
    pub kind: &'static str,
    pub size: u64,
    /// The permission bits.
    pub mode: u32,
    /// The owner, as programs see it.
    pub uid: u32,
    pub gid: u32,
    /// Nanoseconds since 1970, as of the next two.
    pub accessed_ns: i128,
    pub modified_ns: i128,
    pub changed_ns: i128,
    /// Of a link: its target, to which nothing leads here.
    pub target: Option<String>,
}

/// The place of a file that was written.
#[derive(Clone, Debug)]
pub struct VolumeWrite {
    /// The path.
    pub path: String,
    /// The permission bits; those of any new file if `None`.
    pub mode: Option<u32>,
    /// False if there may be none of that name yet.
    pub replaces: bool,
}

/// A file that is being written, and not part of the volume yet.
#[derive(Debug)]
pub struct Staged {
    /// The file, from empty.
    pub file: File,
    name: String,
}

impl VolumeFiles {
    pub(super) fn open(files: &Path, staging: &Path, is_root: bool) -> io::Result<Self> {
        let open = |path: &Path| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty())
        };
        Ok(Self {
            top: open(files)?,
            staging: open(staging)?,
            staging_path: staging.to_path_buf(),
            is_root,
        })
    }

    /// Describes a file or directory; a link is itself.
    ///
    /// # Errors
    /// The kernel's, as of all that follow; `InvalidInput` for what is no regular file or directory,
    /// or is reached by a link.
    pub fn stat(&self, path: &str) -> io::Result<VolumeEntry> {
        let path = Within::parse(path)?;
        let place = self.place(&path)?;
        let target = rustix::fs::readlinkat(&place, "", Vec::new()).ok();
        let facts = rustix::fs::fstat(&place)?;
        Ok(self.entry(
            &path,
            &facts,
            target.map(|to| to.to_string_lossy().into_owned()),
        ))
    }

    /// Lists a directory, and those in it, so many levels deep.
    ///
    /// # Errors
    /// Also `ArgumentListTooLong`.
    pub fn list(&self, path: &str, depth: u32) -> io::Result<Vec<VolumeEntry>> {
        let top = Within::parse(path)?;
        let mut found = Vec::new();
        let mut waiting = vec![(top.clone(), depth.max(1))];
        while let Some((at, depth)) = waiting.pop() {
            let directory = match self.directory(&at) {
                // Gone, replaced or closed meanwhile.
                Err(_) if at != top => continue,
                opened => opened?,
            };
            let mut entries = Dir::read_from(&directory)?;
            while let Some(entry) = entries.read() {
                let entry = entry?;
                let name = entry.file_name();
                if [c".", c".."].contains(&name) {
                    continue;
                }
                let Ok(facts) = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
                else {
                    continue;
                };
                if found.len() >= ENTRIES_MAX {
                    return Err(io::ErrorKind::ArgumentListTooLong.into());
                }
                let target = rustix::fs::readlinkat(&directory, name, Vec::new()).ok();
                let target = target.map(|to| to.to_string_lossy().into_owned());
                let name = <OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name.to_bytes());
                let path = at.join(name);
                found.push(self.entry(&path, &facts, target));
                if depth > 1 && is(&facts, FileType::Directory) {
                    waiting.push((path, depth - 1));
                }
            }
        }
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    /// Opens a regular file to read it.
    ///
    /// # Errors
    /// As of [`VolumeFiles::stat`].
    pub fn read(&self, path: &str) -> io::Result<File> {
        let place = self.place(&Within::parse(path)?)?;
        match FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(io::ErrorKind::IsADirectory.into()),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
        // This file and no other, whatever has taken its name meanwhile.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(of_descriptor(&place), flags, Mode::empty())?.into())
    }

    /// Makes a directory, and those that it lies in if `parents`: then it may be there already.
    ///
    /// # Errors
    /// As of [`VolumeFiles::stat`].
    pub fn make_directory(
        &self,
        path: &str,
        mode: Option<u32>,
        parents: bool,
    ) -> io::Result<VolumeEntry> {
        let at = Within::parse(path)?;
        let mode = mode.unwrap_or(DIRECTORY_MODE) & MODE_BITS;
        let steps = at.steps();
        let above = steps.len().saturating_sub(1);
        for step in steps.iter().take(above).filter(|_| parents) {
            match self.make(step, DIRECTORY_MODE) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        match self.make(&at, mode) {
            Err(error) if parents && error.kind() == io::ErrorKind::AlreadyExists => {
                self.directory(&at).map(drop)?;
            }
            made => made?,
        }
        self.stat(path)
    }

    fn make(&self, path: &Within, mode: u32) -> io::Result<()> {
        if *path == Within::default() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (parent, name) = path.split()?;
        let parent = self.directory(&parent)?;
        rustix::fs::mkdirat(&parent, name, Mode::RWXU)?;
        let made = open_beneath(&parent, Path::new(name), DIRECTORY)?;
        self.give(&made)?;
        rustix::fs::fchmod(&made, Mode::from_raw_mode(mode))?;
        Ok(rustix::fs::fsync(parent)?)
    }

    /// Sets the permission bits of a file or directory.
    ///
    /// # Errors
    /// As of [`VolumeFiles::stat`].
    pub fn set_mode(&self, path: &str, mode: u32) -> io::Result<VolumeEntry> {
        let place = self.place(&Within::parse(path)?)?;
        let facts = rustix::fs::fstat(&place)?;
        if !is(&facts, FileType::RegularFile) && !is(&facts, FileType::Directory) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mode = Mode::from_raw_mode(mode & MODE_BITS);
        rustix::fs::chmod(of_descriptor(&place), mode)?;
        self.stat(path)
    }

    /// Removes a file, or a directory with all that is in it.
    ///
    /// # Errors
    /// As of [`VolumeFiles::stat`].
    pub fn remove(&self, path: &str, aside: &str) -> io::Result<()> {
        let at = Within::parse(path)?;
        let (parent, name) = at.split()?;
        let parent = self.directory(&parent)?;
        let facts = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if is(&facts, FileType::Directory) {
            if !self.is_root {
                // It takes the right to write to it (rename(2)).
                let place = self.place(&at)?;
                rustix::fs::chmod(of_descriptor(&place), Mode::RWXU)?;
            }
            rustix::fs::renameat(&parent, name, &self.staging, aside)?;
            rustix::fs::fsync(&parent)?;
            return self.discard(aside);
        }
        rustix::fs::unlinkat(&parent, name, AtFlags::empty())?;
        Ok(rustix::fs::fsync(parent)?)
    }

    /// Removes what has been put aside.
    fn discard(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.staging, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {
                let path = self.staging_path.join(name);
                remove_directory(&path).map_err(io::Error::other)
            }
            removed => Ok(removed?),
        }
    }

    /// Begins to write a file, under a name that nothing else has.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stage(&self, name: &str) -> io::Result<Staged> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.staging, name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Staged {
            file: file.into(),
            name: name.to_owned(),
        })
    }

    /// Gives up a file that was being written.
    pub fn abandon(&self, staged: &Staged) {
        let _ = rustix::fs::unlinkat(&self.staging, &staged.name, AtFlags::empty());
    }

    /// Puts a file that was written in its place: on disk when this returns, and either all of it or
    /// what was there before.
    ///
    /// # Errors
    /// As of [`VolumeFiles::stat`]; it is given up then.
    pub fn finish(&self, staged: &Staged, to: &VolumeWrite) -> io::Result<VolumeEntry> {
        let finished = self.put(staged, to);
        if finished.is_err() {
            self.abandon(staged);
        }
        finished?;
        self.stat(&to.path)
    }

    fn put(&self, staged: &Staged, to: &VolumeWrite) -> io::Result<()> {
        let path = Within::parse(&to.path)?;
        let (parent, name) = path.split()?;
        let parent = self.directory(&parent)?;
        self.give(&staged.file)?;
        let mode = Mode::from_raw_mode(to.mode.unwrap_or(FILE_MODE) & MODE_BITS);
        rustix::fs::fchmod(&staged.file, mode)?;
        staged.file.sync_all()?;
        let flags = match to.replaces {
            true => RenameFlags::empty(),
            false => RenameFlags::NOREPLACE,
        };
        rustix::fs::renameat_with(&self.staging, &staged.name, &parent, name, flags)?;
        Ok(rustix::fs::fsync(parent)?)
    }

    /// Gives what host root has made to the program's user.
    fn give(&self, made: impl AsFd) -> io::Result<()> {
        if !self.is_root {
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(RESIDENT.uid), Gid::from_raw(RESIDENT.gid));
        Ok(rustix::fs::fchown(made, Some(uid), Some(gid))?)
    }

    /// Finds a file, whatever it is, without opening it.
    fn place(&self, path: &Within) -> io::Result<OwnedFd> {
        open_beneath(&self.top, path.relative(), OFlags::PATH)
    }

    fn directory(&self, path: &Within) -> io::Result<OwnedFd> {
        open_beneath(&self.top, path.relative(), DIRECTORY)
    }

    fn entry(&self, path: &Within, facts: &Stat, target: Option<String>) -> VolumeEntry {
        let (own_uid, own_gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let seen = |id: u32, own: u32, resident: u32| match id == own && !self.is_root {
            true => resident,
            false => id,
        };
        let at = |seconds: i64, nanoseconds: u64| {
            i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
        };
        VolumeEntry {
            path: path.told(),
            kind: match FileType::from_raw_mode(facts.st_mode) {
                FileType::RegularFile => "file",
                FileType::Directory => "directory",
                FileType::Symlink => "symlink",
                _ => "unknown",
            },
            size: facts.st_size.unsigned_abs(),
            mode: facts.st_mode & 0o7777,
            uid: seen(facts.st_uid, own_uid.as_raw(), RESIDENT.uid),
            gid: seen(facts.st_gid, own_gid.as_raw(), RESIDENT.gid),
            accessed_ns: at(facts.st_atime, facts.st_atime_nsec),
            modified_ns: at(facts.st_mtime, facts.st_mtime_nsec),
            changed_ns: at(facts.st_ctime, facts.st_ctime_nsec),
            target: target.filter(|_| is(facts, FileType::Symlink)),
        }
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

fn open_beneath(top: &OwnedFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat2(top, path, flags, Mode::empty(), RESOLVE) {
        // A link, or a way that leads out.
        Err(Errno::LOOP | Errno::XDEV) => Err(io::ErrorKind::InvalidInput.into()),
        opened => Ok(opened?),
    }
}

/// Returns the name of exactly this file, whatever its own name leads to (proc(5)).
fn of_descriptor(place: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd()))
}

fn is(facts: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(facts.st_mode) == kind
}
