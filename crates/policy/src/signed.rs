//! The signer of the organisation's layer, for reports on the rules. The signature is checked where
//! files are read, and nothing is compiled if a required one is missing.

use std::fmt;

use crate::rules::Rules;

/// A checked signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedBy {
    /// The organisation's name.
    pub name: String,
    /// The serial number of the signed list of files, which only grows.
    pub serial: u64,
    /// The key, abbreviated.
    pub key: String,
}

impl fmt::Display for SignedBy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, serial, key } = self;
        write!(out, "{name}, number {serial} (key {key})")
    }
}

impl Rules {
    /// Records the signer of the organisation's layer that these rules come from.
    pub fn take_signed(&mut self, signed: Option<SignedBy>) {
        self.signed = signed;
    }

    /// Returns the signer of the organisation's layer; `None` if no key for it is pinned.
    #[must_use]
    pub fn signed(&self) -> Option<&SignedBy> {
        self.signed.as_ref()
    }
}
