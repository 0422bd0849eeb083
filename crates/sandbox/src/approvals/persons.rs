//! How many persons it takes to widen what a run may while it goes on.

use std::fmt;
use std::time::{Duration, Instant};

use atoll_model::network::{AskedCall, Breadth, Scope};
use serde::{Deserialize, Serialize};

use super::{ApprovalNews, Approvals, Decision, LEASES_MAX, Open, Step, Who, until};

/// How long the first yes to a port waits for the second.
pub(crate) const SECOND_PATIENCE: Duration = Duration::from_secs(120);

/// Why nobody says yes to it.
pub(crate) const UNHEARD: &str = "this takes two persons, and the other one cannot be heard: \
     something else on this host has taken the name by which they speak to this run";

/// Who says yes to what lasts: a lease, a connection that stays, or a port that is published
/// while the run goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Widening {
    /// Whoever may answer the run.
    #[default]
    OnePerson,
    /// Two persons with different user numbers, of these.
    TwoPersons {
        /// The user whose run it is.
        owner: u32,
        /// The others that count.
        approvers: Vec<u32>,
    },
    /// Two persons, of whom the other ones cannot be heard: nobody.
    Unheard {},
}

/// Who can say the second of two yeses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Second {
    /// Whose run it is.
    pub owner: u32,
    /// The users who count, the run's own first if they do.
    pub persons: Vec<u32>,
}

/// The first of two persons has said yes to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agreed {
    /// For how long.
    pub scope: Scope,
    /// For what.
    pub breadth: Breadth,
    /// Who.
    pub by: Who,
}

/// What a yes comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Yes {
    /// It waits for that of another person.
    First,
    /// It counts, for what all who said it have said.
    Enough { scope: Scope, breadth: Breadth },
}

impl fmt::Display for Agreed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            Scope::Once => to.write_str("once")?,
            Scope::Run => to.write_str("until the run ends")?,
            Scope::Seconds { seconds } => write!(to, "for {seconds} s")?,
        }
        match self.breadth {
            Breadth::Same => Ok(()),
            Breadth::Rule => to.write_str(", for whatever the rule asks about"),
        }
    }
}

impl Widening {
    /// The persons beside the run's own who can speak to it.
    pub(crate) fn approvers(&self) -> &[u32] {
        match self {
            Self::OnePerson | Self::Unheard {} => &[],
            Self::TwoPersons { approvers, .. } => approvers,
        }
    }

    /// Whether this is whose run it is, where it matters who.
    pub(crate) fn is_owner(&self, by: Who) -> bool {
        match self {
            Self::OnePerson | Self::Unheard {} => true,
            Self::TwoPersons { owner, .. } => *owner == by.uid,
        }
    }

    /// Who can say yes after this one; nobody where it takes one, or no other is heard.
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

    /// Whether this yes, after that of somebody else, is enough.
    ///
    /// # Errors
    /// Why it counts for nothing.
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

    /// The same of a yes to a question. What both have said is the narrower of what each has.
    ///
    /// # Errors
    /// Why it counts for nothing.
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
            (Breadth::Rule, Breadth::Rule) => Breadth::Rule,
            (Breadth::Same, _) | (_, Breadth::Same) => Breadth::Same,
        };
        Ok(Yes::Enough { scope, breadth })
    }
}

/// What an answer comes to.
pub(super) enum Weighed {
    /// It waits for that of another person.
    First(Agreed),
    /// It counts, as this; until when, where it is a lease with an end.
    Counts(Decision, Option<Instant>),
}

impl Approvals {
    /// Has so many persons say yes to what lasts.
    pub(crate) fn widened_by(&mut self, widening: Widening) {
        self.widening = widening;
    }

    /// Who says yes to what lasts.
    pub(crate) fn widening(&self) -> &Widening {
        &self.widening
    }

    /// What a question asks about, and the yes of the first of two persons to it.
    pub(crate) fn agreed(&self, approval: u32) -> Option<(&AskedCall, Agreed)> {
        let mut open = self.open.iter();
        let open = open.find(|one| one.approval == approval)?;
        Some((&open.call, open.agreed?))
    }

    /// What somebody's answer to an open question comes to.
    ///
    /// # Errors
    /// Why it counts for nothing.
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

    /// The first of two persons says yes: it is known, and nothing goes out.
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
