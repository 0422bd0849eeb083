//! Credentials that are fields of an agent's login file.

use atoll_model::network::{CredentialName, FieldPath, Renewal};

use super::renewal::{self, parse_one};
use crate::document::{Document, Section};
use crate::network::rule::complaint_of;
use crate::quoting::quoted;

/// A field of a login file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginSource {
    /// The login file.
    pub login: CredentialName,
    /// The field, a single one.
    pub field: FieldPath,
    /// The renewal, if Atoll does it.
    pub renew: Option<Box<Renewal>>,
}

impl LoginSource {
    /// Formats the source as written in a profile.
    pub(super) fn text(&self) -> String {
        let (login, field) = (self.login.as_str(), self.field.to_string());
        let renew = self.renew.as_ref();
        let renew = renew.map(|renew| format!(", renew = {}", renewal::text(renew)));
        format!(
            "{{ login = {}, field = {}{} }}",
            quoted(login),
            quoted(&field),
            renew.unwrap_or_default()
        )
    }
}

pub(super) fn read(document: &mut Document, within: &mut Section<'_>) -> Option<LoginSource> {
    if !within.holds("login") {
        document.refuse(within, "field", "it is of a `login`");
        document.refuse(within, "renew", "it is of a `login`");
        return None;
    }
    let login = document.text(within, "login", |text| {
        text.parse::<CredentialName>()
            .map_err(|error| complaint_of(text, &error))
    });
    if !within.holds("field") {
        let origin = login.as_ref()?.origin.clone();
        let what = "`login` needs `field`: which value of it, as \"tokens.access_token\"";
        document.report_line(&origin, what.to_owned());
        return None;
    }
    let field = document.text(within, "field", parse_one);
    let renew = renewal::read(document, within);
    Some(LoginSource {
        login: login?.value,
        field: field?.value,
        renew: renew.map(Box::new),
    })
}
