//! Labels: the kinds of data that a session has touched, and the restrictions that follow.
//!
//! A session that has read private data and untrusted content needs an approval before it sends
//! anything: this rule is a layer of Cedar policies beside those of people, and policies that read
//! `labels` see the same set.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use atoll_model::network::{HostName, HostPart};
use atoll_model::{Boundary, Call};

use crate::document::{Document, Section};
use crate::levels::{TrustMode, covers, parse_host};
use crate::origin::Sourced;
use crate::places::{Place, overlap, parse_denied};
use crate::rules::Rules;
use crate::settings::Author;

/// The label for private data that has been shown.
const PRIVATE: &str = "private";
/// The label for content that nobody vouches for.
const UNTRUSTED: &str = "untrusted";

/// `[labels]` of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct LabelSettings {
    /// Places with private data.
    private: Vec<Sourced<Place>>,
    /// Hosts whose answers are vouched for: names, or `*.` and a name.
    trusted: Vec<Sourced<String>>,
}

impl LabelSettings {
    pub(crate) fn read(document: &mut Document, top: &mut Section<'_>, author: Author) -> Self {
        let Some(mut section) = document.section(top, "labels", "labels") else {
            return Self::default();
        };
        if author == Author::Project {
            let why = "only a profile vouches for hosts; this file can name private places";
            document.refuse(&mut section, "trusted", why);
        }
        let private = document.list(&mut section, "private", parse_denied);
        let trusted = document.list(&mut section, "trusted", parse_host);
        document.end(section, &["private", "trusted"]);
        Self {
            private: private.map(|list| list.value).unwrap_or_default(),
            trusted: trusted.map(|list| list.value).unwrap_or_default(),
        }
    }
}

/// The rules by which a session gets labels, and the labels that it has.
#[derive(Clone, Debug, Default)]
pub(crate) struct LabelRules {
    private: Vec<Sourced<Place>>,
    trusted: Vec<Sourced<String>>,
    /// True if the run shares its labels with other runs of a session.
    in_session: bool,
    /// The labels that earlier runs of the session got.
    gained: BTreeSet<String>,
    /// Paths with symbolic links resolved, by the path as written, for those that were looked up.
    real: BTreeMap<PathBuf, PathBuf>,
    /// The hosts of models that count without the project, if the project has named the profile.
    models_most: Option<Vec<Sourced<String>>>,
    /// True if labels are recorded, which they are only where something asks about them.
    are_noted: bool,
}

impl LabelRules {
    /// Adds a file's settings; lists add up.
    pub(crate) fn merge(&mut self, settings: LabelSettings) {
        self.private.extend(settings.private);
        self.trusted.extend(settings.trusted);
    }

    /// Returns the rules that count without the project, with the hosts of models there.
    pub(crate) fn with_models(mut self, models: Vec<Sourced<String>>) -> Self {
        self.models_most = Some(models);
        self
    }

    /// Applies the bound on a project that names a profile: it removes no private place and vouches
    /// for no host, not even as one of a model.
    pub(crate) fn bound(&mut self, without: Self) {
        self.models_most = without.models_most;
        let vouched = without.trusted;
        let lies_in = |one: &Sourced<String>| vouched.iter().any(|v| covers(&v.value, &one.value));
        self.trusted.retain(lies_in);
        self.private.extend(without.private);
    }

    /// Returns the labels of a run with these views when it begins, as far as files determine them.
    fn at_start(&self, home: &Path, call: &Call, boundary: &Boundary) -> BTreeSet<String> {
        let mut labels = self.gained.clone();
        let views = boundary.views.iter().map(|view| view.host.as_path());
        let mut shown = views.chain([call.workspace.as_path()]);
        let private: Vec<PathBuf> = self.private_places(home).collect();
        // A place by another name is the same place: either name of either counts.
        let names = |place: &Path| {
            let real = self.real.get(place).cloned();
            [Some(place.to_owned()), real].into_iter().flatten()
        };
        let private: Vec<PathBuf> = private.iter().flat_map(|one| names(one)).collect();
        let is_private = |place: PathBuf| private.iter().any(|one| overlap(one, &place));
        if shown.any(|place| names(place).any(is_private)) {
            labels.insert(PRIVATE.to_owned());
        }
        labels
    }

    fn private_places(&self, home: &Path) -> impl Iterator<Item = PathBuf> {
        self.private.iter().map(|one| one.value.resolve(home))
    }
}

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
        let mut text = format!("// What becomes of labels, mode {mode}: docs/labels.md.\n");
        match mode {
            TrustMode::Strict | TrustMode::Layered => text.push_str(&self.asking()),
            TrustMode::Permissive => {}
        }
        Some((format!("labels/{mode}.cedar"), text))
    }

    fn asking(&self) -> String {
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
        let sends = format!("context.sends && {both}{elsewhere}");
        let unseen = format!("context.look == \"past\" && {both}{elsewhere}");
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
