//! The person's directory below a layer, as far as it says what the layer's entries mean.

use std::path::Path;

use crate::RelativePath;
use crate::error::TreeError;
use crate::tree::{Tree, is_absence};

/// The directory below a layer.
pub(crate) struct Below {
    /// Nothing, where the directory is gone.
    tree: Option<Tree>,
}

impl Below {
    /// Opens it.
    ///
    /// # Errors
    /// When it is there and cannot be opened.
    pub(crate) fn open(host: &Path) -> Result<Self, TreeError> {
        let tree = match std::fs::metadata(host) {
            Err(error) if is_absence(&error) => None,
            Ok(_) | Err(_) => Some(Tree::open(host)?),
        };
        Ok(Self { tree })
    }

    /// Whether a directory there is a git repository. One that cannot be read may be.
    pub(crate) fn is_repository(&self, path: &RelativePath) -> bool {
        let Some(tree) = &self.tree else {
            return false;
        };
        let names = tree.names(path);
        names.map_or(true, |names| names.iter().any(|name| is_head(name)))
    }
}

/// Whether an entry of this name makes its directory a git repository.
pub(crate) fn is_head(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"HEAD")
}
