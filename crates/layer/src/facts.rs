//! Metadata of one entry, as the kernel gives it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, SystemTime};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::layer::XattrFlavour;
use crate::path::Bytes;

/// An entry's type, of all there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharacterDevice,
    BlockDevice,
    Unknown,
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::CharacterDevice => Self::CharacterDevice,
            FileType::BlockDevice => Self::BlockDevice,
            FileType::Unknown => Self::Unknown,
        }
    }
}

/// One entry's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub kind: Kind,
    /// Permission and special bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub bytes: u64,
    pub device: u64,
    pub inode: u64,
    pub links: u64,
    /// The device number, for a device.
    pub device_number: u64,
    pub modified: Time,
    pub changed: Time,
}

// The fields' types differ from one architecture to the next.
#[allow(clippy::unnecessary_cast)]
impl From<&Stat> for Facts {
    fn from(stat: &Stat) -> Self {
        Self {
            kind: Kind::from(FileType::from_raw_mode(stat.st_mode)),
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            bytes: stat.st_size as u64,
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            links: stat.st_nlink as u64,
            device_number: stat.st_rdev as u64,
            modified: Time {
                seconds: stat.st_mtime as i64,
                nanoseconds: stat.st_mtime_nsec as u32,
            },
            changed: Time {
                seconds: stat.st_ctime as i64,
                nanoseconds: stat.st_ctime_nsec as u32,
            },
        }
    }
}

impl Facts {
    /// Returns the stamp that identifies this state.
    pub fn stamp(&self) -> Stamp {
        Stamp {
            device: self.device,
            inode: self.inode,
            mode: self.mode | (self.kind as u32) << 16,
            bytes: self.bytes,
            links: self.links,
            modified: self.modified,
            changed: self.changed,
        }
    }

    /// Returns the device and inode.
    pub fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Returns the name of its type, for people.
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Symlink => "symbolic link",
            Kind::Fifo => "FIFO",
            Kind::Socket => "socket",
            Kind::CharacterDevice | Kind::BlockDevice => "device",
            Kind::Unknown => "entry of an unknown type",
        }
    }

    /// Returns whether the inode changed after a point in time.
    pub fn changed_after(&self, time: SystemTime) -> bool {
        self.changed.system() > time
    }
}

/// The identity of a state of an entry on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    pub device: u64,
    pub inode: u64,
    /// Type and permissions.
    pub mode: u32,
    pub bytes: u64,
    pub links: u64,
    pub modified: Time,
    pub changed: Time,
}

impl Stamp {
    /// Returns whether an entry is still in this state. For a directory only identity and
    /// permissions count; its entries are checked on their own. For a file with several names the
    /// change time does not count either: replacing one name changes it for the others.
    pub fn holds(&self, now: &Self) -> bool {
        let timeless = self.is_directory() || self.links > 1;
        self.holds_after_rename(now) && (timeless || self.changed == now.changed)
    }

    /// As [`Stamp::holds`] but for the change time, which a rename moves on.
    pub fn holds_after_rename(&self, now: &Self) -> bool {
        let same = self.same_entry(now) && self.mode == now.mode;
        same && (self.is_directory() || (self.bytes == now.bytes && self.modified == now.modified))
    }

    /// Returns whether it is the same inode of the same type.
    pub fn same_entry(&self, now: &Self) -> bool {
        self.device == now.device && self.inode == now.inode && self.mode >> 16 == now.mode >> 16
    }

    /// Returns whether the stamp is that of a directory.
    pub fn is_directory(&self) -> bool {
        self.mode >> 16 == Kind::Directory as u32
    }
}

/// A point in time, as the kernel stamps entries with it: since the epoch. It is recorded as a
/// pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(i64, u32)", into = "(i64, u32)")]
pub(crate) struct Time {
    pub seconds: i64,
    pub nanoseconds: u32,
}

