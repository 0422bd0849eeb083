//! Upstream MCP servers: programs in sandboxes of their own, whose tools are offered once a person has
//! approved them as they are.

pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod frames;
pub(crate) mod pins;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use atoll_model::{TOOL_NAME_BYTES_MAX, ToolEffect};
use atoll_policy::Requested;
use serde::Deserialize;

use crate::limits::{self, Bounds};
use crate::written::{effect, on, requested, result_bytes, timeout};

/// The longest name of an upstream, bytes.
const NAME_BYTES_MAX: usize = 24;
/// The text between the name of an upstream and that of its tool.
pub(crate) const BETWEEN: &str = "__";
/// The name with which those of Atoll's own tools begin.
const OWN: &str = "atoll";

/// An upstream MCP server.
#[derive(Debug)]
pub struct Upstream {
    /// Its name, with which those of its tools begin.
    pub name: String,
    /// The program that speaks MCP on its standard input and output, and its arguments.
    pub command: Vec<OsString>,
    /// The boundary of its sandbox.
    pub requested: Requested,
    /// The time that a call may take.
    pub timeout: Duration,
    /// The size of a result that is given to the caller, bytes.
    pub result_bytes: usize,
    /// The worst that a tool of it does of which nothing else is said.
    pub effect: ToolEffect,
    /// Those callers of a server who are shown its tools, as for a [`Tool`](crate::Tool).
    pub callers: Option<Vec<String>>,
    /// True if its tools can be called.
    pub enabled: bool,
    /// The limits of the calls of all its tools.
    pub(crate) bounds: Bounds,
    /// The file that describes it.
    pub file: String,
    /// The words about single tools.
    tools: BTreeMap<String, OfTool>,
}

/// The words about a tool of an upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OfTool {
    effect: Option<String>,
    idempotent: bool,
    enabled: Option<bool>,
}

/// An upstream as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Written {
    command: Vec<String>,
    effect: Option<String>,
    timeout: Option<String>,
    result_bytes: Option<String>,
    profile: Option<String>,
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    limits: BTreeMap<String, String>,
    callers: Option<Vec<String>>,
    #[serde(default = "on")]
    enabled: bool,
    #[serde(default)]
    calls: limits::Written,
    #[serde(default)]
    tools: BTreeMap<String, OfTool>,
}

impl Written {
    /// Reads an upstream, with the first thing that is wrong with it.
    pub(crate) fn read(self, name: &str, file: &str) -> Result<Upstream, String> {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_of_name) {
            return Err(format!(
                "{name:?} is no name of an upstream: letters, digits and -, at most {NAME_BYTES_MAX}"
            ));
        }
        if name.eq_ignore_ascii_case(OWN) {
            return Err(format!("{OWN} is the name of Atoll's own tools"));
        }
        if self.command.first().is_none_or(String::is_empty) {
            return Err("command: the program is missing".to_owned());
        }
        for (name, of) in &self.tools {
            let read = of.effect.as_deref().map(effect).transpose();
            read.map_err(|why| format!("tools.{name}: {why}"))?;
        }
        let requested = requested(
            self.profile.as_deref(),
            &self.allow,
            &self.environment,
            &self.limits,
        );
        Ok(Upstream {
            name: name.to_owned(),
            command: self.command.iter().map(OsString::from).collect(),
            requested: requested?,
            timeout: timeout(self.timeout.as_deref())?,
            result_bytes: result_bytes(self.result_bytes.as_deref())?,
            effect: self
                .effect
                .as_deref()
                .map_or(Ok(ToolEffect::Write), effect)?,
            callers: self.callers,
            enabled: self.enabled,
            bounds: self.calls.read().map_err(|why| format!("calls: {why}"))?,
            file: file.to_owned(),
            tools: self.tools,
        })
    }
}

impl Upstream {
    /// Returns what tells it from one that was described otherwise before.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{} {:?} {:?}", self.name, self.command, self.requested)
    }

    /// Returns the name by which a tool of it is called; `None` if it has none that clients take.
    pub(crate) fn name_of(&self, tool: &str) -> Option<String> {
        let name = format!("{}{BETWEEN}{tool}", self.name);
        (name.len() <= TOOL_NAME_BYTES_MAX).then_some(name)
    }

    /// Returns the worst that a tool of it does.
    pub(crate) fn effect_of(&self, tool: &str) -> ToolEffect {
        let of = self.tools.get(tool).and_then(|of| of.effect.as_deref());
        of.and_then(ToolEffect::named).unwrap_or(self.effect)
    }

    /// Returns whether two calls of a tool of it do no more than one.
    pub(crate) fn is_idempotent(&self, tool: &str) -> bool {
        self.tools.get(tool).is_some_and(|of| of.idempotent)
    }

    /// Returns whether a tool of it can be called.
    pub(crate) fn is_on(&self, tool: &str) -> bool {
        let of = self.tools.get(tool).and_then(|of| of.enabled);
        self.enabled && of.unwrap_or(true)
    }
}
