//! The tools that a caller is shown: those of which some call may be allowed.

use cedar_policy::{Authorizer, Effect, Policy, PolicyId, PolicySet};
use serde_json::Value;

use crate::Action;
use crate::policies::Policies;
use crate::question::{CedarRequest, Needs};

/// The member of a call's context that is known only once there is a call.
const ARGUMENTS: &str = "arguments";

impl Policies {
    /// Returns whether these policies may allow a call of a tool by some arguments. A permit counts
    /// without its conditions on arguments, and a forbid with such conditions does not count: so
    /// nothing is hidden that may be called, and each call is decided by itself.
    pub(crate) fn offers(&self, put: &CedarRequest) -> bool {
        let Some(offering) = self.offering() else {
            return false;
        };
        let answer = Authorizer::new().is_authorized(&put.request, &offering, &put.entities);
        let has_reason = answer.diagnostics().reason().next().is_some();
        if answer.diagnostics().errors().next().is_some() {
            return false;
        }
        match answer.decision() {
            cedar_policy::Decision::Allow => true,
            // A forbid, or no permit where there are some.
            cedar_policy::Decision::Deny => !has_reason && self.permitting(Action::Call).is_none(),
        }
    }

    /// Returns the policies on calls as far as they do not depend on arguments; `None` if one of
    /// them cannot be taken apart.
    fn offering(&self) -> Option<PolicySet> {
        let is_of_calls = |id: &PolicyId| {
            let meta = self.meta.get(id);
            meta.is_some_and(|meta| !meta.is_report_only && meta.actions.contains(&Action::Call))
        };
        let all = self
            .all
            .policies()
            .filter(|policy| is_of_calls(policy.id()));
        let mut kept = Vec::new();
        for policy in all {
            kept.extend(independent(policy)?);
        }
        PolicySet::from_policies(kept).ok()
    }
}

/// Returns a policy without its conditions on arguments: none of a forbid that has some.
fn independent(policy: &Policy) -> Option<Option<Policy>> {
    if !Needs::of(&policy.to_string()).arguments {
        return Some(Some(policy.clone()));
    }
    if policy.effect() == Effect::Forbid {
        return Some(None);
    }
    let mut json = policy.to_json().ok()?;
    let conditions = json.get_mut("conditions").and_then(Value::as_array_mut)?;
    conditions.retain(|one| !one.to_string().contains(ARGUMENTS));
    let whole = Policy::from_json(Some(policy.id().clone()), json).ok()?;
    Some(Some(whole))
}
