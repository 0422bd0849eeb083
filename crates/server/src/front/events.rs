//! Events of sandboxes' lives, and webhooks that get them, in the form of E2B's control API.

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answers::{body, empty, json as answer_json};
use super::control::{credential, not_offered, pairs};
use super::{Front, plain_id};
use crate::lifecycle::{rendered, type_of};
use crate::protocol::{
    ChangeWebhook, Credential, GetWebhook, ListLifecycleEvents, ListWebhooks, MakeWebhook, Refusal,
    RemoveWebhook, Secret, WebhookAsk, WebhookFacts,
};
use crate::rfc3339::time_of;

/// The body of a webhook. A field that is not there is not set.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Webhook {
    name: Option<String>,
    url: Option<String>,
    enabled: Option<bool>,
    events: Option<Vec<String>>,
    signature_secret: Option<Secret>,
}

impl From<Webhook> for WebhookAsk {
    fn from(asked: Webhook) -> Self {
        Self {
            name: asked.name,
            url: asked.url,
            enabled: asked.enabled,
            events: asked.events,
            secret: asked.signature_secret,
        }
    }
}

/// Answers a request beneath `/events`.
pub(crate) async fn answer(
    front: &Front,
    parts: &Parts,
    rest: &[&str],
    content: Body,
) -> Result<Response, Refusal> {
    let key = credential(&parts.headers);
    let answer = |status, facts| Ok(answer_json(status, &described(&facts)));
    match (rest, &parts.method) {
        (["sandboxes", rest @ ..], &Method::GET) if rest.len() < 2 => {
            let sandbox = rest.first().map(|id| plain_id(id));
            listed(front, key, sandbox, parts.uri.query().unwrap_or_default()).await
        }
        (["webhooks"], &Method::GET) => {
            let all = front.call(key, ListWebhooks {}).await?;
            let all: Vec<Value> = all.iter().map(described).collect();
            Ok(answer_json(StatusCode::OK, &all))
        }
        (["webhooks"], &Method::POST) => {
            let asked: Webhook = body(content).await?;
            let made = front.call(key, MakeWebhook(asked.into())).await?;
            answer(StatusCode::CREATED, made)
        }
        (["webhooks", id], &Method::GET) => {
            let id = (*id).to_owned();
            answer(StatusCode::OK, front.call(key, GetWebhook { id }).await?)
        }
        (["webhooks", id], &Method::DELETE) => {
            let id = (*id).to_owned();
            front.call(key, RemoveWebhook { id }).await?;
            Ok(empty(StatusCode::OK))
        }
        (["webhooks", id], &Method::PATCH) => {
            let id = (*id).to_owned();
            let change = body::<Webhook>(content).await?.into();
            let ask = ChangeWebhook { id, change };
            answer(StatusCode::OK, front.call(key, ask).await?)
        }
        _ => Err(not_offered(parts)),
    }
}

fn described(facts: &WebhookFacts) -> Value {
    json!({
        "id": facts.id,
        "teamId": facts.tenant,
        "teamID": facts.tenant,
        "name": facts.name,
        "createdAt": time_of(facts.created_ms),
        "enabled": facts.enabled,
        "url": facts.url,
        "events": facts.events,
    })
}

async fn listed(
    front: &Front,
    key: Credential,
    sandbox: Option<String>,
    query: &str,
) -> Result<Response, Refusal> {
    let (mut offset, mut limit, mut oldest_first) = (0, 10, false);
    let mut types = Vec::new();
    for (name, value) in pairs(query) {
        match name.as_str() {
            "offset" => offset = value.parse().unwrap_or(0),
            "limit" => limit = value.parse::<u64>().unwrap_or(10).clamp(1, 100),
            "orderAsc" => oldest_first = value == "true",
            "types" => types.push(value),
            _ => {}
        }
    }
    let ask = ListLifecycleEvents {
        sandbox,
        offset,
        limit,
        oldest_first,
    };
    let all = front.call(key, ask).await?;
    let wanted = all
        .iter()
        .filter(|one| types.is_empty() || types.contains(&type_of(&one.kind)));
    let told: Vec<Value> = wanted.map(rendered).collect();
    Ok(answer_json(StatusCode::OK, &told))
}
