//! Archives: what they would write, and how much, without writing any of it.

use std::collections::HashSet;
use std::io::{Cursor, Read};

use flate2::read::MultiGzDecoder;
use zip::ZipArchive;
use zip::result::ZipError;

use crate::{CONTENT_BYTES_MAX, Finding, Unscanned};

/// The most archives within each other.
const DEPTH_MAX: usize = 3;
/// The most entries of an archive.
const ENTRIES_MAX: usize = 10_000;
/// The most bytes that all of a content unpacks to.
const UNPACKED_BYTES_MAX: u64 = 4 * CONTENT_BYTES_MAX as u64;
/// The most bytes that a byte unpacks to, beyond [`SMALL_BYTES`].
const RATIO_MAX: u64 = 100;
const SMALL_BYTES: u64 = 1 << 20;

pub(crate) fn scan(content: &[u8]) -> Result<Vec<Finding>, Unscanned> {
    let mut look = Look {
        found: Vec::new(),
        unpacked: 0,
        names: HashSet::new(),
    };
    look.archive(content, "", 0)?;
    Ok(look.found)
}

struct Look {
    found: Vec<Finding>,
    /// The bytes that were unpacked.
    unpacked: u64,
    /// The names so far, as a file system would take them for the same.
    names: HashSet<String>,
}

impl Look {
    /// Looks at a content that may be an archive, by its first bytes.
    fn archive(&mut self, content: &[u8], within: &str, depth: usize) -> Result<(), Unscanned> {
        let is_zip = content.starts_with(b"PK\x03\x04") || content.starts_with(b"PK\x05\x06");
        let is_gzip = content.starts_with(b"\x1f\x8b");
        let is_tar = content.get(257..262) == Some(b"ustar");
        let unknown: [(&[u8], &str); 5] = [
            (b"7z\xbc\xaf\x27\x1c", "7z"),
            (b"Rar!\x1a\x07", "rar"),
            (b"\xfd7zXZ\0", "xz"),
            (b"BZh", "bzip2"),
            (b"\x28\xb5\x2f\xfd", "zstd"),
        ];
        let is_archive = is_zip || is_gzip || is_tar;
        if is_archive && depth >= DEPTH_MAX {
            self.add("nested-archives", within, 95);
            return Ok(());
        }
        if is_zip {
            self.zip(content, within, depth)
        } else if is_gzip {
            let unpacked =
                self.unpack(MultiGzDecoder::new(content), content.len() as u64, within)?;
            unpacked.map_or(Ok(()), |inner| self.archive(&inner, within, depth + 1))
        } else if is_tar {
            self.tar(content, within, depth)
        } else if let Some((_, form)) = unknown.iter().find(|(first, _)| content.starts_with(first))
        {
            // Nobody has looked inside: that is no pass.
            Err(Unscanned::Unreadable(format!("nothing here reads {form}")))
        } else {
            Ok(())
        }
    }

    fn zip(&mut self, content: &[u8], within: &str, depth: usize) -> Result<(), Unscanned> {
        let archive = ZipArchive::new(Cursor::new(content));
        let mut archive = archive.map_err(|error| unreadable(&error))?;
        if archive.len() > ENTRIES_MAX {
            self.add("many-entries", within, 95);
            return Ok(());
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
            let (is_encrypted, is_link) = (entry.encrypted(), entry.is_symlink());
            let (is_file, mode) = (entry.is_file(), entry.unix_mode().unwrap_or(0) & 0o170_000);
            drop(entry);
            self.name(within, &name);
            if is_link {
                self.add("link", &name, 90);
            }
            if !matches!(mode, 0 | 0o100_000 | 0o040_000 | 0o120_000) {
                self.add("special-file", &name, 95);
            }
            if is_encrypted {
                self.add("encrypted", &name, 95);
            } else if is_file {
                let entry = archive
                    .by_index(index)
                    .map_err(|error| unreadable(&error))?;
                let inner = self.unpack(entry, packed, &name)?;
                inner.map_or(Ok(()), |inner| self.archive(&inner, &name, depth + 1))?;
            }
        }
        places.sort_unstable();
        let overlaps = |pair: &[(u64, u64)]| matches!(pair, [one, other] if one.1 > other.0);
        if places.windows(2).any(overlaps) {
            self.add("overlapping-entries", within, 95);
        }
        Ok(())
    }

