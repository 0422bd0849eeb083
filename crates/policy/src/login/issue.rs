//! Logging in to an agent's account from the sandbox.

use std::collections::BTreeMap;
use std::fmt::Display;

use atoll_model::SecretName;
use atoll_model::network::{Endpoint, FieldPath, HostName, IssuedToken};

use crate::credential::parse_field;
use crate::document::{Complaint, Document, Section};
use crate::network::rule::complaint_of;
use crate::quoting::quoted;

/// The table's name in messages.
const TABLE: &str = "login.NAME.issue";
const KEYS: [&str; 10] = [
    "token", "hosts", "command", "callback", "scopes", "without", "vault", "access", "refresh",
    "id",
];
/// The name in messages of the table of tokens kept in the vault.
const VAULT: &str = "login.NAME.issue.vault";
const VAULT_KEYS: [&str; 3] = ["access", "refresh", "id"];
/// The most further hosts of a login.
const HOSTS_MAX: usize = 8;
/// The most entries of `scopes`.
const SCOPES_MAX: usize = 16;
/// The most fields of the login file to leave out.
const WITHOUT_MAX: usize = 16;
/// The most words of the command.
const WORDS_MAX: usize = 16;
/// The longest word, bytes.
const WORD_BYTES_MAX: usize = 256;

/// The way an agent logs in, and the place of its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginIssue {
    /// The token endpoint of the issuer.
    pub token: Endpoint,
    /// Further hosts that the agent connects to when it logs in.
    pub hosts: Vec<HostName>,
    /// The agent's own login command.
    pub command: Vec<String>,
    /// The port in the sandbox at which the agent waits for the browser's redirect.
    pub callback: Option<u16>,
    /// Scopes that the login file may name although they look like addresses.
    pub scopes: Vec<String>,
    /// Fields of the file written in the sandbox that are not copied to the one outside:
    /// placeholders, and anything that the agent looks up again if it is missing.
    pub without: Vec<FieldPath>,
    /// The place of the tokens.
    pub keeps: IssuedTo,
}

/// The place where the tokens of a login are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IssuedTo {
    /// The agent's own file outside the sandbox, with the field of each token.
    File(BTreeMap<IssuedToken, FieldPath>),
    /// The vault, with the name of each token's secret.
    Vault(BTreeMap<IssuedToken, SecretName>),
}

fn key(token: IssuedToken) -> &'static str {
    match token {
        IssuedToken::Access => "access",
        IssuedToken::Refresh => "refresh",
        IssuedToken::Id => "id",
    }
}

pub(super) fn read(document: &mut Document, within: &mut Section<'_>) -> Option<LoginIssue> {
    let (at, mut section) = document.placed(within, "issue", TABLE)?;
    let before = document.problem_count();
    let token = document.text(&mut section, "token", |text| {
        text.parse::<Endpoint>()
            .map_err(|error| complaint_of(text, &error))
    });
    let hosts = document.list(&mut section, "hosts", parse_host);
    let command = document.list(&mut section, "command", parse_word);
    let callback = document.measure(&mut section, "callback", parse_port);
    let scopes = document.list(&mut section, "scopes", parse_word);
    let without = document.list(&mut section, "without", parse_one_of_file);
    let mut fields = BTreeMap::new();
    for token in IssuedToken::ALL {
        let field = document.text(&mut section, key(token), parse_one);
        fields.extend(field.map(|field| (token, field.value)));
    }
    let vault = read_vault(document, &mut section);
    document.end(section, &KEYS);
    if document.problem_count() > before {
        return None;
    }
    let command = command.map_or_else(Vec::new, |list| super::values(list.value));
    let hosts = hosts.map_or_else(Vec::new, |list| super::values(list.value));
    let scopes = scopes.map_or_else(Vec::new, |list| super::values(list.value));
    let without = without.map_or_else(Vec::new, |list| super::values(list.value));
    for (key, count, most) in [
        ("hosts", hosts.len(), HOSTS_MAX),
        ("scopes", scopes.len(), SCOPES_MAX),
        ("without", without.len(), WITHOUT_MAX),
    ] {
        if count > most {
            document.report(&at, format!("`{key}` has more than {most}"), None);
            return None;
        }
    }
    let has_command = (1..=WORDS_MAX).contains(&command.len());
    let keeps = match vault {
        Some(vault) if fields.is_empty() && !vault.is_empty() => Some(IssuedTo::Vault(vault)),
        None if fields.contains_key(&IssuedToken::Access) => Some(IssuedTo::File(fields)),
        Some(_) | None => None,
    };
    let Some((token, keeps)) = token.zip(keeps).filter(|_| has_command) else {
        let what = "`issue` needs `token`, `command`, and either `access` or `vault`: who issues the \
                    tokens, how the agent is told to log in, and where in its file the access token \
                    is, or which secrets the tokens become";
        let hint = "as { token = \"https://login.example.com/oauth/token\", command = [\"agent\", \
                    \"login\"], access = \"tokens.access_token\" }";
        document.report(&at, what.to_owned(), Some(hint.to_owned()));
        return None;
    };
    Some(LoginIssue {
        token: token.value,
        hosts,
        command,
        callback,
        scopes,
        without,
        keeps,
    })
}

