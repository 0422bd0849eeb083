use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::RelativePath;
use crate::control::reason;

/// How many control files are made read-only one by one at most.
const SEALED_MAX: usize = 1_000;
/// How many directories are looked through for them at most.
const DIRECTORIES_MAX: usize = 200_000;
/// What tools fill with others' projects, whose control files nobody runs.
const FILLED_BY_TOOLS: [&str; 5] = ["node_modules", "target", ".venv", "venv", "__pycache__"];

/// The control files of a directory cannot all be found or are too many.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// There are more than can be made read-only one by one.
    #[error(
        "{} holds more than {SEALED_MAX} control files (git hooks, CI files and such); \
         run without --live, or choose a smaller workspace",
        .0.display()
    )]
    TooMany(PathBuf),
    /// There are more directories than are looked through.
    #[error(
        "{} holds more than {DIRECTORIES_MAX} directories; run without --live, or choose a \
         smaller workspace",
        .0.display()
    )]
    TooLarge(PathBuf),
}

/// The control files and directories that exist beneath a directory, as absolute
/// paths, for a sandbox that writes to it directly to make read-only. What lies
/// beneath one of them is not listed again; symbolic links are left out, since
/// nothing can be mounted on them.
///
/// # Errors
/// [`SealError`] when there are too many to be sure.
pub fn control_paths(directory: &Path) -> Result<Vec<PathBuf>, SealError> {
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_path_buf()];
    let mut directories = 0;
    while let Some(current) = waiting.pop() {
        directories += 1;
        if directories > DIRECTORIES_MAX {
            return Err(SealError::TooLarge(directory.to_path_buf()));
        }
        // What the person cannot read, the program cannot either.
        let Ok(entries) = fs::read_dir(&current) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_symlink() {
                continue;
            }
            if is_control(directory, &path, kind.is_dir()) {
                found.push(path);
            } else if kind.is_dir() && !is_filled_by_tools(&path) {
                waiting.push(path);
            }
            if found.len() > SEALED_MAX {
                return Err(SealError::TooMany(directory.to_path_buf()));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_control(directory: &Path, path: &Path, is_directory: bool) -> bool {
    let relative = path.strip_prefix(directory).unwrap_or(path);
    RelativePath::new(relative.as_os_str().as_bytes())
        .is_ok_and(|relative| reason(&relative, is_directory, false).is_some())
}

fn is_filled_by_tools(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| FILLED_BY_TOOLS.iter().any(|known| name == *known))
}
