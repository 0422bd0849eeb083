//! The host's end of a sandbox's file server: files described, changed, opened and watched.
//!
//! A regular file comes out, checked here; everything else that the server says is output of
//! the sandbox. A server that says nothing in time, or what is not understood, counts as gone.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use atoll_guest::{Answer, Ask, Change, Entry, FileUse, TELL_BYTES_MAX};
use atoll_sys::{descriptor, socket};
use rustix::fs::{FileType, fstat, fstatfs};
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};

use crate::reports::discard;

/// The longest time for an answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);
/// The most entries of one list, and the paths in it, bytes.
const ENTRIES_MAX: usize = 100_000;
const LIST_BYTES_MAX: usize = 2 << 20;

/// The file systems whose files the host reads and writes like the sandbox would: no others, since
/// files of /proc, /sys and such act on who uses them (statfs(2)).
const FILE_SYSTEMS: [i64; 8] = [
    0x794c_7630, // overlayfs
    0x0102_1994, // tmpfs
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0x2fc1_2fc1, // ZFS
    0xf2f5_2010, // F2FS
    0xe0f5_e1e2, // EROFS
];

/// A file server of a sandbox, for one caller at a time.
#[derive(Debug)]
pub struct FileServer {
    requests: OwnedFd,
}

/// A watched directory of a sandbox.
#[derive(Debug)]
pub struct FileWatch {
    requests: OwnedFd,
}

/// A change in a watched directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The kind.
    pub change: Change,
    /// The path, relative to the watched directory.
    pub name: Vec<u8>,
    /// True if changes before this one were lost.
    pub lost: bool,
}

impl FileServer {
    /// Begins with the socket of a server's requests.
    #[must_use]
    pub fn new(requests: OwnedFd) -> Self {
        Self { requests }
    }

    /// Describes a file.
    ///
    /// # Errors
    /// The sandbox's kernel's; `BrokenPipe` or `TimedOut` where the server is gone.
    pub fn stat(&self, path: &Path) -> io::Result<Entry> {
        self.one(&Ask::Stat { path: bytes(path)? })
    }

    /// Describes what is in a directory, so many levels deep.
    ///
    /// # Errors
    /// As of [`FileServer::stat`].
    pub fn list(&self, path: &Path, depth: u32) -> io::Result<Vec<Entry>> {
        let path = bytes(path)?;
        self.ask(&Ask::List { path, depth })?;
        let (mut all, mut bytes, mut count) = (Vec::new(), 0, 0);
        let size = |entry: &Entry| entry.path.len() + entry.target.as_ref().map_or(0, Vec::len);
        loop {
            match hear(&self.requests)?.0 {
                Answer::Entries { entries, more } if count <= ENTRIES_MAX => {
                    count += entries.len();
                    bytes += entries.iter().map(size).sum::<usize>();
                    // All of it is heard, so that the next answer is that of the next question.
                    if bytes <= LIST_BYTES_MAX {
                        all.extend(entries);
                    }
                    match more {
                        true => {}
                        false if bytes > LIST_BYTES_MAX => {
                            return Err(io::ErrorKind::ArgumentListTooLong.into());
                        }
                        false => return Ok(all),
                    }
                }
                other => return Err(strange(&other)),
            }
        }
    }

    /// Makes a directory, and those above it.
    ///
    /// # Errors
    /// As of [`FileServer::stat`]; `AlreadyExists` for a directory, `NotADirectory` for a file.
    pub fn make_directory(&self, path: &Path) -> io::Result<Entry> {
        self.one(&Ask::MakeDirectory { path: bytes(path)? })
    }

    /// Moves a file or directory; what is in its new place is replaced.
    ///
    /// # Errors
    /// As of [`FileServer::stat`].
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<Entry> {
        let (from, to) = (bytes(from)?, bytes(to)?);
        self.one(&Ask::Move { from, to })
    }

    /// Removes a file, or a directory with all in it; a missing one is removed already.
    ///
    /// # Errors
    /// As of [`FileServer::stat`].
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        self.ask(&Ask::Remove { path: bytes(path)? })?;
        match hear(&self.requests)?.0 {
            Answer::Done => Ok(()),
            other => Err(strange(&other)),
        }
    }

    /// Opens a regular file. `writing` empties it first, or makes it with these permission bits.
    ///
    /// # Errors
    /// As of [`FileServer::stat`]; `InvalidInput` for what is no regular file.
    pub fn open(&self, path: &Path, writing: Option<u16>) -> io::Result<File> {
        let file_use = writing.map_or(FileUse::Read, FileUse::Write);
        let path = bytes(path)?;
        self.ask(&Ask::Open { path, file_use })?;
        match hear(&self.requests)? {
            (Answer::File, Some(file)) => {
                check(&file)?;
                Ok(file.into())
            }
            (other, _) => Err(strange(&other)),
        }
    }

    /// Connects to a port of the sandbox's own loopback, whichever family listens there.
    ///
    /// # Errors
    /// As of [`FileServer::stat`]; `ConnectionRefused` where nothing listens.
    pub fn connect(&self, port: u16) -> io::Result<TcpStream> {
        let first = self.dial((Ipv4Addr::LOCALHOST, port).into());
        first.or_else(|refused| {
            let second = self.dial((Ipv6Addr::LOCALHOST, port).into());
            second.map_err(|_| refused)
        })
    }

    /// Connects to an address, as a program of the sandbox does.
    ///
    /// # Errors
    /// As of [`FileServer::connect`].
    pub fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.ask(&Ask::Connect { address })?;
        match hear(&self.requests)? {
            (Answer::Connection, Some(socket)) => {
                check_connection(&socket)?;
                Ok(socket.into())
            }
            (other, _) => Err(strange(&other)),
        }
    }

    /// Watches a directory from now on. The server serves nothing else any more.
    ///
    /// # Errors
    /// As of [`FileServer::stat`]; `NotADirectory`.
    pub fn watch(self, path: &Path, recursive: bool) -> io::Result<FileWatch> {
        let path = bytes(path)?;
        self.ask(&Ask::Watch { path, recursive })?;
        match hear(&self.requests)?.0 {
            Answer::Done => Ok(FileWatch {
                requests: self.requests,
            }),
            other => Err(strange(&other)),
        }
    }

    fn one(&self, ask: &Ask) -> io::Result<Entry> {
        self.ask(ask)?;
        match hear(&self.requests)?.0 {
            Answer::Entries {
                mut entries,
                more: false,
            } => entries.pop().ok_or_else(|| strange(&Answer::Done)),
            other => Err(strange(&other)),
        }
    }

    fn ask(&self, ask: &Ask) -> io::Result<()> {
        socket::send(self.requests.as_fd(), &ask.to_bytes(), &[])
    }
}

