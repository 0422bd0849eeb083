//! Webhooks: each tenant's own, made by its administrators.
//!
//! `target` decides where they may lead, `delivery` sends what waits in the store.

mod delivery;
mod target;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use atoll_store::{NewWebhook, Role, ServedError, Webhook, WebhookChange};
use rustls::ClientConfig;
use target::{NotAllowed, Target};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::answers::Answer;
use super::answers::Answered;
use super::answers::fault;
use super::caller::Caller;
use super::list::List;
use super::server::Server;
use super::shares::{Of, Share};
use crate::configuration::WebhookHost;
use crate::lifecycle::{KINDS, kind_of, type_of};
use crate::protocol::{ChangeWebhook, Kind, Refusal, WebhookAsk, WebhookFacts, WebhooksAsk};
use crate::rfc3339::milliseconds;

/// The most webhooks of a tenant.
const WEBHOOKS_MAX: u64 = 16;
/// The longest name, bytes.
const NAME_BYTES_MAX: usize = 256;
/// The length of a secret, bytes.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=256;
/// The longest time in which a name is looked up for whoever makes a webhook.
const LOOKED_UP_WITHIN: Duration = Duration::from_secs(5);

/// The webhooks of tenants, and the events of sandboxes' lives that they are sent.
pub(super) struct Webhooks {
    pub(super) server: Arc<Server>,
    pub(super) list: Arc<List>,
    pub(super) sender: Sender,
    /// Told when something waits to be delivered.
    pub(super) woken: Notify,
    pub(super) delivered: AtomicU64,
    pub(super) given_up: AtomicU64,
    pub(super) dropped: AtomicU64,
}

/// The way to the targets of webhooks.
pub(super) struct Sender {
    /// The hosts that may be reached though they are not public.
    named: Vec<WebhookHost>,
    tls: OnceLock<Option<Arc<ClientConfig>>>,
}

impl Sender {
    pub(super) fn new(named: &[WebhookHost]) -> Self {
        Self {
            named: named.to_vec(),
            tls: OnceLock::new(),
        }
    }

    /// Refuses an address that webhooks may not lead to, now. Each delivery decides anew.
    async fn check(&self, url: &str, share: Share) -> Result<(), Refusal> {
        let target = Target::parse(url)
            .map_err(|why| Refusal::new(Kind::Invalid, format!("the url of a webhook: {why}")))?;
        let share = Arc::new(share);
        let found = timeout(LOOKED_UP_WITHIN, target.addresses(&self.named, &share)).await;
        let found = found.unwrap_or(Err(NotAllowed::Unresolved));
        found.map(drop).map_err(|why| {
            let place = target.place();
            let what = format!("a webhook to {place} is not allowed: {why}");
            Refusal::new(Kind::Forbidden, what)
                .advise(format!("webhooks = [\"{place}\"] in serve.toml allows it"))
        })
    }
}

impl Webhooks {
    pub(super) fn new(server: Arc<Server>, list: Arc<List>) -> Self {
        Self {
            sender: Sender::new(&server.configuration.webhooks),
            server,
            list,
            woken: Notify::new(),
            delivered: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }
}

impl Webhooks {
    /// Carries out a request about webhooks: an administrator's alone.
    pub(super) async fn webhooks(
        &self,
        caller: &Caller,
        ask: WebhooksAsk,
    ) -> Result<Answered, Refusal> {
        if caller.role != Role::Administrator {
            let what = format!(
                "webhooks are for administrators, and this caller is {}",
                caller.role.name()
            );
            return Err(Refusal::new(Kind::Forbidden, what));
        }
        let tenant = &caller.tenant;
        match ask {
            WebhooksAsk::ListWebhooks(ask) => {
                let all = self
                    .server
                    .store
                    .webhooks(tenant)
                    .map_err(|error| fault(&error))?;
                ask.answer(all.into_iter().map(facts).collect())
            }
            WebhooksAsk::GetWebhook(ask) => {
                let found = self.server.store.webhook(tenant, &ask.id);
                ask.answer(facts(found.map_err(refused)?))
            }
            WebhooksAsk::MakeWebhook(ask) => ask.answer(self.make_webhook(tenant, &ask.0).await?),
            WebhooksAsk::ChangeWebhook(ask) => ask.answer(self.change_webhook(tenant, &ask).await?),
            WebhooksAsk::RemoveWebhook(ask) => {
                let removed = self.server.store.remove_webhook(tenant, &ask.id);
                ask.answer(removed.map_err(refused)?)
            }
        }
    }

