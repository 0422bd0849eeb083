//! Labels: the kinds of data that a session has touched, and the restrictions that follow.
//!
//! A session that has read private data and untrusted content needs an approval before it sends
//! anything: this rule is a layer of Cedar policies beside those of people, and policies that read
//! `labels` see the same set.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use atoll_model::{Boundary, Call};

use crate::document::{Document, Section};
use crate::levels::{covers, parse_host};
use crate::origin::Sourced;
use crate::places::{Place, overlap, parse_denied};
use crate::words::Author;

/// The label for private data that has been shown.
pub(crate) const PRIVATE: &str = "private";
/// The label for content that nobody vouches for.
pub(crate) const UNTRUSTED: &str = "untrusted";

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
    pub(crate) private: Vec<Sourced<Place>>,
    pub(crate) trusted: Vec<Sourced<String>>,
    /// True if the run shares its labels with other runs of a session.
    pub(crate) in_session: bool,
    /// The labels that earlier runs of the session got.
    pub(crate) gained: BTreeSet<String>,
    /// Paths with symbolic links resolved, by the path as written, for those that were looked up.
    pub(crate) real: BTreeMap<PathBuf, PathBuf>,
    /// The hosts of models that count without the project, if the project has named the profile.
    pub(crate) models_most: Option<Vec<Sourced<String>>>,
    /// True if labels are recorded, which they are only where something asks about them.
    pub(crate) are_noted: bool,
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
    pub(crate) fn at_start(
        &self,
        home: &Path,
        call: &Call,
        boundary: &Boundary,
    ) -> BTreeSet<String> {
        let mut labels = self.gained.clone();
        let views = boundary.views.iter().map(|view| view.host.as_path());
        let mut shown = views.chain([call.workspace()]);
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

    pub(crate) fn private_places(&self, home: &Path) -> impl Iterator<Item = PathBuf> {
        self.private.iter().map(|one| one.value.resolve(home))
    }
}
