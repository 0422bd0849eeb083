//! A tool as a registry describes it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use atoll_model::{ToolEffect, ToolKind, ToolName};
use atoll_policy::Requested;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::limits::{self, Bounds};
use crate::schema::Schema;
use crate::template::{Item, Template};
use crate::upstream::frames::Offered;
use crate::upstream::pins::Pins;
use crate::upstream::{BETWEEN, Upstream};
use crate::written::{effect, on, requested, result_bytes, timeout};

/// The longest description, bytes.
const DESCRIPTION_BYTES_MAX: usize = 16 << 10;

/// A tool.
#[derive(Debug)]
pub struct Tool {
    /// Its name.
    pub name: ToolName,
    /// Its name for people, if it has another one.
    pub title: Option<String>,
    /// The text that tells a model what it is for.
    pub description: String,
    /// The way that it works.
    pub work: Work,
    /// The worst that it does.
    pub effect: ToolEffect,
    /// True if two calls do no more than one.
    pub idempotent: bool,
    /// The time that a call may take.
    pub timeout: Duration,
    /// The size of a result that is given to the caller, bytes.
    pub result_bytes: usize,
    /// The life of its sandbox.
    pub life: SandboxLife,
    /// The boundary of its sandbox.
    pub requested: Requested,
    /// Those callers of a server who are shown it, as `tenant/name`, or `name` in the first tenant;
    /// all if `None`.
    pub callers: Option<Vec<String>>,
    /// True if it can be called.
    pub enabled: bool,
    /// The limits of its calls; those of its upstream, if it has one.
    pub(crate) bounds: Bounds,
    /// The schema of its arguments.
    pub arguments: Schema,
    /// The schema of its result, if that is JSON.
    pub result: Option<Schema>,
    /// The file that describes it.
    pub file: String,
}

/// The way that a tool works.
#[derive(Debug)]
pub enum Work {
    /// A program for each call.
    Command(Command),
    /// A tool of an upstream MCP server.
    Mcp(OfUpstream),
}

/// A tool of an upstream.
#[derive(Debug)]
pub struct OfUpstream {
    /// The upstream.
    pub upstream: Arc<Upstream>,
    /// Its name there.
    pub name: String,
    /// The tools of the upstream, as approved.
    pub pins: Arc<Pins>,
}

/// A program as a tool.
#[derive(Debug)]
pub struct Command {
    /// The program and its arguments.
    pub template: Template,
    /// Its standard input; nothing if `None`.
    pub stdin: Option<Item>,
    /// The form of its result.
    pub output: Output,
    /// The file that its result is in; its standard output if `None`.
    pub file: Option<PathBuf>,
    /// True if the caller's text is what is run.
    pub is_snippet: bool,
}

/// The form of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Output {
    /// Text.
    Text,
    /// JSON.
    Json,
}

/// The life of a tool's sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxLife {
    /// A fresh one for each call.
    Call,
    /// One for all calls of a session by tools of the same boundary.
    Session,
}

impl Tool {
    /// Returns its kind.
    #[must_use]
    pub fn kind(&self) -> ToolKind {
        match &self.work {
            Work::Command(command) if command.is_snippet => ToolKind::Snippet,
            Work::Command(_) => ToolKind::Command,
            Work::Mcp(_) => ToolKind::Mcp,
        }
    }

    /// Returns the name by which its calls are counted, and its breaker goes: tools of an upstream
    /// have that of the upstream.
    #[must_use]
    pub fn counted(&self) -> String {
        match &self.work {
            Work::Command(_) => format!("tool {}", self.name),
            Work::Mcp(of) => format!("upstream {}", of.upstream.name),
        }
    }

    /// Makes the tool of an upstream that has this place among those that are approved.
    pub(crate) fn of_upstream(
        upstream: &Arc<Upstream>,
        pins: &Arc<Pins>,
        pinned: &Offered,
    ) -> Result<Self, String> {
        let too_long = || format!("{:?} has no name that clients take", pinned.name);
        let name = upstream.name_of(&pinned.name).ok_or_else(too_long)?;
        let arguments = Schema::of_upstream(pinned.arguments.clone());
        let result = pinned.result.clone().map(Schema::new).transpose();
        Ok(Self {
            name: ToolName::parse(&name).map_err(|error| error.to_string())?,
            title: pinned.title.clone(),
            description: pinned.description.clone().unwrap_or_default(),
            work: Work::Mcp(OfUpstream {
                upstream: Arc::clone(upstream),
                name: pinned.name.clone(),
                pins: Arc::clone(pins),
            }),
            effect: upstream.effect_of(&pinned.name),
            idempotent: upstream.is_idempotent(&pinned.name),
            timeout: upstream.timeout,
            result_bytes: upstream.result_bytes,
            life: SandboxLife::Session,
            requested: upstream.requested.clone(),
            callers: upstream.callers.clone(),
            enabled: upstream.is_on(&pinned.name),
            bounds: upstream.bounds.clone(),
            arguments: arguments.map_err(|why| format!("{}: arguments: {why}", pinned.name))?,
            result: result.map_err(|why| format!("{}: result: {why}", pinned.name))?,
            file: upstream.file.clone(),
        })
    }
}

