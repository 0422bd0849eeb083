//! Tokens that Atoll itself asks for: what is asked, of whom, and by what it says who asks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Endpoint;

/// How long asking for a token may take by default.
pub const TOKEN_PATIENCE_S: u64 = 30;

/// What Atoll itself asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum TokenRequest {
    /// A token of OAuth 2.0.
    #[serde(rename = "oauth")]
    OAuth(OAuthRequest),
    /// A token of an installation of a GitHub App.
    GithubApp(AppRequest),
}

impl TokenRequest {
    /// The secrets that it takes, in the order in which they are handed over.
    #[must_use]
    pub fn ingredients(&self) -> Vec<Ingredient> {
        match self {
            Self::OAuth(request) => request.ingredients(),
            Self::GithubApp(_) => vec![Ingredient::PrivateKey],
        }
    }

    /// Who is asked.
    #[must_use]
    pub fn endpoints(&self) -> Vec<&Endpoint> {
        match self {
            Self::OAuth(request) => {
                let token = std::iter::once(&request.token);
                token.chain(&request.revoke).collect()
            }
            Self::GithubApp(request) => vec![&request.api],
        }
    }

    /// Whether what it gives is taken back at the end.
    #[must_use]
    pub fn is_taken_back(&self) -> bool {
        match self {
            Self::OAuth(request) => request.revoke.is_some(),
            Self::GithubApp(_) => true,
        }
    }
}

/// A token of OAuth 2.0 (RFC 6749).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OAuthRequest {
    /// Who is asked for it.
    pub token: Endpoint,
    /// Who takes it back (RFC 7009).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoke: Option<Endpoint>,
    /// By whom: the client's id.
    pub client: String,
    /// How the client says who it is.
    pub authentication: ClientAuthentication,
    /// By what right.
    pub grant: TokenGrant,
    /// What it is to be good for; without one whatever its issuer thinks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scope: Vec<String>,
    /// For whom, by the names that they have at its issuer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audience: Vec<String>,
    /// For whom, by their addresses (RFC 8707).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource: Vec<String>,
    /// How long asking may take, seconds.
    pub patience_s: u64,
}

/// How a client says who it is (RFC 6749, 2.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientAuthentication {
    /// By its id alone: it has no secret.
    Public,
    /// By basic authentication.
    Basic,
    /// By fields of the request.
    Post,
}

/// By what right a token is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum TokenGrant {
    /// The client's own (RFC 6749, 4.4).
    ClientCredentials,
    /// A person's, who has logged in before (RFC 6749, 6).
    Refresh,
    /// Another token's (RFC 8693).
    Exchange {
        /// What kind that is: a name as in RFC 8693, section 3.
        kind: String,
    },
}

/// A secret by which a token is asked for, that goes to nobody but its issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ingredient {
    /// The client's secret.
    ClientSecret,
    /// What stands for a person's login.
    RefreshToken,
    /// The token that is exchanged.
    SubjectToken,
    /// The key that signs for an app, in PEM: it is sent to nobody.
    PrivateKey,
}

impl OAuthRequest {
    /// What it takes, in this order.
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

    /// Whether nothing says what the token is to be good for.
    #[must_use]
    pub fn is_broad(&self) -> bool {
        self.scope.is_empty() && self.audience.is_empty() && self.resource.is_empty()
    }
}

impl TokenGrant {
    /// What it takes besides what the client says of itself.
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
    /// The beginning of who is asked.
    pub api: Endpoint,
    /// The app's number.
    pub app: u64,
    /// The installation's.
    pub installation: u64,
    /// The repositories that it is for, by their names alone; without one all of the
    /// installation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repositories: Vec<String>,
    /// What it may do; without one all that the app may.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub permissions: BTreeMap<String, Permission>,
    /// How long asking may take, seconds.
    pub patience_s: u64,
}

/// How much of something may be done, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// It can be read.
    Read,
    /// And changed.
    Write,
    /// And managed.
    Admin,
}

impl Permission {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Admin];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}
