//! The tools of upstreams: as a person has approved those of an MCP server, as a document describes
//! the operations of a service, and the one of a database.

use std::fs;
use std::sync::Arc;

use atoll_model::{ToolEffect, ToolName};

use crate::database;
use crate::openapi::{self, checked_base};
use crate::schema::Schema;
use crate::tool::{OfUpstream, SandboxLife, Tool, Work};
use crate::upstream::frames::Offered;
use crate::upstream::pins::Pins;
use crate::upstream::{Service, Upstream, Way};

/// The tools that are described, each with its name there, or the reason why it is none.
pub(crate) type Described = Result<Vec<Result<Tool, String>>, String>;

impl Tool {
    /// Makes a tool of an upstream as it is approved.
    pub(crate) fn of_upstream(
        upstream: &Arc<Upstream>,
        pins: &Arc<Pins>,
        pinned: &Offered,
    ) -> Result<Self, String> {
        let parts = Parts {
            name: &pinned.name,
            title: pinned.title.clone(),
            description: pinned.description.clone().unwrap_or_default(),
            arguments: Schema::of_upstream(pinned.arguments.clone()),
            result: pinned.result.clone(),
            effect: ToolEffect::Write,
            work: OfUpstream::Mcp(pinned.name.clone(), Arc::clone(pins)),
        };
        tool(upstream, parts)
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

fn operations(upstream: &Arc<Upstream>, service: &Service) -> Described {
    let text = fs::read_to_string(&service.document);
    let at = || format!("openapi: {}", service.document.display());
    let text = text.map_err(|error| format!("{}: {error}", at()))?;
    let document = openapi::read(&text).map_err(|why| format!("{}: {why}", at()))?;
    let base = service.url.clone().or(document.server);
    let base = base.ok_or("url: its document names no server's address")?;
    checked_base(&base).map_err(|why| format!("url: {why}"))?;
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
    result: Option<serde_json::Value>,
    /// The worst that it does, where nothing is said.
    effect: ToolEffect,
    work: OfUpstream,
}
