//! The files that decide whether a check passes: tests, what configures and starts them, lock files.
//!
//! A run that can write them can have anything pass. Everything here is read on the host, as it was
//! before the run.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use atoll_layer::{Change, ChangeKind, EntryKind, RelativePath};
use atoll_policy::Checks;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::failure::{Doing, Failure};

/// The patterns that every profile has, as in `.gitignore`: without a slash at any depth, and with
/// all that lies in a directory of that name. They are tests; what configures them, and programs that
/// start with them; what says which there are, and how they are built; lock files.
const PATTERNS: &str = "\
    test tests __tests__ __snapshots__ spec specs e2e testdata fixtures test_*.py *_test.py \
    tests.py test.py *_test.go tests.rs *_test.rs *_tests.rs *.test.* *.spec.* *_test.rb \
    *_spec.rb *Test.java *Tests.java *Test.kt *Tests.cs *Test.php *.bats \
    conftest.py pytest.ini .pytest.ini tox.ini setup.cfg noxfile.py .coveragerc sitecustomize.py \
    usercustomize.py jest.config.* jest.setup.* vitest.config.* vitest.setup.* \
    vitest.workspace.* playwright.config.* cypress.config.* karma.conf.* .mocharc* vite.config.* \
    babel.config.* .babelrc* tsconfig*.json eslint.config.* .eslintrc* .rspec phpunit.xml* \
    .config/nextest.toml clippy.toml rust-toolchain* .cargo \
    Makefile GNUmakefile *.mk Justfile .justfile Taskfile.* Rakefile CMakeLists.txt meson.build \
    BUILD *.bazel build.rs pom.xml build.gradle* settings.gradle* package.json deno.json* \
    pyproject.toml setup.py Cargo.toml go.mod go.work Gemfile composer.json Pipfile \
    requirements*.txt constraints*.txt \
    Cargo.lock package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock* deno.lock \
    *.csproj *.fsproj *.vbproj *.sln* .runsettings Directory.Build.* mix.exs build.sbt \
    Package.swift build.zig* buildSrc *.cmake phpunit.dist.xml .nycrc* ava.config.* turbo.json \
    nx.json pytest.toml **/.config/nextest.toml \
    poetry.lock uv.lock pdm.lock Pipfile.lock go.sum go.work.sum Gemfile.lock composer.lock";

/// The most entries of a workspace that are looked at.
const ENTRIES_MAX: u64 = 5_000_000;
/// The most links that are followed one after another.
const LINKS_MAX: usize = 40;

/// The files that decide in one workspace.
pub(super) struct Judge {
    workspace: PathBuf,
    patterns: Gitignore,
    /// The places to which links among them lead, and links on the way there.
    led: Vec<RelativePath>,
}

/// The deciding files that a change touches.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Touched {
    Nothing,
    /// The change is one of such a file, or of a directory that has nothing else.
    Itself,
    /// The change is one of a directory above these.
    Within(Vec<RelativePath>),
}

impl Judge {
    /// Reads the patterns of these checks, and the links in the workspace.
    ///
    /// # Errors
    /// When a pattern is invalid, or the workspace cannot be read.
    pub(super) fn read(checks: &Checks, workspace: &Path) -> Result<Self, Failure> {
        let mut judge = Self {
            workspace: workspace.to_owned(),
            patterns: patterns(checks, workspace).map_err(|why| {
                Failure::new("the files that decide the checks are not known")
                    .because(why)
                    .advise("correct `judge` in [checks] of the profile")
            })?,
            led: Vec::new(),
        };
        judge.follow_links()?;
        Ok(judge)
    }

    /// Returns whether an entry at this path decides. It may be of any type: a link stands for a file
    /// or a directory.
    pub(super) fn decides(&self, path: &RelativePath) -> bool {
        if path.is_root() {
            return false;
        }
        let at = Path::new(path.as_os_str());
        let matches = |is_directory| {
            let found = self.patterns.matched_path_or_any_parents(at, is_directory);
            found.is_ignore()
        };
        matches(false) || matches(true) || self.led.iter().any(|led| path.starts_with(led))
    }

