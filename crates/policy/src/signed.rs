//! Who has signed the organisation's layer, for those who tell of the rules. Whether it is signed
//! is checked where files are read, and nothing is compiled where it should be and is not.

use std::fmt;

use crate::rules::Rules;

/// A signature that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedBy {
    /// The organisation's name.
    pub name: String,
    /// The number of the list of its files, which only grows.
    pub serial: u64,
    /// The key, in short.
    pub key: String,
}

impl fmt::Display for SignedBy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, serial, key } = self;
        write!(out, "{name}, number {serial} (key {key})")
    }
}

impl Rules {
    /// Notes who has signed the organisation's layer that these rules come from.
    pub fn take_signed(&mut self, signed: Option<SignedBy>) {
        self.signed = signed;
    }

    /// Who has signed the organisation's layer; none where no key for it is pinned.
    #[must_use]
    pub fn signed(&self) -> Option<&SignedBy> {
        self.signed.as_ref()
    }
}
