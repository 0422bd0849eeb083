use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::RelativePath;
use crate::control::{as_in_git, is_git_directory, reason};
use crate::facts::Kind;
use crate::tree::{Tree, kinds_in};

/// How many control files are made read-only one by one at most.
const SEALED_MAX: usize = 1_000;
/// How many directories are looked through for them at most.
const DIRECTORIES_MAX: usize = 200_000;
/// What tools fill with others' projects, whose control files nobody runs.
const FILLED_BY_TOOLS: [&[u8]; 5] = [
    b"node_modules",
    b"target",
    b".venv",
    b"venv",
    b"__pycache__",
];

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
    let Ok(tree) = Tree::open(directory) else {
        return Ok(found);
    };
    // Each with the git directories that it lies in, whatever they are called.
    let mut waiting = vec![(RelativePath::root(), Vec::new())];
    let mut directories = 0;
    while let Some((current, mut git)) = waiting.pop() {
        directories += 1;
        if directories > DIRECTORIES_MAX {
            return Err(SealError::TooLarge(directory.to_path_buf()));
        }
        // What the person cannot read, the program cannot either.
        let opened = tree.directory(&current);
        let Ok(entries) = opened.and_then(|opened| kinds_in(opened.as_fd())) else {
            continue;
        };
        if is_git_directory(|part| entries.iter().any(|(name, _)| name == part)) {
            git.push(current.clone());
        }
        for (name, kind) in entries {
            let Ok(path) = current.join(&name) else {
                continue;
            };
            if kind == Kind::Symlink {
                continue;
            }
            let is_directory = kind == Kind::Directory;
            let in_git = git.iter().map(|git| as_in_git(&path, git));
            let mut names = in_git.chain([path.clone()]);
            if names.any(|name| reason(&name, is_directory, false).is_some()) {
                found.push(directory.join(path.as_os_str()));
            } else if is_directory && !FILLED_BY_TOOLS.contains(&name.as_slice()) {
                waiting.push((path, git.clone()));
            }
            if found.len() > SEALED_MAX {
                return Err(SealError::TooMany(directory.to_path_buf()));
            }
        }
    }
    found.sort();
    Ok(found)
}
