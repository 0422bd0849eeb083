//! The network of a sandbox as OpenSandbox' policies have it: a default, and rules by target.

use serde::Serialize;

use crate::front::dialect::*;

/// A policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Policy {
    #[serde(default)]
    default_action: Action,
    #[serde(default)]
    egress: Option<Vec<Rule>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    #[default]
    Deny,
    Allow,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    action: Action,
    target: String,
}

impl Policy {
    /// Returns the request for it: everything, or what is named and nothing else.
    pub(super) fn ask(self) -> Result<NetworkAsk, Refusal> {
        let rules = self.egress.unwrap_or_default();
        let is_allowed = |rule: &Rule| rule.action == Action::Allow;
        let (allow, deny): (Vec<_>, Vec<_>) = rules.into_iter().partition(is_allowed);
        match (self.default_action, deny.first()) {
            // What is closed needs no rule that closes it.
            (Action::Deny, _) => Ok(NetworkAsk {
                internet: Some(false),
                allow: allow.into_iter().map(|rule| rule.target).collect(),
                deny: Vec::new(),
            }),
            (Action::Allow, None) => Ok(NetworkAsk::default()),
            (Action::Allow, Some(Rule { target, .. })) => {
                let what = format!("{target}: this server closes single targets only by default");
                Err(Refusal::new(Kind::Forbidden, what)
                    .advise("deny by default, and allow what is reached"))
            }
        }
    }

    /// Returns the policy of a sandbox.
    fn of(facts: &SandboxFacts) -> Self {
        let allowed = facts.asked.iter().flat_map(|asked| &asked.allow);
        let rule = |target: &String| Rule {
            action: Action::Allow,
            target: target.clone(),
        };
        Self {
            default_action: match facts.network.as_str() {
                "internet" => Action::Allow,
                _ => Action::Deny,
            },
            egress: Some(allowed.map(rule).collect()),
        }
    }

    /// Puts rules before those that are there.
    fn merge(&mut self, rules: Vec<Rule>) {
        let own = self.egress.get_or_insert_default();
        own.retain(|one| !rules.iter().any(|rule| rule.target == one.target));
        own.splice(0..0, rules);
    }

    fn remove(&mut self, targets: &[String]) {
        let own = self.egress.get_or_insert_default();
        own.retain(|one| !targets.contains(&one.target));
    }
}

/// Answers a request about the policy of a sandbox.
pub(super) async fn answer(sandbox: &Sandbox, request: Request<Body>) -> Answered {
    let mut policy = Policy::of(&sandbox.call(GetSandbox {}).await?);
    let is_read = request.method() == "GET";
    match request.method().as_str() {
        "GET" => {}
        "PUT" => policy = body(request).await?,
        "PATCH" => policy.merge(body_list(request).await?),
        "DELETE" => policy.remove(&body_list::<String>(request).await?),
        _ => return Err(not_offered(&request)),
    }
    if !is_read {
        sandbox.call(SetNetwork(policy.ask()?)).await?;
    }
    let facts = sandbox.call(GetSandbox {}).await?;
    ok(&json!({ "status": "ok", "mode": facts.network, "policy": Policy::of(&facts) }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn policies_become_requests_or_are_refused() {
        let closed = |allow: &[&str]| NetworkAsk {
            internet: Some(false),
            allow: allow.iter().map(|one| (*one).to_owned()).collect(),
            deny: vec![],
        };
        let cases = [
            (r#"{}"#, Some(closed(&[]))),
            (
                r#"{"defaultAction":"deny","egress":[{"action":"allow","target":"a.example"}]}"#,
                Some(closed(&["a.example"])),
            ),
            (r#"{"defaultAction":"allow"}"#, Some(NetworkAsk::default())),
            (
                r#"{"defaultAction":"allow","egress":[{"action":"deny","target":"a.example"}]}"#,
                None,
            ),
        ];
        for (text, expected) in cases {
            let policy: Policy = serde_json::from_str(text).unwrap();
            assert_eq!(policy.ask().ok(), expected, "{text}");
        }
        assert!(serde_json::from_str::<Policy>(r#"{"ingress":[]}"#).is_err());
    }
}
