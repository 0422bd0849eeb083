//! The policies of one layer, compiled.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use cedar_policy::{
    Authorizer, Effect as CedarEffect, EntityUid, Policy, PolicyId, PolicySet, ResourceConstraint,
};

use crate::Action;
use crate::decision::{Deciding, Decision, Effect};
use crate::fault::Fault;
use crate::files::PolicyFile;
use crate::index::Index;
use crate::question::{CedarRequest, Needs, Question};
use crate::reading::{Meta, Reading};
use crate::vocabulary::Vocabulary;

/// The most ancestors of an entity that are followed.
const ABOVE_MAX: usize = 64;

/// The groups of people and tools, from a directory, besides the ancestors that follow from names.
#[derive(Clone, Debug, Default)]
pub struct Known {
    above: HashMap<EntityUid, Vec<EntityUid>>,
}

impl Known {
    /// Adds one entity to another, both as `Kind::"name"`.
    ///
    /// # Errors
    /// Describes the id that cannot be read.
    pub fn add(&mut self, one: &str, within: &str) -> Result<(), String> {
        let read = |text: &str| {
            EntityUid::from_str(text).map_err(|error| format!("{text:?} names nothing: {error}"))
        };
        let (one, within) = (read(one)?, read(within)?);
        self.above.entry(one).or_default().push(within);
        Ok(())
    }

    /// Returns whether any entity is in this group.
    pub(crate) fn has(&self, group: &EntityUid) -> bool {
        let mut all = self.above.values();
        all.any(|above| above.contains(group))
    }

    /// Returns all ancestors of an entity, also where groups contain each other in a circle.
    fn above(&self, one: &EntityUid) -> Vec<EntityUid> {
        let mut found: Vec<EntityUid> = Vec::new();
        let mut next = self.above.get(one).cloned().unwrap_or_default();
        while let Some(above) = next.pop() {
            if above != *one && !found.contains(&above) && found.len() < ABOVE_MAX {
                next.extend(self.above.get(&above).into_iter().flatten().cloned());
                found.push(above);
            }
        }
        found
    }
}

/// An entity that a policy permits by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The actions permitted on it.
    pub actions: Vec<Action>,
    /// Its name.
    pub name: String,
    /// The policy that permits it.
    pub by: Deciding,
}

/// The policies of one layer: read, validated against the schema, and indexed.
#[derive(Debug)]
pub struct Policies {
    pub(crate) words: Arc<Vocabulary>,
    pub(crate) all: PolicySet,
    pub(crate) meta: HashMap<PolicyId, Meta>,
    pub(crate) index: Index,
    report_only: Index,
    pub(crate) needs: Needs,
    /// The first policy that permits something of an action, by action.
    permits: HashMap<Action, Deciding>,
    /// The policies whose conditions never hold, as their types show.
    pub(crate) impossible: Vec<PolicyId>,
    pub(crate) known: Known,
}

impl Policies {
    /// Compiles files into one set.
    ///
    /// # Errors
    /// Every error found, with its file, line and column; no policy counts then, and the caller has
    /// to deny.
    pub fn compile(files: &[PolicyFile], known: Known) -> Result<Self, Vec<Fault>> {
        let words = Vocabulary::read().map_err(|why| vec![Fault::at("schema", "", 0, why)])?;
        let mut reading = Reading::default();
        for file in files {
            reading.file(file, &words);
        }
        if !reading.faults.is_empty() {
            return Err(reading.faults);
        }
        let is_report_only = |policy: &&Policy| {
            reading
                .meta
                .get(policy.id())
                .is_none_or(|one| one.is_report_only)
        };
        let (report_only, counting): (Vec<_>, Vec<_>) =
            reading.all.policies().partition(is_report_only);
        let failed = |error: Box<cedar_policy::PolicySetError>| {
            vec![Fault::at("policies", "", 0, error.to_string())]
        };
        let counts = reading.meta.values().filter(|one| !one.is_report_only);
        let mut permitting: Vec<&Meta> = counts
            .filter(|one| one.effect == CedarEffect::Permit)
            .collect();
        permitting.sort_by(|one, two| order(&one.deciding, &two.deciding));
        let mut permits = HashMap::new();
        for one in permitting {
            for action in &one.actions {
                permits
                    .entry(*action)
                    .or_insert_with(|| one.deciding.clone());
            }
        }
        Ok(Self {
            index: Index::new(counting.into_iter()).map_err(failed)?,
            report_only: Index::new(report_only.into_iter()).map_err(failed)?,
            permits,
            needs: reading.needs,
            meta: reading.meta,
            all: reading.all,
            impossible: reading.impossible,
            words,
            known,
        })
    }

