//! Trust in a program: a level, and a mode that decides on approvals.
//!
//! The table of levels and modes is in docs/levels.md, from which a test reads it. Both only take
//! away. A level acts through a layer of Cedar policies beside those of people, and by leaving out
//! a part of the profile, so that a run can start at all.

pub(crate) mod cedar;
pub(crate) mod preset;
mod refusal;

use std::collections::BTreeSet;
use std::fmt;

use atoll_model::network::HostName;

use crate::document::{Complaint, Document, Section};
use crate::origin::{Origin, Sourced};
use crate::source::EarlierPurposes;
use crate::words::{self, Author, among};

/// The origin of a purpose that a person has typed.
pub(crate) const PURPOSE: Origin = Origin::CommandLine("--purpose");
const EARLIER: Origin = Origin::CommandLine("--session, --resume");

/// The level of trust, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    None,
    Low,
    Medium,
    High,
    Full,
}

/// The mode, which decides on anything that would need a person's approval, strictest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TrustMode {
    Strict,
    Layered,
    Permissive,
}

impl Level {
    pub(crate) const ALL: [Self; 5] = [Self::None, Self::Low, Self::Medium, Self::High, Self::Full];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Full => "full",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Complaint> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| among(text, &Self::ALL.map(Self::name)))
    }
}

impl TrustMode {
    pub(crate) const ALL: [Self; 3] = [Self::Strict, Self::Layered, Self::Permissive];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Layered => "layered",
            Self::Permissive => "permissive",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Complaint> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| among(text, &Self::ALL.map(Self::name)))
    }
}

impl fmt::Display for Level {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

impl fmt::Display for TrustMode {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

/// `[trust]` of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrustSettings {
    pub(crate) level: Option<Sourced<Level>>,
    pub(crate) mode: Option<Sourced<TrustMode>>,
    /// Hosts of the model that an agent works with: names, or `*.` and a name. In a layer that
    /// bounds others, the most that count; `None` there bounds nothing.
    pub(crate) endpoints: Option<Vec<Sourced<String>>>,
    /// The session's purpose.
    pub(crate) purpose: Option<Sourced<String>>,
}

impl TrustSettings {
    pub(crate) fn read(document: &mut Document, top: &mut Section<'_>, author: Author) -> Self {
        let Some(mut section) = document.section(top, "trust", "trust") else {
            return Self::default();
        };
        if author == Author::Project {
            let why = "only a profile names the hosts of a model; this file can lower trust";
            document.refuse(&mut section, "endpoints", why);
        }
        let preset = document.text(&mut section, "preset", preset::parse);
        let level = document.text(&mut section, "level", Level::parse);
        let mode = document.text(&mut section, "mode", TrustMode::parse);
        let endpoints = document.list(&mut section, "endpoints", parse_host);
        let purpose = document.text(&mut section, "purpose", words::parse_purpose);
        let keys = ["preset", "level", "mode", "endpoints", "purpose"];
        document.end(section, &keys);
        // What stands beside a preset is said more closely.
        let of_preset = preset.map(|one| (one.value, one.origin));
        let named = of_preset.as_ref();
        Self {
            level: level.or_else(|| named.map(|(one, at)| Sourced::new(one.level, at.clone()))),
            mode: mode.or_else(|| named.map(|(one, at)| Sourced::new(one.mode, at.clone()))),
            endpoints: endpoints.map(|list| list.value),
            purpose,
        }
    }
}

/// Returns whether one host pattern lies in the other: it is the same, or beneath a `*.`.
pub(crate) fn covers(most: &str, one: &str) -> bool {
    let beneath = most.strip_prefix('*').is_some_and(|end| one.ends_with(end));
    most == one || beneath
}

/// Parses the name of a host, or `*.` and a name.
pub(crate) fn parse_host(text: &str) -> Result<String, Complaint> {
    let name = text.strip_prefix("*.").unwrap_or(text);
    if text.parse::<std::net::IpAddr>().is_ok() {
        return Err(Complaint::new(
            format!("{text:?} is an address, which cannot be named here"),
            "write the name of the host, as \"api.example.com\"",
        ));
    }
    match HostName::parse(name) {
        Ok(name) if text.starts_with("*.") => Ok(format!("*.{name}")),
        Ok(name) => Ok(name.to_string()),
        Err(error) => Err(Complaint::new(
            format!("{text:?} is no name of a host: {error}"),
            "write a name without a port, as \"api.example.com\" or \"*.example.com\"",
        )),
    }
}

/// The trust settings of a run. The defaults leave everything to the profile, as `high` and
/// `layered` do.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrustRules {
    pub(crate) level: Option<Sourced<Level>>,
    pub(crate) mode: Option<Sourced<TrustMode>>,
    pub(crate) endpoints: Vec<Sourced<String>>,
    /// The task: stated by the person, never from the sandbox.
    pub(crate) task: Option<String>,
    /// The purpose that a person has stated: the fact that policies see.
    pub(crate) purpose: Option<Sourced<String>>,
    /// The profile's purpose that the command line's replaces: it still narrows if that one has no
    /// policies.
    pub(crate) displaced: Option<Sourced<String>>,
    /// Purposes added by projects, the organisation and earlier runs: they narrow and are no fact,
    /// since a person's policy may permit something by such a fact.
    pub(crate) added: Vec<Sourced<String>>,
    /// The purposes that narrowed the runs that this one continues.
    pub(crate) held: BTreeSet<String>,
    /// The purposes among all these that have policies, with the files of each.
    pub(crate) narrowed: Vec<(String, Vec<String>)>,
    /// The agent's reputation in the ledger, points.
    pub(crate) reputation: u8,
}

