//! Lock files: a project's own choice of releases, as a restriction.
//!
//! The releases that a file names are read outside the sandbox, before the program starts. This
//! module has the file's kind, the releases it names, and the decision on requests.

mod python;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::meant::Sense;
use super::package::{About, about, is_name, is_version, readings};
use super::{HostPart, Network, NetworkRule, Packages, Registry, ReleaseFile, Request, Target};
pub use python::normal_version;

/// The longest path of a lock file, bytes.
const PATH_BYTES_MAX: usize = 512;
/// The most lock files of one rule.
pub const LOCKS_MAX: usize = 16;
/// The most releases of all lock files of a run.
pub const LOCKED_MAX: usize = 100_000;
/// The most lines of one file that are remembered as leaving a release open.
const OPEN_MAX: usize = 1_000;
/// The longest description of all locked releases, bytes.
pub const LOCKED_BYTES_MAX: usize = 16 << 20;

/// The path of a lock file beneath the workspace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LockFile(String);

/// The error for a text that is no path of a lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a lock file is named by its path beneath the workspace, without a '/' at its beginning and \
     without '.' or '..', as \"package-lock.json\" or \"web/package-lock.json\""
)]
pub struct InvalidLockFile;

/// The format of a lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// `package-lock.json` and `npm-shrinkwrap.json`, JSON of npm.
    Npm,
    /// `Cargo.lock`, TOML.
    Cargo,
    /// pip's requirements, one per line.
    Requirements,
    /// `uv.lock`, TOML.
    Uv,
    /// `poetry.lock`, TOML.
    Poetry,
}

impl LockFile {
    /// Returns the path as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the format by the file's name, if this registry has such a file.
    #[must_use]
    pub fn kind(&self, registry: Registry) -> Option<LockKind> {
        let name = self.0.rsplit('/').next().unwrap_or_default();
        match (registry, name) {
            (Registry::Npm, "package-lock.json" | "npm-shrinkwrap.json") => Some(LockKind::Npm),
            (Registry::Cargo, "Cargo.lock") => Some(LockKind::Cargo),
            (Registry::Pip, "uv.lock") => Some(LockKind::Uv),
            (Registry::Pip, "poetry.lock") => Some(LockKind::Poetry),
            (Registry::Pip, name) if name.ends_with(".txt") => Some(LockKind::Requirements),
            (Registry::Npm | Registry::Pip | Registry::Cargo, _) => None,
        }
    }

    /// Returns the names of the supported lock files of a registry, in words.
    #[must_use]
    pub fn understood(registry: Registry) -> &'static str {
        match registry {
            Registry::Npm => "package-lock.json or npm-shrinkwrap.json",
            Registry::Pip => {
                "requirements.txt (or another .txt of that kind), uv.lock or poetry.lock"
            }
            Registry::Cargo => "Cargo.lock",
        }
    }
}

impl TryFrom<String> for LockFile {
    type Error = InvalidLockFile;

    fn try_from(text: String) -> Result<Self, InvalidLockFile> {
        let is_part = |part: &str| !matches!(part, "" | "." | "..");
        let is_path = text.split('/').all(is_part) && text.len() <= PATH_BYTES_MAX;
        match is_path && !text.chars().any(char::is_control) {
            true => Ok(Self(text)),
            false => Err(InvalidLockFile),
        }
    }
}

impl From<LockFile> for String {
    fn from(file: LockFile) -> Self {
        file.0
    }
}

impl fmt::Display for LockFile {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// The releases that one lock file names, of one registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    registry: Registry,
    file: LockFile,
    /// Keys of releases by the names of their packages, normalised as the registry does.
    releases: BTreeMap<String, BTreeSet<String>>,
    /// The lines that name a package without an exact release.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    open: BTreeMap<String, u32>,
}

