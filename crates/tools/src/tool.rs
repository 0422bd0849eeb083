//! A tool as a registry describes it.

mod builtin;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use atoll_model::{Shadow, ToolEffect, ToolKind, ToolName};
use atoll_policy::Requested;
use serde::Deserialize;
use serde_json::{Value, json};

use self::builtin::Builtin;
use crate::filter::{Filter, Pii};
use crate::limits::{self, Bounds};
use crate::openapi::Operation;
use crate::schema::Schema;
use crate::scope::Scopes;
use crate::template::{Item, Template};
use crate::upstream::frames::Form;
use crate::upstream::pins::Pins;
use crate::upstream::{BETWEEN, Upstream};
use crate::way_back::{Inverse, WayBack};
use crate::written::{WrittenShadow, effect, on, requested, result_bytes, shadow, timeout};

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
    /// The way back of its calls.
    pub way_back: WayBack,
    /// The runs on a copy that come before the effect of each call.
    pub shadow: Option<Shadow>,
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
    /// The scopes of its arguments.
    pub(crate) scopes: Scopes,
    /// The parts of its results that its caller is not given.
    pub(crate) filter: Filter,
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
    /// A call of an upstream.
    Upstream(Arc<Upstream>, OfUpstream),
}

/// A tool of an upstream.
#[derive(Debug)]
pub enum OfUpstream {
    /// A tool or a prompt of an MCP server, or all of its resources.
    Mcp {
        /// The form of what is called.
        form: Form,
        /// Its name there.
        name: String,
        /// Everything that the server offers, as approved.
        pins: Arc<Pins>,
    },
    /// An operation of a service at this address.
    Operation(String, Box<Operation>),
    /// A statement on a database.
    Statement,
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
    /// The kind that it was described as.
    pub kind: ToolKind,
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
            Work::Command(command) => command.kind,
            Work::Upstream(_, OfUpstream::Mcp { .. }) => ToolKind::Mcp,
            Work::Upstream(_, OfUpstream::Operation(..)) => ToolKind::OpenApi,
            Work::Upstream(_, OfUpstream::Statement) => ToolKind::Sql,
        }
    }

    /// Returns the name by which its calls are counted, and its breaker goes: tools of an upstream
    /// have that of the upstream.
    #[must_use]
    pub fn counted(&self) -> String {
        match &self.work {
            Work::Command(_) => format!("tool {}", self.name),
            Work::Upstream(upstream, _) => format!("upstream {}", upstream.name),
        }
    }

    /// Returns the key of the session's sandbox that it works in; `None` if each call has its own.
    #[must_use]
    pub fn sandbox_key(&self) -> Option<String> {
        match (&self.work, self.life) {
            (Work::Upstream(upstream, _), _) => Some(upstream.sandbox_key()),
            (Work::Command(_), SandboxLife::Session) => Some(format!("{:?}", self.requested)),
            (Work::Command(_), SandboxLife::Call) => None,
        }
    }

    /// Returns the schema of its result, if callers are given all that it names.
    #[must_use]
    pub fn shown_result(&self) -> Option<&Schema> {
        self.result.as_ref().filter(|_| !self.filter.hides())
    }

    /// Describes the scopes of its arguments, and what its callers are not given, for people.
    #[must_use]
    pub fn scope_lines(&self) -> Vec<String> {
        self.scopes.lines().chain(self.filter.lines()).collect()
    }
}

/// A tool as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Written {
    title: Option<String>,
    description: Option<String>,
    kind: String,
    language: Option<Language>,
    #[serde(default)]
    command: Vec<String>,
    stdin: Option<String>,
    #[serde(default = "text")]
    output: Output,
    output_file: Option<PathBuf>,
    effect: Option<String>,
    idempotent: Option<bool>,
    #[serde(default)]
    checkpoint: Vec<String>,
    inverse: Option<Inverse>,
    shadow: Option<WrittenShadow>,
    timeout: Option<String>,
    result_bytes: Option<String>,
    sandbox: Option<SandboxLife>,
    profile: Option<String>,
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    limits: BTreeMap<String, String>,
    #[serde(default)]
    inputs: BTreeMap<String, String>,
    callers: Option<Vec<String>>,
    #[serde(default = "on")]
    enabled: bool,
    #[serde(default)]
    calls: limits::Written,
    #[serde(default)]
    paths: BTreeMap<String, String>,
    #[serde(default)]
    urls: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    hide: Vec<String>,
    #[serde(default)]
    pii: Pii,
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

/// Returns why calls of a tool cannot run on a copy first.
fn unshadowed(effect: ToolEffect, life: SandboxLife, allow: &[String]) -> Option<&'static str> {
    match (effect, life) {
        (ToolEffect::Read, _) => Some("it reads, and changes nothing"),
        (_, SandboxLife::Session) => {
            Some("each call has a sandbox of its own then: sandbox = \"call\"")
        }
        (_, SandboxLife::Call) if !allow.is_empty() => {
            Some("through the hosts of `allow` an effect would pass")
        }
        (_, SandboxLife::Call) => None,
    }
}

