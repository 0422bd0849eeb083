use std::sync::Barrier;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atoll_model::{Attempt, Enforcement, Usage};
use serde_json::Value;

use super::power::{Dice, Step, finish, take_part, watch, watch_shared};
use super::*;
use crate::event::Draft;

#[test]
fn a_run_is_recorded_from_its_opening_to_its_end() {
    let place = Place::new();
    let ledger = place.ledger();
    let verdict = allow();
    let entry = ledger
        .open_call(&call(1), &verdict, json!({ "profile": "default" }))
        .unwrap();
    assert!(
        place
            .state
            .path()
            .join("open")
            .join(run_id(1).as_str())
            .exists()
    );
    let armed = entry.arm(verdict).unwrap();
    assert_eq!(
        (*armed, *armed.grant(), armed.run()),
        ("the grant", "the grant", &run_id(1))
    );
    let outcome = Outcome {
        ending: Ending::Exited { status: 3 },
        usage: Usage {
            wall_clock: Duration::from_millis(12),
            cpu: Duration::MAX,
            memory_peak_bytes: u64::MAX,
            memory_is_whole: true,
            memory_kills: 0,
            processes_refused: 0,
        },
        enforcement: vec![Enforcement {
            limit: "memory".to_owned(),
            by: "cgroup-v2".to_owned(),
        }],
        attempts: Vec::new(),
    };
    let position = ledger
        .close(armed, &outcome, json!({ "changed": 2 }))
        .unwrap();
    assert_eq!(position.seq, 1);
    assert!(
        !place
            .state
            .path()
            .join("open")
            .join(run_id(1).as_str())
            .exists()
    );

    let events = place.events();
    assert_eq!(place.kinds(), ["run.opened", "run.closed"]);
    assert_eq!(
        events[0].body,
        json!({
            "verdict": "allow",
            "decision": { "profile": "default" },
            "principal": { "uid": 1000, "gid": 1000, "name": "Jörg" },
            "command": ["true"],
            "workspace": "/srv/project",
            "directory": "/srv/project/sub",
            "terminal": false,
        })
    );
    assert_eq!(
        events[1].body,
        json!({
            "ending": { "how": "exited", "status": 3 },
            "status": 3,
            "usage": {
                "wall_clock_us": 12_000,
                "cpu_us": 1_u64 << 53,
                "memory_peak_bytes": 1_u64 << 53,
                "memory_is_whole": true,
                "memory_kills": 0,
            },
            "enforcement": { "memory": "cgroup-v2" },
            "details": { "changed": 2 },
        })
    );
    let verified = place.verified();
    assert_eq!(
        (verified.events, verified.segments, verified.leaf),
        (2, 1, position.leaf)
    );
    assert!(place.ledger().interrupted().is_empty());
}

#[test]
fn attempts_are_recorded_at_first_sight_and_counted_at_the_end() {
    let place = Place::new();
    let ledger = place.ledger();
    let attempt = |call: &str, count| Attempt::told(call.as_bytes(), 3, count).unwrap();
    let entry = ledger.open_call(&call(1), &allow(), json!({})).unwrap();
    let armed = entry.arm(allow()).unwrap();
    ledger
        .record_attempt(&run_id(1), &attempt("mount", 1))
        .unwrap();
    let attempts = vec![
        attempt("mount", 2),
        attempt("bpf", u64::MAX),
        attempt("chroot", 3),
    ];
    let outcome = Outcome {
        attempts,
        ..outcome(0)
    };
    ledger.close(armed, &outcome, json!({})).unwrap();
    let events = place.events();
    let first = json!({"wall": "mounts", "atlas": "AML.T0105", "call": "mount", "pid": 3});
    assert_eq!(
        (&*events[1].kind, &events[1].body),
        ("attempt.seen", &first)
    );
    let counted = json!([
        {"wall": "mounts", "atlas": "AML.T0105", "count": 5, "calls": {"mount": 2, "chroot": 3}},
        {"wall": "kernel-programs", "atlas": "AML.T0105", "count": 1_u64 << 53, "calls": {"bpf": 1_u64 << 53}},
    ]);
    assert_eq!(events[2].body["attempts"], counted);
    // Nobody else writes them.
    let forged = ledger.record(None, "attempt.seen", json!({}), Durability::Durable);
    assert!(forged.is_err());
}

