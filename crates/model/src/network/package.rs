//! Packages of public registries, and the requests about them.
//!
//! A request is about a package only if its path can be read in one way: any other path is covered
//! by no rule that allows packages, and by every rule that denies some.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::meant::Sense;
use super::pattern::Reading;
use super::release::{age_text, age_words};
use super::{HostPart, LockFile, ReleaseFile, Request};

/// The longest name of a package, bytes.
const NAME_BYTES_MAX: usize = 214;

/// A public registry of packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Registry {
    /// npm: registry.npmjs.org, and yarn's name for it.
    Npm,
    /// PyPI.
    Pip,
    /// crates.io.
    Cargo,
}

impl Registry {
    /// All registries.
    pub const ALL: [Self; 3] = [Self::Npm, Self::Pip, Self::Cargo];

    /// Returns its name in rules, the same as its preset's.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pip => "pip",
            Self::Cargo => "cargo",
        }
    }

    /// Returns its hosts.
    #[must_use]
    pub fn hosts(self) -> &'static [&'static str] {
        match self {
            Self::Npm => &["registry.npmjs.org", "registry.yarnpkg.com"],
            Self::Pip => &["pypi.org", "files.pythonhosted.org"],
            Self::Cargo => &["index.crates.io", "static.crates.io", "crates.io"],
        }
    }

    /// Normalises a name as the registry does. Those of npm are distinguished by upper and lower
    /// case too, since old packages are.
    #[must_use]
    pub fn normal(self, name: &str) -> String {
        match self {
            Self::Npm => name.to_owned(),
            // PEP 503.
            Self::Pip => {
                let words = name.split(['-', '_', '.']).filter(|word| !word.is_empty());
                words.collect::<Vec<_>>().join("-").to_ascii_lowercase()
            }
            Self::Cargo => name.to_ascii_lowercase().replace('_', "-"),
        }
    }
}

impl fmt::Display for Registry {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

/// Packages of a registry, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packages {
    /// The registry.
    pub registry: Registry,
    /// The names; a `*` at the end of one stands for any continuation.
    pub names: Vec<PackagePattern>,
    /// The minimum age of a release for its files to be fetched, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_age_ms: Option<NonZeroU64>,
    /// The lock files that name the releases whose files can be fetched; without any, all can.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<LockFile>,
}

/// The name of a package, or with `*` at its end the common beginning of several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PackagePattern(String);

