//! Logins that Atoll renews itself, and the protocol between the process that renews them and the
//! one that keeps their files.

use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use super::{Endpoint, FieldPath};

/// The renewal of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The request, with the endpoint that it goes to.
    pub request: RenewalRequest,
    /// The field of the login file that has the refresh token.
    pub refresh: FieldPath,
    /// The field that has the ID token (OpenID Connect).
    pub id: Option<FieldPath>,
    /// The field that has the access token's expiry: since 1970, in seconds, or from
    /// 100,000,000,000 on in milliseconds.
    pub expires: Option<FieldPath>,
    /// The field that has the tokens' scopes: a text, or a list of them.
    pub scopes: Option<FieldPath>,
    /// The field that has the time of the last renewal, in the form of RFC 3339.
    pub noted: Option<FieldPath>,
}

/// A request for another access token (RFC 6749, 6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenewalRequest {
    /// The token endpoint.
    pub token: Endpoint,
    /// The id of the agent's client.
    pub client: String,
    /// The client's published "secret", which is no secret.
    #[serde(default, skip_serializing_if = "PublishedSecret::is_none")]
    pub published: PublishedSecret,
    /// The encoding of its body.
    pub form: RenewalForm,
    /// The scopes of the new token; empty for those of the old one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scope: Vec<String>,
}

/// The text that an agent's makers have published as the secret of its client (RFC 6749, 2.3.1).
/// Everybody who has the agent has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PublishedSecret {
    /// The issuer requires none.
    #[default]
    None,
    /// This published text.
    Named(String),
    /// The value that the agent itself sends as `client_secret` when it tries to renew its login.
    Sent,
}

impl PublishedSecret {
    /// Returns whether there is none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

/// The encoding of a token request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RenewalForm {
    /// As `application/x-www-form-urlencoded`.
    Form,
    /// As a JSON object.
    Json,
}

/// The tokens of a login file, as they are now.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginTokens {
    /// The access token, which is injected into requests.
    pub access: String,
    /// The refresh token.
    pub refresh: String,
    /// The access token's expiry, if the file has it: seconds since 1970.
    pub ends_s: Option<u64>,
}

/// The tokens that an issuer has given in return.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Renewed {
    /// The access token, which is injected into requests.
    pub access: String,
    /// The next refresh token, if it is another one.
    pub refresh: Option<String>,
    /// The ID token, if the answer had one.
    pub id: Option<String>,
    /// The access token's expiry, if known: seconds since 1970.
    pub ends_s: Option<u64>,
}

/// A message from the keeper of a login file to the process that renews it: the file's tokens
/// first, then the result of writing their successors.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RenewalSaid {
    /// The file's tokens. In answer to a [`Renewed`]: the file had changed in the meantime, and
    /// keeps these.
    There(LoginTokens),
    /// The new tokens are in the file, on disk.
    Written,
    /// The file is unusable, or cannot be changed, for this reason. The text has nothing of the
    /// file's content.
    Unfit(String),
}

/// A message from the keeper of an `oauth` refresh token to the process that uses it: the current
/// token, then the result of replacing it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum KeptSaid {
    /// The current token. In answer to a replacement: somebody has replaced it in the meantime, and
    /// this one stays.
    There(KeptToken),
    /// The token handed over has been used, and its successor cannot be stored, for this reason.
    Unkept(String),
    /// The new token is stored, on disk.
    Written,
    /// The token is unusable, or cannot be replaced now, for this reason. The text has nothing of
    /// the token.
    Unfit(String),
}

/// A refresh token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeptToken(String);

impl KeptToken {
    /// Wraps a token's text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the token's text.
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
