//! The actions on a running sandbox beside its programs, each carried out as a call.

mod effects;

use atoll_ledger::{Durability, EventBody, LedgerError, Refused};
use atoll_model::network::Published;
use atoll_model::{Action, Administer, AllowHost, Escalate, PublishPort};
use atoll_policy::{Facts, Living};
use atoll_sandbox::{Allowance, Declined, Who};

use super::{Rereading, declined};
use crate::call::{CallError, Effect, Gate, carry_out};
use crate::supervision::{CallGate, HostEffect, NewPolicies, PortEffect, Versions};
use effects::{Allowing, Escalating, NotReloaded, Publishing, Reloading};

/// The longest reason that is recorded, bytes.
const WHY_BYTES_MAX: usize = 4 << 10;

/// The gate of the actions on a run.
pub(crate) struct Acts<'a> {
    /// The call of the sandbox, and the rules in force.
    pub(crate) rereading: &'a Rereading<'a>,
    /// Takes note of what could not be recorded. Returns whether the run may go on.
    pub(crate) noted: &'a dyn Fn(Result<(), LedgerError>) -> bool,
}

impl<'a> Acts<'a> {
    pub(crate) fn new(
        rereading: &'a Rereading<'a>,
        noted: &'a dyn Fn(Result<(), LedgerError>) -> bool,
    ) -> Self {
        Self { rereading, noted }
    }
}

impl Acts<'_> {
    /// Carries out an action on the sandbox.
    fn carry_out<E: Effect>(
        &self,
        action: Action,
        published: &[Published],
        effect: E,
    ) -> Result<E::Done, E::Error> {
        let (made, request) = (self.rereading.call(), self.rereading.request);
        let refusal = match &action {
            Action::PublishPort(asked) => request
                .tokens
                .and_then(|tokens| tokens.publishes(asked.port.inside).err()),
            _ => None,
        };
        let call = made.with(action);
        self.rereading.with(|rules, facts| {
            let living = Living {
                call: &made,
                published,
                is_inspected: self.rereading.boundary.network.is_inspected(),
                token_refusal: refusal.as_deref(),
            };
            let gate = Gate {
                rules,
                facts: Facts {
                    living: Some(living),
                    ..*facts
                },
                ledger: request.ledger,
            };
            carry_out(&gate, &call, effect)
        })
    }

    fn declined(&self, error: CallError) -> Declined {
        match error {
            CallError::Declined(declined) => declined,
            CallError::Refused(Refused::Denied(refusal) | Refused::NeedsApproval(refusal)) => {
                declined(refusal.reasons)
            }
            CallError::Refused(Refused::Ledger(error)) | CallError::Ledger(error) => {
                (self.noted)(Err(error));
                of_ledger("it cannot be recorded".to_owned())
            }
            other => of_ledger(other.to_string()),
        }
    }

    /// Returns the version of the policies in force.
    fn version(&self) -> String {
        let versions = self.rereading.versions();
        versions.last().cloned().unwrap_or_default()
    }

    /// Records that policies that cannot be read, or are wrong, do not count.
    fn record_unread(&self, by: Who, why: &str) {
        let body = EventBody::default().number("pid", by.pid.into());
        let body = body.text("policy", &self.version());
        let body = body.number("uid", by.uid.into());
        let event = ("policy.reload-refused", body.text("why", shortened(why)));
        let request = self.rereading.request;
        let run = request.call.run();
        let ledger = request.ledger;
        (self.noted)(ledger.record_flows(run, vec![event], Durability::Durable));
    }
}

impl CallGate for Acts<'_> {
    fn publish(
        &self,
        asked: PublishPort,
        already: &[Published],
        effect: &mut dyn PortEffect,
    ) -> Result<(), Declined> {
        let effect = Publishing {
            policy: self.version(),
            waits_for_second: asked.waits_for_second,
            effect,
        };
        self.carry_out(Action::PublishPort(asked), already, effect)
            .map_err(|error| self.declined(error))
    }

    fn escalate(&self, asked: Escalate) -> Result<(), Declined> {
        let effect = Escalating {
            policy: self.version(),
        };
        self.carry_out(Action::Escalate(asked), &[], effect)
            .map_err(|error| self.declined(error))
    }

    fn allow(
        &self,
        by: Who,
        text: &str,
        lasts: Allowance,
        effect: &mut dyn HostEffect,
    ) -> Result<(), Declined> {
        let effect = Allowing {
            rereading: self.rereading,
            text,
            lasts,
            rule: None,
            effect,
        };
        let action = Action::AllowHost(AllowHost {
            by: by.into(),
            rule: text.to_owned(),
            scope: lasts.scope(),
        });
        self.carry_out(action, &[], effect)
            .map_err(|error| self.declined(error))
    }

    fn remember(&self, text: &str) -> Result<(), Declined> {
        (self.rereading.request.remember)(text)
    }

    fn reload(&self, by: Who, only: Option<&Versions>) -> Result<NewPolicies, Declined> {
        let effect = Reloading {
            rereading: self.rereading,
            from: self.version(),
            only,
            read: None,
        };
        let action = Action::Administer(Administer::ReloadPolicies { by: by.into() });
        match self.carry_out(action, &[], effect) {
            Ok(new) | Err(NotReloaded::Unchanged(new)) => Ok(*new),
            Err(NotReloaded::Unread(declined)) => {
                self.record_unread(by, &declined.why);
                Err(declined)
            }
            Err(NotReloaded::Failed(error)) => Err(self.declined(error)),
        }
    }

    fn compare(&self) -> Result<(Versions, String), Declined> {
        self.rereading.compare()
    }
}

fn of_ledger(why: String) -> Declined {
    Declined {
        why,
        advice: "atoll ledger verify".to_owned(),
    }
}

/// Returns the beginning of a reason.
fn shortened(why: &str) -> &str {
    let mut end = why.len().min(WHY_BYTES_MAX);
    while !why.is_char_boundary(end) {
        end -= 1;
    }
    why.get(..end).unwrap_or_default()
}
