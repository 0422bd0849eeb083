//! Requests to a running sandbox: policy decides them too, and may be reloaded.

use std::cell::{Ref, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::SystemTime;

use atoll_ledger::StateDir;
use atoll_model::network::{NetworkRule, Published, PublishedPort, Scope};
use atoll_model::{Boundary, Call, Place, Reason, Served};
use atoll_policy::{
    Facts, RELOAD, Reconsidered, Rules, compared, decide_administration, decide_allowing,
    decide_escalation, decide_publishing, reconsider,
};
use atoll_sandbox::{Allowance, Declined, Who};
use atoll_store::control_directory;

use crate::Request;
use crate::supervision::{NewPolicies, Reloaded, Versions, Wider};

/// Opens the directory of the control sockets of runs.
pub(crate) fn directory(state: &StateDir) -> io::Result<OwnedFd> {
    let opened = control_directory(state, true).map_err(io::Error::other)?;
    opened.ok_or(io::ErrorKind::NotFound.into())
}

/// The most lines reported to a person after a reload.
const TOLD_MAX: usize = 32;

/// The rules of a running sandbox: those that it began with, until policies are reloaded.
pub(crate) struct Rereading<'a> {
    request: &'a Request<'a>,
    boundary: &'a Boundary,
    /// The call of the sandbox, as it is now: that of whoever one made ahead was given to.
    call: RefCell<Rc<Call>>,
    /// The reloaded rules; none while those of the beginning are in force.
    rules: RefCell<Option<Rc<Rules>>>,
    /// The versions so far, in order; the first is that of the beginning.
    versions: RefCell<Vec<String>>,
}

impl<'a> Rereading<'a> {
    pub(crate) fn new(request: &'a Request<'a>, boundary: &'a Boundary) -> Self {
        Self {
            request,
            boundary,
            call: RefCell::new(Rc::new(request.call.clone())),
            rules: RefCell::default(),
            versions: RefCell::new(vec![request.rules.digest().to_owned()]),
        }
    }

    /// Returns the versions of the policies, in order; the first is that of the beginning.
    pub(crate) fn versions(&self) -> Ref<'_, Vec<String>> {
        self.versions.borrow()
    }

    /// Returns the call of the sandbox, as it is now.
    pub(crate) fn call(&self) -> Rc<Call> {
        self.call.borrow().clone()
    }

    /// Takes over whom a sandbox made ahead was given to, as decided and recorded.
    pub(crate) fn assign(&self, served: Box<Served>) {
        let call = Call {
            place: Place::Served(served),
            ..(*self.call()).clone()
        };
        *self.call.borrow_mut() = Rc::new(call);
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            now: SystemTime::now(),
            ..self.request.facts
        }
    }

    /// Decides something by the rules in force.
    pub(crate) fn with<T>(&self, decide: impl FnOnce(&Rules, &Facts<'_>) -> T) -> T {
        let later = self.rules.borrow().clone();
        decide(
            later.as_deref().unwrap_or(self.request.rules),
            &self.facts(),
        )
    }

    /// Decides whether a port is published.
    pub(crate) fn publish(
        &self,
        port: PublishedPort,
        already: &[Published],
    ) -> Result<Published, Declined> {
        let tokens = self.request.tokens;
        if let Some(Err(why)) = tokens.map(|tokens| tokens.publishes(port.inside)) {
            return Err(Declined {
                why,
                advice: "start another run, with a token that carries it".to_owned(),
            });
        }
        let call = self.call();
        self.with(|rules, facts| decide_publishing(rules, &call, facts, already, port))
            .map_err(declined)
    }

    /// Reads the policies again; returns both versions, and the text that a prover compares.
    pub(crate) fn compare(&self) -> Result<(Versions, String), Declined> {
        self.with(|rules, _| {
            let after = (self.request.reread)(rules)?;
            let text = compared(rules, &after).map_err(|why| Declined {
                why,
                advice: "atoll policy check".to_owned(),
            })?;
            let versions = Versions {
                from: rules.digest().to_owned(),
                to: after.digest().to_owned(),
            };
            Ok((versions, text))
        })
    }

    /// Reloads the policies and decides by them from then on. If `only` is given, reloads only
    /// from its one version to its other.
    pub(crate) fn reload(
        &self,
        only: Option<&Versions>,
    ) -> Result<NewPolicies, (String, Declined)> {
        let from = self.with(|rules, _| rules.digest().to_owned());
        let call = self.call();
        self.with(|rules, facts| decide_administration(rules, &call, facts, RELOAD))
            .map_err(|reasons| (from.clone(), declined(reasons)))?;
        let reread = |rules: &Rules, facts: &Facts<'_>| {
            let rules = (self.request.reread)(rules)?;
            proven(only, &from, rules.digest())?;
            let reconsidered = reconsider(&rules, &call, facts, self.boundary);
            let reconsidered = reconsidered.map_err(|why| Declined {
                why,
                advice: "write fewer policies".to_owned(),
            })?;
            Ok((rules, reconsidered))
        };
        let read = self.with(reread);
        let (rules, reconsidered) = read.map_err(|declined| (from.clone(), declined))?;
        let (told, handed) = told(&rules, reconsidered);
        let to = rules.digest().to_owned();
        let signed = rules.signed().map(ToString::to_string);
        if from != to {
            self.versions.borrow_mut().push(to.clone());
            *self.rules.borrow_mut() = Some(Rc::new(rules));
        }
        let reloaded = Reloaded { from, to, told };
        Ok(NewPolicies {
            reloaded,
            signed,
            handed,
        })
    }
}

