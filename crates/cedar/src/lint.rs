//! What a person should know of policies without mistakes.

use cedar_policy::{
    Effect as CedarEffect, Policy, PrincipalConstraint, ResourceConstraint, ValidationMode,
    Validator,
};

use crate::index::actions;
use crate::obligation::carried;
use crate::policies::{Meta, Policies};

/// Something to know of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The file.
    pub file: String,
    /// The policy's line, counted from 1.
    pub line: u32,
    /// What there is to know.
    pub what: String,
    /// Whether the policy cannot do what it says: then it is refused by a check.
    pub is_refused: bool,
}

/// What there is to know of each policy: annotations that deny because nobody knows or carries
/// them out, conditions that never hold, and what another policy stands in the way of.
#[must_use]
pub fn remarks(policies: &Policies) -> Vec<Remark> {
    let mut all = refused(policies);
    let validator = Validator::new(policies.words.schema.clone());
    let result = validator.validate(&policies.all, ValidationMode::Strict);
    for warning in result.validation_warnings() {
        if let Some(meta) = policies.meta.get(warning.policy_id()) {
            // Its own words begin with an id that is not the person's.
            let text = warning.to_string();
            let text = text
                .split_once("`, ")
                .map_or(text.as_str(), |(_, rest)| rest);
            all.push(remark(meta, text.to_owned(), false));
        }
    }
    for policy in policies.all.policies() {
        let meta = policies.meta.get(policy.id());
        all.extend(meta.and_then(|meta| covered(policies, policy, meta)));
        let permits = meta.filter(|meta| meta.effect == CedarEffect::Permit);
        all.extend(permits.and_then(idle));
    }
    all.sort_by(order);
    all
}

/// Of these what a policy asks for and nobody does, which is told at every run too.
#[must_use]
pub fn refused(policies: &Policies) -> Vec<Remark> {
    let mut all = Vec::new();
    for meta in policies.meta.values() {
        if let Some(unknown) = &meta.unknown {
            let what = format!(
                "@{unknown} is nothing that is known here: where this policy decides, it denies"
            );
            all.push(remark(meta, what, true));
        }
        for one in meta.obligations.all() {
            let missing = meta.actions.iter();
            let missing = missing.filter(|action| !carried(**action).contains(&one));
            let names: Vec<&str> = missing.map(|action| action.name()).collect();
            if !names.is_empty() {
                let names = names.join(", ");
                let what = format!(
                    "{one} is not carried out here for {names}: where this policy decides, it denies"
                );
                all.push(remark(meta, what, true));
            }
        }
        // What permits there is only idle; what forbids would be relied on.
        if meta.effect == CedarEffect::Forbid {
            all.extend(idle(meta));
        }
    }
    all.sort_by(order);
    all
}

/// That nothing asks for what a policy is about.
fn idle(meta: &Meta) -> Option<Remark> {
    let is_idle = !meta.actions.iter().any(|action| action.is_asked());
    let names: Vec<&str> = meta.actions.iter().map(|action| action.name()).collect();
    let what = format!(
        "nothing asks for {} yet: this policy decides nothing",
        names.join(", ")
    );
    is_idle.then(|| remark(meta, what, meta.effect == CedarEffect::Forbid))
}

fn order(one: &Remark, two: &Remark) -> std::cmp::Ordering {
    (&one.file, one.line, &one.what).cmp(&(&two.file, two.line, &two.what))
}

/// A policy in whose way another one stands, or that says nothing new. Of two that say the same
/// the later one is meant.
fn covered(policies: &Policies, policy: &Policy, meta: &Meta) -> Option<Remark> {
    if meta.is_shadow {
        return None;
    }
    let mut others = policies.all.policies().filter_map(|other| {
        let over = policies.meta.get(other.id())?;
        (other.id() != policy.id() && !over.is_shadow && covers(other, policy))
            .then_some((other, over))
    });
    others.find_map(|(other, over)| {
        let is_earlier = (&over.told.file, over.told.line) < (&meta.told.file, meta.told.line);
        let is_mutual = covers(policy, other) && !is_earlier;
        let (id, line) = (&over.told.id, over.told.line);
        let what = match (meta.effect, over.effect) {
            (CedarEffect::Permit, CedarEffect::Forbid) => {
                format!("it never permits: policy {id} (line {line}) forbids all that it is about")
            }
            (CedarEffect::Permit, CedarEffect::Permit)
                if meta.obligations == over.obligations && !is_mutual =>
            {
                format!("it changes nothing: policy {id} (line {line}) permits all of it")
            }
            (CedarEffect::Forbid, CedarEffect::Forbid) if !is_mutual => {
                format!("it changes nothing: policy {id} (line {line}) forbids all of it")
            }
            (_, _) => return None,
        };
        Some(remark(meta, what, false))
    })
}

/// Whether one without a condition is about everything that another one is about.
fn covers(over: &Policy, policy: &Policy) -> bool {
    if has_condition(over) {
        return false;
    }
    let wide = actions(over);
    if !actions(policy).iter().all(|action| wide.contains(action)) {
        return false;
    }
    let principals = match (over.principal_constraint(), policy.principal_constraint()) {
        (PrincipalConstraint::Any, _) => true,
        (wide, narrow) if wide == narrow => true,
        (PrincipalConstraint::In(wide), PrincipalConstraint::Eq(narrow)) => wide == narrow,
        (PrincipalConstraint::In(wide), PrincipalConstraint::IsIn(_, narrow)) => wide == narrow,
        (PrincipalConstraint::Is(wide), PrincipalConstraint::IsIn(narrow, _)) => wide == narrow,
        (PrincipalConstraint::Is(wide), PrincipalConstraint::Eq(narrow)) => {
            wide == *narrow.type_name()
        }
        (_, _) => false,
    };
    let resources = match (over.resource_constraint(), policy.resource_constraint()) {
        (ResourceConstraint::Any, _) => true,
        (wide, narrow) if wide == narrow => true,
        (ResourceConstraint::In(wide), ResourceConstraint::Eq(narrow)) => wide == narrow,
        (ResourceConstraint::In(wide), ResourceConstraint::IsIn(_, narrow)) => wide == narrow,
        (ResourceConstraint::Is(wide), ResourceConstraint::IsIn(narrow, _)) => wide == narrow,
        (ResourceConstraint::Is(wide), ResourceConstraint::Eq(narrow)) => {
            wide == *narrow.type_name()
        }
        (_, _) => false,
    };
    principals && resources
}

fn has_condition(policy: &Policy) -> bool {
    policy.has_non_scope_constraint()
}

fn remark(meta: &Meta, what: String, is_refused: bool) -> Remark {
    Remark {
        file: meta.told.file.to_string(),
        line: meta.told.line,
        what,
        is_refused,
    }
}