/// A tool as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Written {
    title: Option<String>,
    description: String,
    kind: String,
    language: Option<Language>,
    #[serde(default)]
    command: Vec<String>,
    stdin: Option<String>,
    #[serde(default = "text")]
    output: Output,
    output_file: Option<PathBuf>,
    effect: String,
    #[serde(default)]
    idempotent: bool,
    timeout: Option<String>,
    result_bytes: Option<String>,
    #[serde(default = "per_call")]
    sandbox: SandboxLife,
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
    arguments: Option<Value>,
    result: Option<Value>,
}

/// The language of a snippet.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Language {
    Python,
    Node,
    Shell,
}

impl Language {
    /// Returns the program that runs a text of it from its standard input, and its arguments. It
    /// reads the whole of it first, so that no part of it is what the text itself reads.
    fn program(self) -> &'static [&'static str] {
        match self {
            Self::Python => &["python3", "-"],
            Self::Node => &["node", "-"],
            Self::Shell => &["sh", "-c", "eval \"$(cat)\""],
        }
    }
}

fn text() -> Output {
    Output::Text
}

fn per_call() -> SandboxLife {
    SandboxLife::Call
}

impl Written {
    /// Reads a tool, with the first thing that is wrong with it.
    pub(crate) fn read(mut self, name: &str, file: &str) -> Result<Tool, String> {
        let at = |key: &'static str| move |why: String| format!("{key}: {why}");
        if name.contains(BETWEEN) {
            return Err(format!(
                "{name:?} has {BETWEEN}, as tools of upstreams have"
            ));
        }
        let name = ToolName::parse(name).map_err(|error| error.to_string())?;
        self.expand()?;
        let effect = effect(&self.effect).map_err(at("effect"))?;
        if self.description.trim().is_empty() {
            return Err("description: it tells a model nothing".to_owned());
        }
        if self.description.len() > DESCRIPTION_BYTES_MAX {
            return Err(format!(
                "description: longer than {DESCRIPTION_BYTES_MAX} bytes"
            ));
        }
        let arguments = Schema::of_arguments(self.arguments.clone()).map_err(at("arguments"))?;
        let result = self.result.clone().map(Schema::new).transpose();
        let result = result.map_err(at("result"))?;
        if result.is_some() && self.output != Output::Json {
            return Err("result: a schema is of JSON: output = \"json\"".to_owned());
        }
        let command = self.command(&arguments)?;
        Ok(Tool {
            name,
            title: self.title.clone(),
            description: self.description.clone(),
            work: Work::Command(command),
            effect,
            idempotent: self.idempotent,
            timeout: timeout(self.timeout.as_deref())?,
            result_bytes: result_bytes(self.result_bytes.as_deref())?,
            life: self.sandbox,
            requested: requested(
                self.profile.as_deref(),
                &self.allow,
                &self.environment,
                &self.limits,
            )?,
            callers: self.callers,
            enabled: self.enabled,
            bounds: self.calls.read().map_err(at("calls"))?,
            arguments,
            result,
            file: file.to_owned(),
        })
    }

    /// Has a snippet be the program of its language, with the text as its one argument.
    fn expand(&mut self) -> Result<(), String> {
        match (ToolKind::named(&self.kind), self.language) {
            (Some(ToolKind::Command), None) => Ok(()),
            (Some(ToolKind::Command), Some(_)) => {
                Err("language: a command has none; kind = \"snippet\"".to_owned())
            }
            (Some(ToolKind::Snippet), None) => {
                Err("language: it is missing; there are python, node and shell".to_owned())
            }
            (Some(ToolKind::Snippet), Some(language)) => {
                let has_more =
                    !self.command.is_empty() || self.stdin.is_some() || self.arguments.is_some();
                if has_more {
                    return Err(
                        "a snippet has no command, stdin or arguments of its own".to_owned()
                    );
                }
                let program = language.program().iter();
                self.command = program.map(|word| (*word).to_owned()).collect();
                self.stdin = Some("{code}".to_owned());
                self.arguments = Some(json!({
                    "properties": { "code": { "type": "string", "description": "The text to run." } },
                    "required": ["code"],
                }));
                Ok(())
            }
            (Some(ToolKind::Mcp) | None, _) => Err(format!(
                "kind: {:?} is none; there are command and snippet",
                self.kind
            )),
        }
    }

    fn command(&self, arguments: &Schema) -> Result<Command, String> {
        let template = Template::parse(&self.command).map_err(|why| format!("command: {why}"))?;
        let stdin = self.stdin.as_deref().map(Item::parse).transpose();
        let stdin = stdin.map_err(|why| format!("stdin: {why}"))?;
        let known: Vec<&str> = arguments.properties().collect();
        let named = template.names().chain(stdin.iter().flat_map(Item::names));
        for name in named {
            if !known.contains(&name) {
                return Err(format!("command: {{{name}}} is no argument of its schema"));
            }
        }
        Ok(Command {
            template,
            stdin,
            output: self.output,
            file: self.output_file.clone(),
            is_snippet: self.language.is_some(),
        })
    }
}
