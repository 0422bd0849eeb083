//! The changes in the common directory of a git repository that are a worktree's own.
//!
//! That directory belongs to the main worktree and to all others as well, so a list says what one
//! of them may change as it commits: new objects that match their names, branches that nobody else
//! has checked out, and its own files (gitrepository-layout(5)). All else is a control file: hooks
//! and configuration that git runs, and whatever the other worktrees rely on.

mod branches;
mod undoing;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

use crate::change::Source;
use crate::facts::Facts;
use crate::git_objects::{Id, New, ObjectKind, Outside, small};
use crate::tree::Tree;
use crate::{
    AfterTree, Change, ChangeKind, ChangeSet, Class, EntryKind, LayerPaths, RelativePath, control,
    git_index,
};
use branches::{Elsewhere, References, is_branch_name};
pub(crate) use undoing::{Left, Own, left};

const ELSEWHERE: &str = "another worktree has this branch checked out";
const GONE: &str = "other worktrees may need what was there";
const SYMBOLIC: &str = "git takes another branch from it";
const RELIED_ON: &str = "all worktrees of the repository rely on it";
const HIDING: &str = "git takes it for something else of this name";
const UNSOUND: &str = "it is no new object with all that its name says";
const MISSING: &str = "the commit that it names is not taken over whole";
const OTHERS: &str = "this worktree was not on this branch when the run began, or is not any more";
const REWOUND: &str = "commits that this branch has outside would not be on it any more";
const OPEN: &str = "others could write to it";

/// The write permissions of others than the owner.
const WRITE_BITS: u32 = 0o022;

/// The largest file that names a commit or a branch, bytes.
const REFERENCE_BYTES_MAX: u64 = 4 << 10;
/// The largest log of a branch, bytes.
const LOG_BYTES_MAX: u64 = 64 << 20;

/// The files of a worktree's own git directory after a commit, besides `logs/HEAD`. Those of a
/// merge or a rebase in its middle are not here: git goes on from them, and they can name commands.
const OWN: [&[u8]; 4] = [b"HEAD", b"index", b"logs", b"COMMIT_EDITMSG"];

impl ChangeSet {
    /// Classifies as control files all changes in the common directory of a git repository except
    /// those that a commit in one worktree makes: that of this name, or the only checkout. Entries
    /// that cannot be read are control files.
    pub fn classify_repository(&mut self, worktree: Option<&OsStr>, paths: &LayerPaths) {
        let own = worktree.map(|name| {
            let place = [b"worktrees/", name.as_bytes()].concat();
            RelativePath::new(place).ok()
        });
        let upper = match &paths.after {
            AfterTree::Overlay { upper: after, .. }
            | AfterTree::Copy { path: after, .. }
            | AfterTree::Live { path: after, .. } => after,
        };
        let trees = Tree::open(&paths.before)
            .ok()
            .zip(Tree::open_layer(upper).ok());
        let own = match own {
            Some(named) => named,
            None => Some(RelativePath::root()),
        };
        let reasons = match (&trees, &own) {
            (Some((before, after)), Some(own)) => {
                Measure::new(self, before, after, own, paths.since).reasons(self)
            }
            _ => self.changes.iter().map(|_| Some(RELIED_ON)).collect(),
        };
        for (change, reason) in self.changes.iter_mut().zip(reasons) {
            change.reason = reason;
            change.class = match reason {
                Some(_) => Class::Control,
                None => Class::Ordinary,
            };
        }
        self.repository = Some(own.unwrap_or_default());
    }
}

struct Measure<'a> {
    before: &'a Tree,
    /// The layer's tree.
    after: &'a Tree,
    /// The worktree's own directory.
    own: &'a RelativePath,
    /// The start of the run, for the files of the repository.
    since: SystemTime,
    /// The branch that the worktree is on, and was when the run began.
    own_branch: Option<Vec<u8>>,
    /// `None` where they cannot be read.
    references: Option<References<'a>>,
    /// `None` where every branch may be checked out.
    elsewhere: Option<Elsewhere>,
    /// `None` where the objects cannot be read.
    objects: Option<New<'a>>,
    /// Branches that are applied, and those that are not.
    taken: HashSet<Vec<u8>>,
    held: HashSet<Vec<u8>>,
}

