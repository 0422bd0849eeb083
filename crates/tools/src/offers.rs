//! The tools of upstreams: as a person has approved what an MCP server offers, as a document describes
//! the operations of a service, and the one of a database.

use std::fs;
use std::sync::Arc;

use atoll_model::{ToolEffect, ToolName};
use serde_json::{Map, Value, json};

use crate::database;
use crate::openapi::{self, checked_base};
use crate::schema::Schema;
use crate::tool::{OfUpstream, SandboxLife, Tool, Work};
use crate::upstream::frames::{Form, Offered};
use crate::upstream::pins::Pins;
use crate::upstream::{Service, Upstream, Way};

/// The beginning of the name of a tool that gets a prompt, and the name of one that reads resources.
const PROMPT: &str = "prompt-";
const RESOURCE: &str = "resource";
/// The longest address of a resource, bytes.
const URI_BYTES_MAX: usize = 4 << 10;

/// The tools that are described, each with its name there, or the reason why it is none.
pub(crate) type Described = Result<Vec<Result<Tool, String>>, String>;

impl Tool {
    /// Makes the tools of an upstream as they are approved: those that get its prompts, and the one
    /// that reads its resources, are among them.
    pub(crate) fn of_upstream(
        upstream: &Arc<Upstream>,
        pins: &Arc<Pins>,
    ) -> Vec<Result<Self, String>> {
        let is_resource = |one: &&Offered| matches!(one.form, Form::Resource | Form::Template);
        let (resources, others): (Vec<_>, Vec<_>) = pins.tools.iter().partition(is_resource);
        let of = |form, name: &str| OfUpstream::Mcp {
            form,
            name: name.to_owned(),
            pins: Arc::clone(pins),
        };
        let mut all: Vec<_> = others
            .into_iter()
            .map(|pinned| {
                let (name, arguments) = match pinned.form {
                    Form::Prompt => {
                        let schema = prompt_arguments(&pinned.arguments);
                        (
                            format!("{PROMPT}{}", pinned.name),
                            Schema::of_upstream(schema),
                        )
                    }
                    _ => (
                        pinned.name.clone(),
                        Schema::of_upstream(pinned.arguments.clone()),
                    ),
                };
                let parts = Parts {
                    name: &name,
                    title: pinned.title.clone(),
                    description: pinned.description.clone().unwrap_or_default(),
                    arguments,
                    result: pinned.result.clone(),
                    effect: ToolEffect::Write,
                    work: of(pinned.form, &pinned.name),
                };
                tool(upstream, parts)
            })
            .collect();
        if !resources.is_empty() {
            let parts = Parts {
                name: RESOURCE,
                title: None,
                description: "Reads a resource, by its address.".to_owned(),
                arguments: Schema::of_arguments(Some(json!({
                    "properties": { "uri": { "type": "string", "maxLength": URI_BYTES_MAX } },
                    "required": ["uri"],
                }))),
                result: None,
                effect: ToolEffect::Write,
                work: of(Form::Resource, RESOURCE),
            };
            all.push(tool(upstream, parts));
        }
        all
    }

    /// Returns the form of what calls of it reach.
    #[must_use]
    pub fn form(&self) -> Form {
        match &self.work {
            Work::Upstream(_, OfUpstream::Mcp { form, .. }) => *form,
            Work::Upstream(..) | Work::Command(_) => Form::Tool,
        }
    }

    /// Describes the prompt, or the resources and templates of them, that calls of it reach, as MCP
    /// does; `None` if nothing of it is among what its upstream offers `now`, just as it was approved.
    pub(crate) fn listed(&self, now: Option<&[Offered]>) -> Option<Vec<Value>> {
        let Work::Upstream(upstream, OfUpstream::Mcp { form, name, pins }) = &self.work else {
            return Some(Vec::new());
        };
        let is_there = |form, name: &str| now.is_none_or(|now| pins.holds(form, name, now));
        if *form == Form::Tool {
            return is_there(*form, name).then(Vec::new);
        }
        let is_listed = |one: &&Offered| match (form, one.form) {
            (Form::Prompt, Form::Prompt) => one.name == *name && is_there(one.form, name),
            (Form::Resource, Form::Resource | Form::Template) => is_there(one.form, &one.name),
            _ => false,
        };
        let listed = |one: &Offered| {
            let mut all = match one.arguments.clone() {
                Value::Object(members) => members,
                arguments => Map::from_iter([("arguments".to_owned(), arguments)]),
            };
            let shown = match one.form {
                Form::Prompt => &one.name,
                _ => all.get("name").and_then(Value::as_str).unwrap_or_default(),
            };
            let shown = upstream.shown(shown);
            all.insert("name".to_owned(), shown.into());
            all.insert("title".to_owned(), json!(one.title));
            all.insert("description".to_owned(), json!(one.description));
            match one.form {
                Form::Resource => all.insert("uri".to_owned(), json!(one.name)),
                Form::Template => all.insert("uriTemplate".to_owned(), json!(one.name)),
                Form::Tool | Form::Prompt => None,
            };
            Value::Object(all)
        };
        let all: Vec<Value> = pins.tools.iter().filter(is_listed).map(listed).collect();
        (!all.is_empty()).then_some(all)
    }

