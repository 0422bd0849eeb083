//! A credential that is a field of an agent's login file.

use atoll_model::network::{CredentialName, FieldPath};

use crate::document::{Complaint, Document, Section};
use crate::login::parse_field;
use crate::network::rule::said;
use crate::show::quoted;

/// A field of a login file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoginSource {
    /// Which login file.
    pub login: CredentialName,
    /// Which value of it; of one member.
    pub field: FieldPath,
}

impl LoginSource {
    /// As it is written in a profile.
    pub(super) fn text(&self) -> String {
        let (login, field) = (self.login.as_str(), self.field.to_string());
        format!(
            "{{ login = {}, field = {} }}",
            quoted(login),
            quoted(&field)
        )
    }
}

pub(super) fn read(document: &mut Document, within: &mut Section<'_>) -> Option<LoginSource> {
    if !within.holds("login") {
        document.refuse(within, "field", "it is of a `login`");
        return None;
    }
    let login = document.text(within, "login", |text| {
        text.parse::<CredentialName>()
            .map_err(|error| said(text, &error))
    });
    if !within.holds("field") {
        let origin = login.as_ref()?.origin.clone();
        let what = "`login` needs `field`: which value of it, as \"tokens.access_token\"";
        document.report_line(&origin, what.to_owned());
        return None;
    }
    let field = document.text(within, "field", parse_one);
    Some(LoginSource {
        login: login?.value,
        field: field?.value,
    })
}

fn parse_one(text: &str) -> Result<FieldPath, Complaint> {
    let field = parse_field(text)?;
    match field.is_of_one() {
        true => Ok(field),
        false => Err(format!("{text:?} is many fields, and a credential is one").into()),
    }
}
