//! Circuit breakers: a tool or an upstream that fails again and again is not called for a while, then
//! once for trial. A person can trip one and reset it. The clock is an argument.
//!
//! closed -> open (faults in a row, or a share of errors) -> half-open (one trial) -> closed or open
//! again, for twice as long; any state -> tripped (a person) -> closed (a person).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The faults in a row that open it where nothing else is said.
const FAULTS: u32 = 5;
/// The time for which it is open first, and at most.
const COOL_DOWN: Duration = Duration::from_secs(30);
const COOL_DOWN_MAX: Duration = Duration::from_secs(10 * 60);
/// The calls that a share of errors is of: the last so many, and at least so many.
const WINDOW: usize = 50;
const WINDOW_MIN: usize = 10;

/// The limits of a breaker.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limits {
    faults: u32,
    errors_percent: Option<u32>,
    slow: Option<Duration>,
    cool_down: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            faults: FAULTS,
            errors_percent: None,
            slow: None,
            cool_down: COOL_DOWN,
        }
    }
}

/// Limits as they are written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Written {
    faults: Option<u32>,
    errors_percent: Option<u32>,
    slow: Option<String>,
    cool_down: Option<String>,
}

impl Written {
    /// Reads limits, with the first thing that is wrong with them.
    pub(crate) fn read(&self) -> Result<Limits, String> {
        let time = |text: &Option<String>| {
            let time = text.as_deref().map(atoll_model::parse_duration).transpose();
            time.map_err(|error| format!("breaker: {error}"))
        };
        let percent = self
            .errors_percent
            .filter(|percent| !(1..=100).contains(percent));
        if self.faults == Some(0) || percent.is_some() {
            return Err("breaker: faults is at least 1, errors-percent 1 to 100".to_owned());
        }
        Ok(Limits {
            faults: self.faults.unwrap_or(FAULTS),
            errors_percent: self.errors_percent,
            slow: time(&self.slow)?,
            cool_down: time(&self.cool_down)?.unwrap_or(COOL_DOWN),
        })
    }
}

/// The state of a breaker, with times in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum State {
    /// Calls are made.
    Closed,
    /// No calls are made until a time.
    Open {
        /// The time of the trial.
        until: u64,
        /// The time for which it is open, seconds.
        cool_down: u64,
    },
    /// One call is made, for trial; the time for which it was open, seconds.
    HalfOpen {
        /// See [`State::Open`].
        cool_down: u64,
    },
    /// A person has tripped it: no calls are made until a person resets it.
    Tripped,
}

impl State {
    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open { .. } => "open",
            Self::HalfOpen { .. } => "half-open",
            Self::Tripped => "tripped",
        }
    }
}

/// A change of a breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The name that it goes by.
    pub of: String,
    /// Its state.
    pub state: State,
}

/// The way that a call went, for a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Went {
    Well,
    /// The tool says that it failed.
    Error,
    /// There was no answer.
    Fault,
}

/// The last calls of one tool or upstream.
#[derive(Debug, Default)]
struct Seen {
    faults: u32,
    last: VecDeque<bool>,
    /// True while the trial is under way.
    on_trial: bool,
}

/// All breakers: their states, and what is seen.
#[derive(Debug, Default)]
pub struct Breakers {
    /// Those that are not closed.
    pub(crate) states: BTreeMap<String, State>,
    seen: BTreeMap<String, Seen>,
}

impl Breakers {
    /// Returns the state of one.
    #[must_use]
    pub fn state(&self, of: &str) -> State {
        self.states.get(of).cloned().unwrap_or(State::Closed)
    }

    /// Begins a call; returns whether the breaker has changed by that.
    ///
    /// # Errors
    /// The number of seconds until the next trial; `None` where a person has tripped it.
    pub(crate) fn admit(&mut self, of: &str, now: u64) -> Result<bool, Option<u64>> {
        let seen = self.seen.entry(of.to_owned()).or_default();
        match self.states.get(of) {
            None | Some(State::Closed) => Ok(false),
            Some(State::Tripped) => Err(None),
            Some(State::Open { until, .. }) if now < *until => Err(Some(until - now)),
            Some(State::HalfOpen { .. }) if seen.on_trial => Err(Some(1)),
            Some(State::Open { cool_down, .. } | State::HalfOpen { cool_down }) => {
                seen.on_trial = true;
                let half = State::HalfOpen {
                    cool_down: *cool_down,
                };
                Ok(self.states.insert(of.to_owned(), half.clone()) != Some(half))
            }
        }
    }