    /// Makes the tools of an upstream that says nothing of them itself; `None` for one that speaks
    /// MCP.
    pub(crate) fn described(upstream: &Arc<Upstream>) -> Option<Described> {
        match &upstream.way {
            Way::Program(_) | Way::Http(_) => None,
            Way::OpenApi(service) => Some(operations(upstream, service)),
            Way::Database(database) => {
                let parts = Parts {
                    name: database::TOOL,
                    title: None,
                    description: database.description(),
                    arguments: Schema::of_arguments(Some(database::arguments())),
                    result: Some(database::result()),
                    effect: database.effect(),
                    work: OfUpstream::Statement,
                };
                Some(Ok(vec![tool(upstream, parts)]))
            }
        }
    }
}

/// Makes the schema of a prompt's arguments, which are texts.
fn prompt_arguments(listed: &Value) -> Value {
    let all = listed.as_array().into_iter().flatten();
    let named = |one: &Value| one.get("name").and_then(Value::as_str).map(str::to_owned);
    let property = |one: &Value| {
        let mut property = json!({ "type": "string" });
        if let (Some(text), Some(members)) = (one.get("description"), property.as_object_mut()) {
            members.insert("description".to_owned(), text.clone());
        }
        Some((named(one)?, property))
    };
    let properties: Map<String, Value> = all.clone().filter_map(property).collect();
    let is_required = |one: &&Value| one.get("required") == Some(&Value::Bool(true));
    let required: Vec<String> = all.filter(is_required).filter_map(named).collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn operations(upstream: &Arc<Upstream>, service: &Service) -> Described {
    let text = fs::read_to_string(&service.document);
    let at = || format!("openapi: {}", service.document.display());
    let text = text.map_err(|error| format!("{}: {error}", at()))?;
    let document = openapi::read(&text).map_err(|why| format!("{}: {why}", at()))?;
    let base = service.url.clone().or(document.server);
    let base = base.ok_or("url: its document names no server's address")?;
    let checked = checked_base(&base).map_err(|why| format!("url: {why}"))?;
    if let Some(staging) = &service.staging
        && checked_base(staging).map_err(|why| format!("staging: {why}"))? == checked
    {
        return Err("staging: it is the service itself".to_owned());
    }
    let is_wanted = |id: &String| upstream.only.as_ref().is_none_or(|only| only.contains(id));
    let is_told = |_: &(String, String)| upstream.only.is_none();
    let skipped = document.skipped.into_iter().filter(is_told);
    let skipped = skipped.map(|(operation, why)| format!("{operation}: {why}"));
    let has = |id: &&String| document.operations.iter().any(|one| one.id == **id);
    let missing = upstream.only.iter().flatten().filter(|id| !has(id));
    let missing = missing.map(|id| format!("only: {id:?} is no operation that can be a tool"));
    let wrong: Vec<String> = skipped.chain(missing).collect();
    let operations = document.operations.into_iter();
    let tools = operations
        .filter(|one| is_wanted(&one.id))
        .map(|operation| {
            let parts = Parts {
                name: &operation.id.clone(),
                title: operation.title.clone(),
                description: operation.description.clone(),
                arguments: Schema::of_arguments(Some(operation.arguments.clone())),
                result: None,
                effect: match &*operation.method {
                    "GET" | "HEAD" => ToolEffect::Read,
                    _ => ToolEffect::Write,
                },
                work: OfUpstream::Operation(base.clone(), Box::new(operation)),
            };
            tool(upstream, parts)
        });
    Ok(tools.chain(wrong.into_iter().map(Err)).collect())
}

/// Makes a tool of an upstream.
fn tool(upstream: &Arc<Upstream>, parts: Parts<'_>) -> Result<Tool, String> {
    let Parts { name, .. } = parts;
    let too_long = || format!("{name:?} has no name that clients take");
    let own = upstream.name_of(name).ok_or_else(too_long)?;
    let result = parts.result.map(Schema::new).transpose();
    let arguments = parts.arguments;
    let arguments = arguments.map_err(|why| format!("{name}: arguments: {why}"))?;
    let wrong = |why: String| format!("tools.{name}: {why}");
    let of = match &upstream.description {
        Some(words) => format!("{words}\n\n{}", parts.description),
        None => parts.description,
    };
    Ok(Tool {
        name: ToolName::parse(&own).map_err(|error| error.to_string())?,
        title: parts.title,
        description: of.trim().to_owned(),
        work: Work::Upstream(Arc::clone(upstream), parts.work),
        effect: upstream.effect_of(name, parts.effect),
        idempotent: upstream.is_idempotent(name),
        way_back: upstream.way_back_of(name).map_err(wrong)?,
        shadow: upstream.shadow_of(name).map_err(wrong)?,
        timeout: upstream.timeout,
        result_bytes: upstream.result_bytes,
        life: SandboxLife::Session,
        requested: upstream.requested.clone(),
        callers: upstream.callers.clone(),
        enabled: upstream.is_on(name),
        bounds: upstream.bounds.clone(),
        scopes: upstream.scopes_of(name, &arguments).map_err(wrong)?,
        filter: upstream.filter_of(name).map_err(wrong)?,
        arguments,
        result: result.map_err(|why| format!("{name}: result: {why}"))?,
        file: upstream.file.clone(),
    })
}

/// The parts of a tool that are not its upstream's.
struct Parts<'a> {
    /// Its name there.
    name: &'a str,
    title: Option<String>,
    description: String,
    arguments: Result<Schema, String>,
    result: Option<Value>,
    /// The worst that it does, where nothing is said.
    effect: ToolEffect,
    work: OfUpstream,
}