    async fn make_webhook(
        &self,
        tenant: &str,
        asked: &WebhookAsk,
    ) -> Result<WebhookFacts, Refusal> {
        let kinds = self.checked(tenant, asked).await?;
        let (Some(name), Some(url), Some(kinds), Some(secret)) =
            (&asked.name, &asked.url, &kinds, &asked.secret)
        else {
            let what = "a webhook has name, url, events and signatureSecret";
            return Err(Refusal::new(Kind::Invalid, what));
        };
        let wanted = NewWebhook {
            tenant,
            name,
            url,
            enabled: asked.enabled.unwrap_or(true),
            kinds,
            secret: &secret.0,
            at_ms: milliseconds(SystemTime::now()),
        };
        let made = self.server.store.make_webhook(&wanted, WEBHOOKS_MAX);
        made.map(facts).map_err(refused)
    }

    async fn change_webhook(
        &self,
        tenant: &str,
        ask: &ChangeWebhook,
    ) -> Result<WebhookFacts, Refusal> {
        let ChangeWebhook { id, change } = ask;
        // First whether it is there: of another's nothing is said, and no name looked up.
        self.server.store.webhook(tenant, id).map_err(refused)?;
        let kinds = self.checked(tenant, change).await?;
        let wanted = WebhookChange {
            name: change.name.as_deref(),
            url: change.url.as_deref(),
            enabled: change.enabled,
            kinds: kinds.as_deref(),
            secret: change.secret.as_ref().map(|secret| secret.0.as_str()),
        };
        let changed = self.server.store.change_webhook(tenant, id, &wanted);
        changed.map(facts).map_err(refused)
    }

    /// Checks the fields that are there; returns the kinds of events.
    async fn checked(
        &self,
        tenant: &str,
        asked: &WebhookAsk,
    ) -> Result<Option<Vec<String>>, Refusal> {
        let invalid = |what: String| Err(Refusal::new(Kind::Invalid, what));
        let fits = |name: &String| (1..=NAME_BYTES_MAX).contains(&name.len());
        if !asked.name.as_ref().is_none_or(fits) {
            return invalid(format!(
                "the name of a webhook has 1 to {NAME_BYTES_MAX} bytes"
            ));
        }
        let lengths = asked.secret.as_ref().map(|secret| secret.0.len());
        if !lengths.is_none_or(|bytes| SECRET_BYTES.contains(&bytes)) {
            let (least, most) = (SECRET_BYTES.start(), SECRET_BYTES.end());
            return invalid(format!("signatureSecret has {least} to {most} bytes"));
        }
        let kinds = asked
            .events
            .as_ref()
            .map(|types| kinds(types))
            .transpose()?;
        if let Some(url) = &asked.url {
            let share = self.server.shares.take(Of::Deliveries, tenant, 1)?;
            self.sender.check(url, share).await?;
        }
        Ok(kinds)
    }
}

/// Reads types of events; each kind comes once.
fn kinds(types: &[String]) -> Result<Vec<String>, Refusal> {
    let mut kinds = Vec::new();
    for name in types {
        let Some(kind) = kind_of(name) else {
            let what = format!("there is no type of events {name:?}");
            let all: Vec<String> = KINDS.into_iter().map(type_of).collect();
            return Err(Refusal::new(Kind::Invalid, what).advise(all.join(", ")));
        };
        if !kinds.iter().any(|known| known == kind) {
            kinds.push(kind.to_owned());
        }
    }
    match kinds.is_empty() {
        true => Err(Refusal::new(
            Kind::Invalid,
            "events of a webhook names one type at least",
        )),
        false => Ok(kinds),
    }
}

fn refused(error: ServedError) -> Refusal {
    match error {
        ServedError::NoWebhook(_) => Refusal::new(Kind::NotFound, error.to_string()),
        ServedError::ManyWebhooks(_) => {
            Refusal::new(Kind::Quota, error.to_string()).advise("remove one")
        }
        _ => fault(&error),
    }
}

fn facts(webhook: Webhook) -> WebhookFacts {
    WebhookFacts {
        id: webhook.id,
        tenant: webhook.tenant,
        name: webhook.name,
        url: webhook.url,
        enabled: webhook.enabled,
        events: webhook.kinds.iter().map(|kind| type_of(kind)).collect(),
        created_ms: webhook.created_ms,
    }
}
