//! The index of a git repository (gitformat-index(5)). Git writes the files it names at the next
//! checkout, at any path, since git checks names that are put into an index, and never again those
//! that are in it.

mod extensions;
mod trees;

use std::borrow::Cow;
use std::fs::File;
use std::io::{Read as _, Seek as _};

use crate::git_objects::is_name;

/// The reason for an index that cannot be read.
pub(crate) const UNREAD: &str = "git writes and runs what it names, and it cannot be read";
const BEYOND: &str = "git writes or commits what it names beyond the files of its repository";
/// The largest index that is read, bytes.
const BYTES_MAX: u64 = 256 << 20;
/// The longest name, bytes, as the kernel takes paths; and the most bytes of all names together.
const NAME_BYTES_MAX: usize = 4096;
const NAMES_BYTES_MAX: usize = 128 << 20;
/// The lengths of digests, bytes: SHA-1 and SHA-256.
const DIGESTS_BYTES: [usize; 2] = [20, 32];
/// The times, device, inode, owner and size of a file, bytes: git only compares them.
const STAT_BYTES: (usize, usize) = (24, 12);
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_000;
/// The mode of a submodule's commit, which is elsewhere.
const SUBMODULE: u32 = 0o160_000;
/// The mode of a sparse directory, left out as a whole.
const SPARSE: u32 = 0o040_000;
/// The flags of an entry: its name's length, its merge stage, and the bit for two more bytes of
/// flags.
const LENGTH: u16 = 0x0fff;
const STAGE: u16 = 0x3000;
const IS_EXTENDED: u16 = 0x4000;
/// The flags in those two more bytes.
const IS_LEFT_OUT: u16 = 0x4000;
const IS_INTENDED: u16 = 0x2000;

/// Returns the reason why an index needs an approval of its own, if it does. `digest_bytes` is the
/// digest length of its repository, which the index does not state.
pub(crate) fn reason(index: &File, bytes: u64, digest_bytes: usize) -> Option<&'static str> {
    reason_in(index, bytes, digest_bytes, &mut |_, _| true)
}

/// Returns whether two files are the same, or indexes that differ in nothing but what git compares
/// files by: `git status` writes that anew.
pub(crate) fn are_alike(one: &File, other: &File) -> bool {
    let (Some(one), Some(other)) = (content_of(one), content_of(other)) else {
        return false;
    };
    let alike = |digest_bytes| {
        let one = Index::read(&one, digest_bytes)?;
        let other = Index::read(&other, digest_bytes)?;
        let pairs = || one.entries.iter().zip(&other.entries);
        let same = one.entries.len() == other.entries.len()
            && one.undone == other.undone
            && pairs().all(|(one, other)| one.names_the_same(other));
        same.then_some(())
    };
    one == other || DIGESTS_BYTES.into_iter().find_map(alike).is_some()
}

fn content_of(mut index: &File) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    index.rewind().ok()?;
    let read = index.take(BYTES_MAX + 1).read_to_end(&mut content).ok()?;
    (read as u64 <= BYTES_MAX).then_some(content)
}

/// As [`reason`], for an index whose every object has to be `there`, which also gets whether the
/// object has to be a tree, as for a sparse directory.
pub(crate) fn reason_in(
    index: &File,
    bytes: u64,
    digest_bytes: usize,
    there: &mut dyn FnMut(&[u8], bool) -> bool,
) -> Option<&'static str> {
    let content = (bytes <= BYTES_MAX).then(|| content_of(index)).flatten();
    let read = content.as_deref();
    let Some(read) = read.and_then(|content| Index::read(content, digest_bytes)) else {
        return Some(BEYOND);
    };
    let of_files = read.entries.iter().filter(|one| one.mode != SUBMODULE);
    let of_files = of_files.map(|one| (one.id, one.mode == SPARSE));
    let undone = read.undone.into_iter().map(|id| (id, false));
    let are_there = of_files
        .chain(undone)
        .all(|(id, is_tree)| there(id, is_tree));
    (!are_there).then_some("it names files that are not taken over")
}

/// An index in exactly the form in which git writes it, so that git reads the same from it however
/// it reads: entries one after another or, with several threads, from the offsets in a table.
struct Index<'a> {
    /// The entries, each naming a file within the working tree.
    entries: Vec<Entry<'a>>,
    /// The objects that git returns to when a merge resolution is undone.
    undone: Vec<&'a [u8]>,
}

/// A file of an index; a sparse directory has a name that ends with a slash.
struct Entry<'a> {
    name: Cow<'a, [u8]>,
    mode: u32,
    id: &'a [u8],
    flags: u16,
    more: u16,
    /// The offset in the index at which it begins.
    begun: usize,
    /// Set when it takes no prefix from the name before.
    is_whole: bool,
}

