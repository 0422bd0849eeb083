//! Where the git repository of a workspace is, when the workspace is a linked worktree or a submodule.
//!
//! Its `.git` is a file then that names the git directory (gitrepository-layout(5)), which lies
//! outside. Whoever wrote the workspace wrote that file, so it is believed only where what it leads
//! to names the workspace back: git writes that when it makes a worktree or a submodule, and
//! nobody who could only write the workspace can.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use crate::RelativePath;
use crate::facts::{Facts, Kind};
use crate::tree::{Tree, is_absence};

/// The largest file that names a directory, bytes: a path and a few words.
const POINTER_BYTES_MAX: u64 = 8 << 10;
/// The largest configuration of a submodule that is read, bytes.
const CONFIGURATION_BYTES_MAX: u64 = 1 << 20;

/// The git directory that a workspace needs besides itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// The directory that all worktrees of the repository share: objects, branches, hooks and
    /// configuration. Absolute, and free of symbolic links.
    pub common: PathBuf,
    /// The name of the workspace's own directory in `worktrees` there; none where the
    /// workspace is the repository's only checkout, as a submodule is.
    pub worktree: Option<OsString>,
}

/// Why the repository of a workspace is not shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRepository {
    /// `.git` is a link that leads out of the workspace.
    #[error("its .git is a symbolic link that leads out of it")]
    Link,
    /// It cannot be read.
    #[error("{0} cannot be read: {1}")]
    Unreadable(String, String),
    /// It is not in the form that git writes.
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
    /// The workspace lies in the git directory.
    #[error("{} holds this directory, and other checkouts perhaps", .0.display())]
    Holds(PathBuf),
}

/// Finds the repository of a workspace whose git directory lies outside, and belongs to the user
/// `uid`. `workspace` is free of symbolic links. None where the workspace is in no repository, or
/// is whole in itself. Nothing is written, no program is run, no link is followed.
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
    let found = match Directory::open(&git, uid)?.pointer("commondir")? {
        Some(common) => linked(workspace, &git, &common, uid)?,
        None => {
            names_back(workspace, &git, uid)?;
            Repository {
                common: git,
                worktree: None,
            }
        }
    };
    if workspace.starts_with(&found.common) {
        return Err(NoRepository::Holds(found.common));
    }
    Directory::open(&found.common, uid)?.refuse_other()?;
    Ok(Some(found))
}

/// The repository of a linked worktree, whose own git directory is `git`: exactly where git makes
/// it, in both directions.
fn linked(
    workspace: &Path,
    git: &Path,
    common: &OsStr,
    uid: u32,
) -> Result<Repository, NoRepository> {
    let not_back = || NoRepository::NotBack(git.to_path_buf());
    let worktrees = git.parent().ok_or_else(not_back)?;
    let is_usual = worktrees.file_name() == Some(OsStr::new("worktrees"));
    let above = worktrees.parent().filter(|_| is_usual);
    let above = above.ok_or_else(not_back)?;
    if resolved(git, common) != above {
        return Err(not_back());
    }
    let own = Directory::open(git, uid)?;
    let back = own.pointer("gitdir")?.ok_or_else(not_back)?;
    let back = resolved(git, &back);
    let is_git = back.file_name() == Some(OsStr::new(".git"));
    if !is_git || !leads_to(back.parent(), workspace) {
        return Err(not_back());
    }
    Ok(Repository {
        common: above.to_path_buf(),
        worktree: git.file_name().map(OsStr::to_os_string),
    })
}

/// Refuses a git directory without worktrees whose configuration does not name the workspace, as
/// git writes it for a submodule.
fn names_back(workspace: &Path, git: &Path, uid: u32) -> Result<(), NoRepository> {
    let not_back = || NoRepository::NotBack(git.to_path_buf());
    let own = Directory::open(git, uid)?;
    let text = own.text("config", CONFIGURATION_BYTES_MAX)?;
    let named = text.and_then(|text| core_worktree(&text));
    let named = resolved(git, &named.ok_or_else(not_back)?);
    match leads_to(Some(&named), workspace) {
        true => Ok(()),
        false => Err(not_back()),
    }
}

/// Whether a directory that a git directory names is the workspace. Links that its owner has put
/// on the way are the owner's.
fn leads_to(named: Option<&Path>, workspace: &Path) -> bool {
    let real = named.and_then(|named| named.canonicalize().ok());
    real.is_some_and(|real| real == workspace)
}