fn text() -> Output {
    Output::Text
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
        let kind = self.expand(name.as_str())?;
        let written = self.effect.as_deref().unwrap_or_default();
        let effect = effect(written).map_err(at("effect"))?;
        let description = self.description.clone().unwrap_or_default();
        if description.trim().is_empty() {
            return Err("description: it tells a model nothing".to_owned());
        }
        if description.len() > DESCRIPTION_BYTES_MAX {
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
        let filter = Filter::read(&self.hide, self.pii)?;
        if filter.hides() && self.output != Output::Json {
            return Err("hide: fields are of JSON: output = \"json\"".to_owned());
        }
        let scopes = Scopes::read(&self.paths, &self.urls, &arguments)?;
        let command = self.command(&arguments, kind)?;
        let life = self.sandbox.unwrap_or(SandboxLife::Call);
        let shadow = shadow(self.shadow.as_ref())?;
        if let Some(why) = shadow.and_then(|_| unshadowed(effect, life, &self.allow)) {
            return Err(format!("shadow: {why}"));
        }
        Ok(Tool {
            name,
            title: self.title.clone(),
            description,
            work: Work::Command(command),
            effect,
            idempotent: self.idempotent.unwrap_or(false),
            way_back: WayBack::read(&self.checkpoint, self.inverse.take())?,
            shadow,
            timeout: timeout(self.timeout.as_deref())?,
            result_bytes: result_bytes(self.result_bytes.as_deref())?,
            life,
            requested: requested(
                self.profile.as_deref(),
                &self.allow,
                &self.environment,
                &self.limits,
                &self.inputs,
            )?,
            callers: self.callers,
            enabled: self.enabled,
            bounds: self.calls.read().map_err(at("calls"))?,
            scopes,
            filter,
            arguments,
            result,
            file: file.to_owned(),
        })
    }

    /// Has a snippet be the program of its language, with the text as its one argument, and one that
    /// comes with Atoll what it is. Returns its kind.
    fn expand(&mut self, name: &str) -> Result<ToolKind, String> {
        let has_more = !self.command.is_empty() || self.stdin.is_some() || self.arguments.is_some();
        let kind = ToolKind::named(&self.kind);
        match (kind, self.language) {
            (Some(ToolKind::Command), None) => {}
            (Some(ToolKind::Command | ToolKind::Builtin), Some(_)) => {
                return Err("language: a snippet alone has one".to_owned());
            }
            (Some(ToolKind::Snippet), None) => {
                return Err("language: it is missing; there are python, node and shell".to_owned());
            }
            (Some(ToolKind::Snippet | ToolKind::Builtin), _) if has_more => {
                return Err("it has no command, stdin or arguments of its own".to_owned());
            }
            (Some(ToolKind::Snippet), Some(language)) => {
                let program = language.program().iter();
                self.command = program.map(|word| (*word).to_owned()).collect();
                self.stdin = Some("{code}".to_owned());
                self.arguments = Some(json!({
                    "properties": { "code": { "type": "string", "description": "The text to run." } },
                    "required": ["code"],
                }));
            }
            (Some(ToolKind::Builtin), None) => {
                let builtin = Builtin::named(name).ok_or(
                    "kind: no tool of this name comes with Atoll: run, read_file, \
                    write_file, edit_file, list_directory, search, fetch_url",
                )?;
                let words = builtin.command.iter();
                self.command = words.map(|word| (*word).to_owned()).collect();
                self.stdin = builtin.stdin.map(str::to_owned);
                self.arguments = Some(builtin.schema());
                let description = || builtin.description.to_owned();
                let _ = self.description.get_or_insert_with(description);
                let effect = || builtin.effect.name().to_owned();
                let _ = self.effect.get_or_insert_with(effect);
                let _ = self.idempotent.get_or_insert(builtin.idempotent);
                // What a shadow run changes is of its call alone.
                let life = match shadow(self.shadow.as_ref())? {
                    None => SandboxLife::Session,
                    Some(_) => SandboxLife::Call,
                };
                let _ = self.sandbox.get_or_insert(life);
            }
            (Some(ToolKind::Mcp | ToolKind::OpenApi | ToolKind::Sql) | None, _) => {
                return Err(format!(
                    "kind: {:?} is none; there are command, snippet and builtin, and tables of \
                     upstreams",
                    self.kind
                ));
            }
        }
        Ok(kind.unwrap_or(ToolKind::Command))
    }

    fn command(&self, arguments: &Schema, kind: ToolKind) -> Result<Command, String> {
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
            kind,
        })
    }
}
