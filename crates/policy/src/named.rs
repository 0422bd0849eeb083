//! Tables of a profile with names of their own: `[credential.NAME]`, `[ssh.NAME]`.

use std::ops::Range;

use atoll_model::network::CredentialName;

use crate::document::{Document, Section};

/// The names of such tables, in files and messages.
pub(crate) struct Tables {
    /// The key above all of them.
    pub(crate) key: &'static str,
    /// The name of one in messages, as `credential.NAME`.
    pub(crate) table: &'static str,
}

impl Tables {
    /// Reads each table, and reports invalid names.
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
