//! Policies that people have written: asked after the rules have allowed something.

use std::time::{SystemTime, UNIX_EPOCH};

use atoll_cedar::{
    Action, Asked, Decision, Effect, Facts, Follows, Layers, Look as Carried, Principal, Question,
    carried, take,
};
use atoll_model::network::{
    ASKED_TEXT_BYTES_MAX, CallDigest, CredentialName, HostName, HostPart, Look, NetworkRule,
    Request, within,
};

use sha2::{Digest as _, Sha256};

use crate::refusals::shown;

/// Who is asked: nobody else is here.
const PERSON: &str = "person";

/// What is asked besides the rules; nothing where nobody has written any policy about
/// connections.
#[derive(Debug, Default)]
pub(crate) struct Policies(Option<Taken>);

#[derive(Debug)]
struct Taken {
    layers: Layers,
    principal: Principal,
    facts: Facts,
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
    /// Whether the level of trust alone forbids it.
    pub(crate) is_of_level: bool,
}

/// By what a person is asked, in words: policies for whose yes something waits.
#[derive(Debug)]
pub(crate) struct Asks {
    /// For the question, and the record.
    pub(crate) rule: String,
    /// Whether the level of trust alone asks. That is about what a program sends.
    pub(crate) is_of_level: bool,
}

impl Asks {
    fn by(decision: &Decision) -> Self {
        // Where none says that it asks, it is nobody's but a person's.
        let mut asking = decision.asking().peekable();
        let is_asked = asking.peek().is_some();
        Self {
            rule: bounded(decision.why()),
            is_of_level: is_asked && asking.all(atoll_cedar::Deciding::is_of_level),
        }
    }

    /// Both of them: a yes to one is none to the other.
    fn and(one: Option<Self>, two: Option<Self>) -> Option<Self> {
        let (one, two) = match (one, two) {
            (Some(one), Some(two)) => (one, two),
            (one, two) => return one.or(two),
        };
        let rule = match one.rule == two.rule {
            true => one.rule,
            false => bounded(format!("{}; {}", one.rule, two.rule)),
        };
        Some(Self {
            rule,
            is_of_level: one.is_of_level && two.is_of_level,
        })
    }

    /// With a rule that asks about the same, if one does.
    pub(crate) fn beside(rule: Option<&NetworkRule>, asks: Option<Self>) -> Option<String> {
        match (rule.map(NetworkRule::told), asks) {
            (None, None) => None,
            (Some(rule), None) => Some(rule),
            (None, Some(asks)) => Some(asks.rule),
            (Some(rule), Some(asks)) => Some(format!("{rule}; {}", asks.rule)),
        }
    }
}

impl Policies {
    /// Reads what was handed over. None where it is no such thing: then nothing is carried.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let (layers, principal, facts) = take(text).ok()?;
        Some(Self(Some(Taken {
            layers,
            principal,
            facts,
        })))
    }

    /// Whether some policy is about requests: it can be about their methods.
    pub(crate) fn are_about_requests(&self) -> bool {
        let taken = self.0.as_ref();
        taken.is_some_and(|taken| taken.layers.are_about(&[Action::Request]))
    }

    /// Whether a name may be asked for.
    pub(crate) fn name(&self, name: &HostName) -> Result<(), Forbidden> {
        self.ask(Asked::Resolve(name)).map(drop)
    }

    /// Whether a connection may be made, and by what a person is asked first. Its name is asked
    /// for then, whoever does that.
    pub(crate) fn connection(
        &self,
        host: &HostPart,
        port: u16,
        look: Look,
    ) -> Result<Option<Asks>, Forbidden> {
        match host {
            HostPart::Name(name) => self.name(name)?,
            HostPart::Address(_) => {}
        }
        let look = match look {
            Look::Into => Carried::Into,
            Look::Past => Carried::Past,
        };
        let mut asks = self.ask(Asked::Connect { host, port, look })?;
        if let Some(host) = &translated(host) {
            asks = Asks::and(asks, self.ask(Asked::Connect { host, port, look })?);
        }
        Ok(asks)
    }

    /// Whether a request may be sent, and the connection made that it goes by: one that comes
    /// to a proxy as a whole has had no other. By what a person is asked first.
    pub(crate) fn request(
        &self,
        request: &Request<'_>,
        follows: Follows,
    ) -> Result<Option<Asks>, Forbidden> {
        let connection = self.connection(request.host, request.port, Look::Into)?;
        let mut asks = Asks::and(self.ask(Asked::Request(request, follows))?, connection);
        if let Some(host) = &translated(request.host) {
            let request = Request { host, ..*request };
            asks = Asks::and(asks, self.ask(Asked::Request(&request, follows))?);
        }
        Ok(asks)
    }

    /// Whether a credential may be put into something now.
    pub(crate) fn credential(&self, name: &CredentialName) -> Result<(), Forbidden> {
        self.ask(Asked::UseCredential(name)).map(drop)
    }

    fn ask(&self, asked: Asked<'_>) -> Result<Option<Asks>, Forbidden> {
        let Some(taken) = &self.0 else {
            return Ok(None);
        };
        // A clock before 1970 is no time that a policy can be about: it reads 0.
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let facts = Facts {
            time: time.map_or(0, |time| time.as_secs()),
            ..taken.facts.clone()
        };
        let question = Question {
            principal: &taken.principal,
            asked,
            facts: &facts,
        };
        let decision = taken.layers.authorize(&question);
        let decision = decision.within(carried(asked.action()));
        let mut whom = decision.obligations.approve.iter();
        match decision.effect {
            Effect::Allow => Ok(None),
            Effect::Ask if whom.all(|one| one == PERSON) => Ok(Some(Asks::by(&decision))),
            Effect::Ask | Effect::Deny => Err(Forbidden::by(&decision)),
        }
    }
}

/// A text that is short enough to be shown. One that is cut ends with the digest of all of it:
/// what goes by the text, as a lease does, tells it from others that begin alike.
fn bounded(text: String) -> String {
    if text.len() <= ASKED_TEXT_BYTES_MAX {
        return text;
    }
    let digest = CallDigest::new(Sha256::digest(text.as_bytes()).into());
    let beginning = shown(&text, ASKED_TEXT_BYTES_MAX);
    format!("{beginning} (sha256 {digest})")
}

/// The address that one of IPv6 leads to where a network translates it: what policies say of either
/// holds.
fn translated(host: &HostPart) -> Option<HostPart> {
    match host {
        HostPart::Address(address) => within(*address).map(HostPart::Address),
        HostPart::Name(_) => None,
    }
}

impl Forbidden {
    fn by(decision: &Decision) -> Self {
        Self {
            why: decision.why(),
            inside: decision.why_inside(),
            policy: decision
                .deciding
                .first()
                .map(|one| format!("policy {}", one.id)),
            is_of_level: decision.is_of_level(),
        }
    }
}

#[cfg(test)]
mod tests;
