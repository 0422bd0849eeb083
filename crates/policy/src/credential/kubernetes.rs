//! Tokens of a Kubernetes service account, which Atoll requests itself.

use atoll_model::network::{KubernetesRequest, TOKEN_PATIENCE_S, TokenRequest};

use super::command::parse_patience;
use super::token::{
    NAMES_MAX, SecretSource, WrittenToken, parse_endpoint, parse_name, read_secret,
};
use crate::document::{Complaint, Document, Section};
use crate::network::rule::texts;
use crate::quoting::quoted;

/// The table's name in messages.
const TABLE: &str = "credential.NAME.source.kubernetes";
const KEYS: [&str; 6] = [
    "server",
    "namespace",
    "service-account",
    "token",
    "audience",
    "timeout",
];
/// The longest name of an object (RFC 1123), bytes.
const NAME_BYTES_MAX: usize = 253;

pub(super) fn read(document: &mut Document, within: &mut Section<'_>) -> Option<WrittenToken> {
    let (at, mut section) = document.placed(within, "kubernetes", TABLE)?;
    let before = document.problem_count();
    let server = document.text(&mut section, "server", parse_endpoint);
    let namespace = document.text(&mut section, "namespace", parse_object);
    let account = document.text(&mut section, "service-account", parse_object);
    let token = read_secret(
        document,
        &mut section,
        "token",
        "credential.NAME.source.kubernetes.token",
    );
    let audience = texts(document, &mut section, "audience", &at, parse_name);
    let patience = document.text(&mut section, "timeout", parse_patience);
    document.end(section, &KEYS);
    let audience = audience.unwrap_or_default();
    if audience.len() > NAMES_MAX {
        let what = format!("`audience` has {NAMES_MAX} entries at most");
        document.report(&at, what, None);
    }
    let has_query = |server: &str| server.contains('?');
    if server
        .as_ref()
        .is_some_and(|one| has_query(&one.value.target))
    {
        let what = "`server` is the beginning of addresses, which has no query";
        document.report(&at, what.to_owned(), None);
    }
    if document.problem_count() > before {
        return None;
    }
    let (Some(server), Some(namespace), Some(account), Some(token)) =
        (server, namespace, account, token)
    else {
        let what = "`kubernetes` needs `server`, `namespace`, `service-account` and `token`";
        let hint = "as { server = \"https://k8s.example.com:6443\", namespace = \"staging\", \
                    service-account = \"reader\", token = { file = \"~/token\" } }: `token` may \
                    create tokens of that account, and is sent to the server alone";
        document.report(&at, what.to_owned(), Some(hint.to_owned()));
        return None;
    };
    Some(WrittenToken {
        request: TokenRequest::Kubernetes(KubernetesRequest {
            server: server.value,
            namespace: namespace.value,
            account: account.value,
            audience,
            patience_s: patience.map_or(TOKEN_PATIENCE_S, |one| one.value.as_secs()),
        }),
        secrets: vec![token],
    })
}

fn parse_object(text: &str) -> Result<String, Complaint> {
    let is_of_name = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    let is_name = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_of_name);
    match is_name && !text.split('.').any(str::is_empty) {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is no name of an object of Kubernetes").into()),
    }
}

/// Returns a remark on rights that could be narrower, for a check of a profile.
pub(super) fn remark() -> String {
    "its token is good until it expires, also after the run; it may do what roles of its service \
     account allow, in other namespaces too where a binding says so"
        .to_owned()
}

/// Formats the source as written in a profile.
pub(super) fn text(request: &KubernetesRequest, secrets: &[SecretSource]) -> String {
    let KubernetesRequest {
        server,
        namespace,
        account,
        audience,
        patience_s,
    } = request;
    let mut parts = vec![
        format!("server = {}", quoted(&server.to_string())),
        format!("namespace = {}", quoted(namespace)),
        format!("service-account = {}", quoted(account)),
    ];
    let tokens = secrets.iter();
    parts.extend(tokens.map(|token| format!("token = {}", token.text())));
    if !audience.is_empty() {
        let names: Vec<_> = audience.iter().map(|name| quoted(name)).collect();
        parts.push(format!("audience = [{}]", names.join(", ")));
    }
    if *patience_s != TOKEN_PATIENCE_S {
        parts.push(format!("timeout = \"{patience_s}s\""));
    }
    format!("{{ kubernetes = {{ {} }} }}", parts.join(", "))
}
