//! Objects of a git repository: whether a loose one matches its name (the digest of its bytes:
//! gitformat-loose, "git help gitdatamodel"), which others it needs, and which exist.

mod loose;
mod packs;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use crate::git_config;
use crate::tree::Tree;
use crate::{Change, ChangeKind, ChangeSet, EntryKind, RelativePath};

use packs::Pack;

pub(crate) use loose::{Digest, Loose, ObjectKind, is_name};

/// The most pack indexes that are read.
const PACKS_MAX: usize = 4096;
/// The most bytes of all objects of a layer; those beyond are not read.
const BYTES_MAX: u64 = 4 << 30;
/// The most objects not on the host that a layer's objects may need; those beyond are not read.
const NEEDS_MAX: usize = 1 << 20;
/// The most objects of the host that are remembered at one time.
const KNOWN_MAX: usize = 1 << 20;
/// The most commits that are followed to find an ancestor.
const COMMITS_MAX: usize = 100_000;

/// The digest by which a repository names its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Sha1,
    Sha256,
}

impl Format {
    /// Returns the format of a repository with this configuration (`extensions.objectFormat`);
    /// `None` where that is unclear.
    pub fn of(configuration: &[u8]) -> Option<Self> {
        let named = git_config::value(configuration, b"extensions", b"objectformat").ok()?;
        match named.as_deref() {
            None | Some(b"sha1") => Some(Self::Sha1),
            Some(b"sha256") => Some(Self::Sha256),
            Some(_) => None,
        }
    }

    /// Returns the format of the repository with this common directory; `None` where that is
    /// unclear.
    pub fn of_repository(common: &Tree) -> Option<Self> {
        let path = RelativePath::new("config").ok()?;
        let configuration = match common.facts(&path).ok()? {
            Some(_) => small(common, &path, git_config::CONFIGURATION_BYTES_MAX)?,
            None => Vec::new(),
        };
        Self::of(&configuration)
    }

    /// Returns the format whose names are of this length.
    pub fn of_bytes(bytes: usize) -> Option<Self> {
        let both = [Self::Sha1, Self::Sha256];
        both.into_iter().find(|one| one.bytes() == bytes)
    }

    /// Returns the length of a name, bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// Returns the name of the empty tree, which git knows without having it.
    fn empty_tree(self) -> Option<Id> {
        let digits: &[u8] = match self {
            Self::Sha1 => b"4b825dc642cb6eb9a060e54bf8d69288fbee4904",
            Self::Sha256 => b"6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
        };
        Id::read(digits, self)
    }
}

/// The name of an object: the bytes of its digest, and zeros.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id {
    bytes: [u8; 32],
    length: u8,
}

impl Id {
    /// Parses a name from its digits, which are lower-case (gitrepository-layout(5)).
    pub fn read(digits: &[u8], format: Format) -> Option<Self> {
        if digits.len() != format.bytes() * 2 {
            return None;
        }
        let value = |digit: &u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let pair = |two: &[u8]| match two {
            [high, low] => Some(value(high)? << 4 | value(low)?),
            _ => None,
        };
        let bytes: Vec<u8> = digits.chunks(2).map(pair).collect::<Option<_>>()?;
        Some(Self::of(&bytes))
    }

    /// Makes a name from its bytes, at most as many as SHA-256 has.
    pub fn of(bytes: &[u8]) -> Self {
        let mut id = Self {
            bytes: [0; 32],
            length: 0,
        };
        for (to, from) in id.bytes.iter_mut().zip(bytes) {
            *to = *from;
            id.length += 1;
        }
        id
    }

    pub fn bytes(&self) -> &[u8] {
        self.bytes
            .get(..usize::from(self.length))
            .unwrap_or_default()
    }

    fn path(&self) -> Option<RelativePath> {
        let digits: String = self
            .bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let (two, rest) = digits.split_at_checked(2)?;
        RelativePath::new(format!("objects/{two}/{rest}")).ok()
    }

