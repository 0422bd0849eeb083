//! What all layers together mean for one action, as one plain set that Cedar alone decides on:
//! what proofs are about.
//!
//! Cedar's own meaning of a set is not Atoll's of layers. So that a proof about the one is one
//! about the other, the set says by policies what Atoll does besides:
//!
//! - A policy with `@shadow` is not in it.
//! - What permits and asks for what nobody carries out, or for a yes that nobody can give, denies
//!   where it holds: it forbids there. So does what permits once somebody has agreed, where only
//!   what happens unasked counts.
//! - A request whose path is read in different ways is forbidden where [`Policies`] denies it.
//! - Every layer with an opinion has to allow: the permits of the first one stay, and what no
//!   permit of a further one allows is forbidden.
//!
//! An error denies in Atoll and is passed over in Cedar. So the set allows at least what the
//! layers allow, and exactly that where no policy fails.

use std::collections::{BTreeSet, HashMap};

use cedar_policy::{Effect as CedarEffect, EntityUid, Policy, PolicyId, PolicySet};
use serde_json::{Value, json};

use crate::Action;
use crate::decision::Deciding;
use crate::index::actions;
use crate::layers::Layers;
use crate::obligation::carried;
use crate::policies::{Meta, Policies, order};
use crate::unclear::is_misled;

/// What counts as allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// What happens, perhaps once somebody has agreed.
    Possible,
    /// What happens without anybody being asked.
    Unasked,
}

/// All layers for one action.
#[derive(Clone, Debug)]
pub struct Meant {
    /// The policies, each about this action.
    pub set: PolicySet,
    /// Those of them that a person has written, as they are written, by their ids in `set`.
    pub written: HashMap<PolicyId, Deciding>,
    /// Every entity that a policy names.
    pub named: BTreeSet<EntityUid>,
}

impl Layers {
    /// What they mean for this action, of what is reached so.
    ///
    /// # Errors
    /// When a policy cannot be put into other words.
    pub fn meant(&self, action: Action, reach: Reach) -> Result<Meant, String> {
        self.meant_but((action, reach), None)
    }

    /// The same without one policy of a layer, counted from the first. That layer permits nothing
    /// else than before: it has an opinion also where that was the last that it permits.
    ///
    /// # Errors
    /// As [`Layers::meant`].
    pub fn meant_without(
        &self,
        action: Action,
        reach: Reach,
        one: (usize, &PolicyId),
    ) -> Result<Meant, String> {
        self.meant_but((action, reach), Some(one))
    }

    fn meant_but(
        &self,
        (action, reach): (Action, Reach),
        left_out: Option<(usize, &PolicyId)>,
    ) -> Result<Meant, String> {
        let mut meant = Meant {
            set: PolicySet::new(),
            written: HashMap::new(),
            named: BTreeSet::new(),
        };
        let mut is_first = true;
        for (number, (_, policies)) in self.each().enumerate() {
            let has_opinion = policies.permitting(action).is_some();
            let keeps = has_opinion && is_first;
            let left_out = left_out.filter(|(layer, _)| *layer == number);
            let left_out = left_out.map(|(_, id)| id);
            let further = meant.layer((policies, left_out), (action, reach), number, keeps)?;
            if has_opinion && !is_first {
                let any = either(further);
                meant.forbid(
                    &format!("only layer {number}"),
                    action,
                    json!({"!": {"arg": any}}),
                )?;
            }
            is_first &= !has_opinion;
        }
        if is_first {
            let text = format!(
                "permit(principal, action == Action::\"{}\", resource);",
                action.name()
            );
            let id = PolicyId::new("silent");
            meant.add(Policy::parse(Some(id), text).map_err(|error| error.to_string())?)?;
        }
        Ok(meant)
    }
}

