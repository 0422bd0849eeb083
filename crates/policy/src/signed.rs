//! The signer of the organisation's layer, for reports on the rules. The signature is checked where
//! files are read, and nothing is compiled if a required one is missing.

use std::fmt;

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
