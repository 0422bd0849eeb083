use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::control::{as_in_git, is_git_directory, reason};
use crate::facts::Kind;
use crate::git_programs::Named;
use crate::tree::{Tree, kinds_in};
use crate::{GitEnvironment, RelativePath};

/// The most control files that are made read-only one by one.
const SEALED_MAX: usize = 1_000;
/// The most directories that are searched for them.
const DIRECTORIES_MAX: usize = 200_000;
/// Directories that tools fill with others' projects, whose control files nobody runs.
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
    /// There are more directories than are searched.
    #[error(
        "{} holds more than {DIRECTORIES_MAX} directories; run without --live, or choose a \
         smaller workspace",
        .0.display()
    )]
    TooLarge(PathBuf),
    /// The programs that git runs are not known.
    #[error(
        "git's configuration in {} cannot be read, so it is not known what git runs in the workspace",
        .0.display()
    )]
    Unread(PathBuf),
    /// Git takes hooks from the top of the directory.
    #[error(
        "git's configuration names {} itself as a directory of hooks",
        .0.display()
    )]
    HooksAtTop(PathBuf),
}

/// Returns the control files and directories that exist beneath a directory, as absolute paths, for
/// a sandbox that writes to it directly to make read-only. Entries beneath one of them are not
/// listed again; symbolic links are left out, since nothing can be mounted on them.
///
/// # Errors
/// [`SealError`] when there are too many to be sure, or not all are known.
pub fn control_paths(
    directory: &Path,
    environment: &GitEnvironment,
) -> Result<Vec<PathBuf>, SealError> {
    let (mut found, mut repositories) = (Vec::new(), Vec::new());
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
        let has = |part: &[u8]| entries.iter().any(|(name, _)| name == part);
        let is_git = is_git_directory(has);
        if is_git || has(b".git") {
            repositories.push(current.clone());
        }
        if is_git {
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
    let named = Named::find(directory, environment, repositories.into_iter());
    for (path, is_whole) in named.paths() {
        if path.is_root() {
            return Err(SealError::HooksAtTop(directory.to_path_buf()));
        }
        let kind = tree.facts(path).ok().flatten().map(|facts| facts.kind);
        if kind == Some(Kind::File) || (kind == Some(Kind::Directory) && is_whole) {
            found.push(directory.join(path.as_os_str()));
        }
    }
    if let Some(file) = named.unread {
        return Err(SealError::Unread(file));
    }
    found.sort();
    found.dedup_by(|later, earlier| later.starts_with(earlier));
    if found.len() > SEALED_MAX {
        return Err(SealError::TooMany(directory.to_path_buf()));
    }
    Ok(found)
}
