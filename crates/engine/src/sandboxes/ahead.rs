//! Sandboxes made ahead, for whoever comes: what they were decided by, and the decision, later, to
//! give one to a caller. It is given only where that caller would have got the very same.

use std::collections::BTreeSet;
use std::ffi::OsString;

use atoll_ledger::{Armed, LedgerError, Refused};
use atoll_model::{Action, Boundary, Call, Exec, Place, Served, ServedExec, Verdict};
use atoll_policy::{ExecGrant, Facts, Grant, Rules};
use serde_json::{Value, json};

use super::preparing::{Prepared, prepare_served, typed};
use super::{CreateSandbox, Engine, Sandbox, Workspace};
use crate::call::{Effect, Gate, carry_out, preview};
use crate::failure::Failure;
use crate::run::{asked, facts};

/// The basis of the decision on a sandbox.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Basis {
    pub(super) call: Call,
    boundary: Boundary,
    policy: String,
    labels: BTreeSet<String>,
    /// True if nothing of its rights depends on who it is for, or on when it began.
    is_general: bool,
}

/// The result of an attempt to give a sandbox to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// Recorded as the caller's.
    Assigned,
    /// The caller would not get the same, or none at all: nothing has happened.
    Different,
    /// Policies have changed since, or it ends: nobody gets this one.
    Stale,
}

impl Basis {
    pub(super) fn of(call: &Call, grant: &Grant) -> Self {
        let boundary = grant.boundary().clone();
        let limits = &boundary.limits;
        // Its time has begun, and its connections are judged by what policies knew at that time.
        let is_general = grant.policies().is_none()
            && grant.wall_clock_by().is_none()
            && limits.wall_clock.is_none()
            && limits.idle.is_none();
        Self {
            call: call.clone(),
            boundary,
            policy: grant.policy_digest().to_owned(),
            labels: grant.labels().clone(),
            is_general,
        }
    }

    pub(super) fn boundary(&self) -> &Boundary {
        &self.boundary
    }

    fn is_same(&self, other: &Self) -> bool {
        let both = |one: &Self| one.is_general && one.call.session.is_none();
        both(self)
            && both(other)
            && self.boundary == other.boundary
            && self.policy == other.policy
            && self.labels == other.labels
    }
}

/// Returns whether each of these programs may be started as Atoll's own, without a time limit.
fn may_start(
    programs: &[Vec<OsString>],
    rules: &Rules,
    call: &Call,
    facts: &Facts<'_>,
    labels: &BTreeSet<String>,
) -> bool {
    let facts = Facts {
        labels: Some(labels),
        ..*facts
    };
    let place = match &call.place {
        Place::Served(served) => {
            Place::Served(Box::new((**served).clone().by(&ServedExec::default())))
        }
        place @ Place::Directory { .. } => place.clone(),
    };
    programs.iter().all(|command| {
        let call = Call {
            place: place.clone(),
            action: Action::Exec(Box::new(Exec {
                command: command.clone(),
                directory: call.directory().to_owned(),
                ..Exec::default()
            })),
            ..call.clone()
        };
        match preview::<ExecGrant>(rules, &call, &facts) {
            Verdict::Allow(grant) => grant.wall_clock().is_none(),
            Verdict::Ask(_) | Verdict::Deny(_) => false,
        }
    })
}

/// Giving a sandbox that was made ahead to a caller.
struct Assigning<'a> {
    sandbox: &'a Sandbox,
    programs: &'a [Vec<OsString>],
    rules: &'a Rules,
    facts: &'a Facts<'a>,
    call: &'a Call,
}

/// The reason why it is not given.
enum NotAssigned {
    /// Nothing has happened.
    Not(Assignment),
    Failed(Failure),
}

impl From<LedgerError> for NotAssigned {
    fn from(error: LedgerError) -> Self {
        let failure = Failure::new("that it is the caller's is not recorded");
        Self::Failed(failure.because(error))
    }
}

impl From<Refused> for NotAssigned {
    fn from(error: Refused) -> Self {
        Self::Failed(Failure::new("the sandbox is not the caller's").because(error))
    }
}

