//! Branches of a repository: those that others have checked out or are working on, and their names.

use std::collections::{BTreeMap, BTreeSet};

use super::REFERENCE_BYTES_MAX;
use crate::RelativePath;
use crate::facts::Kind;
use crate::git_objects::{Format, Id, small};
use crate::tree::Tree;

/// The most worktrees of one repository whose branches are read; with more, every branch may be
/// checked out.
const WORKTREES_MAX: usize = 10_000;
/// Files of a git directory that name the branch which is checked out there, or which git is
/// working on there and writes when that ends.
const NAMING: [&str; 5] = [
    "HEAD",
    "BISECT_START",
    "rebase-merge/head-name",
    "rebase-apply/head-name",
    "rebase-merge/update-refs",
];
/// The longest chain of symbolic references that is followed.
const LINKS_MAX: usize = 5;
/// The prefixes of names that git looks for elsewhere than among branches.
const KINDS: [&[u8]; 12] = [
    b"refs",
    b"heads",
    b"tags",
    b"remotes",
    b"notes",
    b"stash",
    b"replace",
    b"bisect",
    b"rewritten",
    b"worktree",
    b"worktrees",
    b"main-worktree",
];
/// The largest list of branches, bytes.
const LIST_BYTES_MAX: u64 = 64 << 20;
/// The longest name of a branch, bytes.
const NAME_BYTES_MAX: usize = 1024;

/// The branches that others have checked out or are working on.
pub(crate) struct Elsewhere(Vec<Vec<u8>>);

impl Elsewhere {
    /// Reads all git directories but the worktree's own. `None` where they cannot be read.
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

    /// Returns whether a branch is one of them, or cannot exist beside one because one's name is
    /// the other's directory. Case is ignored, as some file systems do.
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

/// Returns the branch that a line of such a file names: in full, or, for a bisection, without
/// `refs/heads/`.
fn named(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.trim_ascii();
    let line = line.strip_prefix(b"ref:").unwrap_or(line).trim_ascii();
    let name = line.strip_prefix(b"refs/heads/").unwrap_or(line);
    (!name.is_empty()).then(|| name.to_vec())
}

/// Returns the branches that a symbolic reference leads to, one after another.
fn stands_for(common: &Tree, name: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut found, mut at) = (Vec::new(), name.to_vec());
    for _ in 0..LINKS_MAX {
        let Ok(path) = RelativePath::new([b"refs/heads/", at.as_slice()].concat()) else {
            return Some(found);
        };
        let is_file = |facts: &crate::facts::Facts| facts.kind == Kind::File;
        match common.facts(&path).ok()? {
            Some(facts) if is_file(&facts) => {}
            // What is no file says nothing that can be read here.
            Some(facts) if facts.kind != Kind::Directory => return None,
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

/// The references of a repository as it is on the host.
pub(crate) struct References<'a> {
    common: &'a Tree,
    /// The packed references (git-pack-refs(1)), by full name, each with the digits of its target.
    packed: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Their names in lower case.
    folded: BTreeSet<Vec<u8>>,
}

impl<'a> References<'a> {
    /// Reads the references. `None` where they cannot be read.
    pub fn read(common: &'a Tree) -> Option<Self> {
        let mut all = Self {
            common,
            packed: BTreeMap::new(),
            folded: BTreeSet::new(),
        };
        let path = RelativePath::new("packed-refs").ok()?;
        if common.facts(&path).ok()?.is_none() {
            return Some(all);
        }
        let text = small(common, &path, LIST_BYTES_MAX)?;
        for line in text.split(|byte| *byte == b'\n') {
            let Some(at) = line.iter().position(|byte| *byte == b' ') else {
                continue;
            };
            let (digits, name) = (line.get(..at)?, line.get(at + 1..)?);
            all.folded.insert(name.to_ascii_lowercase());
            all.packed.insert(name.to_vec(), digits.to_vec());
        }
        Some(all)
    }

    /// Returns whether there is a branch of this name, whatever its target.
    pub fn is_there(&self, name: &[u8]) -> bool {
        let full = [b"refs/heads/", name].concat();
        self.folded.contains(&full.to_ascii_lowercase()) || self.is_loose(&full)
    }

    /// Returns the commit that a branch of this name is at. `None` where there is no branch, where
    /// it is a symbolic reference, and where it cannot be read.
    pub fn commit(&self, name: &[u8], format: Format) -> Option<Id> {
        let full = [b"refs/heads/", name].concat();
        let path = RelativePath::new(full.clone()).ok()?;
        match self.common.facts(&path).ok()? {
            Some(_) => {
                let text = small(self.common, &path, REFERENCE_BYTES_MAX)?;
                Id::read(text.strip_suffix(b"\n").unwrap_or(&text), format)
            }
            None => Id::read(self.packed.get(&full)?, format),
        }
    }

    /// Returns whether a new branch of this name would be found where people mean something else
    /// (gitrevisions(7)), or cannot exist beside a present one because one's name is the other's
    /// directory.
    pub fn hides_another(&self, name: &[u8]) -> bool {
        let is_digits = name.len() >= 4 && name.iter().all(u8::is_ascii_hexdigit);
        let parts: Vec<&[u8]> = name.split(|byte| *byte == b'/').collect();
        let first = parts.first().copied().unwrap_or_default();
        let above = (1..parts.len()).any(|count| {
            let outer = parts.iter().take(count).copied().collect::<Vec<_>>();
            let full = [b"refs/heads/", outer.join(&b'/').as_slice()].concat();
            self.folded.contains(&full.to_ascii_lowercase()) || !self.may_hold(&full)
        });
        is_digits
            || name.ends_with(b"HEAD")
            || KINDS.contains(&first.to_ascii_lowercase().as_slice())
            || above
            || self.is_packed_beneath(&[b"refs/heads/", name].concat())
            || [&b"refs/"[..], b"refs/remotes/"].iter().any(|place| {
                let full = [place, first].concat();
                self.is_loose(&full) || self.is_packed_beneath(&full) || self.is_packed(&full)
            })
            || [&b"refs/"[..], b"refs/tags/", b"refs/remotes/"]
                .iter()
                .any(|place| {
                    let full = [place, name].concat();
                    self.is_loose(&full) || self.is_packed_beneath(&full) || self.is_packed(&full)
                })
    }

    fn is_loose(&self, full: &[u8]) -> bool {
        match RelativePath::new(full).map(|path| self.common.facts(&path)) {
            Ok(Ok(found)) => found.is_some(),
            Ok(Err(_)) | Err(_) => true,
        }
    }

    /// Returns whether there is a directory of this name, or nothing.
    fn may_hold(&self, full: &[u8]) -> bool {
        let is_directory = |facts: crate::facts::Facts| facts.kind == Kind::Directory;
        match RelativePath::new(full).map(|path| self.common.facts(&path)) {
            Ok(Ok(found)) => found.is_none_or(is_directory),
            Ok(Err(_)) | Err(_) => false,
        }
    }

    fn is_packed(&self, full: &[u8]) -> bool {
        self.folded.contains(&full.to_ascii_lowercase())
    }

    fn is_packed_beneath(&self, full: &[u8]) -> bool {
        let beneath = [full.to_ascii_lowercase().as_slice(), b"/"].concat();
        let mut following = self.folded.range(beneath.clone()..);
        following
            .next()
            .is_some_and(|next| next.starts_with(&beneath))
    }
}

/// Returns whether a branch can have this name (git-check-ref-format(1)).
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
