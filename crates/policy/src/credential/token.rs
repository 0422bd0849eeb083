//! OAuth 2.0 tokens that Atoll requests itself when a request needs one, and the secrets that this
//! takes.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_model::SecretName;
use atoll_model::network::{
    ClientAuthentication, Endpoint, Ingredient, OAuthRequest, Shape, TOKEN_PATIENCE_S, TokenGrant,
    TokenRequest,
};

use super::command::parse_patience;
use super::{app, kubernetes, parse_secret, parse_variable};
use crate::document::{Complaint, Document, Section};
use crate::network::rule::{complaint_of, texts};
use crate::places::{Place, parse_place};
use crate::quoting::quoted;

/// The table's name in messages.
const TABLE: &str = "credential.NAME.source.oauth";
const KEYS: [&str; 13] = [
    "token",
    "client",
    "secret",
    "authentication",
    "grant",
    "refresh",
    "subject",
    "subject-type",
    "scope",
    "audience",
    "resource",
    "revoke",
    "timeout",
];

/// The prefix of full names of token types (RFC 8693, 3).
const KINDS: &str = "urn:ietf:params:oauth:token-type:";
const KIND: &str = "access_token";
/// The longest name of a client, an audience and the like, bytes.
const NAME_BYTES_MAX: usize = 512;
/// The most names of one kind.
pub(super) const NAMES_MAX: usize = 32;

/// A token to be requested, and the sources of the secrets that this takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSource {
    /// The request.
    pub request: TokenRequest,
    /// The secrets, in the order of [`TokenRequest::ingredients`].
    pub secrets: Vec<SecretSource>,
}

/// The source of a secret that a token request takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// A variable of Atoll's own environment.
    Variable(String),
    /// A file of the host, absolute: its content without the final line ending.
    File(PathBuf),
    /// A secret of the vault.
    Vault(SecretName),
}

/// A token source as written.
#[derive(Clone, Debug)]
pub(super) struct WrittenToken {
    pub(super) request: TokenRequest,
    pub(super) secrets: Vec<WrittenSecret>,
}

#[derive(Clone, Debug)]
pub(super) enum WrittenSecret {
    Variable(String),
    File(Place),
    Vault(SecretName),
}

impl WrittenToken {
    pub(super) fn resolved(self, home: &Path) -> TokenSource {
        let resolved = |secret| match secret {
            WrittenSecret::Variable(name) => SecretSource::Variable(name),
            WrittenSecret::File(place) => SecretSource::File(place.resolve(home)),
            WrittenSecret::Vault(name) => SecretSource::Vault(name),
        };
        TokenSource {
            request: self.request,
            secrets: self.secrets.into_iter().map(resolved).collect(),
        }
    }

    /// Returns a remark on rights that could be narrower, for a check of a profile.
    pub(super) fn remark(&self) -> Option<String> {
        match &self.request {
            TokenRequest::OAuth(request) => remark(request),
            TokenRequest::GithubApp(request) => app::remark(request),
            TokenRequest::Kubernetes(_) => Some(kubernetes::remark()),
        }
    }
}

fn remark(request: &OAuthRequest) -> Option<String> {
    let client = &request.client;
    let broad = format!(
        "its token is good for all that the client {client} may do: `scope`, `audience` or \
         `resource` ask for less"
    );
    let kept = "its token is good until it expires, also after the run: `revoke` has it taken \
                back, where its issuer does that";
    match (request.is_broad(), request.revoke.is_none()) {
        (true, true) => Some(format!("{broad}; {kept}")),
        (true, false) => Some(broad),
        (false, true) => Some(kept.to_owned()),
        (false, false) => None,
    }
}

impl TokenSource {
    /// Returns the host's variables.
    pub(super) fn variables(&self) -> Vec<&str> {
        let all = self.secrets.iter();
        all.filter_map(SecretSource::variable).collect()
    }

    /// Returns the host's files.
    pub(super) fn files(&self) -> Vec<&Path> {
        let all = self.secrets.iter();
        all.filter_map(|secret| match secret {
            SecretSource::File(file) => Some(file.as_path()),
            SecretSource::Variable(_) | SecretSource::Vault(_) => None,
        })
        .collect()
    }

