use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// A difference between the state of a checkpoint and the present one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The path, ref or database, for reading: bytes that are no text are replaced.
    pub name: String,
    /// The kind of difference.
    pub difference: Difference,
    /// The origin of the difference.
    pub origin: Origin,
}

/// The kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Difference {
    /// Absent from the checkpoint.
    Created,
    /// Present in both, and not the same.
    Modified,
    /// Only in the checkpoint.
    Removed,
}

/// The origin of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The effect alone: nobody has touched it since. A restore takes it back.
    Effect,
    /// Somebody else, after the effect, which had not touched it. No restore touches it.
    Since,
    /// The effect, and somebody else after it: a conflict, which is restored only when told to.
    Both,
    /// Not known, since the checkpoint was never settled: a conflict too.
    Unknown,
}

pub(crate) struct Compared<K> {
    pub key: K,
    pub difference: Difference,
    pub origin: Origin,
}

impl<K> Compared<K> {
    /// Returns whether a restore is to take it back.
    pub fn is_restored(&self, overwrite: bool) -> bool {
        match self.origin {
            Origin::Effect => true,
            Origin::Since => false,
            Origin::Both | Origin::Unknown => overwrite,
        }
    }

    pub fn change(&self, name: String) -> Change {
        Change {
            name,
            difference: self.difference,
            origin: self.origin,
        }
    }
}

/// Compares three states of the same thing. Nothing differs where it is now as it was before.
pub(crate) fn compare<K: Ord + Clone, V: PartialEq>(
    before: &BTreeMap<K, V>,
    after: Option<&BTreeMap<K, V>>,
    now: &BTreeMap<K, V>,
) -> Vec<Compared<K>> {
    let keys: BTreeSet<&K> = before.keys().chain(now.keys()).collect();
    let compared = keys.into_iter().filter_map(|key| {
        let (was, is) = (before.get(key), now.get(key));
        let difference = match (was, is) {
            (was, is) if was == is => return None,
            (None, _) => Difference::Created,
            (_, None) => Difference::Removed,
            _ => Difference::Modified,
        };
        let origin = match after.map(|after| after.get(key)) {
            None => Origin::Unknown,
            Some(left) if left == is => Origin::Effect,
            Some(left) if left == was => Origin::Since,
            Some(_) => Origin::Both,
        };
        Some(Compared {
            key: key.clone(),
            difference,
            origin,
        })
    });
    compared.collect()
}
