use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A SHA-256 value of the ledger's Merkle tree (RFC 6962): the hash of one event
/// or the root over all of them. Written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TreeHash([u8; 32]);

/// The text is not 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a hash: expected 64 lower-case hexadecimal digits")]
pub struct InvalidHash;

pub(crate) const HASH_DIGITS: usize = 64;

impl TreeHash {
    /// The hash that stands for "the event before the first".
    pub const ZERO: Self = Self([0; 32]);

    /// Hashes one event's canonical bytes as a leaf.
    #[must_use]
    pub fn of_leaf(event: &[u8]) -> Self {
        // Of every event of every request: this one knows more instructions of processors.
        let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        context.update(&[0]);
        context.update(event);
        let digest = context.finish();
        let mut bytes = [0; 32];
        for (to, from) in bytes.iter_mut().zip(digest.as_ref()) {
            *to = *from;
        }
        Self(bytes)
    }

    /// Returns the 64 digits that `Display` writes.
    pub(crate) fn digits(self) -> [u8; HASH_DIGITS] {
        let mut digits = [b'0'; HASH_DIGITS];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            if let [high, low] = pair {
                (*high, *low) = (digit(byte >> 4), digit(byte & 15));
            }
        }
        digits
    }

    /// Makes a hash of these 32 bytes.
    pub(crate) const fn of_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the root over no events: the hash of nothing.
    pub(crate) fn of_nothing() -> Self {
        Self(Sha256::digest([]).into())
    }

    pub(crate) fn of_node(left: Self, right: Self) -> Self {
        let digest = Sha256::new()
            .chain_update([1])
            .chain_update(left.0)
            .chain_update(right.0)
            .finalize();
        Self(digest.into())
    }

    /// Returns the 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Parses the form that `Display` writes.
    ///
    /// # Errors
    /// [`InvalidHash`] for anything else, upper-case digits among it: a hash has
    /// one form only.
    pub fn parse(text: &str) -> Result<Self, InvalidHash> {
        if text.len() != HASH_DIGITS {
            return Err(InvalidHash);
        }
        let mut bytes = [0_u8; 32];
        for (slot, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let &[high, low] = pair else {
                return Err(InvalidHash);
            };
            *slot = hex_digit(high)? << 4 | hex_digit(low)?;
        }
        Ok(Self(bytes))
    }
}

fn hex_digit(digit: u8) -> Result<u8, InvalidHash> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(InvalidHash),
    }
}

fn digit(value: u8) -> u8 {
    match value {
        0..=9 => b'0' + value,
        _ => b'a' + (value - 10),
    }
}

/// Formats bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(digit(byte >> 4)));
        text.push(char::from(digit(byte & 15)));
    }
    text
}

impl fmt::Display for TreeHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for TreeHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl TryFrom<String> for TreeHash {
    type Error = InvalidHash;
    fn try_from(text: String) -> Result<Self, InvalidHash> {
        Self::parse(&text)
    }
}

impl From<TreeHash> for String {
    fn from(hash: TreeHash) -> Self {
        hash.to_string()
    }
}

/// The Merkle tree over a growing list of leaves, reduced to what appends need: the roots of its
/// complete subtrees, smallest first. Its size is the logarithm of the number of leaves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frontier {
    subtrees: Vec<Option<TreeHash>>,
}

impl Frontier {
    pub(crate) fn push(&mut self, leaf: TreeHash) {
        let mut carried = leaf;
        for slot in &mut self.subtrees {
            match slot.take() {
                Some(left) => carried = TreeHash::of_node(left, carried),
                None => {
                    *slot = Some(carried);
                    return;
                }
            }
        }
        self.subtrees.push(Some(carried));
    }

    /// Returns the root; of no leaves, the hash of nothing, as RFC 6962 says.
    pub(crate) fn root(&self) -> TreeHash {
        self.subtrees
            .iter()
            .flatten()
            .copied()
            .reduce(|right, left| TreeHash::of_node(left, right))
            .unwrap_or_else(TreeHash::of_nothing)
    }

    /// Returns the roots of the complete subtrees, largest first: all that there is to save.
    pub(crate) fn subtrees(&self) -> impl Iterator<Item = TreeHash> {
        self.subtrees.iter().rev().flatten().copied()
    }

    /// Makes the frontier of a tree of this many leaves, from what [`Frontier::subtrees`] gave.
    pub(crate) fn of_subtrees(size: u64, largest_first: &[TreeHash]) -> Option<Self> {
        let mut given = largest_first.iter().rev();
        let heights = u64::BITS - size.leading_zeros();
        let mut subtrees = Vec::new();
        for height in 0..heights {
            subtrees.push(match size >> height & 1 {
                0 => None,
                _ => Some(*given.next()?),
            });
        }
        given.next().is_none().then_some(Self { subtrees })
    }
}
