//! Ports that are published while a run is going on.

use std::os::fd::OwnedFd;
use std::time::Instant;

use atoll_model::PublishPort;
use atoll_model::network::{FlowOrder, Published, PublishedPort};
use atoll_sandbox::{Declined, Who};

use super::live::{AgreedPort, over};
use super::{Outside, PortEffect, State};
use crate::supervision::approvals::SECOND_PATIENCE;
use crate::supervision::doors;

pub(super) fn asked(port: PublishedPort, by: Who, first: Option<Who>) -> PublishPort {
    PublishPort {
        port,
        by: by.into(),
        first: first.map(Into::into),
        waits_for_second: false,
    }
}

/// The effect of a port that is published.
#[derive(Clone, Copy)]
pub(super) enum Effect {
    /// Programs of the host can connect to it.
    Open,
    /// Callers of a server reach it.
    Reach,
    /// A second person is waited for.
    Wait {
        /// The first.
        by: Who,
    },
}

/// A port on its way.
pub(super) struct Publishing<'o, 'a> {
    pub(super) outside: &'o mut Outside<'a>,
    pub(super) port: PublishedPort,
    pub(super) effect: Effect,
    pub(super) listeners: Vec<OwnedFd>,
    pub(super) published: Option<Published>,
}

impl Publishing<'_, '_> {
    fn open(&mut self, published: &Published) {
        let listeners = std::mem::take(&mut self.listeners);
        match &mut self.outside.state {
            State::None => {}
            State::Listening {
                listeners: waiting,
                comers,
                ..
            } => {
                *comers += listeners.len();
                waiting.splice(0..0, listeners);
            }
            State::Carrying { .. } => {
                let published = published.clone();
                let order = FlowOrder::Publish { published };
                self.outside.tell(order, &listeners);
            }
        }
    }
}

impl PortEffect for Publishing<'_, '_> {
    fn prepare(&mut self) -> Result<(), Declined> {
        match self.effect {
            Effect::Reach | Effect::Wait { .. } => return Ok(()),
            Effect::Open if matches!(self.outside.state, State::None) => return Err(over()),
            Effect::Open => {}
        }
        self.listeners = doors::listen(self.port).map_err(|error| Declined {
            why: error.to_string(),
            advice: "atoll publish RUN PORT --to HOSTPORT takes another port of this host"
                .to_owned(),
        })?;
        Ok(())
    }

    fn carry_out(&mut self, published: &Published) {
        self.published = Some(published.clone());
        match self.effect {
            Effect::Wait { by } => {
                let until = Instant::now() + SECOND_PATIENCE;
                let port = self.port;
                self.outside.agreed_port = Some(AgreedPort { port, by, until });
                return;
            }
            Effect::Open => {
                self.open(published);
                self.outside.flows.published_later.push(published.clone());
            }
            Effect::Reach => {}
        }
        self.outside.published.push(published.clone());
    }
}
