//! A flow's outcome: the bytes carried, and how it ended.

use atoll_model::network::{CredentialName, Limit};

use crate::limits::Excess;

/// A flow's outcome: the bytes carried, and how it ended.
#[derive(Debug, Default)]
pub struct FlowOutcome {
    /// Bytes from the program, and to it.
    pub bytes: [u64; 2],
    /// The response's status.
    pub status: Option<u16>,
    /// The failure, if there was one.
    pub failure: Option<String>,
    /// Set when nothing came back because of the failure, and it was the last attempt.
    pub is_unreached: bool,
    /// The limit of its rule that ended it.
    pub limit: Option<Limit>,
    /// The credentials whose placeholders were removed from its body before it was sent.
    pub masked: Vec<CredentialName>,
}

impl FlowOutcome {
    /// Returns the outcome of a flow that carried nothing, with its failure.
    pub fn nothing(failure: String) -> Self {
        Self {
            failure: Some(failure),
            ..Self::default()
        }
    }

    /// Sets whether the failure was that of the last attempt.
    pub fn at_last(self, is_unreached: bool) -> Self {
        Self {
            is_unreached,
            ..self
        }
    }

    /// Sets the limit that ended it, if one did.
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
