//! Hosts that a person allows at a run's terminal: while it goes on, and for a project from then on.

use std::path::Path;

use atoll_model::network::{NetworkRule, Way};
use atoll_model::{Call, Reason, Verdict};

use crate::SourceFile;
use crate::decide::decide;
use crate::document::{Complaint, Document};
use crate::error::ProfileError;
use crate::network::rule::{self, Effect};
use crate::origin::{Origin, Sourced};
use crate::refusal::reason;
use crate::rules::Rules;
use crate::source::Facts;

/// The origin of a rule that a person added at a run's terminal.
const TERMINAL: Origin = Origin::CommandLine("you, at the terminal");

/// Decides on a run with one more rule of the person's, as if it had been started with it. Returns
/// the rules with it, and the rule as it counts.
///
/// # Errors
/// The reasons against it, each with its rule. A policy that would ask about the run is one.
pub fn decide_allowing(
    rules: &Rules,
    call: &Call,
    facts: &Facts<'_>,
    text: &str,
) -> Result<(Rules, NetworkRule), Vec<Reason>> {
    let no = |why: String, instead: &str| {
        let what = format!("--allow {text}");
        vec![reason(what, &why, &TERMINAL, instead)]
    };
    let mut meant = rule::parse(text, Effect::Allow)
        .map_err(|complaint: Complaint| no(complaint.what, "start the run anew, with --allow"))?;
    if !rules.boundary_network(facts.placeholders).is_inspected() {
        // Its programs trust no authority of Atoll's: nothing can be looked into.
        meant.way = Way::Tunnel;
    }
    let mut with = rules.clone();
    with.network.allow.push(Sourced::new(meant, TERMINAL));
    let network = match decide(&with, call, facts) {
        Verdict::Allow(grant) => grant.boundary().network.clone(),
        Verdict::Deny(reasons) | Verdict::Ask(reasons) => return Err(reasons),
    };
    let is_new = |one: &&NetworkRule| one.origin == TERMINAL.to_string();
    let added = network.allow.iter().rfind(is_new).cloned();
    let added = added.ok_or_else(|| {
        no(
            "this run can have no network".to_owned(),
            "start the run anew, with --allow",
        )
    })?;
    Ok((with, added))
}

/// Hosts that a person has allowed for projects, at the terminals of runs in them.
///
/// As text it is TOML, one `[[allowed]]` table for each with `directory` and `to`, a rule as of
/// `--allow`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedHosts {
    entries: Vec<(String, String)>,
}

impl AllowedHosts {
    /// Parses the output of [`AllowedHosts::to_text`].
    ///
    /// # Errors
    /// [`ProfileError::Invalid`] for anything else; then no run begins.
    pub fn parse(file: &SourceFile<'_>) -> Result<Self, ProfileError> {
        let (mut document, mut top) = Document::open(file).map_err(ProfileError::Invalid)?;
        let mut entries = Vec::new();
        for (at, mut section) in document.sections(&mut top, "allowed") {
            let plain = |text: &str| Ok::<_, Complaint>(text.to_owned());
            let directory = document.text(&mut section, "directory", plain);
            let to = document.text(&mut section, "to", |text| {
                rule::parse(text, Effect::Allow).map(|_| text.to_owned())
            });
            document.end(section, &["directory", "to"]);
            match (directory, to) {
                (Some(directory), Some(to)) => entries.push((directory.value, to.value)),
                _ => document.report(&at, "needs `directory` and `to`".to_owned(), None),
            }
        }
        document.end(top, &["allowed"]);
        document
            .close(Self { entries })
            .map_err(ProfileError::Invalid)
    }

    /// Returns the hosts as text, sorted by directory.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::from(
            "# Hosts that you allowed for a project at a run's terminal. Remove what you no longer want.\n",
        );
        let mut entries = self.entries.clone();
        entries.sort();
        for (directory, to) in entries {
            let [directory, to] = [directory, to].map(toml::Value::String);
            text.push_str(&format!(
                "\n[[allowed]]\ndirectory = {directory}\nto = {to}\n"
            ));
        }
        text
    }

    /// Adds a host for a project. Returns whether it is new; false too where the path is not UTF-8,
    /// which nothing here can name.
    pub fn add(&mut self, directory: &Path, to: &str) -> bool {
        let Some(directory) = directory.to_str() else {
            return false;
        };
        let entry = (directory.to_owned(), to.to_owned());
        let is_new = !self.entries.contains(&entry);
        if is_new {
            self.entries.push(entry);
        }
        is_new
    }

    /// Returns the rules for a project.
    #[must_use]
    pub fn of(&self, directory: &Path) -> Vec<String> {
        let all = self.entries.iter();
        let own = all.filter(|(of, _)| Path::new(of) == directory);
        own.map(|(_, to)| to.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_hosts_survive_as_text() {
        let mut hosts = AllowedHosts::default();
        let here = Path::new("/home/ada/\"shop\"");
        assert!(hosts.add(here, "example.com:443"));
        assert!(!hosts.add(here, "example.com:443"));
        assert!(hosts.add(Path::new("/srv"), "GET https://example.org/**"));
        let read =
            |text: &str| AllowedHosts::parse(&SourceFile::new("allowed.toml", text.as_bytes()));
        assert_eq!(
            read(&hosts.to_text()).unwrap().of(here),
            ["example.com:443"]
        );
        assert!(read("[[allowed]]\ndirectory = \"/srv\"\nto = \"a b\"\n").is_err());
        assert!(read("[[allowed]]\ndirectory = \"/srv\"\n").is_err());
    }
}
