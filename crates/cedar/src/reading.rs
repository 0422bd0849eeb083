//! Reading of policy files into a set, with their errors and the data kept of each policy.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;
use std::sync::Arc;

use cedar_policy::{
    Effect as CedarEffect, Policy, PolicyId, PolicySet, ValidationError, ValidationMode,
    ValidationResult, ValidationWarning, Validator,
};
use miette::Diagnostic;

use crate::Action;
use crate::decision::{Deciding, Effect};
use crate::fault::{Fault, place};
use crate::files::{PolicyFile, base_name};
use crate::ids;
use crate::index::actions;
use crate::obligation::Obligations;
use crate::question::Needs;
use crate::source::{self, ID_BYTES_MAX, POLICIES_MAX, is_id};
use crate::stated;
use crate::vocabulary::Vocabulary;

/// Annotations that describe a policy without imposing an obligation.
const SAYING: [&str; 3] = ["id", "reason", "report_only"];

/// The state of reading policy files.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) all: PolicySet,
    pub(crate) meta: HashMap<PolicyId, Meta>,
    ids: HashMap<Arc<str>, String>,
    pub(crate) needs: Needs,
    pub(crate) faults: Vec<Fault>,
    /// The policies whose conditions never hold, as their types show.
    pub(crate) impossible: Vec<PolicyId>,
}

impl Reading {
    pub(crate) fn file(&mut self, file: &PolicyFile, words: &Vocabulary) {
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
        let errors: Vec<&ValidationError> = result.validation_errors().collect();
        self.faults
            .extend(mistyped(&file.name, text, &set, &errors));
        let impossible = impossible(&set, &result);
        self.impossible
            .extend(impossible.map(|policy| own_id(&file.name, text, policy)));
    }

    fn policy(&mut self, name: &Arc<str>, text: &str, policy: &Policy) {
        let at = offset(policy);
        let (line, _) = place(text, at);
        let mut wrong = |what: String| self.faults.push(Fault::at(name, text, at, what));
        let own = own_id(name, text, policy);
        let id = match id_of(policy, name, line) {
            Ok(id) => id,
            Err(why) => return wrong(why),
        };
        let is_report_only = policy.annotation("report_only");
        if is_report_only.is_some_and(|value| !value.is_empty()) {
            wrong("@report_only has no value".to_owned());
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
        if policy.effect() == CedarEffect::Permit
            && obligations.approve.is_empty()
            && stated::is_named(written(policy, text))
        {
            wrong(stated::OPENS.to_owned());
        }
        let here = format!("{name}:{line}");
        if let Some(before) = self.ids.insert(Arc::clone(&id), here.clone()) {
            let is_beside = before == here && policy.annotation("id").is_none();
            wrong(twice(&id, &before, is_beside.then_some(line)));
        }
        let told = Deciding {
            id,
            file: Arc::clone(name),
            line,
            reason: policy.annotation("reason").map(Into::into),
            effect: stated_effect(policy.effect()),
            timeout: obligations.timeout,
            asks: !obligations.approve.is_empty(),
            labels: obligations.label.clone(),
        };
        let meta = Meta {
            deciding: told,
            effect: policy.effect(),
            actions: actions(policy),
            obligations,
            is_report_only: is_report_only.is_some(),
            unknown,
        };
        self.meta.insert(own.clone(), meta);
        if let Err(error) = self.all.add(policy.new_id(own)) {
            let what = error.to_string();
            self.faults.push(Fault::at(name, text, at, what));
        }
    }
}

/// Returns a fault for each policy in a file that does not forbid, where only forbids are allowed:
/// permits, and policies with `@report_only`. A file that cannot be read yields none; compiling it
/// reports the error.
#[must_use]
pub fn forbids_alone(file: &PolicyFile) -> Vec<Fault> {
    let Ok(text) = source::read(&file.name, &file.content) else {
        return Vec::new();
    };
    let set = PolicySet::from_str(text).unwrap_or_default();
    let wrong = |policy: &Policy| {
        let what = match (policy.effect(), policy.annotation("report_only")) {
            (CedarEffect::Permit, _) => "a purpose only forbids, and this permits",
            (CedarEffect::Forbid, Some(_)) => "a purpose counts, and @report_only does not",
            (CedarEffect::Forbid, None) => return None,
        };
        let hint = "write forbid(...) unless { ... } of what the purpose needs";
        Some(Fault::at(&file.name, text, offset(policy), what).hint(hint))
    };
    let mut faults: Vec<Fault> = set.policies().filter_map(wrong).collect();
    faults.sort_by_key(|fault| (fault.line, fault.column));
    faults
}

/// Returns the id of a policy that is unique among all files.
fn own_id(name: &str, text: &str, policy: &Policy) -> PolicyId {
    let (line, _) = place(text, offset(policy));
    PolicyId::new(format!("{name}:{line}:{}", policy.id()))
}

/// Returns the policies that can never hold, as their types show.
fn impossible<'a>(
    set: &'a PolicySet,
    result: &'a ValidationResult,
) -> impl Iterator<Item = &'a Policy> {
    result.validation_warnings().filter_map(|one| match one {
        ValidationWarning::ImpossiblePolicy(_) => set.policy(one.policy_id()),
        _ => None,
    })
}

