//! Dual control: the number of persons whose approval widens the rights of a running sandbox.

use std::time::{Duration, Instant};

use atoll_model::network::{ApprovalScope, AskedCall, CallDigest, Scope};
use atoll_sandbox::{Agreed, ApprovalNews, Decision, Second, Who};

use super::{Approvals, LEASES_MAX, Open, Step, until};

/// The time that the first approval of a port waits for the second.
pub(crate) const SECOND_PATIENCE: Duration = Duration::from_secs(120);

/// The reason why dual control cannot approve.
pub(crate) const UNHEARD: &str = "this takes two persons, and the other one cannot be heard: \
     something else on this host has taken the name by which they speak to this run";

/// The rule for approving lasting rights: a lease, a connection that stays open, or a port
/// published while the run goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DualControlRule {
    /// One person is enough, anybody who may answer the run.
    #[default]
    OnePerson,
    /// Two persons with different user ids are needed, from these.
    TwoPersons {
        /// The user who owns the run.
        owner: u32,
        /// The users whose approval counts.
        approvers: Vec<u32>,
    },
    /// Two persons are needed, and the others cannot reach the run: nothing is approved.
    Unheard {},
}

/// The effect of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Yes {
    /// Waits for a second person.
    First,
    /// Takes effect, with what all approvers have approved.
    Enough {
        scope: Scope,
        breadth: ApprovalScope,
    },
}

impl DualControlRule {
    /// Returns the persons besides the owner who can reach the run.
    pub(crate) fn approvers(&self) -> &[u32] {
        match self {
            Self::OnePerson | Self::Unheard {} => &[],
            Self::TwoPersons { approvers, .. } => approvers,
        }
    }

    /// Returns whether this is the owner of the run; always true without dual control.
    pub(crate) fn is_owner(&self, by: Who) -> bool {
        match self {
            Self::OnePerson | Self::Unheard {} => true,
            Self::TwoPersons { owner, .. } => *owner == by.uid,
        }
    }

    /// Returns who can approve after `first`; `None` if one approval is enough, or no other
    /// person can be heard.
    pub(crate) fn second(&self, first: Option<Who>) -> Option<Second> {
        let Self::TwoPersons { owner, approvers } = self else {
            return None;
        };
        let others = approvers.iter().filter(|one| *one != owner);
        let all = std::iter::once(owner).chain(others).copied();
        let persons = all.filter(|one| first.is_none_or(|first| first.uid != *one));
        Some(Second {
            owner: *owner,
            persons: persons.collect(),
        })
    }

    /// Returns whether this approval, after `first`, is enough.
    ///
    /// # Errors
    /// The reason why the approval is void.
    pub(crate) fn suffices(&self, first: Option<Who>, by: Who) -> Result<bool, String> {
        let (owner, approvers) = match self {
            Self::OnePerson => return Ok(true),
            Self::TwoPersons { owner, approvers } => (owner, approvers),
            Self::Unheard {} => return Err(UNHEARD.to_owned()),
        };
        // Root answers every run, and is no person of its own but where it is named.
        if by.uid != *owner && !approvers.contains(&by.uid) {
            return Err(format!(
                "this takes two persons, and user {} is none of those who count",
                by.uid
            ));
        }
        match first {
            None => Ok(false),
            Some(first) if first.uid == by.uid => Err(
                "this takes two persons, and you have said yes already: another one has to"
                    .to_owned(),
            ),
            Some(_) => Ok(true),
        }
    }

