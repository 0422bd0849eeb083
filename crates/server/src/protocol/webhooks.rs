//! Requests about webhooks.

use serde::{Deserialize, Serialize};

use super::request::requests;

requests! {
    /// A request about the tenant's webhooks.
    WebhooksAsk {
        /// Lists them.
        ListWebhooks {} -> Vec<WebhookFacts>;
        /// Describes one.
        GetWebhook { id: String } -> WebhookFacts;
        /// Makes one.
        MakeWebhook(WebhookAsk) -> WebhookFacts;
        /// Changes one, in the fields that are there.
        ChangeWebhook { id: String, change: WebhookAsk } -> WebhookFacts;
        /// Removes one.
        RemoveWebhook { id: String } -> ();
    }
}

/// The fields of a webhook, as a caller sets them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct WebhookAsk {
    pub name: Option<String>,
    pub url: Option<String>,
    pub enabled: Option<bool>,
    /// The types of events that are sent.
    pub events: Option<Vec<String>>,
    /// The secret that deliveries are signed with.
    pub secret: Option<Secret>,
}

/// A secret. Not shown.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Secret")
    }
}

/// A webhook, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct WebhookFacts {
    pub id: String,
    pub tenant: String,
    pub name: String,
    pub url: String,
    pub enabled: bool,
    /// The types of events that are sent.
    pub events: Vec<String>,
    pub created_ms: u64,
}
