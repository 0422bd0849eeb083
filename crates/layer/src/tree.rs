//! A directory tree by its descriptor. Every look-up starts at the root's
//! descriptor and refuses symbolic links, so that no entry in a hostile tree, and
//! no race on the host, leads out of it. Paths of any length work: directories are
//! opened in stretches that fit the kernel's limit.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use crate::RelativePath;
use crate::error::TreeError;
use crate::facts::{Facts, Kind, Time};
use crate::modes::Noted;

/// The longest path opened at once, bytes. The kernel takes paths of up to 4,095 bytes.
const STRETCH_BYTES_MAX: usize = 3_000;
/// The most retries of a resolution, which a rename elsewhere on the file system can make ambiguous
/// for a moment.
const RETRIES_MAX: usize = 100;
/// The errors that tell something of the entry itself.
const TELLING: [Errno; 10] = [
    Errno::NOENT,
    Errno::NOTDIR,
    Errno::LOOP,
    Errno::ACCESS,
    Errno::PERM,
    Errno::XDEV,
    Errno::NODATA,
    Errno::OPNOTSUPP,
    Errno::NAMETOOLONG,
    Errno::INVAL,
];

/// A tree, held by its root.
#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
    /// For messages only, never opened again.
    name: String,
    /// The modes to report, for entries that were opened up to be read.
    noted: Noted,
    /// The directory whose entries were looked up last, where it is remembered.
    last: Option<Mutex<Last>>,
    /// The entries that could not be looked at for a reason that is none of theirs, as an error of
    /// the disk: what was read says less than there is.
    faults: Mutex<BTreeMap<RelativePath, Errno>>,
}

/// A directory that is open for look-ups.
type Last = Option<(RelativePath, Arc<OwnedFd>)>;

impl Tree {
    /// Opens a tree. The path of its root is Atoll's or the person's and trusted.
    pub fn open(path: &Path) -> Result<Self, TreeError> {
        let root = rustix::fs::open(
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|error| TreeError::new("cannot open", path.display(), error))?;
        Ok(Self::of(root, path))
    }

    fn of(root: OwnedFd, path: &Path) -> Self {
        Self {
            root,
            name: path.display().to_string(),
            noted: Noted::default(),
            last: None,
            faults: Mutex::default(),
        }
    }

    /// Returns the entries that could not be looked at, with the kernel's error.
    pub fn faults(&self) -> BTreeMap<RelativePath, Errno> {
        let faults = self.faults.lock();
        faults.map_or_else(
            |broken| broken.into_inner().clone(),
            |faults| faults.clone(),
        )
    }

    /// Notes an error that says nothing of the entry itself.
    pub fn noting<T>(&self, path: &RelativePath, done: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &done
            && let Some(errno) = Errno::from_io_error(error)
            && !TELLING.contains(&errno)
            && let Ok(mut faults) = self.faults.lock()
        {
            faults.insert(path.clone(), errno);
        }
        done
    }

    /// Opens the tree after of a layer, with the modes recorded beside it.
    pub fn open_layer(path: &Path) -> Result<Self, TreeError> {
        // First the notes: what is opened up later than this is not read wrongly, since
        // whoever reads at that time looks for new notes at the end.
        let noted = Noted::read(path)?;
        Ok(Self {
            noted,
            ..Self::open(path)?
        })
    }

