//! An index of policies by scope, so that only those that could match are evaluated.
//!
//! Every policy lies in exactly one bucket of each action that it can be about: by its resource
//! scope, or among those of any resource. A question looks up the buckets of its action, and in
//! each those of its resource, of every ancestor, of its type, and of any resource: every policy
//! whose scope can match is in one of these. A policy that is left out has a scope that does not
//! match, and Cedar evaluates no condition of such a policy, so it neither decides nor fails. A
//! forbid that holds in one bucket forbids whatever others permit, so the answers of the buckets
//! combine into that of the whole set (see `policies.rs`).

use std::collections::HashMap;

use cedar_policy::{
    ActionConstraint, EntityTypeName, EntityUid, Policy, PolicySet, PolicySetError,
    ResourceConstraint,
};

use crate::Action;
use crate::question::CedarRequest;

/// A resource scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Scope {
    Any,
    Type(EntityTypeName),
    One(EntityUid),
    /// The entity and its descendants.
    Within(EntityUid),
}

/// The policies of one layer.
#[derive(Debug)]
pub(crate) struct Index {
    by_action: Vec<HashMap<Scope, PolicySet>>,
    is_empty: bool,
}

impl Index {
    pub(crate) fn new<'a>(
        policies: impl Iterator<Item = &'a Policy>,
    ) -> Result<Self, Box<PolicySetError>> {
        let mut by_action: Vec<HashMap<Scope, PolicySet>> = Vec::new();
        by_action.resize_with(Action::ALL.len(), HashMap::new);
        let mut is_empty = true;
        for policy in policies {
            let scope = Scope::of(policy);
            is_empty = false;
            for action in actions(policy) {
                if let Some(buckets) = by_action.get_mut(action.number()) {
                    let bucket = buckets.entry(scope.clone()).or_default();
                    bucket.add(policy.clone()).map_err(Box::new)?;
                }
            }
        }
        Ok(Self {
            by_action,
            is_empty,
        })
    }

    /// Returns whether there is no policy at all; most layers have no policies that only report.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Returns every bucket that holds a policy whose scope can match.
    pub(crate) fn buckets<'a>(
        &'a self,
        put: &'a CedarRequest,
    ) -> impl Iterator<Item = &'a PolicySet> {
        let buckets = self.by_action.get(put.action.number());
        let own = [
            Scope::Any,
            Scope::Type(put.resource.type_name().clone()),
            Scope::One(put.resource.clone()),
            Scope::Within(put.resource.clone()),
        ];
        let above = put.above.iter().cloned().map(Scope::Within);
        let scopes = own.into_iter().chain(above);
        let found = buckets.filter(|buckets| !buckets.is_empty());
        found
            .into_iter()
            .flat_map(move |buckets| scopes.clone().filter_map(|scope| buckets.get(&scope)))
    }
}

impl Scope {
    fn of(policy: &Policy) -> Self {
        match policy.resource_constraint() {
            ResourceConstraint::Any => Self::Any,
            ResourceConstraint::Is(kind) => Self::Type(kind),
            ResourceConstraint::Eq(one) => Self::One(one),
            ResourceConstraint::In(one) | ResourceConstraint::IsIn(_, one) => Self::Within(one),
        }
    }
}

/// Returns the actions that a policy can be about.
pub(crate) fn actions(policy: &Policy) -> Vec<Action> {
    let named = |id: &EntityUid| Action::named(id.id().unescaped());
    match policy.action_constraint() {
        ActionConstraint::Any => Action::ALL.to_vec(),
        ActionConstraint::Eq(one) => named(&one).into_iter().collect(),
        ActionConstraint::In(some) => {
            let mut all: Vec<Action> = some.iter().filter_map(named).collect();
            // The same one twice is in its bucket once.
            all.sort();
            all.dedup();
            all
        }
    }
}