    /// Returns the default shape of its placeholder.
    #[must_use]
    pub fn shape(&self) -> Shape {
        match self.request {
            TokenRequest::OAuth(_) | TokenRequest::Kubernetes(_) => Shape::opaque(),
            TokenRequest::GithubApp(_) => Shape::of_installation(),
        }
    }

    /// Formats the source as written in a profile.
    pub(super) fn text(&self) -> String {
        match &self.request {
            TokenRequest::OAuth(request) => oauth_text(request, &self.secrets),
            TokenRequest::GithubApp(request) => app::text(request, &self.secrets),
            TokenRequest::Kubernetes(request) => kubernetes::text(request, &self.secrets),
        }
    }
}

fn oauth_text(request: &OAuthRequest, secrets: &[SecretSource]) -> String {
    let OAuthRequest {
        token,
        revoke,
        client,
        authentication,
        grant,
        scope,
        audience,
        resource,
        patience_s,
    } = request;
    let mut parts = vec![
        format!("token = {}", quoted(&token.to_string())),
        format!("client = {}", quoted(client)),
    ];
    if *authentication == ClientAuthentication::Post {
        parts.push("authentication = \"post\"".to_owned());
    }
    let grant = match grant {
        TokenGrant::ClientCredentials => "grant = \"client-credentials\"".to_owned(),
        TokenGrant::Refresh => "grant = \"refresh\"".to_owned(),
        TokenGrant::Exchange { kind } => {
            let kind = kind.strip_prefix(KINDS).unwrap_or(kind);
            format!("grant = \"exchange\", subject-type = {}", quoted(kind))
        }
    };
    parts.push(grant);
    for (which, secret) in request.ingredients().into_iter().zip(secrets) {
        parts.push(format!("{} = {}", key_of(which), secret.text()));
    }
    for (key, names) in [
        ("scope", scope),
        ("audience", audience),
        ("resource", resource),
    ] {
        if !names.is_empty() {
            let names: Vec<_> = names.iter().map(|name| quoted(name)).collect();
            parts.push(format!("{key} = [{}]", names.join(", ")));
        }
    }
    let revoke = revoke.as_ref();
    parts.extend(revoke.map(|one| format!("revoke = {}", quoted(&one.to_string()))));
    if *patience_s != TOKEN_PATIENCE_S {
        parts.push(format!("timeout = \"{patience_s}s\""));
    }
    format!("{{ oauth = {{ {} }} }}", parts.join(", "))
}

impl SecretSource {
    /// Returns the host's variable, if the secret is in one.
    #[must_use]
    pub fn variable(&self) -> Option<&str> {
        match self {
            Self::Variable(name) => Some(name),
            Self::File(_) | Self::Vault(_) => None,
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Variable(name) => format!("{{ environment = {} }}", quoted(name)),
            Self::File(file) => format!("{{ file = {} }}", quoted(&file.to_string_lossy())),
            Self::Vault(name) => format!("{{ vault = {} }}", quoted(name.as_str())),
        }
    }
}

/// Returns the key of a secret in a profile.
fn key_of(which: Ingredient) -> &'static str {
    match which {
        Ingredient::ClientSecret => "secret",
        Ingredient::RefreshToken => "refresh",
        Ingredient::SubjectToken => "subject",
        Ingredient::PrivateKey => "key",
    }
}

/// The grant of a token request, with the authentication and the secrets that it takes.
struct Right {
    grant: TokenGrant,
    authentication: ClientAuthentication,
    secrets: Vec<WrittenSecret>,
}

