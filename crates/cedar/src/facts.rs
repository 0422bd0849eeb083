//! Facts about the principal.

use std::collections::BTreeSet;

use atoll_model::network::{HostName, HostPart};
use atoll_model::{Mode, VolumeMount};
use serde::{Deserialize, Serialize};

/// A sandbox that a server has made for a caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Served {
    /// The tenant whose sandbox it is.
    pub tenant: String,
    /// The caller's name in the tenant; `None` for who holds the sandbox's own token.
    pub caller: Option<String>,
    /// The template that it is made from.
    pub template: String,
    /// The caller's notes about it, `name=value` each.
    pub metadata: BTreeSet<String>,
    /// The volumes that are mounted in it, `name=read` or `name=write` each.
    pub volumes: BTreeSet<String>,
}

impl From<&atoll_model::Served> for Served {
    fn from(served: &atoll_model::Served) -> Self {
        let notes = served.metadata.iter();
        let notes = notes.map(|(name, value)| format!("{name}={value}"));
        Self {
            tenant: served.tenant.clone(),
            caller: served.caller.clone(),
            template: served.template.clone(),
            metadata: notes.collect(),
            volumes: served.volumes.iter().map(VolumeMount::stated).collect(),
        }
    }
}

/// The facts about changes that are written to the person's own files, or undone there. What is not
/// known is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeFacts {
    /// The run that made them.
    pub run: Option<String>,
    /// The user number of who started it.
    pub made_by: Option<u32>,
    /// The number of paths.
    pub paths: Option<u64>,
    /// The result of the checks of exactly these changes: `passed` or `failed`.
    pub checks: Option<String>,
    /// The change set of a tool's shadow run that is to be applied.
    pub shadowed: Option<ShadowFacts>,
}

/// The facts about the change set of a shadow run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShadowFacts {
    /// Its kind: `files`, `sql` or `service`.
    pub kind: String,
    /// The tool.
    pub tool: String,
    /// Its digest.
    pub digest: String,
    /// The bytes that it writes or sends.
    pub bytes: u64,
    /// The number of files, of `files`.
    pub files: Option<u64>,
    /// The number of rows, of `sql`.
    pub rows: Option<u64>,
    /// The tables of these rows.
    pub tables: BTreeSet<String>,
    /// The method of the request, of `service`.
    pub method: Option<String>,
    /// The status of staging's answer.
    pub status: Option<u16>,
}

/// The facts about an artifact that is to be promoted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ArtifactFacts {
    /// Its size.
    pub bytes: u64,
    /// Its type, by its content.
    pub media: String,
    /// True if every scanner has looked at all of it and found nothing.
    pub clean: bool,
    /// The word of each scanner, as `secrets=clean`.
    pub scans: BTreeSet<String>,
    /// The rules that have found something.
    pub found: BTreeSet<String>,
    /// True if its run was cut off.
    pub interrupted: bool,
    /// The tenant of a server's sandbox.
    pub tenant: Option<String>,
}

/// The facts that are the same for every question of a run. Facts that nobody has stated are
/// absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The time, seconds since 1970.
    pub time: u64,
    /// The sandbox mode.
    pub mode: Mode,
    /// The profile.
    pub profile: String,
    /// The session's task.
    pub task: Option<String>,
    /// The session's purpose.
    pub purpose: Option<String>,
    /// The agent's stated confidence, percent.
    pub confidence: Option<u8>,
    /// The agent's level of trust.
    pub trust: Option<String>,
    /// The labels of the data that the session has touched; absent if they are not recorded.
    pub labels: Option<BTreeSet<String>>,
    /// The agent's reputation, up to 100 points; 0 if nothing is known of it.
    pub reputation: u8,
    /// The caller of a server that the sandbox was made for; absent for any other sandbox.
    pub served: Option<Served>,
    /// The facts about the changes that are asked about.
    pub changes: ChangeFacts,
    /// Hosts whose answers are trusted: names, or `*.` and a name. No policy sees this list.
    pub trusted: Vec<String>,
    /// The hosts among them that serve models, written alike. Policies see of a host whether it is
    /// one.
    pub models: Vec<String>,
    /// True if anything that needs approval is denied. No policy sees it.
    pub is_strict: bool,
}

impl Facts {
    /// Creates facts of a time, a mode and a profile alone.
    #[must_use]
    pub fn new(time: u64, mode: Mode, profile: &str) -> Self {
        Self {
            time,
            mode,
            profile: profile.to_owned(),
            task: None,
            purpose: None,
            confidence: None,
            trust: None,
            labels: None,
            reputation: 0,
            served: None,
            changes: ChangeFacts::default(),
            trusted: Vec::new(),
            models: Vec::new(),
            is_strict: false,
        }
    }

    /// Returns whether a name is that of a model, or lies beneath one.
    pub(crate) fn is_model(&self, name: &HostName) -> bool {
        let name = name.as_str();
        self.models.iter().any(|one| {
            let beneath = one.strip_prefix('*').is_some_and(|end| name.ends_with(end));
            one == name || beneath
        })
    }

    /// Returns whether a host is a model's. An address never is.
    pub(crate) fn is_model_at(&self, host: &HostPart) -> bool {
        match host {
            HostPart::Name(name) => self.is_model(name),
            HostPart::Address(_) => false,
        }
    }

    /// Returns the facts without those that the agent states of itself.
    pub(crate) fn without_its_word(&self) -> Self {
        Self {
            confidence: None,
            ..self.clone()
        }
    }
}
