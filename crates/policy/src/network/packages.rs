//! Rules on packages of public registries, by name, age of release, and lock file.

use std::num::NonZeroU64;
use std::ops::Range;

use atoll_model::network::{
    Conditions, Destination, HostName, HostPattern, LOCKS_MAX, LockFile, Meant, PackagePattern,
    Packages, Ports, Registry, Scheme, Way,
};
use atoll_model::parse_duration;

use crate::document::{Complaint, Document, Section};
use crate::network::rule::{Effect, texts};
use crate::network::{likely, limits};
use crate::origin::Sourced;
use crate::quoting::quoted;
use crate::words::among;

/// Reads a table that names a registry, as one rule for each of its hosts.
pub(crate) fn read(
    document: &mut Document,
    mut section: Section<'_>,
    at: &Range<usize>,
    effect: Effect,
) -> Vec<Meant> {
    let before = document.problem_count();
    let registry = document.text(&mut section, "registry", parse_registry);
    let names = texts(document, &mut section, "packages", at, |text| {
        PackagePattern::try_from(text.to_owned())
            .map_err(|error| Complaint::from(format!("{text:?} is no package: {error}")))
    });
    let minimum_age_ms = document.measure(&mut section, "minimum-age", parse_age);
    let locks = read_locks(document, &mut section, at);
    let limits = limits::read(document, &mut section, at);
    let keys = ["registry", "packages", "minimum-age", "lock"];
    document.end(section, &[&keys[..], &limits::KEYS].concat());
    let Some(registry) = registry.map(|one| one.value) else {
        return Vec::new();
    };
    // An age or a lock file alone is about all of them.
    let is_about_releases = minimum_age_ms.is_some() || !locks.is_empty();
    let all = || PackagePattern::try_from("*".to_owned()).ok();
    let names = names.or_else(|| all().filter(|_| is_about_releases).map(|all| vec![all]));
    check_locks(document, at, registry, &locks);
    if names.is_none() && document.problem_count() == before {
        let what = "a rule for a registry needs `packages`: the names that it is about";
        let hint = format!("to allow all of them name the preset: presets = [\"{registry}\"]");
        document.report(at, what.to_owned(), Some(hint));
    }
    let names = names.unwrap_or_default();
    let is_scoped = |one: &&PackagePattern| one.as_str().starts_with('@');
    if let Some(scoped) = names
        .iter()
        .find(is_scoped)
        .filter(|_| registry != Registry::Npm)
    {
        let what = format!("{:?} is no package of {registry}", scoped.as_str());
        document.report(
            at,
            what,
            Some("only those of npm have an @scope/".to_owned()),
        );
    }
    if effect == Effect::Ask {
        let what = "nobody is asked about packages by their names".to_owned();
        let hint = "write them in `allow`, and in `ask` the registry's hosts".to_owned();
        document.report(at, what, Some(hint));
    }
    if effect == Effect::Deny && !limits.is_empty() {
        let what = "what is denied is not reached at all, so that nothing of it is limited";
        document.report(at, what.to_owned(), Some("leave the limits out".to_owned()));
    }
    if document.problem_count() > before {
        return Vec::new();
    }
    let packages = Packages {
        registry,
        names,
        minimum_age_ms,
        locks,
    };
    let meant = |host: &&str| meant(&packages, host, effect);
    let rules = registry.hosts().iter().filter_map(meant);
    rules
        .map(|rule| Meant {
            limits: limits.clone(),
            ..rule
        })
        .collect()
}

/// Reads the lock files of a table: one as a string, or a list of them.
fn read_locks(
    document: &mut Document,
    section: &mut Section<'_>,
    at: &Range<usize>,
) -> Vec<LockFile> {
    let locks = match section.holds_text("lock") {
        true => document
            .text(section, "lock", parse_lock)
            .map(|one| vec![one.value]),
        false => texts(document, section, "lock", at, parse_lock),
    };
    let mut locks = locks.unwrap_or_default();
    if locks.len() > LOCKS_MAX {
        let what = format!("one rule names {LOCKS_MAX} lock files at most");
        document.report(at, what, None);
    }
    locks.sort();
    locks.dedup();
    locks
}

