//! Credentials of rules.

use std::path::Path;

use atoll_model::network::{CREDENTIALS_MAX, CredentialName, Place as Spot, Placeholder, Reach};
use atoll_model::{SecretName, ViewKind};

use crate::Notice;
use crate::credential::{Credential, CredentialSource, KeySource, SecretSource, Written, postgres};
use crate::origin::{Origin, Sourced};
use crate::places::{forbidden_here, overlap};

use super::Rules;

impl Rules {
    /// Returns the credentials that are injected, sorted by name.
    pub fn credentials(&self) -> impl Iterator<Item = &Credential> {
        self.credentials.values().map(|one| &one.value)
    }

    /// Returns whether programs in the sandbox can read a file.
    #[must_use]
    pub fn shows(&self, file: &Path, workspace: &Path) -> bool {
        let mut shown = self.views.values().map(|view| view.value.host.as_path());
        file.starts_with(workspace) || shown.any(|place| file.starts_with(place))
    }

    /// Returns whether `--ro` could show a file: neither is it never shown, nor denied to these rules.
    #[must_use]
    pub fn could_show(&self, file: &Path) -> bool {
        let mut denied = self.denied_places.iter();
        forbidden_here(file, &self.host).is_none()
            && !denied.any(|denied| overlap(&denied.value, file))
    }

    /// Returns the secrets of the vault that every run by these rules needs, each with the line
    /// that names it.
    #[must_use]
    pub fn secrets_wanted(&self) -> Vec<(SecretName, Origin)> {
        let mut wanted = Vec::new();
        for Sourced { value, origin } in self.credentials.values() {
            let names: Vec<SecretName> = match &value.source {
                CredentialSource::Vault(name) => vec![name.clone()],
                CredentialSource::Key(KeySource::Vault(names)) => names.clone(),
                CredentialSource::Token(token) => {
                    let of_vault = |one: &SecretSource| match one {
                        SecretSource::Vault(name) => Some(name.clone()),
                        SecretSource::Variable(_) | SecretSource::File(_) => None,
                    };
                    token.secrets.iter().filter_map(of_vault).collect()
                }
                CredentialSource::Key(KeySource::Variables(_) | KeySource::Profile { .. })
                | CredentialSource::Variable(_)
                | CredentialSource::File(_)
                | CredentialSource::Command(_)
                | CredentialSource::Login(_) => Vec::new(),
            };
            wanted.extend(names.into_iter().map(|name| (name, origin.clone())));
        }
        wanted
    }

    /// Returns a notice for each file of `[files] read` that this host does not have: no run by
    /// these rules starts without it.
    #[must_use]
    pub fn absent_files(&self) -> Vec<Notice> {
        let views = self.views.values();
        let inputs = views.filter(|view| view.value.kind == ViewKind::Input);
        let gone = inputs.filter(|view| !view.value.host.exists());
        let told = gone.map(|view| Notice {
            text: format!(
                "there is no {}, and no run by this starts without it",
                view.value.host.display()
            ),
            origin: view.origin.clone(),
        });
        told.collect()
    }

    /// Adds a file's credentials: each replaces an extended profile's of the same name, and an
    /// optional one with the same variable.
    pub(crate) fn add_credentials(&mut self, written: Vec<Sourced<Written>>) {
        let home = self.host.home.clone();
        let shares = |one: &Written, other: &Credential| {
            let mut its = one.variables.iter().map(|(_, name)| name);
            its.any(|name| other.variables.iter().any(|(_, other)| other == name))
        };
        let is_new = |name: &CredentialName, other: &Credential| {
            let mut all = written.iter().map(|one| &one.value);
            all.any(|one| one.binding.name == *name || shares(one, other))
        };
        self.credentials
            .retain(|name, one| !one.value.optional || !is_new(name, &one.value));
        for one in written {
            let credential = one.map(|written| written.resolved(&home));
            let name = credential.value.binding.name.clone();
            self.credentials.insert(name, credential);
        }
    }