impl Wider for Rereading<'_> {
    fn escalate(&self, by: Who, scope: Scope) -> Result<(), Declined> {
        let seconds = match scope {
            Scope::Once => return Ok(()),
            Scope::Run => None,
            Scope::Seconds { seconds } => Some(u64::from(seconds)),
        };
        let call = self.call();
        self.with(|rules, facts| decide_escalation(rules, &call, facts, by.uid, seconds))
            .map_err(declined)
    }

    fn allow(&self, by: Who, text: &str, lasts: Allowance) -> Result<NetworkRule, Declined> {
        self.escalate(by, lasts.scope())?;
        let call = self.call();
        let decided = self.with(|rules, facts| {
            decide_allowing(
                rules,
                &call,
                facts,
                text,
                self.boundary.network.is_inspected(),
            )
        });
        let (rules, rule) = decided.map_err(declined)?;
        match lasts {
            Allowance::Once => {}
            Allowance::Run | Allowance::Project => *self.rules.borrow_mut() = Some(Rc::new(rules)),
        }
        Ok(rule)
    }

    fn remember(&self, text: &str) -> Result<(), Declined> {
        (self.request.remember)(text)
    }
}

/// Checks that the proof is about the policies in force and about those that replace them.
fn proven(only: Option<&Versions>, from: &str, to: &str) -> Result<(), Declined> {
    let why = match only {
        Some(only) if only.from != from => {
            "others are in force by now than those that it was proven against"
        }
        Some(only) if only.to != to => "a file is not any more what was proven",
        Some(_) | None => return Ok(()),
    };
    Err(Declined {
        why: why.to_owned(),
        advice: "atoll policy reload once more".to_owned(),
    })
}

/// Describes reloaded policies for the person; returns also the rules for the egress process.
fn told(rules: &Rules, reconsidered: Reconsidered) -> (Vec<String>, Option<Vec<u8>>) {
    let denied = reconsidered.denied.into_iter().map(|one| {
        let Reason {
            what, why, rule, ..
        } = one;
        format!(
            "what it began with stays, and is denied from its next start on: {what}: {why} ({rule})"
        )
    });
    let timed = reconsidered.timed_by.map(|by| {
        format!(
            "how long it may take was settled when it began; {by} counts from its next start on"
        )
    });
    let notices = rules.notices().iter().map(ToString::to_string);
    let mut told: Vec<String> = notices.chain(denied).chain(timed).collect();
    let more = told.len().saturating_sub(TOLD_MAX);
    told.truncate(TOLD_MAX);
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    (told, reconsidered.handed)
}

/// Returns the refusal for these reasons.
pub(crate) fn declined(reasons: Vec<Reason>) -> Declined {
    let whys = reasons
        .iter()
        .map(|one| format!("{}: {} ({})", one.what, one.why, one.rule));
    let advice = reasons.first().map(|one| one.how_to_ask.clone());
    Declined {
        why: whys.collect::<Vec<_>>().join("; "),
        advice: advice.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A proof that one version is tightened says nothing about another that has come
    /// meanwhile.
    #[test]
    fn what_was_proven_of_other_versions_counts_for_nothing() {
        let versions = |from: &str, to: &str| Versions {
            from: from.to_owned(),
            to: to.to_owned(),
        };
        let asked = versions("first", "second");
        assert_eq!(proven(Some(&asked), "first", "second"), Ok(()));
        assert_eq!(proven(None, "first", "second"), Ok(()));
        for (from, to, expected) in [
            ("third", "second", "others are in force by now"),
            ("first", "third", "a file is not any more"),
            ("second", "second", "others are in force by now"),
        ] {
            let declined = proven(Some(&asked), from, to).unwrap_err();
            assert!(declined.why.starts_with(expected), "{}", declined.why);
        }
    }
}
