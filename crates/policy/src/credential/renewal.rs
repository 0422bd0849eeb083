//! `renew` of a login's access token: the issuer that Atoll asks for another one, and the fields of
//! the login file that the answer is written to.

use atoll_model::network::{FieldPath, PublishedSecret, Renewal, RenewalForm, RenewalRequest};

use super::token::{NAMES_MAX, parse_endpoint, parse_name, parse_scope};
use crate::document::{Complaint, Document, Section};
use crate::network::rule::{complaint_of, texts};
use crate::quoting::quoted;

/// The table's name in messages.
const TABLE: &str = "credential.NAME.source.renew";
const KEYS: [&str; 11] = [
    "token",
    "client",
    "published",
    "published-sent",
    "form",
    "scope",
    "refresh",
    "id",
    "expires",
    "scopes",
    "noted",
];

pub(super) fn read(document: &mut Document, within: &mut Section<'_>) -> Option<Renewal> {
    let (at, mut section) = document.placed(within, "renew", TABLE)?;
    let before = document.problem_count();
    let token = document.text(&mut section, "token", parse_endpoint);
    let client = document.text(&mut section, "client", parse_name);
    let published = read_published(document, &mut section);
    let form = document.text(&mut section, "form", parse_form);
    let scope = texts(document, &mut section, "scope", &at, parse_scope).unwrap_or_default();
    let refresh = document.text(&mut section, "refresh", parse_one);
    let [id, expires, scopes, noted] =
        ["id", "expires", "scopes", "noted"].map(|key| document.text(&mut section, key, parse_one));
    document.end(section, &KEYS);
    if scope.len() > NAMES_MAX {
        let what = format!("`scope` has {NAMES_MAX} entries at most");
        document.report(&at, what, None);
    }
    if document.problem_count() > before {
        return None;
    }
    let (Some(token), Some(client), Some(refresh)) = (token, client, refresh) else {
        let what =
            "`renew` needs `token`, `client` and `refresh`: whom to ask, as whom, and by what";
        let hint = "as { token = \"https://login.example.com/oauth/token\", client = \"ID\", \
                    refresh = \"tokens.refresh_token\" }";
        document.report(&at, what.to_owned(), Some(hint.to_owned()));
        return None;
    };
    Some(Renewal {
        request: RenewalRequest {
            token: token.value,
            client: client.value,
            published,
            form: form.map_or(RenewalForm::Form, |one| one.value),
            scope,
        },
        refresh: refresh.value,
        id: id.map(|one| one.value),
        expires: expires.map(|one| one.value),
        scopes: scopes.map(|one| one.value),
        noted: noted.map(|one| one.value),
    })
}

fn read_published(document: &mut Document, section: &mut Section<'_>) -> PublishedSecret {
    let named = document.text(section, "published", parse_name);
    let sent = document.flag(section, "published-sent");
    match (named, sent) {
        (Some(_), Some((flag, at))) if flag.value => {
            let what = "`published` names what `published-sent` takes from the agent: leave one of both out";
            document.report(&at, what.to_owned(), None);
            PublishedSecret::None
        }
        (Some(named), _) => PublishedSecret::Named(named.value),
        (None, Some((flag, _))) if flag.value => PublishedSecret::Sent,
        (None, _) => PublishedSecret::None,
    }
}

/// Parses the path of a single field.
pub(super) fn parse_one(text: &str) -> Result<FieldPath, Complaint> {
    let field = parse_field(text)?;
    match field.is_of_one() {
        true => Ok(field),
        false => Err(format!("{text:?} is many fields, and a credential is one").into()),
    }
}

fn parse_form(text: &str) -> Result<RenewalForm, Complaint> {
    match text {
        "form" => Ok(RenewalForm::Form),
        "json" => Ok(RenewalForm::Json),
        _ => Err(Complaint::new(
            format!("{text:?} is no way in which a token is asked for"),
            "it is \"form\" or \"json\"",
        )),
    }
}

/// Formats the table as written in a profile.
pub(super) fn text(renewal: &Renewal) -> String {
    let Renewal {
        request:
            RenewalRequest {
                token,
                client,
                published,
                form,
                scope,
            },
        refresh,
        id,
        expires,
        scopes,
        noted,
    } = renewal;
    let mut parts = vec![
        format!("token = {}", quoted(&token.to_string())),
        format!("client = {}", quoted(client)),
    ];
    match published {
        PublishedSecret::None => {}
        PublishedSecret::Named(text) => parts.push(format!("published = {}", quoted(text))),
        PublishedSecret::Sent => parts.push("published-sent = true".to_owned()),
    }
    if *form == RenewalForm::Json {
        parts.push("form = \"json\"".to_owned());
    }
    if !scope.is_empty() {
        let scope: Vec<_> = scope.iter().map(|one| quoted(one)).collect();
        parts.push(format!("scope = [{}]", scope.join(", ")));
    }
    parts.push(format!("refresh = {}", quoted(&refresh.to_string())));
    for (key, field) in [
        ("id", id),
        ("expires", expires),
        ("scopes", scopes),
        ("noted", noted),
    ] {
        let field = field.as_ref();
        parts.extend(field.map(|field| format!("{key} = {}", quoted(&field.to_string()))));
    }
    format!("{{ {} }}", parts.join(", "))
}

/// Parses the path of a field in a login file.
pub(crate) fn parse_field(text: &str) -> Result<FieldPath, Complaint> {
    text.parse::<FieldPath>()
        .map_err(|error| complaint_of(text, &error))
}