impl Lock {
    /// Creates a lock of this file that names nothing yet.
    #[must_use]
    pub fn new(registry: Registry, file: LockFile) -> Self {
        Self {
            registry,
            file,
            releases: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }

    /// Notes that a line, counted from 1, names a package without an exact release. An invalid name
    /// is ignored.
    pub fn note_open(&mut self, name: &str, line: u32) {
        if is_name(name) && self.open.len() < OPEN_MAX {
            let name = self.registry.normal(name);
            self.open.entry(name).or_insert(line);
        }
    }

    /// Returns the first line without an exact release.
    #[must_use]
    pub fn first_open(&self) -> Option<u32> {
        self.open.values().min().copied()
    }

    /// Describes the fix for a line without an exact release.
    #[must_use]
    pub fn told_open(line: u32) -> String {
        format!("line {line} wants name==VERSION, as pip freeze prints it")
    }

    /// Adds a release. One whose name or version could be read in more than one way is left out:
    /// then it cannot be fetched.
    pub fn add(&mut self, name: &str, version: &str) {
        let is_clear = match self.registry {
            Registry::Npm => is_of_npm(name) && is_version(version),
            Registry::Pip => is_name(name),
            Registry::Cargo => is_name(name) && is_version(version),
        };
        let key = key(self.registry, name, version).filter(|_| is_clear);
        if let Some(key) = key {
            let name = self.registry.normal(name);
            self.releases.entry(name).or_default().insert(key);
        }
    }

    /// Adds the release whose file is at this URL, if it is one of this registry's.
    pub fn add_url(&mut self, url: &str) {
        let file = url.strip_prefix("https://").and_then(|rest| {
            let at = rest.find('/')?;
            let (host, path) = rest.split_at(at);
            let host: HostPart = host.parse().ok()?;
            let target = Target::parse(path).ok()?;
            about(self.registry, &host, target.path()).and_then(About::into_file)
        });
        match file {
            Some(ReleaseFile::Npm { name, version } | ReleaseFile::Cargo { name, version }) => {
                self.add(&name, &version);
            }
            // What is named for PyPI is named by its version.
            Some(ReleaseFile::Pip { .. }) | None => {}
        }
    }

    /// Returns the number of releases that it names.
    #[must_use]
    pub fn count(&self) -> usize {
        self.releases.values().map(BTreeSet::len).sum()
    }

    fn names(&self, name: &str) -> bool {
        self.releases.contains_key(&self.registry.normal(name))
    }

    fn names_release(&self, file: &ReleaseFile) -> bool {
        let holds = |name: &str, version: &str| {
            let keys = self.releases.get(&self.registry.normal(name));
            let key = key(self.registry, name, version);
            key.is_some_and(|key| keys.is_some_and(|keys| keys.contains(&key)))
        };
        match file {
            ReleaseFile::Npm { name, version } | ReleaseFile::Cargo { name, version } => {
                holds(name, version)
            }
            ReleaseFile::Pip { path, .. } => {
                let readings = readings(path.rsplit('/').next().unwrap_or_default());
                !readings.is_empty() && readings.iter().all(|(name, version)| holds(name, version))
            }
        }
    }

    /// Returns whether it names the subject of a request: the release, or the package that the
    /// registry's metadata are about.
    fn holds(&self, about: &About) -> bool {
        match about {
            About::All => true,
            About::One(names) => names.iter().all(|name| self.names(name)),
            About::File(file) => self.names_release(file),
        }
    }
}

/// Returns the key of a release among those of its package. A file of crates.io is requested by the
/// crate's exact name; versions of PyPI with the same meaning are equal (PEP 440).
fn key(registry: Registry, name: &str, version: &str) -> Option<String> {
    match registry {
        Registry::Npm => Some(version.to_owned()),
        Registry::Pip => normal_version(version),
        Registry::Cargo => Some(format!("{name} {version}")),
    }
}

fn is_of_npm(name: &str) -> bool {
    match name.strip_prefix('@') {
        None => is_name(name),
        Some(scoped) => scoped
            .split_once('/')
            .is_some_and(|(scope, base)| is_name(scope) && is_name(base)),
    }
}

/// The contents of a run's lock files, as they were before the program started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Locks(Vec<Lock>);

impl From<Vec<Lock>> for Locks {
    fn from(locks: Vec<Lock>) -> Self {
        Self(locks)
    }
}

impl Locks {
    /// Returns whether one of a rule's files names it. A file that was not read names nothing.
    fn hold(&self, rule: &NetworkRule, about: &About) -> bool {
        let Some(packages) = &rule.requests.packages else {
            return false;
        };
        let is_its = |lock: &&Lock| {
            lock.registry == packages.registry && packages.locks.contains(&lock.file)
        };
        self.0.iter().filter(is_its).any(|lock| lock.holds(about))
    }

