//! The effects of the actions on a running sandbox.

use atoll_ledger::{Armed, LedgerError, Refused};
use atoll_model::Verdict;
use atoll_model::network::NetworkRule;
use atoll_policy::{HostGrant, Permission, PortGrant, Rules, reconsider};
use atoll_sandbox::{Allowance, Declined};
use serde_json::{Value, json};

use super::super::{Rereading, declined, proven, told};
use super::shortened;
use crate::call::{CallError, Effect};
use crate::supervision::{HostEffect, NewPolicies, PortEffect, Reloaded, Versions};

/// Publishing a port, or waiting for a second person to ask for it.
pub(super) struct Publishing<'a> {
    /// The version of the policies that decide.
    pub(super) policy: String,
    pub(super) waits_for_second: bool,
    pub(super) effect: &'a mut dyn PortEffect,
}

impl Effect for Publishing<'_> {
    type Grant = PortGrant;
    type Done = ();
    type Error = CallError;

    fn consider(&mut self, verdict: &Verdict<PortGrant>) -> Result<(), CallError> {
        match verdict {
            Verdict::Allow(_) => self.effect.prepare().map_err(CallError::Declined),
            Verdict::Ask(_) | Verdict::Deny(_) => Ok(()),
        }
    }

    fn told(&self, verdict: &Verdict<PortGrant>) -> Value {
        let policy = &self.policy;
        match verdict {
            Verdict::Allow(_) if self.waits_for_second => json!({ "policy": policy }),
            Verdict::Allow(grant) => {
                json!({ "policy": policy, "rule": grant.published().told() })
            }
            Verdict::Ask(_) | Verdict::Deny(_) => refusal(policy, verdict),
        }
    }

    fn carry_out(self, armed: Armed<PortGrant>) -> Result<(), CallError> {
        self.effect.carry_out(armed.grant().published());
        Ok(())
    }
}

/// Giving a lasting approval. The approval itself is what its surface does then.
pub(super) struct Escalating {
    /// The version of the policies that decide.
    pub(super) policy: String,
}

impl Effect for Escalating {
    type Grant = Permission;
    type Done = ();
    type Error = CallError;

    fn told(&self, verdict: &Verdict<Permission>) -> Value {
        match verdict {
            Verdict::Allow(_) => json!({ "policy": self.policy }),
            Verdict::Ask(_) | Verdict::Deny(_) => refusal(&self.policy, verdict),
        }
    }

    fn carry_out(self, _: Armed<Permission>) -> Result<(), CallError> {
        Ok(())
    }
}

/// Allowing a host.
pub(super) struct Allowing<'a> {
    pub(super) rereading: &'a Rereading<'a>,
    /// The rule, as of `--allow`.
    pub(super) text: &'a str,
    pub(super) lasts: Allowance,
    /// The rule as it counts, once it is prepared.
    pub(super) rule: Option<NetworkRule>,
    pub(super) effect: &'a mut dyn HostEffect,
}

impl Effect for Allowing<'_> {
    type Grant = HostGrant;
    type Done = ();
    type Error = CallError;

    fn consider(&mut self, verdict: &Verdict<HostGrant>) -> Result<(), CallError> {
        if let Verdict::Allow(grant) = verdict {
            let prepared = self.effect.prepare(grant.rule());
            self.rule = Some(prepared.map_err(CallError::Declined)?);
        }
        Ok(())
    }

    fn told(&self, _: &Verdict<HostGrant>) -> Value {
        let rule = self.rule.as_ref().map(NetworkRule::told);
        json!({
            "lasts": self.lasts.name(),
            "rule": rule.unwrap_or_else(|| self.text.to_owned()),
        })
    }

    fn carry_out(self, armed: Armed<HostGrant>) -> Result<(), CallError> {
        match self.lasts {
            Allowance::Once => {}
            Allowance::Run | Allowance::Project => {
                self.rereading.decide_by(armed.grant().rules().clone());
            }
        }
        self.effect.carry_out();
        Ok(())
    }
}

/// Deciding by policies as they are on disk now.
pub(super) struct Reloading<'a> {
    pub(super) rereading: &'a Rereading<'a>,
    /// The version in force.
    pub(super) from: String,
    /// The one change that is wanted.
    pub(super) only: Option<&'a Versions>,
    /// The rules that were read, if they are other ones.
    pub(super) read: Option<(Rules, Box<NewPolicies>)>,
}

/// The reason why policies are not reloaded.
pub(super) enum NotReloaded {
    /// They are the same as before.
    Unchanged(Box<NewPolicies>),
    /// They cannot be read, or are wrong.
    Unread(Declined),
    /// The call failed.
    Failed(CallError),
}

impl From<LedgerError> for NotReloaded {
    fn from(error: LedgerError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Refused> for NotReloaded {
    fn from(refused: Refused) -> Self {
        Self::Failed(refused.into())
    }
}

impl Reloading<'_> {
    fn read(&self) -> Result<(Rules, Box<NewPolicies>), Declined> {
        let (request, boundary) = (self.rereading.request, self.rereading.boundary);
        let call = self.rereading.call();
        self.rereading.with(|rules, facts| {
            let rules = (request.reread)(rules)?;
            proven(self.only, &self.from, rules.digest())?;
            let reconsidered = reconsider(&rules, &call, facts, boundary);
            let reconsidered = reconsidered.map_err(|why| Declined {
                why,
                advice: "write fewer policies".to_owned(),
            })?;
            let (told, handed) = told(&rules, reconsidered);
            let reloaded = Reloaded {
                from: self.from.clone(),
                to: rules.digest().to_owned(),
                told,
            };
            Ok((rules, Box::new(NewPolicies { reloaded, handed })))
        })
    }
}

impl Effect for Reloading<'_> {
    type Grant = Permission;
    type Done = Box<NewPolicies>;
    type Error = NotReloaded;

    fn consider(&mut self, verdict: &Verdict<Permission>) -> Result<(), NotReloaded> {
        let Verdict::Allow(_) = verdict else {
            return Ok(());
        };
        let (rules, new) = self.read().map_err(NotReloaded::Unread)?;
        if *rules.digest() == *self.from {
            return Err(NotReloaded::Unchanged(new));
        }
        self.read = Some((rules, new));
        Ok(())
    }

    fn told(&self, verdict: &Verdict<Permission>) -> Value {
        let Some((rules, _)) = &self.read else {
            return refusal(&self.from, verdict);
        };
        let mut body = json!({ "from": self.from, "to": rules.digest() });
        if let (Some(body), Some(signed)) = (body.as_object_mut(), rules.signed()) {
            body.insert("signed".to_owned(), json!(signed.to_string()));
        }
        body
    }

    fn carry_out(self, _: Armed<Permission>) -> Result<Box<NewPolicies>, NotReloaded> {
        let Some((rules, new)) = self.read else {
            let why = "they were not read".to_owned();
            let advice = "report it: this is a defect of Atoll".to_owned();
            return Err(NotReloaded::Unread(Declined { why, advice }));
        };
        self.rereading.reload(rules);
        Ok(new)
    }
}

/// Describes a refusal by policies of this version, for the ledger.
fn refusal<G>(policy: &str, verdict: &Verdict<G>) -> Value {
    let reasons = match verdict {
        Verdict::Allow(_) => Vec::new(),
        Verdict::Ask(reasons) | Verdict::Deny(reasons) => reasons.clone(),
    };
    json!({ "policy": policy, "why": shortened(&declined(reasons).why) })
}
