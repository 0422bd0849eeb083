//! Placeholders in a request's body: those that may be there, and those of other credentials where
//! they are masked.

use std::sync::Arc;

use atoll_model::network::{Others, Place};

use super::Injection;
use crate::credentials::{CredentialPart, Credentials};
use crate::secret::{Mask, MaskedNumbers, Placeholders};

impl Injection {
    /// Returns the placeholders that must not be in the request's body: a program that has printed
    /// its environment may repeat a placeholder to the one who issued its credential, and to nobody
    /// else.
    pub(in crate::inspect) fn unfit(&self, credentials: &Credentials) -> Option<Placeholders> {
        let passing = self.passing(credentials);
        Some(credentials.placeholders()?.but(passing))
    }

    /// Returns the indices of the credentials whose placeholders may be there.
    fn passing<'a>(&'a self, credentials: &'a Credentials) -> impl Iterator<Item = usize> {
        let stands = move |other: &CredentialPart| {
            let is_its = |held: &CredentialPart| {
                held.placeholder == other.placeholder || held.name() == other.name()
            };
            // Nobody can do anything with what stands for a login's renewal.
            let renews = matches!(other.binding.place, Place::Refresh(_));
            self.held(credentials)
                .any(|(held, _)| renews || is_its(held))
        };
        // One variable can stand for several credentials, and a key has several.
        let all = credentials.iter().enumerate();
        all.filter(move |(_, held)| stands(held))
            .map(|(index, _)| index)
    }

    /// Returns the mask that removes other credentials' placeholders from the body, where an
    /// injected credential requires it. A body that the program has signed stays as it is.
    pub(in crate::inspect) fn without_others(&mut self, credentials: &Credentials) -> Option<Mask> {
        let masks = credentials.others().filter(|_| self.signing.is_none())?;
        let masks_others = |held: &CredentialPart| held.binding.others == Others::Masked;
        let mut all = self.held(credentials);
        all.find(|(held, _)| masks_others(held))?;
        drop(all);
        let noted = Arc::default();
        let mask = masks.stream_but(self.passing(credentials), Arc::clone(&noted));
        self.masked = Some(noted);
        Some(mask)
    }

    /// Returns the record of the credentials whose placeholders were masked in the body.
    pub(in crate::inspect) fn masked(&self) -> Option<&Arc<MaskedNumbers>> {
        self.masked.as_ref()
    }
}
