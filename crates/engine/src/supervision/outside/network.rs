//! Another network in the place of the one that a sandbox was made with.

use std::os::fd::OwnedFd;

use atoll_model::network::{FlowEnd, Network};
use atoll_sandbox::Declined;

use super::{FlowEvent, Outside, State};

impl Outside<'_> {
    /// Returns the network in force.
    pub(super) fn in_force(&self) -> &Network {
        self.replaced.as_deref().unwrap_or(self.network)
    }

    /// Keeps the listeners of a sandbox whose network can be replaced, those that show a first
    /// connection first.
    pub(super) fn keep(&mut self, listeners: Vec<OwnedFd>, comers: usize) {
        if self.live.is_some_and(|live| live.owner.is_some()) {
            self.kept = listeners;
            self.comers = comers;
        }
    }

    /// Puts another network, which was decided on and recorded, in the place of the one in force.
    /// What is connected by the old one is cut off; the next connection is judged by the new one.
    ///
    /// # Errors
    /// The sandbox was made without a network.
    pub(super) fn replace(&mut self, network: Box<Network>) -> Result<(), Declined> {
        let is_carrying = match &self.state {
            State::None if self.kept.is_empty() => {
                return Err(Declined {
                    why: "it was made without a network".to_owned(),
                    advice: "make another one, with a network".to_owned(),
                });
            }
            State::None | State::Carrying { .. } => true,
            State::Listening { .. } => false,
        };
        self.end_approvals();
        self.replaced = Some(network);
        if !is_carrying {
            return Ok(());
        }
        // What it says after this is not heard, so nothing goes on by it.
        let _ = self.end_carrier();
        let end = FlowEnd {
            failure: Some("the network of its sandbox was replaced".to_owned()),
            ..FlowEnd::default()
        };
        let open: Vec<_> = self.open.drain().collect();
        let closed = open
            .iter()
            .map(|(id, _)| FlowEvent::Closed { id: *id, end: &end });
        let news: Vec<FlowEvent<'_>> = closed.collect();
        self.recorded(&news);
        for (_, flow) in open {
            self.flows.closed(flow, end.clone());
        }
        self.flows.failure = None;
        self.state = State::Listening {
            listeners: std::mem::take(&mut self.kept),
            comers: self.comers,
            begins_at: None,
        };
        Ok(())
    }
}