impl Effect for Assigning<'_> {
    type Grant = Grant;
    type Done = Assignment;
    type Error = NotAssigned;

    fn consider(&mut self, verdict: &Verdict<Grant>) -> Result<(), NotAssigned> {
        let Verdict::Allow(grant) = verdict else {
            return Err(NotAssigned::Not(Assignment::Different));
        };
        let basis = Basis::of(self.call, grant);
        let is_free = self.sandbox.assigned.get().is_none();
        let is_same = is_free && self.sandbox.basis.is_same(&basis);
        let (rules, facts) = (self.rules, self.facts);
        if !is_same || !may_start(self.programs, rules, self.call, facts, grant.labels()) {
            return Err(NotAssigned::Not(Assignment::Different));
        }
        // Its supervision answers, so that it is not about to end.
        match self.sandbox.approvals() {
            Ok(_) => Ok(()),
            Err(_) => Err(NotAssigned::Not(Assignment::Stale)),
        }
    }

    fn told(&self, _: &Verdict<Grant>) -> Value {
        json!({ "policy": self.rules.digest() })
    }

    fn carry_out(self, armed: Armed<Grant>) -> Result<Assignment, NotAssigned> {
        let Some(served) = armed.call().served() else {
            return Ok(Assignment::Different);
        };
        // Somebody else was quicker, which the one who asks takes care of.
        if self.sandbox.assigned.set(Box::new(served.clone())).is_err() {
            return Ok(Assignment::Different);
        }
        match self.sandbox.owner.assign(served.clone()) {
            Ok(()) => Ok(Assignment::Assigned),
            Err(_) => Ok(Assignment::Stale),
        }
    }
}

impl Engine {
    /// Returns whether a served sandbox may be made ahead, with these programs started in it:
    /// without a question to anybody, and with the rights that every caller of the tenant has whom
    /// no policy treats otherwise. Nothing is recorded.
    ///
    /// # Errors
    /// When its rules cannot be made.
    pub fn may_be_ahead(
        &self,
        wanted: &CreateSandbox,
        programs: &[Vec<OsString>],
    ) -> Result<bool, Failure> {
        let shared = &self.shared;
        let Prepared {
            rules,
            host,
            handed,
            now,
            ..
        } = prepare_served(shared, wanted)?;
        let words = &handed.words;
        let facts = facts(&host, shared.mode, now, &words.environment, None);
        let call = Call {
            place: wanted.workspace.place(),
            action: Action::CreateSandbox,
            ..asked(
                &typed(wanted),
                words,
                None,
                wanted.workspace.at(),
                false,
                now,
            )
        };
        let Verdict::Allow(grant) = preview::<Grant>(&rules, &call, &facts) else {
            return Ok(false);
        };
        let is_general = Basis::of(&call, &grant).is_general;
        Ok(is_general && may_start(programs, &rules, &call, &facts, grant.labels()))
    }
}

impl Sandbox {
    /// Returns a call for this action on it, as it is now.
    pub(super) fn call(&self, action: Action) -> Call {
        let call = self.basis.call.with(action);
        match self.assigned.get() {
            Some(served) => Call {
                place: Place::Served(served.clone()),
                ..call
            },
            None => call,
        }
    }

    /// Returns whether it was made ahead for this tenant, under this name, with nothing in it.
    fn is_for(&self, served: &Served) -> bool {
        let made = self.basis.call.served();
        let is_same = made.is_some_and(|made| {
            made.caller.is_none()
                && made.metadata.is_empty()
                && made.volumes.is_empty()
                && made.tenant == served.tenant
                && made.sandbox == served.sandbox
                && made.template == served.template
        });
        // What is an own one's alone is never in one made ahead.
        let holds_nothing = self.wanted.home.is_none() && self.wanted.system.is_none();
        is_same && holds_nothing && served.volumes.is_empty()
    }

    /// Gives a sandbox that was made ahead, with these programs started in it, to a caller: decided
    /// like a new one of theirs, and recorded first. It is theirs only if all of its rights are the
    /// same.
    ///
    /// # Errors
    /// When its rules cannot be made, or it is not recorded.
    pub fn assign(
        &self,
        served: Served,
        programs: &[Vec<OsString>],
    ) -> Result<Assignment, Failure> {
        if !self.is_for(&served) {
            return Ok(Assignment::Different);
        }
        let mut wanted = self.wanted.clone();
        wanted.workspace = Workspace::Own(Box::new(served.clone()));
        let prepared = prepare_served(&self.shared, &wanted)?;
        let (rules, words) = (&prepared.rules, &prepared.handed.words);
        if *rules.digest() != *self.basis.policy {
            return Ok(Assignment::Stale);
        }
        let mode = self.shared.mode;
        let facts = facts(&prepared.host, mode, prepared.now, &words.environment, None);
        let call = Call {
            place: Place::Served(Box::new(served)),
            ..self.basis.call.with(Action::AssignSandbox)
        };
        let gate = Gate {
            rules,
            facts,
            ledger: &self.shared.ledger,
        };
        let effect = Assigning {
            sandbox: self,
            programs,
            rules,
            facts: &facts,
            call: &call,
        };
        match carry_out(&gate, &call, effect) {
            Ok(assignment) | Err(NotAssigned::Not(assignment)) => Ok(assignment),
            Err(NotAssigned::Failed(failure)) => Err(failure),
        }
    }
}