pub(super) fn read(document: &mut Document, within: &mut Section<'_>) -> Option<WrittenToken> {
    let (at, mut section) = document.placed(within, "oauth", TABLE)?;
    let before = document.problem_count();
    let token = document.text(&mut section, "token", parse_endpoint);
    let revoke = document.text(&mut section, "revoke", parse_endpoint);
    let client = document.text(&mut section, "client", parse_name);
    let right = read_right(document, &mut section, &at);
    let scope = texts(document, &mut section, "scope", &at, parse_scope);
    let audience = names(document, &mut section, "audience", &at, parse_name);
    let resource = names(document, &mut section, "resource", &at, parse_resource);
    let patience = document.text(&mut section, "timeout", parse_patience);
    document.end(section, &KEYS);
    let scope = scope.unwrap_or_default();
    if [&scope, &audience, &resource]
        .iter()
        .any(|names| names.len() > NAMES_MAX)
    {
        let what = format!("`scope`, `audience` and `resource` have {NAMES_MAX} entries at most");
        document.report(&at, what, None);
    }
    if document.problem_count() > before {
        return None;
    }
    let (Some(token), Some(client), Some(right)) = (token, client, right) else {
        let what = "`oauth` needs `token` and `client`: whom to ask, and as whom";
        let hint = "as { token = \"https://login.example.com/oauth/token\", client = \"ID\", \
                    secret = { vault = \"NAME\" } }";
        document.report(&at, what.to_owned(), Some(hint.to_owned()));
        return None;
    };
    let patience = patience.map_or(TOKEN_PATIENCE_S, |one: crate::origin::Sourced<Duration>| {
        one.value.as_secs()
    });
    Some(WrittenToken {
        request: TokenRequest::OAuth(OAuthRequest {
            token: token.value,
            revoke: revoke.map(|one| one.value),
            client: client.value,
            authentication: right.authentication,
            grant: right.grant,
            scope,
            audience,
            resource,
            patience_s: patience,
        }),
        secrets: right.secrets,
    })
}

/// Reads the grant of a token request, and the secrets that it takes.
fn read_right(
    document: &mut Document,
    section: &mut Section<'_>,
    at: &Range<usize>,
) -> Option<Right> {
    let kind = document.text(section, "subject-type", parse_kind);
    let grant = document.text(section, "grant", parse_grant);
    let grant = grant.map_or(TokenGrant::ClientCredentials, |grant| grant.value);
    let grant = match (grant, kind) {
        (TokenGrant::Exchange { .. }, Some(kind)) => TokenGrant::Exchange { kind: kind.value },
        (_, Some(_)) => {
            let what = "`subject-type` is for grant = \"exchange\"";
            document.report(at, what.to_owned(), None);
            return None;
        }
        (grant, None) => grant,
    };
    let before = document.problem_count();
    let authentication = document.text(section, "authentication", parse_authentication);
    let secret = read_secret(
        document,
        section,
        "secret",
        "credential.NAME.source.oauth.secret",
    );
    let refresh = read_secret(
        document,
        section,
        "refresh",
        "credential.NAME.source.oauth.refresh",
    );
    let subject = read_secret(
        document,
        section,
        "subject",
        "credential.NAME.source.oauth.subject",
    );
    if document.problem_count() > before {
        return None;
    }
    let (own, other, key) = match grant {
        TokenGrant::ClientCredentials => (None, refresh.or(subject), "secret"),
        TokenGrant::Refresh => (refresh, subject, "refresh"),
        TokenGrant::Exchange { .. } => (subject, refresh, "subject"),
    };
    let wrong = if other.is_some() {
        "`refresh` is for grant = \"refresh\", `subject` for grant = \"exchange\"".to_owned()
    } else if grant.ingredient().is_some() && own.is_none() {
        format!("this `grant` needs `{key}`: where its token is, as {{ vault = \"NAME\" }}")
    } else if grant == TokenGrant::ClientCredentials && secret.is_none() {
        "`oauth` needs `secret`: where the client's secret is, as { vault = \"NAME\" }".to_owned()
    } else if authentication.is_some() && secret.is_none() {
        "`authentication` is for a client with a `secret`".to_owned()
    } else {
        let usual = match secret {
            Some(_) => ClientAuthentication::Basic,
            None => ClientAuthentication::Public,
        };
        return Some(Right {
            grant,
            authentication: authentication.map_or(usual, |one| one.value),
            secrets: secret.into_iter().chain(own).collect(),
        });
    };
    document.report(at, wrong, None);
    None
}