/// Whoever changes this breaks every ledger that was written.
#[test]
fn the_form_of_the_ledger_is_final() {
    let place = Place::new();
    let clock: Clock = || UNIX_EPOCH + Duration::new(1_795_253_412, 123_456_789);
    let journal = Journal::open(&place.state, clock).unwrap();
    let golden = include_str!("golden.seg");
    // As earlier releases wrote it: nothing is sealed.
    for line in golden.lines() {
        let event: Value = serde_json::from_str(&line[65..]).unwrap();
        let run = RunId::parse(event["run"].as_str().unwrap()).unwrap();
        let kind = event["type"].as_str().unwrap();
        let draft = Draft::new(kind, Some(&run), &event["body"]).unwrap();
        journal.append_durable(&draft).unwrap();
    }
    let written = std::fs::read_to_string(place.file("000001.seg")).unwrap();
    assert_eq!(written, golden);
    let root = place.verified().root.to_string();
    assert_eq!(
        root,
        "1cf916e4c67ae14e4907ec52af5ead0da386b7e3ab6c9f8475b1911f50facb58"
    );
}

/// A golden test as above, of sealed content: that differs each time, everything around it does
/// not.
#[test]
fn the_form_of_what_is_sealed_is_final() {
    let place = Place::new();
    let clock: Clock = || UNIX_EPOCH + Duration::new(1_795_253_412, 123_456_789);
    let ledger = Ledger::open(&place.state, clock, &()).unwrap();
    let verdict = allow();
    let entry = ledger.open_call(&call(1), &verdict, json!({})).unwrap();
    let armed = entry.arm(verdict).unwrap();
    let body = json!({ "b": [1, -2, "\u{7}é"], "a": null });
    ledger
        .record(Some(&run_id(1)), "flow.seen", body, Durability::Buffered)
        .unwrap();
    ledger.close(armed, &outcome(0), json!({})).unwrap();
    let written = std::fs::read_to_string(place.file("000001.seg")).unwrap();
    let (before, rest) = written.split_once("\"sealed\":\"").unwrap();
    let (sealed, after) = rest.split_once('"').unwrap();
    let (before, after) = (&before[64..], after.lines().next().unwrap());
    assert_eq!(
        format!("{before}\"sealed\":\"\"{after}"),
        r#" {"body":{"decision":{},"principal":{"gid":1000,"name":"Jörg","uid":1000},"sealed":"","terminal":false,"verdict":"allow"},"prev":"0000000000000000000000000000000000000000000000000000000000000000","run":"261121-093012-0001","seq":0,"time":"2026-11-21T09:30:12.123456Z","type":"run.opened","v":1}"#
    );
    let hidden =
        r#"{"command":["true"],"directory":"/srv/project/sub","workspace":"/srv/project"}"#;
    assert_eq!(
        sealed.len(),
        (32 + 12 + 16 + hidden.len() + 16).div_ceil(3) * 4
    );
    let golden: Vec<Value> = include_str!("golden.seg")
        .lines()
        .map(|line| serde_json::from_str::<Value>(&line[65..]).unwrap()["body"].clone())
        .collect();
    let opened: Vec<Value> = place.events().into_iter().map(|event| event.body).collect();
    assert_eq!(opened, golden);
    place.verified();
    // What another library has made of the words of docs/ledger.md.
    let run = run_id(1);
    let here = crate::event::seal::SealPlace {
        run: &run,
        kind: "flow.refused",
        seq: 42,
    };
    let theirs = "UyHho/Vlwogd+ZJHLGBCAKeTdL73lDb38vpkE1hOIxYAAQIDBAUGBwgJCgt85I8XdWCzIhvfi/OSKR6Jmh7G72wKVQs04aAMsaZQNPxDZJX/thPH1ouslCFn+Za9ZrshyzQIvqA+TaZL";
    let opened = crate::event::seal::SealKey::from_bytes([7; 32]).open(&here, theirs);
    let members = Value::Object(opened.unwrap().members);
    assert_eq!(members, json!({ "path": "/ö?q=1", "why": "no" }));
}

