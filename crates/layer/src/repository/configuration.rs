//! What of a repository's configuration goes in.

use std::path::Path;

use super::{NoRepository, Text, WORKTREES};
use crate::RelativePath;
use crate::git_config::{CONFIGURATION_BYTES_MAX, without_secrets};
use crate::tree::Tree;

/// The configurations at the top of a common directory.
const NAMES: [&str; 2] = ["config", "config.worktree"];
/// The configuration that a linked worktree has besides.
const OF_WORKTREE: &str = "config.worktree";

/// One file of a repository's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Its name at the top of the common directory.
    pub name: &'static str,
    /// What goes in of it: of one without secrets all. None where there is no such file.
    pub text: Option<Vec<u8>>,
    /// Its permission bits.
    pub mode: u32,
    /// Whether there is more in it.
    pub has_secrets: bool,
}

/// The configurations of the repository whose common directory is `common`, and was when it was
/// looked at the directory of this device and inode.
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
        if one(&tree, common, &place, OF_WORKTREE)?.has_secrets {
            return Err(NoRepository::Secrets(common.join(place.as_os_str())));
        }
    }
    let read = |name: &&'static str| {
        let place = RelativePath::new(*name).unwrap_or_default();
        one(&tree, common, &place, name)
    };
    NAMES.iter().map(read).collect()
}

fn one(
    tree: &Tree,
    common: &Path,
    place: &RelativePath,
    name: &'static str,
) -> Result<Configuration, NoRepository> {
    let shown = common.join(place.as_os_str());
    let none = Configuration {
        name,
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
