//! Releases of packages, and the minimum ages that rules require.
//!
//! The file and release that a request is for are read from its path. The release's date is known
//! to its registry alone, so the egress process asks there.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::limits::exact;
use super::meant::Sense;
use super::package::About;
use super::{Look, Network, NetworkRule, Packages, Registry, Request, Scheme, Target, Unreachable};
use crate::{civil_date, format_duration};

/// A file of one release of a package, as requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseFile {
    /// A file of npm.
    Npm {
        /// The package, with its scope.
        name: String,
        /// The version as written.
        version: String,
    },
    /// A file of PyPI.
    Pip {
        /// The projects that the file's name can belong to.
        projects: Vec<String>,
        /// The path in normal form, which no other file has.
        path: String,
    },
    /// A file of crates.io.
    Cargo {
        /// The crate as written.
        name: String,
        /// The version as written.
        version: String,
    },
}

/// A package of a registry that knows its release dates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Project {
    /// The registry.
    pub registry: Registry,
    /// The name in the form used to request it.
    pub name: String,
}

impl ReleaseFile {
    /// Returns the packages that can have its release date: several where its name can be read in
    /// more than one way.
    #[must_use]
    pub fn projects(&self) -> Vec<Project> {
        let project = |registry, name: String| Project { registry, name };
        match self {
            Self::Npm { name, .. } => vec![project(Registry::Npm, name.clone())],
            Self::Pip { projects, .. } => {
                let normal = |name: &String| Registry::Pip.normal(name);
                let projects = projects.iter().map(normal);
                projects.map(|name| project(Registry::Pip, name)).collect()
            }
            // The index has it by that name in lower case.
            Self::Cargo { name, .. } => vec![project(Registry::Cargo, name.to_ascii_lowercase())],
        }
    }

    /// Returns its key among all releases of its project.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Npm { version, .. } => version.clone(),
            Self::Pip { path, .. } => path.clone(),
            Self::Cargo { name, version } => format!("{name} {version}"),
        }
    }
}

impl fmt::Display for ReleaseFile {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Npm { name, version } => write!(to, "{name} {version} of npm"),
            Self::Cargo { name, version } => write!(to, "{name} {version} of cargo"),
            Self::Pip { path, .. } => {
                let file = path.rsplit('/').next().unwrap_or_default();
                write!(to, "{file} of pip")
            }
        }
    }
}

impl Project {
    /// Returns the place of the registry's release dates: the host, and the path there. npm: the
    /// whole document of a package; PyPI: its page as JSON (PEP 691 and 700); crates.io: its entry
    /// in the sparse index.
    #[must_use]
    pub fn told_at(&self) -> (&'static str, String) {
        let name = &self.name;
        match self.registry {
            Registry::Npm => (
                "registry.npmjs.org",
                format!("/{}", name.replace('/', "%2F")),
            ),
            Registry::Pip => ("pypi.org", format!("/simple/{name}/")),
            Registry::Cargo => {
                let part = |from: usize, to: usize| name.get(from..to).unwrap_or_default();
                let directories = match name.len() {
                    0..=2 => name.len().to_string(),
                    3 => format!("3/{}", part(0, 1)),
                    _ => format!("{}/{}", part(0, 2), part(2, 4)),
                };
                ("index.crates.io", format!("/{directories}/{name}"))
            }
        }
    }
}

/// The requirement of a rule for a file to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand<'a> {
    /// The rule with the highest requirement.
    pub rule: &'a NetworkRule,
    /// The rule's sense: it allows releases that are old enough, or denies those that are not.
    pub sense: Sense,
    /// The minimum age of the release.
    pub minimum_age: Duration,
    /// The file.
    pub file: ReleaseFile,
}

/// The reason that a file fails the requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unaged {
    /// Its release is too young.
    Young {
        /// The release's age.
        age: Duration,
    },
    /// Its release date is in the future.
    Future,
    /// Its release date is unknown, for this reason.
    Unknown(String),
}