    /// Describes the line that names the package without a release, if there is one.
    fn open(&self, packages: &Packages, about: &About) -> Option<String> {
        let names = about.names()?;
        self.0.iter().find_map(|lock| {
            let is_its = lock.registry == packages.registry && packages.locks.contains(&lock.file);
            let name = lock.registry.normal(names.first().filter(|_| is_its)?);
            let line = *lock.open.get(&name)?;
            Some(format!("{}: {}", lock.file, Lock::told_open(line)))
        })
    }
}

/// A request that no lock file covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlocked<'a> {
    rule: &'a NetworkRule,
    sense: Sense,
    /// The request's subject.
    what: String,
    files: String,
    /// The line that names no exact release, in words.
    open: Option<String>,
}

impl Unlocked<'_> {
    /// Returns the reason for a refusal, for the owner of the rules.
    #[must_use]
    pub fn why(&self) -> String {
        format!(
            "{}; change that file outside to allow it: {}",
            self.said(),
            self.rule.told_as(self.sense)
        )
    }

    /// Returns the reason for the program, without the place where the rule is written.
    #[must_use]
    pub fn why_inside(&self) -> String {
        format!("{}: {}", self.said(), self.rule.as_one_that(self.sense))
    }

    fn said(&self) -> String {
        let Self {
            what, files, open, ..
        } = self;
        let open = open
            .as_ref()
            .map_or(String::new(), |open| format!(" ({open})"));
        format!("{what} is not named by {files} as it was when this run started{open}")
    }

    /// Returns advice to a program, or the agent that it is.
    #[must_use]
    pub fn how_to_ask(&self) -> String {
        format!(
            "take a release that {} names; or ask the person who started this to change that \
             file outside, and start again: what is written to it in this run changes nothing",
            self.files
        )
    }
}

impl Network {
    /// Returns every lock file that rules name, each once.
    #[must_use]
    pub fn lock_files(&self) -> Vec<(Registry, &LockFile)> {
        let rules = self.deny.iter().chain(&self.allow);
        let packages = rules.filter_map(|rule| rule.requests.packages.as_ref());
        let mut files: Vec<(Registry, &LockFile)> = packages
            .flat_map(|one| one.locks.iter().map(|file| (one.registry, file)))
            .collect();
        files.sort_by_key(|(registry, file)| (registry.name(), *file));
        files.dedup();
        files
    }

    /// Returns the reason why lock files refuse a request, if they do: its subject has to be named
    /// for every rule that denies all others, and for one of those that allow it, unless a table
    /// without a lock file or an age allows it before them.
    #[must_use]
    pub fn unlocked(&self, request: &Request<'_>, locks: &Locks) -> Option<Unlocked<'_>> {
        let asks = |rule: &&NetworkRule| {
            let packages = rule.requests.packages.as_ref();
            rule.leads_by_release(request)
                && packages
                    .is_some_and(|one| !one.locks.is_empty() && one.may_be_about_one(request))
        };
        let refuses = |rule: &&NetworkRule| {
            let packages = rule.requests.packages.as_ref();
            let about = packages.and_then(|one| one.about(request));
            about.is_none_or(|about| !locks.hold(rule, &about))
        };
        if let Some(rule) = self.deny.iter().filter(asks).find(refuses) {
            return Unlocked::new((rule, Sense::Denies), request, locks);
        }
        let is_before = |rule: &&NetworkRule| !rule.frees(request);
        let mut allowing = self.allow.iter().take_while(is_before).filter(asks);
        let first = allowing.next()?;
        let is_named = !refuses(&first) || allowing.any(|rule| !refuses(&rule));
        let unlocked = || Unlocked::new((first, Sense::Allows), request, locks);
        (!is_named).then(unlocked).flatten()
    }
}

impl<'a> Unlocked<'a> {
    fn new(
        (rule, sense): (&'a NetworkRule, Sense),
        request: &Request<'_>,
        locks: &Locks,
    ) -> Option<Self> {
        let packages = rule.requests.packages.as_ref()?;
        let about = packages.about(request);
        let open = about.as_ref().and_then(|about| locks.open(packages, about));
        let what = match about {
            Some(About::File(file)) => file.to_string(),
            Some(About::One(names)) => format!("{} of {}", names.join(" or "), packages.registry),
            Some(About::All) | None => "what this path is about".to_owned(),
        };
        let files: Vec<&str> = packages.locks.iter().map(LockFile::as_str).collect();
        Some(Self {
            rule,
            sense,
            what,
            files: format!("the lock file {}", files.join(" or ")),
            open,
        })
    }
}
