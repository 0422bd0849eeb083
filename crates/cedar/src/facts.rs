//! What is true of whoever asks.

use std::collections::BTreeSet;

use atoll_model::Mode;
use atoll_model::network::{HostName, HostPart};

/// What is true whatever is asked. What nobody has stated is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The time, seconds since 1970.
    pub time: u64,
    /// What holds the program.
    pub mode: Mode,
    /// The profile.
    pub profile: String,
    /// What is to be done.
    pub task: Option<String>,
    /// What the session is for.
    pub purpose: Option<String>,
    /// How sure the agent says it is, percent.
    pub confidence: Option<u8>,
    /// How far the agent is trusted.
    pub trust: Option<String>,
    /// Which data the session has touched; not there where nobody notes that.
    pub labels: Option<BTreeSet<String>>,
    /// What the agent has earned, points up to 100; 0 where nothing is known of it.
    pub reputation: u8,
    /// Hosts whose answers are trusted: names, or `*.` and a name. No policy sees it.
    pub trusted: Vec<String>,
    /// Those of models among them, written the same way. Policies see of a host whether it is one.
    pub models: Vec<String>,
    /// Whether what somebody would have to agree to is denied. No policy sees it.
    pub is_strict: bool,
}

impl Facts {
    /// Those of a time, a mode and a profile alone.
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
            trusted: Vec::new(),
            models: Vec::new(),
            is_strict: false,
        }
    }

    /// Whether a name is that of a model, or lies beneath one.
    pub(crate) fn is_model(&self, name: &HostName) -> bool {
        let name = name.as_str();
        self.models.iter().any(|one| {
            let beneath = one.strip_prefix('*').is_some_and(|end| name.ends_with(end));
            one == name || beneath
        })
    }

    /// The same of a host: an address is nobody's name.
    pub(crate) fn is_model_at(&self, host: &HostPart) -> bool {
        match host {
            HostPart::Name(name) => self.is_model(name),
            HostPart::Address(_) => false,
        }
    }

    /// The same without what the agent states of itself.
    pub(crate) fn without_its_word(&self) -> Self {
        Self {
            confidence: None,
            ..self.clone()
        }
    }
}