/// Returns the id of a policy for people: its `@id`, else one made from its file and line.
fn id_of(policy: &Policy, name: &str, line: u32) -> Result<Arc<str>, String> {
    match policy.annotation("id") {
        Some(id) if is_id(id) => Ok(id.into()),
        Some(id) => Err(format!(
            "{id:?} is no id: letters, digits and '-_.:/' of ASCII, at most {ID_BYTES_MAX}"
        )),
        None => Ok(format!("{}:{line}", base_name(name)).into()),
    }
}

/// Returns a policy's source text.
fn written<'a>(policy: &Policy, text: &'a str) -> &'a str {
    let place = policy.as_ref().loc();
    let range = place.map(|place| place.start()..place.end());
    range.and_then(|range| text.get(range)).unwrap_or_default()
}

/// Returns the effect of a policy where it holds.
fn stated_effect(effect: CedarEffect) -> Effect {
    match effect {
        CedarEffect::Permit => Effect::Allow,
        CedarEffect::Forbid => Effect::Deny,
    }
}

/// Formats the error that two policies have the same id, which is made from their line if neither
/// has an `@id`.
fn twice(id: &str, before: &str, line: Option<u32>) -> String {
    match line {
        Some(line) => {
            format!("two policies begin on line {line}: give them @id, or lines of their own")
        }
        None => format!("@id {id:?} is that of {before} too"),
    }
}

/// Returns the type errors. Cedar reports an unknown context member once for each action that a
/// policy can be about; they are merged into one error here.
fn mistyped(file: &str, text: &str, set: &PolicySet, errors: &[&ValidationError]) -> Vec<Fault> {
    let mut found: BTreeMap<(u32, u32, String), Mistyped> = BTreeMap::new();
    for error in errors {
        let policy = set.policy(error.policy_id());
        let mut fault = located(file, text, *error, policy.map_or(0, offset));
        // Its own words begin with an id that is not the person's.
        if let Some((_, rest)) = fault.what.split_once("`, ") {
            fault.what = rest.to_owned();
        }
        let (member, action) = match fault.what.split_once(" in context for Action::\"") {
            Some((member, rest)) => (member, rest.split('"').next().and_then(Action::named)),
            None => (fault.what.as_str(), None),
        };
        let key = (fault.line, fault.column, member.to_owned());
        let of = found.entry(key).or_insert_with(|| Mistyped {
            fault,
            actions: policy.map(actions).unwrap_or_default(),
            without: Vec::new(),
        });
        of.without.extend(action);
    }
    let found = found.into_iter();
    found.map(|((_, _, member), of)| of.told(&member)).collect()
}

/// A type error, collected from several reports of Cedar.
struct Mistyped {
    /// The first report.
    fault: Fault,
    /// The actions that the policy can be about.
    actions: Vec<Action>,
    /// The actions among them that it is an error for.
    without: Vec<Action>,
}