    /// Returns the name of a loose object by its path.
    pub fn at(path: &RelativePath, format: Format) -> Option<Self> {
        let names: Vec<&[u8]> = path.components().collect();
        match names.as_slice() {
            [b"objects", two, rest] if two.len() == 2 => {
                Self::read(&[*two, *rest].concat(), format)
            }
            _ => None,
        }
    }
}

/// The objects of a repository as it is on the host.
pub(crate) struct Outside<'a> {
    tree: &'a Tree,
    pub format: Format,
    packs: Vec<Pack>,
    /// The results of lookups so far.
    known: RefCell<HashMap<Id, Option<ObjectKind>>>,
}

impl<'a> Outside<'a> {
    /// Opens the repository's objects. `None` where they cannot be enumerated.
    pub fn open(tree: &'a Tree) -> Option<Self> {
        let format = Format::of_repository(tree)?;
        let directory = RelativePath::new("objects/pack").ok()?;
        let names = tree.names(&directory).ok()?;
        let mut packs = Vec::new();
        for name in names.iter().filter(|name| name.ends_with(b".idx")) {
            let pack = Pack::open(tree, &directory.join(name).ok()?)?;
            packs.extend(pack.counted());
        }
        (packs.len() <= PACKS_MAX).then(|| Self {
            tree,
            format,
            packs,
            known: RefCell::default(),
        })
    }

    /// Returns the kind of the object of this name; `None` where there is none that can be read.
    pub fn kind(&self, id: &Id) -> Option<ObjectKind> {
        if let Some(known) = self.known.borrow().get(id) {
            return *known;
        }
        let in_packs = || self.packs.iter().find_map(|pack| pack.kind(self.tree, id));
        let kind = match self.format.empty_tree().as_ref() == Some(id) {
            true => Some(ObjectKind::Tree),
            false => self.loose_kind(id).or_else(in_packs),
        };
        let mut known = self.known.borrow_mut();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(id.clone(), kind);
        kind
    }

    fn loose_kind(&self, id: &Id) -> Option<ObjectKind> {
        let (file, _) = self.tree.file(&id.path()?).ok()?;
        loose::kind(file)
    }

    /// Returns the parents of a loose commit.
    fn parents(&self, id: &Id, bytes_left: &mut u64) -> Option<Vec<Id>> {
        let (file, _) = self.tree.file(&id.path()?).ok()?;
        let read = Loose::read(file, id, self.format, bytes_left)?;
        (read.kind == ObjectKind::Commit).then(|| read.parents())
    }
}

/// The loose objects that a layer adds, each of which matches its name and misses nothing that it
/// needs.
pub(crate) struct New<'a> {
    outside: Outside<'a>,
    whole: HashMap<Id, ObjectKind>,
    /// The parents of each new commit.
    parents: HashMap<Id, Vec<Id>>,
}

/// A new object as read: its kind, and the objects it needs that are not on the host.
struct Read {
    kind: ObjectKind,
    needs: Vec<(Id, ObjectKind)>,
}

impl<'a> New<'a> {
    /// Reads all of them. `after` is the layer's tree.
    pub fn read(outside: Outside<'a>, after: &Tree, changes: &ChangeSet) -> Self {
        let (mut all, mut parents) = (HashMap::new(), HashMap::new());
        let (mut bytes_left, mut needs_left) = (BYTES_MAX, NEEDS_MAX);
        for change in changes.changes.iter().filter(|change| is_new_file(change)) {
            let Some(id) = Id::at(&change.path, outside.format) else {
                continue;
            };
            let Ok((file, _)) = after.file(&change.path) else {
                continue;
            };
            let Some(read) = Loose::read(file, &id, outside.format, &mut bytes_left) else {
                continue;
            };
            let its = read.parents();
            let Some(needs) = missing(&outside, read.needs) else {
                continue;
            };
            let Some(left) = needs_left.checked_sub(needs.len() + its.len()) else {
                continue;
            };
            needs_left = left;
            let kind = read.kind;
            if kind == ObjectKind::Commit {
                parents.insert(id.clone(), its);
            }
            all.insert(id, Read { kind, needs });
        }
        Self {
            outside,
            whole: whole(&all),
            parents,
        }
    }

