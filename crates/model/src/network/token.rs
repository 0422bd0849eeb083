//! Tokens that Atoll itself requests: the request, its endpoint, and the client's authentication.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Endpoint;

/// The default time that a request for a token may take, seconds.
pub const TOKEN_PATIENCE_S: u64 = 30;

/// A request of Atoll's own for a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum TokenRequest {
    /// A token of OAuth 2.0.
    #[serde(rename = "oauth")]
    OAuth(OAuthRequest),
    /// A token of an installation of a GitHub App.
    GithubApp(AppRequest),
    /// A token of a Kubernetes service account.
    Kubernetes(KubernetesRequest),
}

impl TokenRequest {
    /// Returns the secrets that it needs, in the order in which they are handed over.
    #[must_use]
    pub fn ingredients(&self) -> Vec<Ingredient> {
        match self {
            Self::OAuth(request) => request.ingredients(),
            Self::GithubApp(_) => vec![Ingredient::PrivateKey],
            Self::Kubernetes(_) => vec![Ingredient::SubjectToken],
        }
    }

    /// Returns its endpoints.
    #[must_use]
    pub fn endpoints(&self) -> Vec<&Endpoint> {
        match self {
            Self::OAuth(request) => {
                let token = std::iter::once(&request.token);
                token.chain(&request.revoke).collect()
            }
            Self::GithubApp(request) => vec![&request.api],
            Self::Kubernetes(request) => vec![&request.server],
        }
    }

    /// Returns whether its token is revoked at the end.
    #[must_use]
    pub fn is_taken_back(&self) -> bool {
        match self {
            Self::OAuth(request) => request.revoke.is_some(),
            Self::GithubApp(_) => true,
            Self::Kubernetes(_) => false,
        }
    }
}

/// A token of OAuth 2.0 (RFC 6749).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OAuthRequest {
    /// The token endpoint.
    pub token: Endpoint,
    /// The revocation endpoint (RFC 7009).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoke: Option<Endpoint>,
    /// The client's id.
    pub client: String,
    /// The client's authentication.
    pub authentication: ClientAuthentication,
    /// The grant.
    pub grant: TokenGrant,
    /// The scopes of the token; empty for the issuer's default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scope: Vec<String>,
    /// The services that it is for, by their names at its issuer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audience: Vec<String>,
    /// The services that it is for, by their addresses (RFC 8707).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource: Vec<String>,
    /// The time that the request may take, seconds.
    pub patience_s: u64,
}

/// The authentication of a client (RFC 6749, 2.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientAuthentication {
    /// None but its id: it has no secret.
    Public,
    /// HTTP basic authentication.
    Basic,
    /// Fields of the request's body.
    Post,
}

/// The grant by which a token is requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum TokenGrant {
    /// The client's own rights (RFC 6749, 4.4).
    ClientCredentials,
    /// The rights of a person who has logged in before (RFC 6749, 6).
    Refresh,
    /// The rights of another token (RFC 8693).
    Exchange {
        /// The other token's type: a name as in RFC 8693, section 3.
        kind: String,
    },
}

/// A secret needed to request a token, sent to its issuer alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ingredient {
    /// The client's secret.
    ClientSecret,
    /// The refresh token of a person's login.
    RefreshToken,
    /// The token that is exchanged, or by which another one is asked for.
    SubjectToken,
    /// The private key that signs for an app, PEM: it is never sent.
    PrivateKey,
}

impl OAuthRequest {
    /// Returns the secrets that it needs, in this order.
    #[must_use]
    pub fn ingredients(&self) -> Vec<Ingredient> {
        let secret = match self.authentication {
            ClientAuthentication::Public => None,
            ClientAuthentication::Basic | ClientAuthentication::Post => {
                Some(Ingredient::ClientSecret)
            }
        };
        secret.into_iter().chain(self.grant.ingredient()).collect()
    }

    /// Returns whether nothing restricts the token.
    #[must_use]
    pub fn is_broad(&self) -> bool {
        self.scope.is_empty() && self.audience.is_empty() && self.resource.is_empty()
    }
}

impl TokenGrant {
    /// Returns the secret that it needs besides the client's own.
    #[must_use]
    pub fn ingredient(&self) -> Option<Ingredient> {
        match self {
            Self::ClientCredentials => None,
            Self::Refresh => Some(Ingredient::RefreshToken),
            Self::Exchange { .. } => Some(Ingredient::SubjectToken),
        }
    }
}

/// A token of an installation of a GitHub App.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppRequest {
    /// The beginning of the API's URL.
    pub api: Endpoint,
    /// The app's id.
    pub app: u64,
    /// The installation's id.
    pub installation: u64,
    /// The repositories that it is for, without their owner; empty for all of the installation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repositories: Vec<String>,
    /// The permissions of the token; empty for all that the app has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub permissions: BTreeMap<String, Permission>,
    /// The time that the request may take, seconds.
    pub patience_s: u64,
}

/// A token of a service account (Kubernetes' TokenRequest API).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KubernetesRequest {
    /// The beginning of the API server's URL.
    pub server: Endpoint,
    /// The account's namespace.
    pub namespace: String,
    /// The account's name.
    pub account: String,
    /// The services that it is for; empty for the API server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audience: Vec<String>,
    /// The time that the request may take, seconds.
    pub patience_s: u64,
}

/// A level of permission, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// Reading.
    Read,
    /// Reading and changing.
    Write,
    /// Reading, changing and managing.
    Admin,
}

impl Permission {
    /// All levels.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Admin];

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}
