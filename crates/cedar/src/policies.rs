//! The policies of one layer, compiled.

use std::collections::{HashMap, HashSet};
use std::str::FromStr;
use std::sync::Arc;

use cedar_policy::{
    Authorizer, Effect as CedarEffect, EntityUid, Policy, PolicyId, PolicySet, ResourceConstraint,
    ValidationMode, Validator,
};
use miette::Diagnostic;

use crate::Action;
use crate::decision::{Deciding, Decision, Effect};
use crate::fault::{Fault, place};
use crate::handed::base_name;
use crate::ids;
use crate::index::{Index, actions};
use crate::layers::PolicyFile;
use crate::obligation::Obligations;
use crate::question::{Put, Question};
use crate::source::{self, POLICIES_MAX};
use crate::vocabulary::Vocabulary;

/// Annotations that say something and ask for nothing.
const SAYING: [&str; 3] = ["id", "reason", "shadow"];
/// The longest `@id`, bytes.
const ID_BYTES_MAX: usize = 128;
/// How far what is in something is followed.
const ABOVE_MAX: usize = 64;

/// Who and what is in which groups, besides what follows from names: what a directory of people
/// and tools says.
#[derive(Clone, Debug, Default)]
pub struct Known {
    above: HashMap<EntityUid, Vec<EntityUid>>,
}

impl Known {
    /// Says that one thing is in another, both as `Kind::"name"`.
    ///
    /// # Errors
    /// What of them cannot be read.
    pub fn add(&mut self, one: &str, within: &str) -> Result<(), String> {
        let read = |text: &str| {
            EntityUid::from_str(text).map_err(|error| format!("{text:?} names nothing: {error}"))
        };
        let (one, within) = (read(one)?, read(within)?);
        self.above.entry(one).or_default().push(within);
        Ok(())
    }

    /// All that something is in; also where groups are in each other in a circle.
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

/// Which parts of a request some policy looks at: what takes long to tell is told only then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) segments: bool,
    pub(crate) loose: bool,
}

impl Needs {
    /// A part is looked at by its name alone; behind an escape any name can stand.
    fn of(text: &str) -> Self {
        let names = |name: &str| text.contains(name) || text.contains('\\');
        Self {
            segments: names("segments"),
            loose: names("loose"),
        }
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            segments: self.segments || other.segments,
            loose: self.loose || other.loose,
        }
    }
}

/// A policy besides what Cedar knows of it.
#[derive(Debug)]
pub(crate) struct Meta {
    pub(crate) told: Deciding,
    pub(crate) effect: CedarEffect,
    pub(crate) actions: Vec<Action>,
    pub(crate) obligations: Obligations,
    pub(crate) is_shadow: bool,
    /// An annotation that nobody knows, which denies where the policy decides.
    pub(crate) unknown: Option<String>,
}

impl Meta {
    fn does(&self) -> &'static str {
        match (self.is_shadow, self.effect) {
            (true, _) => "shadow",
            (false, CedarEffect::Permit) => "permit",
            (false, CedarEffect::Forbid) => "forbid",
        }
    }
}

/// One thing that a policy permits by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// What may be done with it.
    pub actions: Vec<Action>,
    /// Its name.
    pub name: String,
    /// By which policy.
    pub by: Deciding,
}

/// The policies of one layer: read, held to the schema, and indexed.
#[derive(Debug)]
pub struct Policies {
    pub(crate) words: Arc<Vocabulary>,
    pub(crate) all: PolicySet,
    pub(crate) meta: HashMap<PolicyId, Meta>,
    pub(crate) index: Index,
    shadows: Index,
    pub(crate) needs: Needs,
    /// The actions of which something is permitted.
    permits: HashSet<Action>,
    known: Known,
}

impl Policies {
    /// Compiles files into one set.
    ///
    /// # Errors
    /// Every mistake that was found, with its file, line and column: then nothing counts, and
    /// whoever asks has to deny.
    pub fn compile(files: &[PolicyFile], known: Known) -> Result<Self, Vec<Fault>> {
        let words = Vocabulary::read().map_err(|why| vec![Fault::at("schema", "", 0, why)])?;
        let mut reading = Reading::default();
        for file in files {
            reading.file(file, &words);
        }
        if !reading.faults.is_empty() {
            return Err(reading.faults);
        }
        let is_shadow = |policy: &&Policy| {
            reading
                .meta
                .get(policy.id())
                .is_none_or(|one| one.is_shadow)
        };
        let (shadows, counting): (Vec<_>, Vec<_>) = reading.all.policies().partition(is_shadow);
        let failed = |error: Box<cedar_policy::PolicySetError>| {
            vec![Fault::at("policies", "", 0, error.to_string())]
        };
        let counts = reading.meta.values().filter(|one| !one.is_shadow);
        let permits = counts.filter(|one| one.effect == CedarEffect::Permit);
        let permits = permits
            .flat_map(|one| one.actions.iter().copied())
            .collect();
        Ok(Self {
            index: Index::new(counting.into_iter()).map_err(failed)?,
            shadows: Index::new(shadows.into_iter()).map_err(failed)?,
            permits,
            needs: reading.needs,
            meta: reading.meta,
            all: reading.all,
            words,
            known,
        })
    }

