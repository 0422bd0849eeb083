//! Lints: remarks on policies that have no errors.

use cedar_policy::{
    Effect as CedarEffect, Policy, PrincipalConstraint, ResourceConstraint, ValidationMode,
    ValidationWarning, Validator,
};
use serde_json::Value;

use crate::decision::Deciding;
use crate::index::actions;
use crate::never::never;
use crate::obligation::{PERSON, carried};
use crate::policies::{Policies, order as by_place};
use crate::reading::Meta;
use crate::remark::{Remark, Standing, remark};
use crate::{Action, Redaction};

/// Returns the remarks on each policy: annotations that deny because they are unknown or not
/// carried out, conditions that never hold, and policies overridden by another.
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
            let standing = match warning {
                ValidationWarning::ImpossiblePolicy(_) => Standing::Idle,
                _ => Standing::Note,
            };
            all.push(remark(meta, text.to_owned(), standing));
        }
    }
    for policy in policies.all.policies() {
        let meta = policies.meta.get(policy.id());
        all.extend(meta.and_then(|meta| covered(policies, policy, meta)));
        all.extend(meta.into_iter().flat_map(|meta| as_typed(policy, meta)));
        let never = meta.map(|meta| never(policies, policy, meta));
        let idle = |one: &Remark| one.standing != Standing::Refused;
        all.extend(never.into_iter().flatten().filter(idle));
    }
    all.sort_by(order);
    all
}

/// Returns the remarks on permits that close their action to all else: with one, a layer permits
/// nothing but what a permit of it names. One that permits everything closes nothing.
#[must_use]
pub fn closing(policies: &Policies) -> Vec<Remark> {
    let opens_all = |action: Action| {
        policies.all.policies().any(|policy| {
            let meta = policies.meta.get(policy.id());
            let is_permit = |meta: &Meta| {
                meta.effect == CedarEffect::Permit
                    && !meta.is_report_only
                    && meta.actions.contains(&action)
            };
            meta.is_some_and(is_permit) && permits_all(policy)
        })
    };
    let mut first: Vec<(&Deciding, Vec<&str>)> = Vec::new();
    for action in Action::ALL {
        let Some(deciding) = policies.permitting(action).filter(|_| !opens_all(action)) else {
            continue;
        };
        match first.iter_mut().find(|(known, _)| *known == deciding) {
            Some((_, names)) => names.push(action.name()),
            None => first.push((deciding, vec![action.name()])),
        }
    }
    let one = |(deciding, names): (&Deciding, Vec<&str>)| Remark {
        file: deciding.file.to_string(),
        line: deciding.line,
        what: format!(
            "warning: with this permit its layer denies all else of {}: what no permit of the \
             layer names. Where only something is to be taken away, write a forbid instead",
            names.join(", ")
        ),
        standing: Standing::Note,
    };
    first.into_iter().map(one).collect()
}

/// Returns whether a policy permits its actions to everybody, of everything, in any case.
fn permits_all(policy: &Policy) -> bool {
    let conditions = policy.to_json().ok();
    let conditions = conditions.as_ref().and_then(|json| json.get("conditions"));
    let is_free = conditions
        .and_then(Value::as_array)
        .is_some_and(Vec::is_empty);
    is_free
        && matches!(policy.principal_constraint(), PrincipalConstraint::Any)
        && matches!(policy.resource_constraint(), ResourceConstraint::Any)
}

/// Returns the [`Standing::Refused`] remarks, which are also reported at every run.
#[must_use]
pub fn refused(policies: &Policies) -> Vec<Remark> {
    let mut all = Vec::new();
    for policy in policies.all.policies() {
        let Some(meta) = policies.meta.get(policy.id()) else {
            continue;
        };
        all.extend(wildcards(policy, meta));
        if let Some(unknown) = &meta.unknown {
            let what = format!(
                "@{unknown} is nothing that is known here: where this policy decides, it denies"
            );
            all.push(remark(meta, what, Standing::Refused));
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
                all.push(remark(meta, what, Standing::Refused));
            }
        }
        for one in &meta.obligations.redact {
            if Redaction::parse(one).is_none() {
                let what = format!(
                    "@redact({one:?}) is nothing that is taken out here: where this policy decides, it \
                     denies; write header:NAME or response-header:NAME, of a header that does not say \
                     how a message is carried"
                );
                all.push(remark(meta, what, Standing::Refused));
            }
        }
        for one in meta.obligations.approve.iter().filter(|one| *one != PERSON) {
            let what = format!(
                "@approve({one:?}): nobody can be asked by that name, so where this policy decides, it \
                 denies; write @approve({PERSON:?})"
            );
            all.push(remark(meta, what, Standing::Refused));
        }
        let never = never(policies, policy, meta).into_iter();
        all.extend(never.filter(|one| one.standing == Standing::Refused));
    }
    all.sort_by(order);
    all
}

/// Returns the policies that are meant to forbid something and never do, as their types show: each
/// is reported at every run, since somebody relies on it. They come in source order, without those
/// that [`refused`] reports.
#[must_use]
pub fn forbid_nothing(policies: &Policies) -> Vec<&Deciding> {
    let told = refused(policies);
    let is_told = |one: &Deciding| {
        let mut told = told.iter();
        told.any(|other| (other.file.as_str(), other.line) == (&*one.file, one.line))
    };
    let all = policies.impossible.iter();
    let all = all.filter_map(|id| policies.meta.get(id));
    let forbids = all.filter(|meta| meta.effect == CedarEffect::Forbid && !meta.is_report_only);
    let mut all: Vec<&Deciding> = forbids.map(|meta| &meta.deciding).collect();
    all.retain(|one| !is_told(one));
    all.sort_by(|one, two| by_place(one, two));
    all
}