    /// Weighs an approval of a request. With two approvals, the narrower scope and breadth
    /// count.
    ///
    /// # Errors
    /// The reason why the approval is void.
    pub(crate) fn hear(&self, first: Option<&Agreed>, said: Agreed) -> Result<Yes, String> {
        if !self.suffices(first.map(|first| first.by), said.by)? {
            return Ok(Yes::First);
        }
        let Agreed { scope, breadth, .. } = said;
        let Some(first) = first else {
            return Ok(Yes::Enough { scope, breadth });
        };
        let scope = match (first.scope, scope) {
            (Scope::Once, _) | (_, Scope::Once) => Scope::Once,
            (Scope::Run, other) | (other, Scope::Run) => other,
            (Scope::Seconds { seconds }, Scope::Seconds { seconds: other }) => Scope::Seconds {
                seconds: seconds.min(other),
            },
        };
        let breadth = match (first.breadth, breadth) {
            (ApprovalScope::Rule, ApprovalScope::Rule) => ApprovalScope::Rule,
            (ApprovalScope::Same, _) | (_, ApprovalScope::Same) => ApprovalScope::Same,
        };
        Ok(Yes::Enough { scope, breadth })
    }
}

/// The effect of a decision.
pub(super) enum Weighed {
    /// Waits for a second person.
    First(Agreed),
    /// Counts as this decision, with the expiry of a lease that has one.
    Counts(Decision, Option<Instant>),
}

impl Approvals {
    /// Checks that a person's decision is not void.
    ///
    /// # Errors
    /// The reason why it is.
    pub(crate) fn check(
        &self,
        approval: u32,
        digest: CallDigest,
        decision: Decision,
        by: Who,
        now: Instant,
    ) -> Result<(), String> {
        let weighed = self.weighed(approval, digest, decision, by, now);
        weighed.map(drop)
    }

    /// Returns the place of the waiting request, and what the decision on it comes to.
    pub(super) fn weighed(
        &self,
        approval: u32,
        digest: CallDigest,
        decision: Decision,
        by: Who,
        now: Instant,
    ) -> Result<(usize, Weighed), String> {
        let mut open = self.open.iter().enumerate();
        let waits = open.find(|(_, one)| one.approval == approval);
        let (at, open) = waits.ok_or_else(|| self.missing(approval))?;
        if open.digest != digest {
            return Err("the digest is of something else than what waits".to_owned());
        }
        if now >= open.until {
            return Err("its time is over".to_owned());
        }
        Ok((at, self.weigh(open, decision, by, now)?))
    }

    /// Sets the rule for approving lasting rights.
    pub(crate) fn widened_by(&mut self, widening: DualControlRule) {
        self.widening = widening;
    }

    /// Returns the rule for approving lasting rights.
    pub(crate) fn widening(&self) -> &DualControlRule {
        &self.widening
    }

    /// Returns the call of a request that has the first of two approvals, with that approval.
    pub(crate) fn agreed(&self, approval: u32) -> Option<(&AskedCall, Agreed)> {
        let mut open = self.open.iter();
        let open = open.find(|one| one.approval == approval)?;
        Some((&open.call, open.agreed?))
    }

    /// Weighs a decision about an open request.
    ///
    /// # Errors
    /// The reason why the decision is void.
    pub(super) fn weigh(
        &self,
        open: &Open,
        decision: Decision,
        by: Who,
        now: Instant,
    ) -> Result<Weighed, String> {
        let Decision::Grant { scope, breadth } = decision else {
            return Ok(Weighed::Counts(decision, None));
        };
        until(scope, now)?;
        let is_once = scope == Scope::Once;
        if is_once && !open.call.goes_on() {
            return Ok(Weighed::Counts(decision, None));
        }
        if !is_once && self.leases.len() >= LEASES_MAX {
            return Err(format!("there are {LEASES_MAX} leases already: revoke one"));
        }
        let said = Agreed { scope, breadth, by };
        match self.widening.hear(open.agreed.as_ref(), said)? {
            Yes::First => Ok(Weighed::First(said)),
            Yes::Enough { scope, breadth } => {
                let decision = Decision::Grant { scope, breadth };
                Ok(Weighed::Counts(decision, until(scope, now)?))
            }
        }
    }

    /// Records the first of two approvals; nothing goes out yet.
    pub(super) fn agree(&mut self, at: usize, said: Agreed) -> Step {
        let mut step = Step::default();
        if let Some(open) = self.open.get_mut(at) {
            open.agreed = Some(said);
            step.news.push(ApprovalNews::Agreed {
                approval: open.approval,
                digest: open.digest,
                said,
            });
        }
        step
    }
}