    /// Returns the deciding files that a change touches.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub(super) fn touched(&self, change: &Change) -> Result<Touched, Failure> {
        if self.decides(&change.path) {
            return Ok(Touched::Itself);
        }
        let was_directory = change.before.as_ref().map(|before| &before.kind);
        let was_directory = was_directory == Some(&EntryKind::Directory);
        let mut within = match &change.kind {
            ChangeKind::Renamed { from } => {
                let here = self.within(from)?.into_iter();
                let moved = self.moved(from, &change.path)?;
                here.chain(moved).collect()
            }
            ChangeKind::Removed | ChangeKind::Type if was_directory => self.within(&change.path)?,
            _ => Vec::new(),
        };
        let is_above = |led: &&RelativePath| led.starts_with(&change.path) && !was_directory;
        within.extend(self.led.iter().filter(is_above).cloned());
        Ok(match within.is_empty() {
            true => Touched::Nothing,
            false => Touched::Within(within),
        })
    }

    /// Returns the entries that decide, at this path on the host or beneath it; of a directory that
    /// does, the directory alone.
    pub(super) fn within(&self, path: &RelativePath) -> Result<Vec<RelativePath>, Failure> {
        let mut found = Vec::new();
        self.walk(path, |path, kind| {
            let decides = self.decides(path);
            if decides {
                found.push(path.clone());
            }
            kind.is_dir() && !decides
        })?;
        Ok(found)
    }

    /// Returns the entries of a moved directory that decide at their new place.
    fn moved(&self, from: &RelativePath, to: &RelativePath) -> Result<Vec<RelativePath>, Failure> {
        let mut found = Vec::new();
        self.walk(from, |path, kind| {
            let new = path.beneath(from).map(|rest| to.concat(&rest));
            found.extend(new.filter(|new| self.decides(new)));
            kind.is_dir()
        })?;
        Ok(found)
    }

    /// Visits an entry and those beneath it. `visit` says whether to look into a directory.
    fn walk(
        &self,
        top: &RelativePath,
        mut visit: impl FnMut(&RelativePath, fs::FileType) -> bool,
    ) -> Result<(), Failure> {
        let place = |path: &RelativePath| self.workspace.join(path.as_os_str());
        let (mut waiting, mut looked) = (Vec::new(), 0_u64);
        match place(top).symlink_metadata() {
            Ok(facts) if top.is_root() || visit(top, facts.file_type()) => {
                waiting.push(top.clone())
            }
            Ok(_) | Err(_) => {}
        }
        while let Some(directory) = waiting.pop() {
            let entries = match fs::read_dir(place(&directory)) {
                // Neither can the run's programs, which are the same user's.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => continue,
                entries => entries.doing(UNREAD)?,
            };
            for entry in entries {
                let entry = entry.doing(UNREAD)?;
                looked += 1;
                if looked > ENTRIES_MAX {
                    let why = format!("it has more than {ENTRIES_MAX} entries");
                    return Err(Failure::new(UNREAD).because(why));
                }
                let path = directory.join(entry.file_name().as_bytes()).doing(UNREAD)?;
                let kind = entry.file_type().doing(UNREAD)?;
                if visit(&path, kind) {
                    waiting.push(path);
                }
            }
        }
        Ok(())
    }

    /// Notes where links that decide lead, as far as that is in the workspace: what they stand for
    /// decides, too.
    fn follow_links(&mut self) -> Result<(), Failure> {
        let mut tops = vec![RelativePath::root()];
        while let Some(top) = tops.pop() {
            let mut links = Vec::new();
            self.walk(&top, |path, kind| {
                if kind.is_symlink() && self.decides(path) {
                    links.push(path.clone());
                }
                kind.is_dir() && path.as_bytes() != b".git"
            })?;
            let targets = links.iter().flat_map(|link| self.targets(link));
            for target in targets.collect::<Vec<_>>() {
                if !self.decides(&target) {
                    tops.push(target.clone());
                    self.led.push(target);
                }
            }
        }
        Ok(())
    }

    /// Returns the places that a link leads through and to.
    fn targets(&self, link: &RelativePath) -> Vec<RelativePath> {
        let mut at = self.workspace.join(link.as_os_str());
        let mut all = Vec::new();
        for _ in 0..LINKS_MAX {
            let Ok(to) = fs::read_link(&at) else { break };
            at = plain(&at.parent().unwrap_or(&at).join(to));
            let real = at.canonicalize().ok();
            let above = at.ancestors().skip(1).filter(|path| path.is_symlink());
            let places = above.map(Path::to_owned).chain([at.clone()]).chain(real);
            all.extend(places.filter_map(|place| self.relative(&place)));
        }
        all
    }

    fn relative(&self, place: &Path) -> Option<RelativePath> {
        let path = place.strip_prefix(&self.workspace).ok()?;
        RelativePath::new(path.as_os_str().as_bytes()).ok()
    }
}