    /// Whether something of this kind is permitted: then nothing else of it is.
    #[must_use]
    pub fn permits(&self, action: Action) -> bool {
        self.permits.contains(&action)
    }

    /// Whether some policy can be about it.
    #[must_use]
    pub fn is_about(&self, action: Action) -> bool {
        self.meta.values().any(|one| one.actions.contains(&action))
    }

    /// What single things are permitted, by the policies that name them.
    #[must_use]
    pub fn named(&self) -> Vec<Named> {
        let mut all = Vec::new();
        for policy in self.all.policies() {
            let Some(meta) = self.meta.get(policy.id()) else {
                continue;
            };
            if let ResourceConstraint::Eq(one) = policy.resource_constraint()
                && meta.effect == CedarEffect::Permit
                && !meta.is_shadow
            {
                all.push(Named {
                    actions: meta.actions.clone(),
                    name: one.id().unescaped().to_owned(),
                    by: meta.told.clone(),
                });
            }
        }
        all.sort_by(|one, two| order(&one.by, &two.by));
        all
    }

    /// Every policy in the order in which they are written, with what it does.
    #[must_use]
    pub fn list(&self) -> Vec<(&Deciding, &'static str)> {
        let all = self.meta.values().map(|one| (&one.told, one.does()));
        let mut all: Vec<(&Deciding, &'static str)> = all.collect();
        all.sort_by(|one, two| order(one.0, two.0));
        all
    }

    /// How many policies there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.meta.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.meta.is_empty()
    }

    /// Answers a question by these policies alone.
    #[must_use]
    pub fn authorize(&self, question: &Question<'_>) -> Decision {
        match self.put(question, self.needs) {
            Ok(put) => self.judge(&put),
            Err(why) => Decision::failed(why),
        }
    }

    pub(crate) fn put(&self, question: &Question<'_>, needs: Needs) -> Result<Put, String> {
        question.put(&self.words, needs, |id| self.known.above(id))
    }

    pub(crate) fn judge(&self, put: &Put) -> Decision {
        let mut counted = self.held(&self.index, put);
        counted.errors.extend(self.misread(put));
        let shadows = self.held(&self.shadows, put);
        let mut decision = self.conclude(counted);
        let told = |id: &PolicyId| self.meta.get(id).map(|one| one.told.clone());
        let shadows = shadows.forbids.iter().chain(&shadows.permits);
        decision.shadowed = shadows.filter_map(told).collect();
        decision.shadowed.sort_by(order);
        decision
    }