impl FileWatch {
    /// Returns the descriptor that becomes readable when there is a change, or the sandbox is gone.
    #[must_use]
    pub fn descriptor(&self) -> &OwnedFd {
        &self.requests
    }

    /// Takes every change until now.
    ///
    /// # Errors
    /// `BrokenPipe`, `TimedOut`: the sandbox is gone.
    pub fn changes(&self) -> io::Result<Vec<FileChange>> {
        let any = Ask::Stat {
            path: b"/".to_vec(),
        };
        socket::send(self.requests.as_fd(), &any.to_bytes(), &[])?;
        let mut changes = Vec::new();
        loop {
            match hear(&self.requests)?.0 {
                Answer::Done => return Ok(changes),
                Answer::Changed { change, name, lost } if changes.len() < ENTRIES_MAX => {
                    changes.push(FileChange { change, name, lost });
                }
                other => return Err(strange(&other)),
            }
        }
    }
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = path.as_os_str().as_bytes();
    let is_path = path.is_absolute() && bytes.len() <= 4096 && !bytes.contains(&0);
    match is_path {
        true => Ok(bytes.to_vec()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a path in a sandbox is absolute, and 4,096 bytes long at most",
        )),
    }
}

/// Waits for an answer, with the file that comes with it.
fn hear(requests: &OwnedFd) -> io::Result<(Answer, Option<OwnedFd>)> {
    let until = Instant::now() + ANSWERED_WITHIN;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
        match descriptor::wait_readable([Some(requests.as_fd())], Some(left))? {
            [true] => break,
            [false] if left == 0 => return Err(io::ErrorKind::TimedOut.into()),
            [false] => {}
        }
    }
    let mut buffer = vec![0_u8; TELL_BYTES_MAX];
    let (got, mut descriptors) = socket::receive(requests.as_fd(), &mut buffer)?;
    let file = descriptors.pop();
    discard(descriptors);
    match buffer.get(..got) {
        None | Some([]) => Err(io::ErrorKind::BrokenPipe.into()),
        Some(message) => match Answer::from_bytes(message) {
            Ok(answer @ (Answer::File | Answer::Connection)) => Ok((answer, file)),
            Ok(answer) => {
                discard(file.into_iter().collect());
                Ok((answer, None))
            }
            Err(error) => {
                discard(file.into_iter().collect());
                Err(io::Error::new(io::ErrorKind::BrokenPipe, error))
            }
        },
    }
}

/// Returns the error of an answer that is not the one asked for.
fn strange(answer: &Answer) -> io::Error {
    match answer {
        Answer::Failed { error } => io::Error::from_raw_os_error(*error),
        _ => io::Error::new(
            io::ErrorKind::BrokenPipe,
            "the file server is not understood",
        ),
    }
}

/// Checks that a descriptor from inside is a connection by TCP, and that closing it never waits.
fn check_connection(socket: &OwnedFd) -> io::Result<()> {
    let is_stream = sockopt::socket_type(socket)? == SocketType::STREAM;
    let is_tcp = sockopt::socket_protocol(socket)? == Some(ipproto::TCP);
    let family = sockopt::socket_domain(socket)?;
    let is_internet = [AddressFamily::INET, AddressFamily::INET6].contains(&family);
    if !(is_stream && is_tcp && is_internet) {
        let why = "it is no connection by TCP";
        return Err(io::Error::new(io::ErrorKind::BrokenPipe, why));
    }
    Ok(sockopt::set_socket_linger(socket, None)?)
}

/// Checks that a descriptor from inside is a regular file of a file system whose files are mere
/// content.
fn check(file: &OwnedFd) -> io::Result<()> {
    let is_regular = FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::RegularFile;
    #[allow(clippy::unnecessary_cast)]
    let system = fstatfs(file)?.f_type as i64;
    if !is_regular || !FILE_SYSTEMS.contains(&system) {
        let why = "it is no regular file of an ordinary file system";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(())
}
