//! Policies: what they forbid, ask or limit of what the rules allow.

mod approval_need;
mod forbidden;
mod tokens;
mod version;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use atoll_cedar::{
    Action, Asked, Decision, Effect, Facts, Follows, Look as Carried, Question, Rate, carried,
};
use atoll_model::conduct::{HistoryEvent, Running};
use atoll_model::network::{
    ASKED_TEXT_BYTES_MAX, CallDigest, CredentialName, GivenUps, HostName, HostPart, Look,
    Published, Request,
};

use atoll_tokens::{Asked as Carry, Held};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::dropped_rights::DroppedRights;
use crate::labels::{Labels, UNTRUSTED};
use crate::rates::Rates;
use crate::redaction::Redactions;
use crate::refusals::shown;
pub(crate) use approval_need::ApprovalNeed;
pub(crate) use forbidden::{DenialCause, Forbidden};
pub(crate) use version::PolicySnapshot;
use version::{PolicySet, PolicyVersion};

/// The only approver that can be asked here.
const PERSON: &str = "person";

/// The checks beside the rules: rights that were given up, tokens, and policies, where there are
/// any about connections.
#[derive(Debug)]
pub(crate) struct Policies {
    /// The policies in force.
    version_in_force: RwLock<Arc<PolicyVersion>>,
    /// Notified when others come into force.
    reloaded: watch::Sender<()>,
    /// The labels of the session, where they are kept.
    labels: Option<Labels>,
    rates: Rates,
    /// The run's reputation.
    conduct: Arc<Mutex<Running>>,
    /// The tokens of the run, if it holds some: they must permit each flow as well.
    tokens: Option<Held>,
    /// The rights that were given up: denied before anything else is asked.
    pub(crate) dropped: DroppedRights,
}

impl Default for Policies {
    fn default() -> Self {
        Self::of(None, None)
    }
}

/// The facts about a request that its head does not hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestFacts {
    pub(crate) follows: Follows,
    /// The agent's own confidence, percent.
    pub(crate) confidence: Option<u8>,
}

impl From<Follows> for RequestFacts {
    fn from(follows: Follows) -> Self {
        Self {
            follows,
            confidence: None,
        }
    }
}

/// The conditions under which policies allow something.
#[derive(Debug, Default)]
struct PermitConditions {
    asks: Option<ApprovalNeed>,
    rates: Vec<(Arc<str>, Rate)>,
    redactions: Redactions,
}

/// The conditions under which a request may be sent.
#[derive(Debug, Default)]
pub(crate) struct SendConditions {
    /// The approval that is needed first.
    pub(crate) asks: Option<ApprovalNeed>,
    /// The parts that are removed from it and from its response.
    pub(crate) redactions: Redactions,
}

impl PermitConditions {
    fn and(mut self, other: Self) -> Self {
        self.asks = ApprovalNeed::and(self.asks, other.asks);
        self.rates.extend(other.rates);
        self.rates.sort();
        self.rates.dedup();
        self.redactions.and(other.redactions);
        self
    }
}

impl Policies {
    fn of(taken: Option<PolicySet>, labels: Option<Labels>) -> Self {
        let reputation = taken.as_ref().map_or(0, |taken| taken.facts.reputation);
        Self {
            version_in_force: RwLock::new(Arc::new(PolicyVersion::first(taken))),
            reloaded: watch::Sender::new(()),
            labels,
            rates: Rates::default(),
            conduct: Arc::new(Mutex::new(Running::new(reputation))),
            tokens: None,
            dropped: DroppedRights::default(),
        }
    }