impl Meant {
    /// Takes a layer in, but for one policy. What of it permits is taken in where it `keeps` that,
    /// else given back.
    fn layer(
        &mut self,
        (policies, left_out): (&Policies, Option<&PolicyId>),
        (action, reach): (Action, Reach),
        number: usize,
        keeps: bool,
    ) -> Result<Vec<Value>, String> {
        let mut further = Vec::new();
        let counts = policies.all.policies().filter_map(|policy| {
            let meta = policies.meta.get(policy.id())?;
            let is_meant = !meta.is_shadow && meta.actions.contains(&action);
            (is_meant && left_out != Some(policy.id())).then_some((policy, meta))
        });
        let mut counts: Vec<(&Policy, &Meta)> = counts.collect();
        counts.sort_by(|one, two| order(&one.1.told, &two.1.told));
        for (policy, meta) in counts {
            self.named.extend(policy.entity_literals());
            let id = meant_id(number, policy.id());
            let effect = effect(meta, action, reach);
            if effect == CedarEffect::Permit && !keeps {
                further.push(condition(policy)?);
            } else {
                self.written.insert(id.clone(), meta.told.clone());
                self.add(with_effect(policy, effect, id.clone())?)?;
            }
            if action == Action::Request && is_misled(policy) {
                let id = PolicyId::new(format!("{id} unclear"));
                self.add(unclear(policy, id)?)?;
            }
        }
        Ok(further)
    }

    pub(crate) fn forbid(&mut self, id: &str, action: Action, when: Value) -> Result<(), String> {
        let entity = json!({"type": "Action", "id": action.name()});
        let all = json!({
            "effect": "forbid",
            "principal": {"op": "All"},
            "action": {"op": "==", "entity": entity},
            "resource": {"op": "All"},
            "conditions": [{"kind": "when", "body": when}],
        });
        self.add(read(all, PolicyId::new(id))?)
    }

    pub(crate) fn add(&mut self, policy: Policy) -> Result<(), String> {
        self.set.add(policy).map_err(|error| error.to_string())
    }
}

impl Policies {
    /// Every policy that counts for this action and that a person has written, each alone: as it
    /// is written, and that it permits.
    ///
    /// # Errors
    /// When one cannot be put into other words.
    pub fn each_alone(&self, action: Action) -> Result<Vec<(Deciding, Policy)>, String> {
        let counts = self.all.policies().filter_map(|policy| {
            let meta = self.meta.get(policy.id())?;
            let is_meant = !meta.is_shadow && actions(policy).contains(&action);
            is_meant.then_some((policy, meta))
        });
        let mut counts: Vec<(&Policy, &Meta)> = counts.collect();
        counts.sort_by(|one, two| order(&one.1.told, &two.1.told));
        let permits = |(policy, meta): (&Policy, &Meta)| {
            let policy = with_effect(policy, CedarEffect::Permit, policy.id().clone())?;
            Ok((meta.told.clone(), policy))
        };
        counts.into_iter().map(permits).collect()
    }
}

/// What a policy is called in [`Meant`]: by its layer too, counted from the first, since two can
/// have one of the same name.
fn meant_id(layer: usize, id: &PolicyId) -> PolicyId {
    PolicyId::new(format!("{layer} {id}"))
}

/// What a policy does for an action where it holds.
pub(crate) fn effect(meta: &Meta, action: Action, reach: Reach) -> CedarEffect {
    let owed = &meta.obligations;
    let can_be_agreed = match reach {
        Reach::Possible => owed.asks_nobody_else(),
        Reach::Unasked => owed.approve.is_empty(),
    };
    // As a decision is held to it.
    let is_done = owed.uncarried(carried(action)).is_empty() && meta.unknown.is_none();
    match meta.effect {
        CedarEffect::Permit if can_be_agreed && is_done => CedarEffect::Permit,
        CedarEffect::Permit | CedarEffect::Forbid => CedarEffect::Forbid,
    }
}

