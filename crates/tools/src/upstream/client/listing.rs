//! The lists of an MCP server: its tools, prompts, resources and templates of them, page by page.

use std::future::Future;
use std::sync::mpsc::Sender;
use std::time::Duration;

use rmcp::model::{PaginatedRequestParams, Prompt, Resource, ResourceTemplate, Tool};
use rmcp::service::{ClientCacheConfig, Peer};
use rmcp::{RoleClient, ServiceError};
use serde_json::{Value, json};

use crate::upstream::frames::{FRAME_BYTES_MAX, Form, News, OFFERED_MAX, Offered};

/// The most pages of a list.
const PAGES_MAX: usize = 64;
/// The longest time for an upstream to list what it offers.
const LISTED_WITHIN: Duration = Duration::from_secs(30);

/// A page of a list.
struct Page {
    offered: Vec<Offered>,
    next: Option<String>,
}

/// Tells what the upstream offers.
pub(super) async fn offer(peer: &Peer<RoleClient>, news: &Sender<News>) {
    let mut cache = ClientCacheConfig::default();
    cache.enabled = false;
    peer.set_response_cache_config(cache).await;
    let listed = tokio::time::timeout(LISTED_WITHIN, everything(peer)).await;
    let late = || Err("it does not list what it offers in time".to_owned());
    let listed = listed.unwrap_or_else(|_| late());
    let _ = news.send(match listed {
        Ok(offered) => News::Offered(offered),
        Err(why) => News::Failed { why },
    });
}

async fn everything(peer: &Peer<RoleClient>) -> Result<Vec<Offered>, String> {
    let server = peer.peer_info();
    let capabilities = server
        .map(|one| one.capabilities.clone())
        .unwrap_or_default();
    let (has_prompts, has_resources) = (
        capabilities.prompts.is_some(),
        capabilities.resources.is_some(),
    );
    let mut all = Vec::new();
    // One that declares nothing may have tools all the same.
    if capabilities.tools.is_some() || !(has_prompts || has_resources) {
        let page = async |from| {
            let page = peer.list_tools(Some(from)).await?;
            Ok(Page::of(page.tools, page.next_cursor, tool))
        };
        add(&mut all, pages(page).await?)?;
    }
    if has_prompts {
        let page = async |from| {
            let page = peer.list_prompts(Some(from)).await?;
            Ok(Page::of(page.prompts, page.next_cursor, prompt))
        };
        add(&mut all, pages(page).await?)?;
    }
    if has_resources {
        let page = async |from| {
            let page = peer.list_resources(Some(from)).await?;
            Ok(Page::of(page.resources, page.next_cursor, resource))
        };
        add(&mut all, pages(page).await?)?;
        let page = async |from| {
            let page = peer.list_resource_templates(Some(from)).await?;
            Ok(Page::of(
                page.resource_templates,
                page.next_cursor,
                template,
            ))
        };
        // Many a server has resources and no such list.
        add(&mut all, pages(page).await.unwrap_or_default())?;
    }
    Ok(all)
}

/// Adds a list, until there is more than any session takes.
fn add(all: &mut Vec<Offered>, more: Vec<Offered>) -> Result<(), String> {
    all.extend(more);
    let length = serde_json::to_vec(all).map_err(|error| error.to_string())?;
    match length.len() > FRAME_BYTES_MAX / 2 {
        true => Err(format!(
            "it offers more than {} bytes of descriptions",
            FRAME_BYTES_MAX / 2
        )),
        false => Ok(()),
    }
}

/// Reads a list page by page, until there are more than any session takes.
async fn pages<F>(page: impl Fn(PaginatedRequestParams) -> F) -> Result<Vec<Offered>, String>
where
    F: Future<Output = Result<Page, ServiceError>>,
{
    let (mut all, mut bytes, mut cursor) = (Vec::new(), 0, None);
    for _ in 0..PAGES_MAX {
        let from = PaginatedRequestParams::default().with_cursor(cursor);
        let page = page(from).await.map_err(|error| error.to_string())?;
        let length = serde_json::to_vec(&page.offered).map_err(|error| error.to_string())?;
        bytes += length.len();
        all.extend(page.offered);
        if all.len() > OFFERED_MAX || bytes > FRAME_BYTES_MAX {
            return Err(format!(
                "it offers more than {OFFERED_MAX} of a kind, or {FRAME_BYTES_MAX} bytes of them"
            ));
        }
        match page.next {
            None => return Ok(all),
            next => cursor = next,
        }
    }
    Err(format!(
        "it lists what it offers on more than {PAGES_MAX} pages"
    ))
}

impl Page {
    fn of<T>(items: Vec<T>, next: Option<String>, offered: impl Fn(T) -> Offered) -> Self {
        Self {
            offered: items.into_iter().map(offered).collect(),
            next,
        }
    }
}

fn tool(tool: Tool) -> Offered {
    Offered {
        form: Form::Tool,
        name: tool.name.into_owned(),
        title: tool.title,
        description: tool.description.map(std::borrow::Cow::into_owned),
        arguments: Value::Object((*tool.input_schema).clone()),
        result: tool.output_schema.map(|one| Value::Object((*one).clone())),
    }
}

fn prompt(prompt: Prompt) -> Offered {
    Offered {
        form: Form::Prompt,
        name: prompt.name,
        title: prompt.title,
        description: prompt.description,
        arguments: json!(prompt.arguments.unwrap_or_default()),
        result: None,
    }
}

fn resource(resource: Resource) -> Offered {
    Offered {
        form: Form::Resource,
        name: resource.uri,
        title: resource.title,
        description: resource.description,
        arguments: described(resource.name, resource.mime_type),
        result: None,
    }
}

fn template(template: ResourceTemplate) -> Offered {
    Offered {
        form: Form::Template,
        name: template.uri_template,
        title: template.title,
        description: template.description,
        arguments: described(template.name, template.mime_type),
        result: None,
    }
}

fn described(name: String, mime_type: Option<String>) -> Value {
    json!({ "name": name, "mimeType": mime_type })
}
