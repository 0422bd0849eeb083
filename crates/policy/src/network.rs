//! The network that a program may reach: `network` in files, `--allow`, `--deny` and the like.

pub(crate) mod ask;
pub(crate) mod host_ports;
pub(crate) mod likely;
mod limits;
mod packages;
pub(crate) mod preset;
pub(crate) mod publishing;
pub(crate) mod repositories;
pub(crate) mod rule;
pub(crate) mod upstream;

use atoll_model::network::{Meant, Network, NetworkLimits, NetworkRule, PublishedPort};

use crate::digest::PolicyDigest;
use crate::document::{Complaint, Document, Section};
use crate::error::ProfileError;
use crate::network::ask::{Answering, AskSettings};
pub(crate) use crate::network::packages::remarks;
use crate::network::preset::Preset;
use crate::network::publishing::{parse_published, published, publishing};
use crate::network::rule::Effect;
use crate::network::upstream::UpstreamSettings;
use crate::origin::{Origin, Sourced};
use crate::words::among;

pub(crate) const LEARN: Origin = Origin::CommandLine("--learn");

/// `network`, as a string or a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct NetworkSettings {
    /// Set by `"none"`: everything allowed so far is not.
    none: bool,
    presets: Vec<Sourced<&'static Preset>>,
    allow: Vec<Sourced<Meant>>,
    deny: Vec<Sourced<Meant>>,
    pub(crate) ask: AskSettings,
    publish: Vec<Sourced<PublishedPort>>,
    upstream: UpstreamSettings,
}

/// The network rules of a boundary, with the origin of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct NetworkRules {
    /// The presets whose rules are among these.
    presets: Vec<&'static Preset>,
    /// The preset among these that nobody has named.
    implied: Option<&'static Preset>,
    pub(crate) allow: Vec<Sourced<Meant>>,
    pub(crate) deny: Vec<Sourced<Meant>>,
    pub(crate) ask: AskSettings,
    pub(crate) publish: Vec<Sourced<PublishedPort>>,
    /// Ports of the sandbox's loopback that lead to the host's.
    pub(crate) host_ports: Vec<Sourced<u16>>,
    /// The origin that forbids publishing, if there is one.
    pub(crate) deny_publishing: Option<Origin>,
    pub(crate) upstream: UpstreamSettings,
    /// True if destinations that no rule mentions are reachable, for `--learn`.
    pub(crate) learn: bool,
    /// The handling of rules that require an approval.
    pub(crate) answering: Answering,
}

impl NetworkSettings {
    pub(crate) fn read(document: &mut Document, top: &mut Section<'_>) -> Self {
        if top.holds_text("network") {
            let none = document.text(top, "network", parse_none).is_some();
            return Self {
                none,
                ..Self::default()
            };
        }
        let Some(mut section) = document.section(top, "network", "network") else {
            return Self::default();
        };
        let presets = document.list(&mut section, "presets", Preset::parse);
        let publish = document.list(&mut section, "publish", parse_published);
        let mut list = |key, name, effect| read_rules(document, &mut section, key, name, effect);
        let allow = list("allow", "network.allow", Effect::Allow);
        let deny = list("deny", "network.deny", Effect::Deny);
        let ask = list("ask", "network.ask", Effect::Ask);
        let upstream = UpstreamSettings::read(document, &mut section);
        let keys = ["presets", "allow", "ask", "deny", "publish"];
        document.end(section, &[&keys[..], &upstream::KEYS].concat());
        Self {
            none: false,
            presets: presets.map(|list| list.value).unwrap_or_default(),
            allow,
            deny,
            ask: AskSettings::opening(ask),
            publish: publish.map(|list| list.value).unwrap_or_default(),
            upstream,
        }
    }

    /// Returns remarks on its rules, each with its line.
    pub(crate) fn remarks(&self) -> Vec<(u32, String)> {
        let asked = self.ask.iter();
        remarks(self.allow.iter().chain(&self.deny).chain(asked))
    }

    /// Returns the settings without anything that would allow, and separately what was removed.
    pub(crate) fn narrowed(mut self) -> (Self, Vec<Sourced<Ignored>>) {
        self.ask = self.ask.narrowed();
        let presets = std::mem::take(&mut self.presets).into_iter();
        let allow = std::mem::take(&mut self.allow).into_iter();
        let publish = std::mem::take(&mut self.publish).into_iter();
        let upstream = std::mem::take(&mut self.upstream).stated_keys().into_iter();
        let ignored = presets
            .map(|preset| preset.map(Ignored::Preset))
            .chain(allow.map(|rule| rule.map(|rule| Ignored::Rule(Box::new(rule)))))
            .chain(publish.map(|port| port.map(Ignored::Published)))
            .chain(upstream.map(|key| key.map(Ignored::Upstream)));
        let ignored = ignored.collect();
        (self, ignored)
    }
}