#[test]
fn deny_and_ask_leave_recorded() {
    let place = Place::new();
    let ledger = place.ledger();
    for (number, verdict) in [
        (1, Verdict::Deny(vec![reason()])),
        (2, Verdict::Ask(vec![reason()])),
    ] {
        let verdict: Verdict<()> = verdict;
        let entry = ledger
            .open_call(&call(number), &verdict, json!({}))
            .unwrap();
        let refused = entry.arm(verdict).unwrap_err();
        let (Refused::Denied(refusal) | Refused::NeedsApproval(refusal)) = &refused else {
            panic!("{refused}");
        };
        assert_eq!(refusal.reasons, [reason()]);
        assert!(refused.to_string().contains("nobody named it"), "{refused}");
    }
    assert_eq!(
        place.kinds(),
        ["run.opened", "run.denied", "run.opened", "run.denied"]
    );
    assert_eq!(place.events()[1].body["verdict"], "deny");
    assert_eq!(place.events()[3].body["verdict"], "ask");
    assert_eq!(
        place.events()[3].body["reasons"][0]["how_to_ask"],
        "add a profile"
    );
    assert!(place.ledger().interrupted().is_empty());
}

#[test]
fn what_was_recorded_as_denied_cannot_be_armed() {
    let place = Place::new();
    let ledger = place.ledger();
    let denied: Verdict<&str> = Verdict::Deny(vec![reason()]);
    let entry = ledger.open_call(&call(1), &denied, json!({})).unwrap();
    assert!(matches!(entry.arm(allow()), Err(Refused::Contradiction(_))));
}

#[test]
fn a_failure_after_arming_is_recorded() {
    let place = Place::new();
    let ledger = place.ledger();
    let verdict = allow();
    let armed = ledger
        .open_call(&call(1), &verdict, json!({}))
        .unwrap()
        .arm(verdict)
        .unwrap();
    ledger
        .close_failed(armed, "make the sandbox", "no user namespaces")
        .unwrap();
    assert_eq!(place.kinds(), ["run.opened", "run.failed"]);
    assert_eq!(place.events()[1].body["why"], "no user namespaces");
    assert!(place.ledger().interrupted().is_empty());
}

#[test]
fn events_that_must_not_be_written_are_refused() {
    let place = Place::new();
    let ledger = place.ledger();
    let many = (0..8_000).map(|number| (format!("m{number:05}"), json!(1)));
    let big = Value::Object(many.collect());
    for (kind, body, expected) in [
        ("run.closed", json!({}), "the ledger itself writes"),
        ("ledger.repaired", json!({}), "the ledger itself writes"),
        ("word", json!({}), "at least two"),
        ("a..b", json!({}), "at least two"),
        ("Run.seen", json!({}), "lower-case"),
        ("run.\n", json!({}), "lower-case"),
        ("flow.seen", json!(1), "not an object"),
        (
            "flow.seen",
            json!({ "a": 0.5 }),
            "0.5 is not a whole number",
        ),
        ("flow.seen", json!({ "ä": 1 }), "not ASCII"),
        ("flow.seen", json!({ "a": big }), "65535 is the most"),
    ] {
        let error = ledger
            .record(None, kind, body, Durability::Durable)
            .unwrap_err();
        assert!(error.to_string().contains(expected), "{kind}: {error}");
    }
    // A command that does not fit leaves no run behind.
    assert!(matches!(
        ledger.open_call(&call(1), &allow(), big),
        Err(LedgerError::TooLarge { .. })
    ));
    assert!(place.events().is_empty());
    assert!(place.ledger().interrupted().is_empty());
    // The largest that is allowed comes back.
    let fits = "x".repeat(EVENT_BYTES_MAX - 600);
    let body = json!({ "a": fits });
    ledger
        .record(None, "flow.seen", body.clone(), Durability::Durable)
        .unwrap();
    note(&place.ledger(), 1);
    assert_eq!(place.verified().events, 2);
    assert_eq!(place.events()[0].body, body);
}

