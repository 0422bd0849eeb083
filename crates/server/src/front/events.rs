//! Events of sandboxes' lives, and webhooks that get them, in the form of E2B's control API.

use super::dialect::*;
use crate::lifecycle::{rendered, type_of};

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
pub(crate) async fn answer(caller: &Caller, rest: &[&str], request: Request<Body>) -> Answered {
    match (rest, request.method().as_str()) {
        (["sandboxes", rest @ ..], "GET") if rest.len() < 2 => {
            let sandbox = rest.first().map(|id| plain_id(id));
            listed(caller, sandbox, request.uri()).await
        }
        (["webhooks"], "GET") => {
            let all = caller.call(ListWebhooks {}).await?;
            each(&all, described)
        }
        (["webhooks"], "POST") => {
            let asked: Webhook = body(request).await?;
            let made = caller.call(MakeWebhook(asked.into())).await?;
            Ok(answer_json(StatusCode::CREATED, &described(&made)))
        }
        (["webhooks", id], method) => {
            let id = (*id).to_owned();
            ok(&described(&match method {
                "GET" => caller.call(GetWebhook { id }).await?,
                "DELETE" => return done(StatusCode::OK, caller.call(RemoveWebhook { id }).await),
                "PATCH" => {
                    let change = body::<Webhook>(request).await?.into();
                    caller.call(ChangeWebhook { id, change }).await?
                }
                _ => return Err(not_offered(&request)),
            }))
        }
        _ => Err(not_offered(&request)),
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

async fn listed(caller: &Caller, sandbox: Option<String>, uri: &Uri) -> Answered {
    let (mut offset, mut limit, mut oldest_first) = (0, 10, false);
    let mut types = Vec::new();
    for (name, value) in pairs(uri.query().unwrap_or_default()) {
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
    let all = caller.call(ask).await?;
    let is_wanted =
        |one: &&LifecycleEventFacts| types.is_empty() || types.contains(&type_of(&one.kind));
    each(all.iter().filter(is_wanted), rendered)
}