    /// Returns whether the file at this path is one of them.
    pub fn is_one(&self, path: &RelativePath) -> bool {
        let id = Id::at(path, self.outside.format);
        id.is_some_and(|id| self.whole.contains_key(&id))
    }

    /// Returns the kind that the object of this name will have, if it will exist with everything
    /// that it needs. An object that exists already was put there by somebody else.
    pub fn will_be(&self, id: &Id) -> Option<ObjectKind> {
        let new = || self.whole.get(id).copied();
        self.outside.kind(id).or_else(new)
    }

    pub fn will_be_commit(&self, id: &Id) -> bool {
        self.will_be(id) == Some(ObjectKind::Commit)
    }

    /// Returns whether a commit is another one or descends from it, as far as new and loose commits
    /// show.
    pub fn comes_after(&self, id: &Id, earlier: &Id) -> bool {
        let (mut seen, mut next) = (HashSet::new(), vec![id.clone()]);
        let mut bytes_left = BYTES_MAX;
        while let Some(one) = next.pop() {
            if one == *earlier {
                return true;
            }
            if seen.len() >= COMMITS_MAX || !seen.insert(one.clone()) {
                continue;
            }
            match self.parents.get(&one) {
                Some(parents) => next.extend(parents.iter().cloned()),
                None => {
                    let parents = self.outside.parents(&one, &mut bytes_left);
                    next.extend(parents.into_iter().flatten());
                }
            }
        }
        false
    }

    pub fn format(&self) -> Format {
        self.outside.format
    }
}

/// Returns the needed objects that are not on the host. `None` where an object of that name is of
/// another kind.
fn missing(
    outside: &Outside<'_>,
    mut needs: Vec<(Id, ObjectKind)>,
) -> Option<Vec<(Id, ObjectKind)>> {
    let mut is_other = false;
    needs.retain(|(id, wanted)| match outside.kind(id) {
        None => true,
        Some(kind) => {
            is_other |= kind != *wanted;
            false
        }
    });
    needs.shrink_to_fit();
    (!is_other).then_some(needs)
}

/// Returns the objects that miss nothing: neither what they need, nor what that needs in turn.
fn whole(all: &HashMap<Id, Read>) -> HashMap<Id, ObjectKind> {
    let mut needed_by: HashMap<&Id, Vec<&Id>> = HashMap::new();
    let mut missing: Vec<&Id> = Vec::new();
    for (id, read) in all {
        for (one, kind) in &read.needs {
            match all.get(one) {
                Some(other) if other.kind == *kind => needed_by.entry(one).or_default().push(id),
                Some(_) | None => missing.push(id),
            }
        }
    }
    let kinds = all.iter().map(|(id, read)| (id.clone(), read.kind));
    let mut whole: HashMap<Id, ObjectKind> = kinds.collect();
    while let Some(id) = missing.pop() {
        if whole.remove(id).is_some() {
            missing.extend(needed_by.get(id).into_iter().flatten());
        }
    }
    whole
}

fn is_new_file(change: &Change) -> bool {
    let is_file = |facts: &crate::EntryFacts| facts.kind == EntryKind::File;
    change.kind == ChangeKind::Added
        && change.after.as_ref().is_some_and(is_file)
        && change.source == crate::change::Source::After
}

/// Reads a small regular file; `None` also where it is larger.
pub(crate) fn small(tree: &Tree, path: &RelativePath, bytes_max: u64) -> Option<Vec<u8>> {
    use std::io::Read as _;
    let (file, facts) = tree.file(path).ok()?;
    let mut bytes = Vec::new();
    let read = file.take(bytes_max + 1).read_to_end(&mut bytes);
    let is_small = facts.bytes <= bytes_max && bytes.len() as u64 <= bytes_max;
    (read.is_ok() && is_small).then_some(bytes)
}

#[cfg(test)]
mod tests;
