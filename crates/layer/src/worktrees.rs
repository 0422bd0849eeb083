//! Which changes in the common directory of a git repository are a worktree's own.
//!
//! That directory belongs to the main worktree and to all others as well, so a list says what one
//! of them may change as it commits: new objects, branches that nobody else has checked out, and
//! what is its own (gitrepository-layout(5)). All else is a control file: hooks and configuration
//! that git runs, and whatever the other worktrees rely on.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;

use crate::change::Source;
use crate::tree::Tree;
use crate::{
    AfterTree, Change, ChangeKind, ChangeSet, Class, EntryKind, LayerPaths, RelativePath, control,
};

const ELSEWHERE: &str = "another worktree has this branch checked out";
const GONE: &str = "other worktrees may need what was there";
const SYMBOLIC: &str = "git takes another branch from it";
const RELIED_ON: &str = "all worktrees of the repository rely on it";

/// The most worktrees of one repository whose branches are looked at; with more, every branch
/// may be checked out.
const WORKTREES_MAX: usize = 10_000;
/// The largest file that names a commit or a branch, bytes.
const REFERENCE_BYTES_MAX: u64 = 4 << 10;

/// What of its own a worktree's git directory has while git works there, besides `logs/HEAD`.
/// `rebase-merge`, `rebase-apply` and `sequencer` are not here: they can name commands.
const OWN: [&[u8]; 14] = [
    b"HEAD",
    b"index",
    b"logs",
    b"ORIG_HEAD",
    b"FETCH_HEAD",
    b"COMMIT_EDITMSG",
    b"MERGE_HEAD",
    b"MERGE_MODE",
    b"MERGE_MSG",
    b"SQUASH_MSG",
    b"AUTO_MERGE",
    b"CHERRY_PICK_HEAD",
    b"REVERT_HEAD",
    b"REBASE_HEAD",
];
/// Of these, what a worktree cannot be without.
const NEEDED: [&[u8]; 2] = [b"HEAD", b"index"];

impl ChangeSet {
    /// Takes for control files all changes in the common directory of a git repository but those
    /// that a commit in one worktree makes: that of this name, or the only checkout. What cannot
    /// be looked at is a control file.
    pub fn classify_repository(&mut self, worktree: Option<&OsStr>, paths: &LayerPaths) {
        let own = worktree.and_then(|name| {
            let worktrees = RelativePath::new("worktrees").ok()?;
            worktrees.join(name.as_bytes()).ok()
        });
        let upper = match &paths.after {
            AfterTree::Overlay { upper: after, .. }
            | AfterTree::Copy { path: after, .. }
            | AfterTree::Live { path: after, .. } => after,
        };
        let before = Tree::open(&paths.before).ok();
        let measure = Measure {
            elsewhere: before.and_then(|before| checked_out(&before, own.as_ref())),
            after: Tree::open_layer(upper).ok(),
            own: own.unwrap_or_default(),
        };
        for change in &mut self.changes {
            change.reason = measure.reason(change);
            change.class = match change.reason {
                Some(_) => Class::Control,
                None => Class::Ordinary,
            };
        }
    }
}

/// The branches that others have checked out or are at work on; none where that cannot be told.
fn checked_out(common: &Tree, own: Option<&RelativePath>) -> Option<Vec<Vec<u8>>> {
    let path = |text: &str| RelativePath::new(text).ok();
    let mut directories = vec![RelativePath::root()];
    let worktrees = path("worktrees")?;
    if common.facts(&worktrees).ok()?.is_some() {
        let names = common.names(&worktrees).ok()?;
        if names.len() > WORKTREES_MAX {
            return None;
        }
        let all = names.iter().filter_map(|name| worktrees.join(name).ok());
        directories.extend(all);
    }
    let own = own.cloned().unwrap_or_default();
    directories.retain(|directory| *directory != own);
    let mut found = Vec::new();
    for directory in directories {
        for name in ["HEAD", "rebase-merge/head-name", "rebase-apply/head-name"] {
            let file = directory.concat(&path(name)?);
            match common.facts(&file) {
                Ok(None) => continue,
                Ok(Some(_)) => {}
                Err(_) => return None,
            }
            let text = read(common, &file)?;
            let text = text.trim_ascii();
            let text = text.strip_prefix(b"ref:").unwrap_or(text).trim_ascii();
            found.extend(text.strip_prefix(b"refs/heads/").map(<[u8]>::to_vec));
        }
    }
    Some(found)
}

