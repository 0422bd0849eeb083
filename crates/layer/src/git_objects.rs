//! Objects of a git repository: whether a loose one is what its name says (the bytes that have its
//! digest: gitformat-loose, "git help gitdatamodel"), what it needs, and which ones there are.

mod loose;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use crate::facts::Kind;
use crate::git_config;
use crate::tree::Tree;
use crate::{Change, ChangeKind, ChangeSet, EntryKind, RelativePath};

pub(crate) use loose::{Digest, Loose, LooseKind};

/// The most indexes of packs that are looked into.
const PACKS_MAX: usize = 4096;
/// What all objects of a layer may come to, bytes: those beyond are not looked at.
const BYTES_MAX: u64 = 4 << 30;
/// Where the table of counts is in an index of a pack, and how long it is (gitformat-pack(5)).
const FANOUT: (u64, usize) = (8, 256 * 4);

/// By which digest a repository names its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Sha1,
    Sha256,
}

impl Format {
    /// That of a repository with this configuration (`extensions.objectFormat`).
    pub fn of(configuration: &[u8]) -> Option<Self> {
        match git_config::value(configuration, b"extensions", b"objectformat").as_deref() {
            None | Some(b"sha1") => Some(Self::Sha1),
            Some(b"sha256") => Some(Self::Sha256),
            Some(_) => None,
        }
    }

    /// That of the repository whose common directory this is.
    pub fn of_repository(common: &Tree) -> Option<Self> {
        let path = RelativePath::new("config").ok()?;
        let configuration = match common.facts(&path).ok()? {
            Some(_) => small(common, &path, git_config::CONFIGURATION_BYTES_MAX)?,
            None => Vec::new(),
        };
        Self::of(&configuration)
    }

    /// That in which names are of this length.
    pub fn of_bytes(bytes: usize) -> Option<Self> {
        let both = [Self::Sha1, Self::Sha256];
        both.into_iter().find(|one| one.bytes() == bytes)
    }

    /// How long a name is, bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// The tree with nothing in it, which git knows without having it.
    fn empty_tree(self) -> Option<Id> {
        let digits: &[u8] = match self {
            Self::Sha1 => b"4b825dc642cb6eb9a060e54bf8d69288fbee4904",
            Self::Sha256 => b"6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
        };
        Id::read(digits, self)
    }
}

/// The name of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id(Vec<u8>);

impl Id {
    /// From its digits, which are small letters (gitrepository-layout(5)).
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
        digits.chunks(2).map(pair).collect::<Option<_>>().map(Self)
    }

    /// From its bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn path(&self) -> Option<RelativePath> {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let (two, rest) = digits.split_at_checked(2)?;
        RelativePath::new(format!("objects/{two}/{rest}")).ok()
    }

    /// Of a loose one by where it is.
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

/// The objects of a repository as it is outside.
pub(crate) struct Outside<'a> {
    tree: &'a Tree,
    pub format: Format,
    /// Indexes of packs, each with how many names begin with at most each byte.
    packs: Vec<(File, Vec<u8>)>,
    /// What was looked for.
    known: RefCell<HashMap<Id, bool>>,
}

impl<'a> Outside<'a> {
    /// None where it cannot be told which there are.
    pub fn open(tree: &'a Tree) -> Option<Self> {
        let format = Format::of_repository(tree)?;
        let directory = RelativePath::new("objects/pack").ok()?;
        let names = tree.names(&directory).ok()?;
        let mut packs = Vec::new();
        for name in names.iter().filter(|name| name.ends_with(b".idx")) {
            let (file, _) = tree.file(&directory.join(name).ok()?).ok()?;
            let mut counts = vec![0; FANOUT.1];
            let mut head = [0; 8];
            let is_read = file.read_exact_at(&mut head, 0).is_ok()
                && file.read_exact_at(&mut counts, FANOUT.0).is_ok();
            // The version that all have had since 2007.
            if is_read && head == *b"\xfftOc\0\0\0\x02" {
                packs.push((file, counts));
            }
        }
        let known = format.empty_tree().map(|empty| (empty, true));
        (packs.len() <= PACKS_MAX).then(|| Self {
            tree,
            format,
            packs,
            known: RefCell::new(known.into_iter().collect()),
        })
    }

