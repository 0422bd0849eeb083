//! The identity of a sandbox to its callers, and the layers that it begins with.

use atoll_engine::sandboxes::{CreateSandbox, Requested};
use atoll_model::CallId;

use super::answers::name;
use super::begun::Begun;
use super::template::Template;
use super::templates::is_read_early;
use super::wanted::Reach;
use crate::protocol::{CODE_INTERPRETER, CreateAsk, Refusal};

/// The id and tokens that make a sandbox this one to its callers, and its beginning.
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
    /// The layers that it begins with.
    pub(super) begun: Begun,
    /// Set for one that a tool runs in.
    pub(super) tool: Option<OfTool>,
    /// True if it goes on in a home, and in root's changes of a system, that are kept for it.
    pub(super) is_kept: bool,
}

/// The boundary of a tool's sandbox, and the call that it is made for.
#[derive(Clone, Debug)]
pub(super) struct OfTool {
    pub(super) requested: Requested,
    pub(super) parent: Option<Box<CallId>>,
}

impl OfTool {
    /// Returns its network.
    pub(super) fn reach(&self) -> Reach {
        Reach {
            name: "tool",
            presets: Vec::new(),
            allow: self.requested.allow.clone(),
        }
    }

    /// Has a request to the engine ask for this boundary.
    pub(super) fn apply(&self, wanted: &mut CreateSandbox) {
        let Requested {
            profile,
            limits,
            environment,
            inputs,
            ..
        } = &self.requested;
        wanted.requested.profile.clone_from(profile);
        wanted.requested.limits.extend(limits.iter().cloned());
        let environment = environment.iter().cloned();
        wanted.requested.environment.extend(environment);
        wanted.requested.inputs.extend(inputs.iter().cloned());
        wanted.parent.clone_from(&self.parent);
    }
}

impl Identity {
    /// Makes one that no sandbox has had.
    pub(super) fn new(ask: &CreateAsk, shipped: String, begun: Begun) -> Result<Self, Refusal> {
        Ok(Self {
            id: format!("i{}", name(20)?),
            token: name(40)?,
            port_token: ask.private_ports.then(|| name(40)).transpose()?,
            shipped,
            template: None,
            reach: None,
            is_build: false,
            begun,
            tool: None,
            is_kept: false,
        })
    }

    /// Sets the tool that it is for.
    pub(super) fn for_tool(self, tool: OfTool) -> Self {
        Self {
            reach: Some(tool.reach()),
            tool: Some(tool),
            ..self
        }
    }

    /// Sets the template that it stands on.
    pub(super) fn on(self, template: Option<Template>) -> Self {
        Self { template, ..self }
    }

    /// Returns whether one that was made ahead could serve a request: not where the interpreter in it
    /// should have begun with other variables.
    pub(super) fn is_usual(&self, maker: Option<&String>, ask: &CreateAsk) -> bool {
        maker.is_none()
            && self.begun == Begun::default()
            && !self.is_kept
            && self.template.is_none()
            && self.reach.is_none()
            && !self.is_build
            && ask.volumes.is_empty()
            && ask.inputs.is_empty()
            && ask.template == self.shipped
            && ask.session.is_none()
            && (self.shipped != CODE_INTERPRETER
                || !ask.environment.keys().any(|name| is_read_early(name)))
    }
}