impl<'a> Index<'a> {
    /// Parses an index. `None` where it refers to something elsewhere, or something in it is
    /// unclear.
    fn read(index: &'a [u8], digest_bytes: usize) -> Option<Self> {
        // At the end is its own digest, at which git does not look.
        let (whole, _) = index.split_at_checked(index.len().checked_sub(digest_bytes)?)?;
        let mut rest = whole.strip_prefix(b"DIRC")?;
        let version = number(&mut rest)?;
        let count = number(&mut rest)?;
        if !(2..=4).contains(&version) {
            return None;
        }
        let mut entries: Vec<Entry> = Vec::new();
        let mut names_bytes = 0;
        for _ in 0..count {
            let begun = whole.len() - rest.len();
            let one = Entry::read(&mut rest, begun, version, digest_bytes, entries.last())?;
            names_bytes += one.name.len();
            let is_next = entries.last().is_none_or(|before| before.is_before(&one));
            if names_bytes > NAMES_BYTES_MAX || !is_next || !one.is_sound() {
                return None;
            }
            entries.push(one);
        }
        if has_file_as_directory(&entries) {
            return None;
        }
        let undone = extensions::read(whole, whole.len() - rest.len(), &entries, digest_bytes)?;
        Some(Self { entries, undone })
    }
}

impl<'a> Entry<'a> {
    fn read(
        rest: &mut &'a [u8],
        begun: usize,
        version: u32,
        digest_bytes: usize,
        before: Option<&Self>,
    ) -> Option<Self> {
        let length = rest.len();
        take(rest, STAT_BYTES.0)?;
        let mode = number(rest)?;
        take(rest, STAT_BYTES.1)?;
        let id = take(rest, digest_bytes)?;
        let flags = short(rest)?;
        let more = match flags & IS_EXTENDED {
            0 => 0,
            _ if version > 2 => short(rest)?,
            _ => return None,
        };
        let kept = match version {
            4 => {
                let name = before.map_or(&[][..], |before| &before.name);
                name.get(..name.len().checked_sub(offset(rest)?)?)?
            }
            _ => &[],
        };
        let end = rest.iter().position(|byte| *byte == 0)?;
        if kept.len() + end > NAME_BYTES_MAX {
            return None;
        }
        let own = take(rest, end)?;
        let name = match kept {
            [] => Cow::Borrowed(own),
            _ => Cow::Owned([kept, own].concat()),
        };
        // One to eight bytes of zero, so that its length can be divided by eight.
        let padding = match version {
            4 => 1,
            _ => 8 - (length - rest.len()) % 8,
        };
        let is_clear = take(rest, padding)?.iter().all(|byte| *byte == 0);
        // Git goes by the length, and by the end of the name where it is too long for that.
        let is_long = usize::from(flags & LENGTH) == name.len().min(LENGTH.into());
        (is_clear && is_long).then_some(Self {
            name,
            mode,
            id,
            flags,
            more,
            begun,
            is_whole: kept.is_empty(),
        })
    }

    /// Returns whether both name one file with one content.
    fn names_the_same(&self, other: &Self) -> bool {
        (&self.name, self.mode, self.id, self.flags, self.more)
            == (&other.name, other.mode, other.id, other.flags, other.more)
    }

    fn stage(&self) -> u16 {
        self.flags & STAGE
    }

    /// Returns whether another one may follow: git writes them in order, and does not check the
    /// order.
    fn is_before(&self, next: &Self) -> bool {
        match self.name.cmp(&next.name) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => 0 < self.stage() && self.stage() < next.stage(),
            std::cmp::Ordering::Greater => false,
        }
    }

    /// Returns whether it is an entry for a file in the working tree, as git writes it.
    fn is_sound(&self) -> bool {
        let is_known = self.more & !(IS_LEFT_OUT | IS_INTENDED) == 0;
        is_known
            && match self.mode {
                FILE | PROGRAM | LINK | SUBMODULE => is_within(&self.name),
                SPARSE => {
                    let is_left_out = self.more & IS_LEFT_OUT != 0 && self.stage() == 0;
                    is_left_out && self.name.strip_suffix(b"/").is_some_and(is_within)
                }
                _ => false,
            }
    }

    /// Returns whether the trees that a commit makes contain it.
    fn is_committed(&self) -> bool {
        self.stage() == 0 && self.more & IS_INTENDED == 0
    }
}

/// Returns whether a name is used as a file or a link and also as the directory of another: git
/// would write through the link.
fn has_file_as_directory(entries: &[Entry]) -> bool {
    let is_there = |name: &[u8], stage: u16| {
        let place = entries.binary_search_by(|one| {
            let one = (&*one.name, one.stage());
            one.cmp(&(name, stage))
        });
        place.is_ok()
    };
    let mut before: Option<&Entry> = None;
    entries.iter().any(|one| {
        let last = before
            .replace(one)
            .filter(|last| last.stage() == one.stage());
        let both = one
            .name
            .iter()
            .zip(last.iter().flat_map(|last| &*last.name));
        let same = both.take_while(|(one, last)| one == last).count();
        let slashes = (0..one.name.len()).filter(|at| one.name.get(*at) == Some(&b'/'));
        slashes.filter(|at| *at + 1 >= same).any(|at| {
            let (file, sparse) = (one.name.get(..at), one.name.get(..=at));
            let is_other = |name: &[u8]| name != &*one.name && is_there(name, one.stage());
            file.is_some_and(is_other) || sparse.is_some_and(is_other)
        })
    })
}

/// Returns whether a name leads to a file of the working tree, and to none of git's own.
fn is_within(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'/').all(is_name)
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

/// Reads the number of bytes to strip from the previous name, encoded as in packs: seven bits a
/// byte, the highest first.
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
