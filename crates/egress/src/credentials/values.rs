//! What is fetched at once: a value, or all values of a key that signs.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use atoll_model::network::Part;
use zeroize::Zeroizing;

use super::Credentials;
use crate::secret::Secret;

/// A value that has just been got.
pub(super) struct Fresh {
    pub(super) value: Zeroizing<Vec<u8>>,
    /// When it ends, where that is known.
    pub(super) ends: Option<SystemTime>,
}

impl Fresh {
    pub(super) fn new(value: &[u8], ends: Option<SystemTime>) -> Self {
        Self {
            value: Zeroizing::new(value.to_vec()),
            ends,
        }
    }
}

/// The same of as many as come together.
pub(super) struct Got {
    pub(super) values: Vec<(Part, Zeroizing<Vec<u8>>)>,
    pub(super) ends: Option<SystemTime>,
}

impl From<Fresh> for Got {
    fn from(fresh: Fresh) -> Self {
        Self {
            values: vec![(Part::Whole, fresh.value)],
            ends: fresh.ends,
        }
    }
}

/// Values that were got together, and are used together alone: the id of one key and the secret
/// of another sign nothing.
#[derive(Clone)]
pub(crate) struct Values(Arc<[(Part, Arc<Secret>)]>);

impl fmt::Debug for Values {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Values").finish_non_exhaustive()
    }
}

impl Values {
    /// The value of a part, where it has that: not every key has a session token.
    pub(crate) fn part(&self, part: Part) -> Option<&Arc<Secret>> {
        let mut all = self.0.iter();
        all.find(|(one, _)| *one == part).map(|(_, secret)| secret)
    }

    /// The value, where it is one.
    pub(crate) fn whole(&self) -> Option<&Arc<Secret>> {
        self.part(Part::Whole)
    }

    /// Whether this is one of them.
    pub(super) fn has(&self, secret: &Arc<Secret>) -> bool {
        self.0.iter().any(|(_, own)| Arc::ptr_eq(own, secret))
    }

    /// Whether they are the same as these: what is known keeps its place in memory.
    pub(super) fn are(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && other.0.iter().all(|(_, secret)| self.has(secret))
    }
}

impl From<Arc<Secret>> for Values {
    fn from(secret: Arc<Secret>) -> Self {
        Self([(Part::Whole, secret)].into())
    }
}

impl Credentials {
    /// Takes up what was fetched, where all of it can be: from here on it is masked.
    ///
    /// # Errors
    /// Why it cannot; nothing of it is in the words.
    pub(super) fn accept_all(&self, index: usize, got: Got) -> Result<Values, String> {
        let name = self.get(index).ok_or("there is none")?.name();
        let mut values = Vec::with_capacity(got.values.len());
        for (part, value) in got.values {
            let is_its = |index: &usize| {
                let held = self.get(*index);
                held.is_some_and(|held| held.part == part && held.name() == name)
            };
            let of_part = (0..self.held.len()).find(is_its).ok_or("there is none")?;
            values.push((part, self.accept(of_part, value, got.ends)?));
        }
        Ok(Values(values.into()))
    }
}
