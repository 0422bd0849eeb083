//! Network presets that ship with Atoll.

use crate::document::{Complaint, Document};
use crate::error::Problem;
use crate::file::SourceFile;
use crate::levels;
use crate::network::read_rules;
use crate::network::rule::Effect;
use crate::origin::{Origin, Sourced};
use crate::presets::PresetSummary;
use crate::suggest::nearest;
use atoll_model::network::{HostPart, Meant, Network, NetworkRule, Request};

/// A network preset.
#[derive(Debug)]
pub(crate) struct Preset {
    pub(crate) name: &'static str,
    /// The file's name in messages and origins.
    file: &'static str,
    pub(crate) content: &'static str,
}

macro_rules! presets {
    ($($name:literal,)*) => {
        &[$(Preset {
            name: $name,
            file: concat!("preset/", $name, ".toml"),
            content: include_str!(concat!("../../presets/", $name, ".toml")),
        }),*]
    };
}

/// All presets, in the order in which they are listed.
pub(crate) const ALL: &[Preset] = presets! {
    "apt",
    "cargo",
    "go",
    "npm",
    "pip",
    "git-read",
    "github-read",
    "anthropic",
    "google-ai",
    "openai",
    "opencode",
};

/// The presets that need parameters beside them.
const WITH_PARAMETERS: [PresetSummary; 1] = [PresetSummary {
    name: "git-push",
    description: "Clone, fetch and push repositories that are named; in a list `allow` alone",
    content: "description = \"Clone, fetch and push repositories that are named; in a list `allow` alone\"\n\
              # A part of a profile. With preset = \"git-read\" they can be fetched, and not pushed.\n\
              [network]\n\
              allow = [{ preset = \"git-push\", repositories = [\"github.com/owner/name\"] }]\n",
}];

/// Returns all presets, in the order in which they are listed.
#[must_use]
pub fn presets() -> Vec<PresetSummary> {
    let all = ALL.iter().map(Preset::summary);
    let of_network = all.chain(WITH_PARAMETERS);
    of_network.chain(levels::preset::summaries()).collect()
}

/// Returns the preset that allows a request, if there is one.
#[must_use]
pub fn preset_for(request: &Request<'_>) -> Option<&'static str> {
    let allows = |preset: &&Preset| {
        preset
            .network()
            .is_some_and(|network| network.request(request).is_ok())
    };
    ALL.iter().find(allows).map(|preset| preset.name)
}

/// Returns the preset that allows a host, if exactly one does.
#[must_use]
pub fn preset_for_host(host: &HostPart, port: u16) -> Option<&'static str> {
    let leads = |preset: &&Preset| {
        preset
            .network()
            .is_some_and(|network| network.connection(host, port).is_ok())
    };
    let mut leading = ALL.iter().filter(leads);
    let first = leading.next()?;
    leading.next().is_none().then_some(first.name)
}

/// Returns whether a preset allows a host.
#[must_use]
pub fn preset_leads_to(preset: &str, host: &HostPart, port: u16) -> bool {
    let named = ALL.iter().find(|one| one.name == preset);
    let network = named.and_then(Preset::network);
    network.is_some_and(|network| network.connection(host, port).is_ok())
}

type Lists = (Vec<Sourced<Meant>>, Vec<Sourced<Meant>>);

impl Preset {
    /// Returns the preset of this name.
    pub(crate) fn parse(name: &str) -> Result<&'static Self, Complaint> {
        let named = ALL.iter().find(|preset| preset.name == name);
        named.ok_or_else(|| {
            if let Some(one) = WITH_PARAMETERS.iter().find(|one| one.name == name) {
                return Complaint::new(
                    format!("the preset {name:?} is for what is named beside it"),
                    format!(
                        "write allow = [{{ preset = {:?}, repositories = [\"github.com/owner/name\"] }}] \
                         under [network] of a profile",
                        one.name
                    ),
                );
            }
            if levels::preset::named(name).is_some() {
                return Complaint::new(
                    format!("the preset {name:?} says how far a program is trusted"),
                    format!("write preset = {name:?} under [trust]"),
                );
            }
            let names = || presets().into_iter().map(|preset| preset.name);
            let meant = nearest(name, names().collect::<Vec<_>>())
                .map(|word| format!("did you mean {word:?}? "))
                .unwrap_or_default();
            let known: Vec<&str> = names().collect();
            Complaint::new(
                format!("there is no preset {name:?}"),
                format!("{meant}one of: {}", known.join(", ")),
            )
        })
    }

    /// Returns the rules that allow, and those that deny.
    pub(crate) fn rules(&self) -> Result<Lists, Vec<Problem>> {
        let file = SourceFile::new(self.file, self.content.as_bytes());
        let (mut document, mut top) = Document::open(&file)?;
        document.text(&mut top, "description", |_| Ok(()));
        let allow = read_rules(&mut document, &mut top, "allow", "allow", Effect::Allow);
        let deny = read_rules(&mut document, &mut top, "deny", "deny", Effect::Deny);
        document.end(top, &["description", "allow", "deny"]);
        document.close((allow, deny))
    }

    /// Returns whether a rule is one of this preset's.
    pub(crate) fn holds(&self, origin: &Origin) -> bool {
        matches!(origin, Origin::File { name, .. } if **name == *self.file)
    }

    fn network(&self) -> Option<Network> {
        let (allow, deny) = self.rules().ok()?;
        let list = |list: Vec<Sourced<Meant>>| {
            let rule = |one: Sourced<Meant>| NetworkRule {
                to: one.value.to,
                way: one.value.way,
                requests: one.value.requests,
                limits: one.value.limits,
                origin: one.origin.to_string(),
            };
            list.into_iter().map(rule).collect()
        };
        Some(Network {
            allow: list(allow),
            deny: list(deny),
            learn: None,
            ..Network::default()
        })
    }

    fn summary(&self) -> PresetSummary {
        let description = self.content.lines().find_map(|line| {
            let text = line.strip_prefix("description = \"")?;
            text.strip_suffix('"')
        });
        PresetSummary {
            name: self.name,
            description: description.unwrap_or_default(),
            content: self.content,
        }
    }
}