    /// Opens a tree whose root may be unreadable, for look-ups beneath it.
    pub fn open_for_lookups(path: &Path) -> Result<Self, TreeError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|error| TreeError::new("cannot open", path.display(), error))?;
        Ok(Self::of(root, path))
    }

    /// As [`Tree::open_for_lookups`], by a path on which no symbolic link may be.
    pub fn open_without_links(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let root = rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve)?;
        Ok(Self::of(root, path))
    }

    /// Corrects an entry of this tree, looked at by name, to the mode to report.
    pub fn corrected(&self, facts: Facts) -> Facts {
        self.noted.correct(facts)
    }

    /// Returns the root's descriptor.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Returns an error about one entry.
    pub fn error(
        &self,
        doing: &'static str,
        path: &RelativePath,
        source: impl Into<io::Error>,
    ) -> TreeError {
        TreeError::new(doing, format!("{}/{path}", self.name), source)
    }

    /// Opens a directory for reading.
    pub fn directory(&self, path: &RelativePath) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.noting(path, self.open_stretched(path, flags))
    }

    /// Opens a directory for looking up entries only: that needs no right to read it.
    pub fn place(&self, path: &RelativePath) -> io::Result<OwnedFd> {
        self.noting(path, self.open_place(path))
    }

    fn open_place(&self, path: &RelativePath) -> io::Result<OwnedFd> {
        self.open_stretched(path, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// Opens the directory that holds an entry.
    pub fn place_of(&self, path: &RelativePath) -> io::Result<Arc<OwnedFd>> {
        let directory = path.parent().unwrap_or_default();
        let mut last = (self.last.as_ref()).and_then(|last| last.lock().ok());
        if let Some((at, place)) = last.as_ref().and_then(|last| last.as_ref())
            && *at == directory
        {
            return Ok(Arc::clone(place));
        }
        let place = Arc::new(self.noting(path, self.open_place(&directory))?);
        if let Some(last) = last.as_mut() {
            **last = Some((directory, Arc::clone(&place)));
        }
        Ok(place)
    }

    /// Keeps the directory open in which entries were looked up last, and does not resolve its path
    /// again for the next ones: for trees that are only read, and in which no program works.
    pub fn remembering(self) -> Self {
        let last = Some(Mutex::default());
        Self { last, ..self }
    }

    /// Returns the entry at the path; `None` when there is none, or when the path lies beneath
    /// something that is not a directory.
    pub fn facts(&self, path: &RelativePath) -> io::Result<Option<Facts>> {
        if path.is_root() {
            return Ok(Some(Facts::from(&rustix::fs::fstat(&self.root)?)));
        }
        let place = match self.place_of(path) {
            Ok(place) => place,
            Err(error) if is_absence(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let facts = self.noting(path, facts_at(place.as_fd(), path.name()))?;
        Ok(facts.map(|facts| self.corrected(facts)))
    }

    /// Returns whether an entry exists; true also when it cannot be looked at.
    pub fn may_have(&self, path: &RelativePath) -> bool {
        !matches!(self.facts(path), Ok(None))
    }

    /// Returns the time at which an entry was created, where the file system records it; else that
    /// of its last change.
    pub fn born(&self, path: &RelativePath) -> io::Result<Time> {
        let (born, changed) = self.born_and_changed(path)?;
        Ok(born.unwrap_or(changed))
    }

    /// Returns the time at which an entry was created, where the file system records it, and that
    /// of its last change.
    pub fn born_and_changed(&self, path: &RelativePath) -> io::Result<(Option<Time>, Time)> {
        let place = self.place_of(path)?;
        let (flags, wanted) = (
            AtFlags::SYMLINK_NOFOLLOW,
            StatxFlags::BTIME | StatxFlags::CTIME,
        );
        let facts = rustix::fs::statx(place, os(path.name()), flags, wanted);
        let facts = self.noting(path, facts.map_err(io::Error::from))?;
        let known = StatxFlags::from_bits_retain(facts.stx_mask).contains(StatxFlags::BTIME);
        let [born, changed] = [facts.stx_btime, facts.stx_ctime].map(|time| Time {
            seconds: time.tv_sec,
            nanoseconds: time.tv_nsec,
        });
        Ok((known.then_some(born), changed))
    }

    /// Opens a regular file for reading, and nothing but a regular file: opening
    /// a FIFO would block, opening a device can act.
    pub fn file(&self, path: &RelativePath) -> io::Result<(File, Facts)> {
        let place = self.place_of(path)?;
        self.noting(path, file_at(place.as_fd(), path.name()))
    }

    /// Opens an entry so that everything is read from one and the same inode, whatever takes its
    /// place meanwhile. `within` is the directory that it has to be in.
    pub fn entry(
        &self,
        path: &RelativePath,
        within: Option<(u64, u64)>,
    ) -> io::Result<(OwnedFd, Facts)> {
        self.noting(path, self.open_entry(path, within))
    }

    fn open_entry(
        &self,
        path: &RelativePath,
        within: Option<(u64, u64)>,
    ) -> io::Result<(OwnedFd, Facts)> {
        if path.is_root() {
            let root = self.directory(path)?;
            let facts = Facts::from(&rustix::fs::fstat(&root)?);
            return Ok((root, facts));
        }
        let place = self.place_of(path)?;
        let identity = Facts::from(&rustix::fs::fstat(&place)?).identity();
        if within.is_some_and(|within| within != identity) {
            return Err(io::Error::other("its directory was replaced meanwhile"));
        }
        let (place, name) = (place.as_fd(), path.name());
        let seen = facts_at(place, name)?.ok_or(Errno::NOENT)?;
        let opened = match seen.kind {
            Kind::File => OwnedFd::from(file_at(place, name)?.0),
            Kind::Directory => open_beneath(place, name, OFlags::RDONLY | OFlags::DIRECTORY)?,
            _ => handle_at(place, name)?,
        };
        let facts = Facts::from(&rustix::fs::fstat(&opened)?);
        if facts.kind != seen.kind {
            return Err(io::Error::other("it was replaced meanwhile"));
        }
        Ok((opened, self.corrected(facts)))
    }

    /// Returns the target of a symbolic link.
    pub fn link_target(&self, path: &RelativePath) -> io::Result<Vec<u8>> {
        let place = self.place_of(path)?;
        let target = rustix::fs::readlinkat(place, OsStr::from_bytes(path.name()), Vec::new());
        let target = self.noting(path, target.map_err(io::Error::from))?;
        Ok(target.into_bytes())
    }

    /// Returns the names in a directory, sorted; none when there is no such directory.
    pub fn names(&self, path: &RelativePath) -> io::Result<Vec<Vec<u8>>> {
        match self.directory(path) {
            Ok(directory) => self.noting(path, names_in(directory.as_fd())),
            Err(error) if is_absence(&error) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Opens an entry, whatever it is, without any effect on it.
    pub fn handle(&self, path: &RelativePath) -> io::Result<OwnedFd> {
        if path.is_root() {
            // Even `.` cannot be looked up in a directory that is closed.
            return self.root.try_clone();
        }
        self.noting(path, handle_at(self.place_of(path)?.as_fd(), path.name()))
    }

    fn open_stretched(&self, path: &RelativePath, last: OFlags) -> io::Result<OwnedFd> {
        let mut stretches: Vec<Vec<u8>> = vec![Vec::new()];
        for name in path.components() {
            let full = stretches
                .last()
                .is_some_and(|stretch| stretch.len() + name.len() + 1 > STRETCH_BYTES_MAX);
            if full {
                stretches.push(Vec::new());
            }
            if let Some(stretch) = stretches.last_mut() {
                if !stretch.is_empty() {
                    stretch.push(b'/');
                }
                stretch.extend_from_slice(name);
            }
        }
        let count = stretches.len();
        let mut at: Option<OwnedFd> = None;
        for (index, stretch) in stretches.iter().enumerate() {
            let flags = if index + 1 == count {
                last
            } else {
                OFlags::PATH | OFlags::DIRECTORY
            };
            let from = at.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
            at = Some(open_beneath(from, stretch, flags)?);
        }
        at.ok_or_else(|| io::Error::from(Errno::NOENT))
    }
}

fn open_beneath(from: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    for _ in 0..RETRIES_MAX {
        match rustix::fs::openat2(
            from,
            OsStr::from_bytes(path),
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        ) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(directory) => return Ok(directory),
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::AGAIN.into())
}

/// Returns the entry at a name, never following it.
pub(crate) fn facts_at(place: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Facts>> {
    match rustix::fs::statat(place, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(Facts::from(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens an entry by name, whatever it is, without any effect on it.
pub(crate) fn handle_at(place: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(place, os(name), flags, Mode::empty())?)
}

/// Opens a regular file by name.
pub(crate) fn file_at(place: BorrowedFd<'_>, name: &[u8]) -> io::Result<(File, Facts)> {
    let name = OsStr::from_bytes(name);
    let not_a_file = || io::Error::other("not a regular file");
    let stat = rustix::fs::statat(place, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if Facts::from(&stat).kind != Kind::File {
        return Err(not_a_file());
    }
    // The look before does not bind: these flags make a swapped-in FIFO or
    // terminal harmless, and the second look finds it.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::openat(place, name, flags | OFlags::CLOEXEC, Mode::empty())?;
    let facts = Facts::from(&rustix::fs::fstat(&file)?);
    if facts.kind != Kind::File {
        return Err(not_a_file());
    }
    Ok((File::from(file), facts))
}

/// Returns the names in an open directory, sorted.
pub(crate) fn names_in(directory: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    let mut buffer = vec![MaybeUninit::<u8>::uninit(); 32 << 10];
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Returns the names in an open directory with their types, in the directory's order.
pub(crate) fn kinds_in(directory: BorrowedFd<'_>) -> io::Result<Vec<(Vec<u8>, Kind)>> {
    let mut found = Vec::new();
    let mut buffer = vec![MaybeUninit::<u8>::uninit(); 32 << 10];
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        // Not every file system tells it here.
        let kind = match Kind::from(entry.file_type()) {
            Kind::Unknown => facts_at(directory, name)?.map(|facts| facts.kind),
            known => Some(known),
        };
        found.extend(kind.map(|kind| (name.to_vec(), kind)));
    }
    Ok(found)
}

/// Returns whether an error means that there is nothing at a path: no entry, or something above it
/// that is not a directory.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    [Errno::NOENT, Errno::NOTDIR, Errno::LOOP]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Converts a name or path for system calls.
pub(crate) fn os(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

/// Converts a path to stored bytes.
pub(crate) fn path_bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().to_os_string().into_vec()
}
