//! Finds the git repository of a workspace that is a linked worktree or a submodule.
//!
//! Its `.git` is a file then that names the git directory (gitrepository-layout(5)), which lies
//! outside. Whoever wrote the workspace wrote that file, so it is believed only where the directory
//! that it leads to names the workspace back: git writes that when it makes a worktree or a
//! submodule, and nobody who could only write the workspace can.

mod configuration;

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use crate::RelativePath;
use crate::facts::{Facts, Kind};
use crate::git_config::{self, CONFIGURATION_BYTES_MAX};
use crate::tree::{Tree, is_absence};

pub use configuration::{Configuration, configurations};

/// The largest file that names a directory, bytes: a path and a few words.
const POINTER_BYTES_MAX: u64 = 8 << 10;
/// The directory of linked worktrees in a git directory.
const WORKTREES: &str = "worktrees";

/// The git directory that a workspace needs besides itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// The directory that all worktrees of the repository share: objects, branches, hooks and
    /// configuration. Absolute, and free of symbolic links.
    pub common: PathBuf,
    /// The name of the workspace's own directory in `worktrees` there; `None` where the workspace
    /// is the repository's only checkout, as a submodule is.
    pub worktree: Option<OsString>,
    /// The device and the inode of the common directory in which all of this was checked: the
    /// directory that is shown has to be the same.
    pub identity: (u64, u64),
}

/// The reason why the repository of a workspace is not shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRepository {
    /// `.git` is a link that leads out of the workspace.
    #[error("its .git is a symbolic link that leads out of it")]
    Link,
    /// A file or directory cannot be read: its path, and the error.
    #[error("{0} cannot be read: {1}")]
    Unreadable(String, String),
    /// A file is not in the form that git writes.
    #[error("{0} is not what git writes there")]
    Form(String),
    /// The path leads through symbolic links.
    #[error("{} leads through a symbolic link: name the real path there", .0.display())]
    Through(PathBuf),
    /// There is no such directory.
    #[error("there is no git directory at {}", .0.display())]
    NotThere(PathBuf),
    /// Somebody else owns it.
    #[error("{} belongs to another user", .0.display())]
    Foreign(PathBuf),
    /// The git directory is that of something else.
    #[error("{} does not name this directory back", .0.display())]
    NotBack(PathBuf),
    /// Its content holds secrets that must not be shown, and nothing can stand in its place.
    #[error("there are secrets in {}", .0.display())]
    Secrets(PathBuf),
    /// The workspace lies in the git directory.
    #[error("{} holds this directory, and other checkouts perhaps", .0.display())]
    Holds(PathBuf),
}

/// Finds the repository of a workspace whose git directory lies outside, and belongs to the user
/// `uid`. `workspace` is free of symbolic links. `None` where the workspace is in no repository, or
/// is complete in itself. Nothing is written, no program is run, no link is followed.
///
/// # Errors
/// [`NoRepository`]: what `.git` names is nothing that may be shown.
pub fn repository(workspace: &Path, uid: u32) -> Result<Option<Repository>, NoRepository> {
    let name = workspace.join(".git");
    let unreadable = |error: &dyn std::fmt::Display| {
        NoRepository::Unreadable(name.display().to_string(), error.to_string())
    };
    let tree = Tree::open_for_lookups(workspace).map_err(|error| unreadable(&error))?;
    let pointer = RelativePath::new(".git").unwrap_or_default();
    match tree.facts(&pointer).map_err(|error| unreadable(&error))? {
        Some(facts) if facts.kind == Kind::File => {}
        Some(facts) if facts.kind == Kind::Symlink => {
            let leads = name.canonicalize();
            let is_within = leads.is_ok_and(|leads| leads.starts_with(workspace));
            return if is_within {
                Ok(None)
            } else {
                Err(NoRepository::Link)
            };
        }
        Some(_) | None => return Ok(None),
    }
    let text = Text::of(&tree, &pointer, &name, POINTER_BYTES_MAX)?;
    text.belongs_to(uid, &name)?;
    let named =
        gitdir(&text.bytes).ok_or_else(|| NoRepository::Form(name.display().to_string()))?;
    let git = resolved(workspace, &named);
    if git.starts_with(workspace) {
        // It is shown with the workspace, and whatever it names in turn is not.
        return Ok(None);
    }
    let git = real(&git)?;
    let own = Directory::open(&git, uid)?;
    let (common, worktree) = match own.pointer(&RelativePath::root(), "commondir")? {
        Some(_) => {
            let common = Directory::open(&linked(&git)?, uid)?;
            let name = git.file_name().unwrap_or_default();
            common.names_back(&git, name, workspace)?;
            (common, Some(name.to_os_string()))
        }
        None => {
            own.is_checked_out_at(workspace)?;
            (own, None)
        }
    };
    if workspace.starts_with(&common.path) {
        return Err(NoRepository::Holds(common.path));
    }
    common.refuse_other()?;
    Ok(Some(Repository {
        identity: common.identity,
        common: common.path,
        worktree,
    }))
}

