//! The index of overlayfs: the content of files with several names that were changed through one of
//! them. The index has it even when that name is gone, and it shows under all others. It is in the
//! work directory, where the kernel alone writes; it is still read as if others could.

use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use atoll_sys::handle;

use crate::facts::{Facts, Kind};
use crate::tree::{Tree, names_in};
use crate::{ReadError, RelativePath};

/// The index's name in the work directory.
const INDEX: &[u8] = b"index";
/// The length of the head of an entry's name, bytes: version, magic number, length, flags, type and
/// the file system's UUID (`struct ovl_fb` of the kernel's fs/overlayfs/overlayfs.h).
const HEAD_BYTES: usize = 21;
const VERSION: u8 = 0;
const MAGIC: u8 = 0xfb;

/// A file of the tree before: the type of its handle and the handle.
type Key = (u8, Vec<u8>);

/// The files of the tree before that were copied up with all of their names.
#[derive(Debug)]
pub(crate) struct Index {
    /// The work directory.
    tree: Tree,
    /// The paths of the copies within it.
    copies: HashMap<Key, RelativePath>,
    /// The mount of the tree before: an overlay shows nothing that is mounted on it.
    mount: i32,
}

/// The copied-up files that a work directory records.
#[derive(Debug)]
pub(crate) enum Indexed {
    /// No file was copied up with its names.
    Nothing,
    /// Some were.
    Some(Box<Index>),
    /// Some may have been; the error says why that is unknown.
    Unknown(io::Error),
}

impl Indexed {
    /// Reads the work directory of an overlay over `before`.
    ///
    /// # Errors
    /// When it has more entries than `entries_max`.
    pub fn read(work: &Path, before: &Tree, entries_max: u64) -> Result<Self, ReadError> {
        let tree = match Tree::open_for_lookups(work) {
            Ok(tree) => tree,
            Err(error) => return Ok(Self::Unknown(error.source)),
        };
        let directory = RelativePath::root().join(INDEX).unwrap_or_default();
        let listed = tree.directory(&directory);
        let names = match listed.and_then(|opened| names_in(opened.as_fd())) {
            Ok(names) => names,
            // Overlayfs could keep none here.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Nothing),
            Err(error) => return Ok(Self::Unknown(error)),
        };
        if names.len() as u64 > entries_max {
            return Err(ReadError::TooManyEntries { entries_max });
        }
        let copies: HashMap<Key, RelativePath> = names
            .iter()
            .filter_map(|name| Some((key(name)?, directory.join(name).ok()?)))
            .collect();
        if copies.is_empty() {
            return Ok(Self::Nothing);
        }
        Ok(match handle::of(before.root(), c".") {
            Ok(root) => Self::Some(Box::new(Index {
                tree,
                copies,
                mount: root.mount,
            })),
            Err(error) => Self::Unknown(error),
        })
    }
}

impl Index {
    /// Returns the copy of a file of the tree before, if there is one: its path in [`Index::tree`],
    /// and its metadata.
    ///
    /// # Errors
    /// When the file system does not say which file it is, or the copy cannot be read or
    /// is no file.
    pub fn copy_of(
        &self,
        place: BorrowedFd<'_>,
        name: &[u8],
    ) -> io::Result<Option<(RelativePath, Facts)>> {
        let handle = handle::of(place, &CString::new(name)?)?;
        let kind = u8::try_from(handle.kind).ok();
        let key = kind.map(|kind| (kind, handle.bytes));
        let Some(at) = key.and_then(|key| self.copies.get(&key)) else {
            return Ok(None);
        };
        if handle.mount != self.mount {
            return Ok(None);
        }
        match self.tree.facts(at)? {
            Some(facts) if facts.kind == Kind::File => Ok(Some((at.clone(), facts))),
            _ => Err(io::Error::other("overlayfs' copy of it is not a file")),
        }
    }

    /// As [`Index::copy_of`], by path.
    ///
    /// # Errors
    /// As [`Index::copy_of`].
    pub fn has_copy_of(&self, before: &Tree, path: &RelativePath) -> io::Result<bool> {
        let place = before.place_of(path)?;
        Ok(self.copy_of(place.as_fd(), path.name())?.is_some())
    }

    /// Returns the work directory.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }
}

/// Parses an entry's name. Only the entries of files are of this form, and overlayfs writes each
/// name in one way only.
fn key(name: &[u8]) -> Option<Key> {
    let bytes = name
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect::<Option<Vec<u8>>>()?;
    let (head, handle) = bytes.split_at_checked(HEAD_BYTES)?;
    let [VERSION, MAGIC, length, _flags, kind, ..] = head else {
        return None;
    };
    let whole = usize::from(*length) == bytes.len() && !handle.is_empty();
    whole.then(|| (*kind, handle.to_vec()))
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_entries() {
        let name = |length: &str, rest: &str| {
            let uuid = "5e".repeat(16);
            key(format!("00fb{length}0001{uuid}{rest}").as_bytes())
        };
        assert_eq!(name("1d", "0102030405060708"), Some((1, (1..9).collect())));
        for (length, rest) in [
            ("1c", "0102030405060708"),
            ("1d", "010203040506070"),
            ("1d", "01020304050607AB"),
            ("15", ""),
        ] {
            assert_eq!(name(length, rest), None, "{length} {rest}");
        }
        for text in ["", "#12", "00", "00fb", "work", "00fc1d00"] {
            assert_eq!(key(text.as_bytes()), None, "{text}");
        }
    }
}
