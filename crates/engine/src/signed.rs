//! Signed lists of files, and the keys that sign and verify them.

pub use atoll_ledger::VerifierKey;
pub use atoll_store::{Manifest, OrganisationKey, Signed};
