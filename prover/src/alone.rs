//! What is proven of each policy alone: that it does not fail, and that it is not there for
//! nothing.

use std::collections::BTreeSet;

use atoll_cedar::{Action, Case, Deciding, Reach, Verdict};
use cedar_policy::{EntityUid, Policy, PolicySet};
use cedar_policy_symcc::CompiledPolicy;
use serde_json::{Value, json};

use crate::prover::{Found, PRINCIPALS, Prover, Side, add, asked, kinds, on_paper, refuted, told};
use crate::{solver, witness};

/// What is known of one policy.
enum Alone {
    Holds,
    Never,
    CannotSay(String),
}

impl Prover {
    pub(crate) fn never_errors(&mut self, side: &Side) -> Verdict {
        let mut unknown = None;
        for (action, policy) in each(side) {
            let verdict = match policy {
                Ok(policy) => self.never_fails(side, action, &policy.1),
                Err(why) => Verdict::Unknown(why),
            };
            match verdict {
                Verdict::Proven => {}
                Verdict::Refuted(_) => return verdict,
                Verdict::Unknown(why) => unknown = unknown.or(Some(why)),
            }
        }
        unknown.map_or(Verdict::Proven, Verdict::Unknown)
    }

    fn never_fails(&mut self, side: &Side, action: Action, policy: &Policy) -> Verdict {
        let named: BTreeSet<EntityUid> = policy.entity_literals().into_iter().collect();
        let limited = match self.within_the_possible(policy, action, &named) {
            Ok(limited) => limited,
            Err(why) => return Verdict::Unknown(why),
        };
        let mut unknown = None;
        for principal in PRINCIPALS {
            match self.search_failure(&limited, principal, action) {
                Found::Nothing => {}
                Found::CannotSay(why) => unknown = unknown.or(Some(why)),
                Found::Something(found) => {
                    let fails = |case: &Case| {
                        let decided = side.decided(action, case)?;
                        (!decided.errors.is_empty()).then(|| decided.why())
                    };
                    let cases = witness::cases(&found, action, &named);
                    let real = cases.iter().find_map(|case| Some((case, fails(case)?)));
                    match real {
                        Some((case, told)) => {
                            let (case, told) = self.simplest(case, told, &fails);
                            return refuted(Some(case), told);
                        }
                        None => unknown = unknown.or_else(|| Some(on_paper(action, &found))),
                    }
                }
            }
        }
        unknown.map_or(Verdict::Proven, Verdict::Unknown)
    }

    /// The same policy, which looks at its own conditions only where a request can be.
    fn within_the_possible(
        &self,
        policy: &Policy,
        action: Action,
        named: &BTreeSet<EntityUid>,
    ) -> Result<Policy, String> {
        let mut all = policy.to_json().map_err(|error| error.to_string())?;
        let mut conditions = Vec::new();
        for one in self.impossible(action, named, &policy.to_string())? {
            let read = one.to_json().map_err(|error| error.to_string())?;
            let bodies = read.get("conditions").and_then(Value::as_array);
            for body in bodies
                .into_iter()
                .flatten()
                .filter_map(|one| one.get("body"))
            {
                conditions.push(json!({"kind": "unless", "body": body}));
            }
        }
        if let Some(own) = all.get("conditions").and_then(Value::as_array) {
            conditions.extend(own.iter().cloned());
        }
        if let Some(all) = all.as_object_mut() {
            let entity = json!({"type": "Action", "id": action.name()});
            all.insert("action".to_owned(), json!({"op": "==", "entity": entity}));
            all.insert("conditions".to_owned(), Value::Array(conditions));
        }
        let id = policy.id().clone();
        Policy::from_json(Some(id), all).map_err(|error| error.to_string())
    }

    fn search_failure(&mut self, policy: &Policy, principal: &str, action: Action) -> Found {
        let Some(kinds) = kinds(principal, action) else {
            return Found::Nothing;
        };
        let compiled = match CompiledPolicy::compile(policy, &kinds, &self.schema) {
            Ok(compiled) => compiled,
            Err(error) => return Found::CannotSay(told(&error)),
        };
        self.ask(|solver| solver::now(solver.check_never_errors_with_counterexample_opt(&compiled)))
    }

    pub(crate) fn every_policy_matters(&mut self, side: &Side) -> Verdict {
        let mut idle: Vec<String> = Vec::new();
        let mut unknown = None;
        // In two layers there can be two of one name in one line.
        let mut policies: Vec<(Own, Vec<(Action, Policy)>)> = Vec::new();
        for (layer, action, policy) in each_of_layers(side) {
            match policy {
                Ok((told, policy)) => {
                    let own = Own { layer, told };
                    match policies.iter_mut().find(|(one, _)| *one == own) {
                        Some((_, all)) => all.push((action, policy)),
                        None => policies.push((own, vec![(action, policy)])),
                    }
                }
                Err(why) => return Verdict::Unknown(why),
            }
        }
        for (own, all) in policies {
            let told = own.named(side);
            let is = |alone: &Alone| matches!(alone, Alone::Holds);
            let holds: Vec<Alone> = all
                .iter()
                .map(|(action, policy)| self.can_hold(*action, policy))
                .collect();
            if !holds.iter().any(is) {
                match cannot_say(holds) {
                    Some(why) => unknown = unknown.or(Some(why)),
                    None => idle.push(format!("{told} is about nothing that can be asked")),
                }
                continue;
            }
            let changes: Vec<Alone> = all
                .iter()
                .map(
                    |(action, policy)| match self.changes(side, *action, (own.layer, policy)) {
                        Alone::Holds => Alone::Holds,
                        other => self.has_done(side, (*action, &own), other),
                    },
                )
                .collect();
            if !changes.iter().any(is) {
                match cannot_say(changes) {
                    Some(why) => unknown = unknown.or(Some(why)),
                    None => idle.push(format!("{told} changes nothing: others decide the same")),
                }
            }
        }
        match (idle.is_empty(), unknown) {
            (false, _) => refuted(None, idle.join("\n")),
            (true, Some(why)) => Verdict::Unknown(why),
            (true, None) => Verdict::Proven,
        }
    }

