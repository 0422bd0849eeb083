//! The index of a git repository (gitformat-index(5)): what it names git writes at the next
//! checkout, at any path, since git looks at the names that are put into an index, and never again
//! at those that are in it.

mod extensions;
mod trees;

use std::borrow::Cow;
use std::fs::File;
use std::io::{Read as _, Seek as _};

use crate::control::plain_form;

/// Why an index that cannot be looked at needs a yes of its own.
pub(crate) const UNREAD: &str = "git writes and runs what it names, and it cannot be read";
const BEYOND: &str = "git writes or commits what it names beyond the files of its repository";
/// Larger ones are not read.
const BYTES_MAX: u64 = 256 << 20;
/// The longest name, bytes, as the kernel takes paths; and what all names may come to.
const NAME_BYTES_MAX: usize = 4096;
const NAMES_BYTES_MAX: usize = 128 << 20;
/// Times, device, inode, owner and size of a file: git compares them and no more.
const STAT_BYTES: (usize, usize) = (24, 12);
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_000;
/// A commit of a submodule, which is elsewhere.
const SUBMODULE: u32 = 0o160_000;
/// A directory that is left out as a whole.
const SPARSE: u32 = 0o040_000;
/// The flags of an entry: its name's length, its side of a merge, and that two more bytes follow.
const LENGTH: u16 = 0x0fff;
const STAGE: u16 = 0x3000;
const IS_EXTENDED: u16 = 0x4000;
/// Those in the two more bytes.
const IS_LEFT_OUT: u16 = 0x4000;
const IS_INTENDED: u16 = 0x2000;

/// Why an index needs a yes of its own, if it does, in a repository whose digests are of this
/// length: the index does not say.
pub(crate) fn reason(index: &File, bytes: u64, digest_bytes: usize) -> Option<&'static str> {
    reason_in(index, bytes, digest_bytes, &mut |_, _| true)
}

/// The same of one where each object that it names has to be `there`; whether it has to be a
/// tree is said besides, as for a directory that is sparse.
pub(crate) fn reason_in(
    mut index: &File,
    bytes: u64,
    digest_bytes: usize,
    there: &mut dyn FnMut(&[u8], bool) -> bool,
) -> Option<&'static str> {
    let mut content = Vec::new();
    let is_read = bytes <= BYTES_MAX
        && index.rewind().is_ok()
        && index.take(BYTES_MAX).read_to_end(&mut content).is_ok();
    let read = is_read.then(|| Index::read(&content, digest_bytes));
    let Some(read) = read.flatten() else {
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

/// An index in exactly the form in which git writes it, so that git reads the same of it, however
/// it reads: entries one after another or, by several threads, from where a table says.
struct Index<'a> {
    /// Each names a file within the working tree.
    entries: Vec<Entry<'a>>,
    /// Objects that git goes back to when a merge is undone.
    undone: Vec<&'a [u8]>,
}

/// A file of an index; a directory that is sparse has a name that ends with a slash.
struct Entry<'a> {
    name: Cow<'a, [u8]>,
    mode: u32,
    id: &'a [u8],
    flags: u16,
    more: u16,
    /// Where it begins in the index.
    begun: usize,
    /// Whether it takes nothing from the name before.
    is_whole: bool,
}

impl<'a> Index<'a> {
    /// None where it names what is elsewhere, or something in it is unclear.
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

    fn stage(&self) -> u16 {
        self.flags & STAGE
    }

    /// Whether another one may follow: git puts them in order, and does not look whether they are.
    fn is_before(&self, next: &Self) -> bool {
        match self.name.cmp(&next.name) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => 0 < self.stage() && self.stage() < next.stage(),
            std::cmp::Ordering::Greater => false,
        }
    }

    /// Whether it is one of a file in the working tree, as git makes it.
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

    /// Whether the trees that a commit makes hold it as it is.
    fn is_committed(&self) -> bool {
        self.stage() == 0 && self.more & IS_INTENDED == 0
    }
}

/// Whether one is named as a file or a link, and as a directory of another: git would write through
/// the link.
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

/// Whether a name leads to a file of the working tree, and to nothing of git's own.
fn is_within(name: &[u8]) -> bool {
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
