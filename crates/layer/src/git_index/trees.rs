//! The cached trees of an index's files (gitformat-index(5), "Cache tree"): git commits them as
//! they are named there, so they have to match the files.

use std::collections::HashMap;

use super::{Entry, take};
use crate::git_objects::{Digest, Format};

/// The deepest nesting of directories that is read.
const DEPTH_MAX: usize = 512;
/// The most bytes that the paths of all directories may add up to.
const PATHS_BYTES_MAX: usize = 64 << 20;

/// Returns whether each named tree is the one that these files make. `None` where that cannot be
/// read.
pub(super) fn are_of(named: &[u8], entries: &[Entry], digest_bytes: usize) -> Option<bool> {
    let mut trees = Trees {
        format: Format::of_bytes(digest_bytes)?,
        made: HashMap::new(),
        paths_bytes: 0,
    };
    trees.make(entries, b"", 0)?;
    let mut rest = named;
    let are_same = trees.compare(&mut rest, b"", 0)?;
    Some(are_same && rest.is_empty())
}

struct Trees {
    format: Format,
    /// By the directory's path with a slash at its end: its tree, and the number of files in it.
    /// `None` instead of a tree that cannot be committed, as in the middle of a merge.
    made: HashMap<Vec<u8>, (Option<Vec<u8>>, usize)>,
    paths_bytes: usize,
}

impl Trees {
    fn make(&mut self, entries: &[Entry], place: &[u8], depth: usize) -> Option<Vec<u8>> {
        self.paths_bytes += place.len();
        if self.paths_bytes > PATHS_BYTES_MAX {
            return None;
        }
        let id = match entries {
            [one] if *one.name == *place => one.id.to_vec(),
            _ => self.hash(entries, place, depth)?,
        };
        let is_committed = entries.iter().all(Entry::is_committed);
        self.made.insert(
            place.to_vec(),
            (is_committed.then(|| id.clone()), entries.len()),
        );
        Some(id)
    }

    fn hash(&mut self, mut entries: &[Entry], place: &[u8], depth: usize) -> Option<Vec<u8>> {
        if depth > DEPTH_MAX {
            return None;
        }
        let mut content = Vec::new();
        while let [first, others @ ..] = entries {
            let rest = first.name.strip_prefix(place)?;
            let Some(end) = rest.iter().position(|byte| *byte == b'/') else {
                let mode = format!("{:o} ", first.mode);
                content.extend([mode.as_bytes(), rest, b"\0", first.id].concat());
                entries = others;
                continue;
            };
            let within = first.name.get(..place.len() + end + 1)?;
            let is_out = |one: &Entry| !one.name.starts_with(within);
            let count = entries.iter().position(is_out).unwrap_or(entries.len());
            let (its, following) = entries.split_at_checked(count)?;
            let id = self.make(its, within, depth + 1)?;
            content.extend([b"40000 ", rest.get(..end)?, b"\0", &id].concat());
            entries = following;
        }
        let mut digest = Digest::new(self.format);
        digest.update(format!("tree {}\0", content.len()).as_bytes());
        digest.update(&content);
        digest.finish()
    }

    /// Compares a named tree, and those within it.
    fn compare(&self, rest: &mut &[u8], place: &[u8], depth: usize) -> Option<bool> {
        let name = line(rest, 0)?;
        let counts = std::str::from_utf8(line(rest, b'\n')?).ok()?;
        let (files, within) = counts.split_once(' ')?;
        let (files, within): (i64, usize) = (files.parse().ok()?, within.parse().ok()?);
        let place = match depth {
            0 => Vec::new(),
            _ => [place, name, b"/"].concat(),
        };
        if let Ok(files) = usize::try_from(files) {
            let id = take(rest, self.format.bytes())?;
            let made = self.made.get(&place);
            if made.is_none_or(|(made, count)| made.as_deref() != Some(id) || *count != files) {
                return Some(false);
            }
        }
        for _ in 0..within {
            if depth > DEPTH_MAX || !self.compare(rest, &place, depth + 1)? {
                return Some(false);
            }
        }
        Some(true)
    }
}

/// Takes the bytes up to `end`, and `end` itself.
pub(super) fn line<'a>(rest: &mut &'a [u8], end: u8) -> Option<&'a [u8]> {
    let at = rest.iter().position(|byte| *byte == end)?;
    let taken = take(rest, at)?;
    let _ = take(rest, 1)?;
    Some(taken)
}
