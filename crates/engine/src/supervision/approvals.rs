//! The approval requests of a running sandbox, and their answers. Pure, so that every order of
//! events can be tested. Any doubt denies.

mod became;
mod persons;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use atoll_model::network::{
    ASKING_MAX, ASKING_PATIENCE, ApprovalScope, AskedCall, CallDigest, Consent, FlowKind,
    FlowLogin, LEASE_SECONDS_MAX, NoConsent, Scope,
};
use atoll_sandbox::{Agreed, ApprovalNews, Decision, Lease, Pending, Who};
pub use persons::DualControlRule;
use persons::Weighed;
pub(crate) use persons::{SECOND_PATIENCE, UNHEARD};
use sha2::{Digest, Sha256};

/// The most approval requests open at once, however many calls wait for each.
const QUESTIONS_MAX: usize = 16;
/// The most requests put to a person within [`RATE_TIME`]: a person asked more often reads
/// none.
const QUESTIONS_PER_TIME: usize = 12;
const RATE_TIME: Duration = Duration::from_secs(60);
/// The time after a denial during which the same call is denied without a request; doubled by
/// each further denial.
const COOLING: Duration = Duration::from_secs(30);
const COOLING_MAX: Duration = Duration::from_secs(15 * 60);
/// The most denials remembered; the oldest are forgotten first.
const COOLING_CALLS_MAX: usize = 256;
/// The most leases at once.
const LEASES_MAX: usize = 64;

/// The result of an event: the news is recorded first, then the answers are sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) news: Vec<ApprovalNews>,
    pub(crate) said: Vec<(u64, CallDigest, Consent)>,
}

impl Step {
    fn deny(mut self, id: u64, digest: CallDigest, why: NoConsent) -> Self {
        self.said.push((id, digest, Consent::Denied { why }));
        self
    }
}

/// The identity of a call, without its query and body.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Subject {
    kind: FlowKind,
    host: String,
    port: u16,
    request: Option<(bool, atoll_model::network::Scheme, String, CallDigest)>,
    login: Option<FlowLogin>,
    rule: String,
}

impl Subject {
    fn of(call: &AskedCall) -> Self {
        let request = call.request.as_ref().map(|one| {
            let method = one.method.clone();
            (one.is_web_socket, one.scheme, method, one.path_digest)
        });
        Self {
            kind: call.kind,
            host: call.host.clone(),
            port: call.port,
            request,
            login: call.login.clone(),
            rule: call.rule.clone(),
        }
    }
}

#[derive(Debug)]
struct Open {
    approval: u32,
    digest: CallDigest,
    call: AskedCall,
    since: Instant,
    until: Instant,
    /// The waiting calls, in order of arrival.
    ids: VecDeque<u64>,
    /// The first of two approvals, if given.
    agreed: Option<Agreed>,
}

#[derive(Debug)]
struct Held {
    lease: Lease,
    until: Option<Instant>,
}

impl Held {
    fn covers(&self, call: &AskedCall, now: Instant) -> bool {
        let own = &self.lease;
        // A header can say which other thing is meant.
        let headers =
            |call: &AskedCall| call.request.as_ref().map(|one| one.telling_headers_digest);
        let is_same = match own.breadth {
            ApprovalScope::Same => {
                Subject::of(&own.call) == Subject::of(call) && headers(&own.call) == headers(call)
            }
            // Policies that were read anew can ask about more by the same name, in the same line.
            // One rule can ask about connections and about what a key signs: only the one was shown.
            ApprovalScope::Rule => {
                own.call.kind == call.kind
                    && own.call.rule == call.rule
                    && own.call.policies == call.policies
            }
        };
        // What else is put into it was not shown.
        let has_no_more = call
            .credentials
            .iter()
            .all(|one| own.call.credentials.contains(one));
        is_same && has_no_more && self.until.is_none_or(|until| now < until)
    }
}

#[derive(Debug)]
struct Cooling {
    subject: Subject,
    denials: u32,
    until: Instant,
}