    /// Returns the first policy that permits something of this action; the layer then permits
    /// nothing else of it.
    pub(crate) fn permitting(&self, action: Action) -> Option<&Deciding> {
        self.permits.get(&action)
    }

    /// Returns whether some policy can be about this action.
    #[must_use]
    pub fn is_about(&self, action: Action) -> bool {
        self.meta.values().any(|one| one.actions.contains(&action))
    }

    /// Returns whether some policy sets labels of touched data.
    pub(crate) fn labels(&self) -> bool {
        let mut all = self.meta.values();
        all.any(|one| !one.obligations.label.is_empty())
    }

    /// Returns whether some policy on this action reads the labels of a session.
    pub(crate) fn looks_at_labels(&self, action: Action) -> bool {
        let looks = |policy: &Policy| Needs::of(&policy.to_string()).labels;
        self.all.policies().any(|policy| {
            let meta = self.meta.get(policy.id());
            meta.is_some_and(|meta| meta.actions.contains(&action)) && looks(policy)
        })
    }

    /// Returns whether some policy on one of these actions requires an approval.
    pub(crate) fn asks_about(&self, actions: &[Action]) -> bool {
        let mut all = self.meta.values();
        all.any(|one| {
            !one.obligations.approve.is_empty()
                && actions.iter().any(|action| one.actions.contains(action))
        })
    }

    /// Returns the single entities that are permitted, with the policies that name them.
    #[must_use]
    pub fn named(&self) -> Vec<Named> {
        let mut all = Vec::new();
        for policy in self.all.policies() {
            let Some(meta) = self.meta.get(policy.id()) else {
                continue;
            };
            if let ResourceConstraint::Eq(one) = policy.resource_constraint()
                && meta.effect == CedarEffect::Permit
                && !meta.is_report_only
            {
                all.push(Named {
                    actions: meta.actions.clone(),
                    name: one.id().unescaped().to_owned(),
                    by: meta.deciding.clone(),
                });
            }
        }
        all.sort_by(|one, two| order(&one.by, &two.by));
        all
    }

    /// Returns the policies that judge requests but not their connections, in source order. Each
    /// comes with the host that it is about, or the parent domain as `*.example.com`, if it names
    /// one.
    #[must_use]
    pub fn of_requests_alone(&self) -> Vec<(&Deciding, Option<String>)> {
        let all = self.all.policies().filter_map(|policy| {
            let meta = self.meta.get(policy.id())?;
            let is = |action: Action| meta.actions.contains(&action);
            let host = match policy.resource_constraint() {
                ResourceConstraint::Eq(one)
                | ResourceConstraint::In(one)
                | ResourceConstraint::IsIn(_, one) => Some(one.id().unescaped().to_owned()),
                ResourceConstraint::Any | ResourceConstraint::Is(_) => None,
            };
            let counts = is(Action::Request) && !is(Action::Connect) && !meta.is_report_only;
            counts.then_some((&meta.deciding, host))
        });
        let mut all: Vec<(&Deciding, Option<String>)> = all.collect();
        all.sort_by(|one, two| order(one.0, two.0));
        all
    }

    /// Returns every policy in source order, with its kind: `permit`, `forbid` or `report-only`.
    #[must_use]
    pub fn list(&self) -> Vec<(&Deciding, &'static str)> {
        let all = self.meta.values().map(|one| (&one.deciding, one.does()));
        let mut all: Vec<(&Deciding, &'static str)> = all.collect();
        all.sort_by(|one, two| order(one.0, two.0));
        all
    }

    /// Returns every policy in source order, with its content in one form, independent of layout.
    #[must_use]
    pub fn canonical_texts(&self) -> Vec<(&Deciding, String)> {
        let all = self.all.policies().filter_map(|policy| {
            let deciding = &self.meta.get(policy.id())?.deciding;
            // Of a policy that has no such form its own text says all.
            let text = policy
                .to_json()
                .map_or_else(|_| policy.to_string(), |json| json.to_string());
            Some((deciding, text))
        });
        let mut all: Vec<(&Deciding, String)> = all.collect();
        all.sort_by(|one, two| order(one.0, two.0));
        all
    }

    /// Returns the number of policies.
    #[must_use]
    pub fn len(&self) -> usize {
        self.meta.len()
    }

    /// Returns whether there is no policy.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.meta.is_empty()
    }

