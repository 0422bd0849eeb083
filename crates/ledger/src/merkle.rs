//! The Merkle tree of RFC 6962 over all events, in memory, for proofs and tiles; and the
//! verification of proofs, which needs only hashes.

use crate::TreeHash;

/// A tree's complete subtrees, 64 bytes for each event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// The roots of the complete subtrees: by height from the leaves, then from the left.
    levels: Vec<Vec<TreeHash>>,
}

impl Tree {
    pub(crate) fn push(&mut self, leaf: TreeHash) {
        let mut carried = leaf;
        for level in 0.. {
            if self.levels.len() <= level {
                self.levels.push(Vec::new());
            }
            let Some(row) = self.levels.get_mut(level) else {
                return;
            };
            row.push(carried);
            match row.as_slice() {
                [.., left, right] if row.len() % 2 == 0 => {
                    carried = TreeHash::of_node(*left, *right);
                }
                _ => return,
            }
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.level(0).len() as u64
    }

    /// Returns the roots of the complete subtrees of 2^`height` leaves.
    pub(crate) fn level(&self, height: usize) -> &[TreeHash] {
        self.levels.get(height).map_or(&[], Vec::as_slice)
    }

    /// Returns the root over the first `size` events; `None` if there are fewer.
    pub(crate) fn root_of(&self, size: u64) -> Option<TreeHash> {
        match size {
            0 => Some(TreeHash::of_nothing()),
            size => self.range(0, size),
        }
    }

    /// Returns the hash over the leaves from `low` up to before `high` (RFC 6962, section 2.1).
    fn range(&self, low: u64, high: u64) -> Option<TreeHash> {
        let count = high.checked_sub(low)?;
        if count.is_power_of_two() {
            let height = count.trailing_zeros();
            let at = usize::try_from(low >> height).ok()?;
            return self.level(usize::try_from(height).ok()?).get(at).copied();
        }
        let middle = low + split(count)?;
        Some(TreeHash::of_node(
            self.range(low, middle)?,
            self.range(middle, high)?,
        ))
    }

    /// Returns the audit path of an event in the tree over the first events (section 2.1.1).
    pub(crate) fn inclusion(&self, index: u64, size: u64) -> Option<Vec<TreeHash>> {
        let (mut low, mut high, mut path) = (0, size, Vec::new());
        if index >= size {
            return None;
        }
        while high - low > 1 {
            let middle = low + split(high - low)?;
            if index < middle {
                path.push(self.range(middle, high)?);
                high = middle;
            } else {
                path.push(self.range(low, middle)?);
                low = middle;
            }
        }
        path.reverse();
        Some(path)
    }

    /// Returns the proof that the first `old` events are the beginning of the first `new` ones
    /// (section 2.1.2).
    pub(crate) fn consistency(&self, old: u64, new: u64) -> Option<Vec<TreeHash>> {
        let (mut low, mut high, mut path) = (0, new, Vec::new());
        if old == 0 || old > new {
            return None;
        }
        // Where the old tree is a subtree of the new one, its root is known to whoever asks.
        while old != high {
            let middle = low + split(high - low)?;
            if old <= middle {
                path.push(self.range(middle, high)?);
                high = middle;
            } else {
                path.push(self.range(low, middle)?);
                low = middle;
            }
        }
        if low > 0 {
            path.push(self.range(low, high)?);
        }
        path.reverse();
        Some(path)
    }
}

/// Returns the largest power of two that is smaller.
fn split(count: u64) -> Option<u64> {
    count
        .checked_sub(1)?
        .checked_ilog2()
        .map(|height| 1 << height)
}

/// Returns the root that an audit path leads to (RFC 9162, section 2.1.3.2); `None` if the path
/// does not have the right length.
pub(crate) fn root_by_inclusion(
    leaf: TreeHash,
    index: u64,
    size: u64,
    path: &[TreeHash],
) -> Option<TreeHash> {
    let (mut at, mut last) = (index, size.checked_sub(1)?);
    if at > last {
        return None;
    }
    let mut root = leaf;
    for sibling in path {
        if last == 0 {
            return None;
        }
        if at & 1 == 1 || at == last {
            root = TreeHash::of_node(*sibling, root);
            while at & 1 == 0 && at != 0 {
                (at, last) = (at >> 1, last >> 1);
            }
        } else {
            root = TreeHash::of_node(root, *sibling);
        }
        (at, last) = (at >> 1, last >> 1);
    }
    (last == 0).then_some(root)
}

/// Returns whether a consistency proof holds (RFC 9162, section 2.1.4.2).
pub(crate) fn is_consistent(
    (old, old_root): (u64, TreeHash),
    (new, new_root): (u64, TreeHash),
    path: &[TreeHash],
) -> bool {
    if old == 0 || old > new {
        return false;
    }
    if old == new {
        return path.is_empty() && old_root == new_root;
    }
    let (first, rest) = match path.split_first() {
        _ if old.is_power_of_two() => (old_root, path),
        Some((first, rest)) => (*first, rest),
        None => return false,
    };
    let (mut at, mut last) = (old - 1, new - 1);
    while at & 1 == 1 {
        (at, last) = (at >> 1, last >> 1);
    }
    let (mut by_old, mut by_new) = (first, first);
    for hash in rest {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            by_old = TreeHash::of_node(*hash, by_old);
            by_new = TreeHash::of_node(*hash, by_new);
            while at & 1 == 0 && at != 0 {
                (at, last) = (at >> 1, last >> 1);
            }
        } else {
            by_new = TreeHash::of_node(by_new, *hash);
        }
        (at, last) = (at >> 1, last >> 1);
    }
    last == 0 && by_old == old_root && by_new == new_root
}