fn parse_lock(text: &str) -> Result<LockFile, Complaint> {
    LockFile::try_from(text.to_owned())
        .map_err(|error| Complaint::from(format!("{text:?} is no lock file: {error}")))
}

/// Reports a lock file whose name is not one of the registry's.
fn check_locks(document: &mut Document, at: &Range<usize>, registry: Registry, locks: &[LockFile]) {
    let is_other = |one: &&LockFile| one.kind(registry).is_none();
    if let Some(other) = locks.iter().find(is_other) {
        let what = format!(
            "{:?} is no lock file that is understood for {registry}",
            other.as_str()
        );
        let hint = format!("name {}", LockFile::understood(registry));
        document.report(at, what, Some(hint));
    }
}

/// Returns remarks on rules with lock files, each with its line.
pub(crate) fn remarks<'a>(rules: impl Iterator<Item = &'a Sourced<Meant>>) -> Vec<(u32, String)> {
    let mut told: Vec<(u32, String)> = Vec::new();
    for rule in rules {
        let packages = rule.value.requests.packages.as_ref();
        for file in packages.iter().flat_map(|packages| &packages.locks) {
            let text = format!(
                "{file} is read beneath the workspace before each run: where it is missing or \
                 names no release the run does not start"
            );
            // A table is a rule for each of its registry's hosts.
            let remark = (rule.origin.line(), text);
            if !told.contains(&remark) {
                told.push(remark);
            }
        }
    }
    told
}

/// Returns the rule for one host: packages are allowed for reading alone, and denied for every
/// request.
fn meant(packages: &Packages, host: &str, effect: Effect) -> Option<Meant> {
    let host = HostPattern::Exact(HostName::parse(host).ok()?);
    let (ports, scheme, methods) = match effect {
        Effect::Allow => (
            Ports::of(Scheme::Https),
            Some(Scheme::Https),
            vec!["GET".to_owned(), "HEAD".to_owned()],
        ),
        Effect::Deny | Effect::Ask => (Ports::All, None, Vec::new()),
    };
    let requests = Conditions {
        scheme,
        methods,
        packages: Some(packages.clone()),
        ..Conditions::default()
    };
    Some(Meant {
        way: Way::Usual,
        requests,
        ..Meant::from(Destination { host, ports })
    })
}

/// Parses an age longer than zero.
fn parse_age(text: &str) -> Result<NonZeroU64, Complaint> {
    const FORMS: &str = "write a number with its unit, d, h, m or s: \"7d\" or \"36h\"";
    let wrong = || Complaint::new(format!("{text:?} is no minimum-age"), FORMS);
    let age = parse_duration(text).map_err(|_| wrong())?;
    let ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    NonZeroU64::new(ms).ok_or_else(wrong)
}

fn parse_registry(text: &str) -> Result<Registry, Complaint> {
    let named = Registry::ALL.iter().find(|one| one.name() == text);
    named.copied().ok_or_else(|| {
        let known = Registry::ALL.map(Registry::name);
        // Its host's name is meant for it too.
        let word = text.split('.').next().unwrap_or(text);
        match likely::preset_of(word).filter(|name| known.contains(name)) {
            Some(name) => Complaint::new(
                format!("{text:?} is not known here"),
                format!("write registry = {name:?}: registries have the names of their programs"),
            ),
            None => among(text, &known),
        }
    })
}

/// Formats such a rule as an entry of a list, for all hosts of its registry.
pub(crate) fn entry(packages: &Packages, further: Vec<String>) -> String {
    let names = packages.names.iter().map(|name| quoted(name.as_str()));
    let names: Vec<String> = names.collect();
    let mut fields = vec![
        format!("registry = \"{}\"", packages.registry),
        format!("packages = [{}]", names.join(", ")),
    ];
    if let Some(age) = packages.minimum_age_text() {
        fields.push(format!("minimum-age = \"{age}\""));
    }
    if !packages.locks.is_empty() {
        let files = packages.locks.iter().map(|file| quoted(file.as_str()));
        let files: Vec<String> = files.collect();
        fields.push(match &files[..] {
            [file] => format!("lock = {file}"),
            files => format!("lock = [{}]", files.join(", ")),
        });
    }
    fields.extend(further);
    format!("{{ {} }}", fields.join(", "))
}