    /// Reads the policies that were handed over. Returns `None` if they cannot be read: nothing is
    /// carried then.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let (taken, labels) = version::read(text)?;
        Some(Self::of(Some(taken), labels))
    }

    /// Adds the rights that were given up before.
    pub(crate) fn without(self, given_up: GivenUps) -> Self {
        Self {
            dropped: DroppedRights::new(given_up),
            ..self
        }
    }

    /// Returns the run's reputation, to be shared with those who learn of its deeds.
    pub(crate) fn conduct(&self) -> Arc<Mutex<Running>> {
        Arc::clone(&self.conduct)
    }

    /// Notes a deed of the run, which lowers its reputation.
    pub(crate) fn did(&self, deed: HistoryEvent) {
        let mut conduct = self.conduct.lock().unwrap_or_else(PoisonError::into_inner);
        conduct.did(deed);
    }

    fn reputation(&self) -> u8 {
        let conduct = self.conduct.lock();
        conduct.unwrap_or_else(PoisonError::into_inner).points()
    }

    /// Returns the labels of the session, where they are kept.
    pub(crate) fn labels(&self) -> Option<&Labels> {
        self.labels.as_ref()
    }
}

impl PolicySnapshot<'_> {
    /// Returns whether any policy or token is about requests: it can be about their methods.
    pub(crate) fn are_about_requests(&self) -> bool {
        let taken = self.version_in_force.taken.as_ref();
        self.policies.tokens.is_some()
            || taken.is_some_and(|taken| taken.layers.are_about(&[Action::Request]))
    }

    /// Checks whether a name may be queried.
    pub(crate) fn name(&self, name: &HostName) -> Result<(), Forbidden> {
        deny_dropped(self.policies.dropped.host(&HostPart::Name(name.clone())))?;
        self.policies.carry(Carry::Resolve(name))?;
        self.ask(Asked::Resolve(name), None).map(drop)
    }

    /// Checks whether a connection may be made, and returns the approval that is needed first. A
    /// connection implies a query for its name, whoever makes that.
    pub(crate) fn connection(
        &self,
        host: &HostPart,
        port: u16,
        look: Look,
    ) -> Result<Option<ApprovalNeed>, Forbidden> {
        deny_dropped(self.policies.dropped.host(host))?;
        self.policies.carry(Carry::Connect { host, port, look })?;
        Ok(self.connects(host, port, look)?.asks)
    }

    /// Checks a connection that is about to be made: it counts where policies limit how often.
    pub(crate) fn begin_connection(
        &self,
        host: &HostPart,
        port: u16,
        look: Look,
    ) -> Result<Option<ApprovalNeed>, Forbidden> {
        deny_dropped(self.policies.dropped.host(host))?;
        self.policies.carry(Carry::Connect { host, port, look })?;
        self.count(self.connects(host, port, look)?)
    }

    /// Asks the policies about a connection. A decision on any address that this one may lead to
    /// holds.
    fn connects(
        &self,
        host: &HostPart,
        port: u16,
        look: Look,
    ) -> Result<PermitConditions, Forbidden> {
        match host {
            HostPart::Name(name) => self.ask(Asked::Resolve(name), None).map(drop)?,
            HostPart::Address(_) => {}
        }
        let look = match look {
            Look::Into => Carried::Into,
            Look::Past => Carried::Past,
        };
        let mut granted = PermitConditions::default();
        for host in &host.standing().collect::<Vec<_>>() {
            granted = granted.and(self.ask(Asked::Connect { host, port, look }, None)?);
        }
        Ok(granted)
    }

    /// Checks whether a request may be sent, and whether its connection may be made: a request in
    /// absolute form at the proxy has had no other check.
    pub(crate) fn request(
        &self,
        request: &Request<'_>,
        sent: impl Into<RequestFacts>,
    ) -> Result<SendConditions, Forbidden> {
        self.policies.carry(Carry::Request(request))?;
        deny_dropped(self.policies.dropped.host(request.host))?;
        Ok(self.requests(request, sent.into())?.into())
    }

    /// Checks a request by which Atoll itself gets a credential: a token must permit the
    /// credential, not the request.
    pub(crate) fn request_for_credential(
        &self,
        request: &Request<'_>,
        sent: impl Into<RequestFacts>,
    ) -> Result<Option<ApprovalNeed>, Forbidden> {
        deny_dropped(self.policies.dropped.host(request.host))?;
        self.own_request(request, sent)
    }

    /// Checks a request that revokes a credential: it is sent whatever the program has given up.
    pub(crate) fn own_request(
        &self,
        request: &Request<'_>,
        sent: impl Into<RequestFacts>,
    ) -> Result<Option<ApprovalNeed>, Forbidden> {
        let passed: SendConditions = self.requests(request, sent.into())?.into();
        passed.of_atoll()
    }

    /// Checks a request that is about to be sent: it counts where policies limit how often.
    pub(crate) fn begin_request(
        &self,
        request: &Request<'_>,
        sent: RequestFacts,
    ) -> Result<SendConditions, Forbidden> {
        deny_dropped(self.policies.dropped.host(request.host))?;
        self.policies.carry(Carry::Request(request))?;
        let mut granted = self.requests(request, sent)?;
        let redactions = std::mem::take(&mut granted.redactions);
        let asks = self.count(granted)?;
        Ok(SendConditions { asks, redactions })
    }

    fn requests(
        &self,
        request: &Request<'_>,
        sent: RequestFacts,
    ) -> Result<PermitConditions, Forbidden> {
        let RequestFacts {
            follows,
            confidence,
        } = sent;
        let connection = self.connects(request.host, request.port, Look::Into)?;
        let mut granted = PermitConditions::default();
        for host in &request.host.standing().collect::<Vec<_>>() {
            let request = Request { host, ..*request };
            granted = granted.and(self.ask(Asked::Request(&request, follows), confidence)?);
        }
        Ok(granted.and(connection))
    }

    fn count(&self, granted: PermitConditions) -> Result<Option<ApprovalNeed>, Forbidden> {
        let counted = self.policies.rates.count(&granted.rates, Instant::now());
        counted.map_err(|late| Forbidden {
            why: late.why(),
            shown: late.why(),
            policy: Some(format!("policy {}", late.by)),
            by: DenialCause::Rate,
        })?;
        Ok(granted.asks)
    }

    /// Checks whether a credential may be injected now, and returns the approval that is needed
    /// first.
    pub(crate) fn credential(
        &self,
        name: &CredentialName,
    ) -> Result<Option<ApprovalNeed>, Forbidden> {
        deny_dropped(self.policies.dropped.credential(name))?;
        self.policies.carry(Carry::UseCredential(name))?;
        Ok(self.ask(Asked::UseCredential(name), None)?.asks)
    }

    /// Checks all credentials that are injected into something.
    pub(crate) fn credentials(
        &self,
        names: &[CredentialName],
    ) -> Result<Option<ApprovalNeed>, Forbidden> {
        names.iter().try_fold(None, |asks, name| {
            Ok(ApprovalNeed::and(asks, self.credential(name)?))
        })
    }

    /// Checks a credential that Atoll itself uses while nobody waits: a needed approval is a
    /// denial.
    pub(crate) fn credential_unasked(&self, name: &CredentialName) -> Result<(), Forbidden> {
        match self.credential(name)? {
            None => Ok(()),
            Some(asks) => Err(Forbidden::unasked(&asks)),
        }
    }

    /// Checks whether clients may connect to a published port: where policies need an approval,
    /// only with the one that a person has given.
    pub(crate) fn publishing(&self, published: &Published) -> Result<(), Forbidden> {
        match self.ask(Asked::Publish(published.port), None)?.asks {
            Some(asks) if !asks.were(published.asked.as_deref()) => Err(Forbidden::unasked(&asks)),
            Some(_) | None => Ok(()),
        }
    }

    fn ask(&self, asked: Asked<'_>, confidence: Option<u8>) -> Result<PermitConditions, Forbidden> {
        let Some(taken) = &self.version_in_force.taken else {
            return Ok(PermitConditions::default());
        };
        let labels = self.policies.labels.as_ref();
        // What nobody can tell could be what a policy asks for.
        let learnt = labels.map_or(Ok(()), Labels::learn);
        learnt.map_err(|error| Forbidden::unlearnt(&error))?;
        let mut decision = taken.decide(asked, confidence, self.policies);
        // What something is labelled with counts for itself: the order of questions changes nothing.
        while decision.effect != Effect::Deny && gain(labels, &decision) {
            decision = taken.decide(asked, confidence, self.policies);
        }
        let rates = std::mem::take(&mut decision.rates);
        let redactions = Redactions::of(decision.obligations.redactions());
        let mut whom = decision.obligations.approve.iter();
        let asks = match decision.effect {
            Effect::Allow => None,
            Effect::Ask if whom.all(|one| one == PERSON) => Some(ApprovalNeed::by(&decision)),
            Effect::Ask | Effect::Deny => return Err(Forbidden::by(&decision)),
        };
        Ok(PermitConditions {
            asks,
            rates,
            redactions,
        })
    }
}

