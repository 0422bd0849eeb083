//! Packs and their indexes (gitformat-pack(5)): the objects in them, and the kind of each.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::{Id, ObjectKind};
use crate::RelativePath;
use crate::tree::Tree;

/// The magic number and version of an index, the one that all have had since 2007.
const HEAD: &[u8; 8] = b"\xfftOc\0\0\0\x02";
/// The length of the fan-out table, bytes.
const COUNTS_BYTES: usize = 256 * 4;
/// The offset of the first name.
const NAMES_AT: u64 = (HEAD.len() + COUNTS_BYTES) as u64;
/// The most bytes before an object's content: a size and the name of another object.
const ENTRY_BYTES_MAX: usize = 64;
/// The longest chain of deltas that is followed: git makes 4,095 at most.
const DELTAS_MAX: usize = 4096;

pub(super) struct Pack {
    index: File,
    /// The fan-out table: the number of names that begin with at most each byte.
    counts: Vec<u8>,
    path: RelativePath,
    file: OnceCell<Option<File>>,
}

impl Pack {
    /// Returns a pack by the path of its index. `None` where that cannot be opened.
    pub fn open(tree: &Tree, index: &RelativePath) -> Option<Self> {
        let (file, _) = tree.file(index).ok()?;
        let stem = index.as_bytes().strip_suffix(b".idx")?;
        Some(Self {
            index: file,
            counts: Vec::new(),
            path: RelativePath::new([stem, b".pack"].concat()).ok()?,
            file: OnceCell::new(),
        })
    }

    /// Reads the number of objects. `None` for an index of another version.
    pub fn counted(mut self) -> Option<Self> {
        let mut head = [0; HEAD.len()];
        self.index.read_exact_at(&mut head, 0).ok()?;
        self.counts = vec![0; COUNTS_BYTES];
        let at = HEAD.len() as u64;
        self.index.read_exact_at(&mut self.counts, at).ok()?;
        (head == *HEAD).then_some(self)
    }

    /// Returns the kind of the object of this name; `None` where it is not in this pack.
    pub fn kind(&self, tree: &Tree, id: &Id) -> Option<ObjectKind> {
        let mut at = self.offset(id)?;
        let open = || tree.file(&self.path).ok().map(|(file, _)| file);
        let file = self.file.get_or_init(open).as_ref()?;
        for _ in 0..DELTAS_MAX {
            let mut entry = [0; ENTRY_BYTES_MAX];
            let read = file.read_at(&mut entry, at).ok()?;
            let (first, mut rest) = entry.get(..read)?.split_first()?;
            let mut last = *first;
            while last & 0x80 != 0 {
                last = next(&mut rest)?;
            }
            at = match (first >> 4) & 7 {
                1 => return Some(ObjectKind::Commit),
                2 => return Some(ObjectKind::Tree),
                3 => return Some(ObjectKind::Blob),
                4 => return Some(ObjectKind::Tag),
                6 => at.checked_sub(distance(&mut rest)?)?,
                7 => self.offset(&Id::of(rest.get(..id.bytes().len())?))?,
                _ => return None,
            };
        }
        None
    }

    fn count(&self, at: usize) -> Option<u64> {
        let four: [u8; 4] = self.counts.get(at * 4..at * 4 + 4)?.try_into().ok()?;
        Some(u32::from_be_bytes(four).into())
    }

    /// Returns an object's offset in the pack. The names are sorted; behind them are a checksum of
    /// each, and then the offsets, in four bytes or, in a large pack, as an index into a table of
    /// eight-byte ones.
    fn offset(&self, id: &Id) -> Option<u64> {
        let first = usize::from(*id.bytes().first()?);
        let mut low = match first {
            0 => 0,
            other => self.count(other - 1)?,
        };
        let mut high = self.count(first)?;
        let bytes = id.bytes().len();
        let mut name = vec![0; bytes];
        loop {
            if low >= high {
                return None;
            }
            let middle = low + (high - low) / 2;
            let at = NAMES_AT + middle * bytes as u64;
            self.index.read_exact_at(&mut name, at).ok()?;
            match name.as_slice().cmp(id.bytes()) {
                Ordering::Equal => {
                    low = middle;
                    break;
                }
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        let all = self.count(255)?;
        let small = NAMES_AT + all * (bytes as u64 + 4);
        let mut four = [0; 4];
        self.index.read_exact_at(&mut four, small + low * 4).ok()?;
        let found = u32::from_be_bytes(four);
        if found & 0x8000_0000 == 0 {
            return Some(found.into());
        }
        let mut eight = [0; 8];
        let at = small + all * 4 + u64::from(found & 0x7fff_ffff) * 8;
        self.index.read_exact_at(&mut eight, at).ok()?;
        Some(u64::from_be_bytes(eight))
    }
}

fn next(from: &mut &[u8]) -> Option<u8> {
    let (first, rest) = from.split_first()?;
    *from = rest;
    Some(*first)
}

/// Reads the distance back to a delta's base object: seven bits a byte, the highest first, each
/// byte but the last one more than it says.
fn distance(from: &mut &[u8]) -> Option<u64> {
    let mut last = next(from)?;
    let mut value = u64::from(last & 0x7f);
    while last & 0x80 != 0 {
        last = next(from)?;
        value = value.checked_add(1)?.checked_mul(128)? | u64::from(last & 0x7f);
    }
    Some(value)
}
