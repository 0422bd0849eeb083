//! The paths that a program can be, as it is called.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The directories that are searched where the environment has no `PATH`.
const SEARCHED: &str = "/usr/local/bin:/usr/bin:/bin";
/// The directories of the system that are the same one on most systems.
const MERGED: [[&str; 2]; 2] = [["/bin", "/usr/bin"], ["/sbin", "/usr/sbin"]];
/// The most directories of `PATH` in which a program is looked for by its paths.
pub(crate) const SEARCHED_MAX: usize = 256;

/// Returns the directories in which the program of an exec is searched for.
pub(crate) fn search(variables: &[(OsString, OsString)]) -> &OsStr {
    let mut all = variables.iter().filter(|(name, _)| name == "PATH");
    all.next()
        .map_or(OsStr::new(SEARCHED), |(_, value)| value.as_os_str())
}

/// Returns every path that a program called so from this directory can be, without the name by
/// which it is called: a name is found in each directory of `search`, a path is itself and the same
/// in the other name of a directory of the system. `None` if there are too many.
pub(crate) fn paths(program: &str, directory: &Path, search: &OsStr) -> Option<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    if program.contains('/') {
        found.insert(plain(&directory.join(program)));
    } else {
        let searched = search.as_bytes().split(|byte| *byte == b':');
        for (at, one) in searched.enumerate() {
            if at >= SEARCHED_MAX {
                return None;
            }
            let one = directory.join(OsStr::from_bytes(one));
            found.insert(plain(&one.join(program)));
        }
    }
    let merged: Vec<PathBuf> = found.iter().flat_map(|path| other_names(path)).collect();
    found.extend(merged);
    // Paths that are written in different ways are equal, and their texts are not.
    found.retain(|path| path.as_os_str() != program);
    Some(found)
}

/// Returns the path without `.`, `..` and `//`, as far as names alone tell.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    plain
}

fn other_names(path: &Path) -> impl Iterator<Item = PathBuf> {
    let pairs = MERGED
        .iter()
        .flat_map(|[one, two]| [(one, two), (two, one)]);
    pairs.filter_map(|(one, two)| Some(Path::new(two).join(path.strip_prefix(one).ok()?)))
}