impl Mistyped {
    fn told(mut self, member: &str) -> Fault {
        self.without.sort();
        self.without.dedup();
        let Some(name) = member.split('`').nth(1).filter(|_| self.without.len() > 1) else {
            return self.fault;
        };
        if member.contains("optional") {
            self.fault.what = format!("`{name}` is not always known");
            let hint = format!("ask for it first: context has {name} && ...");
            return self.fault.hint(hint);
        }
        let with = self.actions.iter();
        let with = with.filter(|action| !self.without.contains(action));
        let with: Vec<String> = with
            .map(|action| format!("Action::\"{}\"", action.name()))
            .collect();
        if with.is_empty() {
            self.fault.what = format!("`{name}` is in the context of no action that is meant");
            return self.fault;
        }
        self.fault.what = format!("`{name}` is not in the context of every action");
        let hint = format!("name the actions, as action in [{}]", with.join(", "));
        self.fault.hint(hint)
    }
}

/// Returns the byte offset of a policy in its file.
fn offset(policy: &Policy) -> usize {
    policy.as_ref().loc().map_or(0, |loc| loc.start())
}

/// Converts an error reported by Cedar, placed at the byte `otherwise` if it has no place.
fn located(file: &str, text: &str, error: &(impl Diagnostic + ?Sized), otherwise: usize) -> Fault {
    let label = error.labels().and_then(|mut labels| labels.next());
    let at = label.as_ref().map_or(otherwise, |label| label.offset());
    let told = error.to_string();
    if let Some(end) = unended(text, at).filter(|_| told.starts_with("unexpected token")) {
        return Fault::at(file, text, end, "a `;` is missing at the end of the policy");
    }
    let begins_text = text.get(at..).is_some_and(|rest| rest.starts_with('"'));
    if told == "invalid token" && begins_text {
        return Fault::at(
            file,
            text,
            at,
            "the text that begins here has no closing `\"`",
        );
    }
    let expected = label.as_ref().and_then(|label| label.label());
    let fault = match expected.filter(|expected| expected.starts_with("expected")) {
        Some(expected) => Fault::at(file, text, at, format!("{told}, {}", likely(expected))),
        None => Fault::at(file, text, at, told),
    };
    match error.help() {
        Some(help) => fault.hint(help.to_string()),
        None => fault,
    }
}

/// The most expected tokens that are all named.
const EXPECTED_MAX: usize = 4;

/// Shortens a long list of expected tokens to those that people leave out: an expression can go on
/// with any operator.
fn likely(expected: &str) -> String {
    let tokens: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let ends = [")", "]", "}", ",", ";"];
    let ends: Vec<String> = ends
        .into_iter()
        .filter(|end| tokens.contains(end))
        .map(|end| format!("`{end}`"))
        .collect();
    match tokens.len() > EXPECTED_MAX && !ends.is_empty() {
        true => format!("expected {}", ends.join(" or ")),
        false => expected.to_owned(),
    }
}

/// Returns the end of a policy that lacks its semicolon, if the unexpected byte belongs to the head
/// of the next one.
fn unended(text: &str, at: usize) -> Option<usize> {
    let before = text.get(..at)?.trim_end();
    let head = ["permit", "forbid"];
    let before = match text.get(at..)?.starts_with('@') {
        true => before,
        false => head.iter().find_map(|word| before.strip_suffix(word))?,
    };
    let before = before.trim_end();
    before.ends_with([')', '}']).then_some(before.len())
}

/// A policy's data besides Cedar's own.
#[derive(Debug)]
pub(crate) struct Meta {
    pub(crate) deciding: Deciding,
    pub(crate) effect: CedarEffect,
    pub(crate) actions: Vec<Action>,
    pub(crate) obligations: Obligations,
    pub(crate) is_report_only: bool,
    /// An unknown annotation, which denies where the policy decides.
    pub(crate) unknown: Option<String>,
}

impl Meta {
    pub(crate) fn does(&self) -> &'static str {
        match (self.is_report_only, self.effect) {
            (true, _) => "report-only",
            (false, CedarEffect::Permit) => "permit",
            (false, CedarEffect::Forbid) => "forbid",
        }
    }
}
