//! Archives, opened in memory and within bounds, for all scanners: each says what it makes of an entry.

use std::io::{Cursor, Read};

use zip::ZipArchive;
use zip::result::ZipError;

use crate::streams::Stream;
use crate::{CONTENT_BYTES_MAX, Unscanned};

/// The most archives within each other.
const DEPTH_MAX: usize = 3;
/// The most entries of an archive.
const ENTRIES_MAX: usize = 10_000;
/// The most bytes that all of a content unpacks to.
const UNPACKED_BYTES_MAX: u64 = 4 * CONTENT_BYTES_MAX as u64;
/// The most bytes that a byte unpacks to, beyond [`SMALL_BYTES`].
const RATIO_MAX: u64 = 100;
const SMALL_BYTES: u64 = 1 << 20;
/// The first bytes of archives that nothing here reads.
const UNKNOWN: [(&[u8], &str); 8] = [
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "rar"),
    (b"MSCF\0\0\0\0", "cab"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"LZIP\x01", "lzip"),
    (b"\x1f\x9d", "compress"),
    (b"\xed\xab\xee\xdb", "rpm"),
    (b"hsqs", "squashfs"),
];

/// An entry of an archive, before it is unpacked.
pub(crate) struct Entry<'a> {
    /// The place of its archive; empty for the outermost.
    pub(crate) within: &'a str,
    pub(crate) name: &'a str,
    pub(crate) kind: EntryKind,
    /// The target of a link, where the archive's head has it.
    pub(crate) target: Option<&'a str>,
}

/// The kind of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File,
    Directory,
    Link,
    Special,
}

/// A reason why something of an archive is not looked at, or not to be trusted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Archives in archives, too deep.
    Depth,
    /// Too many entries.
    Entries,
    /// Growth without bounds.
    Growth,
    /// An entry that needs a password.
    Encrypted,
    /// Entries that have bytes in common: each of them is looked at.
    Overlap,
}

/// A scanner of what archives hold.
pub(crate) trait Visitor {
    /// Looks at the head of an entry.
    fn entry(&mut self, _entry: &Entry<'_>) {}

    /// Looks at a content: first the outermost, whose place is empty. `is_archive` is set where its
    /// entries follow.
    fn content(&mut self, place: &str, content: &[u8], is_archive: bool) -> Result<(), Unscanned>;

    /// Takes note of what is not looked at.
    fn bound(&mut self, bound: Bound, place: &str) -> Result<(), Unscanned>;
}

/// Has a visitor look at a content and, where it is an archive, at all that is in it.
pub(crate) fn visit(content: &[u8], visitor: &mut dyn Visitor) -> Result<(), Unscanned> {
    let mut walk = Walk {
        visitor,
        unpacked: 0,
    };
    walk.content(content, "", 0)
}

struct Walk<'v> {
    visitor: &'v mut dyn Visitor,
    /// The bytes that were unpacked.
    unpacked: u64,
}

/// The form of an archive, by its first bytes.
enum Form {
    Zip,
    Tar,
    Stream(Stream),
    Unknown(&'static str),
}

impl Form {
    fn of(content: &[u8]) -> Option<Self> {
        if content.starts_with(b"PK\x03\x04") || content.starts_with(b"PK\x05\x06") {
            return Some(Self::Zip);
        }
        if content.get(257..262) == Some(b"ustar") {
            return Some(Self::Tar);
        }
        let unknown = UNKNOWN
            .iter()
            .find(|(first, _)| content.starts_with(first))
            .map(|(_, name)| Self::Unknown(name));
        unknown.or_else(|| Stream::of(content).map(Self::Stream))
    }
}

impl Walk<'_> {
    fn content(&mut self, content: &[u8], place: &str, depth: usize) -> Result<(), Unscanned> {
        let form = Form::of(content);
        self.visitor.content(place, content, form.is_some())?;
        let Some(form) = form else { return Ok(()) };
        match form {
            // Nobody has looked inside: that is no pass.
            Form::Unknown(form) => Err(Unscanned::Unreadable(format!("nothing here reads {form}"))),
            _ if depth >= DEPTH_MAX => self.visitor.bound(Bound::Depth, place),
            Form::Zip => self.zip(content, place, depth),
            Form::Tar => self.tar(content, place, depth),
            Form::Stream(stream) => {
                let packed = content.len() as u64;
                match self.unpack(stream.reader(content), packed, place)? {
                    Some(inner) => self.content(&inner, place, depth + 1),
                    None => Ok(()),
                }
            }
        }
    }

