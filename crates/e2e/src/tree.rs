use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The type of a path, with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A file with these bytes.
    File(Vec<u8>),
    /// A directory.
    Directory,
    /// A symbolic link to this.
    Link(PathBuf),
    /// Any other type.
    Other,
}

/// One path with everything that an apply or an undo could get wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its type, with its content.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Modification time; `None` for a directory, because any entry made or removed in it changes
    /// its time.
    pub modified: Option<(i64, i64)>,
}

/// Returns everything beneath a directory, by path relative to it.
///
/// # Panics
/// When something cannot be read.
#[must_use]
pub fn tree(top: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut found = BTreeMap::new();
    add(top, Path::new(""), &mut found);
    found
}

/// Checks that a directory is what it was, to the last entry.
///
/// # Panics
/// When something differs, is gone or is left.
pub fn expect_same(before: &BTreeMap<PathBuf, Entry>, top: &Path) {
    let after = tree(top);
    for (path, entry) in before {
        assert_eq!(after.get(path), Some(entry), "{}", path.display());
    }
    assert_eq!(
        after.len(),
        before.len(),
        "something is left: {:?}",
        after.keys()
    );
}

fn add(top: &Path, below: &Path, found: &mut BTreeMap<PathBuf, Entry>) {
    for entry in fs::read_dir(top.join(below)).unwrap() {
        let relative = below.join(entry.unwrap().file_name());
        let path = top.join(&relative);
        let facts = fs::symlink_metadata(&path).unwrap();
        let kind = if facts.is_dir() {
            Kind::Directory
        } else if facts.is_file() {
            Kind::File(fs::read(&path).unwrap())
        } else if facts.is_symlink() {
            Kind::Link(fs::read_link(&path).unwrap())
        } else {
            Kind::Other
        };
        let entry = Entry {
            kind,
            mode: facts.mode() & 0o7777,
            owner: (facts.uid(), facts.gid()),
            modified: (!facts.is_dir()).then(|| (facts.mtime(), facts.mtime_nsec())),
        };
        found.insert(relative.clone(), entry);
        if facts.is_dir() {
            add(top, &relative, found);
        }
    }
}