/// A setting that would allow something and is ignored.
#[derive(Clone, Debug)]
pub(crate) enum Ignored {
    Preset(&'static Preset),
    Rule(Box<Meant>),
    Published(PublishedPort),
    Upstream(&'static str),
}

/// Reads a list of rules.
pub(crate) fn read_rules(
    document: &mut Document,
    section: &mut Section<'_>,
    key: &'static str,
    name: &'static str,
    effect: Effect,
) -> Vec<Sourced<Meant>> {
    document.list_with_tables(
        section,
        key,
        name,
        |text| rule::parse(text, effect),
        |document, table, at| rule::read(document, table, at, effect),
    )
}

fn parse_none(text: &str) -> Result<(), Complaint> {
    match text {
        "none" => Ok(()),
        _ => {
            let mut complaint = among(text, &["none"]);
            complaint.hint =
                Some("write \"none\", or a table: [network] allow = [\"example.com\"]".to_owned());
            Err(complaint)
        }
    }
}

impl NetworkRules {
    /// Merges a profile over those that it extends: lists add up, and `"none"` empties them.
    pub(crate) fn merge(&mut self, settings: NetworkSettings) -> Result<(), ProfileError> {
        if settings.none {
            self.close();
        }
        for preset in settings.presets {
            self.add_preset(preset.value)?;
        }
        self.allow.extend(settings.allow);
        self.deny.extend(settings.deny);
        self.ask.extend(settings.ask);
        self.upstream.extend(settings.upstream);
        settings
            .publish
            .into_iter()
            .for_each(|one| self.publish(one));
        Ok(())
    }

    /// Removes everything that allows. Returns whether there was something.
    pub(crate) fn close(&mut self) -> bool {
        let was_open = self.first().is_some_and(|_| !self.learn) || !self.allow.is_empty();
        self.allow.clear();
        self.ask = std::mem::take(&mut self.ask).narrowed();
        self.presets.clear();
        self.publish.clear();
        self.host_ports.clear();
        self.implied = None;
        was_open
    }

    /// Adds a port, unless it is there already.
    pub(crate) fn publish(&mut self, port: Sourced<PublishedPort>) {
        if self.publish.iter().all(|one| one.value != port.value) {
            self.publish.push(port);
        }
    }

    pub(crate) fn add_preset(&mut self, preset: &'static Preset) -> Result<(), ProfileError> {
        if self.presets.iter().any(|one| one.name == preset.name) {
            // Whoever names it has it for good.
            self.implied = self.implied.filter(|one| one.name != preset.name);
            return Ok(());
        }
        let (allow, deny) = preset.rules().map_err(ProfileError::Invalid)?;
        self.presets.push(preset);
        self.allow.extend(allow);
        self.deny.extend(deny);
        Ok(())
    }

    /// Adds the preset that a profile's name implies.
    pub(crate) fn imply(&mut self, name: &str) -> Result<(), ProfileError> {
        let found = Preset::parse(name).ok();
        let is_new = |preset: &&Preset| self.presets.iter().all(|one| one.name != preset.name);
        let Some(preset) = found.filter(is_new) else {
            return Ok(());
        };
        self.add_preset(preset)?;
        self.implied = Some(preset);
        Ok(())
    }

    /// Removes the implied preset, so that a run that can allow nothing is not refused for it.
    pub(crate) fn forget_implied(&mut self) {
        let Some(preset) = self.implied.take() else {
            return;
        };
        self.presets.retain(|one| one.name != preset.name);
        self.allow.retain(|rule| !preset.holds(&rule.origin));
        self.deny.retain(|rule| !preset.holds(&rule.origin));
    }

    /// Adds the presets to the policy's version.
    pub(crate) fn record(&self, digest: &mut PolicyDigest) {
        for preset in &self.presets {
            digest.add(
                &format!("preset {}", preset.name),
                preset.content.as_bytes(),
            );
        }
    }

    /// Returns the network of a boundary.
    pub(crate) fn boundary(&self) -> Network {
        let list = |list: &[Sourced<Meant>]| {
            let rule = |one: &Sourced<Meant>| NetworkRule {
                to: one.value.to.clone(),
                way: one.value.way,
                requests: one.value.requests.clone(),
                limits: one.value.limits.clone(),
                origin: one.origin.to_string(),
            };
            list.iter().map(rule).collect()
        };
        let opens = self.ask.opens();
        let mut deny = list(&self.deny);
        let asks = match self.answering {
            Answering::Person => self.ask.asks(),
            Answering::Allow => self.ask.asks_of_others(),
            Answering::Deny => {
                let mut denied: Vec<NetworkRule> = list(&self.ask.asks());
                for rule in &mut denied {
                    rule.origin
                        .push_str(", which would ask a person: mode strict denies what mode layered asks about");
                }
                deny.append(&mut denied);
                Vec::new()
            }
        };
        Network {
            allow: list(&[&self.allow[..], &opens].concat()),
            deny,
            ask: list(&asks),
            learn: self.learn.then(NetworkRule::learning),
            publish: self.publish.iter().map(published).collect(),
            host_ports: self.host_ports.iter().map(|one| one.value).collect(),
            upstream: self.upstream.boundary(),
            credentials: Vec::new(),
            ssh: Vec::new(),
            limits: NetworkLimits::default(),
        }
    }

    /// Returns the first right that is granted, with its origin.
    pub(crate) fn first(&self) -> Option<(String, &Origin)> {
        let first = self.allow.first();
        let first = first.map(|one| (format!("reaching {}", one.value), &one.origin));
        let ask = || self.ask.first();
        let learn = || ("learning what is reached".to_owned(), &LEARN);
        let published = self.publish.first();
        let published = published.map(|one| (publishing(one.value), &one.origin));
        let first = first.or_else(ask);
        first.or_else(|| self.learn.then(learn)).or(published)
    }
}
