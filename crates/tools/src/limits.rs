//! Limits of calls: rates, calls at once, and what a session may use up in all. Counted for a tool, for
//! a caller in all of its sessions, and for a session. The clock is an argument.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atoll_model::{format_duration, parse_duration};
use serde::Deserialize;

use crate::breaker;
use crate::budget::Budget;

/// The most that a rate counts in its time.
const RATE_MAX: u32 = 1_000_000;

/// A rate: so many calls in a time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate {
    count: u32,
    seconds: f64,
}

/// The limits of a tool, a caller or a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Limits {
    rates: Vec<Rate>,
    concurrent: Option<u32>,
    most: Option<u64>,
    time: Option<Duration>,
    bytes: Option<u64>,
    /// The time that a session may last, and may be idle.
    wall_clock: Option<Duration>,
    idle: Option<Duration>,
}

/// Limits as they are written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct Written {
    rate: Vec<String>,
    concurrent: Option<u32>,
    most: Option<u64>,
    seconds: Option<u64>,
    bytes: Option<u64>,
    wall_clock: Option<String>,
    idle: Option<String>,
    budget: Option<Budget>,
    breaker: Option<breaker::Written>,
}

/// The limits and the breaker of a tool, a caller or a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bounds {
    pub(crate) limits: Limits,
    pub(crate) budget: Budget,
    pub(crate) breaker: Option<breaker::Limits>,
}

impl Written {
    /// Reads those of a tool or a caller, with the first thing that is wrong with them.
    pub(crate) fn read(&self) -> Result<Bounds, String> {
        match self.wall_clock.is_some() || self.idle.is_some() || self.budget.is_some() {
            true => Err("wall-clock, idle, budget: they are of [session]".to_owned()),
            false => self.read_of_session(),
        }
    }

    /// Reads those of a session, with the first thing that is wrong with them.
    pub(crate) fn read_of_session(&self) -> Result<Bounds, String> {
        let breaker = self.breaker.as_ref().map(breaker::Written::read);
        Ok(Bounds {
            limits: self.limits()?,
            budget: self.budget.clone().unwrap_or_default(),
            breaker: breaker.transpose()?,
        })
    }

    fn limits(&self) -> Result<Limits, String> {
        let rates = self.rate.iter().map(|text| rate(text));
        if self.concurrent == Some(0) {
            return Err("concurrent: 0 would allow no call: enabled = false does".to_owned());
        }
        Ok(Limits {
            rates: rates.collect::<Result<_, _>>()?,
            concurrent: self.concurrent,
            most: self.most,
            time: self.seconds.map(Duration::from_secs),
            bytes: self.bytes,
            wall_clock: time("wall-clock", self.wall_clock.as_deref())?,
            idle: time("idle", self.idle.as_deref())?,
        })
    }
}

fn time(name: &str, text: Option<&str>) -> Result<Option<Duration>, String> {
    let time = text.map(parse_duration).transpose();
    match time.map_err(|error| format!("{name}: {error}"))? {
        Some(Duration::ZERO) => Err(format!("{name}: 0 would allow no call")),
        time => Ok(time),
    }
}

impl Limits {
    /// Returns why a session is over that has begun then, and that nobody uses since then, if so.
    pub(crate) fn over(
        &self,
        began: Instant,
        unused_since: Option<Instant>,
        now: Instant,
    ) -> Option<String> {
        let is_past = |most: &Duration, since: Instant| now.duration_since(since) >= *most;
        let lasted = self.wall_clock.filter(|most| is_past(most, began));
        let idle = unused_since.and_then(|since| self.idle.filter(|most| is_past(most, since)));
        let what = match (lasted, idle) {
            (Some(most), _) => format!("it has lasted {}", format_duration(most)),
            (None, Some(most)) => format!("it was idle for {}", format_duration(most)),
            (None, None) => return None,
        };
        Some(format!(
            "this session is over, as {what}: begin another one"
        ))
    }
}

fn rate(text: &str) -> Result<Rate, String> {
    let read = || {
        let (count, unit) = text.split_once('/')?;
        let seconds = match unit {
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        let count: u32 = count.parse().ok()?;
        (1..=RATE_MAX)
            .contains(&count)
            .then_some(Rate { count, seconds })
    };
    read().ok_or_else(|| {
        format!(
            "rate: {text:?} is none: a number and s, m, h or d, as \"10/m\", {RATE_MAX} at most"
        )
    })
}

/// The calls that are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Counted {
    /// The calls of a tool, whoever makes them.
    Tool(String),
    /// The calls of a caller, in all sessions.
    Caller(String),
    /// The calls of a session.
    Session(String),
}

