//! The place of all that is kept.

use atoll_ledger::{Ledger, StateDir};
use atoll_store::Store;

/// The place of all that is kept.
pub struct Place<'a> {
    /// The state directory.
    pub state: &'a StateDir,
    /// The ledger.
    pub ledger: &'a Ledger,
    /// The store of a server, where there is one.
    pub store: Option<&'a dyn Store>,
}