fn parse_host(text: &str) -> Result<HostName, Complaint> {
    HostName::parse(text).map_err(|error| complaint_of(text, &error))
}

fn parse_word(text: &str) -> Result<String, Complaint> {
    let is_word = (1..=WORD_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    match is_word {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is no word of a command").into()),
    }
}

fn parse_port(text: &str) -> Result<u16, Complaint> {
    let port = text.parse().ok().filter(|port| *port >= 1024);
    port.ok_or_else(|| format!("{text:?} is no port from 1024 to 65535").into())
}

fn parse_one_of_file(text: &str) -> Result<FieldPath, Complaint> {
    let field = parse_field(text)?;
    match field.is_of_one() {
        true => Ok(field),
        false => Err(format!("{text:?} is many fields: name each that is left out").into()),
    }
}

fn parse_one(text: &str) -> Result<FieldPath, Complaint> {
    let field = parse_field(text)?;
    match field.is_of_one() {
        true => Ok(field),
        false => Err(format!("{text:?} is many fields, and a token is in one").into()),
    }
}

/// Formats the place of each token.
fn pairs<T: Display>(kept: &BTreeMap<IssuedToken, T>) -> impl Iterator<Item = String> {
    let pairs = kept.iter();
    pairs.map(|(token, at)| format!("{} = {}", key(*token), quoted(&at.to_string())))
}

fn read_vault(
    document: &mut Document,
    within: &mut Section<'_>,
) -> Option<BTreeMap<IssuedToken, SecretName>> {
    let mut section = document.section(within, "vault", VAULT)?;
    let mut names = BTreeMap::new();
    for token in IssuedToken::ALL {
        let name = document.text(&mut section, key(token), |text| {
            text.parse::<SecretName>()
                .map_err(|error| complaint_of(text, &error))
        });
        names.extend(name.map(|name| (token, name.value)));
    }
    document.end(section, &VAULT_KEYS);
    Some(names)
}

impl LoginIssue {
    /// Formats the table as written in a profile.
    pub(super) fn text(&self) -> String {
        let Self {
            token,
            hosts,
            command,
            callback,
            scopes,
            without,
            keeps,
        } = self;
        let list = |words: &[String]| {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            format!("[{}]", words.join(", "))
        };
        let mut parts = vec![format!("token = {}", quoted(&String::from(token.clone())))];
        if !hosts.is_empty() {
            let hosts: Vec<String> = hosts.iter().map(|host| quoted(&host.to_string())).collect();
            parts.push(format!("hosts = [{}]", hosts.join(", ")));
        }
        parts.push(format!("command = {}", list(command)));
        parts.extend(callback.map(|port| format!("callback = {port}")));
        if !scopes.is_empty() {
            parts.push(format!("scopes = {}", list(scopes)));
        }
        if !without.is_empty() {
            let without: Vec<String> = without.iter().map(FieldPath::to_string).collect();
            parts.push(format!("without = {}", list(&without)));
        }
        match keeps {
            IssuedTo::File(fields) => parts.extend(pairs(fields)),
            IssuedTo::Vault(names) => {
                let names: Vec<String> = pairs(names).collect();
                parts.push(format!("vault = {{ {} }}", names.join(", ")));
            }
        }
        format!("{{ {} }}", parts.join(", "))
    }
}
