//! Scopes and conditions that match no question, so that their policies never decide.

use cedar_policy::{
    ActionConstraint, Effect as CedarEffect, EntityId, EntityTypeName, EntityUid, Policy,
    PrincipalConstraint, ResourceConstraint,
};
use serde_json::Value;

use crate::Action;
use crate::policies::{Known, Policies};
use crate::quoting::quoted;
use crate::reading::Meta;
use crate::remark::{Remark, Standing, remark};

/// A principal or resource scope.
enum Head {
    Any,
    Is(EntityTypeName),
    Equal(EntityUid),
    In(EntityUid),
    IsIn(EntityTypeName, EntityUid),
}

impl From<PrincipalConstraint> for Head {
    fn from(head: PrincipalConstraint) -> Self {
        match head {
            PrincipalConstraint::Any => Self::Any,
            PrincipalConstraint::Is(kind) => Self::Is(kind),
            PrincipalConstraint::Eq(one) => Self::Equal(one),
            PrincipalConstraint::In(one) => Self::In(one),
            PrincipalConstraint::IsIn(kind, one) => Self::IsIn(kind, one),
        }
    }
}

impl From<ResourceConstraint> for Head {
    fn from(head: ResourceConstraint) -> Self {
        match head {
            ResourceConstraint::Any => Self::Any,
            ResourceConstraint::Is(kind) => Self::Is(kind),
            ResourceConstraint::Eq(one) => Self::Equal(one),
            ResourceConstraint::In(one) => Self::In(one),
            ResourceConstraint::IsIn(kind, one) => Self::IsIn(kind, one),
        }
    }
}

impl Head {
    /// Returns whether an entity of this type can match.
    fn can_be(&self, kind: &str, known: &Known) -> bool {
        let is = |name: &EntityTypeName| name.basename() == kind;
        let within = |one: &EntityUid| {
            let is_person = kind == "Session" && one.type_name().basename() == "Person";
            is(one.type_name()) || is_person || known.has(one)
        };
        match self {
            Self::Any => true,
            Self::Is(name) => is(name),
            Self::Equal(one) => is(one.type_name()),
            Self::In(one) => within(one),
            Self::IsIn(name, one) => is(name) && within(one),
        }
    }

    /// Returns the scope as written in Cedar, of this variable.
    fn written(&self, of: &str) -> String {
        match self {
            Self::Any => of.to_owned(),
            Self::Is(kind) => format!("{of} is {kind}"),
            Self::Equal(one) => format!("{of} == {one}"),
            Self::In(one) => format!("{of} in {one}"),
            Self::IsIn(kind, one) => format!("{of} is {kind} in {one}"),
        }
    }
}

/// Remarks on scopes and conditions of a policy that match no question. A forbid with such a scope,
/// or any policy with such a condition, gives a false assurance and is refused. A permit with such
/// a scope is only idle.
pub(crate) fn never(policies: &Policies, policy: &Policy, meta: &Meta) -> Vec<Remark> {
    let standing = match meta.effect {
        CedarEffect::Permit => Standing::Idle,
        CedarEffect::Forbid => Standing::Refused,
    };
    let of_head = of_head(policy, meta, &policies.known);
    let of_head = of_head.map(|what| remark(meta, what, standing));
    let in_conditions = in_conditions(policy, &policies.known);
    let in_conditions = in_conditions.into_iter().map(|one| {
        let what = format!("no question ever has {one}: a condition waits for it in vain");
        remark(meta, what, Standing::Refused)
    });
    of_head.into_iter().chain(in_conditions).collect()
}

/// Describes the scope of a policy that matches no question.
fn of_head(policy: &Policy, meta: &Meta, known: &Known) -> Option<String> {
    let principal = Head::from(policy.principal_constraint());
    let resource = Head::from(policy.resource_constraint());
    let is_by = |action: &Action| principal.can_be(action.principal(), known);
    let is_of = |action: &Action| resource.can_be(action.resource(), known);
    let asked = meta.actions.clone();
    if !asked.iter().any(is_of) {
        let what = resource.written("resource");
        return Some(format!(
            "no question ever has `{what}`: this policy decides nothing"
        ));
    }
    let by_others = |of: Vec<Action>, end: &str| {
        let what = principal.written("principal");
        let of = named(&of);
        format!(
            "no question about {of} ever has `{what}`: {end}{}",
            advice(&principal)
        )
    };
    if !asked.iter().any(|action| is_by(action) && is_of(action)) {
        let of = asked.into_iter().filter(is_of).collect();
        return Some(by_others(of, "this policy decides nothing"));
    }
    // What is named one by one is meant one by one.
    let is_listed = !matches!(policy.action_constraint(), ActionConstraint::Any);
    let others = asked
        .into_iter()
        .filter(|one| is_listed && is_of(one) && !is_by(one));
    let others: Vec<Action> = others.collect();
    (!others.is_empty()).then(|| by_others(others, "of that this policy decides nothing"))
}

/// Returns a hint on the principal that was probably canonical.
fn advice(principal: &Head) -> String {
    let kind = match principal {
        Head::Any => return String::new(),
        Head::Is(kind) | Head::IsIn(kind, _) => kind.basename(),
        Head::Equal(one) | Head::In(one) => one.type_name().basename(),
    };
    match (kind, principal) {
        ("Person", Head::Equal(one)) => format!("; write `principal in {one}`"),
        ("Agent" | "Subagent", _) => {
            "; an agent is known by its profile: write `when { context.profile == \"NAME\" }`"
                .to_owned()
        }
        (_, _) => {
            "; `run`, `promote`, `restore`, `escalate` and `administer` are a Person's, all else is a \
             Session's in that"
                .to_owned()
        }
    }
}

fn named(actions: &[Action]) -> String {
    let names: Vec<&str> = actions.iter().map(|action| action.name()).collect();
    names.join(", ")
}

/// Returns the types that conditions name and no question ever has.
fn in_conditions(policy: &Policy, known: &Known) -> Vec<String> {
    let mut found = Vec::new();
    match policy.to_json() {
        Ok(read) => waits(
            read.get("conditions").unwrap_or(&Value::Null),
            known,
            &mut found,
        ),
        Err(error) => found.push(format!("what cannot be read ({error})")),
    }
    found.sort();
    found.dedup();
    found
}

/// Collects them from a part of a condition, in Cedar's JSON.
fn waits(read: &Value, known: &Known, found: &mut Vec<String>) {
    match read {
        Value::Array(all) => all.iter().for_each(|one| waits(one, known, found)),
        Value::Object(all) => {
            let member = |name: &str| read.get(name).and_then(Value::as_str);
            if let Some(kind) = member("entity_type")
                && !is_had(kind)
            {
                found.push(kind.to_owned());
            }
            if let (Some(kind), Some(id)) = (member("type"), member("id")) {
                let is_group = entity(kind, id).is_some_and(|one| known.has(&one));
                if kind != "Action" && !is_had(kind) && !is_group {
                    found.push(format!("{kind}::{}", quoted(id)));
                }
            }
            all.values().for_each(|one| waits(one, known, found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn entity(kind: &str, id: &str) -> Option<EntityUid> {
    let kind = kind.parse().ok()?;
    Some(EntityUid::from_type_name_and_id(kind, EntityId::new(id)))
}

/// Returns whether a question can have an entity of this type.
fn is_had(kind: &str) -> bool {
    let kinds = |action: Action| [action.principal(), action.resource()];
    Action::ALL
        .into_iter()
        .flat_map(kinds)
        .any(|one| one == kind)
}
