//! Rates at which policies let something happen: each policy counts for itself, over the run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use atoll_cedar::Rate;

/// The times at which a policy was counted, the earliest first: as many as its rates allow, and as
/// far back as they reach. A reloaded policy may have another rate; the times counted until then
/// stay.
#[derive(Debug, Default)]
struct RateWindow {
    times: VecDeque<Instant>,
    /// The largest count of all its rates so far.
    most: usize,
    /// The longest period of all its rates so far.
    span: Duration,
}

impl RateWindow {
    /// Returns the time until this rate has room for one more; `None` where it has room now.
    fn full(&mut self, rate: Rate, now: Instant) -> Option<Duration> {
        let (most, span) = bounds(rate);
        self.most = self.most.max(most);
        self.span = self.span.max(span);
        let at = self.times.len().checked_sub(most)?;
        let passed = now.duration_since(*self.times.get(at)?);
        (passed < span).then(|| span.saturating_sub(passed))
    }

    fn push(&mut self, now: Instant) {
        self.times.push_back(now);
        let (most, span) = (self.most, self.span);
        let is_over = |first: &Instant| now.duration_since(*first) >= span;
        while self.times.len() > most || self.times.front().is_some_and(is_over) {
            self.times.pop_front();
        }
    }
}

/// The counts under rates, by the policies' ids.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<BTreeMap<Arc<str>, RateWindow>>);

/// An exceeded rate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooOften {
    /// The policy.
    pub(crate) by: Arc<str>,
    /// Its rate.
    pub(crate) rate: Rate,
    /// The time until there is room again.
    pub(crate) again: Duration,
}

impl Rates {
    /// Counts one more by every one of these, or by none of them.
    ///
    /// # Errors
    /// [`TooOften`]: the one that has room last.
    pub(crate) fn count(&self, all: &[(Arc<str>, Rate)], now: Instant) -> Result<(), TooOften> {
        if all.is_empty() {
            return Ok(());
        }
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last: Option<TooOften> = None;
        for (by, rate) in all {
            let known = counted.entry(Arc::clone(by)).or_default();
            let Some(again) = known.full(*rate, now) else {
                continue;
            };
            if last.as_ref().is_none_or(|one| one.again < again) {
                last = Some(TooOften {
                    by: Arc::clone(by),
                    rate: *rate,
                    again,
                });
            }
        }
        if let Some(last) = last {
            return Err(last);
        }
        // Of two rates by one id each counts, and it happens once.
        let policies: BTreeSet<_> = all.iter().map(|(by, _)| by).collect();
        for by in policies {
            counted.entry(Arc::clone(by)).or_default().push(now);
        }
        Ok(())
    }
}

fn bounds(rate: Rate) -> (usize, Duration) {
    let most = usize::try_from(rate.count).unwrap_or(usize::MAX);
    (most, Duration::from_secs(rate.seconds.into()))
}

impl TooOften {
    /// Returns the reason as a sentence.
    pub(crate) fn why(&self) -> String {
        let Rate { count, seconds } = self.rate;
        let again = self.again.as_secs().saturating_add(1);
        format!(
            "policy {} lets it happen {count} times in {seconds} s; try again in {again} s",
            self.by
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(count: u32, seconds: u32) -> Rate {
        Rate { count, seconds }
    }

    #[test]
    fn rate_holds_per_policy_in_every_span() {
        let rates = Rates::default();
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let (one, two): (Arc<str>, Arc<str>) = ("one".into(), "two".into());
        let of_one = [(Arc::clone(&one), rate(2, 60))];
        assert_eq!(rates.count(&of_one, at(0)), Ok(()));
        assert_eq!(rates.count(&of_one, at(30)), Ok(()));
        let late = rates.count(&of_one, at(50)).unwrap_err();
        assert_eq!((late.by.as_ref(), late.again.as_secs()), ("one", 10));
        assert!(late.why().ends_with("try again in 11 s"), "{}", late.why());
        // What is denied counts nowhere, and another policy has counted nothing.
        let both = [of_one[0].clone(), (Arc::clone(&two), rate(1, 3_600))];
        assert!(rates.count(&both, at(55)).is_err());
        assert_eq!(rates.count(&both[1..], at(56)), Ok(()));
        assert_eq!(rates.count(&of_one, at(60)), Ok(()));
        assert!(rates.count(&of_one, at(89)).is_err());
        // Of two that are full the one that has room last is told.
        assert_eq!(rates.count(&both, at(89)).unwrap_err().by.as_ref(), "two");
        assert_eq!(rates.count(&of_one, at(90)), Ok(()));
    }

    /// Reloaded policies forget nothing by another count or another period.
    #[test]
    fn rate_reloaded_keeps_its_count() {
        let rates = Rates::default();
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let of = |count: u32, seconds: u32| [(Arc::<str>::from("send"), rate(count, seconds))];
        for second in [0, 10, 20] {
            assert_eq!(rates.count(&of(3, 60), at(second)), Ok(()));
        }
        // More are let through, and not as many more as if none had been.
        assert_eq!(rates.count(&of(4, 60), at(30)), Ok(()));
        assert!(rates.count(&of(4, 60), at(31)).is_err());
        // Of fewer the last ones count.
        let fewer = rates.count(&of(2, 3_600), at(40)).unwrap_err();
        assert_eq!(fewer.again, Duration::from_secs(3_600 - 20));
        assert!(rates.count(&of(2, 3_600), at(3_619)).is_err());
        assert_eq!(rates.count(&of(2, 3_600), at(3_620)), Ok(()));
        // And back again, though each has counted under the other.
        assert_eq!(rates.count(&of(3, 60), at(3_621)), Ok(()));
        assert_eq!(rates.count(&of(3, 60), at(3_622)), Ok(()));
        assert!(rates.count(&of(3, 60), at(3_623)).is_err());
        // Two layers can each say one, and it happens once.
        let both = [of(2, 60), of(3, 3_600)].concat();
        let other = Rates::default();
        assert_eq!(other.count(&both, at(0)), Ok(()));
        assert_eq!(other.count(&both, at(1)), Ok(()));
        assert!(other.count(&both, at(2)).is_err());
        assert_eq!(other.count(&both, at(60)), Ok(()));
        assert!(other.count(&both, at(3_599)).is_err());
    }
}
