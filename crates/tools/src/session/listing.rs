//! Lists of a session, as its caller sees them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::registry::Registry;
use crate::tool::Tool;

/// Something that a caller may call.
pub struct Listing {
    /// The tool that it is called by.
    pub tool: Arc<Tool>,
    /// The prompt or the resources, as MCP describes them.
    pub offers: Vec<Value>,
}

/// The lists of a session, as they were at some time.
pub struct Seen {
    pub(super) registry: Arc<Registry>,
    pub(super) offers: u64,
    pub(super) lists: [u64; 3],
}

/// The lists that are other than before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedLists {
    /// The list of tools.
    pub tools: bool,
    /// The list of prompts.
    pub prompts: bool,
    /// The list of resources.
    pub resources: bool,
}

impl ChangedLists {
    /// Returns whether one of them is.
    #[must_use]
    pub fn any(self) -> bool {
        self.tools || self.prompts || self.resources
    }
}