    fn zip(&mut self, content: &[u8], within: &str, depth: usize) -> Result<(), Unscanned> {
        let archive = ZipArchive::new(Cursor::new(content));
        let mut archive = archive.map_err(|error| unreadable(&error))?;
        if archive.len() > ENTRIES_MAX {
            return self.visitor.bound(Bound::Entries, within);
        }
        let mut places: Vec<(u64, u64)> = Vec::new();
        for index in 0..archive.len() {
            let entry = match archive.by_index_raw(index) {
                Ok(entry) => entry,
                Err(error) => return Err(unreadable(&error)),
            };
            let (name, packed) = (entry.name().to_owned(), entry.compressed_size());
            let start = entry.data_start().unwrap_or(entry.header_start());
            places.push((start, start.saturating_add(packed)));
            let mode = entry.unix_mode().unwrap_or(0) & 0o170_000;
            let kind = match mode {
                _ if entry.is_symlink() => EntryKind::Link,
                0 | 0o100_000 | 0o040_000 if entry.is_file() => EntryKind::File,
                0 | 0o100_000 | 0o040_000 => EntryKind::Directory,
                _ => EntryKind::Special,
            };
            // A link's target is its content, and other kinds may have some as well.
            let (is_encrypted, has_content) = (entry.encrypted(), !entry.is_dir());
            drop(entry);
            self.visitor.entry(&Entry {
                within,
                name: &name,
                kind,
                target: None,
            });
            let place = joined(within, &name);
            if is_encrypted {
                self.visitor.bound(Bound::Encrypted, &place)?;
            } else if has_content {
                let entry = archive.by_index(index);
                let entry = entry.map_err(|error| unreadable(&error))?;
                if let Some(inner) = self.unpack(entry, packed, &place)? {
                    self.content(&inner, &place, depth + 1)?;
                }
            }
        }
        places.sort_unstable();
        let overlaps = |pair: &[(u64, u64)]| matches!(pair, [one, other] if one.1 > other.0);
        match places.windows(2).any(overlaps) {
            true => self.visitor.bound(Bound::Overlap, within),
            false => Ok(()),
        }
    }

    fn tar(&mut self, content: &[u8], within: &str, depth: usize) -> Result<(), Unscanned> {
        let wrong = |error: std::io::Error| Unscanned::Unreadable(error.to_string());
        let mut archive = tar::Archive::new(content);
        for (count, entry) in archive.entries().map_err(wrong)?.enumerate() {
            let entry = entry.map_err(wrong)?;
            if count >= ENTRIES_MAX {
                return self.visitor.bound(Bound::Entries, within);
            }
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let (kind, size) = (entry.header().entry_type(), entry.size());
            let target = entry
                .link_name_bytes()
                .map(|to| String::from_utf8_lossy(&to).into_owned());
            let kind = if kind.is_symlink() || kind.is_hard_link() {
                EntryKind::Link
            } else if kind.is_file() || kind.is_contiguous() {
                EntryKind::File
            } else if kind.is_dir() {
                EntryKind::Directory
            } else {
                EntryKind::Special
            };
            self.visitor.entry(&Entry {
                within,
                name: &name,
                kind,
                target: target.as_deref(),
            });
            let place = joined(within, &name);
            if kind == EntryKind::File
                && let Some(inner) = self.unpack(entry, size, &place)?
            {
                self.content(&inner, &place, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Unpacks an entry; `None` where it grows beyond bounds, which is noted.
    fn unpack(
        &mut self,
        from: impl Read,
        packed: u64,
        place: &str,
    ) -> Result<Option<Vec<u8>>, Unscanned> {
        let most = packed.saturating_mul(RATIO_MAX).max(SMALL_BYTES);
        let left = UNPACKED_BYTES_MAX.saturating_sub(self.unpacked);
        let bound = most.min(left).min(CONTENT_BYTES_MAX as u64);
        let mut unpacked = Vec::new();
        let read = from.take(bound + 1).read_to_end(&mut unpacked);
        read.map_err(|error| Unscanned::Unreadable(format!("{}: {error}", place.escape_debug())))?;
        self.unpacked += unpacked.len() as u64;
        if unpacked.len() as u64 > bound {
            self.visitor.bound(Bound::Growth, place)?;
            return Ok(None);
        }
        Ok(Some(unpacked))
    }
}

/// Returns the place of an entry.
fn joined(within: &str, name: &str) -> String {
    match within.is_empty() {
        true => name.to_owned(),
        false => format!("{within}: {name}"),
    }
}

fn unreadable(error: &ZipError) -> Unscanned {
    Unscanned::Unreadable(error.to_string())
}

#[cfg(test)]
mod tests;
