//! The layers that a sandbox begins with, by their names.

use std::path::{Path, PathBuf};

use atoll_store::Snapshot;
use serde::{Deserialize, Serialize};

use super::answers::fault;
use crate::protocol::Refusal;

/// The layers that a sandbox begins with, by their names, the topmost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Begun {
    /// Of its home.
    pub(super) home: Vec<String>,
    /// Of root's changes of its system.
    pub(super) system: Vec<String>,
    /// Made by host root: the first of the ids that their files belong to.
    pub(super) base: Option<u32>,
}

impl Begun {
    pub(super) fn all(&self) -> impl Iterator<Item = &String> {
        self.home.iter().chain(&self.system)
    }
}

/// Returns the layers of a snapshot; one that is not whole has none.
pub(super) fn begun_of(one: &Snapshot) -> Result<Begun, Refusal> {
    if one.layers.is_empty() {
        return Ok(Begun::default());
    }
    serde_json::from_str(&one.layers).map_err(|error| fault(&error))
}

/// Returns the directory of root's changes of the system beside a home.
pub(super) fn changes_beside(home: &Path) -> PathBuf {
    let mut path = home.as_os_str().to_owned();
    path.push(CHANGES);
    path.into()
}

/// The end of the name of the directory with root's changes of the system, beside the home.
pub(super) const CHANGES: &str = ".system";
