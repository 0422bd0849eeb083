//! Requests of a server for its callers: approvals, networks, ports.

use std::io;
use std::sync::PoisonError;

use atoll_ledger::{Armed, Durability, Refused};
use atoll_model::network::{CallDigest, Listener};
use atoll_model::{Action, Call, ChangeLimits, Place, RunId, ServedExec, Verdict};
use atoll_policy::{Grant, Permission};
use atoll_sandbox::{Decision, Declined, Pending, resize};
use serde_json::{Value, json};

use super::preparing::{Prepared, prepare_served};
use super::{CreateSandbox, Engine, Sandbox};
use crate::CallError;
use crate::asking::declined;
use crate::call::{Effect, Gate, carry_out};
use crate::control::{refused, unanswered};
use crate::failure::{Doing, Failure};
use crate::run::facts;
use crate::supervision::{Answer, ControlError, Question};

fn no_network() -> Declined {
    Declined {
        why: "it was made without a network".to_owned(),
        advice: "make another one, with a network".to_owned(),
    }
}

/// Putting another network in the place of the one in force.
struct Replacing<'a> {
    sandbox: &'a Sandbox,
    /// The presets and rules that are asked for.
    wanted: Value,
}

impl Effect for Replacing<'_> {
    type Grant = Grant;
    type Done = ();
    type Error = CallError;

    fn told(&self, verdict: &Verdict<Grant>) -> Value {
        match verdict {
            Verdict::Allow(grant) => json!({ "network": grant.boundary().network }),
            Verdict::Ask(_) | Verdict::Deny(_) => json!({ "wanted": self.wanted }),
        }
    }

    fn carry_out(self, armed: Armed<Grant>) -> Result<(), CallError> {
        let network = armed.grant().boundary().network.clone();
        let replaced = self.sandbox.owner.replace(network)?;
        replaced.map_err(CallError::Declined)
    }
}

/// Changing the limits of a sandbox.
struct Resizing<'a> {
    sandbox: &'a Sandbox,
    /// The version of the policies that decide.
    policy: &'a str,
}

impl Effect for Resizing<'_> {
    type Grant = Permission;
    type Done = ();
    type Error = CallError;

    fn told(&self, _: &Verdict<Permission>) -> Value {
        json!({ "policy": self.policy })
    }

    fn carry_out(self, armed: Armed<Permission>) -> Result<(), CallError> {
        let Action::ChangeLimits(wanted) = armed.call().action else {
            return Err(CallError::Limits(io::ErrorKind::InvalidInput.into()));
        };
        let (machine, run) = (&self.sandbox.shared.machine, armed.run());
        resize(machine, run, wanted.memory_bytes, wanted.cpu_millis).map_err(CallError::Limits)
    }
}

/// Returns the failure for limits that are as they were.
fn unchanged(error: &io::Error) -> Failure {
    let failure = Failure::new("the limits are as they were");
    match error.kind() {
        io::ErrorKind::ResourceBusy => failure.because("more memory than that is in use"),
        io::ErrorKind::Unsupported => failure
            .because("no control group holds the sandbox to them")
            .advise("atoll doctor says what is missing"),
        _ => failure.because(error),
    }
}

/// Returns a call of this caller of the server for an action on it.
fn call_by(sandbox: &Sandbox, action: Action, by: &ServedExec) -> Call {
    let call = sandbox.call(action);
    match call.place {
        Place::Served(served) => Call {
            place: Place::Served(Box::new(served.by(by))),
            ..call
        },
        Place::Directory { .. } => call,
    }
}

/// Returns the failure of a call on a sandbox that did not have its effect.
fn not_done(run: &RunId, error: CallError, unrecorded: &str) -> Failure {
    match error {
        CallError::Unanswered(error) => unanswered(run, &error),
        CallError::Declined(why) => refused(run, why),
        CallError::Refused(Refused::Denied(refusal)) => refused(run, declined(refusal.reasons)),
        CallError::Refused(Refused::NeedsApproval(refusal)) => {
            let declined = Declined {
                advice: "make another sandbox with it: an approver is asked about that".to_owned(),
                ..declined(refusal.reasons)
            };
            refused(run, declined)
        }
        CallError::Limits(error) => unchanged(&error),
        other => Failure::new(unrecorded).because(other),
    }
}

impl Engine {
    /// Checks that a served sandbox can be made so, by any caller.
    ///
    /// # Errors
    /// When its rules cannot be made.
    pub fn check(&self, wanted: &CreateSandbox) -> Result<(), Failure> {
        prepare_served(&self.shared, wanted).map(drop)
    }
}

impl Sandbox {
    /// Returns the approval requests that wait.
    ///
    /// # Errors
    /// When it is gone.
    pub fn approvals(&self) -> Result<Vec<Pending>, Failure> {
        match self.owner.ask(Question::Approvals {}) {
            Ok(Answer::Approvals { pending, .. }) => Ok(pending),
            Ok(_) => Err(unanswered(&self.run, &ControlError::Strange)),
            Err(error) => Err(unanswered(&self.run, &error)),
        }
    }

