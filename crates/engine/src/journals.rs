//! The journals of applies, as they lie in a directory.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::failure::{Doing, Failure};

/// Returns the journals of a directory that have this prefix before their number, oldest first;
/// none where there is no directory.
///
/// # Errors
/// When the directory cannot be read: nobody knows then what was applied.
pub(crate) fn numbered(directory: &Path, prefix: &str) -> Result<Vec<PathBuf>, Failure> {
    let unread = "the journals cannot be read";
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.doing(unread)?,
    };
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    for entry in entries {
        let path = entry.doing(unread)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix(prefix)?.parse().ok());
        found.extend(number.map(|number| (number, path)));
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}