impl From<PermitConditions> for SendConditions {
    fn from(granted: PermitConditions) -> Self {
        Self {
            asks: granted.asks,
            redactions: granted.redactions,
        }
    }
}

impl SendConditions {
    /// Returns the conditions for a request of Atoll's own: a redaction is a denial, since it is
    /// never applied to those.
    pub(crate) fn of_atoll(self) -> Result<Option<ApprovalNeed>, Forbidden> {
        match self.redactions.told() {
            None => Ok(self.asks),
            Some(all) => Err(Forbidden::unredacted(&all)),
        }
    }
}

impl PolicySet {
    fn decide(&self, asked: Asked<'_>, confidence: Option<u8>, policies: &Policies) -> Decision {
        // A clock before 1970 is no time that a policy can be about: it reads 0.
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let labels = policies.labels.as_ref();
        let reputation = policies.reputation();
        let facts = Facts {
            time: time.map_or(0, |time| time.as_secs()),
            labels: labels.map(|labels| with(labels, &asked)),
            confidence,
            reputation,
            ..self.facts.clone()
        };
        let question = Question {
            principal: &self.principal,
            asked,
            facts: &facts,
        };
        let decision = self.layers.authorize(&question);
        decision.within(carried(asked.action()))
    }
}

/// Adds the labels that policies give. Returns whether one of them is new.
fn gain(labels: Option<&Labels>, decision: &Decision) -> bool {
    let Some(labels) = labels else {
        return false;
    };
    let is_new = |label: &&String| {
        let by = bounded(decision.labelled_by(label));
        labels.gain(label, &by)
    };
    // Each of them, not the first alone.
    decision.obligations.label.iter().filter(is_new).count() > 0
}

