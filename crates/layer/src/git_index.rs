//! The index of a git repository (gitformat-index(5)): what it names git writes at the next
//! checkout, at any path, since git looks at the names that are put into an index, and never again
//! at those that are in it.

mod trees;

use std::fs::File;
use std::io::{Read as _, Seek as _};

use crate::control::plain_form;

/// Why an index that cannot be looked at needs a yes of its own.
pub(crate) const UNREAD: &str = "git writes and runs what it names, and it cannot be read";
const BEYOND: &str = "git writes or commits what it names beyond the files of its repository";
/// Larger ones are not read.
const BYTES_MAX: u64 = 256 << 20;
/// `DIRC`, the version and how many entries there are.
const HEAD_BYTES: usize = 12;
/// What `stat` said of a file, before its digest.
const FACTS_BYTES: usize = 40;
/// SHA-1 and SHA-256: the index does not say which.
const DIGESTS_BYTES: [usize; 2] = [20, 32];
/// Where a file's mode is in them, and that of a submodule's commit, which is elsewhere.
const MODE: std::ops::Range<usize> = 24..28;
const SUBMODULE: [u8; 4] = 0o160_000_u32.to_be_bytes();
/// A bit of an entry's flags: two more bytes of flags follow.
const IS_EXTENDED: u16 = 0x4000;

/// Why an index needs a yes of its own, if it does.
pub(crate) fn reason(index: File, bytes: u64) -> Option<&'static str> {
    let is_any = &mut |_: &[u8]| true;
    DIGESTS_BYTES
        .iter()
        .all(|digest| !is_of(&index, bytes, *digest, is_any))
        .then_some(BEYOND)
}

/// The same of one in a repository whose digests are of this length, where each object that it
/// names has to be `there`.
pub(crate) fn reason_in(
    index: &File,
    bytes: u64,
    digest_bytes: usize,
    there: &mut dyn FnMut(&[u8]) -> bool,
) -> Option<&'static str> {
    let is_any = &mut |_: &[u8]| true;
    match is_of(index, bytes, digest_bytes, is_any) {
        true if is_of(index, bytes, digest_bytes, there) => None,
        true => Some("it names files that are not taken over"),
        false => Some(BEYOND),
    }
}

fn is_of(
    mut index: &File,
    bytes: u64,
    digest_bytes: usize,
    there: &mut dyn FnMut(&[u8]) -> bool,
) -> bool {
    let mut content = Vec::new();
    let is_read = bytes <= BYTES_MAX
        && index.rewind().is_ok()
        && index.take(BYTES_MAX).read_to_end(&mut content).is_ok();
    is_read && is_sound(&content, digest_bytes, there) == Some(true)
}

/// Whether each name is one of a file within the working tree, whose object is there, all of them
/// are in this file, and it says of no tree that they make what is not so. None where it cannot be read.
fn is_sound(
    index: &[u8],
    digest_bytes: usize,
    there: &mut dyn FnMut(&[u8]) -> bool,
) -> Option<bool> {
    let whole = index;
    let mut rest = index.strip_prefix(b"DIRC")?;
    let version = number(&mut rest)?;
    let count = number(&mut rest)?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let mut name = Vec::new();
    let mut entries = Vec::new();
    for _ in 0..count {
        let begun = whole.len() - rest.len();
        let facts = take(&mut rest, FACTS_BYTES)?;
        let digest = take(&mut rest, digest_bytes)?;
        let mut flags = take(&mut rest, 2)?;
        if short(&mut flags)? & IS_EXTENDED != 0 {
            take(&mut rest, 2)?;
        }
        if version == 4 {
            let kept = name.len().checked_sub(offset(&mut rest)?)?;
            name.truncate(kept);
        } else {
            name.clear();
        }
        let end = rest.iter().position(|byte| *byte == 0)?;
        name.extend_from_slice(take(&mut rest, end)?);
        // One to eight bytes of zero, so that its length can be divided by eight.
        let length = whole.len() - rest.len() - begun;
        let padding = if version == 4 { 1 } else { 8 - length % 8 };
        take(&mut rest, padding)?;
        let is_elsewhere = facts.get(MODE)? == SUBMODULE;
        if !is_within(&name) || !(is_elsewhere || there(digest)) {
            return Some(false);
        }
        entries.push(trees::Entry {
            name: name.clone(),
            mode: facts.get(MODE)?.try_into().ok()?,
            id: digest.to_vec(),
        });
    }
    while rest.len() > digest_bytes {
        let kind = take(&mut rest, 4)?;
        let bytes = usize::try_from(number(&mut rest)?).ok()?;
        // A split index: its names are in another file.
        if kind == b"link" {
            return Some(false);
        }
        let extension = take(&mut rest, bytes)?;
        if kind == b"TREE" && trees::are_of(extension, &entries, digest_bytes) != Some(true) {
            return Some(false);
        }
    }
    (rest.len() == digest_bytes && whole.len() >= HEAD_BYTES).then_some(true)
}

/// Whether a name leads to a file of the working tree, and to nothing of git's own.
fn is_within(name: &[u8]) -> bool {
    // A directory that is sparse ends with a slash.
    let name = name.strip_suffix(b"/").unwrap_or(name);
    name.split(|byte| *byte == b'/').all(is_name)
}

/// Whether this is one name of a file in the working tree, and none that git keeps for itself.
pub(crate) fn is_name(part: &[u8]) -> bool {
    let is_git = plain_form(part) == b".git";
    !matches!(part, b"" | b"." | b"..") && !is_git && !part.iter().any(|byte| b"/\\".contains(byte))
}

fn take<'a>(from: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(bytes)?;
    *from = rest;
    Some(taken)
}

fn number(from: &mut &[u8]) -> Option<u32> {
    let four: [u8; 4] = take(from, 4)?.try_into().ok()?;
    Some(u32::from_be_bytes(four))
}

fn short(from: &mut &[u8]) -> Option<u16> {
    let two: [u8; 2] = take(from, 2)?.try_into().ok()?;
    Some(u16::from_be_bytes(two))
}

/// How much of the name before is left out, as in packs: seven bits a byte, the highest first.
fn offset(from: &mut &[u8]) -> Option<usize> {
    let mut value = 0_usize;
    for at in 0..5 {
        let [byte] = take(from, 1)? else { return None };
        if at > 0 {
            value = value.checked_add(1)?;
        }
        value = value.checked_shl(7)? | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests;
