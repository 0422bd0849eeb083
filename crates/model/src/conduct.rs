//! How an agent has behaved, and what reputation follows from that by a written formula.
//!
//! With ages in whole days, good halves in [`GOOD_HALF_DAYS`] and bad in [`BAD_HALF_DAYS`], in a
//! straight line between:
//!
//! - of each day at most [`GOOD_DAY_MAX`] points are earned, [`GOOD_POINTS`] by each run that a
//!   person vouched for; all that was earned is at most [`REPUTATION_MAX`];
//! - each bad thing of a run takes [`Deed::points`] away, once for the run, and a run of which
//!   there is one earns nothing;
//! - reputation is the difference, whole points, and never below 0. Who is unknown has 0.
//!
//! What is told of days that are still to come earns nothing, and takes away all that it does.

use std::collections::{BTreeMap, BTreeSet};

/// The most reputation that there is, points.
pub const REPUTATION_MAX: u8 = 100;
/// What a run earns that a person vouched for, points.
pub const GOOD_POINTS: u8 = 4;
/// The most that is earned in a day, points.
pub const GOOD_DAY_MAX: u8 = 8;
/// After which time good counts half, days.
pub const GOOD_HALF_DAYS: u64 = 14;
/// The same of bad, days.
pub const BAD_HALF_DAYS: u64 = 60;
/// What is older counts no more, days.
pub const CONDUCT_DAYS_MAX: u64 = 180;

/// Parts of a point.
const PARTS: u64 = 1_000;

/// What a run did, or what was done about it, that says something of its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deed {
    /// A person took its changes over, having seen them, or said yes to something that it asked.
    Vouched,
    /// It tried to get out.
    Attempt,
    /// A credential's placeholder was on its way elsewhere.
    Misuse,
    /// What was taken over was taken back.
    Undone,
    /// A person said no to something that it asked.
    Refused,
    /// A person stopped it.
    Stopped,
}

impl Deed {
    /// What it takes away, points.
    #[must_use]
    pub fn points(self) -> u8 {
        match self {
            Self::Vouched => 0,
            Self::Attempt | Self::Misuse => 30,
            Self::Undone => 10,
            Self::Refused | Self::Stopped => 5,
        }
    }
}

/// What is known of the runs of an agent: each deed of a run with the day on which it was done
/// last, counted from 1970-01-01.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conduct {
    runs: Vec<BTreeMap<Deed, u64>>,
}

/// What follows from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The reputation, points, up to [`REPUTATION_MAX`].
    pub points: u8,
    /// What was earned, before anything is taken away, points.
    pub earned: u8,
    /// What is taken away, points.
    pub lost: u64,
    /// How many runs earn.
    pub good: u64,
    /// How many runs lose.
    pub bad: u64,
}

impl Conduct {
    /// Adds a run with what it did, and when it did that last.
    pub fn add(&mut self, deeds: BTreeMap<Deed, u64>) {
        if !deeds.is_empty() {
            self.runs.push(deeds);
        }
    }

    /// What follows from it today.
    #[must_use]
    pub fn standing(&self, today: u64) -> Standing {
        let mut standing = Standing::default();
        let mut days: BTreeMap<u64, u64> = BTreeMap::new();
        let mut lost = 0_u64;
        for deeds in &self.runs {
            let counts = |day: u64| today.saturating_sub(day) <= CONDUCT_DAYS_MAX;
            let bad = deeds.iter().filter(|(deed, _)| deed.points() > 0);
            let takes: Vec<u64> = bad
                .filter(|(_, day)| counts(**day))
                .map(|(deed, day)| {
                    let points = u64::from(deed.points()) * PARTS;
                    halved(points, today.saturating_sub(*day), BAD_HALF_DAYS)
                })
                .collect();
            if !takes.is_empty() {
                standing.bad += 1;
                lost = takes.into_iter().fold(lost, u64::saturating_add);
                continue;
            }
            let vouched = deeds.get(&Deed::Vouched).copied();
            if let Some(day) = vouched.filter(|day| *day <= today && counts(*day)) {
                standing.good += 1;
                let of_day = days.entry(day).or_default();
                *of_day = (*of_day + u64::from(GOOD_POINTS)).min(GOOD_DAY_MAX.into());
            }
        }
        let earned = days
            .into_iter()
            .map(|(day, points)| halved(points * PARTS, today.saturating_sub(day), GOOD_HALF_DAYS));
        let earned = earned.sum::<u64>().min(u64::from(REPUTATION_MAX) * PARTS);
        standing.earned = whole(earned);
        standing.lost = lost.div_ceil(PARTS);
        standing.points = whole(earned.saturating_sub(lost));
        standing
    }
}

/// What is left of an amount of this age.
fn halved(amount: u64, age: u64, half: u64) -> u64 {
    let times = u32::try_from(age / half).unwrap_or(u32::MAX);
    let begun = amount.checked_shr(times).unwrap_or(0);
    begun * (2 * half - age % half) / (2 * half)
}

fn whole(parts: u64) -> u8 {
    u8::try_from(parts / PARTS).map_or(REPUTATION_MAX, |points| points.min(REPUTATION_MAX))
}

/// The reputation of a run that goes on: that with which it began, less what it has done since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    begun: u8,
    deeds: BTreeSet<Deed>,
}

impl Running {
    /// With this many points it begins.
    #[must_use]
    pub fn new(begun: u8) -> Self {
        Self {
            begun,
            deeds: BTreeSet::new(),
        }
    }

    /// It did this: each takes something away once.
    pub fn did(&mut self, deed: Deed) {
        self.deeds.insert(deed);
    }

    /// What is left of it, points. It never grows.
    #[must_use]
    pub fn points(&self) -> u8 {
        let all = self.deeds.iter().map(|deed| deed.points());
        all.fold(self.begun, u8::saturating_sub)
    }
}
