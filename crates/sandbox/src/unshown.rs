//! The entries that must be masked in a directory that is mounted as it is: through a plain
//! mount a socket leads to its listener on the host, a pipe to its reader.

use std::fs::FileType;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The most entries that are inspected.
const ENTRIES_MAX: usize = 2_000_000;
/// The most entries that are masked.
const COVERED_MAX: usize = 1_000;

/// The masked paths of a directory.
#[derive(Debug, Default)]
pub(crate) struct Unshown {
    /// Sockets, pipes and devices.
    pub(crate) files: Vec<PathBuf>,
    /// Directories that cannot be read; the program may be able to enter them.
    pub(crate) directories: Vec<PathBuf>,
}

/// Finds the paths to mask, without entering `closed`, which are masked too. Entries that
/// vanish meanwhile are left out.
///
/// # Errors
/// If there are more than can be inspected or masked.
pub(crate) fn unshown(top: &Path, closed: &[&Path]) -> io::Result<Unshown> {
    let mut found = Unshown::default();
    let mut looked = 0;
    let mut waiting = vec![top.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        if closed.contains(&directory.as_path()) {
            found.directories.push(directory);
            continue;
        }
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => {
                found.directories.push(directory);
                continue;
            }
        };
        for entry in entries {
            let entry = entry?;
            looked += 1;
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(entry.path()),
                Ok(kind) if is_special(kind) => found.files.push(entry.path()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        if looked > ENTRIES_MAX || found.files.len() + found.directories.len() > COVERED_MAX {
            return Err(io::Error::other(
                "a file system is mounted within, and there is too much in it to look through; \
                 unmount what is within, or run as root",
            ));
        }
    }
    Ok(found)
}

fn is_special(kind: FileType) -> bool {
    kind.is_socket() || kind.is_fifo() || kind.is_char_device() || kind.is_block_device()
}
