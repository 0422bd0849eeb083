//! Classifies changes by the care that they need: by the table of control files, known caches, and
//! the ignore files as they were before the program could write them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read as _;
use std::path::Path;
use std::rc::Rc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::change::Source;
use crate::control::GIT_PARTS;
use crate::facts::Kind;
use crate::git_config::CONFIGURATION_BYTES_MAX;
use crate::git_objects::{Format, small};
use crate::tree::{Tree, os};
use crate::{
    Bounds, Change, ChangeKind, Class, EntryKind, Refusal, RelativePath, control, git_index,
};

/// Directories that tools fill and can fill again.
const CACHES: [&[u8]; 22] = [
    b"node_modules",
    b"bower_components",
    b".venv",
    b"__pycache__",
    b".pytest_cache",
    b".mypy_cache",
    b".ruff_cache",
    b".hypothesis",
    b".tox",
    b".nox",
    b".eggs",
    b".gradle",
    b".next",
    b".nuxt",
    b".turbo",
    b".parcel-cache",
    b".svelte-kit",
    b".angular",
    b".cache",
    b".ccache",
    b".terraform",
    b".dart_tool",
];

/// Names that are a cache only with a witness: the witness's path from the directory.
const WITNESSED: [(&[u8], &[u8], bool); 3] = [
    (b"target", b"Cargo.toml", true),
    (b"target", b"CACHEDIR.TAG", false),
    (b"venv", b"pyvenv.cfg", false),
];

pub(crate) struct Classifier<'a> {
    before: &'a Tree,
    after: &'a Tree,
    ignore_file_bytes_max: u64,
    /// Paths that are gone, or now come from elsewhere in the tree before.
    moved: HashSet<RelativePath>,
    /// Changed entries that can make a directory a git directory.
    parts: HashSet<RelativePath>,
    /// The surroundings known so far, by directory: each is determined once, however deep.
    directories: HashMap<RelativePath, Rc<Surroundings>>,
}

/// The meaning of a directory for the entries in it.
struct Surroundings {
    is_cache: bool,
    is_ignored: bool,
    /// Set when the tree before has the directory: only then can it hold an ignore file.
    is_before: bool,
    /// The git directories that it is or lies in, whatever they are called, nearest last; each with
    /// whether it was there before.
    git: Vec<RelativePath>,
    is_git_before: bool,
    /// The ignore files that apply here, nearest last, with their directories.
    ignores: Vec<Rc<(RelativePath, Gitignore)>>,
}

impl<'a> Classifier<'a> {
    pub fn new(before: &'a Tree, after: &'a Tree, changes: &[Change], bounds: &Bounds) -> Self {
        let (mut moved, mut parts) = (HashSet::new(), HashSet::new());
        for change in changes {
            if let ChangeKind::Renamed { from } = &change.kind {
                moved.insert(from.clone());
            }
            if change.after.is_some() && GIT_PARTS.contains(&change.path.name()) {
                parts.insert(change.path.clone());
            }
            if change.kind == ChangeKind::Removed || change.source != Source::After {
                moved.insert(change.path.clone());
            }
        }
        Self {
            moved,
            parts,
            before,
            after,
            ignore_file_bytes_max: bounds.ignore_file_bytes_max,
            directories: HashMap::new(),
        }
    }

    /// Sets a change's class. Control wins over cache and ignored, since those are reviewed less.
    pub fn classify(&mut self, change: &mut Change, control_within: Option<&'static str>) {
        let now = change.after.as_ref().or(change.before.as_ref());
        let kind = now.map(|facts| &facts.kind);
        let is_directory = kind == Some(&EntryKind::Directory);
        let is_link = matches!(kind, Some(EntryKind::Symlink { .. }));
        let whole = is_link
            || match change.kind {
                ChangeKind::Type | ChangeKind::Renamed { .. } => true,
                ChangeKind::Added
                | ChangeKind::Modified
                | ChangeKind::Removed
                | ChangeKind::Mode => false,
            };
        let around = self.surroundings(&change.path.parent().unwrap_or_default());
        let is_cache = around.is_cache || self.is_cache_directory(&change.path);
        // Packages bring their own editor and CI files; to remove them with the
        // cache that holds them endangers nobody.
        let within = control_within.filter(|_| !is_cache);
        let by_name = self.reason(change, &around, is_directory, whole);
        // Editors open no packages in caches.
        let by_name = by_name.filter(|reason| !is_cache || *reason != control::LINTER);
        let by_name = by_name.or(within);
        change.reason = by_name.or_else(|| self.index_reason(change, &around));
        change.class = match change.reason {
            Some(_) => Class::Control,
            None => self.bulk(&change.path, is_directory),
        };
    }

