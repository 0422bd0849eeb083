//! Files that others execute or trust. A hostile program that may change one of them escapes at the
//! person's next command, so they are shown apart and need an approval of their own.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::RelativePath;

mod home;
mod reasons;
mod table;

pub(crate) use home::{is_history, is_mere_history};
pub(crate) use reasons::LINTER;
pub use table::CONTROL_FILES;

/// One kind of control file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlFile {
    /// Path components, matched at any depth, without regard to case, and with everything beneath.
    /// A component can hold one `*`.
    pub pattern: &'static str,
    /// The program or person that executes or trusts it.
    pub reason: &'static str,
}

/// Returns the reason why a file of this path is a control file, if it is one.
#[must_use]
pub fn control_reason(path: &RelativePath) -> Option<&'static str> {
    reason(path, false, false)
}

/// Returns the reason why the path is a control file, if it is one. `whole` means that the entry
/// stands for all that is or could be beneath it, as a symbolic link or a moved directory does:
/// then the beginning of a pattern matches too.
pub(crate) fn reason(path: &RelativePath, is_directory: bool, whole: bool) -> Option<&'static str> {
    if is_head_elsewhere(path, is_directory) {
        return Some("it makes its directory a git repository, with hooks of its own");
    }
    reason_by_name(path, is_directory, whole)
}

/// Returns whether the path is a `HEAD`, by which git takes a directory for a repository, in a
/// directory that is not called `.git`.
pub(crate) fn is_head_elsewhere(path: &RelativePath, is_directory: bool) -> bool {
    let mut names = path.components().map(plain_form);
    let is_head = plain_form(path.name()) == b"head" && !is_directory;
    is_head && !names.any(|name| name == b".git")
}

/// As [`reason`], for entries that may be called `HEAD`, as in a directory that was a git directory
/// before.
pub(crate) fn reason_by_name(
    path: &RelativePath,
    is_directory: bool,
    whole: bool,
) -> Option<&'static str> {
    let names: Vec<Vec<u8>> = path.components().map(plain_form).collect();
    if names.last()? == b".git" && !is_directory {
        return Some(reasons::GIT_ELSEWHERE);
    }
    if names.ends_with(&[b".jj".to_vec(), b"repo".to_vec()]) && !is_directory {
        return Some("jj takes its repository from the place named there");
    }
    // The first row that fits says why, wherever in the path it begins.
    let fitting = (0..names.len()).filter_map(|start| {
        let rest = names.get(start..).unwrap_or_default();
        INDEX
            .beginning_with(rest.first()?)
            .filter(|row| matches_from(pattern_of(**row), rest, whole))
            .min()
    });
    let row = CONTROL_FILES.get(*fitting.min()?)?;
    Some(row.reason)
}

/// The entries by which git takes a directory for a git directory, whatever it is called
/// (gitrepository-layout(5)): a `.git` that is a file or a link can lead to it, and git finds it
/// when it is the working directory.
pub(crate) const GIT_PARTS: [&[u8]; 4] = [b"HEAD", b"commondir", b"objects", b"refs"];

/// Returns whether a directory is a git directory, given whether it `has` each of those entries.
pub(crate) fn is_git_directory(has: impl Fn(&[u8]) -> bool) -> bool {
    has(b"HEAD") && (has(b"commondir") || (has(b"objects") && has(b"refs")))
}

/// Renames a path in a git directory as if that were `.git`: the same rules apply to it.
pub(crate) fn as_in_git(path: &RelativePath, git: &RelativePath) -> RelativePath {
    let name = RelativePath::new(".git").unwrap_or_default();
    name.concat(&path.beneath(git).unwrap_or_default())
}

/// Returns whether the path is that of the index of a repository, of a linked worktree or of a
/// submodule. Anything else at such a path, as a submodule's branch, cannot be read as an index.
pub(crate) fn is_git_index(path: &RelativePath) -> bool {
    let names: Vec<Vec<u8>> = path.components().map(plain_form).collect();
    let of_any = |git: usize| match names.get(git + 1..) {
        Some([index]) => index == b"index",
        Some([kind, _, .., index]) => {
            let is_within = [&b"modules"[..], b"worktrees"].contains(&kind.as_slice());
            is_within && index == b"index"
        }
        Some(_) | None => false,
    };
    (0..names.len()).any(|at| names.get(at).is_some_and(|name| name == b".git") && of_any(at))
}

fn pattern_of(row: usize) -> &'static str {
    CONTROL_FILES.get(row).map_or("", |row| row.pattern)
}

/// The table's rows by their first component, since every path is looked up.
struct Index {
    plain: HashMap<Vec<u8>, Vec<usize>>,
    /// Rows whose first component has a star.
    starred: Vec<usize>,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut index = Index {
        plain: HashMap::new(),
        starred: Vec::new(),
    };
    for (row, file) in CONTROL_FILES.iter().enumerate() {
        let first = file.pattern.split('/').next().unwrap_or_default();
        match first.contains('*') {
            true => index.starred.push(row),
            false => {
                let name = first.to_ascii_lowercase().into_bytes();
                index.plain.entry(name).or_default().push(row);
            }
        }
    }
    index
});

impl Index {
    fn beginning_with(&self, name: &[u8]) -> impl Iterator<Item = &usize> {
        let plain = self.plain.get(name).into_iter().flatten();
        plain.chain(&self.starred)
    }
}

/// Reduces a name to the form under which case-insensitive and otherwise forgiving file systems
/// open the same file: `.GIT`, `.git.`, `git~1`, or with ignorable characters within.
pub(crate) fn plain_form(name: &[u8]) -> Vec<u8> {
    let mut plain: Vec<u8> = match std::str::from_utf8(name) {
        Ok(text) if !text.is_ascii() => text
            .chars()
            .filter(|letter| {
                !matches!(u32::from(*letter), 0x200c..=0x200f | 0x202a..=0x202e | 0x206a..=0x206f | 0xfeff)
            })
            .collect::<String>()
            .into_bytes(),
        _ => name.to_vec(),
    };
    plain.make_ascii_lowercase();
    while plain.len() > 1 && matches!(plain.last(), Some(b'.' | b' ')) {
        plain.pop();
    }
    if plain == b"git~1" {
        return b".git".to_vec();
    }
    plain
}

fn matches_from(pattern: &str, names: &[Vec<u8>], whole: bool) -> bool {
    let Some((name, after)) = names.split_first() else {
        return whole;
    };
    let (part, rest) = match pattern.split_once('/') {
        Some((part, rest)) => (part, Some(rest)),
        None => (pattern, None),
    };
    match rest {
        // A lone star stands for one or more names: submodules have submodules.
        Some(rest) if part == "*" => (0..names.len())
            .any(|at| matches_from(rest, names.get(at + 1..).unwrap_or_default(), whole)),
        Some(rest) => matches_name(part, name) && matches_from(rest, after, whole),
        None => matches_name(part, name),
    }
}

/// Returns whether a name matches a component of a pattern. `part` holds at most one star; `name`
/// is in lower case already.
fn matches_name(part: &str, name: &[u8]) -> bool {
    let part = part.as_bytes();
    let Some(star) = part.iter().position(|byte| *byte == b'*') else {
        return part.eq_ignore_ascii_case(name);
    };
    let (start, end) = (part.get(..star), part.get(star + 1..));
    let (start, end) = (start.unwrap_or_default(), end.unwrap_or_default());
    name.len() >= start.len() + end.len()
        && name
            .get(..start.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(start))
        && name
            .get(name.len() - end.len()..)
            .is_some_and(|tail| tail.eq_ignore_ascii_case(end))
}

#[cfg(test)]
mod tests;
