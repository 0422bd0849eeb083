//! Calls of tools.

use atoll_cedar::{Action, Asked, Question};
use atoll_model::{Call, CallTool, Reason, Verdict};

use crate::asking::{Answer, Asking};
use crate::compiled::Policies;
use crate::decide::of_host;
use crate::grant::ToolGrant;
use crate::policies::{cedar_facts, principals};
use crate::refusal::reason;
use crate::rules::Rules;
use crate::source::Facts;

/// Decides on a call of a tool, by the rules of the sandbox that it runs in.
pub(crate) fn tool(
    rules: &Rules,
    call: &Call,
    facts: &Facts<'_>,
    asked: &CallTool,
) -> Verdict<ToolGrant> {
    let mut reasons = rules.refusals.clone();
    reasons.extend(of_host(rules, call, facts));
    let answer = match &rules.policies {
        // What is denied already needs no second opinion.
        Some(policies) if reasons.is_empty() => policies.tool(rules, call, facts, asked),
        Some(_) | None => Answer::default(),
    };
    reasons.extend(answer.reasons);
    if !reasons.is_empty() {
        return Verdict::Deny(reasons);
    }
    let unanswered = rules.unanswered(call, [of_budget(asked), answer.asked].concat());
    if !unanswered.is_empty() {
        return Verdict::Ask(unanswered);
    }
    Verdict::Allow(ToolGrant {
        call: asked.clone(),
        wall_clock: answer.wall_clock,
        shadow: answer.shadow,
        policy_digest: rules.digest.clone(),
        notices: answer.notices,
    })
}

/// Returns the reasons to ask a person that the session's budget gives.
fn of_budget(asked: &CallTool) -> Vec<Reason> {
    let spent = asked.spent.iter().map(|bound| {
        reason(
            format!("calling {}", asked.tool),
            format!("this session has used up its budget: {bound}"),
            &"[session.budget] of the tools",
            "a person's yes lets the budget begin anew",
        )
    });
    spent.collect()
}

/// Returns whether a caller is shown a tool: whether some call of it may be allowed.
#[must_use]
pub fn offers_tool(rules: &Rules, call: &Call, facts: &Facts<'_>, asked: &CallTool) -> bool {
    let refused: Vec<Reason> = of_host(rules, call, facts);
    let is_offered = rules.policies.as_ref().is_none_or(|policies| {
        let (_, principal) = principals(call);
        policies.layers.offers(&Question {
            principal: &principal,
            asked: Asked::Call(asked),
            facts: &cedar_facts(rules, call, facts),
        })
    });
    rules.refusals.is_empty() && refused.is_empty() && is_offered
}

impl Policies {
    fn tool(&self, rules: &Rules, call: &Call, facts: &Facts<'_>, asked: &CallTool) -> Answer {
        let mut asking = Asking {
            layers: &self.layers,
            facts: &cedar_facts(rules, call, facts),
            trust: Some((&rules.trust, facts.mode)),
            workspace: None,
            answer: Answer::default(),
        };
        if self.layers.are_about(&[Action::Call]) {
            let (_, session) = principals(call);
            let what = format!("calling {}", asked.tool);
            let decision = asking.ask(&session, Asked::Call(asked), what);
            asking.take_time_limit(&decision);
            asking.answer.shadow = decision.obligations.shadow;
        }
        asking.answer
    }
}