/// Returns the labels that count for something. A flow in both directions goes on while the program
/// reads untrusted data, from there or elsewhere, so it counts as untrusted, except where it is
/// with a model.
fn with(labels: &Labels, asked: &Asked<'_>) -> BTreeSet<String> {
    let mut has = labels.has();
    let both_ways = match asked {
        Asked::Connect {
            host,
            look: Carried::Past,
            ..
        } => Some(*host),
        Asked::Request(request, Follows::Messages) => Some(request.host),
        Asked::Connect {
            look: Carried::Into,
            ..
        }
        | Asked::Request(_, Follows::Nothing | Follows::Body)
        | Asked::Run { .. }
        | Asked::Exec(_)
        | Asked::Call(_)
        | Asked::Read(_)
        | Asked::Write(_)
        | Asked::Resolve(_)
        | Asked::UseCredential(_)
        | Asked::Promote { .. }
        | Asked::Restore { .. }
        | Asked::Publish(_)
        | Asked::Escalate { .. }
        | Asked::Administer { .. } => None,
    };
    if both_ways.is_some_and(|host| !labels.is_of_model(host)) {
        has.insert(UNTRUSTED.to_owned());
    }
    has
}

/// Shortens a text for display. One that is cut ends with the digest of the whole: whatever is
/// matched by the text, such as a lease, tells it from others that begin alike.
pub(crate) fn bounded(text: String) -> String {
    if text.len() <= ASKED_TEXT_BYTES_MAX {
        return text;
    }
    let digest = CallDigest::new(Sha256::digest(text.as_bytes()).into());
    let beginning = shown(&text, ASKED_TEXT_BYTES_MAX);
    format!("{beginning} (sha256 {digest})")
}

/// Denies something for this reason, where a right to it was given up.
fn deny_dropped(given_up: Option<String>) -> Result<(), Forbidden> {
    given_up.map_or(Ok(()), |why| {
        Err(Forbidden {
            shown: why.clone(),
            why,
            policy: None,
            by: DenialCause::GivenUp,
        })
    })
}

#[cfg(test)]
mod tests;