/// Remarks on a host with `*.` that is compared for equality, which nothing equals.
fn wildcards(policy: &Policy, meta: &Meta) -> Vec<Remark> {
    let is_named = |one: &cedar_policy::EntityUid| {
        one.type_name().basename() == "Host" && one.id().unescaped().starts_with("*.")
    };
    if !policy.entity_literals().iter().any(is_named) {
        return Vec::new();
    }
    let mut names = Vec::new();
    if let ResourceConstraint::Eq(one) = policy.resource_constraint()
        && is_named(&one)
    {
        names.push(one.id().unescaped().to_owned());
    }
    match policy.to_json() {
        Ok(read) => compared(&read, false, &mut names),
        Err(error) => {
            let what = format!("its conditions cannot be read: {error}");
            return vec![remark(meta, what, Standing::Refused)];
        }
    }
    names.sort();
    names.dedup();
    let told = |name: &String| {
        let what = format!("nothing is `{name}` itself: write `in Host::\"{name}\"`");
        remark(meta, what, Standing::Refused)
    };
    names.iter().map(told).collect()
}

/// Collects hosts with `*.` that conditions compare with `==` or look for in a set, in Cedar's
/// JSON.
fn compared(read: &Value, is_compared: bool, names: &mut Vec<String>) {
    match read {
        Value::Array(all) => all.iter().for_each(|one| compared(one, is_compared, names)),
        Value::Object(all) => {
            let member = |name: &str| read.get(name).and_then(Value::as_str);
            match (member("type"), member("id")) {
                (Some("Host"), Some(id)) if is_compared && id.starts_with("*.") => {
                    names.push(id.to_owned());
                }
                (_, _) => {}
            }
            for (key, value) in all {
                let is_compared = match key.as_str() {
                    "==" | "!=" | "contains" | "containsAny" | "containsAll" => true,
                    "in" | "is" => false,
                    _ => is_compared,
                };
                compared(value, is_compared, names);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Remarks on programs that match only if the name is typed in one way.
fn as_typed(policy: &Policy, meta: &Meta) -> Vec<Remark> {
    if !meta.actions.contains(&Action::Run) {
        return Vec::new();
    }
    let exact = match policy.resource_constraint() {
        ResourceConstraint::Eq(one) => Some(one),
        ResourceConstraint::Any
        | ResourceConstraint::Is(_)
        | ResourceConstraint::In(_)
        | ResourceConstraint::IsIn(_, _) => None,
    };
    let mut names: Vec<String> = policy
        .entity_literals()
        .iter()
        .filter(|one| one.type_name().basename() == "Program")
        .filter(|one| one.id().unescaped().contains('/') || exact.as_ref() == Some(*one))
        .map(|one| one.id().unescaped().to_owned())
        .collect();
    names.sort();
    names.dedup();
    let told = |name: &String| {
        let base = name.rsplit('/').next().unwrap_or_default();
        let what = format!(
            "`{name}` is meant only where a run's command is typed so: \
             write `in Program::\"{base}\"` for that name in any directory"
        );
        remark(meta, what, Standing::Note)
    };
    names.iter().map(told).collect()
}

fn order(one: &Remark, two: &Remark) -> std::cmp::Ordering {
    (&one.file, one.line, &one.what).cmp(&(&two.file, two.line, &two.what))
}

/// Remarks on a policy that is overridden by another one, or adds nothing to it. Of two equal
/// policies the later one gets the remark.
fn covered(policies: &Policies, policy: &Policy, meta: &Meta) -> Option<Remark> {
    if meta.is_report_only {
        return None;
    }
    let mut others = policies.all.policies().filter_map(|other| {
        let over = policies.meta.get(other.id())?;
        (other.id() != policy.id() && !over.is_report_only && covers(other, policy))
            .then_some((other, over))
    });
    others.find_map(|(other, over)| {
        let is_earlier =
            (&over.deciding.file, over.deciding.line) < (&meta.deciding.file, meta.deciding.line);
        let is_mutual = covers(policy, other) && !is_earlier;
        let (id, line) = (&over.deciding.id, over.deciding.line);
        let (what, standing) = match (meta.effect, over.effect) {
            (CedarEffect::Permit, CedarEffect::Forbid) => {
                let what = format!(
                    "it never permits: policy {id} (line {line}) forbids all that it is about"
                );
                (what, Standing::Idle)
            }
            (CedarEffect::Permit, CedarEffect::Permit)
                if meta.obligations == over.obligations && !is_mutual =>
            {
                let what =
                    format!("it changes nothing: policy {id} (line {line}) permits all of it");
                (what, Standing::Note)
            }
            (CedarEffect::Forbid, CedarEffect::Forbid) if !is_mutual => {
                let what =
                    format!("it changes nothing: policy {id} (line {line}) forbids all of it");
                (what, Standing::Note)
            }
            (_, _) => return None,
        };
        Some(remark(meta, what, standing))
    })
}

/// Returns whether a policy without a condition covers everything that another one is about.
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
