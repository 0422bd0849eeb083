//! Rules for packages of a public registry, by their names and the age of their releases.

use std::num::NonZeroU64;
use std::ops::Range;

use atoll_model::network::{
    Conditions, Destination, HostName, HostPattern, Meant, PackagePattern, Packages, Ports,
    Registry, Scheme, Way,
};
use atoll_model::parse_duration;

use crate::document::{Complaint, Document, Section};
use crate::network::limits;
use crate::network::rule::{Effect, texts};
use crate::settings::among;
use crate::show::quoted;

/// Reads a table that names a registry, as the rules for each of its hosts.
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
    let limits = limits::read(document, &mut section, at);
    document.end(
        section,
        &[&["registry", "packages", "minimum-age"][..], &limits::KEYS].concat(),
    );
    let Some(registry) = registry.map(|one| one.value) else {
        return Vec::new();
    };
    // An age alone is about all of them.
    let all = || PackagePattern::try_from("*".to_owned()).ok();
    let names = names.or_else(|| minimum_age_ms.and_then(|_| all()).map(|all| vec![all]));
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

/// The rule for one host: what is allowed is read alone, what is denied is denied however it
/// is asked for.
fn meant(packages: &Packages, host: &str, effect: Effect) -> Option<Meant> {
    let host = HostPattern::Exact(HostName::parse(host).ok()?);
    let (ports, scheme, methods) = match effect {
        Effect::Allow => (
            Ports::of(Scheme::Https),
            Some(Scheme::Https),
            vec!["GET".to_owned(), "HEAD".to_owned()],
        ),
        Effect::Deny => (Ports::All, None, Vec::new()),
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

/// An age that is some time.
fn parse_age(text: &str) -> Result<NonZeroU64, Complaint> {
    let age = parse_duration(text)
        .map_err(|error| Complaint::new(error.to_string(), "as \"7d\" or \"36h\""))?;
    let ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    NonZeroU64::new(ms).ok_or_else(|| Complaint::from(format!("{text:?} is no age")))
}

fn parse_registry(text: &str) -> Result<Registry, Complaint> {
    let named = Registry::ALL.iter().find(|one| one.name() == text);
    named
        .copied()
        .ok_or_else(|| among(text, &Registry::ALL.map(Registry::name)))
}

/// Such a rule as an entry of a list: for all hosts of its registry.
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
    fields.extend(further);
    format!("{{ {} }}", fields.join(", "))
}
