//! Checks by the tokens that a run holds: they must permit each flow as well.

use atoll_tokens::{Asked as Carry, Held};

use super::{DenialCause, Forbidden, Policies};
use crate::dropped_rights::now_s;

impl Policies {
    /// Adds the tokens that the run holds.
    pub(crate) fn holding(self, tokens: Option<Held>) -> Self {
        Self { tokens, ..self }
    }

    /// Returns the reason for which no client may connect to a published port now, if there is one.
    pub(crate) fn closed(&self, port: u16) -> Option<String> {
        let carried = || self.carry(Carry::Publish(port));
        let closed = self.dropped.network();
        closed.or_else(|| carried().err().map(|forbidden| forbidden.why))
    }

    /// Checks whether the tokens that the run holds permit something.
    pub(super) fn carry(&self, asked: Carry<'_>) -> Result<(), Forbidden> {
        let Some(tokens) = &self.tokens else {
            return Ok(());
        };
        tokens.carry(asked, now_s()).map_err(|why| Forbidden {
            shown: why.clone(),
            why,
            policy: None,
            by: DenialCause::Token,
        })
    }
}
