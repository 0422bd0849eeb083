//! The requests of the host side and the answers, in a fixed form with named limits.

use std::net::SocketAddr;

use atoll_frame::wire::{Malformed, Reader, Writer};

/// The longest path, bytes (PATH_MAX of limits.h).
const PATH_BYTES_MAX: usize = 4096;
/// The longest encoded [`Ask`], bytes: two paths, and a little.
pub const ASK_BYTES_MAX: usize = 2 * PATH_BYTES_MAX + 32;
/// The longest encoded [`Answer`], bytes.
pub const TELL_BYTES_MAX: usize = 64 * 1024;
/// The most bytes of entries in one answer, after which one more still fits.
pub(crate) const ENTRIES_BYTES: usize = 32 * 1024;

/// The use of a file that is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileUse {
    /// Reading.
    Read,
    /// Writing anew: an existing file is emptied, a missing one is made with these permission bits,
    /// with the directories above it.
    Write(u16),
}

/// A request to the file server. Paths are absolute in the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Describe a file: [`Answer::Entries`] with one.
    Stat {
        /// The file.
        path: Vec<u8>,
    },
    /// Describe what is in a directory, so many levels deep: [`Answer::Entries`], the last without
    /// `more`.
    List {
        /// The directory.
        path: Vec<u8>,
        /// The levels, at least 1.
        depth: u32,
    },
    /// Make a directory, and those above it: [`Answer::Entries`] with it.
    MakeDirectory {
        /// The directory.
        path: Vec<u8>,
    },
    /// Move a file or directory: [`Answer::Entries`] with it in its new place.
    Move {
        /// The old place.
        from: Vec<u8>,
        /// The new place; what is there is replaced.
        to: Vec<u8>,
    },
    /// Remove a file, or a directory with all in it: [`Answer::Done`], also if it is missing.
    Remove {
        /// The file or directory.
        path: Vec<u8>,
    },
    /// Open a regular file: [`Answer::File`] with it.
    Open {
        /// The file.
        path: Vec<u8>,
        /// The use.
        file_use: FileUse,
    },
    /// Connect to an address, as a program of the sandbox does: [`Answer::Connection`] with it.
    Connect {
        /// The address.
        address: SocketAddr,
    },
    /// Tell of every change in a directory: [`Answer::Done`] once that has begun, then
    /// [`Answer::Changed`] until the socket is closed. From then on whatever is asked here is
    /// answered by [`Answer::Done`] once all changes until now are told.
    Watch {
        /// The directory.
        path: Vec<u8>,
        /// True for the directories in it too, also new ones.
        recursive: bool,
    },
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum EntryKind {
    File,
    Directory,
    Link,
    Other,
}

/// The description of one file. Through a link it is that of the link's target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The path, as it was asked for or found.
    pub path: Vec<u8>,
    /// The kind; [`EntryKind::Link`] only for a link to nothing.
    pub kind: EntryKind,
    /// The size, bytes.
    pub size: u64,
    /// The permission bits, with set-user-id, set-group-id and sticky.
    pub mode: u16,
    /// The owner's number in the sandbox.
    pub uid: u32,
    /// The group's number in the sandbox.
    pub gid: u32,
    /// The time of the last change of its content: seconds since 1970.
    pub modified_s: i64,
    /// And nanoseconds.
    pub modified_ns: u32,
    /// Of a link: its target, resolved as far as it exists.
    pub target: Option<Vec<u8>>,
}

/// A change in a watched directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A file was made, or moved here.
    Created,
    /// A file's content was changed.
    Written,
    /// A file was removed.
    Removed,
    /// A file was moved away.
    Renamed,
    /// A file's mode, owner or times were changed.
    Attributes,
}

/// An answer of the file server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done.
    Done,
    /// Refused by the kernel, for this reason (errno(3)).
    Failed {
        /// The number.
        error: i32,
    },
    /// The regular file that comes with this.
    File,
    /// The connection that comes with this.
    Connection,
    /// Descriptions of files.
    Entries {
        /// The files.
        entries: Vec<Entry>,
        /// True if further ones follow in an answer of their own.
        more: bool,
    },
    /// A change in the watched directory.
    Changed {
        /// The kind.
        change: Change,
        /// The path, relative to the watched directory.
        name: Vec<u8>,
        /// True if changes before this one were lost, because nobody read them in time.
        lost: bool,
    },
}

