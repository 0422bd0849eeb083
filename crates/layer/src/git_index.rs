//! The index of a git repository (gitformat-index(5)): what it names git writes at the next
//! checkout, at any path, since git looks at the names that are put into an index, and never again
//! at those that are in it.

use std::fs::File;
use std::io::Read as _;

use crate::control::plain_form;

/// Why an index that cannot be looked at needs a yes of its own.
pub(crate) const UNREAD: &str = "git writes and runs what it names, and it cannot be read";
/// Larger ones are not read.
const BYTES_MAX: u64 = 256 << 20;
/// `DIRC`, the version and how many entries there are.
const HEAD_BYTES: usize = 12;
/// What `stat` said of a file, before its digest.
const FACTS_BYTES: usize = 40;
/// SHA-1 and SHA-256: the index does not say which.
const DIGESTS_BYTES: [usize; 2] = [20, 32];
/// A bit of an entry's flags: two more bytes of flags follow.
const IS_EXTENDED: u16 = 0x4000;

/// Why an index needs a yes of its own, if it does.
pub(crate) fn reason(mut index: File, bytes: u64) -> Option<&'static str> {
    let mut content = Vec::new();
    let is_read = bytes <= BYTES_MAX
        && (&mut index)
            .take(BYTES_MAX)
            .read_to_end(&mut content)
            .is_ok();
    let is_sound = |digest: &usize| is_sound(&content, *digest) == Some(true);
    match is_read && DIGESTS_BYTES.iter().any(is_sound) {
        true => None,
        false => Some("git writes and runs what it names beyond the files of its repository"),
    }
}

/// Whether each name is one of a file within the working tree, and all of them are in this file.
/// None where it cannot be read.
fn is_sound(index: &[u8], digest_bytes: usize) -> Option<bool> {
    let whole = index;
    let mut rest = index.strip_prefix(b"DIRC")?;
    let version = number(&mut rest)?;
    let count = number(&mut rest)?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let mut name = Vec::new();
    for _ in 0..count {
        let begun = whole.len() - rest.len();
        take(&mut rest, FACTS_BYTES + digest_bytes)?;
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
        if !is_within(&name) {
            return Some(false);
        }
    }
    while rest.len() > digest_bytes {
        let kind = take(&mut rest, 4)?;
        let bytes = usize::try_from(number(&mut rest)?).ok()?;
        // A split index: its names are in another file.
        if kind == b"link" {
            return Some(false);
        }
        take(&mut rest, bytes)?;
    }
    (rest.len() == digest_bytes && whole.len() >= HEAD_BYTES).then_some(true)
}

/// Whether a name leads to a file of the working tree, and to nothing of git's own.
fn is_within(name: &[u8]) -> bool {
    let is_plain = |part: &[u8]| {
        !matches!(part, b"" | b"." | b"..") && plain_form(part) != b".git" && !part.contains(&b'\\')
    };
    // A directory that is sparse ends with a slash.
    let name = name.strip_suffix(b"/").unwrap_or(name);
    name.split(|byte| *byte == b'/').all(is_plain)
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
