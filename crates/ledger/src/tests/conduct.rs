use std::time::{Duration, UNIX_EPOCH};

use atoll_model::conduct::{CONDUCT_DAYS_MAX, Conduct, HistoryEvent};
use atoll_model::{Attempt, Call, Principal};

use super::*;
use crate::conduct::of_agent;

/// The day of the clock of these tests, from 1970-01-01.
const DAY: u64 = 20_778;
const WHOLE: u64 = 1 << 30;

fn on_day() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(DAY * 86_400 + 34_212)
}

fn ledger(place: &Place) -> Ledger {
    Ledger::open(&place.state, on_day, &()).unwrap()
}

fn known(place: &Place, who: (u32, &str)) -> Conduct {
    let known = Ledger::conduct(&place.state, who, DAY).unwrap();
    known.unwrap()
}

/// The events that are recorded of a run while it goes on.
type Tells = Vec<(&'static str, EventBody)>;

/// Records a run by this profile.
fn run(ledger: &Ledger, number: u32, profile: &str, tells: Tells) {
    run_of(ledger, call(number), json!({ "profile": profile }), tells);
}

fn run_of(ledger: &Ledger, call: Call, decision: serde_json::Value, tells: Tells) {
    let verdict = allow();
    let entry = ledger.open_call(&call, &verdict, decision).unwrap();
    let armed = entry.arm(verdict).unwrap();
    let durability = Durability::Buffered;
    ledger.record_flows(call.run(), tells, durability).unwrap();
    ledger.close(armed, &outcome(0), json!({})).unwrap();
}

fn body() -> EventBody {
    EventBody::default()
}

fn granted() -> Tells {
    vec![("approval.granted", body().number("approval", 1))]
}

fn misuse() -> (&'static str, EventBody) {
    let body = body().text("credential", "token").text("why", "so");
    ("flow.refused", body)
}

fn applied(ledger: &Ledger, number: u32, kind: &str, body: serde_json::Value) {
    let run = run_id(number);
    let recorded = ledger.record(Some(&run), kind, body, Durability::Buffered);
    recorded.unwrap();
}

fn of(deeds: &[&[HistoryEvent]]) -> Conduct {
    let mut conduct = Conduct::default();
    for run in deeds {
        conduct.add(run.iter().map(|deed| (*deed, DAY)).collect());
    }
    conduct
}

#[test]
fn deeds_are_what_persons_and_walls_have_said() {
    let tell = |what: &str| match what {
        "granted" => ("approval.granted", body().number("approval", 1)),
        "taken over" => (
            "approval.granted",
            body().text("action", "promote").number("approval", 1),
        ),
        "not taken over" => (
            "approval.denied",
            body().text("action", "promote").text("why", "person"),
        ),
        "misuse" => misuse(),
        "elsewhere" => ("flow.refused", body().text("why", "so")),
        why => ("approval.denied", body().text("why", why)),
    };
    let cases: [(&[&str], &[HistoryEvent]); 7] = [
        (&["taken over", "not taken over"], &[]),
        (&["granted", "granted"], &[HistoryEvent::Vouched]),
        (&["person"], &[HistoryEvent::Refused]),
        (&["late", "left", "elsewhere"], &[]),
        (&["misuse"], &[HistoryEvent::Misuse]),
        (
            &["granted", "misuse", "person"],
            &[
                HistoryEvent::Vouched,
                HistoryEvent::Misuse,
                HistoryEvent::Refused,
            ],
        ),
        (&["elsewhere"], &[]),
    ];
    for (tells, expected) in cases {
        let place = Place::new();
        let tells = tells.iter().map(|what| tell(what)).collect();
        run(&ledger(&place), 1, "own", tells);
        assert_eq!(known(&place, (1000, "own")), of(&[expected]));
        // Neither of another profile nor of another person.
        for who in [(1000, "other"), (1001, "own")] {
            assert_eq!(known(&place, who), Conduct::default(), "{who:?}");
        }
    }
}

#[test]
fn changes_count_that_a_person_has_seen() {
    let finished = "apply.finished";
    for (mode, kind, body, expected) in [
        (
            "copy-on-write",
            finished,
            json!({ "entries": 2 }),
            Some(HistoryEvent::Vouched),
        ),
        ("copy-on-write", finished, json!({ "entries": 0 }), None),
        (
            "copy-on-write",
            finished,
            json!({ "entries": 2, "unseen": true }),
            None,
        ),
        // That puts a live workspace back.
        (
            "live",
            finished,
            json!({ "entries": 2 }),
            Some(HistoryEvent::Undone),
        ),
        ("copy-on-write", "apply.failed", json!({}), None),
        (
            "copy-on-write",
            "undo.finished",
            json!({ "entries": 2 }),
            Some(HistoryEvent::Undone),
        ),
    ] {
        let place = Place::new();
        let ledger = ledger(&place);
        let decision = json!({ "profile": "own", "workspace-mode": mode });
        run_of(&ledger, call(1), decision, Vec::new());
        applied(&ledger, 1, kind, body.clone());
        let expected: Vec<HistoryEvent> = expected.into_iter().collect();
        assert_eq!(
            known(&place, (1000, "own")),
            of(&[&expected]),
            "{mode} {kind} {body}"
        );
    }
}

#[test]
fn attempts_and_stops_count_and_what_browsers_do_does_not() {
    let place = Place::new();
    let ledger = ledger(&place);
    for (number, system_call) in [(1, "mount"), (2, "unshare")] {
        let verdict = allow();
        let opened = ledger.open_call(&call(number), &verdict, json!({ "profile": "own" }));
        let armed = opened.unwrap().arm(verdict).unwrap();
        let attempt = Attempt::told(system_call.as_bytes(), 1, 1).unwrap();
        ledger.record_attempt(&run_id(number), &attempt).unwrap();
        let details = match number {
            1 => json!({}),
            _ => json!({ "stopped": { "pid": 1, "uid": 1000 } }),
        };
        ledger.close(armed, &outcome(0), details).unwrap();
    }
    let expected = of(&[&[HistoryEvent::Attempt], &[HistoryEvent::Stopped]]);
    assert_eq!(known(&place, (1000, "own")), expected);
    // Another of them, by an account of its own, changes nothing.
    let other = Call {
        principal: Principal {
            uid: 1001,
            ..call(3).principal
        },
        ..call(3)
    };
    run_of(&ledger, other, json!({ "profile": "own" }), granted());
    assert_eq!(known(&place, (1000, "own")), expected);
}

/// An agent cannot push bad events out of sight by writing much: if not every event that counts can
/// be read, its conduct is unknown.
#[test]
fn what_was_written_lately_is_read_whole_or_not_at_all() {
    let place = Place::new();
    let small = || {
        let journal = Journal::open_as(&place.state, on_day, BootId::current(), 2_000).unwrap();
        Ledger::open_journal(&place.state, journal, &()).unwrap()
    };
    let ledger = small();
    run(&ledger, 1, "own", vec![misuse()]);
    for number in 2..20 {
        run(&ledger, number, "own", granted());
    }
    let read =
        |bytes: u64, today: u64| of_agent(&place.state, (1000, "own"), today, bytes).unwrap();
    assert!(read(WHOLE, DAY).is_some());
    assert_eq!(read(4_000, DAY), None);
    assert_eq!(read(4_000, DAY + CONDUCT_DAYS_MAX), None);
    // What is not read is too old to count.
    assert!(read(4_000, DAY + CONDUCT_DAYS_MAX + 1).is_some());
    assert_eq!(read(WHOLE, DAY).unwrap().standing(DAY).lost, 30);
}

#[test]
fn a_damaged_ledger_tells_nothing_and_none_is_an_unknown_agent() {
    let place = Place::new();
    assert_eq!(known(&place, (1000, "own")), Conduct::default());
    run(&ledger(&place), 1, "own", granted());
    assert_eq!(
        known(&place, (1000, "own")),
        of(&[&[HistoryEvent::Vouched]])
    );
    let segment = place.file("000001.seg");
    let text = std::fs::read_to_string(&segment).unwrap();
    for damaged in [
        text.replace("\"profile\":\"own\"", "\"profile\":\"ovn\""),
        text.replace("\"approval.granted\"", "approval.granted"),
    ] {
        assert_ne!(damaged, text);
        std::fs::write(&segment, &damaged).unwrap();
        Ledger::conduct(&place.state, (1000, "own"), DAY).unwrap_err();
    }
    std::fs::write(&segment, text).unwrap();
    assert_eq!(
        known(&place, (1000, "own")),
        of(&[&[HistoryEvent::Vouched]])
    );
}

/// Altering or removing a bad event improves nobody's conduct.
#[test]
fn what_is_bad_does_not_go_by_damage() {
    let place = Place::new();
    let ledger = ledger(&place);
    run(&ledger, 1, "own", vec![misuse()]);
    run(&ledger, 2, "own", granted());
    drop(ledger);
    let known_of = || Ledger::conduct(&place.state, (1000, "own"), DAY);
    let whole = of(&[&[HistoryEvent::Misuse], &[HistoryEvent::Vouched]]);
    let segment = place.file("000001.seg");
    let text = std::fs::read_to_string(&segment).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let bad = lines.iter().position(|line| line.contains("flow.refused"));
    let bad = bad.unwrap();
    let without = |gone: usize| {
        let kept = lines.iter().enumerate().filter(|(at, _)| *at != gone);
        kept.map(|(_, line)| *line).collect::<String>()
    };
    let mut swapped = lines.clone();
    swapped.swap(bad, bad + 1);
    for damaged in [
        text.replace("\"flow.refused\"", "\"flow.refusex\""),
        without(bad),
        without(0),
        swapped.concat(),
    ] {
        assert_ne!(damaged, text);
        std::fs::write(&segment, &damaged).unwrap();
        let fault = known_of().unwrap_err().to_string();
        assert!(fault.contains("000001.seg"), "{fault}");
    }
    std::fs::write(&segment, &text).unwrap();
    assert_eq!(known_of().unwrap().unwrap(), whole);
}

/// Shredding removes sealed content, and no event that counts for conduct.
#[test]
fn shredding_makes_nobody_better() {
    let place = Place::new();
    let ledger = ledger(&place);
    run(&ledger, 1, "own", vec![misuse()]);
    let before = known(&place, (1000, "own"));
    assert_eq!(before, of(&[&[HistoryEvent::Misuse]]));
    ledger.shred(&Evidence::Run(run_id(1))).unwrap();
    assert_eq!(known(&place, (1000, "own")), before);
}
