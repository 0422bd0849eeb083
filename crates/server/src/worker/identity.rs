//! The identity of a sandbox to its callers, and the files that it begins with.

use std::path::PathBuf;

use atoll_engine::sandboxes::KeptHome;

use super::builds::Template;
use super::name;
use super::wanted::Reach;
use crate::protocol::{CreateAsk, Refusal};

/// The id and tokens that make a sandbox this one to its callers, and the origin of its home.
pub(super) struct Identity {
    pub(super) id: String,
    pub(super) token: String,
    pub(super) port_token: Option<String>,
    /// The shipped template that it stands on.
    pub(super) shipped: String,
    /// The template that it stands on, if that was built.
    pub(super) template: Option<Template>,
    /// Its network, where a server and not a caller has chosen it.
    pub(super) reach: Option<Reach>,
    /// True if a template is built in it.
    pub(super) is_build: bool,
    /// Root's changes of its system that it begins with.
    pub(super) changes: Option<PathBuf>,
    /// Those of another one, of which it begins with a copy.
    pub(super) changed: Option<PathBuf>,
    pub(super) origin: Origin,
}

/// The origin of a home.
pub(super) enum Origin {
    /// Nothing.
    Empty,
    /// A copy of this one.
    Copied(KeptHome),
    /// This one.
    Kept(KeptHome),
}

impl Identity {
    /// Makes one that no sandbox has had.
    pub(super) fn new(ask: &CreateAsk, shipped: String, origin: Origin) -> Result<Self, Refusal> {
        Ok(Self {
            id: format!("i{}", name(20)?),
            token: name(40)?,
            port_token: ask.private_ports.then(|| name(40)).transpose()?,
            shipped,
            template: None,
            reach: None,
            is_build: false,
            changes: None,
            changed: None,
            origin,
        })
    }

    /// Sets the template that it stands on.
    pub(super) fn on(self, template: Option<Template>) -> Self {
        Self { template, ..self }
    }
}
