//! Policies that people have written: asked after the rules have allowed something.

mod asks;
mod carrying;
mod forbidden;
mod standing;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use atoll_cedar::{
    Action, Asked, Decision, Effect, Facts, Follows, Look as Carried, Question, Rate, carried,
};
use atoll_model::conduct::{Deed, Running};
use atoll_model::network::{
    ASKED_TEXT_BYTES_MAX, CallDigest, CredentialName, GivenUps, HostName, HostPart, Look,
    Published, Request,
};

use atoll_tokens::{Asked as Carry, Held};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::given_up::Renounced;
use crate::labels::{Labels, UNTRUSTED};
use crate::rates::Rates;
use crate::redaction::Redactions;
use crate::refusals::shown;
pub(crate) use asks::Asks;
pub(crate) use standing::Now;
use standing::{Standing, Taken};

/// Who is asked: nobody else is here.
const PERSON: &str = "person";

/// What is asked besides the rules: what was given up, and policies, where somebody has written
/// any about connections.
#[derive(Debug)]
pub(crate) struct Policies {
    /// Those that are in force.
    standing: RwLock<Arc<Standing>>,
    /// Says that others are.
    reloaded: watch::Sender<()>,
    /// Where they are noted.
    labels: Option<Labels>,
    rates: Rates,
    /// What the run has left of its reputation.
    conduct: Arc<Mutex<Running>>,
    /// Have to carry everything that leaves as well, where the run holds some.
    tokens: Option<Held>,
    /// Denies before anything else is asked.
    pub(crate) renounced: Renounced,
}

impl Default for Policies {
    fn default() -> Self {
        Self::of(None, None)
    }
}

/// What a request says besides its head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) follows: Follows,
    /// How sure the agent says it is, percent.
    pub(crate) confidence: Option<u8>,
}

impl From<Follows> for Sent {
    fn from(follows: Follows) -> Self {
        Self {
            follows,
            confidence: None,
        }
    }
}

/// What policies say of something that they let happen.
#[derive(Debug, Default)]
struct Granted {
    asks: Option<Asks>,
    rates: Vec<(Arc<str>, Rate)>,
    redactions: Redactions,
}

/// What a request may be sent by.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    /// By what a person is asked first.
    pub(crate) asks: Option<Asks>,
    /// What goes neither out nor in with it.
    pub(crate) redactions: Redactions,
}

impl Granted {
    fn and(mut self, other: Self) -> Self {
        self.asks = Asks::and(self.asks, other.asks);
        self.rates.extend(other.rates);
        self.rates.sort();
        self.rates.dedup();
        self.redactions.and(other.redactions);
        self
    }
}

/// Why something is not carried that the rules allow.
#[derive(Debug)]
pub(crate) struct Forbidden {
    /// For the record.
    pub(crate) why: String,
    /// For the program, which is not told where policies are written.
    pub(crate) inside: String,
    /// The policy, where one forbids it.
    pub(crate) policy: Option<String>,
    /// Who could let it pass.
    pub(crate) by: Forbids,
}

/// What forbids something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forbids {
    /// A policy.
    Policy,
    /// A policy, until it has not happened for long enough.
    Rate,
    /// The level of trust alone.
    Level,
    /// What the session is for, alone.
    Purpose,
    /// The run itself: it was given up.
    GivenUp,
    /// The token that it holds: it does not carry it.
    Token,
}

impl Policies {
    fn of(taken: Option<Taken>, labels: Option<Labels>) -> Self {
        let reputation = taken.as_ref().map_or(0, |taken| taken.facts.reputation);
        Self {
            standing: RwLock::new(Arc::new(Standing::first(taken))),
            reloaded: watch::Sender::new(()),
            labels,
            rates: Rates::default(),
            conduct: Arc::new(Mutex::new(Running::new(reputation))),
            tokens: None,
            renounced: Renounced::default(),
        }
    }

    /// Reads what was handed over. None where it is no such thing: then nothing is carried.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let (taken, labels) = standing::read(text)?;
        Some(Self::of(Some(taken), labels))
    }

    /// With what was given up before.
    pub(crate) fn without(self, given_up: GivenUps) -> Self {
        Self {
            renounced: Renounced::new(given_up),
            ..self
        }
    }

    /// What the run has left of its reputation, for who hears of what it does.
    pub(crate) fn conduct(&self) -> Arc<Mutex<Running>> {
        Arc::clone(&self.conduct)
    }

    /// The run has done this, which takes from its reputation.
    pub(crate) fn did(&self, deed: Deed) {
        let mut conduct = self.conduct.lock().unwrap_or_else(PoisonError::into_inner);
        conduct.did(deed);
    }

    fn reputation(&self) -> u8 {
        let conduct = self.conduct.lock();
        conduct.unwrap_or_else(PoisonError::into_inner).points()
    }

    /// The labels of the session, where they are noted.
    pub(crate) fn labels(&self) -> Option<&Labels> {
        self.labels.as_ref()
    }
}

