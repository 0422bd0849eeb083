//! Bodies that come to no end, of which one kind carries a placeholder.

use std::sync::PoisonError;

use atoll_model::network::CredentialName;
use hyper::body::Incoming;
use hyper::header::EXPECT;
use hyper::http::request::Parts;

use super::Exchange;
use crate::inspect::body::Broken;
use crate::inspect::injection::{self, Misuse};
use crate::inspect::upload::Upload;
use crate::limits::Way;
use crate::secret::{Found, Placeholders, Stalled};

impl Exchange {
    /// A body comes to no end.
    pub(crate) fn broken(&self, way: Way, why: &Broken) {
        match why {
            Broken::Found(found) => self.misused(*found),
            Broken::AnotherBody(misuse) => self.is_misuse((**misuse).clone()),
            Broken::Off(_)
            | Broken::Unwanted(_)
            | Broken::LongPiece
            | Broken::Undecodable(_)
            | Broken::Stalled(_)
            | Broken::Beyond(_)
            | Broken::GivenUp(_)
            | Broken::Trailers(_)
            | Broken::Short => self.fail(way, why),
        }
    }

    /// Notes that no more was waited for, and not the host broke off.
    pub(crate) fn stalled(&self, stalled: Stalled) {
        self.failed(format!("Atoll broke off: {stalled}"));
    }

    /// Holds what nobody reads of the request, until its answer is over.
    pub(crate) fn hold(&self, unread: Incoming) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.unread = Some(unread);
    }

    /// Gives it back.
    fn release(&self) -> Option<Incoming> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.unread.take()
    }

    /// What nobody reads of the request. Where its body was wanted, the rest of it is on its
    /// way, whatever the program had asked first.
    pub(super) fn give_back(&self, parts: &mut Parts) -> Option<Upload> {
        if self.gate().is_some_and(|gate| gate.is_open()) {
            parts.headers.remove(EXPECT);
        }
        self.release().map(Upload::from)
    }

    /// Which placeholders may not be in what the program sends.
    pub(crate) fn unfit(&self) -> Option<&Placeholders> {
        self.searched.as_ref().map(|(_, all)| all)
    }

    /// The credentials whose placeholders its body went without.
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

    /// What the program sends carries a placeholder: that is told of at once, whatever
    /// becomes of the rest.
    pub(crate) fn misused(&self, found: Found) {
        match injection::misuse_in_body(&self.egress.credentials, found) {
            Some(misuse) => self.is_misuse(misuse),
            None => self.fail(Way::Up, &found),
        }
    }

    fn is_misuse(&self, misuse: Misuse) {
        let Some((flow, _)) = &self.searched else {
            return self.fail(Way::Up, &misuse.why);
        };
        misuse.tell(&self.egress, flow.clone());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_left = true;
        state.failure.get_or_insert_with(|| misuse.why.clone());
        state.misuse.get_or_insert(misuse);
    }

    /// The placeholder that its body carries, if one was found.
    pub(super) fn misuse(&self) -> Option<Misuse> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.misuse.take()
    }

    /// What has gone wrong so far.
    pub(super) fn failure(&self) -> Option<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failure.clone()
    }
}