impl Time {
    /// Returns the present.
    pub fn now() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap_or_default();
        Self {
            seconds: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: now.subsec_nanos(),
        }
    }

    /// Converts it for the standard library.
    pub fn system(self) -> SystemTime {
        let rest = Duration::from_nanos(u64::from(self.nanoseconds));
        let whole = Duration::from_secs(self.seconds.unsigned_abs());
        let base = if self.seconds >= 0 {
            SystemTime::UNIX_EPOCH.checked_add(whole)
        } else {
            SystemTime::UNIX_EPOCH.checked_sub(whole)
        };
        base.and_then(|base| base.checked_add(rest))
            .unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

impl From<(i64, u32)> for Time {
    fn from(pair: (i64, u32)) -> Self {
        let (seconds, nanoseconds) = pair;
        Self {
            seconds,
            nanoseconds,
        }
    }
}

impl From<Time> for (i64, u32) {
    fn from(time: Time) -> Self {
        (time.seconds, time.nanoseconds)
    }
}

/// The extended attributes of an open file or directory, sorted by their treatment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Xattrs {
    /// Attributes that belong to the file and are carried over.
    pub own: Vec<(Bytes, Bytes)>,
    /// The access control lists: the host's are kept, a layer's never carried over.
    pub lists: Vec<(Bytes, Bytes)>,
    /// The file capabilities: kept for originals, refused from a layer.
    pub capability: Option<Bytes>,
    /// The attributes of overlayfs itself, by the name behind the prefix.
    pub overlay: Vec<(Vec<u8>, Vec<u8>)>,
    /// Attributes that look like those of overlayfs but are not: kept for originals, never carried
    /// over from a layer.
    pub posing: Vec<(Bytes, Bytes)>,
    /// Other attributes that confer rights: refused.
    pub foreign: Vec<Vec<u8>>,
}

impl Xattrs {
    /// Returns the value of one of overlayfs' own attributes.
    pub fn overlay(&self, name: &str) -> Option<&[u8]> {
        self.overlay
            .iter()
            .find(|(note, _)| note == name.as_bytes())
            .map(|(_, value)| value.as_slice())
    }
}

/// Reads the extended attributes. `flavour` is given for upper directories only:
/// everywhere else nothing is overlayfs' own.
pub(crate) fn xattrs(
    file: impl AsFd,
    flavour: Option<XattrFlavour>,
    bytes_max: usize,
) -> io::Result<Xattrs> {
    let file = file.as_fd();
    let mut sorted = Xattrs::default();
    let mut bytes = 0;
    for name in list(file)? {
        let value = get(file, &name)?;
        bytes += name.len() + value.len();
        if bytes > bytes_max {
            return Err(io::Error::other("too many extended attributes"));
        }
        sort(&mut sorted, flavour, name, value);
    }
    Ok(sorted)
}

fn sort(sorted: &mut Xattrs, flavour: Option<XattrFlavour>, name: Vec<u8>, value: Vec<u8>) {
    let user = name.strip_prefix(b"user.overlay.");
    let trusted = name.strip_prefix(b"trusted.overlay.");
    let own_note = match flavour {
        Some(XattrFlavour::User) => user,
        Some(XattrFlavour::Trusted) => trusted,
        None => None,
    };
    match own_note {
        Some(note) if !note.starts_with(b"overlay.") => {
            sorted.overlay.push((note.to_vec(), value));
            return;
        }
        _ => {}
    }
    if is_note(&name) {
        sorted.posing.push((Bytes(name), Bytes(value)));
    } else if name.starts_with(b"user.") {
        sorted.own.push((Bytes(name), Bytes(value)));
    } else if name.starts_with(b"system.posix_acl_") {
        sorted.lists.push((Bytes(name), Bytes(value)));
    } else if name == b"security.capability" {
        sorted.capability = Some(Bytes(value));
    } else if name.starts_with(b"trusted.") {
        sorted.foreign.push(name);
    }
    // Other security.* and system.* attributes are labels that the host's kernel
    // gives by its own rules (SELinux, IMA, NFS): neither read nor written.
}

/// Returns whether overlayfs could take an attribute of this name for its own.
pub(crate) fn is_note(name: &[u8]) -> bool {
    name.starts_with(b"user.overlay.") || name.starts_with(b"trusted.overlay.")
}

fn list(file: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    let mut size = 0;
    for _ in 0..8 {
        let mut buffer = vec![0; size + 256];
        match rustix::fs::flistxattr(file, &mut buffer) {
            Err(Errno::RANGE) => size = rustix::fs::flistxattr_query(file)?,
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
            Ok(length) => {
                buffer.truncate(length);
                let names = buffer.split(|byte| *byte == 0);
                return Ok(names
                    .filter(|name| !name.is_empty())
                    .map(<[u8]>::to_vec)
                    .collect());
            }
        }
    }
    Err(Errno::RANGE.into())
}

fn get(file: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<u8>> {
    let mut size = 0;
    for _ in 0..8 {
        let mut buffer = vec![0; size + 256];
        match rustix::fs::fgetxattr(file, name, &mut buffer) {
            Err(Errno::RANGE) => size = rustix::fs::fgetxattr_query(file, name)?,
            Err(error) => return Err(error.into()),
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
        }
    }
    Err(Errno::RANGE.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_recorded_as_a_pair() {
        let time = Time {
            seconds: -1,
            nanoseconds: 5,
        };
        assert_eq!(serde_json::to_string(&time).unwrap(), "[-1,5]");
        assert_eq!(serde_json::from_str::<Time>("[-1,5]").unwrap(), time);
    }
}