impl Now<'_> {
    /// Whether some policy is about requests: it can be about their methods.
    pub(crate) fn are_about_requests(&self) -> bool {
        let taken = self.standing.taken.as_ref();
        self.policies.tokens.is_some()
            || taken.is_some_and(|taken| taken.layers.are_about(&[Action::Request]))
    }

    /// Whether a name may be asked for.
    pub(crate) fn name(&self, name: &HostName) -> Result<(), Forbidden> {
        kept(self.policies.renounced.host(&HostPart::Name(name.clone())))?;
        self.policies.carry(Carry::Resolve(name))?;
        self.ask(Asked::Resolve(name), None).map(drop)
    }

    /// Whether a connection may be made, and by what a person is asked first. Its name is asked
    /// for then, whoever does that.
    pub(crate) fn connection(
        &self,
        host: &HostPart,
        port: u16,
        look: Look,
    ) -> Result<Option<Asks>, Forbidden> {
        kept(self.policies.renounced.host(host))?;
        self.policies.carry(Carry::Connect { host, port, look })?;
        Ok(self.connects(host, port, look)?.asks)
    }

    /// The same of one that is about to be made: it counts where policies say how often.
    pub(crate) fn begin_connection(
        &self,
        host: &HostPart,
        port: u16,
        look: Look,
    ) -> Result<Option<Asks>, Forbidden> {
        kept(self.policies.renounced.host(host))?;
        self.policies.carry(Carry::Connect { host, port, look })?;
        self.count(self.connects(host, port, look)?)
    }

    /// What policies say of any address that this one may lead to holds.
    fn connects(&self, host: &HostPart, port: u16, look: Look) -> Result<Granted, Forbidden> {
        match host {
            HostPart::Name(name) => self.ask(Asked::Resolve(name), None).map(drop)?,
            HostPart::Address(_) => {}
        }
        let look = match look {
            Look::Into => Carried::Into,
            Look::Past => Carried::Past,
        };
        let mut granted = Granted::default();
        for host in &host.standing().collect::<Vec<_>>() {
            granted = granted.and(self.ask(Asked::Connect { host, port, look }, None)?);
        }
        Ok(granted)
    }

    /// Whether a request may be sent, and the connection made that it goes by: one that comes
    /// to a proxy as a whole has had no other.
    pub(crate) fn request(
        &self,
        request: &Request<'_>,
        sent: impl Into<Sent>,
    ) -> Result<Passed, Forbidden> {
        self.policies.carry(Carry::Request(request))?;
        kept(self.policies.renounced.host(request.host))?;
        Ok(self.requests(request, sent.into())?.into())
    }

    /// The same for a request by which Atoll itself gets a credential: what a token has to carry
    /// is the credential.
    pub(crate) fn request_for_credential(
        &self,
        request: &Request<'_>,
        sent: impl Into<Sent>,
    ) -> Result<Option<Asks>, Forbidden> {
        kept(self.policies.renounced.host(request.host))?;
        self.own_request(request, sent)
    }

    /// The same for a request that takes a credential back: whatever the program has given up,
    /// that is done.
    pub(crate) fn own_request(
        &self,
        request: &Request<'_>,
        sent: impl Into<Sent>,
    ) -> Result<Option<Asks>, Forbidden> {
        let passed: Passed = self.requests(request, sent.into())?.into();
        passed.of_atoll()
    }

    /// The same of one that is about to be sent: it counts where policies say how often.
    pub(crate) fn begin_request(
        &self,
        request: &Request<'_>,
        sent: Sent,
    ) -> Result<Passed, Forbidden> {
        kept(self.policies.renounced.host(request.host))?;
        self.policies.carry(Carry::Request(request))?;
        let mut granted = self.requests(request, sent)?;
        let redactions = std::mem::take(&mut granted.redactions);
        let asks = self.count(granted)?;
        Ok(Passed { asks, redactions })
    }

    fn requests(&self, request: &Request<'_>, sent: Sent) -> Result<Granted, Forbidden> {
        let Sent {
            follows,
            confidence,
        } = sent;
        let connection = self.connects(request.host, request.port, Look::Into)?;
        let mut granted = Granted::default();
        for host in &request.host.standing().collect::<Vec<_>>() {
            let request = Request { host, ..*request };
            granted = granted.and(self.ask(Asked::Request(&request, follows), confidence)?);
        }
        Ok(granted.and(connection))
    }

    fn count(&self, granted: Granted) -> Result<Option<Asks>, Forbidden> {
        let counted = self.policies.rates.count(&granted.rates, Instant::now());
        counted.map_err(|late| Forbidden {
            why: late.why(),
            inside: late.why(),
            policy: Some(format!("policy {}", late.by)),
            by: Forbids::Rate,
        })?;
        Ok(granted.asks)
    }

    /// Whether a credential may be put into something now, and by what a person is asked first.
    pub(crate) fn credential(&self, name: &CredentialName) -> Result<Option<Asks>, Forbidden> {
        kept(self.policies.renounced.credential(name))?;
        self.policies.carry(Carry::UseCredential(name))?;
        Ok(self.ask(Asked::UseCredential(name), None)?.asks)
    }

    /// The same of all that are put into something.
    pub(crate) fn credentials(&self, names: &[CredentialName]) -> Result<Option<Asks>, Forbidden> {
        names.iter().try_fold(None, |asks, name| {
            Ok(Asks::and(asks, self.credential(name)?))
        })
    }

    /// The same where Atoll itself uses it and nobody waits, so that nobody is asked.
    pub(crate) fn credential_unasked(&self, name: &CredentialName) -> Result<(), Forbidden> {
        match self.credential(name)? {
            None => Ok(()),
            Some(asks) => Err(Forbidden::unasked(&asks)),
        }
    }

    /// Whether somebody may come to a published port: of what a person would be asked about, those
    /// to which one has said yes.
    pub(crate) fn publishing(&self, published: &Published) -> Result<(), Forbidden> {
        match self.ask(Asked::Publish(published.port), None)?.asks {
            Some(asks) if !asks.were(published.asked.as_deref()) => Err(Forbidden::unasked(&asks)),
            Some(_) | None => Ok(()),
        }
    }

    fn ask(&self, asked: Asked<'_>, confidence: Option<u8>) -> Result<Granted, Forbidden> {
        let Some(taken) = &self.standing.taken else {
            return Ok(Granted::default());
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
            Effect::Ask if whom.all(|one| one == PERSON) => Some(Asks::by(&decision)),
            Effect::Ask | Effect::Deny => return Err(Forbidden::by(&decision)),
        };
        Ok(Granted {
            asks,
            rates,
            redactions,
        })
    }
}