    /// Adds notices of required credentials that are never injected. Optional ones get theirs once
    /// their values are read ([`Self::unused_optional`]).
    pub(crate) fn tell_credentials(&mut self) {
        let wanted = self.credentials.values().filter(|one| !one.value.optional);
        let notices = self.unused(wanted);
        self.notices.extend(notices);
    }

    /// Returns notices of optional credentials that are never injected although their values were
    /// read.
    pub(crate) fn unused_optional(&self, placeholders: &[Placeholder]) -> Vec<Notice> {
        let read = self.credentials_of(placeholders);
        self.unused(read.filter(|one| one.value.optional))
    }

    /// Returns the optional credentials whose values are missing, so that a run goes on without
    /// them.
    #[must_use]
    pub fn absent(&self, placeholders: &[Placeholder]) -> Vec<&Credential> {
        let is_read = |one: &&Credential| {
            let name = &one.binding.name;
            placeholders.iter().any(|found| found.name == *name)
        };
        let optional = self.credentials().filter(|one| one.optional);
        optional.filter(|one| !is_read(one)).collect()
    }

    /// Returns notices of missing optional credentials in a person's own profiles; of those in
    /// Atoll's profiles one is enough.
    pub(crate) fn tell_absent(&self, placeholders: &[Placeholder]) -> Vec<Notice> {
        let absent = self.absent(placeholders);
        let is_absent = |one: &&Sourced<Credential>| absent.contains(&&one.value);
        let own = self.credentials.values().filter(is_absent);
        let own = own.filter(|one| !one.origin.is_shipped());
        own.map(|Sourced { value, origin }| Notice {
            text: format!(
                "the run goes without credential {}, which is optional: {}",
                value.binding.name,
                value.absence()
            ),
            origin: origin.clone(),
        })
        .collect()
    }

    /// Returns notices of all optional credentials that are never injected, for a check of a
    /// profile, where no values are read.
    #[must_use]
    pub fn unusable_optional(&self) -> Vec<Notice> {
        let all = self.credentials.values();
        self.unused(all.filter(|one| one.value.optional))
    }

    fn unused<'a>(&self, all: impl Iterator<Item = &'a Sourced<Credential>>) -> Vec<Notice> {
        let network = self.network.boundary();
        let mut notices = Vec::new();
        for Sourced { value, origin } in all {
            let name = &value.binding.name;
            for to in &value.binding.to {
                if let Spot::Postgres(access) = &value.binding.place {
                    let why = postgres::unused(&network, access, to);
                    let text =
                        why.map(|why| format!("credential {name} is never used at {to}: {why}"));
                    let origin = origin.clone();
                    notices.extend(text.map(|text| Notice { text, origin }));
                    continue;
                }
                let text = match network.reach_of(to) {
                    Reach::Seen => continue,
                    Reach::Unreached => format!(
                        "credential {name} is never used at {to}: no rule of [network] allows it"
                    ),
                    Reach::Unseen => format!(
                        "credential {name} is never used at {to}: what a tunnel carries nobody \
                         looks into; write carry = \"requests\" for that rule"
                    ),
                };
                let origin = origin.clone();
                notices.push(Notice { text, origin });
            }
        }
        notices
    }

    /// Returns the credentials that cannot be used, with the reasons.
    pub(crate) fn credential_refusals(
        &self,
        placeholders: &[Placeholder],
    ) -> Vec<(String, &'static str, Origin)> {
        let mut refused = Vec::new();
        let mut taken = std::collections::BTreeSet::new();
        for (index, one) in self.credentials_of(placeholders).enumerate() {
            let what = format!("credential {}", one.value.binding.name);
            let variables = &one.value.variables;
            if index >= CREDENTIALS_MAX {
                refused.push((what, "a run has 16 of them at most", one.origin.clone()));
            } else if !variables.iter().all(|(_, name)| taken.insert(name)) {
                let why = "another one has the same variable inside";
                refused.push((what, why, one.origin.clone()));
            }
        }
        refused
    }
}
