//! Sandboxes made ahead, for whoever comes: what they were decided by, and the decision, later, to
//! give one to a caller. It is given only where that caller would have got the very same.

use std::collections::BTreeSet;
use std::ffi::OsString;

use atoll_ledger::{Durability, served_body};
use atoll_model::{Boundary, Call, Served, ServedExec, Verdict};
use atoll_policy::{Facts, Grant, Rules, decide, decide_exec};
use serde_json::json;

use super::preparing::{Prepared, prepare_served, typed};
use super::{CreateSandbox, Engine, Sandbox, Workspace};
use crate::failure::{Doing, Failure};
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
    programs.iter().all(|command| {
        let served = call.served.clone();
        let call = Call {
            command: command.clone(),
            served: served.map(|served| served.by(&ServedExec::default())),
            ..call.clone()
        };
        match decide_exec(rules, &call, facts, labels) {
            Verdict::Allow(grant) => grant.wall_clock().is_none(),
            Verdict::Ask(_) | Verdict::Deny(_) => false,
        }
    })
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
            lives: true,
            served: wanted.workspace.served(),
            ..asked(
                &typed(wanted),
                words,
                None,
                wanted.workspace.at(),
                false,
                now,
            )
        };
        let Verdict::Allow(grant) = decide(&rules, &call, &facts) else {
            return Ok(false);
        };
        let is_general = Basis::of(&call, &grant).is_general;
        Ok(is_general && may_start(programs, &rules, &call, &facts, grant.labels()))
    }
}

impl Sandbox {
    /// Returns its call, as it is now.
    pub(super) fn call(&self) -> &Call {
        self.assigned.get().unwrap_or(&self.basis.call)
    }

    /// Returns whether it was made ahead for this tenant, under this name, with nothing in it.
    fn is_for(&self, served: &Served) -> bool {
        let made = self.basis.call.served.as_ref();
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
            served: Some(served),
            ..self.basis.call.clone()
        };
        let Verdict::Allow(grant) = decide(rules, &call, &facts) else {
            return Ok(Assignment::Different);
        };
        let basis = Basis::of(&call, &grant);
        let is_same = self.assigned.get().is_none() && self.basis.is_same(&basis);
        if !is_same || !may_start(programs, rules, &call, &facts, grant.labels()) {
            return Ok(Assignment::Different);
        }
        // Its supervision answers, so that it is not about to end.
        if self.approvals().is_err() {
            return Ok(Assignment::Stale);
        }
        let body = json!({
            "verdict": "allow",
            "policy": basis.policy,
            "served": call.served.as_ref().map(served_body),
        });
        let ledger = &self.shared.ledger;
        let recorded = ledger.record(
            Some(&self.run),
            "sandbox.assigned",
            body,
            Durability::Durable,
        );
        recorded.doing("that it is the caller's is not recorded")?;
        match self.assigned.set(call) {
            Ok(()) => Ok(Assignment::Assigned),
            // Somebody else was quicker, which the one who asks takes care of.
            Err(_) => Ok(Assignment::Different),
        }
    }
}
