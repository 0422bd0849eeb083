//! Tables of a profile that have names of their own: `[credential.NAME]`, `[ssh.NAME]`.

use std::ops::Range;

use atoll_model::network::CredentialName;

use crate::document::{Document, Section};

/// Where each is named in messages, as `credential.NAME`.
pub(crate) struct Tables {
    /// The key that all are beneath.
    pub(crate) key: &'static str,
    /// One of them, for those who read of it.
    pub(crate) table: &'static str,
}

impl Tables {
    /// Reads each by its name; what has a name that is none is reported.
    pub(crate) fn read<T>(
        &self,
        document: &mut Document,
        top: &mut Section<'_>,
        mut read_one: impl FnMut(&mut Document, Section<'_>, &Range<usize>, CredentialName) -> Option<T>,
    ) -> Vec<T> {
        let Some(section) = document.section(top, self.key, self.key) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for (name, at, section) in document.tables(section, self.table) {
            match name.parse::<CredentialName>() {
                Ok(name) => found.extend(read_one(document, section, &at, name)),
                Err(error) => document.report(&at, format!("{name:?}: {error}"), None),
            }
        }
        found
    }
}
