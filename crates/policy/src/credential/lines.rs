//! Formatting of credentials as written in a profile.

use atoll_model::network::{Binding, Place as Spot};

use super::{Credential, CredentialSource, others, postgres, signing};
use crate::quoting::quoted;

impl Credential {
    /// Returns the credential's lines in a profile, without the header.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Binding {
            name: _,
            to,
            requests,
            place,
            others,
        } = &self.binding;
        let list = |texts: Vec<String>| texts.join(", ");
        let source = match &self.source {
            CredentialSource::Variable(name) => format!("{{ environment = {} }}", quoted(name)),
            CredentialSource::File(path) => {
                format!("{{ file = {} }}", quoted(&path.to_string_lossy()))
            }
            CredentialSource::Vault(secret) => {
                format!("{{ vault = {} }}", quoted(secret.as_str()))
            }
            CredentialSource::Key(key) => key.line(),
            CredentialSource::Command(command) => command.text(),
            CredentialSource::Token(token) => token.text(),
            CredentialSource::Login(login) => login.text(),
        };
        let to = to.iter().map(|to| quoted(&to.to_string())).collect();
        let mut lines = vec![format!("source = {source}"), format!("to = [{}]", list(to))];
        if !requests.methods.is_empty() {
            let methods = requests.methods.iter().map(|one| quoted(one)).collect();
            lines.push(format!("methods = [{}]", list(methods)));
        }
        if !requests.paths.is_empty() {
            let paths = requests.paths.iter().map(|one| quoted(one.as_str()));
            lines.push(format!("paths = [{}]", list(paths.collect())));
        }
        lines.extend(
            requests
                .scheme
                .map(|scheme| format!("scheme = \"{scheme}\"")),
        );
        let place = match place {
            Spot::Header { name, form: None } => format!("header = {}", quoted(name)),
            Spot::Header {
                name,
                form: Some(form),
            } => format!("header = {}, form = {}", quoted(name), quoted(form)),
            Spot::Basic(user) => format!("basic = {}", quoted(user)),
            Spot::Query(key) => format!("query = {}", quoted(key)),
            Spot::Body(field) => format!("body = {}", quoted(field)),
            Spot::Refresh(field) => format!("refresh = {}", quoted(field)),
            Spot::SigV4(scope) => signing::scope_line(scope),
            Spot::Postgres(access) => postgres::line(access),
        };
        lines.push(format!("place = {{ {place} }}"));
        lines.extend(others::line(*others));
        let names: Vec<_> = self
            .variables
            .iter()
            .map(|(_, name)| quoted(name))
            .collect();
        lines.extend(match &names[..] {
            // What stands for it is in a file.
            [] => None,
            [name] => Some(format!("variable = {name}")),
            names => Some(format!("variable = [{}]", names.join(", "))),
        });
        let shape = self.shape.as_ref();
        lines.extend(shape.map(|shape| format!("shape = {}", quoted(&shape.to_string()))));
        if self.optional {
            lines.push("optional = true".to_owned());
        }
        lines
    }
}
