//! Injection into headers that policies redact: the credential is neither injected nor fetched, nor
//! named in the record.

use atoll_model::network::Place;
use hyper::header::AUTHORIZATION;

use super::{CredentialPart, Injection};
use crate::credentials::Credentials;
use crate::redaction::Redactions;

impl Injection {
    /// Drops the credentials that would be injected into a redacted header.
    pub(crate) fn leave_out(&mut self, credentials: &Credentials, redactions: &Redactions) {
        let leaves =
            |held: &CredentialPart| header(held).is_none_or(|name| !redactions.takes(name));
        self.found
            .retain(|put| credentials.get(put.index).is_none_or(leaves));
    }
}

/// Returns the header that a credential is injected into, in lower case.
pub(super) fn header(held: &CredentialPart) -> Option<&str> {
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