/// The approval requests and leases of one run.
#[derive(Debug, Default)]
pub(crate) struct Approvals {
    last: u32,
    widening: DualControlRule,
    open: Vec<Open>,
    leases: Vec<Held>,
    cooling: VecDeque<Cooling>,
    /// The times of recent requests.
    put: VecDeque<Instant>,
    /// Requests answered recently, with the outcome.
    answered: VecDeque<(u32, &'static str)>,
}

/// Computes the digest of a call, as the egress process does.
fn digest_of(call: &AskedCall) -> Option<CallDigest> {
    let text = serde_json::to_vec(call).ok()?;
    Some(CallDigest::new(Sha256::digest(text).into()))
}

impl Approvals {
    /// Takes a call that needs approval: grants it by a lease, denies it, or opens a request.
    pub(crate) fn ask(&mut self, id: u64, call: AskedCall, now: Instant) -> Step {
        let step = Step::default();
        let Some(digest) = digest_of(&call) else {
            let none = CallDigest::new([0; 32]);
            return step.deny(id, none, NoConsent::Mismatch);
        };
        if let Some(held) = self.leases.iter_mut().find(|one| one.covers(&call, now)) {
            held.lease.uses = held.lease.uses.saturating_add(1);
            let approval = held.lease.approval;
            let said = vec![(id, digest, Consent::Granted { approval })];
            return Step { said, ..step };
        }
        let subject = Subject::of(&call);
        let is_cooling = |one: &Cooling| one.subject == subject && now < one.until;
        if self.cooling.iter().any(is_cooling) {
            return step.deny(id, digest, NoConsent::Cooling);
        }
        let waiting: usize = self.open.iter().map(|one| one.ids.len()).sum();
        if waiting >= ASKING_MAX {
            return step.deny(id, digest, NoConsent::TooMany);
        }
        if let Some(open) = self.open.iter_mut().find(|one| one.digest == digest) {
            open.ids.push_back(id);
            return step;
        }
        let is_past = |put: &Instant| now.saturating_duration_since(*put) >= RATE_TIME;
        while self.put.front().is_some_and(is_past) {
            self.put.pop_front();
        }
        let is_full = self.open.len() >= QUESTIONS_MAX || self.put.len() >= QUESTIONS_PER_TIME;
        let Some(approval) = self.last.checked_add(1).filter(|_| !is_full) else {
            return step.deny(id, digest, NoConsent::TooMany);
        };
        self.last = approval;
        self.put.push_back(now);
        let news = vec![ApprovalNews::Asked {
            approval,
            digest,
            call: Box::new(call.clone()),
        }];
        self.open.push(Open {
            approval,
            digest,
            call,
            since: now,
            until: now + ASKING_PATIENCE,
            ids: VecDeque::from([id]),
            agreed: None,
        });
        Step { news, ..step }
    }

    /// Denies a call in an unattended run.
    pub(crate) fn refuse(&self, id: u64, call: &AskedCall) -> Step {
        let digest = digest_of(call).unwrap_or(CallDigest::new([0; 32]));
        Step::default().deny(id, digest, NoConsent::Unattended)
    }

    /// Takes note that a call no longer waits. A request without waiting calls is closed.
    pub(crate) fn leave(&mut self, id: u64) -> Step {
        for open in &mut self.open {
            open.ids.retain(|one| *one != id);
        }
        let mut step = Step::default();
        let mut at = 0;
        while let Some(open) = self.open.get(at) {
            if open.ids.is_empty() {
                let open = self.open.remove(at);
                self.deny(open, NoConsent::Left, None, &mut step);
            } else {
                at += 1;
            }
        }
        step
    }

