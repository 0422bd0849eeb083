//! What would be put into headers that policies take out: it is not put in, nor fetched, nor told
//! of as if it were.

use atoll_model::network::Place;
use hyper::header::AUTHORIZATION;

use super::{Held, Injection};
use crate::credentials::Credentials;
use crate::redaction::Redactions;

impl Injection {
    /// Leaves out what would be put into a header that does not leave.
    pub(crate) fn leave_out(&mut self, credentials: &Credentials, redactions: &Redactions) {
        let leaves = |held: &Held| header(held).is_none_or(|name| !redactions.takes(name));
        self.found
            .retain(|put| credentials.get(put.index).is_none_or(leaves));
    }
}

/// The header that one is put into, in lower case.
pub(super) fn header(held: &Held) -> Option<&str> {
    match &held.binding.place {
        Place::Header { name, .. } => Some(name),
        Place::Basic(_) => Some(AUTHORIZATION.as_str()),
        Place::Query(_)
        | Place::Body(_)
        | Place::Refresh(_)
        | Place::SigV4(_)
        | Place::Postgres(_) => None,
    }
}