    /// Whether some request is one that it is about.
    fn can_hold(&mut self, action: Action, policy: &Policy) -> Alone {
        let set = PolicySet::from_policies([policy.clone()]);
        match set {
            Ok(set) => self.can_differ(&set, &PolicySet::new(), action),
            Err(error) => Alone::CannotSay(error.to_string()),
        }
    }

    /// Whether something would be decided in another way without it.
    fn changes(&mut self, side: &Side, action: Action, (layer, policy): (usize, &Policy)) -> Alone {
        let own = (layer, policy.id());
        let mut before = None;
        let mut unknown = None;
        for reach in [Reach::Possible, Reach::Unasked] {
            let meant = match side.canonical(action, reach) {
                Ok(meant) => meant.set,
                Err(why) => return Alone::CannotSay(why),
            };
            if before.as_ref() == Some(&meant) {
                continue;
            }
            let left = match side
                .layers
                .canonical_without(action, side.reach(reach), own)
            {
                Ok(left) => left.set,
                Err(why) => return Alone::CannotSay(why),
            };
            for (one, other) in [(&meant, &left), (&left, &meant)] {
                match self.can_differ(one, other, action) {
                    Alone::Holds => return Alone::Holds,
                    Alone::Never => {}
                    Alone::CannotSay(why) => unknown = Some(why),
                }
            }
            before = Some(meant);
        }
        unknown.map_or(Alone::Never, Alone::CannotSay)
    }

    /// Whether something is done besides where it permits that no other one has done there.
    /// Otherwise what is known of it is as before.
    fn has_done(&mut self, side: &Side, (action, own): (Action, &Own), known: Alone) -> Alone {
        let reach = side.reach(Reach::Possible);
        let done = match side.layers.done_by(own.layer, &own.told, action, reach) {
            Ok(done) => done,
            Err(why) => return Alone::CannotSay(why),
        };
        let mut unknown = None;
        for (allowed, kept) in done {
            match self.can_differ(&allowed.set, &kept.set, action) {
                Alone::Holds => return Alone::Holds,
                Alone::Never => {}
                Alone::CannotSay(why) => unknown = Some(why),
            }
        }
        unknown.map_or(known, Alone::CannotSay)
    }

    fn can_differ(&mut self, one: &PolicySet, other: &PolicySet, action: Action) -> Alone {
        let all = one.policies().chain(other.policies());
        let named = all.flat_map(|policy| policy.entity_literals()).collect();
        let mut set = one.clone();
        let limited = self.impossible(action, &named, &format!("{one} {other}"));
        if let Err(why) = limited.and_then(|all| add(&mut set, all)) {
            return Alone::CannotSay(why);
        }
        let mut unknown = None;
        for principal in PRINCIPALS {
            match self.search(&set, other, principal, action) {
                Found::Nothing => {}
                Found::Something(_) => return Alone::Holds,
                Found::CannotSay(why) => unknown = Some(why),
            }
        }
        unknown.map_or(Alone::Never, Alone::CannotSay)
    }
}

fn cannot_say(all: Vec<Alone>) -> Option<String> {
    all.into_iter().find_map(|one| match one {
        Alone::CannotSay(why) => Some(why),
        Alone::Holds | Alone::Never => None,
    })
}

/// A policy as it is written and that it permits, or why it cannot be read.
type Read = Result<(Deciding, Policy), String>;

/// A policy, and in which layer it is, counted from the first.
#[derive(PartialEq, Eq)]
struct Own {
    layer: usize,
    told: Deciding,
}

impl Own {
    /// How it is told: by its layer too, where another one has a policy of that name.
    fn named(&self, side: &Side) -> String {
        let told = &self.told;
        let named = format!("policy {} ({}:{})", told.id, told.file, told.line);
        let mut others = side.layers.each().enumerate();
        let is_twice = others.any(|(layer, (_, policies))| {
            let mut all = policies.list().into_iter();
            layer != self.layer && all.any(|(one, _)| one.id == told.id)
        });
        match side.layers.each().nth(self.layer) {
            Some((layer, _)) if is_twice => format!("{named} of layer {layer}"),
            Some(_) | None => named,
        }
    }
}

/// Every policy of every layer, for each action that it is about and that is asked for.
fn each(side: &Side) -> Vec<(Action, Read)> {
    let all = each_of_layers(side).into_iter();
    all.map(|(_, action, read)| (action, read)).collect()
}

/// The same, with the layer of each, counted from the first.
fn each_of_layers(side: &Side) -> Vec<(usize, Action, Read)> {
    let mut all = Vec::new();
    for action in asked() {
        for (layer, (_, policies)) in side.layers.each().enumerate() {
            match policies.each_alone(action) {
                Ok(each) => all.extend(each.into_iter().map(|own| (layer, action, Ok(own)))),
                Err(why) => all.push((layer, action, Err(why))),
            }
        }
    }
    all
}