    fn tar(&mut self, content: &[u8], within: &str, depth: usize) -> Result<(), Unscanned> {
        let wrong = |error: std::io::Error| Unscanned::Unreadable(error.to_string());
        let mut archive = tar::Archive::new(content);
        for (count, entry) in archive.entries().map_err(wrong)?.enumerate() {
            let entry = entry.map_err(wrong)?;
            if count >= ENTRIES_MAX {
                self.add("many-entries", within, 95);
                return Ok(());
            }
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let (kind, size) = (entry.header().entry_type(), entry.size());
            let led = entry
                .link_name_bytes()
                .map(|to| String::from_utf8_lossy(&to).into_owned());
            self.name(within, &name);
            if kind.is_symlink() || kind.is_hard_link() {
                self.add("link", &name, 90);
                led.iter().for_each(|to| self.leads_out(to));
            } else if kind.is_file() || kind.is_contiguous() {
                let inner = self.unpack(entry, size, &name)?;
                inner.map_or(Ok(()), |inner| self.archive(&inner, &name, depth + 1))?;
            } else if !kind.is_dir() {
                self.add("special-file", &name, 95);
            }
        }
        Ok(())
    }

    /// Unpacks an entry; `None` where it grows beyond bounds, which is noted.
    fn unpack(
        &mut self,
        from: impl Read,
        packed: u64,
        name: &str,
    ) -> Result<Option<Vec<u8>>, Unscanned> {
        let most = packed.saturating_mul(RATIO_MAX).max(SMALL_BYTES);
        let left = UNPACKED_BYTES_MAX.saturating_sub(self.unpacked);
        let bound = most.min(left).min(CONTENT_BYTES_MAX as u64);
        let mut unpacked = Vec::new();
        let read = from.take(bound + 1).read_to_end(&mut unpacked);
        read.map_err(|error| Unscanned::Unreadable(format!("{}: {error}", name.escape_debug())))?;
        self.unpacked += unpacked.len() as u64;
        if unpacked.len() as u64 > bound {
            self.add("grows-without-bounds", name, 95);
            return Ok(None);
        }
        Ok(Some(unpacked))
    }

    /// Looks at the name of an entry.
    fn name(&mut self, within: &str, name: &str) {
        self.leads_out(name);
        if name
            .chars()
            .any(|one| one.is_control() || is_reordering(one))
        {
            self.add("hidden-characters", name, 90);
        }
        // As file systems without case take it, and those that take compositions for the same.
        let folded: String = name
            .trim_end_matches('/')
            .chars()
            .flat_map(char::to_lowercase)
            .collect();
        let folded = folded.replace('\\', "/");
        if !self.names.insert(format!("{within}\0{}", plain(&folded))) {
            self.add("same-name-twice", name, 80);
        }
    }

    fn leads_out(&mut self, path: &str) {
        let parts = path.split(['/', '\\']);
        let is_absolute = path.starts_with(['/', '\\']) || path.get(1..2) == Some(":");
        if is_absolute {
            self.add("absolute-path", path, 95);
        }
        if parts.into_iter().any(|part| part == "..") {
            self.add("leads-out", path, 95);
        }
    }

    fn add(&mut self, rule: &str, entry: &str, confidence: u8) {
        if self.found.len() < crate::FINDINGS_MAX {
            self.found.push(Finding::at_entry(rule, entry, confidence));
        }
    }
}

/// Returns a name without the marks that are composed with a letter, so that both of its forms are one.
fn plain(name: &str) -> String {
    use unicode_normalization::UnicodeNormalization as _;
    name.nfkc().collect()
}

/// Returns whether a character changes the order in which others are shown (UAX 9).
fn is_reordering(one: char) -> bool {
    matches!(one, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn unreadable(error: &ZipError) -> Unscanned {
    Unscanned::Unreadable(error.to_string())
}
