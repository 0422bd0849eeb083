//! Lists a file tree, and reads its contents. No link is followed, and no name is used twice where it
//! could mean another thing the second time: files are opened first, and then looked at.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::buffer::spare_capacity;
use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, Statx, StatxAttributes, StatxFlags, fgetxattr,
    flistxattr, flistxattr_query, openat2, readlinkat, statx,
};
use rustix::io::Errno;

use super::contents::{Contents, digest};
use super::manifest::{Entry, Header, Kind, Manifest, Name};
use crate::Error;

const ATTEMPTS: usize = 5;
const THREADS_MAX: usize = 8;
const ATTRIBUTES_BYTES_MAX: usize = 1 << 16;

/// The directory that a target lies in, opened without following a link.
pub(crate) struct Base {
    directory: OwnedFd,
    path: PathBuf,
    /// The name of the target in it.
    pub name: Name,
}

/// A directory that is open, and a name in it.
pub(crate) struct Place {
    pub directory: OwnedFd,
    pub name: Vec<u8>,
}

impl Base {
    pub fn open(target: &Path) -> Result<Self, Error> {
        let path = target.parent().unwrap_or(target);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let directory = openat2(CWD, path, flags, Mode::empty(), resolve)
            .map_err(Error::on("open without following links", path))?;
        let name = target.file_name().unwrap_or_default();
        Ok(Self {
            directory,
            path: path.to_owned(),
            name: Name(name.as_bytes().to_vec()),
        })
    }

    pub fn path(&self, name: &Name) -> PathBuf {
        self.path.join(std::ffi::OsStr::from_bytes(&name.0))
    }

    pub fn open_at(&self, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let resolve =
            ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::BENEATH;
        openat2(&self.directory, name, flags, Mode::empty(), resolve)
    }

    pub fn place(&self, path: &Name) -> Result<Place, Errno> {
        let (parent, name) = path.split();
        Ok(Place {
            directory: self.open_at(parent, OFlags::RDONLY | OFlags::DIRECTORY)?,
            name: name.to_vec(),
        })
    }
}

/// Returns the state of a name without its content; `None` if there is nothing.
pub(crate) fn look(directory: impl AsFd, name: &[u8]) -> Result<Option<Entry>, Errno> {
    let Some(facts) = facts(&directory, name)? else {
        return Ok(None);
    };
    let mut entry = Entry::of(&facts);
    if entry.kind == Kind::Link {
        entry.link = match readlinkat(&directory, name, Vec::new()) {
            Ok(link) => Some(Name(link.into_bytes())),
            Err(Errno::NOENT | Errno::INVAL) => return Ok(None),
            Err(error) => return Err(error),
        };
    }
    Ok(Some(entry))
}