impl Demand<'_> {
    /// Decides whether a release of that time is old enough now.
    ///
    /// # Errors
    /// [`Unaged`].
    pub fn judge(&self, released: SystemTime, now: SystemTime) -> Result<(), Unaged> {
        match now.duration_since(released) {
            Err(_) => Err(Unaged::Future),
            Ok(age) if age < self.minimum_age => Err(Unaged::Young { age }),
            Ok(_) => Ok(()),
        }
    }

    /// Returns the reason for a refusal, for the owner of the rules.
    #[must_use]
    pub fn why(&self, unaged: &Unaged) -> String {
        format!("{}: {}", self.what(unaged), self.rule.told_as(self.sense))
    }

    /// Returns the reason for the program, without the place where the rule is written.
    #[must_use]
    pub fn why_inside(&self, unaged: &Unaged) -> String {
        format!(
            "{}: {}",
            self.what(unaged),
            self.rule.as_one_that(self.sense)
        )
    }

    fn what(&self, unaged: &Unaged) -> String {
        let file = &self.file;
        let least = age_text(milliseconds(self.minimum_age));
        match unaged {
            Unaged::Young { age } => {
                let age = format_duration(*age);
                format!("{file} was released {age} ago, and has to be {least} old")
            }
            Unaged::Future => format!(
                "{file} has to be {least} old, and the registry says that it was released later \
                 than now"
            ),
            Unaged::Unknown(why) => {
                format!("{file} has to be {least} old, and how old it is cannot be learnt: {why}")
            }
        }
    }

    /// Returns advice to a program, or the agent that it is.
    #[must_use]
    pub fn how_to_ask(&self) -> String {
        let least = age_text(milliseconds(self.minimum_age));
        format!(
            "take a release that is at least {least} old; or ask the person who started this for \
             another minimum-age in that rule"
        )
    }
}

impl Network {
    /// Returns the requirement for the release's file that a request is for, where rules set a
    /// minimum age: of every rule that denies younger releases, and of the rules for packages up to
    /// the first one that allows it, since a file's name can be read as another package's.
    #[must_use]
    pub fn demand(&self, request: &Request<'_>) -> Option<Demand<'_>> {
        let leads = |rule: &&NetworkRule| rule.leads_by_release(request);
        let asks = |rule: &'_ NetworkRule| {
            let packages = rule.requests.packages.as_ref()?;
            let file = packages
                .file(request)
                .filter(|file| packages.may_mean(file))?;
            Some((packages.minimum_age()?, file))
        };
        let lets_pass = |rule: &NetworkRule| rule.frees(request);
        let mut is_open = true;
        let allowing = self.allow.iter().filter(leads).filter(|rule| {
            let is_asked = is_open && !lets_pass(rule) && asks(rule).is_some();
            is_open = is_open && !lets_pass(rule) && !(is_asked && rule.requests.hold(request));
            is_asked
        });
        let denying = self.deny.iter().filter(leads);
        let denying = denying.map(|rule| (Sense::Denies, rule));
        let allowing = allowing.map(|rule| (Sense::Allows, rule));
        let demands = denying.chain(allowing).filter_map(|(sense, rule)| {
            let (minimum_age, file) = asks(rule)?;
            Some(Demand {
                rule,
                sense,
                minimum_age,
                file,
            })
        });
        // Of two that ask for the same the first.
        demands.reduce(|one, next| match next.minimum_age > one.minimum_age {
            true => next,
            false => one,
        })
    }

    /// Refuses a request whose path does not determine a release, where rules are about releases.
    pub(super) fn told_apart(&self, request: &Request<'_>) -> Result<(), Unreachable<'_>> {
        let leads = |rule: &&NetworkRule| rule.leads_by_release(request);
        let mut rules = self.deny.iter().chain(&self.allow).filter(leads);
        let is_in_doubt = |rule: &&NetworkRule| {
            let packages = rule.requests.packages.as_ref();
            let asks = packages.filter(|one| one.is_about_releases());
            asks.is_some_and(|one| one.about(request).is_none())
        };
        match rules.find(is_in_doubt) {
            Some(rule) => Err(Unreachable::Untold(rule)),
            None => Ok(()),
        }
    }

    /// Returns the minimum age of all releases of a registry, where a rule covers all of them.
    #[must_use]
    pub fn minimum_age(&self, registry: Registry) -> Option<Duration> {
        let of_all = |rule: &NetworkRule| {
            let packages = rule.requests.packages.as_ref();
            let packages = packages.filter(|one| one.registry == registry && one.are_all());
            packages.and_then(Packages::minimum_age)
        };
        self.deny.iter().chain(&self.allow).filter_map(of_all).max()
    }
}

impl NetworkRule {
    /// Returns whether its destination covers a request; a rule about releases does so at any port
    /// and with or without TLS, since a file is the same there.
    pub(super) fn leads_by_release(&self, request: &Request<'_>) -> bool {
        let packages = self.requests.packages.as_ref();
        let is_anywhere = packages.is_some_and(Packages::is_about_releases);
        self.to.leads_to(request.host, request.port) || is_anywhere && self.to.is_for(request.host)
    }