pub(super) fn read_secret(
    document: &mut Document,
    within: &mut Section<'_>,
    key: &'static str,
    table: &'static str,
) -> Option<WrittenSecret> {
    let (at, mut section) = document.placed(within, key, table)?;
    let before = document.problem_count();
    let variable = document.text(&mut section, "environment", parse_variable);
    let file = document.text(&mut section, "file", parse_place);
    let secret = document.text(&mut section, "vault", parse_secret);
    document.end(section, &["environment", "file", "vault"]);
    let all = [
        variable.map(|name| WrittenSecret::Variable(name.value)),
        file.map(|place| WrittenSecret::File(place.value)),
        secret.map(|secret| WrittenSecret::Vault(secret.value)),
    ];
    let mut all = all.into_iter().flatten();
    match (all.next(), all.next()) {
        (Some(one), None) => Some(one),
        (_, _) if document.problem_count() > before => None,
        (_, _) => {
            let what = format!(
                "`{key}` is one of: {{ environment = \"NAME\" }}, {{ file = \"~/…\" }}, {{ vault = \
                 \"NAME\" }}"
            );
            document.report(&at, what, None);
            None
        }
    }
}

/// Reads one name, or a list of them.
fn names(
    document: &mut Document,
    section: &mut Section<'_>,
    key: &'static str,
    at: &Range<usize>,
    parse: impl Fn(&str) -> Result<String, Complaint>,
) -> Vec<String> {
    if section.holds_text(key) {
        let one = document.text(section, key, parse);
        return one.into_iter().map(|one| one.value).collect();
    }
    texts(document, section, key, at, parse).unwrap_or_default()
}

pub(super) fn parse_endpoint(text: &str) -> Result<Endpoint, Complaint> {
    text.parse().map_err(|error| complaint_of(text, &error))
}

pub(super) fn parse_name(text: &str) -> Result<String, Complaint> {
    let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    match is_plain && (1..=NAME_BYTES_MAX).contains(&text.len()) {
        true => Ok(text.to_owned()),
        false => {
            Err(format!("{text:?} is not {NAME_BYTES_MAX} bytes of plain text at most").into())
        }
    }
}

/// Parses a scope, which has no space and no quotes (RFC 6749, 3.3).
pub(super) fn parse_scope(text: &str) -> Result<String, Complaint> {
    let is_of_scope = |byte: u8| byte == b'!' || (b'#'..=b'~').contains(&byte) && byte != b'\\';
    match (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_of_scope) {
        true => Ok(text.to_owned()),
        false => Err(Complaint::new(
            format!("{text:?} is no scope"),
            "write each by itself, as scope = [\"read\", \"profile\"]",
        )),
    }
}

/// Parses an absolute URI without a fragment (RFC 8707, 2).
fn parse_resource(text: &str) -> Result<String, Complaint> {
    let text = parse_name(text)?;
    let (scheme, _) = text.split_once(':').unwrap_or_default();
    let is_scheme = scheme.starts_with(|letter: char| letter.is_ascii_alphabetic());
    match is_scheme && !text.contains(['#', ' ']) {
        true => Ok(text),
        false => Err(format!("{text:?} is no URI, as \"https://api.example.com/\"").into()),
    }
}

fn parse_grant(text: &str) -> Result<TokenGrant, Complaint> {
    match text {
        "client-credentials" => Ok(TokenGrant::ClientCredentials),
        "refresh" => Ok(TokenGrant::Refresh),
        "exchange" => parse_kind(KIND).map(|kind| TokenGrant::Exchange { kind }),
        _ => Err(Complaint::new(
            format!("{text:?} is no grant"),
            "it is \"client-credentials\", \"refresh\" or \"exchange\"",
        )),
    }
}

fn parse_kind(text: &str) -> Result<String, Complaint> {
    match text {
        "access_token" | "refresh_token" | "id_token" | "jwt" | "saml1" | "saml2" => {
            Ok(format!("{KINDS}{text}"))
        }
        _ if text.starts_with("urn:") => parse_name(text),
        _ => Err(Complaint::new(
            format!("{text:?} is no type of a token"),
            "it is \"access_token\", \"id_token\", \"jwt\", \"saml2\" or a name of its own that \
             begins with urn:",
        )),
    }
}

fn parse_authentication(text: &str) -> Result<ClientAuthentication, Complaint> {
    match text {
        "basic" => Ok(ClientAuthentication::Basic),
        "post" => Ok(ClientAuthentication::Post),
        _ => Err(Complaint::new(
            format!("{text:?} is no way in which a client says who it is"),
            "it is \"basic\" or \"post\"",
        )),
    }
}
