//! The directory of the control sockets of runs.

use std::os::fd::OwnedFd;

use atoll_ledger::private::PrivateDirectory;
use atoll_ledger::state::CONTROL;
use atoll_ledger::{PrivateFault, StateDir};

/// Opens the directory of the control sockets of runs; `None` if it does not exist and is not to be
/// made. Only its owner can look into it.
///
/// # Errors
/// [`PrivateFault`]: it cannot be made, or others can look into it.
pub fn control_directory(state: &StateDir, create: bool) -> Result<Option<OwnedFd>, PrivateFault> {
    let directory = PrivateDirectory::of_state(state, CONTROL, create)?;
    Ok(directory.map(PrivateDirectory::into_descriptor))
}
