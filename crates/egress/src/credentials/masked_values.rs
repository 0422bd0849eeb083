//! Real values that are masked in what comes back, with what stands for each.

use std::sync::Arc;
use std::time::SystemTime;

use crate::secret::{Masks, PlaceholderError, Secret, make_placeholder};

/// The most values of one credential that are masked, earlier ones included: no more are fetched.
pub(super) const MASKED_MAX: usize = 256;

/// The masked values.
#[derive(Default)]
pub(super) struct MaskedValues {
    pub(super) values: Vec<MaskedValue>,
    /// The masks that replace these values in responses.
    pub(super) masks: Option<Masks>,
}

/// A real value, with its credential and its replacement.
pub(super) struct MaskedValue {
    pub(super) index: usize,
    pub(super) secret: Arc<Secret>,
    pub(super) role: Role,
    pub(super) standing: Vec<u8>,
    /// The time from which it opens nothing, if known.
    pub(super) ends: Option<SystemTime>,
}

/// The use of a real value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Injection into requests.
    Value,
    /// A secret for obtaining such a value.
    Ingredient,
}

impl MaskedValue {
    /// Builds the entry of a secret for obtaining values, which only its issuer may see.
    pub(super) fn ingredient(index: usize, secret: Arc<Secret>) -> Result<Self, String> {
        Ok(Self {
            index,
            standing: make_placeholder(secret.expose())?,
            secret,
            role: Role::Ingredient,
            ends: None,
        })
    }
}

impl MaskedValues {
    pub(super) fn build(&mut self) -> Result<(), PlaceholderError> {
        let mut pairs = Vec::with_capacity(self.values.len());
        for one in &self.values {
            let secret = Secret::new(one.secret.expose().to_vec())?;
            pairs.push((secret, one.standing.clone()));
        }
        // Answers that come already are masked for a new one too; also the first of all.
        match &self.masks {
            Some(masks) => masks.renew(pairs)?,
            None => self.masks = Some(Masks::new(pairs)?),
        }
        Ok(())
    }

    /// Adds a value to be masked. Where a credential has too many, those that have expired are
    /// dropped; none that may open something is.
    pub(super) fn add(&mut self, value: MaskedValue, now: SystemTime) -> Result<(), String> {
        let index = value.index;
        let its = |all: &[MaskedValue]| all.iter().filter(|one| one.index == index).count();
        if its(&self.values) >= MASKED_MAX {
            let has_ended = |one: &MaskedValue| one.ends.is_some_and(|ends| ends <= now);
            self.values
                .retain(|one| one.index != index || !has_ended(one));
        }
        if its(&self.values) >= MASKED_MAX {
            return Err(format!(
                "it has had {MASKED_MAX} values in this run, and no more are kept secret at once: start a new run"
            ));
        }
        self.values.push(value);
        if let Err(unfit) = self.build() {
            self.values.pop();
            return Err(unfit.to_string());
        }
        Ok(())
    }
}