impl Ask {
    /// Encodes the request.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Stat { path } => tagged(&mut out, 0, path),
            Self::List { path, depth } => {
                tagged(&mut out, 1, path);
                out.u32(*depth);
            }
            Self::MakeDirectory { path } => tagged(&mut out, 2, path),
            Self::Move { from, to } => {
                tagged(&mut out, 3, from);
                out.text(to);
            }
            Self::Remove { path } => tagged(&mut out, 4, path),
            Self::Open { path, file_use } => {
                tagged(&mut out, 5, path);
                match file_use {
                    FileUse::Read => out.u8(0),
                    FileUse::Write(mode) => {
                        out.u8(1);
                        out.u16(*mode);
                    }
                }
            }
            Self::Connect { address } => tagged(&mut out, 7, address.to_string().as_bytes()),
            Self::Watch { path, recursive } => {
                tagged(&mut out, 6, path);
                out.u8(u8::from(*recursive));
            }
        }
        out.0
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// [`Malformed`], also for a path that is not absolute or too long, and for mode bits other
    /// than those of permissions.
    pub fn from_bytes(message: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(message);
        let tag = from.u8()?;
        if tag == 7 {
            let text = String::from_utf8(from.text()?).map_err(|_| Malformed::Tag)?;
            let address = text.parse().map_err(|_| Malformed::Tag)?;
            return from.end().map(|()| Self::Connect { address });
        }
        let path = absolute(&mut from)?;
        let ask = match tag {
            0 => Self::Stat { path },
            1 => Self::List {
                path,
                depth: from.u32()?,
            },
            2 => Self::MakeDirectory { path },
            3 => Self::Move {
                from: path,
                to: absolute(&mut from)?,
            },
            4 => Self::Remove { path },
            5 => Self::Open {
                path,
                file_use: match from.u8()? {
                    0 => FileUse::Read,
                    1 => match from.u16()? {
                        mode @ 0..=0o777 => FileUse::Write(mode),
                        _ => return Err(Malformed::Tag),
                    },
                    _ => return Err(Malformed::Tag),
                },
            },
            6 => Self::Watch {
                path,
                recursive: from.flag()?,
            },
            _ => return Err(Malformed::Tag),
        };
        from.end().map(|()| ask)
    }
}

fn tagged(out: &mut Writer, tag: u8, path: &[u8]) {
    out.u8(tag);
    out.text(path);
}

fn absolute(from: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
    let path = from.text()?;
    match path.first() {
        _ if path.len() > PATH_BYTES_MAX => Err(Malformed::TooMany),
        Some(b'/') => Ok(path),
        _ => Err(Malformed::Tag),
    }
}

/// Reads a path that came out of the sandbox.
fn told_path(from: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
    let path = from.text()?;
    match path.len() {
        ..=PATH_BYTES_MAX => Ok(path),
        _ => Err(Malformed::TooMany),
    }
}

impl Entry {
    pub(crate) fn write(&self, out: &mut Writer) {
        out.text(&self.path);
        out.u8(match self.kind {
            EntryKind::File => 0,
            EntryKind::Directory => 1,
            EntryKind::Link => 2,
            EntryKind::Other => 3,
        });
        out.u64(self.size);
        out.u16(self.mode);
        out.u32(self.uid);
        out.u32(self.gid);
        out.u64(self.modified_s.cast_unsigned());
        out.u32(self.modified_ns);
        out.u8(u8::from(self.target.is_some()));
        if let Some(target) = &self.target {
            out.text(target);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            path: told_path(from)?,
            kind: match from.u8()? {
                0 => EntryKind::File,
                1 => EntryKind::Directory,
                2 => EntryKind::Link,
                3 => EntryKind::Other,
                _ => return Err(Malformed::Tag),
            },
            size: from.u64()?,
            mode: from.u16()?,
            uid: from.u32()?,
            gid: from.u32()?,
            modified_s: from.u64()?.cast_signed(),
            modified_ns: from.u32()?,
            target: match from.flag()? {
                true => Some(told_path(from)?),
                false => None,
            },
        })
    }
}

impl Change {
    const ALL: [Self; 5] = [
        Self::Created,
        Self::Written,
        Self::Removed,
        Self::Renamed,
        Self::Attributes,
    ];
}

impl Answer {
    /// Encodes the answer.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Done => out.u8(0),
            Self::Failed { error } => {
                out.u8(1);
                out.u32(error.cast_unsigned());
            }
            Self::File => out.u8(2),
            Self::Entries { entries, more } => {
                out.u8(3);
                out.list(entries, |out, entry| entry.write(out));
                out.u8(u8::from(*more));
            }
            Self::Changed { change, name, lost } => {
                out.u8(4);
                out.u8(*change as u8);
                out.text(name);
                out.u8(u8::from(*lost));
            }
            Self::Connection => out.u8(5),
        }
        out.0
    }

    /// Decodes an answer.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn from_bytes(message: &[u8]) -> Result<Self, Malformed> {
        if message.len() > TELL_BYTES_MAX {
            return Err(Malformed::TooMany);
        }
        let mut from = Reader::new(message);
        let answer = match from.u8()? {
            0 => Self::Done,
            1 => Self::Failed {
                error: from.u32()?.cast_signed(),
            },
            2 => Self::File,
            3 => Self::Entries {
                entries: from.list(Entry::read)?,
                more: from.flag()?,
            },
            4 => {
                let change = Change::ALL.get(usize::from(from.u8()?));
                Self::Changed {
                    change: *change.ok_or(Malformed::Tag)?,
                    name: told_path(&mut from)?,
                    lost: from.flag()?,
                }
            }
            5 => Self::Connection,
            _ => return Err(Malformed::Tag),
        };
        from.end().map(|()| answer)
    }
}
