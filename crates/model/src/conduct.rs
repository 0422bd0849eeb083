//! An agent's history, and the reputation computed from it by a written formula.
//!
//! Ages are whole days. Gains halve every [`GOOD_HALF_DAYS`] and losses every [`BAD_HALF_DAYS`],
//! linearly in between:
//!
//! - at most [`GOOD_DAY_MAX`] points are earned per day, [`GOOD_POINTS`] by each run that a person
//!   vouched for; the sum of all points earned is at most [`REPUTATION_MAX`];
//! - each kind of bad event takes [`HistoryEvent::points`] away, once per run, and a run with a bad event
//!   earns nothing;
//! - the reputation is the difference, whole points, never below 0. An unknown agent has 0.
//!
//! An event dated in the future earns nothing, and takes away its full points.

use std::collections::{BTreeMap, BTreeSet};

/// The highest reputation, points.
pub const REPUTATION_MAX: u8 = 100;
/// The points that a run earns when a person vouches for it.
pub const GOOD_POINTS: u8 = 4;
/// The most points earned in a day.
pub const GOOD_DAY_MAX: u8 = 8;
/// The half-life of earned points, days.
pub const GOOD_HALF_DAYS: u64 = 14;
/// The half-life of lost points, days.
pub const BAD_HALF_DAYS: u64 = 60;
/// The age of the oldest event that counts, days.
pub const CONDUCT_DAYS_MAX: u64 = 180;

/// The resolution of computations: parts per point.
const PARTS: u64 = 1_000;

/// An event in the history of a run that bears on its agent's reputation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HistoryEvent {
    /// A person applied its changes after seeing them, or approved something that it asked for.
    Vouched,
    /// A violation: it tried to escape its sandbox.
    Attempt,
    /// A credential's placeholder was about to be sent to another destination.
    Misuse,
    /// Its changes were applied and then undone.
    Undone,
    /// A person denied something that it asked for.
    Refused,
    /// A person stopped it.
    Stopped,
}

impl HistoryEvent {
    /// Returns the points that it takes away.
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

/// The history of an agent's runs: the events of each run, each with the day of its last
/// occurrence, counted from 1970-01-01.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conduct {
    runs: Vec<BTreeMap<HistoryEvent, u64>>,
}

/// The reputation that results, and the amounts it is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The reputation, points, up to [`REPUTATION_MAX`].
    pub points: u8,
    /// The points earned, before any loss.
    pub earned: u8,
    /// The points lost.
    pub lost: u64,
    /// The number of runs that earn points.
    pub good: u64,
    /// The number of runs that lose points.
    pub bad: u64,
}

impl Conduct {
    /// Adds a run with its events and the day of each one's last occurrence.
    pub fn add(&mut self, deeds: BTreeMap<HistoryEvent, u64>) {
        if !deeds.is_empty() {
            self.runs.push(deeds);
        }
    }

    /// Computes the reputation on the day `today`.
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
            let vouched = deeds.get(&HistoryEvent::Vouched).copied();
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

/// Returns the remainder of an amount of this age.
fn halved(amount: u64, age: u64, half: u64) -> u64 {
    let times = u32::try_from(age / half).unwrap_or(u32::MAX);
    let begun = amount.checked_shr(times).unwrap_or(0);
    begun * (2 * half - age % half) / (2 * half)
}

fn whole(parts: u64) -> u8 {
    u8::try_from(parts / PARTS).map_or(REPUTATION_MAX, |points| points.min(REPUTATION_MAX))
}

/// The reputation of a run in progress: its value at the start, less the losses since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    begun: u8,
    deeds: BTreeSet<HistoryEvent>,
}

impl Running {
    /// Starts with this many points.
    #[must_use]
    pub fn new(begun: u8) -> Self {
        Self {
            begun,
            deeds: BTreeSet::new(),
        }
    }

    /// Records an event: each kind takes its points away once.
    pub fn did(&mut self, deed: HistoryEvent) {
        self.deeds.insert(deed);
    }

    /// Returns the remaining points. They never grow.
    #[must_use]
    pub fn points(&self) -> u8 {
        let all = self.deeds.iter().map(|deed| deed.points());
        all.fold(self.begun, u8::saturating_sub)
    }
}
