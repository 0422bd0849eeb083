//! Policies that people have written: asked after the rules have allowed something.

use std::time::{SystemTime, UNIX_EPOCH};

use atoll_cedar::{
    Asked, Decision, Effect, Facts, Layers, Look as Carried, Principal, Question, carried, take,
};
use atoll_model::network::{CredentialName, HostName, HostPart, Look, Request, within};

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

    /// Whether a name may be asked for.
    pub(crate) fn name(&self, name: &HostName) -> Result<(), Forbidden> {
        self.ask(Asked::Resolve(name))
    }

    /// Whether a connection may be made. Its name is asked for then, whoever does that.
    pub(crate) fn connection(
        &self,
        host: &HostPart,
        port: u16,
        look: Look,
    ) -> Result<(), Forbidden> {
        match host {
            HostPart::Name(name) => self.name(name)?,
            HostPart::Address(_) => {}
        }
        let look = match look {
            Look::Into => Carried::Into,
            Look::Past => Carried::Past,
        };
        for host in [Some(host), translated(host).as_ref()]
            .into_iter()
            .flatten()
        {
            self.ask(Asked::Connect { host, port, look })?;
        }
        Ok(())
    }

    /// Whether a request may be sent, and the connection made that it goes by: one that comes
    /// to a proxy as a whole has had no other.
    pub(crate) fn request(&self, request: &Request<'_>) -> Result<(), Forbidden> {
        self.connection(request.host, request.port, Look::Into)?;
        self.ask(Asked::Request(request))?;
        match translated(request.host) {
            Some(host) => self.ask(Asked::Request(&Request {
                host: &host,
                ..*request
            })),
            None => Ok(()),
        }
    }

    /// Whether a credential may be put into something now.
    pub(crate) fn credential(&self, name: &CredentialName) -> Result<(), Forbidden> {
        self.ask(Asked::UseCredential(name))
    }

    fn ask(&self, asked: Asked<'_>) -> Result<(), Forbidden> {
        let Some(taken) = &self.0 else {
            return Ok(());
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
        match decision.effect {
            Effect::Allow => Ok(()),
            Effect::Ask | Effect::Deny => Err(Forbidden::by(&decision)),
        }
    }
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
        }
    }
}

#[cfg(test)]
mod tests;