#[test]
fn what_does_not_fit_into_an_event_is_told_by_its_beginning_and_digest() {
    use sha2::{Digest, Sha256};
    let place = Place::new();
    let ledger = place.ledger();
    let digest = |bytes: &[u8]| crate::hash::hex(&Sha256::digest(bytes));
    let mut call = call(1);
    let long = format!("{}é", "x".repeat(1 << 20));
    let command = &mut program(&mut call).command;
    command.push(long.clone().into());
    command.push("y".repeat(1_024).into());
    for number in 0..5_000 {
        command.push(format!("argument {number}").into());
    }
    program(&mut call).options = vec!["--allow=example.com".into(); 4_000];
    drop(ledger.open_call(&call, &allow(), json!({})).unwrap());
    let event = &place.events()[0];
    assert!(event.canonical().unwrap().len() <= EVENT_BYTES_MAX);
    let told = event.body["command"].as_array().unwrap();
    assert_eq!(told[0], "true");
    let first =
        json!({ "begin": "x".repeat(256), "bytes": long.len(), "sha256": digest(long.as_bytes()) });
    assert_eq!(told[1], first);
    assert_eq!(told[2], "y".repeat(1_024));
    let left_out = told.last().unwrap();
    let count = left_out["left-out"].as_u64().unwrap() as usize;
    assert_eq!(told.len() - 1 + count, call.command().len());
    let rest = call.command()[call.command().len() - count..].iter();
    let rest = serde_json::to_vec(&rest.map(host_text).collect::<Vec<_>>()).unwrap();
    assert_eq!(left_out["sha256"], digest(&rest));
    assert_eq!(left_out["bytes"], rest.len());
    assert_eq!(place.verified().events, 1);
    // A command that fits is told whole.
    let mut whole = super::call(2);
    let command = &mut program(&mut whole).command;
    command.push("x".repeat(45_000).into());
    drop(ledger.open_call(&whole, &allow(), json!({})).unwrap());
    assert_eq!(place.events()[1].body["command"][1], "x".repeat(45_000));
}

#[test]
fn a_run_is_opened_once() {
    let place = Place::new();
    let ledger = place.ledger();
    let _entry = ledger.open_call(&call(1), &allow(), json!({})).unwrap();
    assert!(matches!(
        ledger.open_call(&call(1), &allow(), json!({})),
        Err(LedgerError::RunExists(_))
    ));
}

#[test]
fn a_run_is_over_once_its_end_is_recorded() {
    let place = Place::new();
    let is_over = |number| Ledger::is_over(&place.state, &run_id(number)).unwrap();
    assert!(!is_over(1), "nothing is recorded");
    let ledger = place.ledger();
    let opened = |number: u32, verdict: &Verdict<&'static str>| {
        ledger.open_call(&call(number), verdict, json!({})).unwrap()
    };
    let (allowed, denied) = (allow(), Verdict::Deny(vec![reason()]));
    let alive = opened(1, &allowed);
    let closed = opened(2, &allowed).arm(allow()).unwrap();
    let failed = opened(3, &allowed).arm(allow()).unwrap();
    let refused = opened(4, &denied).arm(denied);
    let left = opened(5, &allowed);
    assert!(refused.is_err());
    let before: Vec<bool> = (1..=6).map(is_over).collect();
    assert_eq!(before, [false, false, false, true, false, false]);
    ledger.close(closed, &outcome(0), json!({})).unwrap();
    ledger
        .close_failed(failed, "make the sandbox", "why")
        .unwrap();
    drop(left);
    assert_eq!(place.ledger().interrupted().len(), 1);
    let after: Vec<bool> = (1..=6).map(is_over).collect();
    assert_eq!(after, [false, true, true, true, true, false]);
    drop(alive);
}