/// A directory that git keeps, and that belongs to the person.
struct Directory<'a> {
    path: &'a Path,
    tree: Tree,
    uid: u32,
}

impl<'a> Directory<'a> {
    fn open(path: &'a Path, uid: u32) -> Result<Self, NoRepository> {
        let gone = |_| NoRepository::NotThere(path.to_path_buf());
        let tree = Tree::open_for_lookups(path).map_err(gone)?;
        let top = tree.facts(&RelativePath::root());
        match top {
            Ok(Some(facts)) if facts.uid == uid => Ok(Self { path, tree, uid }),
            Ok(_) | Err(_) => Err(NoRepository::Foreign(path.to_path_buf())),
        }
    }

    /// What a file at its top holds; none without one.
    fn text(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, NoRepository> {
        let path = RelativePath::new(name).unwrap_or_default();
        let shown = self.path.join(name);
        if let Ok(None) = self.tree.facts(&path) {
            return Ok(None);
        }
        let text = Text::of(&self.tree, &path, &shown, bytes_max)?;
        text.belongs_to(self.uid, &shown)?;
        Ok(Some(text.bytes))
    }

    /// The path that a file at its top holds as its only line; none without one.
    fn pointer(&self, name: &str) -> Result<Option<OsString>, NoRepository> {
        let Some(text) = self.text(name, POINTER_BYTES_MAX)? else {
            return Ok(None);
        };
        let line = only_line(&text).map(|line| OsString::from_vec(line.to_vec()));
        let shown = self.path.join(name).display().to_string();
        line.map(Some).ok_or(NoRepository::Form(shown))
    }

    /// Refuses what is no git directory: git asks for the same three (gitrepository-layout(5)).
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
            false => Err(NoRepository::NotThere(self.path.to_path_buf())),
        }
    }
}

/// A small file, whose it is besides.
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

/// The path in a `.git` file.
fn gitdir(text: &[u8]) -> Option<OsString> {
    let named = only_line(text)?.strip_prefix(b"gitdir: ")?;
    (!named.is_empty()).then(|| OsString::from_vec(named.to_vec()))
}

/// The one line of a file, without its end.
fn only_line(text: &[u8]) -> Option<&[u8]> {
    let line = text.strip_suffix(b"\n").unwrap_or(text);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let is_plain = |byte: &u8| !matches!(byte, 0 | b'\n' | b'\r');
    (!line.is_empty() && line.iter().all(is_plain)).then_some(line)
}

/// The last `worktree` of the section `core` in a configuration of git (git-config(1), "Syntax").
/// None also where it is written in a form that git itself does not write: several lines, or
/// escapes other than of a quotation mark or a backslash.
fn core_worktree(text: &[u8]) -> Option<OsString> {
    let mut in_core = false;
    let mut found = None;
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii();
        if line.starts_with(b"[") {
            in_core = line.eq_ignore_ascii_case(b"[core]");
            continue;
        }
        let Some(at) = line
            .iter()
            .position(|byte| *byte == b'=')
            .filter(|_| in_core)
        else {
            continue;
        };
        let (key, value) = line.split_at(at);
        if key.trim_ascii().eq_ignore_ascii_case(b"worktree") {
            found = unquoted(value.get(1..).unwrap_or_default().trim_ascii());
        }
    }
    found
}

fn unquoted(value: &[u8]) -> Option<OsString> {
    let inner = value
        .strip_prefix(b"\"")
        .map(|rest| rest.strip_suffix(b"\""));
    let (value, is_quoted) = match inner {
        Some(inner) => (inner?, true),
        None => (value, false),
    };
    let mut plain = Vec::with_capacity(value.len());
    let mut bytes = value.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => match bytes.next() {
                Some(escaped @ (b'\\' | b'"')) => plain.push(*escaped),
                Some(_) | None => return None,
            },
            b'"' | 0 => return None,
            b'#' | b';' if !is_quoted => return None,
            other => plain.push(*other),
        }
    }
    (!plain.is_empty()).then(|| OsString::from_vec(plain))
}

/// A path as it is written in a directory, without `.` and `..`, looking at nothing.
fn resolved(directory: &Path, named: &OsStr) -> PathBuf {
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

/// The path itself, where it is there and no link is on the way.
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
