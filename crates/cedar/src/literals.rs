//! Places that policies name: what lies beneath one that is asked for is asked for besides.

use std::path::PathBuf;

use crate::policies::Policies;
use crate::{Action, Layers};

impl Policies {
    /// The places that policies about this name, in their scopes or conditions.
    fn places(&self, action: Action) -> impl Iterator<Item = PathBuf> {
        let about = self.all.policies().filter(move |policy| {
            let meta = self.meta.get(policy.id());
            meta.is_some_and(|meta| !meta.is_shadow && meta.actions.contains(&action))
        });
        about
            .flat_map(|policy| policy.entity_literals())
            .filter(|one| one.type_name().basename() == "Path")
            .map(|one| PathBuf::from(one.id().unescaped()))
    }
}

impl Layers {
    /// The places that policies of any layer about this name, each once, in their order. An
    /// answer about a directory is none about a place beneath it that a policy names.
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
