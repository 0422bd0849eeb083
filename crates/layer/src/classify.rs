//! How much care a change needs: the control table, known caches, and the ignore
//! files as they were before the program could write them.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::facts::Kind;
use crate::tree::{Tree, os};
use crate::{Bounds, Change, ChangeKind, Class, EntryKind, RelativePath, control};

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
    ignores: HashMap<RelativePath, Option<Gitignore>>,
    caches: HashMap<RelativePath, bool>,
}

impl<'a> Classifier<'a> {
    pub fn new(before: &'a Tree, after: &'a Tree, bounds: &Bounds) -> Self {
        Self {
            before,
            after,
            ignore_file_bytes_max: bounds.ignore_file_bytes_max,
            ignores: HashMap::new(),
            caches: HashMap::new(),
        }
    }

    /// Sets a change's class. Control wins over cache and ignored, since those are
    /// looked at less.
    pub fn classify(&mut self, change: &mut Change, control_within: Option<&'static str>) {
        let now = change.after.as_ref().or(change.before.as_ref());
        let kind = now.map(|facts| &facts.kind);
        let is_directory = kind == Some(&EntryKind::Directory);
        let is_link = matches!(kind, Some(EntryKind::Symlink { .. }));
        let whole = is_link
            || match change.kind {
                ChangeKind::Type | ChangeKind::Renamed { .. } => true,
                ChangeKind::Added | ChangeKind::Modified | ChangeKind::Removed | ChangeKind::Mode => {
                    false
                }
            };
        let is_cache = self.is_cache(&change.path);
        // Packages bring their own editor and CI files; to remove them with the
        // cache that holds them endangers nobody.
        let within = control_within.filter(|_| !is_cache);
        change.reason = control::reason(&change.path, is_directory, whole).or(within);
        change.class = if change.reason.is_some() {
            Class::Control
        } else if is_cache {
            Class::Cache
        } else if self.is_ignored(&change.path, is_directory) {
            Class::Ignored
        } else {
            Class::Ordinary
        };
    }

    fn is_cache(&mut self, path: &RelativePath) -> bool {
        let mut at = Some(path.clone());
        while let Some(here) = at.filter(|here| !here.is_root()) {
            if self.is_cache_directory(&here) {
                return true;
            }
            at = here.parent();
        }
        false
    }

    fn is_cache_directory(&mut self, path: &RelativePath) -> bool {
        let name = path.name();
        if CACHES.contains(&name) {
            return true;
        }
        if !WITNESSED.iter().any(|(known, _, _)| *known == name) {
            return false;
        }
        if let Some(known) = self.caches.get(path) {
            return *known;
        }
        let found = WITNESSED.iter().any(|(known, witness, beside)| {
            let place = match beside {
                true => path.parent().unwrap_or_default(),
                false => path.clone(),
            };
            *known == name && place.join(witness).is_ok_and(|witness| self.has_file(&witness))
        });
        self.caches.insert(path.clone(), found);
        found
    }

    fn has_file(&self, path: &RelativePath) -> bool {
        [self.before, self.after].iter().any(|tree| {
            let facts = tree.facts(path).ok().flatten();
            facts.is_some_and(|facts| facts.kind == Kind::File)
        })
    }

    /// Whether the ignore files before exclude the path: from the top down, since
    /// nothing beneath an excluded directory can be included again.
    fn is_ignored(&mut self, path: &RelativePath, is_directory: bool) -> bool {
        let mut above: Vec<RelativePath> = path.ancestors().collect();
        above.reverse();
        above.iter().any(|directory| self.is_excluded(directory, true))
            || self.is_excluded(path, is_directory)
    }

    fn is_excluded(&mut self, path: &RelativePath, is_directory: bool) -> bool {
        let mut at = path.parent();
        while let Some(directory) = at {
            if let Some(ignore) = self.ignore_file(&directory)
                && let Some(rest) = path.beneath(&directory)
            {
                match ignore.matched(Path::new(os(rest.as_bytes())), is_directory) {
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                    Match::None => {}
                }
            }
            at = directory.parent();
        }
        false
    }

    fn ignore_file(&mut self, directory: &RelativePath) -> Option<&Gitignore> {
        if !self.ignores.contains_key(directory) {
            let mut names: Vec<&[u8]> = vec![b".gitignore"];
            if directory.is_root() {
                names.insert(0, b".git/info/exclude");
            }
            let mut builder = GitignoreBuilder::new("");
            let mut lines = 0;
            for name in names {
                let rest = RelativePath::new(name).unwrap_or_default();
                let text = self.read_bounded(&directory.concat(&rest));
                for line in text.lines() {
                    // A pattern that git would not understand excludes nothing.
                    if builder.add_line(None, line).is_ok() {
                        lines += 1;
                    }
                }
            }
            let built = (lines > 0).then(|| builder.build().ok()).flatten();
            self.ignores.insert(directory.clone(), built);
        }
        self.ignores.get(directory)?.as_ref()
    }

    fn read_bounded(&self, path: &RelativePath) -> String {
        let mut bytes = Vec::new();
        if let Ok((file, facts)) = self.before.file(path)
            && facts.bytes <= self.ignore_file_bytes_max
        {
            let _ = file.take(self.ignore_file_bytes_max).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
