//! Requests to a running sandbox: policy decides them too, and may be reloaded.

mod gate;

pub(crate) use gate::Acts;

use std::cell::{Ref, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::SystemTime;

use atoll_ledger::StateDir;
use atoll_model::{Boundary, Call, Place, Reason, Served};
use atoll_policy::{Facts, Reconsidered, Rules, compared};
use atoll_sandbox::Declined;
use atoll_store::control_directory;

use crate::Request;
use crate::supervision::Versions;

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

    /// Reads the policies again; returns both versions, and the text that a prover compares.
    fn compare(&self) -> Result<(Versions, String), Declined> {
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

    /// Decides by reloaded rules from now on.
    fn reload(&self, rules: Rules) {
        self.versions.borrow_mut().push(rules.digest().to_owned());
        self.decide_by(rules);
    }

    /// Decides by these rules from now on.
    fn decide_by(&self, rules: Rules) {
        *self.rules.borrow_mut() = Some(Rc::new(rules));
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
