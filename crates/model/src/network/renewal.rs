//! Logins that Atoll renews itself: whom it asks, and what the process that asks and the one
//! that keeps the file say to each other.

use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use super::{Endpoint, FieldPath};

/// How a login is renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// What is asked, and of whom.
    pub request: RenewalRequest,
    /// Where in its file the refresh token is.
    pub refresh: FieldPath,
    /// Where a token is that says who has logged in (OpenID Connect).
    pub id: Option<FieldPath>,
    /// Where the time is at which the access token ends: since 1970, in seconds, or from
    /// 100,000,000,000 on in milliseconds.
    pub expires: Option<FieldPath>,
    /// Where it says what the tokens are good for: a text, or a list of them.
    pub scopes: Option<FieldPath>,
    /// Where the time is at which it was renewed last, as RFC 3339 writes it.
    pub noted: Option<FieldPath>,
}

/// What is asked for another access token (RFC 6749, 6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenewalRequest {
    /// Who is asked.
    pub token: Endpoint,
    /// As whom: the id of the agent's client.
    pub client: String,
    /// What the agent's makers have published as that client's secret, which is none.
    #[serde(default, skip_serializing_if = "PublishedSecret::is_none")]
    pub published: PublishedSecret,
    /// How it is written.
    pub form: RenewalForm,
    /// What the token is to be good for; without one whatever it was good for before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scope: Vec<String>,
}

/// What an agent's makers have published as the secret of its client (RFC 6749, 2.3.1). Whoever
/// has the agent has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PublishedSecret {
    /// Its issuer wants none.
    #[default]
    None,
    /// This text.
    Named(String),
    /// What the agent itself sends as `client_secret` when it would renew its login.
    Sent,
}

impl PublishedSecret {
    /// Whether there is none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

/// How a request for a token is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RenewalForm {
    /// As `application/x-www-form-urlencoded`.
    Form,
    /// As a JSON object.
    Json,
}

/// The tokens of a login file, as they stand there now.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginTokens {
    /// What is put into requests.
    pub access: String,
    /// What another one is asked for by.
    pub refresh: String,
    /// When the first ends, where the file says that: seconds since 1970.
    pub ends_s: Option<u64>,
}

/// What an issuer has given in their places.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Renewed {
    /// What is put into requests.
    pub access: String,
    /// What is asked by the next time, where that is another one.
    pub refresh: Option<String>,
    /// Who has logged in, where that was said.
    pub id: Option<String>,
    /// When the first ends, where that is known: seconds since 1970.
    pub ends_s: Option<u64>,
}

/// What who keeps the file says to who renews: its tokens first, then what became of those
/// that it was given for them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RenewalSaid {
    /// This is in it. In answer to a [`Renewed`]: others were there by then, and they stay.
    There(LoginTokens),
    /// What it was given is in it, on disk.
    Written,
    /// It cannot be used, or not be changed: why. Nothing of it is in the words.
    Unfit(String),
}

/// What who keeps a refresh token of `oauth` says to who asks by it: what it is now, then what
/// became of the one that was given in its place.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum KeptSaid {
    /// This is there. In answer to another one: somebody has put this there by then, and it
    /// stays.
    There(KeptToken),
    /// What was handed over is used, and what comes in its place can be kept nowhere: why.
    Unkept(String),
    /// What it was given is there, on disk.
    Written,
    /// It cannot be used, or not be changed now: why. Nothing of it is in the words.
    Unfit(String),
}

/// A refresh token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeptToken(String);

impl KeptToken {
    /// This one.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// What it is.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl Drop for KeptToken {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Drop for LoginTokens {
    fn drop(&mut self) {
        self.access.zeroize();
        self.refresh.zeroize();
    }
}

impl Drop for Renewed {
    fn drop(&mut self) {
        self.access.zeroize();
        self.refresh.zeroize();
        self.id.zeroize();
    }
}
