//! The state of a file tree: one entry for each path.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Statx};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::target::{escape, unescape};

/// A file whose inode changed as shortly before it was listed may change again with the same times.
const RACY: Duration = Duration::from_millis(100);

/// A path below the directory that the target is in, or the name of an attribute, or its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct Name(pub Vec<u8>);

impl Name {
    pub fn child(&self, name: &[u8]) -> Self {
        Self([&self.0, b"/".as_slice(), name].concat())
    }

    /// Returns the path of its directory, `.` for that of the target, and its last name.
    pub fn split(&self) -> (&[u8], &[u8]) {
        let at = self.0.iter().rposition(|byte| *byte == b'/');
        let split = at.and_then(|at| Some((self.0.get(..at)?, self.0.get(at + 1..)?)));
        split.unwrap_or((b".", &self.0))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        escape(&name.0, |byte| {
            (b' '..=b'~').contains(&byte) && byte != b'%'
        })
    }
}

impl TryFrom<String> for Name {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        unescape(&text)
            .map(Self)
            .ok_or("a name is not escaped as it should be")
    }
}

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    File,
    Directory,
    Link,
    /// A socket, pipe or device: noted, and never made.
    Special,
}

/// The state of one path. Two of them are equal where a restore would change nothing: times, and the
/// number of the inode, do not count.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub kind: Kind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    /// Nanoseconds since 1970.
    pub mtime: i64,
    pub ctime: i64,
    pub inode: u64,
    /// The BLAKE3 digest of a file's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The target of a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Name>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<Name, Name>,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        let facts = |of: &Self| (of.kind, of.mode, of.uid, of.gid);
        facts(self) == facts(other)
            && self.digest == other.digest
            && self.link == other.link
            && self.attributes == other.attributes
            // A special file made anew is another one.
            && (self.kind != Kind::Special || self.inode == other.inode)
    }
}

impl Entry {
    pub fn of(facts: &Statx) -> Self {
        let time = |seconds: i64, nanoseconds: u32| {
            seconds
                .saturating_mul(1_000_000_000)
                .saturating_add(nanoseconds.into())
        };
        let mode = u32::from(facts.stx_mode);
        let kind = match FileType::from_raw_mode(mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Link,
            _ => Kind::Special,
        };
        Self {
            kind,
            mode: mode & 0o7777,
            uid: facts.stx_uid,
            gid: facts.stx_gid,
            size: facts.stx_size,
            mtime: time(facts.stx_mtime.tv_sec, facts.stx_mtime.tv_nsec),
            ctime: time(facts.stx_ctime.tv_sec, facts.stx_ctime.tv_nsec),
            inode: facts.stx_ino,
            digest: None,
            link: None,
            attributes: BTreeMap::new(),
        }
    }

    pub fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Returns whether nothing was written between two looks at the same inode.
    pub fn is_untouched(&self, later: &Self) -> bool {
        let facts = |of: &Self| (of.kind, of.inode, of.size, of.mtime, of.ctime);
        facts(self) == facts(later)
    }
}

/// The state of a file tree, or of some paths in it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub header: Header,
    pub entries: BTreeMap<Name, Entry>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Header {
    /// The time when listing began, nanoseconds since 1970.
    pub at: i64,
    /// Set if only some paths of the tree count: those of this manifest and of its pair.
    pub is_partial: bool,
}

impl Header {
    pub fn now() -> Self {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            at: i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
            is_partial: false,
        }
    }
}

impl Manifest {
    /// Returns the entry of a path whose content is still that of a file as found now.
    pub fn unchanged(&self, path: &Name, found: &Entry) -> Option<&Entry> {
        let racy = i64::try_from(RACY.as_nanos()).unwrap_or(i64::MAX);
        let entry = self.entries.get(path)?;
        (entry.is_untouched(found) && entry.ctime < self.header.at.saturating_sub(racy))
            .then_some(entry)
    }

    pub fn write(&self, path: &Path) -> Result<(), Error> {
        crate::write_json(self, path)
    }

    /// Reads one; `None` if there is none.
    pub fn read(path: &Path) -> Result<Option<Self>, Error> {
        match crate::read_json(path) {
            Err(Error::File { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }
}
