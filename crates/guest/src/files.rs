//! The operations on files, each by one path after the other, with the sandbox's own rights.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_frame::wire::Writer;

use crate::message::ENTRIES_BYTES;
use crate::{Answer, Ask, EISDIR, ENOTDIR, Entry, EntryKind, FileUse, tell};

/// The mode of directories that are made.
const DIRECTORY_MODE: u32 = 0o755;
/// The most levels that are listed.
const DEPTH_MAX: u32 = 64;
/// The most entries of one list.
const ENTRIES_MAX: usize = 100_000;

/// The longest time for a program to take a connection.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);

const ETIMEDOUT: i32 = 110;
const EXDEV: i32 = 18;
const E2BIG: i32 = 7;

/// Carries out a request and answers it.
pub(crate) fn carry_out(to: &OwnedFd, ask: Ask) -> io::Result<()> {
    let one = |entry: Entry| {
        let entries = vec![entry];
        tell(
            to,
            &Answer::Entries {
                entries,
                more: false,
            },
            None,
        )
    };
    match ask {
        Ask::Stat { path } => one(entry(path_of(path))?),
        Ask::List { path, depth } => list(to, &path_of(path), depth.clamp(1, DEPTH_MAX)),
        Ask::MakeDirectory { path } => {
            let path = path_of(path);
            make_directory(&path)?;
            one(entry(path)?)
        }
        Ask::Move { from, to } => {
            let to = path_of(to);
            move_to(&path_of(from), &to)?;
            one(entry(to)?)
        }
        Ask::Remove { path } => {
            remove(&path_of(path))?;
            tell(to, &Answer::Done, None)
        }
        Ask::Open { path, file_use } => {
            let file = open(&path_of(path), file_use)?;
            tell(to, &Answer::File, Some(&file.into()))
        }
        Ask::Connect { address } => {
            let connection = connect(address)?;
            tell(to, &Answer::Connection, Some(&connection.into()))
        }
        // Not here: it answers more than once.
        Ask::Watch { .. } => Err(ErrorKind::InvalidInput.into()),
    }
}

pub(crate) fn path_of(path: Vec<u8>) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(path))
}

/// Describes a file.
fn entry(path: PathBuf) -> io::Result<Entry> {
    let facts = fs::symlink_metadata(&path)?;
    Ok(described(path, &facts))
}

fn described(path: PathBuf, own: &Metadata) -> Entry {
    let target = own.is_symlink().then(|| {
        let resolved = fs::canonicalize(&path).or_else(|_| fs::read_link(&path));
        resolved.unwrap_or_default()
    });
    let followed = target.as_ref().and_then(|_| fs::metadata(&path).ok());
    let facts = followed.as_ref().unwrap_or(own);
    let kind = facts.file_type();
    Entry {
        kind: if kind.is_file() {
            EntryKind::File
        } else if kind.is_dir() {
            EntryKind::Directory
        } else if kind.is_symlink() {
            EntryKind::Link
        } else {
            EntryKind::Other
        },
        size: facts.len(),
        mode: u16::try_from(facts.mode() & 0o7777).unwrap_or(0),
        uid: facts.uid(),
        gid: facts.gid(),
        modified_s: facts.mtime(),
        modified_ns: u32::try_from(facts.mtime_nsec()).unwrap_or(0),
        target: target.map(|target| target.into_os_string().into_vec()),
        path: path.into_os_string().into_vec(),
    }
}

/// Lists a directory depth first, in the order of names; links are not followed.
fn list(to: &OwnedFd, directory: &Path, depth: u32) -> io::Result<()> {
    let facts = fs::metadata(directory)?;
    if !facts.is_dir() {
        return Err(io::Error::from_raw_os_error(ENOTDIR));
    }
    let mut found = Listed {
        to,
        entries: Vec::new(),
        bytes: 0,
        count: 0,
    };
    found.take(directory, depth)?;
    found.flush(false)
}

/// The entries that are not sent yet.
struct Listed<'a> {
    to: &'a OwnedFd,
    entries: Vec<Entry>,
    bytes: usize,
    count: usize,
}

