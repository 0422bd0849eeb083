//! Bodies that break off, among them those with a misplaced placeholder.

use std::sync::PoisonError;

use atoll_model::network::CredentialName;
use hyper::body::Incoming;
use hyper::header::EXPECT;
use hyper::http::request::Parts;

use super::Exchange;
use crate::inspect::body::BodyError;
use crate::inspect::injection::{self, Misuse};
use crate::inspect::upload::Upload;
use crate::limits::Direction;
use crate::secret::{Found, Placeholders, Stalled};

impl Exchange {
    /// Notes that a body broke off.
    pub(crate) fn broken(&self, way: Direction, why: &BodyError) {
        match why {
            BodyError::Found(found) => self.misused(*found),
            BodyError::AnotherBody(misuse) => self.is_misuse((**misuse).clone()),
            BodyError::Off(_)
            | BodyError::Unwanted(_)
            | BodyError::LongPiece
            | BodyError::Undecodable(_)
            | BodyError::Stalled(_)
            | BodyError::Beyond(_)
            | BodyError::GivenUp(_)
            | BodyError::Trailers(_)
            | BodyError::Short => self.fail(way, why),
        }
    }

    /// Notes that Atoll, not the host, broke off after a stalled wait.
    pub(crate) fn stalled(&self, stalled: Stalled) {
        self.failed(format!("Atoll broke off: {stalled}"));
    }

    /// Holds the unread rest of the request's body until the response has ended.
    pub(crate) fn hold(&self, unread: Incoming) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.unread = Some(unread);
    }

    /// Takes back the unread rest.
    fn release(&self) -> Option<Incoming> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.unread.take()
    }

    /// Takes the unread rest of the request's body. Once the body was wanted it is on its way, so
    /// the request no longer asks first.
    pub(super) fn give_back(&self, parts: &mut Parts) -> Option<Upload> {
        if self.gate().is_some_and(|gate| gate.is_open()) {
            parts.headers.remove(EXPECT);
        }
        self.release().map(Upload::from)
    }

    /// Returns the placeholders that the program's body must not carry.
    pub(crate) fn unfit(&self) -> Option<&Placeholders> {
        self.searched.as_ref().map(|(_, all)| all)
    }

    /// Returns the credentials whose placeholders were masked in its body.
    pub(super) fn masked_names(&self) -> Vec<CredentialName> {
        let Some(noted) = &self.masked else {
            return Vec::new();
        };
        let all = self.egress.credentials.iter().enumerate();
        let masked = all.filter(|(number, _)| noted.holds(*number));
        // One variable can stand for several, and a key has several.
        let mut names: Vec<CredentialName> = masked.map(|(_, held)| held.name().clone()).collect();
        names.dedup();
        names
    }

    /// Reports at once that the program's body carries a placeholder, whatever happens to the rest.
    pub(crate) fn misused(&self, found: Found) {
        match injection::misuse_in_body(&self.egress.credentials, found) {
            Some(misuse) => self.is_misuse(misuse),
            None => self.fail(Direction::Up, &found),
        }
    }

    fn is_misuse(&self, misuse: Misuse) {
        let Some((flow, _)) = &self.searched else {
            return self.fail(Direction::Up, &misuse.why);
        };
        misuse.record(&self.egress, flow.clone());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_left = true;
        state.failure.get_or_insert_with(|| misuse.why.clone());
        state.misuse.get_or_insert(misuse);
    }

    /// Takes the placeholder that was found in its body, if any.
    pub(super) fn misuse(&self) -> Option<Misuse> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.misuse.take()
    }

    /// Returns the reason why it failed, if it has.
    pub(super) fn failure(&self) -> Option<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failure.clone()
    }
}