impl TrustRules {
    /// Returns the level in force.
    pub(crate) fn level(&self) -> Level {
        self.level.as_ref().map_or(Level::High, |one| one.value)
    }

    /// Returns the mode in force.
    pub(crate) fn mode(&self) -> TrustMode {
        self.mode
            .as_ref()
            .map_or(TrustMode::Layered, |one| one.value)
    }

    /// Returns the origin of the level, or else of the mode.
    pub(crate) fn origin(&self) -> Origin {
        let level = self.level.as_ref().map(|one| &one.origin);
        let mode = self.mode.as_ref().map(|one| &one.origin);
        level.or(mode).cloned().unwrap_or(Origin::BuiltIn)
    }

    /// Returns the origins of level and mode, each once.
    pub(crate) fn stated_by(&self) -> String {
        let level = self.level.as_ref().map(|one| one.origin.to_string());
        let mode = self.mode.as_ref().map(|one| one.origin.to_string());
        let mode = mode.filter(|mode| level.as_ref() != Some(mode));
        let all: Vec<String> = level.into_iter().chain(mode).collect();
        all.join(", ")
    }

    /// Merges a profile over those that it extends.
    pub(crate) fn merge(&mut self, settings: TrustSettings) {
        self.level = settings.level.or(self.level.take());
        self.mode = settings.mode.or(self.mode.take());
        let endpoints = settings.endpoints.into_iter().flatten();
        self.endpoints.extend(endpoints);
        self.purpose = settings.purpose.or(self.purpose.take());
    }

    /// Returns the purpose that policies see.
    pub(crate) fn purpose(&self) -> Option<String> {
        self.purpose.as_ref().map(|one| one.value.clone())
    }

    /// Adds a purpose that narrows further; each one only takes away.
    fn add(&mut self, further: Option<Sourced<String>>) {
        let stated = self.purpose.iter().chain(&self.added);
        let is_known = |one: &Sourced<String>| stated.clone().any(|own| own.value == one.value);
        let further = further.filter(|one| !is_known(one));
        self.added.extend(further);
    }

    /// Replaces the purpose of a profile that a project has chosen by that of the profile in force
    /// without it; the former still narrows.
    pub(crate) fn only_narrow(&mut self, stated: Option<Sourced<String>>) {
        let own = std::mem::replace(&mut self.purpose, stated);
        self.add(own);
    }

    /// Replaces the profile's purpose by the command line's, and keeps the former.
    pub(crate) fn displace(&mut self, typed: Sourced<String>) {
        self.displaced = self.purpose.replace(typed);
    }

    /// Continues earlier runs: the purpose that they stated becomes this run's, while its profile's
    /// purpose and those that narrowed them narrow it too.
    pub(crate) fn go_on(&mut self, earlier: &EarlierPurposes) {
        if let Some(stated) = &earlier.stated
            && self.purpose().as_ref() != Some(stated)
        {
            self.only_narrow(Some(Sourced::new(stated.clone(), EARLIER)));
        }
        for name in &earlier.narrowed {
            self.add(Some(Sourced::new(name.clone(), EARLIER)));
        }
        self.held.clone_from(&earlier.narrowed);
    }

    /// Returns these settings as the bound on another profile. If they state no trust, their hosts
    /// of models have no meaning, and those of the other profile count.
    pub(crate) fn into_most(self, origin: &Origin) -> TrustSettings {
        let is_stated = self.level.is_some() || self.mode.is_some();
        let (level, mode) = (self.level(), self.mode());
        TrustSettings {
            level: self.level.or(Some(Sourced::new(level, origin.clone()))),
            mode: self.mode.or(Some(Sourced::new(mode, origin.clone()))),
            endpoints: is_stated.then_some(self.endpoints),
            purpose: self.purpose,
        }
    }

    /// Removes the hosts of models outside these, and returns those removed.
    pub(crate) fn bound_endpoints(
        &mut self,
        most: Option<Vec<Sourced<String>>>,
    ) -> Vec<Sourced<String>> {
        let Some(most) = most else {
            return Vec::new();
        };
        let lies_in =
            |one: &Sourced<String>| most.iter().any(|most| covers(&most.value, &one.value));
        let all = std::mem::take(&mut self.endpoints).into_iter();
        let (left, beyond) = all.partition(lies_in);
        self.endpoints = left;
        beyond
    }

    /// Applies settings that may only lower trust, those of a project's file or the organisation.
    /// Returns a notice for each that would raise it.
    pub(crate) fn lower(&mut self, settings: TrustSettings) -> Vec<(String, Origin)> {
        let mut ignored = Vec::new();
        let mut tell = |what: &str, wider: &str, present: &str, origin: Origin| {
            let text = format!("trust {what} {wider:?} is ignored: it is {present:?} already");
            ignored.push((text, origin));
        };
        let (level, mode) = (self.level(), self.mode());
        if let Some(one) = settings.level {
            match one.value.cmp(&level) {
                std::cmp::Ordering::Less => self.level = Some(one),
                std::cmp::Ordering::Equal => {}
                std::cmp::Ordering::Greater => {
                    tell("level", one.value.name(), level.name(), one.origin);
                }
            }
        }
        if let Some(one) = settings.mode {
            match one.value.cmp(&mode) {
                std::cmp::Ordering::Less => self.mode = Some(one),
                std::cmp::Ordering::Equal => {}
                std::cmp::Ordering::Greater => {
                    tell("mode", one.value.name(), mode.name(), one.origin);
                }
            }
        }
        self.add(settings.purpose);
        ignored
    }
}