/// The error for a text that is no name of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a package's name is of letters, digits and - _ . ~, perhaps after an @scope/, and '*' stands \
     at its end alone, as in @types/*"
)]
pub struct InvalidPackage;

impl TryFrom<String> for PackagePattern {
    type Error = InvalidPackage;

    fn try_from(text: String) -> Result<Self, InvalidPackage> {
        let name = text.strip_suffix('*').unwrap_or(&text);
        let parts = match name.strip_prefix('@') {
            Some(scoped) => scoped.split_once('/').ok_or(InvalidPackage)?,
            None => ("scope", name),
        };
        let (scope, rest) = parts;
        let is_begun = rest.is_empty() && name.len() < text.len();
        match is_word(scope) && (is_begun || is_word(rest)) {
            true => Ok(Self(text)),
            false => Err(InvalidPackage),
        }
    }
}

impl From<PackagePattern> for String {
    fn from(pattern: PackagePattern) -> Self {
        pattern.0
    }
}

impl PackagePattern {
    /// Returns the pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn holds(&self, registry: Registry, name: &str, reading: Reading) -> bool {
        let fold = |text: &str| match reading {
            Reading::Letter => registry.normal(text),
            Reading::Liberal => registry.normal(text).to_ascii_lowercase(),
        };
        let name = fold(name);
        match self.0.strip_suffix('*') {
            None => fold(&self.0) == name,
            Some(beginning) => name.starts_with(&begun(registry, beginning, fold)),
        }
    }
}

/// Returns the beginning of names in the form for comparison; for PyPI and crates.io a `-` at its
/// end is kept.
fn begun(registry: Registry, beginning: &str, fold: impl Fn(&str) -> String) -> String {
    let is_open = registry == Registry::Pip && beginning.ends_with(['-', '_', '.']);
    let folded = fold(beginning);
    match is_open {
        true => folded + "-",
        false => folded,
    }
}

impl Packages {
    /// Returns whether a request is for one of these packages. A request whose path cannot be read
    /// in one way is covered by no allowance, and by every denial.
    pub(super) fn hold(&self, request: &Request<'_>, reading: Reading) -> bool {
        let is_one = |name: &String| self.names_one(name, reading);
        let about = self.about(request);
        let names = about.as_ref().and_then(About::names);
        match (about.as_ref(), names, reading) {
            (None, _, Reading::Letter) => false,
            // What is known to be about packages is denied by their releases alone.
            (Some(_), _, Reading::Liberal) if self.is_about_releases() => false,
            (None, _, Reading::Liberal) => true,
            (Some(_), None, Reading::Letter) => true,
            (Some(_), None, Reading::Liberal) => false,
            (Some(_), Some(names), Reading::Letter) => names.iter().all(is_one),
            (Some(_), Some(names), Reading::Liberal) => names.iter().any(is_one),
        }
    }

    fn names_one(&self, name: &str, reading: Reading) -> bool {
        let is_its = |one: &PackagePattern| one.holds(self.registry, name, reading);
        self.names.iter().any(is_its)
    }

    /// Returns the subject of a request, if its path can be read in one way.
    pub(super) fn about(&self, request: &Request<'_>) -> Option<About> {
        about(self.registry, request.host, request.target.path())
    }

    /// Returns the release's file that a request is for.
    pub(super) fn file(&self, request: &Request<'_>) -> Option<ReleaseFile> {
        self.about(request).and_then(About::into_file)
    }

    /// Returns whether some server may take a file for one of these packages'.
    pub(super) fn may_mean(&self, file: &ReleaseFile) -> bool {
        let names = names_of(file);
        names
            .iter()
            .any(|name| self.names_one(name, Reading::Liberal))
    }

    /// Returns the minimum age of a release.
    #[must_use]
    pub fn minimum_age(&self) -> Option<Duration> {
        self.minimum_age_ms
            .map(|ms| Duration::from_millis(ms.get()))
    }

    /// Returns the minimum age as written in a profile.
    #[must_use]
    pub fn minimum_age_text(&self) -> Option<String> {
        self.minimum_age_ms.map(|ms| age_text(ms.get()))
    }

    /// Returns whether it restricts the releases of its packages.
    pub(super) fn is_about_releases(&self) -> bool {
        self.minimum_age_ms.is_some() || !self.locks.is_empty()
    }

    /// Returns whether some server may take a request for one about these packages; true if its
    /// subject cannot be determined.
    pub(super) fn may_be_about_one(&self, request: &Request<'_>) -> bool {
        let about = self.about(request);
        let names = about.as_ref().map(About::names);
        match names {
            None => true,
            Some(None) => false,
            Some(Some(names)) => names
                .iter()
                .any(|name| self.names_one(name, Reading::Liberal)),
        }
    }

    /// Returns whether it covers all packages of the registry.
    pub(super) fn are_all(&self) -> bool {
        self.names.iter().any(|name| name.as_str() == "*")
    }
}

impl Packages {
    /// Writes the part of a rule's text that is about them, after the destination.
    pub(super) fn write(&self, sense: Sense, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.names.iter().map(PackagePattern::as_str).collect();
        write!(
            to,
            " for packages {} of {}",
            names.join(", "),
            self.registry
        )?;
        match sense {
            Sense::Denies if self.is_about_releases() => to.write_str(", but for those")?,
            Sense::Allows | Sense::Denies => {}
        }
        if !self.locks.is_empty() {
            let files: Vec<&str> = self.locks.iter().map(LockFile::as_str).collect();
            write!(to, " that {} names", files.join(" or "))?;
        }
        match self.minimum_age() {
            Some(age) => write!(to, " released at least {} ago", age_words(age)),
            None => Ok(()),
        }
    }
}

/// The subject of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum About {
    /// A file that every client of the registry needs, and that has nothing of a package.
    All,
    /// One package: by this name, or by one of these if the file's name can be read in more than
    /// one way.
    One(Vec<String>),
    /// A file of a release.
    File(ReleaseFile),
}

impl About {
    /// Returns the packages that it can be about; `None` if it is about all.
    pub(super) fn names(&self) -> Option<&[String]> {
        match self {
            Self::All => None,
            Self::One(names) => Some(names),
            Self::File(file) => Some(names_of(file)),
        }
    }
}

fn names_of(file: &ReleaseFile) -> &[String] {
    match file {
        ReleaseFile::Npm { name, .. } | ReleaseFile::Cargo { name, .. } => {
            std::slice::from_ref(name)
        }
        ReleaseFile::Pip { projects, .. } => projects,
    }
}

/// Returns the subject of a path in normal form, if it can be read in one way.
pub(super) fn about(registry: Registry, host: &HostPart, path: &str) -> Option<About> {
    let HostPart::Name(host) = host else {
        return None;
    };
    let segments: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    let one = |name: &str| is_name(name).then(|| About::One(vec![name.to_owned()]));
    match (registry, host.as_str(), &segments[..]) {
        (Registry::Npm, "registry.npmjs.org" | "registry.yarnpkg.com", segments) => npm(segments),
        (Registry::Pip, "pypi.org", ["simple", name] | ["simple", name, ""]) => one(name),
        (Registry::Pip, "pypi.org", ["pypi", name, "json"]) => one(name),
        (Registry::Pip, "pypi.org", ["pypi", name, version, "json"]) if is_version(version) => {
            one(name)
        }
        (Registry::Pip, "files.pythonhosted.org", ["packages", a, b, rest, file]) => {
            // The digest of what is in the file.
            let is_digest = [(a, 2), (b, 2), (rest, 60)].iter().all(|(text, digits)| {
                text.len() == *digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
            });
            let projects = is_digest.then(|| distribution(file)).flatten()?;
            // What is said of a file is no code.
            let is_said = file.ends_with(".metadata");
            Some(match is_said {
                true => About::One(projects),
                false => About::File(ReleaseFile::Pip {
                    projects,
                    path: path.to_owned(),
                }),
            })
        }
        (Registry::Cargo, "index.crates.io", ["config.json"]) => Some(About::All),
        (Registry::Cargo, "index.crates.io", [directories @ .., name]) => {
            is_indexed(directories, name).then(|| one(name)).flatten()
        }
        (Registry::Cargo, "static.crates.io", ["crates", name, version, "download"])
        | (Registry::Cargo, "crates.io", ["api", "v1", "crates", name, version, "download"])
            if is_version(version) =>
        {
            cargo_file(name, version)
        }
        (Registry::Cargo, "static.crates.io", ["crates", name, file]) => {
            let version = file
                .strip_prefix(*name)?
                .strip_prefix('-')?
                .strip_suffix(".crate")?;
            is_version(version)
                .then(|| cargo_file(name, version))
                .flatten()
        }
        (Registry::Npm | Registry::Pip | Registry::Cargo, _, _) => None,
    }
}

fn cargo_file(name: &str, version: &str) -> Option<About> {
    is_name(name).then(|| {
        About::File(ReleaseFile::Cargo {
            name: name.to_owned(),
            version: unescaped(version),
        })
    })
}

/// Returns the subject of a path of npm: a package's metadata, those of one version, or a file.
fn npm(segments: &[&str]) -> Option<About> {
    let (name, rest) = match segments {
        [first, rest @ ..] if first.starts_with('@') => match first.split_once("%2F") {
            Some((scope, name)) => (format!("{scope}/{name}"), rest),
            None => {
                let (name, rest) = rest.split_first()?;
                (format!("{first}/{name}"), rest)
            }
        },
        [first, rest @ ..] => ((*first).to_owned(), rest),
        [] => return None,
    };
    let (scope, base) = match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/')?,
        None => ("scope", name.as_str()),
    };
    if !is_word(scope) || !is_word(base) || name.len() > NAME_BYTES_MAX {
        return None;
    }
    match rest {
        [] => Some(About::One(vec![name])),
        ["-", file] => {
            let version = file
                .strip_prefix(base)?
                .strip_prefix('-')?
                .strip_suffix(".tgz")?;
            let version = is_version(version).then(|| unescaped(version))?;
            Some(About::File(ReleaseFile::Npm { name, version }))
        }
        [version] if is_version(version) || is_word(version) => Some(About::One(vec![name])),
        _ => None,
    }
}

/// Returns the projects that a file of PyPI can belong to, by its name.
fn distribution(file: &str) -> Option<Vec<String>> {
    let file = file.strip_suffix(".metadata").unwrap_or(file);
    let names: Vec<String> = readings(file).into_iter().map(|(name, _)| name).collect();
    (!names.is_empty()).then_some(names)
}

/// Returns the projects and versions that a file of PyPI can belong to, by its name (PEP 427 and
/// 625). Old files have a '-' in their projects' names, so there can be several readings.
pub(super) fn readings(file: &str) -> Vec<(String, String)> {
    match file.strip_suffix(".whl") {
        Some(stem) => wheel(stem).into_iter().collect(),
        None => sources(file),
    }
}

fn wheel(stem: &str) -> Option<(String, String)> {
    let parts: Vec<&str> = stem.split('-').collect();
    let name = parts.first().filter(|name| is_name(name))?;
    // A version and a build begin with a digit: else another name is meant.
    let is_number = |part: &&str| {
        part.bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_digit())
    };
    let numbers = parts.get(1..parts.len().checked_sub(3)?)?;
    let is_whole = (1..=2).contains(&numbers.len()) && numbers.iter().all(is_number);
    let version = numbers.first().map(|version| unescaped(version))?;
    is_whole.then(|| ((*name).to_owned(), version))
}

fn sources(file: &str) -> Vec<(String, String)> {
    let ends = [".tar.gz", ".zip", ".tar.bz2", ".tgz"];
    let Some(stem) = ends.iter().find_map(|end| file.strip_suffix(end)) else {
        return Vec::new();
    };
    let splits = stem.match_indices('-').filter_map(|(at, _)| {
        let (name, version) = (stem.get(..at)?, stem.get(at + 1..)?);
        let begins = version.bytes().next()?.is_ascii_digit();
        (begins && is_name(name) && is_version(version))
            .then(|| (name.to_owned(), unescaped(version)))
    });
    splits.collect()
}

/// Returns whether a crate's name stands in the right directories of the index.
fn is_indexed(directories: &[&str], name: &str) -> bool {
    let part = |from: usize, to: usize| name.get(from..to).unwrap_or_default();
    let is_low = !name.bytes().any(|byte| byte.is_ascii_uppercase());
    let is_there = match (name.len(), directories) {
        (1, [number]) => *number == "1",
        (2, [number]) => *number == "2",
        (3, [number, first]) => *number == "3" && *first == part(0, 1),
        (4.., [first, second]) => *first == part(0, 2) && *second == part(2, 4),
        _ => false,
    };
    is_low && is_there
}

/// Returns whether a text is a name that every server reads in the same way.
pub(super) fn is_name(text: &str) -> bool {
    is_word(text) && text.len() <= NAME_BYTES_MAX
}

fn is_word(text: &str) -> bool {
    let is_one = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let begins = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    begins && text.bytes().all(is_one)
}

/// Returns whether a text can be a version, with `+` also in its escaped form.
pub(super) fn is_version(text: &str) -> bool {
    let text = unescaped(text);
    let is_one = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+!".contains(&byte);
    let begins = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    begins && text.bytes().all(is_one)
}

/// Returns a version as registries write it.
fn unescaped(version: &str) -> String {
    version.replace("%2B", "+")
}