#[test]
fn a_closed_run_whose_marker_stayed_is_not_interrupted() {
    let place = Place::new();
    let ledger = place.ledger();
    let marker = place.state.path().join("open").join(run_id(1).as_str());
    for rest in ["0 0\n", "", "garbage"] {
        let verdict = allow();
        let armed = ledger
            .open_call(&call(1), &verdict, json!({}))
            .unwrap()
            .arm(verdict)
            .unwrap();
        ledger.close(armed, &outcome(0), json!({})).unwrap();
        std::fs::write(&marker, rest).unwrap();
        assert!(place.ledger().interrupted().is_empty(), "{rest:?}");
        assert!(!marker.exists());
    }
}

#[test]
fn after_a_boot_lost_markers_are_made_up_for() {
    let place = Place::new();
    let verdict = allow();
    let ledger = place.ledger_after_boot('a');
    let armed = ledger
        .open_call(&call(1), &verdict, json!({}))
        .unwrap()
        .arm(verdict)
        .unwrap();
    ledger.close(armed, &outcome(0), json!({})).unwrap();
    for number in [2, 3] {
        drop(
            ledger
                .open_call(&call(number), &allow(), json!({}))
                .unwrap(),
        );
    }
    // The marker of the second never reached the disk, of the third only its name.
    let markers = place.state.path().join("open");
    std::fs::remove_file(markers.join(run_id(2).as_str())).unwrap();
    std::fs::write(markers.join(run_id(3).as_str()), "").unwrap();

    let after = place.ledger_after_boot('b');
    let runs: Vec<_> = after
        .interrupted()
        .iter()
        .map(|found| found.run.clone())
        .collect();
    assert_eq!(runs, [run_id(2), run_id(3)]);
    assert!(place.ledger_after_boot('b').interrupted().is_empty());
    assert!(place.ledger_after_boot('c').interrupted().is_empty());
    assert_eq!(
        place
            .kinds()
            .iter()
            .filter(|kind| *kind == "run.interrupted")
            .count(),
        2
    );
    place.verified();
}