impl From<Granted> for Passed {
    fn from(granted: Granted) -> Self {
        Self {
            asks: granted.asks,
            redactions: granted.redactions,
        }
    }
}

impl Passed {
    /// Of a request that Atoll itself makes: nothing is taken out of those.
    pub(crate) fn of_atoll(self) -> Result<Option<Asks>, Forbidden> {
        match self.redactions.told() {
            None => Ok(self.asks),
            Some(all) => Err(Forbidden::unredacted(&all)),
        }
    }
}

impl Taken {
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

/// Takes up the labels that policies give. Whether one of them is new.
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

/// The labels that count for something: what goes both ways goes on while the program reads what
/// anybody has said, there or elsewhere. Only to a model is nothing asked about then either.
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
        | Asked::Read(_)
        | Asked::Write(_)
        | Asked::Resolve(_)
        | Asked::UseCredential(_)
        | Asked::Promote { .. }
        | Asked::Publish(_) => None,
    };
    if both_ways.is_some_and(|host| !labels.is_of_model(host)) {
        has.insert(UNTRUSTED.to_owned());
    }
    has
}

/// A text that is short enough to be shown. One that is cut ends with the digest of all of it:
/// what goes by the text, as a lease does, tells it from others that begin alike.
pub(crate) fn bounded(text: String) -> String {
    if text.len() <= ASKED_TEXT_BYTES_MAX {
        return text;
    }
    let digest = CallDigest::new(Sha256::digest(text.as_bytes()).into());
    let beginning = shown(&text, ASKED_TEXT_BYTES_MAX);
    format!("{beginning} (sha256 {digest})")
}

/// Whether a right is still there: this is why it is not.
fn kept(given_up: Option<String>) -> Result<(), Forbidden> {
    given_up.map_or(Ok(()), |why| {
        Err(Forbidden {
            inside: why.clone(),
            why,
            policy: None,
            by: Forbids::GivenUp,
        })
    })
}

#[cfg(test)]
mod tests;
