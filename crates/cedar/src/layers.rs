//! Layers of policies: organisation, user, project. Each only takes away.

use crate::Action;
use crate::decision::{Decision, Effect};
use crate::fault::Fault;
use crate::files::{Layer, PolicyFile};
use crate::policies::{Known, Policies};
use crate::question::{Needs, Question};

/// The policies of all layers that have any.
///
/// An action has to be allowed by each layer that has an opinion. A layer has an opinion on an
/// action where it permits some of it: then it permits nothing else of it. Where it permits nothing
/// of an action, it leaves that action as it is, except for what it forbids. So no layer can allow
/// anything that another layer, or the profile, does not.
#[derive(Debug, Default)]
pub struct Layers {
    layers: Vec<(Layer, Policies)>,
}

impl Layers {
    /// Compiles the files of each layer.
    ///
    /// # Errors
    /// Every error found; the caller then has to deny.
    pub fn compile(files: &[(Layer, Vec<PolicyFile>)], known: &Known) -> Result<Self, Vec<Fault>> {
        let mut layers = Vec::new();
        let mut faults = Vec::new();
        for (layer, files) in files.iter().filter(|(_, files)| !files.is_empty()) {
            match Policies::compile(files, known.clone()) {
                Ok(policies) => layers.push((*layer, policies)),
                Err(found) => faults.extend(found),
            }
        }
        match faults.is_empty() {
            true => Ok(Self { layers }),
            false => Err(faults),
        }
    }

    /// Adds a layer. It only takes away, as each does.
    ///
    /// # Errors
    /// As [`Layers::compile`].
    pub fn add(&mut self, layer: Layer, files: &[PolicyFile]) -> Result<(), Vec<Fault>> {
        let policies = Policies::compile(files, Known::default())?;
        self.layers.push((layer, policies));
        Ok(())
    }

    /// Returns whether a policy on one of these actions requires an approval.
    #[must_use]
    pub fn ask_about(&self, actions: &[Action]) -> bool {
        let mut layers = self.layers.iter();
        layers.any(|(_, policies)| policies.asks_about(actions))
    }

    /// Returns whether there is no policy.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.layers.iter().all(|(_, policies)| policies.is_empty())
    }

    /// Returns each layer that has policies.
    pub fn each(&self) -> impl Iterator<Item = (Layer, &Policies)> {
        self.layers
            .iter()
            .map(|(layer, policies)| (*layer, policies))
    }

    /// Returns whether some policy reads the labels of a session, or sets some.
    #[must_use]
    pub fn are_about_labels(&self) -> bool {
        let mut layers = self.layers.iter();
        layers.any(|(_, policies)| policies.needs.labels || policies.labels())
    }

    /// Returns whether some policy on this action reads the labels of a session.
    #[must_use]
    pub fn look_at_labels(&self, action: Action) -> bool {
        let mut layers = self.layers.iter();
        layers.any(|(_, policies)| policies.looks_at_labels(action))
    }

    /// Returns whether some policy reads the agent's reputation.
    #[must_use]
    pub fn are_about_reputation(&self) -> bool {
        let mut layers = self.layers.iter();
        layers.any(|(_, policies)| policies.needs.reputation)
    }

    /// Returns whether some policy can be about one of these actions.
    #[must_use]
    pub fn are_about(&self, actions: &[Action]) -> bool {
        let mut layers = self.layers.iter();
        layers.any(|(_, policies)| actions.iter().any(|action| policies.is_about(*action)))
    }

    /// Decides on a question: denied if one layer denies, else to be approved if one requires that,
    /// else allowed with the obligations of all layers. Where nobody is asked, anything to be
    /// approved is denied. Facts that the agent states of itself can only tighten: if there are
    /// any, the decision is the stricter of those with and without them. This function is pure.
    #[must_use]
    pub fn authorize(&self, question: &Question<'_>) -> Decision {
        let needs = self.layers.iter().map(|(_, policies)| policies.needs);
        let needs = needs.fold(Needs::default(), Needs::or);
        let decision = self.decide(question, needs);
        let decision = match question.facts.confidence.is_some() && needs.confidence {
            true => {
                let facts = question.facts.without_its_word();
                let facts = &facts;
                let unsaid = Question { facts, ..*question };
                stricter(self.decide(&unsaid, needs), decision)
            }
            false => decision,
        };
        match question.facts.is_strict {
            true => decision.strictly(),
            false => decision,
        }
    }

    /// Returns whether some call of a tool may be allowed, whatever its arguments: whether a caller
    /// is shown the tool. A question that cannot be put offers nothing.
    #[must_use]
    pub fn offers(&self, question: &Question<'_>) -> bool {
        let needs = self.layers.iter().map(|(_, policies)| policies.needs);
        let needs = Needs {
            arguments: false,
            ..needs.fold(Needs::default(), Needs::or)
        };
        let Some((_, first)) = self.layers.first() else {
            return true;
        };
        let put = first.put(question, needs);
        put.is_ok_and(|put| {
            self.layers
                .iter()
                .all(|(_, policies)| policies.offers(&put))
        })
    }

    fn decide(&self, question: &Question<'_>, needs: Needs) -> Decision {
        let mut whole = Decision::nothing_said();
        let Some((_, first)) = self.layers.first() else {
            return whole;
        };
        // All layers know of the same groups.
        let put = match first.put(question, needs) {
            Ok(put) => put,
            Err(why) => return Decision::failed(why),
        };
        for (_, policies) in &self.layers {
            let mut found = policies.judge(&put);
            let is_silent = found.deciding.is_empty() && found.errors.is_empty();
            if is_silent {
                match policies.permitting(put.action) {
                    Some(other) => found.others.push(other.clone()),
                    None => found.effect = Effect::Allow,
                }
            }
            whole = both(whole, found);
        }
        whole
    }
}

/// Returns the stricter of two decisions on one question, with the obligations of both.
fn stricter(one: Decision, two: Decision) -> Decision {
    let (mut kept, other) = match rank(two.effect) > rank(one.effect) {
        true => (two, one),
        false => (one, two),
    };
    kept.obligations.add(&other.obligations);
    kept.rates.extend(other.rates);
    kept.rates.sort();
    kept.rates.dedup();
    kept
}

/// Returns the stricter of two decisions, with the policies, obligations and errors of both.
fn both(mut one: Decision, mut two: Decision) -> Decision {
    one.reported.append(&mut two.reported);
    one.others.append(&mut two.others);
    let stricter = rank(two.effect) > rank(one.effect);
    if stricter || two.effect == one.effect {
        if stricter {
            one.effect = two.effect;
            // What permits elsewhere has not decided.
            if two.effect == Effect::Deny {
                one.deciding.clear();
            }
        }
        one.deciding.append(&mut two.deciding);
    } else if one.effect == Effect::Ask {
        one.deciding.append(&mut two.deciding);
    }
    one.obligations.add(&two.obligations);
    one.rates.append(&mut two.rates);
    one.errors.append(&mut two.errors);
    one
}

fn rank(effect: Effect) -> u8 {
    match effect {
        Effect::Allow => 0,
        Effect::Ask => 1,
        Effect::Deny => 2,
    }
}
