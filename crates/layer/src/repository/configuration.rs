//! The parts of a repository's configuration that a sandbox may see.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use super::{NoRepository, Text, WORKTREES};
use crate::RelativePath;
use crate::git_config::{CONFIGURATION_BYTES_MAX, holds, without_secrets};
use crate::tree::Tree;

/// The configurations at the top of a common directory.
const NAMES: [&str; 2] = ["config", "config.worktree"];
/// A linked worktree's additional configuration.
const OF_WORKTREE: &str = "config.worktree";

/// One file of a repository's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Its name at the top of the common directory.
    pub name: OsString,
    /// The text to show: the whole of a file without secrets. `None` where there is no such file.
    pub text: Option<Vec<u8>>,
    /// Its permission bits.
    pub mode: u32,
    /// Set when secrets were left out.
    pub has_secrets: bool,
}

/// The lock files that git writes beside them before it renames them into place.
const LOCKS: [&[u8]; 2] = [b"config.lock", b"config.worktree.lock"];
/// The prefixes of copies of a configuration, by editors or by hand.
const COPIES: [&[u8]; 2] = [b"config", b".config"];
/// A part of the name of password files (git-credential-store(1)).
const PASSWORDS: &[u8] = b"credential";
/// Entries that git and related programs keep at the top of a common directory, without a
/// configuration's secrets.
const KEPT: [&str; 22] = [
    "HEAD",
    "FETCH_HEAD",
    "ORIG_HEAD",
    "MERGE_HEAD",
    "COMMIT_EDITMSG",
    "annex",
    "branches",
    "description",
    "gc.log",
    "gc.pid",
    "hooks",
    "index",
    "info",
    "lfs",
    "logs",
    "modules",
    "objects",
    "packed-refs",
    "refs",
    "reftable",
    "shallow",
    "worktrees",
];

/// Returns the configurations of the repository with the common directory `common`, whose device
/// and inode were `identity` when it was checked. Other entries at its top that hold secrets by
/// their name, or by being named in a configuration, are hidden entirely.
///
/// # Errors
/// [`NoRepository`]: another directory is there now, one of them cannot be read, or there are
/// secrets in one that nothing can stand for.
pub fn configurations(
    common: &Path,
    identity: (u64, u64),
) -> Result<Vec<Configuration>, NoRepository> {
    let gone = |_| NoRepository::NotThere(common.to_path_buf());
    let tree = Tree::open_without_links(common).map_err(gone)?;
    let now = tree.facts(&RelativePath::root()).ok().flatten();
    if now.map(|facts| facts.identity()) != Some(identity) {
        return Err(NoRepository::NotThere(common.to_path_buf()));
    }
    let worktrees = RelativePath::new(WORKTREES).unwrap_or_default();
    let names = tree.names(&worktrees);
    let unreadable = |error: std::io::Error| {
        let shown = common.join(WORKTREES).display().to_string();
        NoRepository::Unreadable(shown, error.to_string())
    };
    for name in names.map_err(unreadable)? {
        let place = [
            WORKTREES.as_bytes(),
            b"/",
            &name,
            b"/",
            OF_WORKTREE.as_bytes(),
        ]
        .concat();
        let place = RelativePath::new(place).unwrap_or_default();
        if one(&tree, common, &place)?.has_secrets {
            return Err(NoRepository::Secrets(common.join(place.as_os_str())));
        }
    }
    let read = |name: &&'static str| {
        let place = RelativePath::new(*name).unwrap_or_default();
        one(&tree, common, &place)
    };
    let mut all: Vec<Configuration> = NAMES.iter().map(read).collect::<Result<_, _>>()?;
    all.extend(hidden(&tree, common)?);
    Ok(all)
}

/// Returns the entries that are not shown at all, each with whether it exists.
fn hidden(tree: &Tree, common: &Path) -> Result<Vec<Configuration>, NoRepository> {
    let top = RelativePath::root();
    let unread = |error: &dyn std::fmt::Display| {
        NoRepository::Unreadable(common.display().to_string(), error.to_string())
    };
    let names = tree.names(&top).map_err(|error| unread(&error))?;
    let mut texts = Vec::new();
    for name in NAMES {
        let place = RelativePath::new(name).unwrap_or_default();
        if tree
            .facts(&place)
            .map_err(|error| unread(&error))?
            .is_some()
        {
            let shown = common.join(name);
            texts.push(Text::of(tree, &place, &shown, CONFIGURATION_BYTES_MAX)?.bytes);
        }
    }
    let is_shown = |name: &[u8]| NAMES.iter().chain(&KEPT).any(|one| one.as_bytes() == name);
    let is_hidden = |name: &Vec<u8>| {
        let lower = name.to_ascii_lowercase();
        let is_copy = COPIES.iter().any(|begun| lower.starts_with(begun));
        let is_named = || texts.iter().any(|text| holds(text, name));
        !is_shown(name) && (is_copy || holds(&lower, PASSWORDS) || is_named())
    };
    let made = |name: &[u8], is_there| Configuration {
        name: OsString::from_vec(name.to_vec()),
        text: None,
        mode: 0,
        has_secrets: is_there,
    };
    let there = names.iter().filter(|name| is_hidden(name));
    let mut all: Vec<Configuration> = there.map(|name| made(name, true)).collect();
    // Git makes these while the run goes on, too.
    let later = LOCKS
        .iter()
        .filter(|lock| !names.iter().any(|name| name == *lock));
    all.extend(later.map(|name| made(name, false)));
    Ok(all)
}

fn one(tree: &Tree, common: &Path, place: &RelativePath) -> Result<Configuration, NoRepository> {
    let shown = common.join(place.as_os_str());
    let none = Configuration {
        name: OsString::from_vec(place.name().to_vec()),
        text: None,
        mode: 0,
        has_secrets: false,
    };
    let unread = |error: &dyn std::fmt::Display| {
        NoRepository::Unreadable(shown.display().to_string(), error.to_string())
    };
    let Some(facts) = tree.facts(place).map_err(|error| unread(&error))? else {
        return Ok(none);
    };
    let text = Text::of(tree, place, &shown, CONFIGURATION_BYTES_MAX)?.bytes;
    let without = without_secrets(&text).map_err(|error| unread(&error))?;
    Ok(Configuration {
        mode: facts.mode & 0o777,
        has_secrets: without.is_some(),
        text: Some(without.unwrap_or(text)),
        ..none
    })
}