const UNREAD: &str = "the workspace cannot be searched for the files that decide the checks";

/// Resolves `.` and `..` by name.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            Component::RootDir | Component::Prefix(_) | Component::Normal(_) => plain.push(part),
        }
    }
    plain
}

/// Compiles the patterns: those of all profiles, the files that commands name, then those of this
/// profile. Letters of ASCII match in either case, as file systems may take them for the same.
fn patterns(checks: &Checks, workspace: &Path) -> Result<Gitignore, String> {
    let mut builder = GitignoreBuilder::new("");
    let told = |error: ignore::Error| error.to_string();
    builder.case_insensitive(true).map_err(told)?;
    let named = checks.commands.iter().flat_map(|one| named(one, workspace));
    let built_in = PATTERNS.split_whitespace().map(str::to_owned);
    let own = checks.judge.iter();
    let own = own.flat_map(|one| directory_of(one).into_iter().chain([one.clone()]));
    let all = built_in.chain(named).chain(own);
    for one in all {
        builder.add_line(None, &one).map_err(told)?;
    }
    builder.build().map_err(told)
}

/// Returns the pattern of the directory itself for one of all that is in it: what took its place is
/// meant, too.
fn directory_of(pattern: &str) -> Option<String> {
    let (not, rest) = match pattern.strip_prefix('!') {
        Some(rest) => ("!", rest),
        None => ("", pattern),
    };
    let directory = rest.strip_suffix("/**")?;
    let directory = directory.strip_prefix('/').unwrap_or(directory);
    (!directory.is_empty()).then(|| format!("{not}/{directory}"))
}

/// Returns patterns of the workspace's files that a command names, as from its root.
fn named(command: &str, workspace: &Path) -> Vec<String> {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "._/+-@".contains(one);
    let words = command.split(|one: char| !is_plain(one));
    let all: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    // Beside it, a file of its name takes the place of a module.
    let modules = all.windows(2).filter_map(|pair| match pair {
        ["-m", name] => Some(name.replace('.', "/")),
        _ => None,
    });
    let modules = modules.flat_map(|name| [format!("/{name}.py"), format!("/{name}")]);
    let words = all.iter().map(|word| word.trim_start_matches("./"));
    // A command can change its directory first.
    let names = words.clone().filter_map(|word| word.rsplit('/').next());
    let scripts = names.filter(|name| name.trim_start_matches('.').contains('.'));
    let scripts = scripts.map(str::to_owned);
    let words = words.filter(|word| !word.starts_with(['-', '/']));
    let words = words.filter(|word| RelativePath::new(word.as_bytes()).is_ok());
    let files = words.filter(|word| !word.is_empty() && workspace.join(word).is_file());
    let files = files.map(|word| format!("/{word}"));
    files.chain(modules).chain(scripts).collect()
}

#[cfg(test)]
mod tests;
