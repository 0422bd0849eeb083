//! Rights that a running sandbox drops: recorded, then put into effect by the egress process,
//! then confirmed.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use atoll_model::network::{
    CredentialName, FlowOrder, GivenUp, GivenUpBy, GivenUps, GivingUp, Restriction,
};
use atoll_sandbox::{Declined, Who};
use atoll_sys::descriptor;

use super::{FlowEvent, Outside, State};
use crate::supervision::CredentialBundle;
use crate::supervision::control::Answer;

/// The longest wait for the egress process to put a drop into effect: it reads orders between
/// other work.
const COUNTED_PATIENCE: Duration = Duration::from_secs(5);

/// The interval of checking tokens for revocation.
const REVOKED_INTERVAL: Duration = Duration::from_secs(1);

/// Returns whether a token of the run is revoked, or that is unknown.
pub type IsRevoked<'a> = Box<dyn Fn() -> bool + 'a>;

/// The watch for revoked tokens, with the time of its next check.
pub(super) struct Revoking<'a> {
    is_revoked: IsRevoked<'a>,
    next: Instant,
}

impl Revoking<'_> {
    pub(super) fn due(&self) -> Instant {
        self.next
    }
}

impl<'a> Outside<'a> {
    /// Adds the check of the run's tokens, if it has some: once one is revoked nothing leaves
    /// any more.
    #[must_use]
    pub fn holding(mut self, is_revoked: Option<IsRevoked<'a>>) -> Self {
        let next = Instant::now();
        self.revoking = is_revoked.map(|is_revoked| Revoking { is_revoked, next });
        self
    }

    /// Checks the run's tokens for revocation, if it is time to.
    pub(super) fn attend_revoking(&mut self) {
        let now = Instant::now();
        let Some(revoking) = self.revoking.as_mut().filter(|one| one.next <= now) else {
            return;
        };
        revoking.next = now + REVOKED_INTERVAL;
        if !(revoking.is_revoked)() {
            return;
        }
        self.revoking = None;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let (new, _) = self.add(vec![GivenUp {
            at_s: since.map_or(0, |since| since.as_secs()),
            by: GivenUpBy::TokenRevoked {},
            what: Restriction::Network {},
        }]);
        if self.record_given_up(&new) {
            self.have_counted(new);
        }
    }

    /// Adds the rights dropped earlier in the run's session.
    #[must_use]
    pub fn having_given_up(mut self, given_up: GivenUps) -> Self {
        self.given_up = given_up;
        self
    }

    /// Drops rights for a person outside. They are in effect when this answers: if the egress
    /// process does not confirm in time, nothing is carried any more.
    pub(super) fn give_up(&mut self, said: &GivingUp, by: Who) -> Answer {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let at_s = since.map_or(0, |since| since.as_secs());
        let named = match said.restrictions(at_s) {
            Ok(named) => named,
            Err(error) => return declined(error.to_string()),
        };
        if let Err(why) = self.are_known(&said.no_credentials) {
            return Answer::Refused(Declined {
                why,
                advice: "nothing of it is given up: say it again with a name that there is"
                    .to_owned(),
            });
        }
        let by = GivenUpBy::Person { uid: by.uid };
        let given = named.into_iter().map(|what| GivenUp { at_s, by, what });
        let (new, is_full) = self.add(given.collect());
        if !self.record_given_up(&new) {
            return declined("it cannot be recorded, and the run ends".to_owned());
        }
        self.have_counted(new.clone());
        match is_full {
            None => Answer::GivenUp {
                new,
                all: self.given_up.clone(),
            },
            Some(why) => declined(why),
        }
    }

    /// Checks that the run has these credentials: a mistyped name would seem to be dropped
    /// otherwise.
    fn are_known(&self, names: &[CredentialName]) -> Result<(), String> {
        let handed = self.handover.into_iter().flat_map(CredentialBundle::names);
        let keys = self.signing.iter().flat_map(|(keys, _)| keys.keys());
        let known: BTreeSet<_> = handed.chain(keys.map(|one| &one.name)).collect();
        let Some(unknown) = names.iter().find(|name| !known.contains(name)) else {
            return Ok(());
        };
        let known: Vec<String> = known.iter().map(ToString::to_string).collect();
        Err(match known.is_empty() {
            true => format!("the run has no credential {unknown}, nor any other"),
            false => format!(
                "the run has no credential {unknown}, only {}",
                known.join(", ")
            ),
        })
    }

    /// Records rights dropped by the program, which are in effect in the egress process
    /// already.
    pub(super) fn given_up_inside(&mut self, id: u64, given: Vec<GivenUp>) {
        // Whoever carries cannot say that somebody else has.
        let own = given.into_iter().map(|one| GivenUp {
            by: GivenUpBy::Program {},
            ..one
        });
        let (new, _) = self.add(own.collect());
        if self.record_given_up(&new) {
            self.tell(FlowOrder::Recorded { id }, &[]);
        }
    }

    /// Adds dropped rights. Returns the new ones, and why not all could be added.
    fn add(&mut self, given: Vec<GivenUp>) -> (Vec<GivenUp>, Option<String>) {
        let mut new = Vec::new();
        for one in given {
            match self.given_up.add(one.clone()) {
                Ok(true) => new.push(one),
                Ok(false) => {}
                Err(error) => return (new, Some(error.to_string())),
            }
        }
        (new, None)
    }

    fn record_given_up(&mut self, new: &[GivenUp]) -> bool {
        let news: Vec<FlowEvent<'_>> = new.iter().map(FlowEvent::GivenUp).collect();
        self.recorded(&news)
    }

    /// Has the egress process, if it runs, put dropped rights into effect, and waits for that.
    fn have_counted(&mut self, new: Vec<GivenUp>) {
        if new.is_empty() || !matches!(self.state, State::Carrying { .. }) {
            return;
        }
        self.giving_up += 1;
        let id = self.giving_up;
        self.tell(FlowOrder::GiveUp { id, given: new }, &[]);
        let until = Instant::now() + COUNTED_PATIENCE;
        while self.counted < id {
            let State::Carrying { line, .. } = &self.state else {
                return;
            };
            let now = Instant::now();
            let left = u32::try_from(until.saturating_duration_since(now).as_millis());
            let _ = descriptor::wait_readable([Some(line.as_fd())], left.ok());
            if !self.hear_some() || now >= until {
                let _ = self.end_carrier();
                self.fail("what carried connections did not hear what was given up".to_owned());
            }
        }
    }
}

fn declined(why: String) -> Answer {
    Answer::Refused(Declined {
        why,
        advice:
            "atoll restrict RUN --no-network gives all of the network up; atoll stop RUN ends it"
                .to_owned(),
    })
}