/// Only what came since all runs were closed is read after a start of the kernel.
#[test]
fn after_a_boot_what_was_settled_is_not_read_again() {
    let place = Place::new();
    let ledger = place.ledger_after_boot('a');
    let lose_marker = |number: u32| {
        std::fs::remove_file(
            place
                .state
                .path()
                .join("open")
                .join(run_id(number).as_str()),
        )
        .unwrap();
    };
    let early = ledger.open_call(&call(1), &allow(), json!({})).unwrap();
    note(&ledger, 1);
    // One is alive, so that nothing after its beginning is settled.
    ledger.checkpoint(&place.state).unwrap();
    drop(early);
    lose_marker(1);
    let after = place.ledger_after_boot('b');
    assert_eq!(after.interrupted().len(), 1);
    let before = std::fs::read(place.file("settled")).unwrap();
    note(&after, 2);
    after.checkpoint(&place.state).unwrap();
    assert_ne!(std::fs::read(place.file("settled")).unwrap(), before);
    // What is before is passed over, be it unreadable; what comes after is found.
    flip_bit(&place.file("000001.seg"), 100, 0);
    drop(after.open_call(&call(2), &allow(), json!({})).unwrap());
    lose_marker(2);
    let runs = |ledger: &Ledger| {
        ledger
            .interrupted()
            .iter()
            .map(|one| one.run.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(runs(&place.ledger_after_boot('c')), [run_id(2)]);
    flip_bit(&place.file("000001.seg"), 100, 0);
    // Whatever cannot be relied on is none.
    let kept = std::fs::read_to_string(place.file("settled")).unwrap();
    for (number, (boot, content)) in [
        ('d', String::new()),
        ('e', kept.replacen("1", "2", 1)),
        ('f', before.iter().map(|byte| char::from(*byte)).collect()),
        ('0', "atoll-settled 1 1 0\n".to_owned()),
    ]
    .into_iter()
    .enumerate()
    {
        let run = 10 + u32::try_from(number).unwrap();
        drop(
            place
                .ledger_after_boot(boot)
                .open_call(&call(run), &allow(), json!({}))
                .unwrap(),
        );
        lose_marker(run);
        std::fs::write(place.file("settled"), content).unwrap();
        let next = char::from(u8::try_from(number).unwrap() + b'1');
        assert_eq!(runs(&place.ledger_after_boot(next)), [run_id(run)]);
    }
    place.verified();
}

#[test]
fn a_run_that_lives_is_not_interrupted_by_a_boot() {
    let place = Place::new();
    let ledger = place.ledger_after_boot('a');
    let _living = ledger.open_call(&call(1), &allow(), json!({})).unwrap();
    assert!(place.ledger_after_boot('b').interrupted().is_empty());
}

#[test]
fn segments_are_rotated_and_continued() {
    let place = Place::new();
    for number in 0..40 {
        // A new ledger each time finds the end anew; the same one remembers it.
        let ledger = place.ledger_in_small_segments();
        note(&ledger, number);
        note(&ledger, number);
    }
    let verified = place.verified();
    assert_eq!(verified.events, 80);
    assert!(verified.segments > 10, "{verified:?}");
    let seqs: Vec<u64> = place
        .events()
        .iter()
        .map(|event| event.position.seq)
        .collect();
    assert_eq!(seqs, (0..80).collect::<Vec<_>>());
}

#[test]
fn what_is_told_at_once_is_as_sound_as_one_by_one_across_segments() {
    let place = Place::new();
    let mut told = 0_u64;
    for count in [0, 1, 2, 40, 0, 7] {
        // A new ledger each time finds the end anew; the same one remembers it.
        let ledger = place.ledger_in_small_segments();
        for durability in [Durability::Buffered, Durability::Durable] {
            let events: Vec<_> = (0..count)
                .map(|number| {
                    let body = EventBody::default().number("flow", told + number);
                    ("flow.closed", body)
                })
                .collect();
            ledger.record_flows(&run_id(1), events, durability).unwrap();
            told += count;
        }
        note(&ledger, 0);
    }
    let verified = place.verified();
    assert_eq!(verified.events, told + 6);
    assert!(verified.segments > 10, "{verified:?}");
    let flows = place.events().into_iter();
    let flows: Vec<u64> = flows
        .filter(|event| event.kind == "flow.closed")
        .map(|event| event.body["flow"].as_u64().unwrap())
        .collect();
    assert_eq!(flows, (0..told).collect::<Vec<_>>());
}

#[test]
fn an_empty_new_segment_is_used() {
    let place = Place::new();
    note(&place.ledger(), 1);
    std::fs::write(place.file("000002.seg"), "").unwrap();
    note(&place.ledger(), 2);
    assert_eq!(place.verified().events, 2);
    assert_eq!(place.events()[1].position.segment, 2);
}

#[test]
fn many_threads_share_waits_for_the_disk() {
    const THREADS: u64 = 8;
    const EACH: u64 = 200;
    let place = Place::new();
    let ledger = place.ledger();
    let barrier = Barrier::new(THREADS as usize);
    let watched = watch_shared(place.state.path(), Dice(1));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (ledger, barrier, watched) = (&ledger, &barrier, watched.clone());
            scope.spawn(move || {
                take_part(watched);
                barrier.wait();
                let mut last = None;
                for number in 0..EACH {
                    let position = note(ledger, thread * EACH + number);
                    assert!(last < Some(position.seq));
                    last = Some(position.seq);
                }
            });
        }
    });
    let (steps, _) = finish();
    // A segment's alone: the ledger was there before.
    let waits = steps.iter().skip_while(|step| !matches!(step, Step::Begun));
    let waits = waits.filter(|step| matches!(step, Step::Sync { .. }));
    let waits = waits.count() as u64;
    println!("{waits} waits for {} durable appends", THREADS * EACH);
    assert!(waits > 0 && waits * 2 < THREADS * EACH, "{waits}");
    assert_eq!(place.verified().events, THREADS * EACH);
    let mut numbers: Vec<u64> = place
        .events()
        .iter()
        .map(|event| event.body["number"].as_u64().unwrap())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..THREADS * EACH).collect::<Vec<_>>());
}