/// Returns the common directory of a linked worktree, given its own git directory.
fn linked(git: &Path) -> Result<PathBuf, NoRepository> {
    let worktrees = git.parent();
    let is_usual = |at: &&Path| at.file_name() == Some(OsStr::new(WORKTREES));
    let above = worktrees.filter(is_usual).and_then(Path::parent);
    above
        .map(Path::to_path_buf)
        .ok_or_else(|| NoRepository::NotBack(git.to_path_buf()))
}

/// Returns whether a directory that a git directory names is the workspace. Symbolic links on the
/// way are the decision of the git directory's owner.
fn leads_to(named: Option<&Path>, workspace: &Path) -> bool {
    let real = named.and_then(|named| named.canonicalize().ok());
    real.is_some_and(|real| real == workspace)
}

/// A directory that git keeps, and that belongs to the person. Everything in it is read by its
/// descriptor.
struct Directory {
    path: PathBuf,
    tree: Tree,
    uid: u32,
    identity: (u64, u64),
}

impl Directory {
    /// Opens a directory by a path without symbolic links.
    fn open(path: &Path, uid: u32) -> Result<Self, NoRepository> {
        let gone = |_| NoRepository::NotThere(path.to_path_buf());
        let tree = Tree::open_without_links(path).map_err(gone)?;
        let top = tree.facts(&RelativePath::root());
        match top {
            Ok(Some(facts)) if facts.uid == uid => Ok(Self {
                path: path.to_path_buf(),
                tree,
                uid,
                identity: facts.identity(),
            }),
            Ok(_) | Err(_) => Err(NoRepository::Foreign(path.to_path_buf())),
        }
    }

    /// Refuses a worktree of this name that is not the workspace's: it must be exactly where git
    /// makes it, in both directions. `git` is its own directory.
    fn names_back(&self, git: &Path, name: &OsStr, workspace: &Path) -> Result<(), NoRepository> {
        let not_back = || NoRepository::NotBack(git.to_path_buf());
        let place = RelativePath::new([WORKTREES.as_bytes(), b"/", name.as_bytes()].concat());
        let place = place.map_err(|_| not_back())?;
        for part in place.ancestors().chain([place.clone()]) {
            let facts = self.tree.facts(&part).ok().flatten();
            let is_own = |facts: &Facts| facts.kind == Kind::Directory && facts.uid == self.uid;
            if !facts.as_ref().is_some_and(is_own) {
                return Err(not_back());
            }
        }
        let common = self.pointer(&place, "commondir")?.ok_or_else(not_back)?;
        let back = self.pointer(&place, "gitdir")?.ok_or_else(not_back)?;
        let back = resolved(git, &back);
        let is_git = back.file_name() == Some(OsStr::new(".git"));
        let is_it = resolved(git, &common) == self.path && leads_to(back.parent(), workspace);
        match is_it && is_git {
            true => Ok(()),
            false => Err(not_back()),
        }
    }

    /// Refuses a git directory without worktrees whose configuration does not name the workspace,
    /// as git writes it for a submodule.
    fn is_checked_out_at(&self, workspace: &Path) -> Result<(), NoRepository> {
        let not_back = || NoRepository::NotBack(self.path.clone());
        let text = self.text(&RelativePath::root(), "config", CONFIGURATION_BYTES_MAX)?;
        let named = text.and_then(|text| git_config::value(&text, b"core", b"worktree").ok()?);
        let named = OsString::from_vec(named.ok_or_else(not_back)?);
        match leads_to(Some(&resolved(&self.path, &named)), workspace) {
            true => Ok(()),
            false => Err(not_back()),
        }
    }

