//! Paths that git's configuration names outside of a sandbox: hooks, filters, editors and other
//! programs that git runs, and further configuration.
//!
//! The configuration is read as files, and git is not run. Each condition of an `includeIf` is
//! taken as met, and a value is split as a shell might split it: a path too many needs one approval
//! more, a path too few would run unseen.

mod files;
mod words;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::control::{is_git_directory, plain_form};
use crate::git_config::Setting;
use crate::repository::resolved;
use crate::{Change, ChangeKind, ChangeSet, Class, EntryKind, RelativePath};
use files::{GitDirectories, Settings};
use words::{Use, Word, used_as, words};

const NAMED: &str = "git runs or reads it: git's configuration outside names it";
const UNREAD: &str = "git may run it: a file of git's configuration outside cannot be read";

/// The execute permissions.
const EXECUTABLE: u32 = 0o111;
/// The most paths that are taken from configuration.
const PATHS_MAX: usize = 50_000;
/// The longest path that the kernel takes, bytes.
const PATH_BYTES_MAX: usize = 4_096;
/// The most symbolic links that the kernel follows in a path.
const LINKS_MAX: usize = 40;
/// The most entries of a directory of hooks whose links are followed.
const HOOKS_MAX: usize = 1_000;

/// The locations of git's configuration apart from the repository's own (git-config(1), "FILES").
#[derive(Clone, Debug, Default)]
pub struct GitEnvironment {
    home: Option<PathBuf>,
    system: Vec<PathBuf>,
    /// The user's own files: git skips those that the user may not read.
    own: Vec<PathBuf>,
}

impl GitEnvironment {
    /// Reads the locations from the environment.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let path = |name: &str| variable(name).filter(|value| !value.is_empty());
        let path = |name: &str| path(name).map(PathBuf::from);
        let home = path("HOME");
        let configuration = path("XDG_CONFIG_HOME");
        let configuration =
            configuration.or_else(|| home.as_ref().map(|home| home.join(".config")));
        let mut system = vec![PathBuf::from("/etc/gitconfig")];
        let programs = variable("PATH").unwrap_or_default();
        for program in std::env::split_paths(&programs).map(|place| place.join("git")) {
            // A git that is installed elsewhere has its own `etc` beside its programs.
            let real = program.canonicalize().ok();
            let both = real.iter().flat_map(|real| [&program, real]);
            let prefixes = both.filter_map(|program| program.parent()?.parent());
            system.extend(prefixes.map(|prefix| prefix.join("etc/gitconfig")));
        }
        system.extend(path("GIT_CONFIG_SYSTEM"));
        system.extend(path("GIT_CONFIG_GLOBAL"));
        system.sort();
        system.dedup();
        let own = [
            configuration.map(|at| at.join("git/config")),
            home.as_ref().map(|home| home.join(".gitconfig")),
        ];
        Self {
            system,
            own: own.into_iter().flatten().collect(),
            home,
        }
    }
}

impl ChangeSet {
    /// Classifies as control files the paths that git's configuration names, as it stands in
    /// `directory` and around it on the host. Where that configuration cannot be read, every
    /// executable entry may be named.
    pub fn classify_configured(&mut self, directory: &Path, environment: &GitEnvironment) {
        let (mut seen, mut roots) = (HashSet::new(), Vec::new());
        for change in &self.changes {
            // Also where only the run has made a repository.
            if change.path.name() == b".git" {
                roots.extend(change.path.parent());
            }
            for above in change.path.ancestors() {
                if !seen.insert(above.clone()) {
                    break;
                }
                if above.name() == b".git" {
                    roots.extend(above.parent());
                } else if is_repository(&directory.join(above.as_os_str())) {
                    roots.push(above);
                }
            }
        }
        let named = Named::find(directory, environment, roots.into_iter());
        for change in &mut self.changes {
            if change.class != Class::Control
                && let Some(reason) = named.reason(change)
            {
                change.class = Class::Control;
                change.reason = Some(reason);
            }
        }
    }
}

/// Returns whether git is used in a directory, or may be.
fn is_repository(at: &Path) -> bool {
    let has = |name: &[u8]| {
        let facts = at.join(crate::tree::os(name)).symlink_metadata();
        !facts.is_err_and(|error| crate::tree::is_absence(&error))
    };
    has(b".git") || is_git_directory(has)
}