    /// Returns whether it allows a request for any release: its table names packages and restricts
    /// their releases no further.
    pub(super) fn frees(&self, request: &Request<'_>) -> bool {
        let packages = self.requests.packages.as_ref();
        let is_any = packages.is_some_and(|packages| !packages.is_about_releases());
        is_any && self.leads_by_release(request) && self.requests.hold(request)
    }
}

impl About {
    /// Returns the file of a release, if the subject is one.
    pub(super) fn into_file(self) -> Option<ReleaseFile> {
        match self {
            Self::File(file) => Some(file),
            Self::All | Self::One(_) => None,
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Formats an age as in a profile, milliseconds.
#[must_use]
pub fn age_text(ms: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ];
    exact(ms, &UNITS).unwrap_or_else(|| format!("{ms}ms"))
}

/// Formats an age in words, as "7 days" or "1 hour".
#[must_use]
pub fn age_words(age: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [
        (86_400_000, "day"),
        (3_600_000, "hour"),
        (60_000, "minute"),
        (1_000, "second"),
    ];
    let ms = milliseconds(age);
    let unit = UNITS.iter().find(|(unit, _)| ms.is_multiple_of(*unit));
    let (count, unit) = unit.map_or((ms, "millisecond"), |(length, name)| (ms / length, *name));
    match count {
        1 => format!("1 {unit}"),
        count => format!("{count} {unit}s"),
    }
}

/// Returns variables by which programs choose releases from before a time themselves: npm
/// (`before`), uv (`exclude-newer`) and pip (`uploaded-prior-to`, from 26.0). A convenience for
/// programs, never an enforcement.
#[must_use]
pub fn age_variables(network: &Network, now: SystemTime) -> Vec<(&'static str, String)> {
    let of = |registry: Registry| -> &'static [&'static str] {
        match registry {
            Registry::Npm => &["npm_config_before"],
            Registry::Pip => &["UV_EXCLUDE_NEWER", "PIP_UPLOADED_PRIOR_TO"],
            Registry::Cargo => &[],
        }
    };
    let mut variables = Vec::new();
    for registry in Registry::ALL {
        let Some(before) = network
            .minimum_age(registry)
            .and_then(|age| now.checked_sub(age))
        else {
            continue;
        };
        let named = of(registry).iter();
        variables.extend(named.map(|name| (*name, written(before))));
    }
    variables
}

/// The registry of npm, and its audit endpoint: npm sends it a list of installed packages at every
/// install.
const AUDITED: (&str, &str) = ("registry.npmjs.org", "/-/npm/v1/security/advisories/bulk");

/// Returns the variable that turns off npm's audit when the rules would refuse it anyway: it sends
/// the list of installed packages by POST, which rules for packages do not allow, so that nothing
/// goes out by them. A program that runs `npm audit` still sees the refusal.
#[must_use]
pub fn audit_variable(network: &Network) -> Option<(&'static str, String)> {
    let (host, path) = AUDITED;
    let host = host.parse().ok()?;
    let target = Target::parse(path).ok()?;
    let request = Request {
        host: &host,
        port: Scheme::Https.port(),
        scheme: Scheme::Https,
        method: "POST",
        target: &target,
    };
    let (_, look) = network.connection(&host, request.port).ok()?;
    let is_refused = look == Look::Into && network.request(&request).is_err();
    is_refused.then(|| ("npm_config_audit", "false".to_owned()))
}

/// Formats a time as RFC 3339, rounded down to the second. A time before 1970 is written as 1970.
fn written(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.unwrap_or_default().as_secs();
    let (year, month, day) = civil_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
