//! Labels of touched data, by rules.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use atoll_cedar::Action;
use atoll_model::network::{HostName, HostPart};
use atoll_model::{Boundary, Call};

use crate::labels::{PRIVATE, UNTRUSTED};
use crate::levels::{TrustMode, covers};
use crate::origin::Sourced;

use super::Rules;

impl Rules {
    /// Resolves symbolic links of private places, shown paths and the workspace, by `real`, since
    /// deciding itself reads no file. Without this call a place counts only by the path as written.
    pub fn take_real_paths(&mut self, workspace: &Path, real: impl Fn(&Path) -> PathBuf) {
        let private: Vec<PathBuf> = self.labels.private_places(&self.host.home).collect();
        if private.is_empty() {
            return;
        }
        let shown = self.views.values().map(|view| view.value.host.clone());
        let all = private.into_iter().chain(shown);
        let all = all.chain([workspace.to_owned()]);
        self.labels.real = all.map(|one| (one.clone(), real(&one))).collect();
    }

    /// Adds the labels that earlier runs of the session got, from the ledger. Labels are never
    /// lost.
    pub fn take_labels(&mut self, gained: BTreeSet<String>) {
        self.labels.gained.extend(gained);
    }

    pub(crate) fn note_labels_of_session(&mut self, in_session: bool) {
        self.labels.in_session = in_session;
    }

    /// Returns whether labels are recorded.
    #[must_use]
    pub fn notes_labels(&self) -> bool {
        self.labels.are_noted
    }

    /// Returns the labels of a run when it begins; `None` if labels are not recorded.
    pub(crate) fn labels_at_start(
        &self,
        call: &Call,
        boundary: &Boundary,
    ) -> Option<BTreeSet<String>> {
        let labels = &self.labels;
        let at_start = || labels.at_start(&self.host.home, call, boundary);
        labels.are_noted.then(at_start)
    }

    /// Returns the hosts whose answers are vouched for, those of models included.
    pub(crate) fn vouched(&self) -> Vec<String> {
        let trusted = self.labels.trusted.iter();
        let trusted = trusted.map(|one| one.value.clone());
        trusted.chain(self.label_models()).collect()
    }

    /// Returns the hosts of models, to which labels restrict nothing.
    pub(crate) fn label_models(&self) -> Vec<String> {
        let counts = |one: &&Sourced<String>| {
            let most = self.labels.models_most.as_ref();
            most.is_none_or(|most| most.iter().any(|most| covers(&most.value, &one.value)))
        };
        let all = self.trust.endpoints.iter().filter(counts);
        all.map(|one| one.value.clone()).collect()
    }

    /// Adds the label of untrusted content for a tunnel, through which the program may read
    /// anything while it is open. A tunnel to a model adds none.
    pub fn label_unseen(&self, host: &HostPart, labels: &mut BTreeSet<String>) {
        let is_of = |name: &HostName| {
            let models = self.label_models();
            models.iter().any(|one| covers(one, name.as_str()))
        };
        match host {
            HostPart::Name(name) if is_of(name) => {}
            // An address is nobody's name.
            HostPart::Name(_) | HostPart::Address(_) => {
                labels.insert(UNTRUSTED.to_owned());
            }
        }
    }

    /// Returns the policies on labels with the name of their file, if labels are recorded: some
    /// file names private places, the run is of a session, or policies are about labels.
    pub(crate) fn label_cedar(&mut self, policies_are: bool) -> Option<(String, String)> {
        let labels = &mut self.labels;
        labels.are_noted = policies_are || labels.in_session || !labels.private.is_empty();
        if !labels.are_noted {
            return None;
        }
        let mode = self.trust.mode();
        let mut text = format!("// What becomes of labels, mode {mode}: atoll help labels.\n");
        match mode {
            TrustMode::Strict | TrustMode::Layered => text.push_str(&self.asking()),
            TrustMode::Permissive => {}
        }
        Some((format!("labels/{mode}.cedar"), text))
    }

    /// Returns the conditions under which labels have a person asked about requests, and about
    /// connections that are not inspected.
    fn labelled(&self) -> [(Action, String); 2] {
        let mut hosts = String::new();
        for (at, one) in self.label_models().iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let _ = write!(hosts, "{comma}Host::\"{one}\"");
        }
        let both = format!(
            "context has labels && context.labels.containsAll([\"{PRIVATE}\", \"{UNTRUSTED}\"])"
        );
        let elsewhere = match hosts.is_empty() {
            true => String::new(),
            false => format!(" && !(resource in [{hosts}])"),
        };
        [
            (
                Action::Request,
                format!("context.sends && {both}{elsewhere}"),
            ),
            (
                Action::Connect,
                format!("context.look == \"past\" && {both}{elsewhere}"),
            ),
        ]
    }

    /// Returns the conditions under which a person is asked about what the profile allows, of the
    /// level of trust and of labels, if labels are recorded.
    pub(crate) fn asks(&self) -> Vec<(Action, String)> {
        let mut asks = self.trust.asks();
        if self.labels.are_noted && self.trust.mode() == TrustMode::Layered {
            asks.extend(self.labelled());
        }
        asks
    }

    /// Returns what labels forbid in strict mode, where nobody is asked.
    pub(crate) fn label_forbids(&self) -> String {
        if !self.labels.are_noted || self.trust.mode() != TrustMode::Strict {
            return String::new();
        }
        let forbid = |(action, condition): (Action, String)| {
            let action = action.name();
            format!(
                "forbid(principal, action == Action::\"{action}\", resource) when {{ {condition} }};\n"
            )
        };
        self.labelled().map(forbid).concat()
    }

    fn asking(&self) -> String {
        let [(_, sends), (_, unseen)] = self.labelled();
        let why = "private data and untrusted content have been read";
        format!(
            "@id(\"labels-sends\") @approve(\"person\") @reason(\"{why}, so what is sent is asked about\")\n\
             permit(principal, action == Action::\"request\", resource) when {{ {sends} }};\n\
             @id(\"labels-else\")\n\
             permit(principal, action == Action::\"request\", resource) unless {{ {sends} }};\n\
             @id(\"labels-unseen\") @approve(\"person\") @reason(\"{why}, so what nobody looks into is asked about\")\n\
             permit(principal, action == Action::\"connect\", resource) when {{ {unseen} }};\n\
             @id(\"labels-seen\")\n\
             permit(principal, action == Action::\"connect\", resource) unless {{ {unseen} }};\n"
        )
    }
}