impl Listed<'_> {
    fn take(&mut self, directory: &Path, depth: u32) -> io::Result<()> {
        let mut names = Vec::new();
        for one in fs::read_dir(directory)? {
            names.push(one?.file_name());
            if names.len() + self.count > ENTRIES_MAX {
                return Err(io::Error::from_raw_os_error(E2BIG));
            }
        }
        names.sort();
        for name in names {
            let path = directory.join(name);
            // Some go while they are listed.
            let Ok(facts) = fs::symlink_metadata(&path) else {
                continue;
            };
            self.push(described(path.clone(), &facts))?;
            if facts.is_dir() && depth > 1 {
                match self.take(&path, depth - 1) {
                    Err(error) if error.raw_os_error() == Some(E2BIG) => return Err(error),
                    // What cannot be read is listed as it is.
                    Ok(()) | Err(_) => {}
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, entry: Entry) -> io::Result<()> {
        let mut encoded = Writer::default();
        entry.write(&mut encoded);
        self.count += 1;
        self.bytes += encoded.0.len();
        self.entries.push(entry);
        match self.bytes >= ENTRIES_BYTES {
            true => self.flush(true),
            false => Ok(()),
        }
    }

    fn flush(&mut self, more: bool) -> io::Result<()> {
        let entries = std::mem::take(&mut self.entries);
        self.bytes = 0;
        tell(self.to, &Answer::Entries { entries, more }, None)
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    make_above(path)?;
    match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && !path.is_dir() => {
            Err(io::Error::from_raw_os_error(ENOTDIR))
        }
        made => made,
    }
}

/// Makes the directories above a path.
fn make_above(path: &Path) -> io::Result<()> {
    let above = path.parent().unwrap_or(Path::new("/"));
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(DIRECTORY_MODE).create(above)
}

fn move_to(from: &Path, to: &Path) -> io::Result<()> {
    fs::symlink_metadata(from)?;
    make_above(to)?;
    match fs::rename(from, to) {
        Err(error) if error.raw_os_error() == Some(EXDEV) => {
            // Another file system in the sandbox: a copy, then the old one goes.
            copy(from, to)?;
            remove(from)
        }
        moved => moved,
    }
}

/// Copies a file, or a directory with all in it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let facts = fs::symlink_metadata(from)?;
    if facts.is_symlink() {
        return std::os::unix::fs::symlink(fs::read_link(from)?, to);
    }
    if facts.is_file() {
        return fs::copy(from, to).map(drop);
    }
    if !facts.is_dir() {
        return Err(ErrorKind::InvalidInput.into());
    }
    DirBuilder::new().mode(facts.mode() & 0o7777).create(to)?;
    for one in fs::read_dir(from)? {
        let name = one?.file_name();
        copy(&from.join(&name), &to.join(&name))?;
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(facts) if facts.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Opens a regular file without ever waiting.
fn open(path: &Path, file_use: FileUse) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let mut options = File::options();
    options.custom_flags(i32::try_from(flags.bits()).unwrap_or(0));
    let file = match file_use {
        FileUse::Read => options.read(true).open(path)?,
        FileUse::Write(mode) => {
            if path.as_os_str().as_bytes().ends_with(b"/") {
                return Err(io::Error::from_raw_os_error(EISDIR));
            }
            make_above(path)?;
            write(options.write(true), path, mode)?
        }
    };
    let facts = file.metadata()?;
    if facts.is_dir() {
        return Err(io::Error::from_raw_os_error(EISDIR));
    }
    if !facts.is_file() {
        return Err(ErrorKind::InvalidInput.into());
    }
    if matches!(file_use, FileUse::Write(_)) && facts.len() > 0 {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens a file to write, and makes it with exactly this mode if it is missing.
fn write(options: &mut OpenOptions, path: &Path, mode: u16) -> io::Result<File> {
    let mode = u32::from(mode);
    match options.clone().create_new(true).mode(mode).open(path) {
        Ok(made) => {
            made.set_permissions(fs::Permissions::from_mode(mode))?;
            Ok(made)
        }
        // It can be a link to a file that is missing.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            options.create(true).mode(mode).open(path)
        }
        Err(error) => Err(error),
    }
}

/// Connects to an address.
fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, CONNECTED_WITHIN).map_err(|error| {
        match error.raw_os_error() {
            Some(_) => error,
            // One that took too long has none.
            None => io::Error::from_raw_os_error(ETIMEDOUT),
        }
    })
}

/// Joins a name to the path of its directory.
pub(crate) fn below(directory: &Path, name: &[u8]) -> PathBuf {
    directory.join(OsStr::from_bytes(name))
}
