use std::collections::BTreeSet;
use std::fmt;

use atoll_model::Boundary;

use crate::Origin;

/// The exact rights of one execution. Only [`decide`](crate::decide) makes one,
/// so whoever holds it knows that policy has allowed what it says.
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    boundary: Boundary,
    policy_digest: String,
    notices: Vec<Notice>,
    policies: Option<Vec<u8>>,
    wall_clock_by: Option<String>,
    labels: BTreeSet<String>,
}

impl Grant {
    pub(crate) fn new(
        boundary: Boundary,
        policy_digest: String,
        notices: Vec<Notice>,
        policies: Option<Vec<u8>>,
        wall_clock_by: Option<String>,
        labels: BTreeSet<String>,
    ) -> Self {
        Self {
            boundary,
            policy_digest,
            notices,
            policies,
            wall_clock_by,
            labels,
        }
    }

    /// Which data the run has touched as soon as it begins: what is shown counts as read.
    #[must_use]
    pub fn labels(&self) -> &BTreeSet<String> {
        &self.labels
    }

    /// What is asked of each connection besides the boundary's rules, for who carries them;
    /// nothing where no policy is about connections.
    #[must_use]
    pub fn policies(&self) -> Option<&[u8]> {
        self.policies.as_deref()
    }

    /// Which policies have set how long the run may take, where some did.
    #[must_use]
    pub fn wall_clock_by(&self) -> Option<&str> {
        self.wall_clock_by.as_deref()
    }

    /// What may be seen, changed and used.
    #[must_use]
    pub fn boundary(&self) -> &Boundary {
        &self.boundary
    }

    /// The version of the policy that decided: `sha256:` and the digest of every
    /// file and option that it was made from.
    #[must_use]
    pub fn policy_digest(&self) -> &str {
        &self.policy_digest
    }

    /// What the person should know: files that were ignored, rights that a higher
    /// layer took away, secrets that are passed.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }
}

/// Something that the person should know about how the rules came to be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notice {
    /// The sentence.
    pub text: String,
    /// The line or option that it is about.
    pub origin: Origin,
}

impl fmt::Display for Notice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", self.text, self.origin)
    }
}