    /// Takes a person's decision. The digest that they were shown has to be that of the waiting
    /// call.
    ///
    /// # Errors
    /// The reason why the decision is void.
    pub(crate) fn decide(
        &mut self,
        (approval, digest): (u32, CallDigest),
        decision: Decision,
        by: Who,
        now: Instant,
    ) -> Result<Step, String> {
        let (at, weighed) = self.weighed(approval, digest, decision, by, now)?;
        let (decision, lasting) = match weighed {
            Weighed::First(said) => return Ok(self.agree(at, said)),
            Weighed::Counts(decision, lasting) => (decision, lasting),
        };
        let open = self.open.remove(at);
        let mut step = Step::default();
        match decision {
            Decision::Grant { scope, breadth } => {
                self.remember(approval, "granted");
                step.news.push(ApprovalNews::Granted {
                    approval,
                    digest,
                    scope,
                    breadth,
                    by,
                });
                match scope {
                    Scope::Once => self.grant_once(open, now, &mut step),
                    Scope::Run | Scope::Seconds { .. } => {
                        self.lease((open, breadth, lasting), by, now, &mut step);
                    }
                }
            }
            Decision::Deny {} | Decision::Stop {} => {
                self.cool(Subject::of(&open.call), now);
                self.deny(open, NoConsent::Person, Some(by), &mut step);
            }
        }
        Ok(step)
    }

    /// Grants the first waiting call; the others become a new request.
    fn grant_once(&mut self, mut open: Open, now: Instant, step: &mut Step) {
        let consent = Consent::Granted {
            approval: open.approval,
        };
        step.said
            .extend(open.ids.pop_front().map(|id| (id, open.digest, consent)));
        for id in open.ids {
            let again = self.ask(id, open.call.clone(), now);
            step.news.extend(again.news);
            step.said.extend(again.said);
        }
    }

    /// Grants, from now on, every call that the lease covers.
    fn lease(
        &mut self,
        (open, breadth, until): (Open, ApprovalScope, Option<Instant>),
        by: Who,
        now: Instant,
        step: &mut Step,
    ) {
        let approval = open.approval;
        let mut held = Held {
            lease: Lease {
                approval,
                call: open.call.clone(),
                breadth,
                left_seconds: None,
                uses: 0,
                by,
            },
            until,
        };
        self.open.insert(0, open);
        let all = std::mem::take(&mut self.open);
        for open in all {
            if !held.covers(&open.call, now) {
                self.open.push(open);
                continue;
            }
            held.lease.uses = held.lease.uses.saturating_add(open.ids.len() as u64);
            let granted = Consent::Granted { approval };
            let said = open.ids.iter().map(|id| (*id, open.digest, granted));
            step.said.extend(said);
            if open.approval != approval {
                self.remember(open.approval, "granted by another answer");
            }
        }
        self.leases.push(held);
    }

    fn deny(&mut self, open: Open, why: NoConsent, by: Option<Who>, step: &mut Step) {
        let Open {
            approval,
            digest,
            ids,
            ..
        } = open;
        self.remember(approval, why.why());
        step.news.push(ApprovalNews::Denied {
            approval,
            digest,
            why,
            by,
        });
        let denied = ids.into_iter();
        step.said
            .extend(denied.map(|id| (id, digest, Consent::Denied { why })));
    }

    fn cool(&mut self, subject: Subject, now: Instant) {
        let known = self.cooling.iter().position(|one| one.subject == subject);
        let before = known.and_then(|at| self.cooling.remove(at));
        let denials = before.map_or(0, |one| one.denials).saturating_add(1);
        let times = 1_u32.checked_shl(denials - 1).unwrap_or(u32::MAX);
        let time = COOLING.saturating_mul(times).min(COOLING_MAX);
        if self.cooling.len() >= COOLING_CALLS_MAX {
            self.cooling.pop_front();
        }
        self.cooling.push_back(Cooling {
            subject,
            denials,
            until: now + time,
        });
    }

    /// Revokes a lease.
    ///
    /// # Errors
    /// There is no lease of this number.
    pub(crate) fn revoke(&mut self, approval: u32, by: Who) -> Result<Step, String> {
        let at = self
            .leases
            .iter()
            .position(|one| one.lease.approval == approval);
        let at = at.ok_or_else(|| self.unleased(approval))?;
        let lease = self.leases.remove(at).lease;
        self.outlived(approval);
        Ok(Step {
            news: vec![ended(&lease, Some(by))],
            said: Vec::new(),
        })
    }

