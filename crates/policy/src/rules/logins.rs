//! Login files of rules.

use std::collections::BTreeSet;
use std::path::Path;

use atoll_model::ViewKind;
use atoll_model::network::{CredentialName, Place as Spot};

use crate::credential::{CredentialSource, LoginSource};
use crate::login::{Holds, Login, Written};
use crate::origin::{Origin, Sourced};

use super::Rules;

impl Rules {
    /// Returns the login files, sorted by name.
    pub fn logins(&self) -> impl Iterator<Item = &Login> {
        self.logins.values().map(|one| &one.value)
    }

    /// Returns the credential by which a login's access token is renewed.
    #[must_use]
    pub fn renewed_by(&self, source: &LoginSource) -> Option<&CredentialName> {
        let refresh = &source.renew.as_ref()?.refresh;
        let mut all = self.credentials().filter(|one| {
            let is_for = matches!(one.binding.place, Spot::Refresh(_));
            let is_it =
                |other: &LoginSource| other.login == source.login && other.field == *refresh;
            is_for && matches!(&one.source, CredentialSource::Login(other) if is_it(other))
        });
        all.next().map(|one| &one.binding.name)
    }

    /// Returns whether programs in the sandbox read a file where no placeholder file can replace
    /// it: in the workspace, the system, or a named input.
    #[must_use]
    pub fn shows_as_it_is(&self, file: &Path, workspace: &Path) -> bool {
        let views = self.views.values().map(|view| &view.value);
        let mut as_it_is = views.filter(|view| match view.kind {
            ViewKind::System | ViewKind::Input | ViewKind::Repository => true,
            ViewKind::Home | ViewKind::Cache => false,
        });
        file.starts_with(workspace) || as_it_is.any(|view| file.starts_with(&view.host))
    }

    /// Adds a file's logins: each replaces an extended profile's of the same name.
    pub(crate) fn add_logins(&mut self, written: Vec<Sourced<Written>>) {
        let home = self.host.home.clone();
        for one in written {
            let login = one.map(|written| Login {
                file: written.file.resolve(&home),
                name: written.name,
                keep: written.keep,
                claims: written.claims,
                holds: written.holds,
                optional: written.optional,
                issue: written.issue,
            });
            self.logins.insert(login.value.name.clone(), login);
        }
    }

    /// Returns whether a file holds a login and nothing else.
    fn is_login(&self, name: &CredentialName) -> bool {
        let login = self.logins.get(name);
        login.is_some_and(|login| login.value.holds == Holds::Login)
    }

    /// Returns the logins and their credentials that cannot be used as written, with the reasons.
    pub(crate) fn login_refusals(&self) -> Vec<(String, String, Origin)> {
        let mut refused = Vec::new();
        let mut files = BTreeSet::new();
        for (index, (name, one)) in self.logins.iter().enumerate() {
            let what = format!("login {name}");
            if index >= LOGINS_MAX {
                let why = format!("a run has {LOGINS_MAX} of them at most");
                refused.push((what, why, one.origin.clone()));
            } else if !files.insert(&one.value.file) {
                let why = "another one is of the same file".to_owned();
                refused.push((what, why, one.origin.clone()));
            }
        }
        let mut fields = BTreeSet::new();
        for (name, one) in &self.credentials {
            let CredentialSource::Login(source) = &one.value.source else {
                continue;
            };
            let why = if !self.logins.contains_key(&source.login) {
                format!("there is no [login.{}]", source.login)
            } else if !fields.insert((&source.login, source.field.clone())) {
                "another one has the same field of that login, and one text cannot stand for both"
                    .to_owned()
            } else if source.renew.is_some() && !self.is_login(&source.login) {
                "what is renewed is in a login file, and this is another".to_owned()
            } else if source.renew.is_some() && self.renewed_by(source).is_none() {
                "no credential with a place of { refresh = … } is of the `refresh` field of its `renew`"
                    .to_owned()
            } else {
                continue;
            };
            refused.push((format!("credential {name}"), why, one.origin.clone()));
        }
        refused
    }
}

/// The most login files of one run.
const LOGINS_MAX: usize = 32;