impl Counted {
    fn told(&self) -> String {
        match self {
            Self::Tool(name) => format!("tool {name}"),
            Self::Caller(name) => format!("caller {name}"),
            Self::Session(_) => "this session".to_owned(),
        }
    }
}

/// A limit that stands in the way of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The limit.
    pub why: String,
    /// The time after which the call may be made; none if never.
    pub retry_after: Option<Duration>,
}

/// The count so far.
#[derive(Debug)]
struct Meter {
    /// The rest of each rate, and its time.
    left: Vec<f64>,
    at: Instant,
    running: u32,
    calls: u64,
    time: Duration,
    bytes: u64,
}

/// All meters of a process.
#[derive(Debug, Default)]
pub(crate) struct Meters(Mutex<BTreeMap<Counted, Meter>>);

/// A call that counts as running for as long as this is kept.
pub(crate) struct Permit {
    meters: Arc<Meters>,
    of: Vec<Counted>,
}

impl Meters {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<Counted, Meter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a session that has ended: there are as many tools and callers as are described, but
    /// any number of sessions one after the other.
    pub(crate) fn forget(&self, session: &str) {
        self.locked().remove(&Counted::Session(session.to_owned()));
    }

    /// Counts a call, if every limit allows it; otherwise it counts nowhere.
    pub(crate) fn admit(
        self: &Arc<Self>,
        of: Vec<(Counted, &Limits)>,
        now: Instant,
    ) -> Result<Permit, Exceeded> {
        let mut meters = self.locked();
        for (one, limits) in &of {
            let meter = meters
                .entry(one.clone())
                .or_insert_with(|| Meter::new(limits, now));
            meter.gain(limits, now);
            meter.check(&one.told(), limits)?;
        }
        for (one, _) in &of {
            if let Some(meter) = meters.get_mut(one) {
                meter.left.iter_mut().for_each(|left| *left -= 1.0);
                meter.running += 1;
                meter.calls += 1;
            }
        }
        drop(meters);
        Ok(Permit {
            meters: Arc::clone(self),
            of: of.into_iter().map(|(one, _)| one).collect(),
        })
    }
}

impl Meter {
    fn new(limits: &Limits, now: Instant) -> Self {
        Self {
            left: limits
                .rates
                .iter()
                .map(|rate| f64::from(rate.count))
                .collect(),
            at: now,
            running: 0,
            calls: 0,
            time: Duration::ZERO,
            bytes: 0,
        }
    }

    /// Adds what its rates give until now; rates that have changed begin anew.
    fn gain(&mut self, limits: &Limits, now: Instant) {
        let passed = now.duration_since(self.at).as_secs_f64();
        self.at = now;
        if self.left.len() != limits.rates.len() {
            self.left = Self::new(limits, now).left;
        }
        for (left, rate) in self.left.iter_mut().zip(&limits.rates) {
            let count = f64::from(rate.count);
            *left = (*left + passed * count / rate.seconds).min(count);
        }
    }

    fn check(&self, whose: &str, limits: &Limits) -> Result<(), Exceeded> {
        for (left, rate) in self.left.iter().zip(&limits.rates) {
            if *left < 1.0 {
                let each = rate.seconds / f64::from(rate.count);
                return Err(Exceeded {
                    why: format!(
                        "{whose} is at its limit of {} calls in {} s",
                        rate.count, rate.seconds
                    ),
                    retry_after: Some(Duration::from_secs_f64((1.0 - left) * each)),
                });
            }
        }
        let never = |why: String| {
            Err(Exceeded {
                why,
                retry_after: None,
            })
        };
        if limits.concurrent.is_some_and(|most| self.running >= most) {
            return Err(Exceeded {
                why: format!("{whose} has {} calls at once", self.running),
                retry_after: Some(Duration::from_secs(1)),
            });
        }
        if limits.most.is_some_and(|most| self.calls >= most) {
            return never(format!("{whose} has used up its {} calls", self.calls));
        }
        if limits.time.is_some_and(|most| self.time >= most) {
            return never(format!("{whose} has used up its {} s", self.time.as_secs()));
        }
        if limits.bytes.is_some_and(|most| self.bytes >= most) {
            return never(format!(
                "{whose} has used up its {} bytes of results",
                self.bytes
            ));
        }
        Ok(())
    }
}

impl Permit {
    /// Has the call count nowhere.
    pub(crate) fn take_back(self) {
        let mut meters = self.meters.locked();
        for one in &self.of {
            if let Some(meter) = meters.get_mut(one) {
                meter.calls = meter.calls.saturating_sub(1);
                meter.left.iter_mut().for_each(|left| *left += 1.0);
            }
        }
    }

