//! Candidate places of values: a window of bytes at every fourth place is looked up in a hash
//! table.

use super::symbols::Form;

/// The number of symbols looked at in one window.
pub(super) const WINDOW: usize = 8;
/// The distance between two windows.
pub(super) const STRIDE: usize = 4;
/// The number of symbols that suffice to find a form.
pub(super) const ANCHOR: usize = WINDOW + STRIDE - 1;

/// The bits of a hash that choose a bit of the sieve.
const SIEVE_BITS: u32 = 18;
/// The length of the sieve, words.
const SIEVE_WORDS: usize = 1 << (SIEVE_BITS - 6);
/// The bits of a hash that choose a part of the entries.
const PART_BITS: u32 = 12;

/// A candidate: the number of a value, and the symbol at which the window begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) value: u16,
    pub(super) form: Form,
    pub(super) place: u16,
}

/// A table of windows by their hashes. It contains nothing else of the values.
#[derive(Debug)]
pub(super) struct Table {
    sieve: Box<[u64; SIEVE_WORDS]>,
    /// The index at which the entries of each part begin.
    parts: Vec<u32>,
    entries: Vec<(u32, Entry)>,
}

/// Returns the hash of a window, the same for letters in either case.
fn hash(window: [u8; WINDOW]) -> u64 {
    let folded = u64::from_le_bytes(window) | 0x2020_2020_2020_2020;
    folded.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn fingerprint(hash: u64) -> u32 {
    (hash >> 32) as u32
}

impl Table {
    pub(super) fn new(windows: impl Iterator<Item = ([u8; WINDOW], Entry)>) -> Self {
        let mut sieve = Box::new([0; SIEVE_WORDS]);
        let mut entries = Vec::new();
        for (window, entry) in windows {
            let hash = hash(window);
            if let Some(word) = sieve.get_mut((hash >> (64 - SIEVE_BITS + 6)) as usize) {
                *word |= 1_u64 << (hash >> (64 - SIEVE_BITS) & 63);
            }
            entries.push((fingerprint(hash), entry));
        }
        entries.sort_by_key(|(fingerprint, _)| *fingerprint);
        let begins = |part: u32| {
            let is_before =
                |(fingerprint, _): &(u32, Entry)| fingerprint >> (32 - PART_BITS) < part;
            entries.partition_point(is_before) as u32
        };
        let parts = (0..=1 << PART_BITS).map(begins).collect();
        Self {
            sieve,
            parts,
            entries,
        }
    }

    /// Reports each candidate place of a value.
    #[inline]
    pub(super) fn sift(&self, bytes: &[u8], mut found: impl FnMut(usize, Entry)) {
        for (number, window) in bytes.windows(WINDOW).step_by(STRIDE).enumerate() {
            let Some(window) = window.first_chunk() else {
                break;
            };
            let hash = hash(*window);
            let word = self.sieve.get((hash >> (64 - SIEVE_BITS + 6)) as usize);
            if word.is_some_and(|word| word >> (hash >> (64 - SIEVE_BITS) & 63) & 1 == 1) {
                self.look_up(fingerprint(hash), |entry| found(number * STRIDE, entry));
            }
        }
    }

    #[inline(never)]
    fn look_up(&self, fingerprint: u32, found: impl FnMut(Entry)) {
        let part = (fingerprint >> (32 - PART_BITS)) as usize;
        let begin = self.parts.get(part).copied().unwrap_or_default();
        let end = self.parts.get(part + 1).copied().unwrap_or_default();
        let part = self.entries.get(begin as usize..end as usize);
        let alike = part.unwrap_or_default().iter();
        let alike = alike.filter(|(own, _)| *own == fingerprint);
        alike.map(|(_, entry)| *entry).for_each(found);
    }
}
