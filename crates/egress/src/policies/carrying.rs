//! The tokens that a run holds: what leaves has to be carried by them as well.

use atoll_tokens::{Asked as Carry, Held};

use super::{Forbidden, Forbids, Policies};
use crate::given_up::now_s;

impl Policies {
    /// With the tokens that the run holds.
    pub(crate) fn holding(self, tokens: Option<Held>) -> Self {
        Self { tokens, ..self }
    }

    /// Why nobody may come to a published port now, if nobody may.
    pub(crate) fn closed(&self, port: u16) -> Option<String> {
        let carried = || self.carry(Carry::Publish(port));
        let closed = self.renounced.network();
        closed.or_else(|| carried().err().map(|forbidden| forbidden.why))
    }

    /// Whether the tokens that the run holds carry something.
    pub(super) fn carry(&self, asked: Carry<'_>) -> Result<(), Forbidden> {
        let Some(tokens) = &self.tokens else {
            return Ok(());
        };
        tokens.carry(asked, now_s()).map_err(|why| Forbidden {
            inside: why.clone(),
            why,
            policy: None,
            by: Forbids::Token,
        })
    }
}