/// The paths within a directory that git's configuration names.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// Paths, in the form in which names are compared, that stand for everything beneath them too.
    whole: BTreeMap<Vec<u8>, RelativePath>,
    /// Paths that count as long as they are not directories.
    files: BTreeMap<Vec<u8>, RelativePath>,
    /// The first configuration file that could not be read.
    pub unread: Option<PathBuf>,
}

impl Named {
    /// Finds the named paths. `roots` are the directories within that may be repositories.
    pub(crate) fn find(
        directory: &Path,
        environment: &GitEnvironment,
        roots: impl Iterator<Item = RelativePath>,
    ) -> Self {
        let home = environment.home.as_deref();
        let mut shared = Settings::default();
        for file in &environment.system {
            shared.read(file, home, false);
        }
        for file in &environment.own {
            shared.read(file, home, true);
        }
        let mut named = Self {
            unread: shared.unread.take(),
            ..Self::default()
        };
        let around = directory.ancestors().skip(1).filter(|at| is_repository(at));
        let mut places: Vec<PathBuf> = roots.map(|at| directory.join(at.as_os_str())).collect();
        places.extend(around.map(Path::to_path_buf));
        // Trailing slashes are none of a path that is compared.
        places.push(directory.components().collect());
        places.sort();
        places.dedup();
        let real = directory.canonicalize().ok();
        for place in places {
            if named.is_full() {
                break;
            }
            let mut repository = GitDirectories::of(&place);
            let mut own = Settings::default();
            for file in &repository.configurations {
                own.read(file, home, false);
            }
            repository.add_roots(&own.all);
            let finding = Finding {
                directory,
                real: real.as_deref(),
                home,
                repository: &repository,
            };
            for setting in shared.all.iter().chain(&own.all) {
                finding.take(setting, &mut named);
            }
            for file in shared.files.iter().chain(&own.files) {
                finding.name(file, true, &mut named);
            }
            if let Some(hooks) = &repository.hooks {
                finding.name_tree(hooks, &mut named);
            }
            named.unread = named.unread.or(own.unread);
        }
        named
    }

    /// Returns all of them, each with whether it stands for everything beneath it.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (&RelativePath, bool)> {
        let whole = self.whole.values().map(|path| (path, true));
        whole.chain(self.files.values().map(|path| (path, false)))
    }

    fn reason(&self, change: &Change) -> Option<&'static str> {
        let facts = change.after.as_ref().or(change.before.as_ref());
        let kind = facts.map(|facts| &facts.kind);
        let is_directory = kind == Some(&EntryKind::Directory);
        let is_link = matches!(kind, Some(EntryKind::Symlink { .. }));
        let (stands_for_all, from) = match &change.kind {
            ChangeKind::Renamed { from } => (true, Some(from)),
            ChangeKind::Type | ChangeKind::Removed => (true, None),
            ChangeKind::Added | ChangeKind::Modified | ChangeKind::Mode => (is_link, None),
        };
        let mut paths = [Some(&change.path), from].into_iter().flatten();
        if paths.any(|path| self.has(path, is_directory, stands_for_all)) {
            return Some(NAMED);
        }
        let may_run = from.is_some()
            || is_link
            || change
                .after
                .as_ref()
                .is_some_and(|facts| facts.kind == EntryKind::File && facts.mode & EXECUTABLE != 0);
        (self.unread.is_some() && may_run).then_some(UNREAD)
    }

    fn has(&self, path: &RelativePath, is_directory: bool, stands_for_all: bool) -> bool {
        let plain = compared(path);
        let mut ends = (0..=plain.len())
            .filter(|end| *end == 0 || plain.get(*end).is_none_or(|byte| *byte == b'/'));
        let is_within = ends.any(|end| {
            let above = plain.get(..end).unwrap_or_default();
            self.whole.contains_key(above)
        });
        let is_file = !is_directory && self.files.contains_key(&plain);
        let beneath = [&plain[..], b"/"].concat();
        let holds = |paths: &BTreeMap<Vec<u8>, RelativePath>| {
            let next = paths.range(beneath.clone()..).next();
            next.is_some_and(|(path, _)| path.starts_with(&beneath))
        };
        let is_above = || stands_for_all && (holds(&self.whole) || holds(&self.files));
        is_within || is_file || is_above()
    }
}

/// Returns a path in the form under which forgiving file systems take it.
fn compared(path: &RelativePath) -> Vec<u8> {
    let names: Vec<Vec<u8>> = path.components().map(plain_form).collect();
    names.join(&b'/')
}

