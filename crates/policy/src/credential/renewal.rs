//! `renew` of a login's access token: of whom Atoll asks for another one, and where in the
//! login's file what is given is written.

use atoll_model::network::{FieldPath, Renewal, RenewalForm, RenewalRequest};

use super::token::{NAMES_MAX, parse_endpoint, parse_name, parse_scope};
use crate::document::{Complaint, Document, Section};
use crate::login::parse_field;
use crate::network::rule::texts;
use crate::show::quoted;

/// The table of one.
const TABLE: &str = "credential.NAME.source.renew";
const KEYS: [&str; 10] = [
    "token",
    "client",
    "published",
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
    let published = document.text(&mut section, "published", parse_name);
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
            published: published.map(|one| one.value),
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

/// A field of one member.
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

/// As it is written in a profile.
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
    let published = published.as_ref();
    parts.extend(published.map(|one| format!("published = {}", quoted(one))));
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
