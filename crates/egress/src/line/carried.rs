//! What a flow has carried.

use atoll_model::network::{CredentialName, Limit};

use crate::limits::Excess;

/// What a flow has carried, and what came of it.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    /// From the program and to it, bytes.
    pub(crate) bytes: [u64; 2],
    /// The status of the answer.
    pub(crate) status: Option<u16>,
    /// What went wrong.
    pub(crate) failure: Option<String>,
    /// Whether nothing came back because of that, nor was tried in another way.
    pub(crate) is_unreached: bool,
    /// The limit of its rule that ended it.
    pub(crate) limit: Option<Limit>,
    /// The credentials whose placeholders it was sent without.
    pub(crate) masked: Vec<CredentialName>,
}

impl Carried {
    /// Nothing, for this reason.
    pub(crate) fn nothing(failure: String) -> Self {
        Self {
            failure: Some(failure),
            ..Self::default()
        }
    }

    /// The same, and whether it was the last that was tried.
    pub(crate) fn at_last(self, is_unreached: bool) -> Self {
        Self {
            is_unreached,
            ..self
        }
    }

    /// The same, where that limit has ended it.
    pub(crate) fn ended_by(self, excess: Option<&Excess>) -> Self {
        match excess {
            Some(excess) => Self {
                failure: Some(excess.why()),
                limit: Some(excess.limit),
                // That is told as what was refused.
                is_unreached: false,
                ..self
            },
            None => self,
        }
    }
}