impl<'a> Measure<'a> {
    fn new(
        set: &ChangeSet,
        before: &'a Tree,
        after: &'a Tree,
        own: &'a RelativePath,
        since: SystemTime,
    ) -> Self {
        let outside = Outside::open(before);
        let mut measure = Self {
            before,
            after,
            own,
            since,
            own_branch: None,
            references: References::read(before),
            elsewhere: Elsewhere::look(before, own),
            objects: outside.map(|outside| New::read(outside, after, set)),
            taken: HashSet::new(),
            held: HashSet::new(),
        };
        measure.own_branch = measure.own_branch();
        measure
    }

    /// Returns for each change the reason why it is not the worktree's own, if any.
    fn reasons(mut self, set: &ChangeSet) -> Vec<Option<&'static str>> {
        // What names a branch is looked at when it is known what becomes of branches.
        for change in &set.changes {
            let Some(name) = change.path.as_bytes().strip_prefix(b"refs/heads/") else {
                continue;
            };
            let now = change.after.as_ref();
            let is_file = now.is_some_and(|facts| facts.kind == EntryKind::File);
            match self.reason(change) {
                None if is_file => self.taken.insert(name.to_vec()),
                None => continue,
                Some(_) => self.held.insert(name.to_vec()),
            };
        }
        let all = set.changes.iter();
        all.map(|change| self.reason(change)).collect()
    }

    /// Returns the branch that the worktree's own `HEAD` names, where nobody has written that since
    /// the run began.
    fn own_branch(&self) -> Option<Vec<u8>> {
        let head = self.own.join(b"HEAD").ok()?;
        let facts = self.before.facts(&head).ok()??;
        let text = small(self.before, &head, REFERENCE_BYTES_MAX)?;
        let name = text
            .strip_suffix(b"\n")?
            .strip_prefix(b"ref: refs/heads/")?;
        (!facts.changed_after(self.since) && is_branch_name(name)).then(|| name.to_vec())
    }

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
        if !is_plain(change) || self.has_other_names(change) {
            return known(RELIED_ON);
        }
        if self.is_open(change) {
            return known(OPEN);
        }
        let names: Vec<&[u8]> = change.path.components().collect();
        if let Some(own) = change.path.beneath(self.own) {
            let names: Vec<&[u8]> = own.components().collect();
            if is_own(&names, is_directory) {
                return self.reason_of_own(change, &names);
            }
        }
        match names.as_slice() {
            [b"objects"] if is_new && is_directory => None,
            [b"objects", two] if is_new && is_directory && is_two_digits(two) => None,
            [b"objects", two, _] if is_new && !is_directory && is_two_digits(two) => {
                let is_one = |new: &New<'_>| new.is_one(&change.path);
                (!self.objects.as_ref().is_some_and(is_one)).then_some(UNSOUND)
            }
            [b"refs", b"heads", rest @ ..] => self.reason_of_branch(change, rest, true),
            [b"logs", b"refs", b"heads", rest @ ..] => self.reason_of_branch(change, rest, false),
            [b"logs"] | [b"logs", b"refs"] | [b"refs"] if is_new && is_directory => None,
            _ if change.kind == ChangeKind::Removed => known(GONE),
            _ => known(RELIED_ON),
        }
    }

    fn reason_of_own(&self, change: &Change, names: &[&[u8]]) -> Option<&'static str> {
        match names {
            _ if change.kind == ChangeKind::Removed => match names {
                [b"COMMIT_EDITMSG"] => None,
                _ => Some(GONE),
            },
            [b"HEAD"] => match self.reference(change) {
                Some(Reference::Commit(id)) => self.reason_of_commit(&id),
                // To commit would move another worktree's branch.
                Some(Reference::Branch(name)) if self.touches(&name, false) => Some(ELSEWHERE),
                Some(Reference::Branch(name)) if self.will_be_branch(&name) => None,
                Some(Reference::Branch(_)) => Some(MISSING),
                None => Some(SYMBOLIC),
            },
            [b"index"] => self.reason_of_index(change),
            [b"logs", b"HEAD"] => self.reason_of_log(change),
            _ => None,
        }
    }

    /// Checks a branch, or its log.
    fn reason_of_branch(
        &self,
        change: &Change,
        names: &[&[u8]],
        is_branch: bool,
    ) -> Option<&'static str> {
        let facts = change.after.as_ref();
        let is_directory = facts.is_some_and(|facts| facts.kind == EntryKind::Directory);
        let name = names.join(&b'/');
        match change.kind {
            ChangeKind::Removed => Some(GONE),
            _ if self.touches(&name, is_directory) => Some(ELSEWHERE),
            _ if is_directory && change.kind != ChangeKind::Added => Some(RELIED_ON),
            // `refs/heads` itself.
            _ if is_directory && names.is_empty() => None,
            _ if !is_branch_name(&name) => Some(RELIED_ON),
            _ if is_directory => None,
            _ if !is_branch && self.is_followed(&name) => self.reason_of_log(change),
            _ if !is_branch => Some(OTHERS),
            _ => match self.reference(change) {
                Some(Reference::Commit(id)) => self
                    .reason_of_commit(&id)
                    .or_else(|| self.reason_of_move(change, &name, &id)),
                Some(Reference::Branch(_)) | None => Some(SYMBOLIC),
            },
        }
    }

    /// Returns whether a branch moves along with its log: it is applied, or is the worktree's own.
    fn is_followed(&self, name: &[u8]) -> bool {
        let is_own = || self.own_branch.as_deref() == Some(name) && !self.held.contains(name);
        self.taken.contains(name) || is_own()
    }

    /// Checks a move: the branch is new, or is the worktree's and goes on from its commit on the
    /// host.
    fn reason_of_move(&self, change: &Change, name: &[u8], to: &Id) -> Option<&'static str> {
        let (Some(references), Some(objects)) = (&self.references, &self.objects) else {
            return Some(RELIED_ON);
        };
        if !references.is_there(name) {
            return references.hides_another(name).then_some(HIDING);
        }
        // The owner has made it stand for another one.
        if change.kind == ChangeKind::Modified && self.is_symbolic(&change.path) {
            return Some(SYMBOLIC);
        }
        if self.own_branch.as_deref() != Some(name) {
            return Some(OTHERS);
        }
        let now: Option<Facts> = self.before.facts(&change.path).ok().flatten();
        if now.is_some_and(|now| now.changed_after(self.since)) {
            // Somebody else has written it since: that is a conflict, for all of the changes.
            return None;
        }
        let at = references.commit(name, objects.format());
        let goes_on = at.is_some_and(|at| objects.comes_after(to, &at));
        (!goes_on).then_some(REWOUND)
    }

    fn reason_of_commit(&self, id: &Id) -> Option<&'static str> {
        let objects = self.objects.as_ref();
        let is_there = objects.is_some_and(|objects| objects.will_be_commit(id));
        (!is_there).then_some(MISSING)
    }

    fn reason_of_index(&self, change: &Change) -> Option<&'static str> {
        let objects = self.objects.as_ref();
        let file = self.after.file(&change.path).ok();
        let (Some(objects), Some((file, facts)), Source::After) = (objects, file, &change.source)
        else {
            return Some(git_index::UNREAD);
        };
        let there = &mut |id: &[u8], is_tree| {
            let kind = if is_tree {
                ObjectKind::Tree
            } else {
                ObjectKind::Blob
            };
            objects.will_be(&Id::of(id)) == Some(kind)
        };
        git_index::reason_in(&file, facts.bytes, objects.format().bytes(), there)
    }

    /// Checks a log: it grows, by entries that name existing commits.
    fn reason_of_log(&self, change: &Change) -> Option<&'static str> {
        let read = |tree: &Tree| small(tree, &change.path, LOG_BYTES_MAX);
        let before = match change.kind {
            ChangeKind::Added => Some(Vec::new()),
            _ => read(self.before),
        };
        let after = read(self.after).filter(|_| change.source == Source::After);
        let (Some(before), Some(after), Some(objects)) = (before, after, &self.objects) else {
            return Some(RELIED_ON);
        };
        let Some(more) = after.strip_prefix(before.as_slice()) else {
            return Some(GONE);
        };
        let is_none = |digits: &[u8]| digits.iter().all(|digit| *digit == b'0');
        let is_there = |digits: &[u8]| {
            let id = Id::read(digits, objects.format());
            id.is_some_and(|id| is_none(digits) || objects.will_be_commit(&id))
        };
        let is_line = |line: &[u8]| {
            let mut words = line.split(|byte| *byte == b' ');
            words.by_ref().take(2).filter(|word| is_there(word)).count() == 2
        };
        let mut lines = more.split_inclusive(|byte| *byte == b'\n');
        (!lines.all(|line| line.ends_with(b"\n") && is_line(line))).then_some(MISSING)
    }

    fn touches(&self, name: &[u8], is_directory: bool) -> bool {
        let elsewhere = self.elsewhere.as_ref();
        elsewhere.is_none_or(|elsewhere| elsewhere.touches(name, is_directory))
    }

    /// Returns whether a branch will exist and not be a symbolic reference.
    fn will_be_branch(&self, name: &[u8]) -> bool {
        let is_there = || {
            let all = self.references.as_ref().zip(self.objects.as_ref());
            let at = all.and_then(|(all, objects)| all.commit(name, objects.format()));
            at.is_some() && !self.held.contains(name)
        };
        is_branch_name(name) && (self.taken.contains(name) || is_there())
    }

    /// Returns whether more people may write to an entry than to the directory around it, or than
    /// before.
    fn is_open(&self, change: &Change) -> bool {
        let Some(after) = &change.after else {
            return false;
        };
        let mut above = change.path.ancestors().collect::<Vec<_>>();
        above.push(RelativePath::root());
        let is_there = |path: &RelativePath| self.before.facts(path).ok().flatten();
        let around = above.iter().find_map(is_there);
        let before = change.before.as_ref().map_or(0, |before| before.mode);
        let may = (around.map_or(0, |facts| facts.mode) | before) & WRITE_BITS;
        after.mode & WRITE_BITS & !may != 0
    }

    /// Returns whether writes to a file would also change another: git appends to logs in place.
    fn has_other_names(&self, change: &Change) -> bool {
        let is_file = |facts: &crate::EntryFacts| facts.kind == EntryKind::File;
        let is_one = || {
            let facts = self.after.facts(&change.path).ok().flatten();
            facts.is_some_and(|facts| facts.links == 1)
        };
        change.after.as_ref().is_some_and(is_file) && !is_one()
    }

    fn is_symbolic(&self, path: &RelativePath) -> bool {
        let text = small(self.before, path, REFERENCE_BYTES_MAX);
        text.is_none_or(|text| text.starts_with(b"ref:"))
    }

    /// Returns the reference that the layer has written, if it is exactly as git writes it.
    fn reference(&self, change: &Change) -> Option<Reference> {
        if change.source != Source::After {
            return None;
        }
        let text = small(self.after, &change.path, REFERENCE_BYTES_MAX)?;
        let line = text.strip_suffix(b"\n")?;
        if let Some(branch) = line.strip_prefix(b"ref: refs/heads/") {
            return is_branch_name(branch).then(|| Reference::Branch(branch.to_vec()));
        }
        let format = self.objects.as_ref()?.format();
        Id::read(line, format).map(Reference::Commit)
    }
}

/// The target of a reference file.
enum Reference {
    Commit(Id),
    Branch(Vec<u8>),
}

/// Returns whether a change is that of a plain file or directory, which stays where it is.
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

/// Returns whether a path in a worktree's git directory is its own.
fn is_own(names: &[&[u8]], is_directory: bool) -> bool {
    match names {
        [b"logs"] => is_directory,
        [b"logs", b"HEAD"] => !is_directory,
        [name] => !is_directory && OWN.contains(name),
        _ => false,
    }
}

/// Returns whether a name is that of a directory of loose objects.
fn is_two_digits(name: &[u8]) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    name.len() == 2 && name.iter().all(is_digit)
}