    /// Returns what listens in it.
    ///
    /// # Errors
    /// When it is gone.
    pub fn listeners(&self) -> Result<Vec<Listener>, Failure> {
        match self.owner.ask(Question::Ports {}) {
            Ok(Answer::Ports { listening, .. }) => Ok(listening),
            Ok(Answer::Refused(declined)) => Err(refused(&self.run, declined)),
            Ok(_) => Err(unanswered(&self.run, &ControlError::Strange)),
            Err(error) => Err(unanswered(&self.run, &error)),
        }
    }

    /// Decides an approval request, for the caller of a server: recorded with their name first.
    ///
    /// # Errors
    /// When it does not wait any more, or is another than the digest says.
    pub fn decide(
        &self,
        approval: u32,
        digest: CallDigest,
        decision: Decision,
        by: &ServedExec,
    ) -> Result<(), Failure> {
        let body = json!({ "approval": approval, "caller": by.caller, "trace": by.trace });
        let ledger = &self.shared.ledger;
        let recorded = ledger.record(
            Some(&self.run),
            "approval.caller",
            body,
            Durability::Durable,
        );
        recorded.doing("the decision is not recorded")?;
        self.done(Question::Decide {
            approval,
            digest,
            decision,
        })
    }

    /// Puts another network in the place of the one in force: decided on like a new sandbox, and
    /// recorded first. What is connected is cut off.
    ///
    /// # Errors
    /// When it is refused, or the sandbox was made without a network.
    pub fn replace_network(
        &self,
        presets: Vec<String>,
        allow: Vec<String>,
        by: &ServedExec,
    ) -> Result<(), Failure> {
        let _one_by_one = self
            .replacing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let made_with = &self.wanted.requested;
        if made_with.presets.is_empty() && made_with.allow.is_empty() && made_with.ask.is_empty() {
            return Err(refused(&self.run, no_network()));
        }
        let asked = json!({ "presets": presets, "allow": allow });
        let mut wanted = self.wanted.clone();
        if presets.is_empty() && allow.is_empty() {
            wanted.requested.ask.clear();
        }
        (wanted.requested.presets, wanted.requested.allow) = (presets, allow);
        let Prepared {
            rules,
            host,
            handed,
            now,
            ..
        } = prepare_served(&self.shared, &wanted)?;
        let facts = facts(
            &host,
            self.shared.mode,
            now,
            &handed.words.environment,
            None,
        );
        let call = call_by(self, Action::ReplaceNetwork, by);
        let gate = Gate {
            rules: &rules,
            facts,
            ledger: &self.shared.ledger,
        };
        let effect = Replacing {
            sandbox: self,
            wanted: asked,
        };
        carry_out(&gate, &call, effect)
            .map_err(|error| not_done(&self.run, error, "the network is not recorded"))
    }

    /// Changes the memory, bytes, and the processor time, thousandths of a processor, that its
    /// programs may use, while they run: decided and recorded first.
    ///
    /// # Errors
    /// When it is refused, this host cannot hold them to that, or more memory is in use.
    pub fn resize(
        &self,
        memory_bytes: Option<u64>,
        cpu_millis: Option<u64>,
        by: &ServedExec,
    ) -> Result<(), Failure> {
        let _one_by_one = self
            .replacing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let prepared = prepare_served(&self.shared, &self.wanted)?;
        let (words, mode) = (&prepared.handed.words, self.shared.mode);
        let facts = facts(&prepared.host, mode, prepared.now, &words.environment, None);
        let gate = Gate {
            rules: &prepared.rules,
            facts,
            ledger: &self.shared.ledger,
        };
        let action = Action::ChangeLimits(ChangeLimits {
            memory_bytes,
            cpu_millis,
        });
        let effect = Resizing {
            sandbox: self,
            policy: prepared.rules.digest(),
        };
        carry_out(&gate, &call_by(self, action, by), effect)
            .map_err(|error| not_done(&self.run, error, "the limits are not recorded"))
    }

    fn done(&self, question: Question) -> Result<(), Failure> {
        match self.owner.ask(question) {
            Ok(Answer::Done {}) => Ok(()),
            Ok(Answer::Refused(declined)) => Err(refused(&self.run, declined)),
            Ok(_) => Err(unanswered(&self.run, &ControlError::Strange)),
            Err(error) => Err(unanswered(&self.run, &error)),
        }
    }

    /// Lets callers of a server reach a port of it: decided and recorded, the first time.
    ///
    /// # Errors
    /// When it is refused.
    pub fn reach(&self, port: u16) -> Result<(), Failure> {
        self.done(Question::Reach { port })
    }
}