    /// Counts what the call has used.
    pub(crate) fn used(&self, time: Duration, bytes: usize) {
        let mut meters = self.meters.locked();
        for one in &self.of {
            if let Some(meter) = meters.get_mut(one) {
                meter.time += time;
                meter.bytes += bytes as u64;
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut meters = self.meters.locked();
        for one in &self.of {
            if let Some(meter) = meters.get_mut(one) {
                meter.running = meter.running.saturating_sub(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(text: &str) -> Limits {
        let written: Written = toml::from_str(text).unwrap();
        written.read().unwrap().limits
    }

    fn tool() -> Counted {
        Counted::Tool("x".to_owned())
    }

    #[test]
    fn rates_let_calls_pass_again_with_time() {
        let (meters, start) = (Arc::new(Meters::default()), Instant::now());
        let limits = limits("rate = [\"2/s\", \"3/m\"]");
        let call = |at: u64| {
            let now = start + Duration::from_millis(at);
            meters.admit(vec![(tool(), &limits)], now).map(drop)
        };
        assert!(call(0).is_ok() && call(0).is_ok());
        let often = call(0).unwrap_err();
        assert_eq!(often.retry_after, Some(Duration::from_millis(500)));
        assert!(call(500).is_ok());
        let often = call(2_000).unwrap_err();
        assert!(often.why.contains("3 calls in 60 s"), "{often:?}");
        assert!(call(21_000).is_ok());
    }

    #[test]
    fn calls_at_once_and_budgets_are_bounded() {
        let (meters, now) = (Arc::new(Meters::default()), Instant::now());
        let limits = limits("concurrent = 1\nmost = 3\nseconds = 10\nbytes = 100");
        let call = || meters.admit(vec![(tool(), &limits)], now);
        let held = call().unwrap();
        assert!(call().err().unwrap().why.contains("calls at once"));
        held.used(Duration::from_secs(1), 10);
        drop(held);
        drop(call().unwrap());
        let last = call().unwrap();
        last.used(Duration::ZERO, 200);
        drop(last);
        let never = call().err().unwrap();
        assert!(never.why.contains("its 3 calls") && never.retry_after.is_none());
    }

    /// A caller with many sessions has the limits of one.
    #[test]
    fn what_one_limit_refuses_counts_nowhere() {
        let (meters, now) = (Arc::new(Meters::default()), Instant::now());
        let (caller, session) = (limits("most = 2"), limits("most = 1"));
        let call = |name: &str| {
            let of = vec![
                (Counted::Caller("ann".to_owned()), &caller),
                (Counted::Session(name.to_owned()), &session),
            ];
            meters.admit(of, now).map(drop)
        };
        assert!(call("one").is_ok());
        assert!(call("one").is_err() && call("one").is_err());
        assert!(call("two").is_ok());
        assert!(call("three").unwrap_err().why.contains("caller ann"));
    }

    #[test]
    fn bad_limits_are_refused() {
        for text in [
            "rate = [\"0/s\"]",
            "rate = [\"5\"]",
            "rate = [\"5/w\"]",
            "concurrent = 0",
            "idle = \"1m\"",
            "wall-clock = \"1m\"",
        ] {
            let written: Written = toml::from_str(text).unwrap();
            assert!(written.read().is_err(), "{text}");
        }
        assert!(toml::from_str::<Written>("often = 1").is_err());
        for text in ["idle = \"0s\"", "wall-clock = \"long\""] {
            let written: Written = toml::from_str(text).unwrap();
            assert!(written.read_of_session().is_err(), "{text}");
        }
    }

    #[test]
    fn sessions_are_over_by_age_or_idleness() {
        let written: Written = toml::from_str("wall-clock = \"1h\"\nidle = \"1m\"").unwrap();
        let limits = written.read_of_session().unwrap().limits;
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let at = |seconds: u32| began + second * seconds;
        let over = |used: Option<u32>, now: u32| limits.over(began, used.map(at), at(now));
        assert_eq!(over(Some(0), 59), None);
        assert!(over(Some(0), 60).is_some_and(|why| why.contains("idle for 1 min 0 s")));
        assert_eq!(over(Some(3_500), 3_559), None);
        // One with calls under way is not idle, but lasts.
        assert_eq!(over(None, 3_599), None);
        assert!(over(None, 3_600).is_some_and(|why| why.contains("lasted 1 h 0 min")));
        assert_eq!(
            Limits::default().over(began, Some(began), at(100_000)),
            None
        );
    }
}
