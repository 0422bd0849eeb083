//! Request paths that programs read in different ways, where policies are about paths: a policy
//! compares one reading, and a server may use another one.

use cedar_policy::{Policy, PrincipalConstraint};

use crate::policies::{Policies, order};
use crate::question::CedarRequest;

impl Policies {
    /// Explains why a question cannot be decided: programs read its path in different ways, and a
    /// policy that can be about it depends on paths without handling such ambiguous ones.
    pub(crate) fn misread(&self, put: &CedarRequest) -> Option<String> {
        let why = put.unclear?;
        let policies = self.index.buckets(put).flat_map(|all| all.policies());
        let about = policies.filter(|policy| is_for(policy, put) && is_misled(policy));
        let about = about.filter_map(|policy| self.meta.get(policy.id()));
        let first = about
            .map(|meta| &meta.deciding)
            .min_by(|a, b| order(a, b))?;
        let id = &first.id;
        Some(format!(
            "policy {id} is about paths, and programs read this one in different ways: {why}. Ask \
             for its plain form, or let the policy say by context.unclear what of such ones"
        ))
    }
}

/// Returns whether a policy can be about the principal.
fn is_for(policy: &Policy, put: &CedarRequest) -> bool {
    let Some(asks) = put.request.principal() else {
        return true;
    };
    let within = |group| put.entities.is_ancestor_of(&group, asks) || group == *asks;
    match policy.principal_constraint() {
        PrincipalConstraint::Any => true,
        PrincipalConstraint::Eq(one) => one == *asks,
        PrincipalConstraint::In(group) => within(group),
        PrincipalConstraint::Is(kind) => kind == *asks.type_name(),
        PrincipalConstraint::IsIn(kind, group) => kind == *asks.type_name() && within(group),
    }
}

/// Returns whether a policy depends on paths without handling ambiguous ones.
pub(crate) fn is_misled(policy: &Policy) -> bool {
    let text = policy.as_ref().loc().and_then(|loc| loc.snippet());
    text.is_none_or(|text| names_path(text) && !code(text).contains("context.unclear"))
}

/// Returns whether a policy's text reads a path. A part of a path is read by its name alone, which
/// can be in a string too, and an escape can hide any name. The method of the liberal reading is no
/// part of a path.
fn names_path(text: &str) -> bool {
    let is_method = |rest: &str| rest.trim_start().starts_with(".method");
    let mut loose = text.split("loose").skip(1);
    let parts = ["path", "segments", "depth", "\\"];
    parts.iter().any(|part| text.contains(part)) || loose.any(|rest| !is_method(rest))
}

/// Returns a policy's text without comments and strings.
fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, from)) = rest.find(['/', '"']).map(|at| rest.split_at(at)) {
        code.push_str(before);
        if from.starts_with("//") {
            rest = from.split_once('\n').map_or("", |(_, rest)| rest);
        } else if let Some(text) = from.strip_prefix('"') {
            rest = after(text);
        } else {
            rest = from.get(1..).unwrap_or_default();
        }
        // What stood on both sides of it is not one word.
        code.push(' ');
    }
    code + rest
}

/// Returns the rest of the text after a string whose opening quote has been taken.
fn after(text: &str) -> &str {
    let mut is_escaped = false;
    let end = text.find(|one| {
        let ends = one == '"' && !is_escaped;
        is_escaped = one == '\\' && !is_escaped;
        ends
    });
    end.and_then(|end| text.get(end + 1..)).unwrap_or_default()
}