/// A small regular file.
fn read(tree: &Tree, path: &RelativePath) -> Option<Vec<u8>> {
    let (file, facts) = tree.file(path).ok()?;
    let mut bytes = Vec::new();
    let most = file.take(REFERENCE_BYTES_MAX).read_to_end(&mut bytes);
    (most.is_ok() && facts.bytes < REFERENCE_BYTES_MAX).then_some(bytes)
}

struct Measure {
    /// None where every branch may be checked out.
    elsewhere: Option<Vec<Vec<u8>>>,
    /// What the layer has.
    after: Option<Tree>,
    /// The worktree's own directory.
    own: RelativePath,
}

impl Measure {
    /// Why a change is none of the worktree's own, if it is none.
    fn reason(&self, change: &Change) -> Option<&'static str> {
        let is_directory = |facts: &crate::EntryFacts| facts.kind == EntryKind::Directory;
        let is_new = change.kind == ChangeKind::Added;
        let now = change.after.as_ref().or(change.before.as_ref());
        let is_directory = now.is_some_and(is_directory);
        // Hooks, configuration and the like are told as what they are.
        let known = |otherwise| {
            let git = RelativePath::new(".git").unwrap_or_default();
            let known = control::reason(&git.concat(&change.path), is_directory, false);
            Some(known.unwrap_or(otherwise))
        };
        if !is_plain(change) {
            return known(RELIED_ON);
        }
        let names: Vec<&[u8]> = change.path.components().collect();
        if let Some(own) = change.path.beneath(&self.own) {
            let names: Vec<&[u8]> = own.components().collect();
            if is_own(&names, is_directory) {
                return self.reason_of_own(change, &names);
            }
        }
        match names.as_slice() {
            [b"objects", rest @ ..] if is_new && is_object(rest, is_directory) => None,
            [b"refs", b"heads", rest @ ..] => self.reason_of_branch(change, rest, true),
            [b"logs", b"refs", b"heads", rest @ ..] => self.reason_of_branch(change, rest, false),
            [b"logs"] | [b"logs", b"refs"] | [b"refs"] if is_new && is_directory => None,
            _ if change.kind == ChangeKind::Removed => known(GONE),
            _ => known(RELIED_ON),
        }
    }

    fn reason_of_own(&self, change: &Change, names: &[&[u8]]) -> Option<&'static str> {
        let is_head = names == [b"HEAD"];
        let is_needed = matches!(names, [name] if NEEDED.contains(name));
        match change.kind {
            ChangeKind::Removed if is_needed || change.within > 0 => Some(GONE),
            ChangeKind::Removed => None,
            // To commit would move another worktree's branch.
            _ if is_head => match self.reference(change) {
                Some(Reference::Commit) => None,
                Some(Reference::Branch(name)) if self.touches(&name, false) => Some(ELSEWHERE),
                Some(Reference::Branch(_)) => None,
                None => Some(SYMBOLIC),
            },
            _ => None,
        }
    }

    /// A branch, or what is logged of it.
    fn reason_of_branch(
        &self,
        change: &Change,
        names: &[&[u8]],
        is_branch: bool,
    ) -> Option<&'static str> {
        let facts = change.after.as_ref();
        let is_directory = facts.is_some_and(|facts| facts.kind == EntryKind::Directory);
        let is_lock = names.last().is_some_and(|name| name.ends_with(b".lock"));
        let commits = || matches!(self.reference(change), Some(Reference::Commit));
        match change.kind {
            ChangeKind::Removed => Some(GONE),
            _ if self.touches(&names.join(&b'/'), is_directory) => Some(ELSEWHERE),
            _ if is_lock => Some(RELIED_ON),
            _ if is_directory && change.kind != ChangeKind::Added => Some(RELIED_ON),
            _ if is_branch && !is_directory && !commits() => Some(SYMBOLIC),
            _ => None,
        }
    }

    /// Whether a branch is checked out elsewhere, or cannot be beside one that is: one's name is
    /// the other's directory then. File systems that do not tell cases apart are told from none.
    fn touches(&self, name: &[u8], is_directory: bool) -> bool {
        let Some(elsewhere) = &self.elsewhere else {
            return true;
        };
        let beneath = |outer: &[u8], inner: &[u8]| {
            let head = inner.get(..outer.len());
            let follows = inner.get(outer.len()) == Some(&b'/');
            follows && head.is_some_and(|head| head.eq_ignore_ascii_case(outer))
        };
        elsewhere.iter().any(|other| {
            name.eq_ignore_ascii_case(other)
                || beneath(other, name)
                || (!is_directory && beneath(name, other))
        })
    }

    /// What the layer has written as a reference.
    fn reference(&self, change: &Change) -> Option<Reference> {
        if change.source != Source::After {
            return None;
        }
        let text = read(self.after.as_ref()?, &change.path)?;
        let text = text.strip_suffix(b"\n").unwrap_or(&text);
        if let Some(branch) = text.strip_prefix(b"ref: refs/heads/") {
            return Some(Reference::Branch(branch.to_vec()));
        }
        is_digest(text, &[40, 64]).then_some(Reference::Commit)
    }
}