fn facts(directory: impl AsFd, name: &[u8]) -> Result<Option<Statx>, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    match statx(directory, name, flags, StatxFlags::BASIC_STATS) {
        Ok(facts) => Ok(Some(facts)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A path and its state. `entry` is `None` once it has gone.
pub(crate) struct Found {
    pub path: Name,
    pub entry: Option<Entry>,
}

/// Lists all of the target, without contents.
pub(crate) fn list(base: &Base) -> Result<Vec<Found>, Error> {
    let refused = |path: &Name| {
        let path = base.path(path);
        move |error: Errno| Error::on("list", &path)(error)
    };
    let mut found = Vec::new();
    let mut pending = Vec::new();
    let mut add = |path: Name, entry: Entry, pending: &mut Vec<Name>| {
        if entry.is_directory() {
            pending.push(path.clone());
        }
        found.push(Found {
            path,
            entry: Some(entry),
        });
    };
    if let Some(root) = look(&base.directory, &base.name.0).map_err(refused(&base.name))? {
        add(base.name.clone(), root, &mut pending);
    }
    while let Some(path) = pending.pop() {
        let opened = match base.open_at(&path.0, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            other => other.map_err(refused(&path))?,
        };
        let mut listing = Dir::new(opened).map_err(refused(&path))?;
        while let Some(item) = listing.read() {
            let item = item.map_err(refused(&path))?;
            let name = item.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let child = path.child(name);
            let directory = listing.fd().map_err(refused(&path))?;
            let attributes = facts(directory, name).map_err(refused(&child))?;
            if attributes.is_some_and(|of| of.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
            {
                return Err(Error::Mount(base.path(&child)));
            }
            if let Some(entry) = look(directory, name).map_err(refused(&child))? {
                add(child, entry, &mut pending);
            }
        }
    }
    Ok(found)
}

/// Lists some paths, without contents.
pub(crate) fn list_some(base: &Base, paths: Vec<Name>) -> Result<Vec<Found>, Error> {
    let found = paths.into_iter().map(|path| {
        let entry = match base.place(&path) {
            Ok(place) => look(&place.directory, &place.name),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(error),
        };
        let entry = entry.map_err(Error::on("read", &base.path(&path)))?;
        Ok(Found { path, entry })
    });
    found.collect()
}

/// Reads of those listed what is not known: digests and attributes. With `keep` all contents are
/// read, and kept there.
pub(crate) fn fill(
    base: &Base,
    found: Vec<Found>,
    known: &[&Manifest],
    keep: Option<&Contents>,
) -> Result<Manifest, Error> {
    let header = Header::now();
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<Found>, Error> {
        let mut filled = Vec::new();
        while let Some(one) = found.get(next.fetch_add(1, Ordering::Relaxed)) {
            let entry = one.entry.clone();
            let entry = entry.map(|entry| fill_one(base, &one.path, entry, known, keep));
            filled.push(Found {
                path: one.path.clone(),
                entry: entry.transpose()?.flatten(),
            });
        }
        Ok(filled)
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let filled = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.min(THREADS_MAX))
            .map(|_| scope.spawn(work))
            .collect();
        let joined = workers.into_iter().map(|worker| {
            let ended = worker.join();
            ended.unwrap_or_else(|_| Err(Error::damaged(&base.path, "a thread has failed")))
        });
        joined.collect::<Result<Vec<_>, _>>()
    })?;
    let entries = filled.into_iter().flatten();
    Ok(Manifest {
        header,
        entries: entries
            .filter_map(|one| Some((one.path, one.entry?)))
            .collect(),
    })
}

fn fill_one(
    base: &Base,
    path: &Name,
    entry: Entry,
    known: &[&Manifest],
    keep: Option<&Contents>,
) -> Result<Option<Entry>, Error> {
    if matches!(entry.kind, Kind::Link | Kind::Special) {
        return Ok(Some(entry));
    }
    if keep.is_none() || entry.is_directory() {
        let unchanged = known.iter().find_map(|one| one.unchanged(path, &entry));
        if let Some(known) = unchanged {
            return Ok(Some(known.clone()));
        }
    }
    let opened = match base.open_at(&path.0, OFlags::RDONLY) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        other => other.map_err(Error::on("read", &base.path(path)))?,
    };
    match read(File::from(opened), keep) {
        Ok(Some(read)) if read.kind == entry.kind => Ok(Some(read)),
        Ok(_) => Err(Error::Unsteady(base.path(path))),
        Err(error) => Err(Error::on("read", &base.path(path))(error)),
    }
}

/// Returns the whole state of a file or directory; `None` if it changes all the time.
fn read(file: File, keep: Option<&Contents>) -> io::Result<Option<Entry>> {
    let facts = || statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    let mut entry = Entry::of(&facts()?);
    for _ in 0..ATTEMPTS {
        if entry.kind == Kind::File {
            entry.digest = match keep {
                Some(contents) => contents.put(&file, entry.size).map(Some),
                None => digest(&file).map(|hash| Some(hash.to_hex().to_string())),
            }?;
        }
        entry.attributes = attributes(&file)?;
        let later = Entry::of(&facts()?);
        if entry.is_untouched(&later) {
            return Ok(Some(entry));
        }
        entry = later;
    }
    Ok(None)
}

/// Returns the whole state of a name now, its content read again.
pub(crate) fn state(place: &Place, name: &[u8]) -> io::Result<Option<Entry>> {
    let Some(entry) = look(&place.directory, name)? else {
        return Ok(None);
    };
    if matches!(entry.kind, Kind::Link | Kind::Special) {
        return Ok(Some(entry));
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::openat(&place.directory, name, flags, Mode::empty())?;
    let read = read(File::from(opened), None)?;
    read.map(Some)
        .ok_or_else(|| io::Error::other("it changes while it is read"))
}

/// Returns the attributes that go with a content: those of users, access lists, and capabilities.
pub(crate) fn attributes(file: &File) -> io::Result<BTreeMap<Name, Name>> {
    let bytes = match flistxattr_query(file) {
        Ok(0) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(BTreeMap::new()),
        other => other?,
    };
    let mut names = Vec::with_capacity(bytes);
    flistxattr(file, spare_capacity(&mut names))?;
    let carried = |name: &&[u8]| {
        name.starts_with(b"user.")
            || name.starts_with(b"system.posix_acl_")
            || *name == b"security.capability"
    };
    let names = names.split(|byte| *byte == 0).filter(carried);
    let read = names.map(|name| {
        let mut value = Vec::with_capacity(ATTRIBUTES_BYTES_MAX);
        fgetxattr(file, name, spare_capacity(&mut value))?;
        Ok((Name(name.to_vec()), Name(value)))
    });
    read.collect()
}
