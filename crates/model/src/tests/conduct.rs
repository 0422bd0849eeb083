use std::collections::BTreeMap;

use crate::conduct::{
    BAD_HALF_DAYS, CONDUCT_DAYS_MAX, Conduct, Deed, GOOD_HALF_DAYS, REPUTATION_MAX, Running,
    Standing,
};

const TODAY: u64 = 20_780;
const ALL: [Deed; 6] = [
    Deed::Vouched,
    Deed::Attempt,
    Deed::Misuse,
    Deed::Undone,
    Deed::Refused,
    Deed::Stopped,
];

/// Returns an agent's history: of each run its events, with their ages in days.
fn conduct(runs: &[&[(Deed, u64)]]) -> Conduct {
    let mut conduct = Conduct::default();
    for deeds in runs {
        let deeds = deeds.iter().map(|(deed, ago)| (*deed, TODAY - ago));
        conduct.add(deeds.collect());
    }
    conduct
}

fn points(runs: &[&[(Deed, u64)]]) -> u8 {
    conduct(runs).standing(TODAY).points
}

/// Returns as many vouched runs per day as can earn points, for this many days.
fn daily(days: u64) -> Vec<[(Deed, u64); 1]> {
    (0..days)
        .flat_map(|ago| [[(Deed::Vouched, ago)]; 2])
        .collect()
}

#[test]
fn reputation_is_what_the_formula_says() {
    let vouched = [(Deed::Vouched, 0)];
    assert_eq!(points(&[]), 0, "who is unknown has none");
    assert_eq!(points(&[&vouched]), 4);
    assert_eq!(points(&[&vouched, &vouched]), 8);
    // However many there are, and whatever they did: a day has its end.
    assert_eq!(points(&vec![&vouched[..]; 10_000]), 8);
    // A week at work; a month is as much as there is.
    let of = |days: u64| {
        let runs = daily(days);
        let runs: Vec<&[(Deed, u64)]> = runs.iter().map(|run| &run[..]).collect();
        points(&runs)
    };
    assert_eq!([of(4), of(7), of(14), of(30)], [30, 49, 85, REPUTATION_MAX]);
    // It goes by itself, the good sooner than the bad.
    for (ago, expected) in [(0, 8), (7, 6), (GOOD_HALF_DAYS, 4), (28, 2), (181, 0)] {
        let run = [(Deed::Vouched, ago)];
        assert_eq!(points(&[&run, &run]), expected, "{ago}");
    }
    let lost = |deed: Deed, ago: u64| conduct(&[&[(deed, ago)]]).standing(TODAY).lost;
    assert_eq!(lost(Deed::Attempt, 0), 30);
    assert_eq!(lost(Deed::Misuse, BAD_HALF_DAYS), 15);
    assert_eq!(lost(Deed::Attempt, CONDUCT_DAYS_MAX), 4);
    assert_eq!(lost(Deed::Attempt, CONDUCT_DAYS_MAX + 1), 0);
    let small = [Deed::Undone, Deed::Refused, Deed::Stopped].map(|deed| lost(deed, 0));
    assert_eq!(small, [10, 5, 5]);
}

#[test]
fn a_run_that_did_something_bad_earns_nothing_and_loses_once_for_each() {
    let month = daily(30);
    let mut runs: Vec<&[(Deed, u64)]> = month.iter().map(|run| &run[..]).collect();
    let both = [(Deed::Vouched, 0), (Deed::Attempt, 0), (Deed::Refused, 0)];
    runs.push(&both);
    assert_eq!(points(&runs), REPUTATION_MAX - 35);
    // It was at its end, so nothing earned before makes up for it.
    let more = daily(60);
    runs.extend(more.iter().map(|run| &run[..]));
    assert_eq!(points(&runs), REPUTATION_MAX - 35);
    assert_eq!(points(&[&both]), 0);
    let standing = conduct(&[&both, &[(Deed::Vouched, 0)]]).standing(TODAY);
    let expected = Standing {
        points: 0,
        earned: 4,
        lost: 35,
        good: 1,
        bad: 1,
    };
    assert_eq!(standing, expected);
}

/// With a clock that was set, future events earn nothing and cost their full points.
#[test]
fn another_clock_makes_nobody_better() {
    let of = |deeds: &[(Deed, u64)], today: u64| {
        let mut conduct = Conduct::default();
        for ago in 1..9 {
            conduct.add([(Deed::Vouched, TODAY - ago)].into());
        }
        conduct.add(deeds.iter().copied().collect::<BTreeMap<_, _>>());
        conduct.standing(today)
    };
    assert_eq!(of(&[(Deed::Vouched, TODAY + 1)], TODAY).good, 8);
    assert_eq!(of(&[(Deed::Attempt, TODAY + 300)], TODAY).lost, 30);
    // Back, and nothing that was earned since counts; forward, and the good goes first.
    let now = of(&[(Deed::Stopped, TODAY)], TODAY).points;
    assert!(now > 10, "{now}");
    for today in [0, TODAY - 2, TODAY + 10, TODAY + 100, u64::MAX] {
        assert!(
            of(&[(Deed::Stopped, TODAY)], today).points <= now,
            "{today}"
        );
    }
}

/// No bad event increases the reputation, whatever the other events.
#[test]
fn no_bad_deed_makes_reputation_grow() {
    let mut seed = 7_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    let mut was_less = false;
    for _ in 0..500 {
        let mut conduct = Conduct::default();
        for _ in 0..random(60) {
            let count = 1 + random(2);
            let deeds = (0..count).map(|_| {
                let deed = if random(8) > 0 { 0 } else { random(6) };
                (ALL[usize::try_from(deed).unwrap()], TODAY - random(200))
            });
            conduct.add(deeds.collect());
        }
        let before = conduct.standing(TODAY).points;
        assert!(before <= REPUTATION_MAX);
        let bad = ALL[usize::try_from(1 + random(5)).unwrap()];
        conduct.add([(bad, TODAY - random(200))].into());
        let after = conduct.standing(TODAY).points;
        assert!(after <= before, "{conduct:?}");
        was_less |= after < before;
    }
    assert!(was_less);
}

#[test]
fn a_run_that_goes_on_only_loses() {
    let mut running = Running::new(70);
    assert_eq!(running.points(), 70);
    running.did(Deed::Vouched);
    assert_eq!(running.points(), 70);
    for expected in [40, 40] {
        running.did(Deed::Attempt);
        assert_eq!(running.points(), expected);
    }
    running.did(Deed::Misuse);
    running.did(Deed::Refused);
    running.did(Deed::Undone);
    assert_eq!(running.points(), 0);
}
