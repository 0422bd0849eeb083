//! Hosts that a person allows at a run's terminal: while it goes on, and for a project from then on.

use std::path::Path;

use atoll_cedar::Asked;
use atoll_model::network::{NetworkRule, Way};
use atoll_model::{AllowHost, Call, Verdict};

use crate::SourceFile;
use crate::administration::administering;
use crate::decide::sandbox;
use crate::document::{Complaint, Document};
use crate::error::ProfileError;
use crate::grant::HostGrant;
use crate::network::rule::{self, Effect};
use crate::origin::{Origin, Sourced};
use crate::refusal::{reason, unknown_sandbox};
use crate::rules::Rules;
use crate::source::{AllowedHost, Facts};

/// The origin of a rule that a person added at a run's terminal.
const TERMINAL: Origin = Origin::CommandLine("you, at the terminal");

/// Decides on a living sandbox with one more rule of the person's, as if it had been started with
/// it. A policy that would ask about the sandbox is a reason against it.
pub(crate) fn allowing(
    rules: &Rules,
    call: &Call,
    facts: &Facts<'_>,
    asked: &AllowHost,
) -> Verdict<HostGrant> {
    let Some(living) = facts.living else {
        return unknown_sandbox("allowing a host");
    };
    if let Some(seconds) = asked.scope.lasts() {
        let run = call.run().as_str();
        let seconds = seconds.map(u64::from);
        let escalated = Asked::Escalate { run, seconds };
        let what = "allowing more for longer";
        let reasons = administering(rules, call, facts, asked.by.uid, escalated, what);
        if !reasons.is_empty() {
            return Verdict::Deny(reasons);
        }
    }
    let no = |why: String| {
        let what = format!("--allow {}", asked.rule);
        let instead = "start the run anew, with --allow";
        Verdict::Deny(vec![reason(what, &why, &TERMINAL, instead)])
    };
    let mut meant = match rule::parse(&asked.rule, Effect::Allow) {
        Ok(meant) => meant,
        Err(complaint) => return no(complaint.what),
    };
    if !living.is_inspected && meant.requests.is_empty() {
        // What is allowed as some requests alone is never carried unseen.
        meant.way = Way::Tunnel;
    }
    let mut with = rules.clone();
    with.network.allow.push(Sourced::new(meant, TERMINAL));
    let network = match sandbox(&with, living.call, facts) {
        Verdict::Allow(grant) => grant.boundary().network.clone(),
        Verdict::Deny(reasons) | Verdict::Ask(reasons) => return Verdict::Deny(reasons),
    };
    let is_new = |one: &&NetworkRule| one.origin == TERMINAL.to_string();
    match network.allow.iter().rfind(is_new) {
        Some(rule) => Verdict::Allow(HostGrant {
            rules: with,
            rule: rule.clone(),
        }),
        None => no("this run can have no network".to_owned()),
    }
}

/// Hosts that a person has allowed for projects, at the terminals of runs in them.
///
/// As text it is TOML, one `[[allowed]]` table for each with `directory`, `profile` and `to`, a rule as
/// of `--allow`. It counts for runs by that profile alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedHosts {
    entries: Vec<AllowedHost>,
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
            let profile = document.text(&mut section, "profile", plain);
            let to = document.text(&mut section, "to", |text| {
                rule::parse(text, Effect::Allow).map(|_| text.to_owned())
            });
            document.end(section, &["directory", "profile", "to"]);
            match (directory, profile, to) {
                (Some(directory), Some(profile), Some(to)) => entries.push(AllowedHost {
                    directory: directory.value,
                    profile: profile.value,
                    to: to.value,
                }),
                _ => document.report(
                    &at,
                    "needs `directory`, `profile` and `to`".to_owned(),
                    None,
                ),
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
        for one in entries {
            let values = [one.directory, one.profile, one.to].map(toml::Value::String);
            let [directory, profile, to] = values;
            text.push_str(&format!(
                "\n[[allowed]]\ndirectory = {directory}\nprofile = {profile}\nto = {to}\n"
            ));
        }
        text
    }

    /// Adds a host for a project's runs by a profile, unless it is there.
    pub fn add(&mut self, one: AllowedHost) {
        if !self.entries.contains(&one) {
            self.entries.push(one);
        }
    }

    /// Returns those of a project.
    #[must_use]
    pub fn of(&self, directory: &Path) -> Vec<AllowedHost> {
        let all = self.entries.iter();
        let own = all.filter(|one| Path::new(&one.directory) == directory);
        own.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_hosts_survive_as_text() {
        let mut hosts = AllowedHosts::default();
        let one = |directory: &str, to: &str| AllowedHost {
            directory: directory.to_owned(),
            profile: "default".to_owned(),
            to: to.to_owned(),
        };
        let here = one("/home/ada/\"shop\"", "example.com:443");
        hosts.add(here.clone());
        hosts.add(here.clone());
        hosts.add(one("/srv", "GET https://example.org/**"));
        let read =
            |text: &str| AllowedHosts::parse(&SourceFile::new("allowed.toml", text.as_bytes()));
        let again = read(&hosts.to_text()).unwrap();
        assert_eq!(again.of(Path::new(&here.directory)), [here]);
        let table = "[[allowed]]\ndirectory = \"/srv\"\nprofile = \"rust\"\n";
        assert!(read(&format!("{table}to = \"a b\"\n")).is_err());
        assert!(read(table).is_err());
    }
}
