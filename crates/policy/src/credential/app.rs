//! Tokens of an installation of a GitHub App, which Atoll requests itself.

use std::collections::BTreeMap;

use atoll_model::network::{AppRequest, Permission, TOKEN_PATIENCE_S, TokenRequest};

use super::command::parse_patience;
use super::token::{SecretSource, WrittenToken, parse_endpoint, read_secret};
use crate::document::{Complaint, Document, Section};
use crate::network::rule::texts;
use crate::quoting::quoted;

/// The table's name in messages.
const TABLE: &str = "credential.NAME.source.github-app";
const KEYS: [&str; 7] = [
    "app",
    "installation",
    "key",
    "repositories",
    "permissions",
    "api",
    "timeout",
];
/// The default of `api`.
const API: &str = "https://api.github.com/";
/// The most repositories that GitHub takes for one token.
const REPOSITORIES_MAX: usize = 500;
const PERMISSIONS_MAX: usize = 64;
/// The longest name of a repository or permission, bytes.
const NAME_BYTES_MAX: usize = 100;

pub(super) fn read(document: &mut Document, within: &mut Section<'_>) -> Option<WrittenToken> {
    let (at, mut section) = document.placed(within, "github-app", TABLE)?;
    let before = document.problem_count();
    let app = document.measure(&mut section, "app", parse_number);
    let installation = document.measure(&mut section, "installation", parse_number);
    let key = read_secret(
        document,
        &mut section,
        "key",
        "credential.NAME.source.github-app.key",
    );
    let repositories = texts(
        document,
        &mut section,
        "repositories",
        &at,
        parse_repository,
    );
    let permissions = read_permissions(document, &mut section);
    let api = document.text(&mut section, "api", parse_endpoint);
    let patience = document.text(&mut section, "timeout", parse_patience);
    document.end(section, &KEYS);
    let repositories = repositories.unwrap_or_default();
    if repositories.len() > REPOSITORIES_MAX || permissions.len() > PERMISSIONS_MAX {
        let what = format!(
            "a token is for {REPOSITORIES_MAX} repositories and {PERMISSIONS_MAX} permissions at most"
        );
        document.report(&at, what, None);
    }
    let api = api.map(|api| api.value).or_else(|| API.parse().ok());
    if api.as_ref().is_some_and(|api| api.target.contains('?')) {
        let what = "`api` is the beginning of addresses, which has no query";
        document.report(&at, what.to_owned(), None);
    }
    if document.problem_count() > before {
        return None;
    }
    let (Some(app), Some(installation), Some(key), Some(api)) = (app, installation, key, api)
    else {
        let what = "`github-app` needs `app`, `installation` and `key`";
        let hint = "as { app = 123, installation = 456, key = { vault = \"app-key\" } }: the \
                    numbers are in the addresses of the app's and the installation's settings";
        document.report(&at, what.to_owned(), Some(hint.to_owned()));
        return None;
    };
    Some(WrittenToken {
        request: TokenRequest::GithubApp(AppRequest {
            api,
            app,
            installation,
            repositories,
            permissions,
            patience_s: patience.map_or(TOKEN_PATIENCE_S, |one| one.value.as_secs()),
        }),
        secrets: vec![key],
    })
}

fn read_permissions(
    document: &mut Document,
    within: &mut Section<'_>,
) -> BTreeMap<String, Permission> {
    let name = "credential.NAME.source.github-app.permissions";
    let Some(section) = document.section(within, "permissions", name) else {
        return BTreeMap::new();
    };
    let mut permissions = BTreeMap::new();
    for entry in section.entries() {
        let subject = format!("`{}` in [{name}]", entry.key);
        let Some(text) = document.quantity(&entry, &subject) else {
            continue;
        };
        let level = Permission::ALL.into_iter().find(|one| one.name() == text);
        match level {
            Some(level) if is_permission(&entry.key) => {
                permissions.insert(entry.key.clone(), level);
            }
            Some(_) => {
                let what = format!("{subject}: it is no name of a permission");
                let hint = "as contents, issues, pull_requests or metadata";
                document.report(&entry.at, what, Some(hint.to_owned()));
            }
            None => {
                let what = format!("{subject}: {text:?} is not \"read\", \"write\" or \"admin\"");
                document.report(&entry.at, what, None);
            }
        }
    }
    permissions
}

fn is_permission(name: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_of_name)
}

fn parse_number(text: &str) -> Result<u64, Complaint> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| is_plain && *number > 0);
    number.ok_or_else(|| Complaint::from(format!("{text:?} is no number of GitHub's")))
}

fn parse_repository(text: &str) -> Result<String, Complaint> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_of_name);
    match is_name && text != "." && text != ".." {
        true => Ok(text.to_owned()),
        false => Err(Complaint::new(
            format!("{text:?} is no name of a repository"),
            "write it without its owner, who is the installation's: \"website\"",
        )),
    }
}

/// Returns a remark on rights that could be narrower, for a check of a profile.
pub(super) fn remark(request: &AppRequest) -> Option<String> {
    let repositories = "it is for all repositories of the installation: `repositories` names some";
    let permissions = "it may do all that the app may: `permissions` names less";
    match (
        request.repositories.is_empty(),
        request.permissions.is_empty(),
    ) {
        (true, true) => Some(format!("{repositories}; {permissions}")),
        (true, false) => Some(repositories.to_owned()),
        (false, true) => Some(permissions.to_owned()),
        (false, false) => None,
    }
}

/// Formats the source as written in a profile.
pub(super) fn text(request: &AppRequest, secrets: &[SecretSource]) -> String {
    let AppRequest {
        api,
        app,
        installation,
        repositories,
        permissions,
        patience_s,
    } = request;
    let mut parts = vec![
        format!("app = {app}"),
        format!("installation = {installation}"),
    ];
    let keys = secrets.iter().map(|key| format!("key = {}", key.text()));
    parts.extend(keys);
    if !repositories.is_empty() {
        let names: Vec<_> = repositories.iter().map(|name| quoted(name)).collect();
        parts.push(format!("repositories = [{}]", names.join(", ")));
    }
    if !permissions.is_empty() {
        let line = |(name, level): (&String, &Permission)| format!("{name} = \"{}\"", level.name());
        let all: Vec<_> = permissions.iter().map(line).collect();
        parts.push(format!("permissions = {{ {} }}", all.join(", ")));
    }
    if api.to_string() != API {
        parts.push(format!("api = {}", quoted(&api.to_string())));
    }
    if *patience_s != TOKEN_PATIENCE_S {
        parts.push(format!("timeout = \"{patience_s}s\""));
    }
    format!("{{ github-app = {{ {} }} }}", parts.join(", "))
}