    /// Notes the end of a call; returns whether the breaker has changed by that.
    pub(crate) fn note(
        &mut self,
        of: &str,
        limits: &Limits,
        went: Went,
        took: Duration,
        now: u64,
    ) -> bool {
        let is_slow = limits.slow.is_some_and(|most| took > most);
        let went = match (went, is_slow) {
            (Went::Well | Went::Error, true) => Went::Fault,
            (went, _) => went,
        };
        let seen = self.seen.entry(of.to_owned()).or_default();
        seen.on_trial = false;
        seen.faults = match went {
            Went::Fault => seen.faults.saturating_add(1),
            Went::Well | Went::Error => 0,
        };
        seen.last.push_back(went == Went::Well);
        if seen.last.len() > WINDOW {
            seen.last.pop_front();
        }
        let errors = seen.last.iter().filter(|well| !**well).count();
        let all = seen.last.len();
        let is_share = limits
            .errors_percent
            .is_some_and(|percent| all >= WINDOW_MIN && errors * 100 >= all * percent as usize);
        let opens = |cool_down: u64| State::Open {
            until: now.saturating_add(cool_down),
            cool_down,
        };
        let next = match self.states.get(of) {
            Some(State::Tripped | State::Open { .. }) => return false,
            Some(State::HalfOpen { cool_down }) => match went {
                Went::Well => State::Closed,
                Went::Error if limits.errors_percent.is_none() => State::Closed,
                Went::Error | Went::Fault => {
                    opens((cool_down * 2).min(COOL_DOWN_MAX.as_secs()).max(1))
                }
            },
            None | Some(State::Closed) if seen.faults >= limits.faults || is_share => {
                opens(limits.cool_down.as_secs().max(1))
            }
            None | Some(State::Closed) => return false,
        };
        (seen.faults, seen.on_trial) = (0, false);
        seen.last.clear();
        match next {
            State::Closed => drop(self.states.remove(of)),
            next => drop(self.states.insert(of.to_owned(), next)),
        }
        true
    }

    /// Has a person trip one, or close it; returns its state before.
    pub(crate) fn set(&mut self, of: &str, trips: bool) -> State {
        self.seen.remove(of);
        let before = match trips {
            true => self.states.insert(of.to_owned(), State::Tripped),
            false => self.states.remove(of),
        };
        before.unwrap_or(State::Closed)
    }

    /// Describes one that has changed.
    pub(crate) fn changed(&self, of: &str) -> Changed {
        Changed {
            of: of.to_owned(),
            state: self.state(of),
        }
    }

    /// Takes back a call that was admitted and not made.
    pub(crate) fn give_up(&mut self, of: &str) {
        if let Some(seen) = self.seen.get_mut(of) {
            seen.on_trial = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: &str = "tool x";
    const SOON: Duration = Duration::from_millis(5);

    fn limits(text: &str) -> Limits {
        toml::from_str::<Written>(text).unwrap().read().unwrap()
    }

    #[test]
    fn faults_open_it_and_one_trial_closes_it() {
        let mut breakers = Breakers::default();
        let limits = limits("faults = 3\ncool-down = \"10s\"");
        let note = |breakers: &mut Breakers, went, now| breakers.note(X, &limits, went, SOON, now);
        for went in [
            Went::Fault,
            Went::Fault,
            Went::Error,
            Went::Fault,
            Went::Fault,
        ] {
            assert!(!note(&mut breakers, went, 100));
        }
        assert_eq!(breakers.admit(X, 100), Ok(false));
        assert!(note(&mut breakers, Went::Fault, 100));
        assert_eq!(breakers.admit(X, 104), Err(Some(6)));
        // One that was under way when it opened changes nothing.
        assert!(!note(&mut breakers, Went::Well, 105));
        assert_eq!(breakers.admit(X, 110), Ok(true));
        assert_eq!(breakers.state(X).name(), "half-open");
        // One trial at a time.
        assert_eq!(breakers.admit(X, 110), Err(Some(1)));
        assert!(note(&mut breakers, Went::Fault, 111));
        assert_eq!(breakers.admit(X, 120), Err(Some(11)));
        assert_eq!(breakers.admit(X, 131), Ok(true));
        assert!(note(&mut breakers, Went::Well, 131));
        assert_eq!(breakers.state(X), State::Closed);
        assert_eq!(breakers.admit("tool y", 100), Ok(false));
    }

    #[test]
    fn share_of_errors_and_slowness_open_it() {
        let mut breakers = Breakers::default();
        let limits_of = limits("errors-percent = 50");
        let wents = [Went::Well, Went::Error].into_iter().cycle();
        let opened = wents
            .take(20)
            .position(|went| breakers.note(X, &limits_of, went, SOON, 1));
        assert_eq!(opened, Some(9));
        let limits_of = limits("faults = 2\nslow = \"1s\"");
        let late = Duration::from_secs(2);
        assert!(!breakers.note("y", &limits_of, Went::Well, late, 1));
        assert!(breakers.note("y", &limits_of, Went::Well, late, 1));
    }

    #[test]
    fn only_a_person_resets_what_a_person_has_tripped() {
        let mut breakers = Breakers::default();
        breakers.states.insert(X.to_owned(), State::Tripped);
        assert_eq!(breakers.admit(X, u64::MAX), Err(None));
        assert!(!breakers.note(X, &Limits::default(), Went::Well, SOON, 1));
        assert_eq!(breakers.state(X), State::Tripped);
    }

    #[test]
    fn bad_limits_are_refused() {
        for text in [
            "faults = 0",
            "errors-percent = 0",
            "errors-percent = 101",
            "slow = \"x\"",
        ] {
            assert!(
                toml::from_str::<Written>(text).unwrap().read().is_err(),
                "{text}"
            );
        }
    }
}
