use std::collections::BTreeMap;

use crate::conduct::{
    BAD_HALF_DAYS, CONDUCT_DAYS_MAX, Conduct, GOOD_HALF_DAYS, HistoryEvent, REPUTATION_MAX,
    Running, Standing,
};

const TODAY: u64 = 20_780;
const ALL: [HistoryEvent; 6] = [
    HistoryEvent::Vouched,
    HistoryEvent::Attempt,
    HistoryEvent::Misuse,
    HistoryEvent::Undone,
    HistoryEvent::Refused,
    HistoryEvent::Stopped,
];

/// Returns an agent's history: of each run its events, with their ages in days.
fn conduct(runs: &[&[(HistoryEvent, u64)]]) -> Conduct {
    let mut conduct = Conduct::default();
    for deeds in runs {
        let deeds = deeds.iter().map(|(deed, ago)| (*deed, TODAY - ago));
        conduct.add(deeds.collect());
    }
    conduct
}

fn points(runs: &[&[(HistoryEvent, u64)]]) -> u8 {
    conduct(runs).standing(TODAY).points
}

/// Returns as many vouched runs per day as can earn points, for this many days.
fn daily(days: u64) -> Vec<[(HistoryEvent, u64); 1]> {
    (0..days)
        .flat_map(|ago| [[(HistoryEvent::Vouched, ago)]; 2])
        .collect()
}

#[test]
fn reputation_is_what_the_formula_says() {
    let vouched = [(HistoryEvent::Vouched, 0)];
    assert_eq!(points(&[]), 0, "who is unknown has none");
    assert_eq!(points(&[&vouched]), 4);
    assert_eq!(points(&[&vouched, &vouched]), 8);
    // However many there are, and whatever they did: a day has its end.
    assert_eq!(points(&vec![&vouched[..]; 10_000]), 8);
    // A week at work; a month is as much as there is.
    let of = |days: u64| {
        let runs = daily(days);
        let runs: Vec<&[(HistoryEvent, u64)]> = runs.iter().map(|run| &run[..]).collect();
        points(&runs)
    };
    assert_eq!([of(4), of(7), of(14), of(30)], [30, 49, 85, REPUTATION_MAX]);
    // It goes by itself, the good sooner than the bad.
    for (ago, expected) in [(0, 8), (7, 6), (GOOD_HALF_DAYS, 4), (28, 2), (181, 0)] {
        let run = [(HistoryEvent::Vouched, ago)];
        assert_eq!(points(&[&run, &run]), expected, "{ago}");
    }
    let lost = |deed: HistoryEvent, ago: u64| conduct(&[&[(deed, ago)]]).standing(TODAY).lost;
    assert_eq!(lost(HistoryEvent::Attempt, 0), 30);
    assert_eq!(lost(HistoryEvent::Misuse, BAD_HALF_DAYS), 15);
    assert_eq!(lost(HistoryEvent::Attempt, CONDUCT_DAYS_MAX), 4);
    assert_eq!(lost(HistoryEvent::Attempt, CONDUCT_DAYS_MAX + 1), 0);
    let small = [
        HistoryEvent::Undone,
        HistoryEvent::Refused,
        HistoryEvent::Stopped,
    ]
    .map(|deed| lost(deed, 0));
    assert_eq!(small, [10, 5, 5]);
}

#[test]
fn a_run_that_did_something_bad_earns_nothing_and_loses_once_for_each() {
    let month = daily(30);
    let mut runs: Vec<&[(HistoryEvent, u64)]> = month.iter().map(|run| &run[..]).collect();
    let both = [
        (HistoryEvent::Vouched, 0),
        (HistoryEvent::Attempt, 0),
        (HistoryEvent::Refused, 0),
    ];
    runs.push(&both);
    assert_eq!(points(&runs), REPUTATION_MAX - 35);
    // It was at its end, so nothing earned before makes up for it.
    let more = daily(60);
    runs.extend(more.iter().map(|run| &run[..]));
    assert_eq!(points(&runs), REPUTATION_MAX - 35);
    assert_eq!(points(&[&both]), 0);
    let standing = conduct(&[&both, &[(HistoryEvent::Vouched, 0)]]).standing(TODAY);
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
    let of = |deeds: &[(HistoryEvent, u64)], today: u64| {
        let mut conduct = Conduct::default();
        for ago in 1..9 {
            conduct.add([(HistoryEvent::Vouched, TODAY - ago)].into());
        }
        conduct.add(deeds.iter().copied().collect::<BTreeMap<_, _>>());
        conduct.standing(today)
    };
    assert_eq!(of(&[(HistoryEvent::Vouched, TODAY + 1)], TODAY).good, 8);
    assert_eq!(of(&[(HistoryEvent::Attempt, TODAY + 300)], TODAY).lost, 30);
    // Back, and nothing that was earned since counts; forward, and the good goes first.
    let now = of(&[(HistoryEvent::Stopped, TODAY)], TODAY).points;
    assert!(now > 10, "{now}");
    for today in [0, TODAY - 2, TODAY + 10, TODAY + 100, u64::MAX] {
        assert!(
            of(&[(HistoryEvent::Stopped, TODAY)], today).points <= now,
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
    running.did(HistoryEvent::Vouched);
    assert_eq!(running.points(), 70);
    for expected in [40, 40] {
        running.did(HistoryEvent::Attempt);
        assert_eq!(running.points(), expected);
    }
    running.did(HistoryEvent::Misuse);
    running.did(HistoryEvent::Refused);
    running.did(HistoryEvent::Undone);
    assert_eq!(running.points(), 0);
}