    /// Returns when the next request or lease expires.
    pub(crate) fn due(&self) -> Option<Instant> {
        let open = self.open.iter().map(|one| one.until);
        let leases = self.leases.iter().filter_map(|one| one.until);
        open.chain(leases).min()
    }

    /// Closes requests and leases that have expired.
    pub(crate) fn expire(&mut self, now: Instant) -> Step {
        let mut step = Step::default();
        let (late, open) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|one| now >= one.until);
        self.open = open;
        let late: Vec<Open> = late;
        for open in late {
            let why = match open.agreed {
                Some(_) => NoConsent::Unseconded,
                None => NoConsent::Late,
            };
            self.deny(open, why, None, &mut step);
        }
        let is_over = |one: &mut Held| one.until.is_some_and(|until| now >= until);
        let over: Vec<Held> = self.leases.extract_if(.., is_over).collect();
        for one in over {
            self.outlived(one.lease.approval);
            step.news.push(ended(&one.lease, None));
        }
        step
    }

    /// Closes everything at the end of the run.
    pub(crate) fn end(&mut self) -> Step {
        let mut step = Step::default();
        for open in std::mem::take(&mut self.open) {
            self.deny(open, NoConsent::Ended, None, &mut step);
        }
        let leases = std::mem::take(&mut self.leases);
        step.news
            .extend(leases.iter().map(|one| ended(&one.lease, None)));
        step
    }

    /// Returns whether a request is open.
    pub(crate) fn is_asking(&self) -> bool {
        !self.open.is_empty()
    }

    /// Returns whether the call of an open request is one that lasts once granted, such as a
    /// connection.
    pub(crate) fn goes_on(&self, approval: u32) -> bool {
        let mut open = self.open.iter();
        open.any(|one| one.approval == approval && one.call.goes_on())
    }

    /// Returns the open requests, the oldest first.
    pub(crate) fn pending(&self, now: Instant) -> Vec<Pending> {
        let pending = |one: &Open| Pending {
            approval: one.approval,
            digest: one.digest,
            call: one.call.clone(),
            waiting: u32::try_from(one.ids.len()).unwrap_or(u32::MAX),
            age_seconds: now.saturating_duration_since(one.since).as_secs(),
            left_seconds: one.until.saturating_duration_since(now).as_secs(),
            agreed: one.agreed,
            takes_two: self.widening != DualControlRule::OnePerson,
            second: self.widening.second(one.agreed.map(|agreed| agreed.by)),
        };
        self.open.iter().map(pending).collect()
    }

    /// Returns the leases in force.
    pub(crate) fn leases(&self, now: Instant) -> Vec<Lease> {
        let lease = |one: &Held| Lease {
            left_seconds: one
                .until
                .map(|until| until.saturating_duration_since(now).as_secs()),
            ..one.lease.clone()
        };
        self.leases.iter().map(lease).collect()
    }
}

fn ended(lease: &Lease, by: Option<Who>) -> ApprovalNews {
    ApprovalNews::LeaseEnded {
        approval: lease.approval,
        uses: lease.uses,
        by,
    }
}

/// Returns when a grant of this scope expires; `None` for one that lasts as long as the run.
fn until(scope: Scope, now: Instant) -> Result<Option<Instant>, String> {
    match scope {
        Scope::Once | Scope::Run => Ok(None),
        Scope::Seconds { seconds } if (1..=LEASE_SECONDS_MAX).contains(&seconds) => {
            Ok(Some(now + Duration::from_secs(seconds.into())))
        }
        Scope::Seconds { .. } => Err(format!("a lease is for 1 to {LEASE_SECONDS_MAX} seconds")),
    }
}

#[cfg(test)]
mod tests;
