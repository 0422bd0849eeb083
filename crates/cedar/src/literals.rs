//! The paths that policies name: a question about a directory does not cover one of them beneath
//! it, which needs its own.

use std::path::PathBuf;

use crate::policies::Policies;
use crate::{Action, Layers};

impl Policies {
    /// Returns the paths that policies on this action name, in their scopes or conditions.
    fn places(&self, action: Action) -> impl Iterator<Item = PathBuf> {
        let about = self.all.policies().filter(move |policy| {
            let meta = self.meta.get(policy.id());
            meta.is_some_and(|meta| !meta.is_report_only && meta.actions.contains(&action))
        });
        about
            .flat_map(|policy| policy.entity_literals())
            .filter(|one| one.type_name().basename() == "Path")
            .map(|one| PathBuf::from(one.id().unescaped()))
    }
}

impl Layers {
    /// Returns the paths that policies of any layer on this action name, sorted and without
    /// duplicates. An answer about a directory says nothing about a path beneath it that a policy
    /// names.
    #[must_use]
    pub fn places(&self, action: Action) -> Vec<PathBuf> {
        let all = self
            .each()
            .flat_map(|(_, policies)| policies.places(action));
        let mut all: Vec<PathBuf> = all.collect();
        all.sort();
        all.dedup();
        all
    }
}