#[test]
fn events_are_read_by_run_kind_and_from_the_end() {
    let place = Place::new();
    let ledger = place.ledger_in_small_segments();
    for number in 0..30 {
        let run = (number % 3 == 0).then(|| run_id(7));
        let kind = if number % 2 == 0 {
            "flow.seen"
        } else {
            "flow-extra.seen"
        };
        let body = json!({ "number": number, "mentions": run_id(7).as_str() });
        ledger
            .record(run.as_ref(), kind, body, Durability::Buffered)
            .unwrap();
    }
    let numbers = |events: Events| -> Vec<u64> {
        events
            .map(|event| event.unwrap().body["number"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(
        numbers(Ledger::show(&place.state, &run_id(7)).unwrap()),
        (0..30).step_by(3).collect::<Vec<_>>()
    );
    let filter = Filter {
        kind: Some("flow".to_owned()),
        ..Filter::default()
    };
    assert_eq!(
        numbers(Ledger::events(&place.state, filter).unwrap()),
        (0..30).step_by(2).collect::<Vec<_>>()
    );
    for count in [0, 1, 2, 3, 5, 17, 29, 30, 31, 1000] {
        let expected: Vec<u64> = (30_u64.saturating_sub(count)..30).collect();
        let tail = Ledger::tail(
            &place.state,
            usize::try_from(count).unwrap(),
            Filter::default(),
        )
        .unwrap();
        assert_eq!(numbers(tail), expected, "the last {count}");
        let of_kind = Filter {
            kind: Some("flow".to_owned()),
            ..Filter::default()
        };
        let count = usize::try_from(count).unwrap();
        let tail = Ledger::tail(&place.state, count, of_kind).unwrap();
        assert_eq!(tail.is_whole(), count >= 30, "the last {count}");
        let flows: Vec<u64> = expected.into_iter().filter(|one| one % 2 == 0).collect();
        assert_eq!(numbers(tail), flows, "of the last {count}");
    }
}

#[test]
fn reading_goes_on_with_what_is_appended_meanwhile() {
    let place = Place::new();
    let mut from_nothing = Ledger::events(&place.state, Filter::default()).unwrap();
    assert!(from_nothing.next().is_none());
    let ledger = place.ledger_in_small_segments();
    note(&ledger, 0);
    let mut tail = Ledger::tail(&place.state, 1, Filter::default()).unwrap();
    assert_eq!(tail.next().unwrap().unwrap().position.seq, 0);
    for number in 1..50 {
        assert!(tail.next().is_none());
        assert_eq!(note(&ledger, number).seq, number);
        assert_eq!(tail.next().unwrap().unwrap().position.seq, number);
    }
}

#[test]
fn half_a_line_is_not_read_until_it_is_whole() {
    let place = Place::new();
    let ledger = place.ledger();
    note(&ledger, 0);
    let segment = place.file("000001.seg");
    let first = std::fs::read(&segment).unwrap();
    note(&ledger, 1);
    let both = std::fs::read(&segment).unwrap();
    for cut in first.len()..both.len() {
        std::fs::write(&segment, &both[..cut]).unwrap();
        let mut events = Ledger::events(&place.state, Filter::default()).unwrap();
        assert_eq!(events.next().unwrap().unwrap().position.seq, 0);
        assert!(events.next().is_none());
        std::fs::write(&segment, &both).unwrap();
        assert_eq!(events.next().unwrap().unwrap().position.seq, 1);
    }
}

#[test]
fn unknown_types_are_passed_through() {
    let place = Place::new();
    place
        .ledger()
        .record(
            None,
            "weather.changed-2",
            json!({ "to": "rain" }),
            Durability::Durable,
        )
        .unwrap();
    assert_eq!(place.kinds(), ["weather.changed-2"]);
    place.verified();
}

/// The cost of an operation, in measures that do not depend on the machine's speed.
#[derive(Debug, PartialEq)]
struct Cost {
    writes: usize,
    waits: usize,
    /// The bytes that this thread has read, of any file.
    read_bytes: u64,
}

/// Returns the bytes that this thread's reads were given (proc_pid_io(5)).
fn read_bytes() -> u64 {
    let counts = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let mut counts = counts.lines().filter_map(|line| line.split_once(": "));
    let (_, count) = counts.find(|(name, _)| *name == "rchar").unwrap();
    count.parse().unwrap()
}

fn cost<T>(place: &Place, act: impl FnOnce() -> T) -> (T, Cost) {
    watch(place.state.path(), None);
    let before = read_bytes();
    let made = act();
    let read_bytes = read_bytes() - before;
    let (steps, _) = finish();
    let begun = steps.iter().position(|step| matches!(step, Step::Begun));
    let count = |is: fn(&Step) -> bool| {
        let steps = steps.iter().skip(begun.unwrap());
        steps.filter(|step| is(step)).count()
    };
    let cost = Cost {
        writes: count(|step| matches!(step, Step::Write { .. })),
        waits: count(|step| matches!(step, Step::Sync { .. } | Step::SyncNames { .. })),
        read_bytes,
    };
    (made, cost)
}

/// However long the ledger is: here of 3 MB.
#[test]
fn opening_and_appending_are_cheap() {
    const READ_BYTES_MAX: u64 = 32 << 10;
    let place = Place::new();
    let ledger = place.ledger();
    for number in 0..5_000 {
        let body = json!({ "number": number, "text": "x".repeat(500) });
        ledger
            .record(None, "test.noted", body, Durability::Buffered)
            .unwrap();
    }
    note(&ledger, 0);
    for round in 0..3 {
        let (ledger, opening) = cost(&place, || {
            let state = StateDir::open(place.state.path()).unwrap();
            Ledger::open(&state, SystemTime::now, &()).unwrap()
        });
        assert_eq!((opening.writes, opening.waits), (0, 0), "{opening:?}");
        assert!(opening.read_bytes < READ_BYTES_MAX, "{opening:?}");
        // The first of a process looks for the end. Each writes the event and the head, and
        // waits once.
        for most in [READ_BYTES_MAX, 2 << 10] {
            let (_, durable) = cost(&place, || note(&ledger, round));
            assert_eq!((durable.writes, durable.waits), (2, 1), "{durable:?}");
            assert!(durable.read_bytes < most, "{durable:?}");
        }
        let (_, buffered) = cost(&place, || {
            ledger.record(None, "test.noted", json!({}), Durability::Buffered)
        });
        assert_eq!((buffered.writes, buffered.waits), (1, 0), "{buffered:?}");
        assert!(buffered.read_bytes < 2 << 10, "{buffered:?}");
    }
}

#[test]
fn threads_that_open_at_once_find_a_run_interrupted_once() {
    for boot in [false, true] {
        let place = Place::new();
        drop(
            place
                .ledger_after_boot('a')
                .open_call(&call(1), &allow(), json!({}))
                .unwrap(),
        );
        let found = std::thread::scope(|scope| {
            let open = || match boot {
                true => place.ledger_after_boot('b').interrupted().len(),
                false => place.ledger_after_boot('a').interrupted().len(),
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum::<usize>()
        });
        assert_eq!(found, 1);
        assert_eq!(place.kinds(), ["run.opened", "run.interrupted"]);
    }
}