/// What a file of git's refers to.
enum Reference {
    Commit,
    Branch(Vec<u8>),
}

/// Whether a change is that of a plain file or directory, which stays where it is.
fn is_plain(change: &Change) -> bool {
    let is_plain = |kind: &EntryKind| match kind {
        EntryKind::File | EntryKind::Directory => true,
        EntryKind::Symlink { .. } | EntryKind::Special => false,
    };
    let both = change.before.iter().chain(&change.after);
    let is_same = match change.kind {
        ChangeKind::Added | ChangeKind::Modified | ChangeKind::Removed => true,
        ChangeKind::Mode | ChangeKind::Type | ChangeKind::Renamed { .. } => false,
    };
    is_same && both.map(|facts| &facts.kind).all(is_plain)
}

/// Whether a path in a worktree's git directory is its own. A split index has parts beside it.
fn is_own(names: &[&[u8]], is_directory: bool) -> bool {
    match names {
        [b"logs"] => is_directory,
        [b"logs", b"HEAD"] => !is_directory,
        [name] => !is_directory && (OWN.contains(name) || name.starts_with(b"sharedindex.")),
        _ => false,
    }
}

/// Whether a path in `objects` is an object or a pack of them, by the name that git gives it, or
/// a directory of such. What speaks of many at once is none: the graph of commits, the index of
/// many packs, alternates.
fn is_object(names: &[&[u8]], is_directory: bool) -> bool {
    match names {
        [] | [b"pack"] => is_directory,
        [two] => is_directory && is_digest(two, &[2]),
        [b"pack", name] => !is_directory && is_pack(name),
        [two, rest] => !is_directory && is_digest(two, &[2]) && is_digest(rest, &[38, 62]),
        _ => false,
    }
}

fn is_pack(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(b"pack-") else {
        return false;
    };
    let Some(at) = rest.iter().position(|byte| *byte == b'.') else {
        return false;
    };
    let (digest, kind) = rest.split_at(at);
    let kinds: [&[u8]; 3] = [b".pack", b".idx", b".rev"];
    is_digest(digest, &[40, 64]) && kinds.contains(&kind)
}

/// Whether a text is digits of a digest, as many as one of these.
fn is_digest(text: &[u8], lengths: &[usize]) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    lengths.contains(&text.len()) && text.iter().all(is_digit)
}
