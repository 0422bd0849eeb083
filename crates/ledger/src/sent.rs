//! The progress of sending the ledger elsewhere.

use serde::{Deserialize, Serialize};

use crate::private::PrivateDirectory;
use crate::state::TELEMETRY;
use crate::{PrivateFault, StateDir, TreeHash};

const KEPT_BYTES_MAX: u64 = 4 << 10;
/// The number of digits of an address's digest that make its file's name.
const NAME_DIGITS: usize = 32;

/// The last event that an address elsewhere has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    /// The event's number.
    pub seq: u64,
    /// The event's hash.
    pub leaf: TreeHash,
}

impl Sent {
    /// Reads the progress for an address. `None` if nothing was sent, or the file cannot be parsed,
    /// as after a loss of power: then everything is sent again.
    ///
    /// # Errors
    /// [`PrivateFault`].
    pub fn read(state: &StateDir, to: &str) -> Result<Option<Self>, PrivateFault> {
        let Some(directory) = PrivateDirectory::of_state(state, TELEMETRY, false)? else {
            return Ok(None);
        };
        let kept = directory.read(&name(to), KEPT_BYTES_MAX)?;
        Ok(kept.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Saves the progress for an address.
    ///
    /// # Errors
    /// [`PrivateFault`].
    pub fn keep(self, state: &StateDir, to: &str) -> Result<(), PrivateFault> {
        let Some(directory) = PrivateDirectory::of_state(state, TELEMETRY, true)? else {
            return Ok(());
        };
        let _lock = directory.lock()?;
        let bytes = serde_json::to_vec(&self).unwrap_or_default();
        directory.replace(&name(to), &bytes)
    }
}

/// Returns whether a file of that directory records the progress for an address.
pub(crate) fn is_file_name(name: &str) -> bool {
    name.len() == NAME_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn name(to: &str) -> String {
    let digest = TreeHash::of_leaf(to.as_bytes()).to_string();
    digest.chars().take(NAME_DIGITS).collect()
}