    /// Returns the refused entries that have content, or may have, with their class. A socket or FIFO
    /// has none that could be lost, unless it is `unseen`: it may be anything.
    pub fn unread(
        &mut self,
        refused: &[Refusal],
        unseen: &BTreeMap<RelativePath, Class>,
    ) -> BTreeMap<RelativePath, Class> {
        let mut unread = BTreeMap::new();
        for Refusal { path, .. } in refused {
            let facts = self.after.facts(path).ok().flatten();
            let kind = facts.map(|facts| facts.kind);
            let is_plain = matches!(
                kind,
                None | Some(Kind::File | Kind::Directory | Kind::Symlink)
            );
            if is_plain || unseen.contains_key(path) {
                let class = self.bulk(path, kind == Some(Kind::Directory));
                unread.insert(path.clone(), class);
            }
        }
        unread
    }

    /// Returns whether a path is in a cache, ignored, or neither: an ordinary one.
    pub fn bulk(&mut self, path: &RelativePath, is_directory: bool) -> Class {
        let around = self.surroundings(&path.parent().unwrap_or_default());
        if around.is_cache || self.is_cache_directory(path) {
            Class::Cache
        } else if around.is_ignored || around.excludes(path, is_directory) {
            Class::Ignored
        } else {
            Class::Ordinary
        }
    }

