//! What of a repository's configuration goes in.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use super::{NoRepository, Text, WORKTREES};
use crate::RelativePath;
use crate::git_config::{CONFIGURATION_BYTES_MAX, holds, without_secrets};
use crate::tree::Tree;

/// The configurations at the top of a common directory.
const NAMES: [&str; 2] = ["config", "config.worktree"];
/// The configuration that a linked worktree has besides.
const OF_WORKTREE: &str = "config.worktree";

/// One file of a repository's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Its name at the top of the common directory.
    pub name: OsString,
    /// What goes in of it: of one without secrets all. None where there is no such file.
    pub text: Option<Vec<u8>>,
    /// Its permission bits.
    pub mode: u32,
    /// Whether there is more in it.
    pub has_secrets: bool,
}

/// What git writes beside them before it takes their place.
const LOCKS: [&[u8]; 2] = [b"config.lock", b"config.worktree.lock"];
/// What copies of a configuration, of editors or by hand, begin with.
const COPIES: [&[u8]; 2] = [b"config", b".config"];
/// What a file of passwords has in its name (git-credential-store(1)).
const PASSWORDS: &[u8] = b"credential";
/// What git and programs around it keep at the top of a common directory, with no secrets of a
/// configuration's.
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

/// The configurations of the repository whose common directory is `common`, and was when it was
/// looked at the directory of this device and inode; and what else lies at its top and has secrets
/// by its name, or by being named in a configuration: nothing goes in of that.
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

/// What is not shown at all: each with whether it is there.
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
