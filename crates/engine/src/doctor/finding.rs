//! The findings of a diagnosis.

use atoll_sandbox::{FENCE_LANDLOCK, Trial};

use super::facts::Holding;
use crate::delegation::Step;

/// The group of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The kernel.
    Kernel,
    /// The boundary.
    Boundary,
    /// Limits.
    Limits,
    /// Proofs of policies.
    Proofs,
    /// Known errors of the versions.
    Known,
}

/// The grade of a finding, from the best on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// As good as on any host.
    Good,
    /// As good as on any host, and to be known all the same.
    Note,
    /// Less than on other hosts, and recorded so.
    Weaker,
    /// `atoll run` does not start.
    Missing,
}

/// The degree to which a promise holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// All of it holds.
    Whole,
    /// A part of it holds.
    Partly,
    /// None of it holds.
    Not,
}

/// One checked property of the host.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The group.
    pub group: Group,
    /// The name of the property.
    pub name: String,
    /// The grade.
    pub grade: Grade,
    /// The state that was found.
    pub found: String,
    /// The reason, if it could be better.
    pub why: Option<String>,
    /// The commands that help.
    pub fixes: Vec<Step>,
    /// For a promise: how far it holds in the mode `full`, and in a fence.
    pub promise: Option<(Holds, Holds)>,
}

impl Finding {
    /// Creates a finding without a reason or fixes.
    pub fn new(group: Group, name: &str, grade: Grade, found: impl Into<String>) -> Self {
        Self {
            group,
            name: name.to_owned(),
            grade,
            found: found.into(),
            why: None,
            fixes: Vec::new(),
            promise: None,
        }
    }

    /// Adds the reason.
    pub fn because(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    pub(super) fn mended_by(mut self, fixes: impl IntoIterator<Item = Step>) -> Self {
        self.fixes.extend(fixes);
        self
    }

    pub(super) fn promises(mut self, full: Holds, fence: Holds) -> Self {
        self.promise = Some((full, fence));
        self
    }

    /// Sets the promise of each mode, as far as this host has the mode.
    pub(super) fn promises_on(self, holding: &Holding, full: Holds, fence: Holds) -> Self {
        let has_full = matches!(holding.trial, Trial::Works);
        let has_fence = holding.landlock >= FENCE_LANDLOCK;
        let when = |has: bool, holds: Holds| if has { holds } else { Holds::Not };
        self.promises(when(has_full, full), when(has_fence, fence))
    }
}