pub(crate) fn with_effect(
    policy: &Policy,
    effect: CedarEffect,
    id: PolicyId,
) -> Result<Policy, String> {
    let mut all = policy.to_json().map_err(|error| error.to_string())?;
    if let Some(member) = all.get_mut("effect") {
        *member = json!(effect.to_string());
    }
    read(all, id)
}

/// That what a policy can be about is forbidden where programs read its path in different ways.
fn unclear(policy: &Policy, id: PolicyId) -> Result<Policy, String> {
    let mut all = policy.to_json().map_err(|error| error.to_string())?;
    let unclear = json!({".": {"left": {"Var": "context"}, "attr": "unclear"}});
    if let Some(all) = all.as_object_mut() {
        // The action has members that others have not.
        let entity = json!({"type": "Action", "id": Action::Request.name()});
        all.insert("action".to_owned(), json!({"op": "==", "entity": entity}));
        all.insert("effect".to_owned(), json!("forbid"));
        let when = json!([{"kind": "when", "body": unclear}]);
        all.insert("conditions".to_owned(), when);
    }
    read(all, id)
}

pub(crate) fn read(all: Value, id: PolicyId) -> Result<Policy, String> {
    Policy::from_json(Some(id), all).map_err(|error| error.to_string())
}

/// Where a policy holds, its action apart, as one condition.
pub(crate) fn condition(policy: &Policy) -> Result<Value, String> {
    let all = policy.to_json().map_err(|error| error.to_string())?;
    let mut holds = json!({"Value": true});
    for name in ["principal", "resource"] {
        if let Some(scope) = all.get(name).and_then(|scope| scoped(name, scope)) {
            holds = both(holds, scope);
        }
    }
    let conditions = all.get("conditions").and_then(Value::as_array);
    for one in conditions.into_iter().flatten() {
        let body = one.get("body").cloned().ok_or("a condition is empty")?;
        let is_when = one.get("kind").and_then(Value::as_str) == Some("when");
        let body = match is_when {
            true => body,
            false => json!({"!": {"arg": body}}),
        };
        holds = both(holds, body);
    }
    Ok(holds)
}

/// What stands in a policy's head of its principal or resource; nothing where it is any.
fn scoped(name: &str, scope: &Value) -> Option<Value> {
    let variable = json!({"Var": name});
    let entity = |of: &Value| {
        let entity = of.get("entity").cloned().unwrap_or_default();
        json!({"Value": {"__entity": entity}})
    };
    match scope.get("op").and_then(Value::as_str) {
        Some("==") => {
            // Types that nothing has in common are compared in heads alone.
            let kind = scope.get("entity").and_then(|entity| entity.get("type"));
            let is = json!({"is": {"left": variable.clone(), "entity_type": kind}});
            Some(both(
                is,
                json!({"==": {"left": variable, "right": entity(scope)}}),
            ))
        }
        Some("in") => Some(json!({"in": {"left": variable, "right": entity(scope)}})),
        Some("is") => {
            let kind = scope.get("entity_type").cloned().unwrap_or_default();
            let is = json!({"is": {"left": variable.clone(), "entity_type": kind}});
            Some(match scope.get("in") {
                None => is,
                Some(within) => {
                    let within = json!({"in": {"left": variable, "right": entity(within)}});
                    both(is, within)
                }
            })
        }
        Some(_) | None => None,
    }
}

fn both(one: Value, two: Value) -> Value {
    json!({"&&": {"left": one, "right": two}})
}

/// That one of them holds, halved again and again: a thousand beside each other are not a
/// thousand within each other.
pub(crate) fn either(mut all: Vec<Value>) -> Value {
    while all.len() > 1 {
        let mut halved = Vec::with_capacity(all.len().div_ceil(2));
        let mut each = all.into_iter();
        while let Some(one) = each.next() {
            halved.push(match each.next() {
                Some(two) => json!({"||": {"left": one, "right": two}}),
                None => one,
            });
        }
        all = halved;
    }
    all.pop().unwrap_or_else(|| json!({"Value": false}))
}