    /// Decides on a question by these policies alone.
    #[must_use]
    pub fn authorize(&self, question: &Question<'_>) -> Decision {
        match self.put(question, self.needs) {
            Ok(put) => self.judge(&put),
            Err(why) => Decision::failed(why),
        }
    }

    pub(crate) fn put(
        &self,
        question: &Question<'_>,
        needs: Needs,
    ) -> Result<CedarRequest, String> {
        question.put(&self.words, needs, |id| self.known.above(id))
    }

    pub(crate) fn judge(&self, put: &CedarRequest) -> Decision {
        let mut counted = self.held(&self.index, put);
        counted.errors.extend(self.misread(put));
        let reported = self.held(&self.report_only, put);
        let mut decision = self.conclude(counted);
        let told = |id: &PolicyId| self.meta.get(id).map(|one| one.deciding.clone());
        let reported = reported.forbids.iter().chain(&reported.permits);
        decision.reported = reported.filter_map(told).collect();
        decision.reported.sort_by(order);
        decision
    }

    /// Returns the policies that hold, from every bucket that can have some.
    fn held(&self, index: &Index, put: &CedarRequest) -> Held {
        let authorizer = Authorizer::new();
        let mut held = Held::default();
        if index.is_empty() {
            return held;
        }
        for bucket in index.buckets(put) {
            let answer = authorizer.is_authorized(&put.request, bucket, &put.entities);
            held.take(&answer);
        }
        held
    }

    /// Decides on a question without the index, by evaluating every policy.
    #[cfg(test)]
    pub(crate) fn authorize_unindexed(&self, question: &Question<'_>) -> Decision {
        let put = self.put(question, self.needs).unwrap();
        let counts = |policy: &&Policy| !self.meta[policy.id()].is_report_only;
        let counted = PolicySet::from_policies(self.all.policies().filter(counts).cloned());
        let authorizer = Authorizer::new();
        let answer = authorizer.is_authorized(&put.request, &counted.unwrap(), &put.entities);
        let mut held = Held::default();
        held.take(&answer);
        let decision = self.conclude(held);
        let cedars = answer.decision() == cedar_policy::Decision::Allow;
        if decision.errors.is_empty() {
            assert_eq!(decision.effect != Effect::Deny, cedars);
        }
        decision
    }

    fn conclude(&self, held: Held) -> Decision {
        let (effect, ids) = match (held.forbids.as_slice(), held.permits.as_slice()) {
            ([], []) => (Effect::Deny, Vec::new()),
            ([], _) => (Effect::Allow, held.permits),
            (_, _) => (Effect::Deny, held.forbids),
        };
        let mut decision = Decision {
            effect,
            errors: held.errors,
            ..Decision::nothing_said()
        };
        for id in &ids {
            let Some(meta) = self.meta.get(id) else {
                decision.errors.push(format!("policy {id} is not known"));
                continue;
            };
            decision.deciding.push(meta.deciding.clone());
            decision.obligations.add(&meta.obligations);
            let rates = meta.obligations.rate.iter();
            let by = Arc::clone(&meta.deciding.id);
            decision
                .rates
                .extend(rates.map(|rate| (Arc::clone(&by), *rate)));
            if let Some(unknown) = meta.unknown.as_ref().filter(|_| effect == Effect::Allow) {
                let id = &meta.deciding.id;
                let why =
                    format!("policy {id} has the annotation @{unknown}, which nobody here knows");
                decision.errors.push(why);
            }
        }
        decision.deciding.sort_by(order);
        decision.errors.sort();
        if !decision.errors.is_empty() {
            decision.effect = Effect::Deny;
        } else if effect == Effect::Allow && !decision.obligations.approve.is_empty() {
            decision.effect = Effect::Ask;
        }
        decision
    }
}

/// Compares two policies by their order in the source.
pub(crate) fn order(one: &Deciding, two: &Deciding) -> std::cmp::Ordering {
    (&one.file, one.line, &one.id).cmp(&(&two.file, two.line, &two.id))
}

/// The policies that held, and the errors, of several disjoint sets.
#[derive(Debug, Default)]
struct Held {
    permits: Vec<PolicyId>,
    forbids: Vec<PolicyId>,
    errors: Vec<String>,
}

impl Held {
    fn take(&mut self, answer: &cedar_policy::Response) {
        let reasons = answer.diagnostics().reason().cloned();
        match answer.decision() {
            cedar_policy::Decision::Allow => self.permits.extend(reasons),
            // Without a reason nothing was said there.
            cedar_policy::Decision::Deny => self.forbids.extend(reasons),
        }
        let errors = answer.diagnostics().errors();
        self.errors.extend(errors.map(ToString::to_string));
    }
}