    /// Returns the content of a file in one of its directories; `None` without one.
    fn text(
        &self,
        place: &RelativePath,
        name: &str,
        bytes_max: u64,
    ) -> Result<Option<Vec<u8>>, NoRepository> {
        let path = place.concat(&RelativePath::new(name).unwrap_or_default());
        let shown = self.path.join(path.as_os_str());
        if let Ok(None) = self.tree.facts(&path) {
            return Ok(None);
        }
        let text = Text::of(&self.tree, &path, &shown, bytes_max)?;
        text.belongs_to(self.uid, &shown)?;
        Ok(Some(text.bytes))
    }

    /// Returns the path that such a file holds as its only line; `None` without one.
    fn pointer(&self, place: &RelativePath, name: &str) -> Result<Option<OsString>, NoRepository> {
        let Some(text) = self.text(place, name, POINTER_BYTES_MAX)? else {
            return Ok(None);
        };
        let line = only_line(&text).map(|line| OsString::from_vec(line.to_vec()));
        let shown = self.path.join(place.as_os_str()).join(name);
        line.map(Some)
            .ok_or(NoRepository::Form(shown.display().to_string()))
    }

    /// Refuses a directory that is not a git directory: git checks the same three entries
    /// (gitrepository-layout(5)).
    fn refuse_other(&self) -> Result<(), NoRepository> {
        let parts = [
            ("HEAD", Kind::File),
            ("objects", Kind::Directory),
            ("refs", Kind::Directory),
        ];
        let is_there = |(name, kind): &(&str, Kind)| {
            let path = RelativePath::new(*name).unwrap_or_default();
            let facts: Option<Facts> = self.tree.facts(&path).ok().flatten();
            facts.is_some_and(|facts| facts.kind == *kind && facts.uid == self.uid)
        };
        match parts.iter().all(is_there) {
            true => Ok(()),
            false => Err(NoRepository::NotThere(self.path.clone())),
        }
    }
}

/// A small file's content, with its owner.
struct Text {
    bytes: Vec<u8>,
    uid: u32,
}

impl Text {
    fn of(
        tree: &Tree,
        path: &RelativePath,
        shown: &Path,
        bytes_max: u64,
    ) -> Result<Self, NoRepository> {
        let read = || -> io::Result<Self> {
            let (file, facts) = tree.file(path)?;
            let mut bytes = Vec::new();
            file.take(bytes_max + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > bytes_max {
                return Err(io::Error::other("it is too large"));
            }
            Ok(Self {
                bytes,
                uid: facts.uid,
            })
        };
        read().map_err(|error| {
            NoRepository::Unreadable(shown.display().to_string(), error.to_string())
        })
    }

    fn belongs_to(&self, uid: u32, shown: &Path) -> Result<(), NoRepository> {
        match self.uid == uid {
            true => Ok(()),
            false => Err(NoRepository::Foreign(shown.to_path_buf())),
        }
    }
}

/// Returns the path in a `.git` file.
pub(crate) fn gitdir(text: &[u8]) -> Option<OsString> {
    let named = only_line(text)?.strip_prefix(b"gitdir: ")?;
    (!named.is_empty()).then(|| OsString::from_vec(named.to_vec()))
}

/// Returns the one line of a file, without its end.
pub(crate) fn only_line(text: &[u8]) -> Option<&[u8]> {
    let line = text.strip_suffix(b"\n").unwrap_or(text);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let is_plain = |byte: &u8| !matches!(byte, 0 | b'\n' | b'\r');
    (!line.is_empty() && line.iter().all(is_plain)).then_some(line)
}

/// Resolves a path relative to a directory, without `.` and `..`, looking at nothing.
pub(crate) fn resolved(directory: &Path, named: &OsStr) -> PathBuf {
    let mut path = PathBuf::from("/");
    for part in directory.join(named).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    path
}

/// Returns the path itself, if it exists and has no symbolic link on the way.
fn real(path: &Path) -> Result<PathBuf, NoRepository> {
    match path.canonicalize() {
        Ok(real) if real == path => Ok(real),
        Ok(_) => Err(NoRepository::Through(path.to_path_buf())),
        Err(error) if is_absence(&error) => Err(NoRepository::NotThere(path.to_path_buf())),
        Err(error) => Err(NoRepository::Unreadable(
            path.display().to_string(),
            error.to_string(),
        )),
    }
}

#[cfg(test)]
mod tests;