    /// The policies that hold, of every bucket that can have some.
    fn held(&self, index: &Index, put: &Put) -> Held {
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

    /// The same of every policy there is, without the index.
    #[cfg(test)]
    pub(crate) fn authorize_unindexed(&self, question: &Question<'_>) -> Decision {
        let put = self.put(question, self.needs).unwrap();
        let counts = |policy: &&Policy| !self.meta[policy.id()].is_shadow;
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
            decision.deciding.push(meta.told.clone());
            decision.obligations.add(&meta.obligations);
            if let Some(unknown) = meta.unknown.as_ref().filter(|_| effect == Effect::Allow) {
                let id = &meta.told.id;
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

/// In the order in which they are written.
pub(crate) fn order(one: &Deciding, two: &Deciding) -> std::cmp::Ordering {
    (&one.file, one.line, &one.id).cmp(&(&two.file, two.line, &two.id))
}

/// What held, of several sets that have no policy in common.
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

/// Files on their way to a set.
#[derive(Debug, Default)]
struct Reading {
    all: PolicySet,
    meta: HashMap<PolicyId, Meta>,
    ids: HashMap<Arc<str>, String>,
    needs: Needs,
    faults: Vec<Fault>,
}

impl Reading {
    fn file(&mut self, file: &PolicyFile, words: &Vocabulary) {
        let text = match source::read(&file.name, &file.content) {
            Ok(text) => text,
            Err(fault) => return self.faults.push(fault),
        };
        let set = match PolicySet::from_str(text) {
            Ok(set) => set,
            Err(errors) => {
                let all = errors
                    .iter()
                    .map(|error| located(&file.name, text, error, 0));
                return self.faults.extend(all);
            }
        };
        for template in set.templates() {
            let what = format!("policy {} has a slot, and nobody fills it", template.id());
            let hint = "name who or what is meant, or leave the scope open";
            self.faults
                .push(Fault::at(&file.name, text, 0, what).hint(hint));
        }
        self.needs = self.needs.or(Needs::of(text));
        let name: Arc<str> = file.name.as_str().into();
        let mut found: Vec<&Policy> = set.policies().collect();
        found.sort_by_key(|policy| offset(policy));
        for policy in found {
            self.policy(&name, text, policy);
        }
        if self.meta.len() > POLICIES_MAX {
            let what = format!("a layer has more than {POLICIES_MAX} policies");
            self.faults.push(Fault::at(&file.name, text, 0, what));
        }
        let validator = Validator::new(words.schema.clone());
        let result = validator.validate(&set, ValidationMode::Strict);
        let faults = result.validation_errors().map(|error| {
            let at = set.policy(error.policy_id()).map_or(0, offset);
            located(&file.name, text, error, at)
        });
        self.faults.extend(faults);
    }

    fn policy(&mut self, name: &Arc<str>, text: &str, policy: &Policy) {
        let at = offset(policy);
        let (line, _) = place(text, at);
        let mut wrong = |what: String| self.faults.push(Fault::at(name, text, at, what));
        let own = PolicyId::new(format!("{name}:{line}:{}", policy.id()));
        let id: Arc<str> = match policy.annotation("id") {
            Some(id) if is_id(id) => id.into(),
            Some(id) => {
                wrong(format!(
                    "{id:?} is no id: letters, digits and '-_.:/' of ASCII, at most {ID_BYTES_MAX}"
                ));
                return;
            }
            None => {
                let file = base_name(name);
                format!("{file}:{line}").into()
            }
        };
        let is_shadow = policy.annotation("shadow");
        if is_shadow.is_some_and(|value| !value.is_empty()) {
            wrong("@shadow has no value".to_owned());
        }
        for one in policy.entity_literals() {
            if let Some(right) = ids::wrong(one.type_name().basename(), one.id().unescaped()) {
                wrong(format!("{one} stands for nothing: {right}"));
            }
        }
        let mut obligations = Obligations::default();
        let mut unknown = None;
        for (key, value) in policy.annotations() {
            match obligations.read(key, value) {
                Ok(true) if policy.effect() == CedarEffect::Forbid && key != "log" => {
                    wrong(format!("@{key} is for what is permitted, and this forbids"));
                }
                Ok(true) => {}
                Ok(false) if SAYING.contains(&key) => {}
                Ok(false) => unknown = Some(key.to_owned()),
                Err(why) => wrong(format!("@{key}: {why}")),
            }
        }
        let place = format!("{name}:{line}");
        if let Some(before) = self.ids.insert(Arc::clone(&id), place) {
            wrong(format!("@id {id:?} is that of {before} too"));
        }
        let told = Deciding {
            id,
            file: Arc::clone(name),
            line,
            reason: policy.annotation("reason").map(Into::into),
        };
        let meta = Meta {
            told,
            effect: policy.effect(),
            actions: actions(policy),
            obligations,
            is_shadow: is_shadow.is_some(),
            unknown,
        };
        self.meta.insert(own.clone(), meta);
        if let Err(error) = self.all.add(policy.new_id(own)) {
            let what = error.to_string();
            self.faults.push(Fault::at(name, text, at, what));
        }
    }
}

/// Ids are compared by people too: none looks like another.
fn is_id(text: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    (1..=ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_known)
}

/// Where a policy begins in its file, bytes.
pub(crate) fn offset(policy: &Policy) -> usize {
    policy.as_ref().loc().map_or(0, |loc| loc.start())
}

/// A mistake that Cedar has found; where it does not say where, at this byte.
pub(crate) fn located(
    file: &str,
    text: &str,
    error: &(impl Diagnostic + ?Sized),
    otherwise: usize,
) -> Fault {
    let label = error.labels().and_then(|mut labels| labels.next());
    let at = label.map_or(otherwise, |label| label.offset());
    let fault = Fault::at(file, text, at, error.to_string());
    match error.help() {
        Some(help) => fault.hint(help.to_string()),
        None => fault,
    }
}