/// The paths that one repository's configuration names.
struct Finding<'a> {
    directory: &'a Path,
    /// The directory's path without symbolic links.
    real: Option<&'a Path>,
    home: Option<&'a Path>,
    repository: &'a GitDirectories,
}

impl Finding<'_> {
    fn take(&self, setting: &Setting, named: &mut Named) {
        match used_as(setting) {
            Some(Use::Tree) => {
                let repository = self.repository;
                for base in repository.roots.iter().chain(&repository.directories) {
                    for path in self.meant(&setting.value, base) {
                        self.name_tree(&path, named);
                    }
                }
            }
            Some(Use::Command) => {
                for Word { text, is_whole } in words(&setting.value) {
                    for base in &self.repository.roots {
                        for path in self.meant(&text, base) {
                            self.name(&path, is_whole, named);
                        }
                    }
                }
            }
            None => {}
        }
    }

    /// Returns the paths that a text in a configuration can mean. The text behind an expansion has
    /// lost its beginning.
    fn meant(&self, text: &[u8], base: &Path) -> Vec<PathBuf> {
        if text.is_empty() || text.len() > PATH_BYTES_MAX {
            return Vec::new();
        }
        let path = |text: &[u8]| PathBuf::from(OsString::from_vec(text.to_vec()));
        let slash = text.iter().position(|byte| *byte == b'/');
        let behind = slash.and_then(|at| text.get(at..)).unwrap_or_default();
        let start = behind.iter().position(|byte| *byte != b'/');
        let rest = start.and_then(|at| behind.get(at..)).unwrap_or_default();
        let mut meant = vec![base.join(path(text))];
        if matches!(text.first(), Some(b'/' | b'~' | b'%')) && !rest.is_empty() {
            meant.push(base.join(path(rest)));
            meant.extend(self.home.map(|home| home.join(path(rest))));
        }
        meant
    }

    fn name(&self, path: &Path, is_whole: bool, named: &mut Named) {
        for path in self.within(path).into_iter().filter(|path| !path.is_root()) {
            named.insert(path, is_whole);
        }
    }

    /// Names a directory with everything beneath it, and the targets of links in it.
    fn name_tree(&self, path: &Path, named: &mut Named) {
        for path in self.within(path) {
            named.insert(path, true);
        }
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        for (count, entry) in entries.enumerate() {
            if count >= HOOKS_MAX {
                named.unread.get_or_insert_with(|| path.to_path_buf());
                return;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                self.name(&entry.path(), true, named);
            }
        }
    }

    /// Returns the paths within the directory by which something is reached: as it is written, and
    /// through the links on the host.
    fn within(&self, path: &Path) -> Vec<RelativePath> {
        let written = resolved(Path::new("/"), path.as_os_str());
        let real = settled(path);
        let mut found = Vec::new();
        for directory in [Some(self.directory), self.real].into_iter().flatten() {
            let rests = [&written, &real].map(|path| path.strip_prefix(directory).ok());
            let rests = rests.into_iter().flatten();
            found.extend(
                rests.filter_map(|rest| RelativePath::new(rest.as_os_str().as_bytes()).ok()),
            );
        }
        found
    }
}

impl Named {
    fn is_full(&self) -> bool {
        self.whole.len() + self.files.len() >= PATHS_MAX
    }

    fn insert(&mut self, path: RelativePath, is_whole: bool) {
        if self.is_full() {
            self.unread
                .get_or_insert_with(|| PathBuf::from(path.as_os_str()));
            return;
        }
        let paths = match is_whole {
            true => &mut self.whole,
            false => &mut self.files,
        };
        paths.insert(compared(&path), path);
    }
}

/// Resolves an absolute path, also where its end does not exist yet.
fn settled(path: &Path) -> PathBuf {
    let parts = |path: &Path| -> Vec<OsString> {
        let parts = path.components().rev();
        parts.map(|part| part.as_os_str().to_os_string()).collect()
    };
    let (mut at, mut waiting, mut links) = (PathBuf::new(), parts(path), 0);
    while let Some(part) = waiting.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        at.push(&part);
        if links < LINKS_MAX
            && let Ok(target) = at.read_link()
        {
            links += 1;
            at.pop();
            waiting.extend(parts(&target));
        }
    }
    at
}

#[cfg(test)]
mod tests;
