//! Packages of public registries: which one a request is about.
//!
//! Only what can be read in one way is a request about a package: a path in another form
//! is about none that a rule allows, and about any that one denies.

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
    /// registry.npmjs.org, and the name that yarn has for it.
    Npm,
    /// PyPI.
    Pip,
    /// crates.io.
    Cargo,
}

impl Registry {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Npm, Self::Pip, Self::Cargo];

    /// Its name in rules, which is that of its preset.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pip => "pip",
            Self::Cargo => "cargo",
        }
    }

    /// Its hosts.
    #[must_use]
    pub fn hosts(self) -> &'static [&'static str] {
        match self {
            Self::Npm => &["registry.npmjs.org", "registry.yarnpkg.com"],
            Self::Pip => &["pypi.org", "files.pythonhosted.org"],
            Self::Cargo => &["index.crates.io", "static.crates.io", "crates.io"],
        }
    }

    /// A name as the registry tells packages apart. Those of npm are told apart by upper and
    /// lower case too, since old ones are.
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

/// Packages of a registry by their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packages {
    /// Of which one.
    pub registry: Registry,
    /// Which: names, also with `*` at their end for whatever goes on.
    pub names: Vec<PackagePattern>,
    /// How old a release has to be at least for its files to be fetched, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_age_ms: Option<NonZeroU64>,
    /// The lock files that name the releases whose files can be fetched; without one all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<LockFile>,
}

/// The name of a package, or with `*` at its end what all of them begin with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PackagePattern(String);

/// Why something is no name of a package.
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
    /// As it is written.
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

/// What names begin with, as they are compared: of PyPI and crates.io a `-` at its end
/// stays there.
fn begun(registry: Registry, beginning: &str, fold: impl Fn(&str) -> String) -> String {
    let is_open = registry == Registry::Pip && beginning.ends_with(['-', '_', '.']);
    let folded = fold(beginning);
    match is_open {
        true => folded + "-",
        false => folded,
    }
}

impl Packages {
    /// Whether a request is for one of them: where its path cannot be read in one way no
    /// allowance holds it, and every denial.
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

    /// What a request is about, where its path can be read in one way.
    pub(super) fn about(&self, request: &Request<'_>) -> Option<About> {
        about(self.registry, request.host, request.target.path())
    }

    /// The file of a release that a request is for.
    pub(super) fn file(&self, request: &Request<'_>) -> Option<ReleaseFile> {
        self.about(request).and_then(About::into_file)
    }

    /// Whether some server may take a file for one of these packages.
    pub(super) fn may_mean(&self, file: &ReleaseFile) -> bool {
        let names = names_of(file);
        names
            .iter()
            .any(|name| self.names_one(name, Reading::Liberal))
    }

    /// How old a release has to be at least.
    #[must_use]
    pub fn minimum_age(&self) -> Option<Duration> {
        self.minimum_age_ms
            .map(|ms| Duration::from_millis(ms.get()))
    }

    /// The same, as it is written in a profile.
    #[must_use]
    pub fn minimum_age_text(&self) -> Option<String> {
        self.minimum_age_ms.map(|ms| age_text(ms.get()))
    }

    /// Whether some releases of them are meant, and others are not.
    pub(super) fn is_about_releases(&self) -> bool {
        self.minimum_age_ms.is_some() || !self.locks.is_empty()
    }

    /// Whether some server may take a request for one about these packages; it can be about
    /// anything where that cannot be told.
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

    /// Whether they are all of the registry's.
    pub(super) fn are_all(&self) -> bool {
        self.names.iter().any(|name| name.as_str() == "*")
    }
}

impl Packages {
    /// What a rule says of them, after where it leads.
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

/// What a path is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum About {
    /// What every program needs that asks for packages, and that holds none.
    All,
    /// One package: by this name, or where the name of a file can be read in more than one
    /// way by one of these.
    One(Vec<String>),
    /// A file of a release.
    File(ReleaseFile),
}

impl About {
    /// The packages that it can be about; None where it is about all.
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

/// What a path in normal form is about, where it can be read in one way.
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

/// The package of npm that a path is about: what is known of it, of one version, or a file.
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

/// The projects that a file of PyPI can be of, by its name.
fn distribution(file: &str) -> Option<Vec<String>> {
    let file = file.strip_suffix(".metadata").unwrap_or(file);
    let names: Vec<String> = readings(file).into_iter().map(|(name, _)| name).collect();
    (!names.is_empty()).then_some(names)
}

/// The projects and versions that a file of PyPI can be of, by its name (PEP 427 and 625).
/// Old files have a '-' in their projects' names, so that there can be several.
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

/// Whether a crate's name stands in its directories of the index.
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

/// Whether something is a name that every server reads as the same.
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

/// Whether something can be a version; `+` also as it is escaped.
pub(super) fn is_version(text: &str) -> bool {
    let text = unescaped(text);
    let is_one = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+!".contains(&byte);
    let begins = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    begins && text.bytes().all(is_one)
}

/// A version as registries write it.
fn unescaped(version: &str) -> String {
    version.replace("%2B", "+")
}
