//! The meaning of all layers for one action, as one plain set that Cedar alone decides on: the
//! subject of proofs.
//!
//! Cedar's semantics of a set is not Atoll's of layers. So that a proof about the one is one about
//! the other, the set expresses Atoll's additions as policies:
//!
//! - A policy with `@report_only` is not in it.
//! - A permit with an obligation that nobody carries out, or an approval that nobody can give,
//!   denies where it holds: it becomes a forbid. So does a permit that requires an approval, if
//!   only actions that happen without one count.
//! - A request whose path is read in different ways is forbidden where [`Policies`] denies it.
//! - Every layer with an opinion has to allow: the permits of the first one stay, and anything that
//!   no permit of a further one allows is forbidden.
//!
//! An error denies in Atoll and is skipped in Cedar. So the set allows at least what the layers
//! allow, and exactly that where no policy fails.

use std::collections::{BTreeSet, HashMap};

use cedar_policy::{Effect as CedarEffect, EntityUid, Policy, PolicyId, PolicySet};
use serde_json::{Value, json};

use crate::Action;
use crate::decision::Deciding;
use crate::index::actions;
use crate::layers::Layers;
use crate::obligation::carried;
use crate::policies::{Policies, order};
use crate::reading::Meta;
use crate::unclear::is_misled;

/// The decisions that count as allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Everything that happens, perhaps once somebody has approved.
    Possible,
    /// Only actions that happen without an approval.
    Unasked,
}

/// The meaning of all layers for one action.
#[derive(Clone, Debug)]
pub struct CanonicalPolicies {
    /// The policies, each about this action.
    pub set: PolicySet,
    /// The policies among them that a person wrote, as written, by their ids in `set`.
    pub written: HashMap<PolicyId, Deciding>,
    /// Every entity that a policy names.
    pub named: BTreeSet<EntityUid>,
}

impl Layers {
    /// Returns the meaning of all layers for this action, with `reach` as the notion of allowed.
    ///
    /// # Errors
    /// When a policy cannot be translated.
    pub fn canonical(&self, action: Action, reach: Reach) -> Result<CanonicalPolicies, String> {
        self.canonical_but(action, reach, None)
    }

    /// Returns the meaning without one policy of a layer, counted from the first. That layer
    /// permits nothing more than before: it has an opinion even if that was its last permit.
    ///
    /// # Errors
    /// As [`Layers::canonical`].
    pub fn canonical_without(
        &self,
        action: Action,
        reach: Reach,
        one: (usize, &PolicyId),
    ) -> Result<CanonicalPolicies, String> {
        self.canonical_but(action, reach, Some(one))
    }

    fn canonical_but(
        &self,
        action: Action,
        reach: Reach,
        left_out: Option<(usize, &PolicyId)>,
    ) -> Result<CanonicalPolicies, String> {
        let mut canonical = CanonicalPolicies {
            set: PolicySet::new(),
            written: HashMap::new(),
            named: BTreeSet::new(),
        };
        let mut is_first = true;
        for (number, (_, policies)) in self.each().enumerate() {
            let has_opinion = policies.permitting(action).is_some();
            let keeps = has_opinion && is_first;
            let left_out = left_out.filter(|(layer, _)| *layer == number);
            let part = LayerPart {
                policies,
                left_out: left_out.map(|(_, id)| id),
                number,
                keeps,
            };
            let further = canonical.layer(&part, action, reach)?;
            if has_opinion && !is_first {
                let any = either(further);
                canonical.forbid(
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
            canonical.add(Policy::parse(Some(id), text).map_err(|error| error.to_string())?)?;
        }
        Ok(canonical)
    }
}

/// One layer's part in a meaning.
struct LayerPart<'a> {
    policies: &'a Policies,
    /// The policy that is left out.
    left_out: Option<&'a PolicyId>,
    /// The number of the layer, from the first.
    number: usize,
    /// Set if its permits are kept as they are.
    keeps: bool,
}

impl CanonicalPolicies {
    /// Adds a layer, except for one policy. Its permits are added if they are kept, else their
    /// conditions are returned.
    fn layer(
        &mut self,
        part: &LayerPart<'_>,
        action: Action,
        reach: Reach,
    ) -> Result<Vec<Value>, String> {
        let LayerPart {
            policies,
            left_out,
            number,
            keeps,
        } = *part;
        let mut further = Vec::new();
        let counts = policies.all.policies().filter_map(|policy| {
            let meta = policies.meta.get(policy.id())?;
            let is_meant = !meta.is_report_only && meta.actions.contains(&action);
            (is_meant && left_out != Some(policy.id())).then_some((policy, meta))
        });
        let mut counts: Vec<(&Policy, &Meta)> = counts.collect();
        counts.sort_by(|one, two| order(&one.1.deciding, &two.1.deciding));
        for (policy, meta) in counts {
            self.named.extend(policy.entity_literals());
            let id = canonical_id(number, policy.id());
            let effect = effect(meta, action, reach);
            if effect == CedarEffect::Permit && !keeps {
                further.push(condition(policy)?);
            } else {
                self.written.insert(id.clone(), meta.deciding.clone());
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
    /// Returns every policy that counts for this action and that a person wrote, each alone: as
    /// written, and as a permit.
    ///
    /// # Errors
    /// When a policy cannot be translated.
    pub fn each_alone(&self, action: Action) -> Result<Vec<(Deciding, Policy)>, String> {
        let counts = self.all.policies().filter_map(|policy| {
            let meta = self.meta.get(policy.id())?;
            let is_meant = !meta.is_report_only && actions(policy).contains(&action);
            is_meant.then_some((policy, meta))
        });
        let mut counts: Vec<(&Policy, &Meta)> = counts.collect();
        counts.sort_by(|one, two| order(&one.1.deciding, &two.1.deciding));
        let permits = |(policy, meta): (&Policy, &Meta)| {
            let policy = with_effect(policy, CedarEffect::Permit, policy.id().clone())?;
            Ok((meta.deciding.clone(), policy))
        };
        counts.into_iter().map(permits).collect()
    }
}

/// Returns the id of a policy in [`CanonicalPolicies`]. It includes the layer, counted from the first, since
/// two layers can each have a policy of the same name.
fn canonical_id(layer: usize, id: &PolicyId) -> PolicyId {
    PolicyId::new(format!("{layer} {id}"))
}

/// Returns the effect of a policy on an action where it holds.
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

/// Returns a policy that forbids, within the scope of another, requests whose path programs read in
/// different ways.
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

/// Returns the condition under which a policy holds, its action scope excepted, as one expression.
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

/// Returns the principal or resource scope of a policy as an expression; `None` for any.
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

/// Returns the disjunction of expressions as a balanced tree, so that a thousand of them are not
/// nested a thousand deep.
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
