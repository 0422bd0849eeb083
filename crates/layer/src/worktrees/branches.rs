//! Branches of a repository: which ones others have checked out or are at work on, and their names.

use super::REFERENCE_BYTES_MAX;
use crate::RelativePath;
use crate::git_objects::small;
use crate::tree::Tree;

/// The most worktrees of one repository whose branches are looked at; with more, every branch
/// may be checked out.
const WORKTREES_MAX: usize = 10_000;
/// Files of a git directory that name the branch which it has checked out, or which git is at work
/// on there and writes when that ends.
const NAMING: [&str; 5] = [
    "HEAD",
    "BISECT_START",
    "rebase-merge/head-name",
    "rebase-apply/head-name",
    "rebase-merge/update-refs",
];
/// A branch that stands for another, that for a third, and so on.
const LINKS_MAX: usize = 5;
/// The largest list of branches, bytes.
const LIST_BYTES_MAX: u64 = 64 << 20;
/// The longest name of a branch, bytes.
const NAME_BYTES_MAX: usize = 1024;

/// The branches that others have checked out or are at work on.
pub(crate) struct Elsewhere(Vec<Vec<u8>>);

impl Elsewhere {
    /// Looks into all git directories but the worktree's own. None where it cannot be told.
    pub fn look(common: &Tree, own: &RelativePath) -> Option<Self> {
        let worktrees = RelativePath::new("worktrees").ok()?;
        let mut directories = vec![RelativePath::root()];
        if common.facts(&worktrees).ok()?.is_some() {
            let names = common.names(&worktrees).ok()?;
            if names.len() > WORKTREES_MAX {
                return None;
            }
            for name in names {
                directories.push(worktrees.join(&name).ok()?);
            }
        }
        directories.retain(|directory| directory != own);
        let mut found = Vec::new();
        for directory in directories {
            for name in NAMING {
                let file = directory.concat(&RelativePath::new(name).ok()?);
                if common.facts(&file).ok()?.is_none() {
                    continue;
                }
                let text = small(common, &file, LIST_BYTES_MAX)?;
                for line in text.split(|byte| *byte == b'\n') {
                    found.extend(named(line));
                }
            }
        }
        for name in found.clone() {
            found.extend(stands_for(common, &name)?);
        }
        Some(Self(found))
    }

    /// Whether a branch is one of them, or cannot be beside one: one's name is the other's
    /// directory then. File systems that do not tell cases apart are told from none.
    pub fn touches(&self, name: &[u8], is_directory: bool) -> bool {
        let beneath = |outer: &[u8], inner: &[u8]| {
            let head = inner.get(..outer.len());
            let follows = inner.get(outer.len()) == Some(&b'/');
            follows && head.is_some_and(|head| head.eq_ignore_ascii_case(outer))
        };
        self.0.iter().any(|other| {
            name.eq_ignore_ascii_case(other)
                || beneath(other, name)
                || (!is_directory && beneath(name, other))
        })
    }
}

/// The branch that a line of such a file names: in full, or, of a bisection, without `refs/heads/`.
fn named(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.trim_ascii();
    let line = line.strip_prefix(b"ref:").unwrap_or(line).trim_ascii();
    let name = line.strip_prefix(b"refs/heads/").unwrap_or(line);
    (!name.is_empty()).then(|| name.to_vec())
}

/// The branches that one stands for, where its owner has made it so.
fn stands_for(common: &Tree, name: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut found, mut at) = (Vec::new(), name.to_vec());
    for _ in 0..LINKS_MAX {
        let Ok(path) = RelativePath::new([b"refs/heads/", at.as_slice()].concat()) else {
            return Some(found);
        };
        let is_file = |facts: &crate::facts::Facts| facts.kind == crate::facts::Kind::File;
        match common.facts(&path).ok()? {
            Some(facts) if is_file(&facts) => {}
            // What is no file says nothing that can be read here.
            Some(facts) if facts.kind != crate::facts::Kind::Directory => return None,
            Some(_) | None => return Some(found),
        }
        let text = small(common, &path, REFERENCE_BYTES_MAX)?;
        let Some(led) = text.strip_prefix(b"ref:") else {
            return Some(found);
        };
        at = named(led)?;
        found.push(at.clone());
    }
    None
}

/// Whether the repository has a branch of its own by this name.
pub(crate) fn has_branch(common: &Tree, name: &[u8]) -> bool {
    let full = [b"refs/heads/", name].concat();
    let Ok(path) = RelativePath::new(full.clone()) else {
        return false;
    };
    match common.facts(&path) {
        Ok(Some(_)) => {
            small(common, &path, REFERENCE_BYTES_MAX).is_some_and(|text| !text.starts_with(b"ref:"))
        }
        Ok(None) => packed(common, |name| name == full).unwrap_or(false),
        Err(_) => false,
    }
}

/// Whether one of the references that are packed (git-pack-refs(1)) is what is sought. None where
/// it cannot be told.
fn packed(common: &Tree, is_it: impl Fn(&[u8]) -> bool) -> Option<bool> {
    let path = RelativePath::new("packed-refs").ok()?;
    if common.facts(&path).ok()?.is_none() {
        return Some(false);
    }
    let text = small(common, &path, LIST_BYTES_MAX)?;
    let mut lines = text.split(|byte| *byte == b'\n');
    Some(lines.any(|line| {
        let at = line.iter().position(|byte| *byte == b' ');
        at.and_then(|at| line.get(at + 1..)).is_some_and(&is_it)
    }))
}

/// Whether a new branch of this name would be found where people mean something else
/// (gitrevisions(7)): a remote's branch, the digits of a commit, or what git keeps as `…HEAD`.
pub(crate) fn hides_another(common: &Tree, name: &[u8]) -> bool {
    if has_branch(common, name) {
        return false;
    }
    let is_digits = name.len() >= 4 && name.iter().all(u8::is_ascii_hexdigit);
    let remote = name.split(|byte| *byte == b'/').next().unwrap_or_default();
    let full = [b"refs/remotes/", remote].concat();
    let beneath = [full.as_slice(), b"/"].concat();
    let is_loose = || match RelativePath::new(full.clone()).map(|path| common.facts(&path)) {
        Ok(Ok(found)) => found.is_some(),
        Ok(Err(_)) | Err(_) => true,
    };
    let is_packed = || packed(common, |name| name.starts_with(&beneath)).unwrap_or(true);
    is_digits || name.ends_with(b"HEAD") || is_loose() || is_packed()
}

/// Whether a branch can have this name (git-check-ref-format(1)).
pub(crate) fn is_branch_name(name: &[u8]) -> bool {
    let is_part = |part: &[u8]| {
        !part.is_empty()
            && !part.starts_with(b".")
            && !part.to_ascii_lowercase().ends_with(b".lock")
            && !part.ends_with(b".")
    };
    let is_odd = |byte: &u8| byte.is_ascii_control() || b" ~^:?*[\\".contains(byte);
    let holds = |two: &[u8; 2]| name.windows(2).any(|within| within == two);
    name.len() <= NAME_BYTES_MAX
        && name.split(|byte| *byte == b'/').all(is_part)
        && !name.iter().any(is_odd)
        && !holds(b"..")
        && !holds(b"@{")
        && !name.starts_with(b"-")
        && name != b"@"
        && name != b"HEAD"
}