    /// Whether there is one of this name.
    pub fn has(&self, id: &Id) -> bool {
        if let Some(known) = self.known.borrow().get(id) {
            return *known;
        }
        let has = self.is_loose(id)
            || self
                .packs
                .iter()
                .any(|(file, counts)| is_in(file, counts, id));
        self.known.borrow_mut().insert(id.clone(), has);
        has
    }

    fn is_loose(&self, id: &Id) -> bool {
        let facts = id.path().map(|path| self.tree.facts(&path));
        matches!(facts, Some(Ok(Some(facts))) if facts.kind == Kind::File)
    }
}

/// Whether the index of a pack has a name: they are sorted.
fn is_in(index: &File, counts: &[u8], id: &Id) -> bool {
    let count = |at: usize| -> Option<u64> {
        let four: [u8; 4] = counts.get(at * 4..at * 4 + 4)?.try_into().ok()?;
        Some(u32::from_be_bytes(four).into())
    };
    let Some(first) = id.0.first().map(|byte| usize::from(*byte)) else {
        return false;
    };
    let before = match first {
        0 => Some(0),
        other => count(other - 1),
    };
    let (Some(mut low), Some(mut high)) = (before, count(first)) else {
        return false;
    };
    let mut name = vec![0; id.0.len()];
    let begun = FANOUT.0 + FANOUT.1 as u64;
    while low < high {
        let middle = low + (high - low) / 2;
        let at = begun + middle * name.len() as u64;
        if index.read_exact_at(&mut name, at).is_err() {
            return false;
        }
        match name.cmp(&id.0) {
            std::cmp::Ordering::Equal => return true,
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    false
}

/// The loose objects that a layer adds, each of which is what its name says.
pub(crate) struct New<'a> {
    outside: Outside<'a>,
    all: HashMap<Id, LooseKind>,
    /// Those of them that miss nothing that they need.
    whole: HashSet<Id>,
}

impl<'a> New<'a> {
    /// Looks into all of them. `after` is what the layer has.
    pub fn read(outside: Outside<'a>, after: &Tree, changes: &ChangeSet) -> Self {
        let (mut all, mut needs) = (HashMap::new(), HashMap::new());
        let mut bytes_left = BYTES_MAX;
        for change in changes.changes.iter().filter(|change| is_new_file(change)) {
            let Some(id) = Id::at(&change.path, outside.format) else {
                continue;
            };
            if outside.has(&id) {
                continue;
            }
            let Ok((file, _)) = after.file(&change.path) else {
                continue;
            };
            if let Some(read) = Loose::read(file, &id, outside.format, &mut bytes_left) {
                all.insert(id.clone(), read.kind);
                needs.insert(id, read.needs);
            }
        }
        let whole = whole(&outside, &needs);
        Self {
            outside,
            all,
            whole,
        }
    }

    /// Whether what is at this path is one.
    pub fn is_one(&self, path: &RelativePath) -> bool {
        let id = Id::at(path, self.outside.format);
        id.is_some_and(|id| self.all.contains_key(&id))
    }

    /// Whether an object will be there, with all that it needs.
    pub fn will_be(&self, id: &Id) -> bool {
        self.outside.has(id) || self.whole.contains(id)
    }

    /// The same of a commit. What is there already was put there by somebody else.
    pub fn will_be_commit(&self, id: &Id) -> bool {
        let is_commit = self
            .all
            .get(id)
            .is_none_or(|kind| *kind == LooseKind::Commit);
        is_commit && self.will_be(id)
    }

    pub fn format(&self) -> Format {
        self.outside.format
    }
}

/// All that miss nothing: neither what they need, nor what that needs in turn.
fn whole(outside: &Outside<'_>, needs: &HashMap<Id, Vec<Id>>) -> HashSet<Id> {
    let mut needed_by: HashMap<&Id, Vec<&Id>> = HashMap::new();
    let mut missing: Vec<&Id> = Vec::new();
    for (id, needed) in needs {
        for one in needed.iter().filter(|one| !outside.has(one)) {
            match needs.contains_key(one) {
                true => needed_by.entry(one).or_default().push(id),
                false => missing.push(id),
            }
        }
    }
    let mut whole: HashSet<Id> = needs.keys().cloned().collect();
    while let Some(id) = missing.pop() {
        if whole.remove(id) {
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

/// A small regular file; none also where it is larger.
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