    /// Returns the reason why a change needs an approval of its own, by its name or by its place in
    /// a git directory.
    fn reason(
        &self,
        change: &Change,
        around: &Surroundings,
        is_directory: bool,
        whole: bool,
    ) -> Option<&'static str> {
        let path = &change.path;
        let facts = change.before.iter().chain(&change.after);
        let can_be_git = facts
            .into_iter()
            .any(|one| one.kind == EntryKind::Directory);
        let is_git = can_be_git && self.is_git(path);
        let all = around.git.iter().chain(is_git.then_some(path));
        let in_git = all.map(|git| control::as_in_git(path, git));
        let mut reasons = in_git.map(|path| control::reason(&path, is_directory, whole));
        let by_place = reasons.find_map(|reason| reason);
        by_place.or_else(|| match around.is_git_before {
            true => control::reason_by_name(path, is_directory, whole),
            false => control::reason(path, is_directory, whole),
        })
    }

    /// Returns whether git takes, or may take, a directory for a git directory: by its entries
    /// before or after, since not all changes need be applied.
    fn is_git(&self, directory: &RelativePath) -> bool {
        let trees = [self.before, self.after];
        control::is_git_directory(|name| {
            let part = directory.join(name).unwrap_or_default();
            self.parts.contains(&part) || trees.iter().any(|tree| tree.may_have(&part))
        })
    }

    fn was_git(&self, directory: &RelativePath) -> bool {
        control::is_git_directory(|name| {
            let part = directory.join(name).unwrap_or_default();
            matches!(self.before.facts(&part), Ok(Some(_)))
        })
    }

    /// Returns the reason why a repository's index needs an approval of its own, by the paths it
    /// names.
    fn index_reason(&self, change: &Change, around: &Surroundings) -> Option<&'static str> {
        let in_git = around
            .git
            .iter()
            .map(|git| control::as_in_git(&change.path, git));
        let mut names = in_git.chain([change.path.clone()]);
        if change.after.is_none() || !names.any(|name| control::is_git_index(&name)) {
            return None;
        }
        let is_own = change.source == Source::After;
        let file = self.after.file(&change.path).ok().filter(|_| is_own);
        match file.zip(self.format(&change.path)) {
            Some(((file, facts), format)) => git_index::reason(&file, facts.bytes, format.bytes()),
            None => Some(git_index::UNREAD),
        }
    }

    /// Returns the digest by which the repository with this index names its objects, whether or not
    /// the program's changes to its configuration are applied. `None` where that is unclear.
    fn format(&self, index: &RelativePath) -> Option<Format> {
        let own = index.parent()?;
        let worktrees = own.parent().filter(|at| at.name() == b"worktrees");
        let common = worktrees.and_then(|worktrees| worktrees.parent());
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (tree, found) in [(self.before, &mut before), (self.after, &mut after)] {
            let elsewhere = own.join(b"commondir").ok()?;
            if tree.facts(&elsewhere).ok()?.is_some() {
                let named = small(tree, &elsewhere, CONFIGURATION_BYTES_MAX)?;
                let is_usual = named.trim_ascii_end() == b"../.." && common.is_some();
                is_usual.then_some(())?;
            }
            for place in [Some(&own), common.as_ref()].into_iter().flatten() {
                let path = place.join(b"config").ok()?;
                if tree.facts(&path).ok()?.is_some() {
                    let text = small(tree, &path, CONFIGURATION_BYTES_MAX)?;
                    found.push(Format::of(&text)?);
                }
                if path
                    .ancestors()
                    .chain([path.clone()])
                    .any(|one| self.moved.contains(&one))
                {
                    return None;
                }
            }
        }
        // Without a configuration it is this one.
        let first = before.first().copied().unwrap_or(Format::Sha1);
        let are_same = before.iter().chain(&after).all(|one| *one == first);
        are_same.then_some(first)
    }

    /// Returns a directory's surroundings, computed downwards from the nearest known ancestor.
    fn surroundings(&mut self, directory: &RelativePath) -> Rc<Surroundings> {
        let mut unknown = Vec::new();
        let mut at = Some(directory.clone());
        let mut known = None;
        while let Some(here) = at {
            if let Some(found) = self.directories.get(&here) {
                known = Some(Rc::clone(found));
                break;
            }
            at = here.parent();
            unknown.push(here);
        }
        let mut around = known.unwrap_or_else(|| {
            Rc::new(Surroundings {
                is_cache: false,
                is_ignored: false,
                is_before: true,
                git: Vec::new(),
                is_git_before: false,
                ignores: Vec::new(),
            })
        });
        for here in unknown.into_iter().rev() {
            around = Rc::new(self.enter(&around, &here));
            self.directories.insert(here, Rc::clone(&around));
        }
        around
    }

    fn enter(&self, around: &Surroundings, directory: &RelativePath) -> Surroundings {
        let is_before = around.is_before
            && self
                .before
                .facts(directory)
                .ok()
                .flatten()
                .is_some_and(|facts| facts.kind == Kind::Directory);
        let mut ignores = around.ignores.clone();
        if is_before && let Some(ignore) = self.ignore_file(directory) {
            ignores.push(Rc::new((directory.clone(), ignore)));
        }
        let (mut git, mut is_git_before) = (around.git.clone(), around.is_git_before);
        if self.is_git(directory) {
            git.push(directory.clone());
            is_git_before = self.was_git(directory);
        }
        Surroundings {
            git,
            is_git_before,
            is_cache: around.is_cache || self.is_cache_directory(directory),
            is_ignored: around.is_ignored
                || (!directory.is_root() && around.excludes(directory, true)),
            is_before,
            ignores,
        }
    }

    fn is_cache_directory(&self, path: &RelativePath) -> bool {
        let name = path.name();
        if CACHES.contains(&name) {
            return true;
        }
        if !WITNESSED.iter().any(|(known, _, _)| *known == name) {
            return false;
        }
        WITNESSED.iter().any(|(known, witness, beside)| {
            let place = match beside {
                true => path.parent().unwrap_or_default(),
                false => path.clone(),
            };
            *known == name
                && place
                    .join(witness)
                    .is_ok_and(|witness| self.has_file(&witness))
        })
    }

    fn has_file(&self, path: &RelativePath) -> bool {
        [self.before, self.after].iter().any(|tree| {
            let facts = tree.facts(path).ok().flatten();
            facts.is_some_and(|facts| facts.kind == Kind::File)
        })
    }

    fn ignore_file(&self, directory: &RelativePath) -> Option<Gitignore> {
        let names: &[&[u8]] = match directory.is_root() {
            true => &[b".git/info/exclude", b".gitignore"],
            false => &[b".gitignore"],
        };
        let mut builder = GitignoreBuilder::new("");
        let mut lines = 0;
        for name in names {
            let rest = RelativePath::new(*name).unwrap_or_default();
            let text = self.read_bounded(&directory.concat(&rest));
            for line in text.lines() {
                // A pattern that git would not understand excludes nothing.
                if builder.add_line(None, line).is_ok() {
                    lines += 1;
                }
            }
        }
        (lines > 0).then(|| builder.build().ok()).flatten()
    }

    fn read_bounded(&self, path: &RelativePath) -> String {
        let mut bytes = Vec::new();
        if let Ok((file, facts)) = self.before.file(path)
            && facts.bytes <= self.ignore_file_bytes_max
        {
            let _ = file
                .take(self.ignore_file_bytes_max)
                .read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Surroundings {
    /// Returns whether the ignore files exclude an entry of the directory: the nearest one that
    /// matches decides. Nothing beneath an excluded directory can be included again, so the
    /// directories above are checked first.
    fn excludes(&self, path: &RelativePath, is_directory: bool) -> bool {
        for ignore in self.ignores.iter().rev() {
            let (directory, patterns) = ignore.as_ref();
            let rest = path.beneath(directory).unwrap_or_default();
            match patterns.matched(Path::new(os(rest.as_bytes())), is_directory) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }
}
