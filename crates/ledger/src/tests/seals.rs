//! Tests of sealing: sensitive members are sealed, and end with their key.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::Barrier;

use atoll_model::{Served, SessionId};
use rustix::io::Errno;

use super::faults::{Work, is_whole, temporary};
use super::power::{Dice, Disk, Failure, Step, finish, watch};
use super::*;
use crate::event::seal::{SealKey, SealPlace};
use crate::seals::{HeldKeys, Shredding};
use crate::{FollowedSeals, Holds, ShredError};

/// Nobody else says this.
const WORD: &str = "unheard-of-word";

fn id(number: u32) -> SessionId {
    SessionId::new(1_795_253_412, number)
}

fn armed(
    ledger: &Ledger,
    number: u32,
    session: Option<SessionId>,
) -> Result<Armed<&'static str>, String> {
    let verdict = allow();
    let mut call = Call {
        session,
        ..call(number)
    };
    program(&mut call)
        .command
        .push(format!("{WORD}-{number}").into());
    let entry = ledger.open_call(&call, &verdict, json!({}));
    let entry = entry.map_err(|error| error.to_string())?;
    entry.arm(verdict).map_err(|error| error.to_string())
}

fn run(ledger: &Ledger, number: u32, session: Option<SessionId>) {
    let armed = armed(ledger, number, session).unwrap();
    ledger.close(armed, &outcome(0), json!({})).unwrap();
}

fn keys(place: &Place) -> PathBuf {
    place.state.path().join("seals/keys")
}

/// Returns the content of the openings of runs, in their order.
fn openings(state: &StateDir) -> Vec<(RunId, String)> {
    let seals = Seals::read(state).unwrap();
    let events = Ledger::events(state, Filter::default()).unwrap();
    let events = events.map(|event| seals.open(event.unwrap()));
    let openings = events.filter(|event| event.kind == "run.opened");
    openings
        .map(|event| {
            (
                event.run.clone().unwrap(),
                event.body["command"].to_string(),
            )
        })
        .collect()
}

fn readable(state: &StateDir) -> Vec<u32> {
    let is_readable = |number: &u32| {
        let word = format!("{WORD}-{number}\"");
        openings(state).iter().any(|(_, said)| said.contains(&word))
    };
    (0..20).filter(is_readable).collect()
}

#[test]
fn what_is_sealed_opens_in_its_event_alone() {
    let (key, other) = (SealKey::generate().unwrap(), SealKey::generate().unwrap());
    let (own, another) = (run_id(1), run_id(2));
    let place = |run, kind, seq| SealPlace { run, kind, seq };
    let here = place(&own, "flow.opened", 7);
    let text = br#"{"path":"/a"}"#;
    let sealed = key.seal(&here, text).unwrap();
    assert_eq!(sealed.len(), crate::event::seal::sealed_length(text.len()));
    assert_eq!(key.open(&here, &sealed).unwrap().members["path"], "/a");
    assert_ne!(
        sealed,
        key.seal(&here, text).unwrap(),
        "another number and salt"
    );
    for elsewhere in [
        place(&own, "flow.opened", 8),
        place(&own, "flow.refused", 7),
        place(&another, "flow.opened", 7),
    ] {
        assert!(key.open(&elsewhere, &sealed).is_none());
    }
    assert!(other.open(&here, &sealed).is_none());
    for at in 0..sealed.len() {
        let mut altered = sealed.clone().into_bytes();
        altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
        let altered = String::from_utf8(altered).unwrap();
        assert!(key.open(&here, &altered).is_none(), "{at}: {altered}");
        assert!(key.open(&here, &sealed[..at]).is_none(), "{at}");
    }
}

#[test]
fn what_is_sealed_is_nowhere_in_the_ledger_and_read_with_its_key() {
    let place = Place::new();
    let ledger = place.ledger();
    let armed = armed(&ledger, 1, None).unwrap();
    let flow = |kind, path: &str| {
        let body = EventBody::default()
            .number("flow", 1)
            .text("host", "a.example");
        (
            kind,
            body.text("method", "GET")
                .text("path", path)
                .text("scheme", "https"),
        )
    };
    let flows = vec![
        flow("flow.opened", &format!("/{WORD}?q=1")),
        flow("flow.refused", &format!("/{WORD}?q=2")),
    ];
    ledger
        .record_flows(&run_id(1), flows, Durability::Durable)
        .unwrap();
    let failure = json!({ "layer": "one", "why": format!("no {WORD}") });
    let run = run_id(1);
    ledger
        .record(Some(&run), "apply.failed", failure, Durability::Durable)
        .unwrap();
    ledger.close_failed(armed, "the run", WORD).unwrap();
    let raw = std::fs::read(place.file("000001.seg")).unwrap();
    let raw = String::from_utf8(raw).unwrap();
    assert!(
        !raw.contains(WORD) && !raw.contains("/srv/project"),
        "{raw}"
    );
    assert!(raw.contains("a.example"), "{raw}");
    let opened = place.events();
    let told: Vec<_> = opened
        .iter()
        .filter(|event| event.body.to_string().contains(WORD))
        .collect();
    assert_eq!(told.len(), 5, "{opened:?}");
    assert!(
        opened
            .iter()
            .all(|event| event.body.get("sealed").is_none())
    );
    // For somebody who checks it.
    let seals = Seals::read(&place.state).unwrap();
    let events = Ledger::events(&place.state, Filter::default()).unwrap();
    for event in events.map(Result::unwrap) {
        let told = seals.open_with_proof(event).body;
        let proof = &told["sealed"];
        let names = proof["members"].as_array().unwrap();
        let members = names.iter().map(|name| name.as_str().unwrap());
        let text: serde_json::Map<_, _> = members
            .map(|name| (name.to_owned(), told[name].clone()))
            .collect();
        let text = serde_json::Value::Object(text).to_string();
        assert!(raw.contains("\"sealed\":\"") && text.len() > 2, "{told}");
    }
    place.verified();
}

#[test]
fn what_is_sealed_in_one_event_does_not_open_in_another() {
    let place = Place::new();
    let ledger = place.ledger();
    let flow = |path: &str| {
        let body = EventBody::default().text("host", "a.example");
        ("flow.refused", body.text("path", path))
    };
    run(&ledger, 1, None);
    let flows = vec![flow("/one"), flow("/two")];
    ledger
        .record_flows(&run_id(1), flows, Durability::Durable)
        .unwrap();
    let events: Vec<Event> = Ledger::events(&place.state, Filter::default())
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let [.., one, two] = events.as_slice() else {
        panic!("{events:?}");
    };
    let seals = Seals::read(&place.state).unwrap();
    assert_eq!(seals.open(two.clone()).body["path"], "/two");
    let mut moved = two.clone();
    moved.body["sealed"] = one.body["sealed"].clone();
    let shown = seals.open(moved).body;
    assert_eq!(shown["why"], "(sealed)", "{shown}");
    assert!(!shown.to_string().contains("/one"), "{shown}");
}

#[test]
fn a_large_body_is_told_shorter_before_it_is_sealed() {
    let place = Place::new();
    let ledger = place.ledger();
    run(&ledger, 1, None);
    for bytes in [40_000, 48_700, 60_000, 200_000] {
        let body = json!({ "layer": "one", "why": "x".repeat(bytes) });
        ledger
            .record(Some(&run_id(1)), "apply.failed", body, Durability::Durable)
            .unwrap();
    }
    place.verified();
    let told = place.events();
    let told: Vec<_> = told
        .iter()
        .filter(|event| event.kind == "apply.failed")
        .collect();
    assert_eq!(told[0].body["why"].as_str().unwrap().len(), 40_000);
    assert_eq!(told[3].body["why"]["bytes"], 200_000);
}

#[test]
fn keys_of_another_ledger_open_nothing_and_damage_nothing() {
    let (place, other) = (Place::new(), Place::new());
    for place in [&place, &other] {
        run(&place.ledger(), 1, None);
    }
    assert_eq!(readable(&place.state), [1]);
    std::fs::copy(keys(&other), keys(&place)).unwrap();
    assert_eq!(openings(&place.state)[0].1, "[\"(sealed)\"]");
    place.verified();
    run(&place.ledger(), 2, None);
    assert_eq!(readable(&place.state), [2]);
}

#[test]
fn a_key_file_that_others_could_have_is_refused() {
    let place = Place::new();
    run(&place.ledger(), 1, None);
    let elsewhere = place.state.path().join("elsewhere");
    let refused = |what: &str| {
        assert!(Seals::read(&place.state).is_err(), "{what}");
        // Everything but what needs a key goes on.
        let ledger = place.ledger();
        note(&ledger, 1);
        let before = place.verified().events;
        let refused = armed(&ledger, 2, None).map(drop).unwrap_err();
        assert!(refused.contains("cannot be sealed"), "{what}: {refused}");
        assert_eq!(place.verified().events, before, "{what}");
    };
    std::fs::rename(keys(&place), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, keys(&place)).unwrap();
    refused("a link");
    std::fs::remove_file(keys(&place)).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        keys(&place),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    refused("a pipe");
    std::fs::remove_file(keys(&place)).unwrap();
    std::fs::rename(&elsewhere, keys(&place)).unwrap();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&keys(&place), 0o640);
    refused("readable by its group");
    mode(&keys(&place), 0o600);
    mode(keys(&place).parent().unwrap(), 0o755);
    refused("a directory of all");
    mode(keys(&place).parent().unwrap(), 0o700);
    run(&place.ledger(), 2, None);
    assert_eq!(readable(&place.state), [1, 2]);
}

#[test]
fn a_lost_key_file_stops_nothing() {
    let place = Place::new();
    let ledger = place.ledger();
    run(&ledger, 1, Some(id(1)));
    drop(ledger);
    std::fs::remove_file(keys(&place)).unwrap();
    let ledger = place.ledger();
    place.verified();
    assert_eq!(openings(&place.state)[0].1, "[\"(sealed)\"]");
    run(&ledger, 2, Some(id(2)));
    // What is recorded of the first one now has a key again, of its session.
    let failure = json!({ "layer": "one", "why": WORD });
    let run = run_id(1);
    ledger
        .record(Some(&run), "apply.failed", failure, Durability::Durable)
        .unwrap();
    let raw = std::fs::read_to_string(place.file("000001.seg")).unwrap();
    assert!(!raw.contains(WORD), "{raw}");
    assert_eq!(place.events().last().unwrap().body["why"], WORD);
    let done = ledger.shred(&Evidence::Session(id(1))).unwrap();
    assert_eq!(done.runs, [run_id(1)]);
    let why = |event: &Event| event.body["why"].clone();
    let events = place.events();
    let failed = events.iter().find(|event| event.kind == "apply.failed");
    assert_eq!(failed.map(why), Some(json!("(shredded)")));
    assert_eq!(readable(&place.state), [2]);
    place.verified();
}

#[test]
fn events_of_earlier_releases_stay_as_they_are() {
    let place = Place::new();
    let ledger = place.ledger();
    note(&ledger, 1);
    let seals = Seals::read(&place.state).unwrap();
    for event in Ledger::events(&place.state, Filter::default()).unwrap() {
        let event = event.unwrap();
        let old = Event {
            run: Some(run_id(1)),
            kind: "run.opened".to_owned(),
            body: json!({ "command": ["true"], "verdict": "allow" }),
            ..event
        };
        assert_eq!(seals.open(old.clone()), old);
        assert_eq!(seals.open_with_proof(old.clone()), old);
    }
}

#[test]
fn runs_of_a_session_at_the_same_time_have_keys_of_their_own() {
    let place = Place::new();
    let (count, barrier) = (8, Barrier::new(8));
    std::thread::scope(|scope| {
        for number in 0..count {
            let (place, barrier) = (&place, &barrier);
            scope.spawn(move || {
                let ledger = place.ledger();
                barrier.wait();
                run(&ledger, number, Some(id(1)));
            });
        }
    });
    assert_eq!(readable(&place.state), (0..count).collect::<Vec<_>>());
    let kept = std::fs::read(keys(&place)).unwrap();
    let slots: std::collections::BTreeSet<&[u8]> =
        kept.chunks_exact(118).map(|slot| &slot[53..]).collect();
    assert_eq!(slots.len(), count as usize + 1, "and what is free");
    let ledger = place.ledger();
    let done = ledger.shred(&Evidence::Session(id(1))).unwrap();
    assert_eq!((done.runs.len(), done.living.len()), (count as usize, 0));
    assert_eq!(readable(&place.state), [0; 0]);
}

#[test]
fn what_goes_on_and_what_is_held_is_not_shredded() {
    let place = Place::new();
    let ledger = place.ledger();
    run(&ledger, 1, Some(id(1)));
    run(&ledger, 2, None);
    ledger.hold(&Evidence::Session(id(1)), true).unwrap();
    ledger.hold(&Evidence::Run(run_id(2)), true).unwrap();
    let living = armed(&ledger, 3, Some(id(1))).unwrap();
    let alive = armed(&ledger, 4, None).unwrap();
    let soon = SystemTime::now() + std::time::Duration::from_secs(1 << 30);
    let done = ledger.shred_older(soon).unwrap();
    assert_eq!(done.runs, []);
    assert_eq!(done.held, [run_id(1), run_id(2), run_id(3)]);
    assert_eq!(done.living, [run_id(4)]);
    for armed in [living, alive] {
        ledger.close(armed, &outcome(0), json!({})).unwrap();
    }
    assert_eq!(readable(&place.state), [1, 2, 3, 4]);
    ledger.hold(&Evidence::Session(id(1)), false).unwrap();
    let done = ledger.shred_older(soon).unwrap();
    assert_eq!(done.runs, [run_id(1), run_id(3), run_id(4)]);
    assert_eq!(readable(&place.state), [2]);
    let again = ledger.shred(&Evidence::Session(id(1))).unwrap();
    assert_eq!(again, Shredded::default());
    // Whatever is told of it later is sealed with a key that nobody has.
    let failure = json!({ "layer": "one", "why": WORD });
    ledger
        .record(
            Some(&run_id(1)),
            "apply.failed",
            failure,
            Durability::Durable,
        )
        .unwrap();
    assert_eq!(place.events().last().unwrap().body["why"], "(shredded)");
    place.verified();
}

#[test]
fn a_hold_and_a_shredding_at_once_never_both_count() {
    let meant = Evidence::Run(run_id(1));
    for _ in 0..20 {
        let place = Place::new();
        let ledger = place.ledger();
        run(&ledger, 1, None);
        let other = place.ledger();
        let (held, shredded) = std::thread::scope(|scope| {
            let held = scope.spawn(|| other.hold(&meant, true));
            let shredded = ledger.shred(&meant).unwrap();
            (held.join().unwrap(), shredded)
        });
        let is_held = match held {
            Ok(()) => true,
            Err(ShredError::Gone(run)) => run != run_id(1),
            Err(error) => panic!("{error}"),
        };
        let (left, gone) = match is_held {
            true => (vec![1], vec![]),
            false => (vec![], vec![run_id(1)]),
        };
        assert_eq!(readable(&place.state), left);
        assert_eq!(shredded.runs, gone);
    }
}

#[test]
fn a_tenant_is_held_and_shredded_as_a_whole() {
    let place = Place::new();
    let ledger = place.ledger();
    for (number, tenant) in [(1, "one"), (2, "other")] {
        let served = Served {
            sandbox: "here".to_owned(),
            tenant: tenant.to_owned(),
            caller: None,
            template: "base".to_owned(),
            metadata: BTreeMap::new(),
            volumes: Vec::new(),
            session: None,
            trace: None,
            once: None,
        };
        let call = Call {
            place: atoll_model::Place::Served(Box::new(served)),
            ..call(number)
        };
        let verdict = allow();
        let entry = ledger.open_call(&call, &verdict, json!({})).unwrap();
        let armed = entry.arm(verdict).unwrap();
        ledger.close(armed, &outcome(0), json!({})).unwrap();
    }
    let one = Evidence::Tenant("one".to_owned());
    ledger.hold(&one, true).unwrap();
    let holds = Holds::read(&place.state).unwrap();
    assert!(holds.keeps(&run_id(1)) && holds.keeps_tenant("one") && holds.has(&one));
    assert!(!holds.keeps(&run_id(2)) && !holds.keeps_tenant("other"));
    let soon = SystemTime::now() + std::time::Duration::from_secs(1 << 30);
    let done = ledger.shred_older(soon).unwrap();
    assert_eq!((done.runs, done.held), (vec![run_id(2)], vec![run_id(1)]));
    ledger.hold(&one, false).unwrap();
    assert_eq!(ledger.shred(&one).unwrap().runs, [run_id(1)]);
}

#[test]
fn a_shredding_that_was_cut_short_is_finished_by_the_next() {
    let place = Place::new();
    let ledger = place.ledger();
    run(&ledger, 1, None);
    run(&ledger, 2, None);
    drop(ledger);
    let held = HeldKeys::of(&place.state).unwrap().unwrap();
    let shredding = Shredding {
        why: ShredWhy::Age,
        runs: vec![run_id(1)],
    };
    held.begin(&shredding).unwrap();
    // From then on nobody is shown it, and while somebody is at it nobody else is.
    assert_eq!(readable(&place.state), [2]);
    drop(place.ledger());
    assert!(!place.kinds().contains(&"seal.shredded".to_owned()));
    drop(held);
    drop(place.ledger());
    assert!(place.kinds().contains(&"seal.shredded".to_owned()));
    assert!(!place.state.path().join("seals/shredding").exists());
    let kept = std::fs::read_to_string(keys(&place)).unwrap();
    assert!(kept.contains(&format!(
        "{} -------------------- {}\n",
        run_id(1),
        "0".repeat(64)
    )));
    assert_eq!(readable(&place.state), [2]);
    place.verified();
}

/// Records two runs, and shreds the first; returns the steps that were done.
fn work_on(work: &Work) -> (Vec<u32>, bool) {
    let state = work.state();
    let Ok(ledger) = work.ledger(&state) else {
        return (Vec::new(), false);
    };
    let mut begun = Vec::new();
    for number in [1, 2] {
        if let Ok(armed) = armed(&ledger, number, None) {
            work.acknowledge(&state);
            begun.push(number);
            if ledger.close(armed, &outcome(0), json!({})).is_ok() {
                work.acknowledge(&state);
            }
        }
    }
    let shredded = ledger.shred(&Evidence::Run(run_id(1)));
    let is_done = shredded.is_ok_and(|done| done.runs == [run_id(1)]);
    if is_done {
        work.acknowledge(&state);
    }
    (begun, is_done)
}

/// Checks what must hold after any of this: the ledger can be appended to, and the end of a key is
/// on record.
fn is_in_order(state: &StateDir, begun: &[u32], is_done: bool, what: &str) {
    let ledger =
        Ledger::open(state, SystemTime::now, &()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let readable = readable(state);
    let events = Ledger::events(state, Filter::default()).unwrap();
    let told = events
        .map(Result::unwrap)
        .any(|event| event.kind == "seal.shredded");
    if begun.contains(&1) {
        // Not until it is on record, and then for ever.
        assert_eq!(readable.contains(&1), !told, "{what}");
    }
    assert!(told || !is_done, "{what}");
    assert!(
        !begun.contains(&2) || readable.contains(&2),
        "{what}: {readable:?}"
    );
    run(&ledger, 3, None);
    assert!(self::readable(state).contains(&3), "{what}");
}

#[test]
fn keys_are_on_disk_before_what_they_seal_and_gone_when_that_is_said() {
    for seed in 0..6 {
        let work = Work::new(1 << 20);
        watch(work.state().path(), None);
        let (begun, is_done) = work_on(&work);
        assert_eq!((begun.as_slice(), is_done), ([1, 2].as_slice(), true));
        let (steps, _) = finish();
        let (mut disk, mut dice) = (Disk::default(), Dice(seed));
        let mut acknowledged = 0;
        for (number, step) in steps.iter().enumerate() {
            disk.step(step, &mut dice);
            acknowledged += usize::from(matches!(step, Step::Acknowledged { .. }));
            let place = temporary();
            let path = place.path().join("state");
            disk.clone()
                .cut_power(&mut Dice(seed << 32 | number as u64), &path);
            let what = format!("seed {seed}, after step {number} {step:?}");
            // Each run is acknowledged at its beginning and its end, and then the shredding.
            let begun: &[u32] = match acknowledged {
                0 => &[],
                1 | 2 => &[1],
                _ => &[1, 2],
            };
            let state = StateDir::open(&path).unwrap();
            is_in_order(&state, begun, acknowledged == 5, &what);
            is_whole(&state, &disk, &what);
        }
        assert_eq!(acknowledged, 5);
    }
}

/// Among them a disk that is full when a key is written.
#[test]
fn a_disk_that_fails_where_keys_are_written_loses_none_that_was_used() {
    let failures = [
        Failure::Error(Errno::IO),
        Failure::Error(Errno::NOSPC),
        Failure::Short,
    ];
    let at_once = |failing| {
        let work = Work::new(1 << 20);
        watch(work.state().path(), failing);
        let done = work_on(&work);
        let (_, operations) = finish();
        (work, done, operations)
    };
    let (_, _, operations) = at_once(None);
    let mut refused = 0;
    for at in 0..operations {
        for (number, failure) in failures.into_iter().enumerate() {
            let length = [1, 2, 5][(at + number) % 3];
            let (work, (begun, is_done), _) = at_once(Some((at..at + length, failure)));
            let what = format!("{failure:?} at {at}, {length} times");
            refused += usize::from(begun.len() < 2);
            is_in_order(&work.state(), &begun, is_done, &what);
            Ledger::verify(&work.state()).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn an_age_beyond_all_runs_shreds_none() {
    let place = Place::new();
    let ledger = place.ledger();
    run(&ledger, 1, None);
    let began = run_id(1).began_seconds().unwrap();
    let at = |seconds: u64| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    let day = std::time::Duration::from_secs(86_400);
    let long_ago = [9_900, 10_500, 36_500].map(|days| at(began).checked_sub(day * days).unwrap());
    for before in long_ago.into_iter().chain([at(0), at(began)]) {
        let done = ledger.shred_older(before).unwrap();
        assert_eq!(done, Shredded::default(), "{before:?}");
    }
    assert_eq!(readable(&place.state), [1]);
    let done = ledger.shred_older(at(began + 1)).unwrap();
    assert_eq!(done.runs, [run_id(1)]);
    assert_eq!(readable(&place.state), [0; 0]);
}

#[test]
fn a_run_without_a_key_gets_one_alone_from_all_that_tell_of_it() {
    let place = Place::new();
    let (runs, tellers) = (12, 6);
    let barrier = Barrier::new(tellers);
    std::thread::scope(|scope| {
        for _ in 0..tellers {
            let (ledger, barrier) = (place.ledger(), &barrier);
            scope.spawn(move || {
                // The others wait for this one: what failed is told once all are through.
                let told = (0..runs).map(|number| {
                    let failure = json!({ "layer": "one", "why": WORD });
                    let run = run_id(number);
                    barrier.wait();
                    ledger.record(Some(&run), "apply.failed", failure, Durability::Buffered)
                });
                let told: Vec<_> = told.collect();
                for told in told {
                    let _ = told.unwrap();
                }
            });
        }
    });
    let events = place.events();
    let failed = events.iter().filter(|event| event.kind == "apply.failed");
    let said: Vec<_> = failed.map(|event| event.body["why"].clone()).collect();
    assert_eq!(said, vec![json!(WORD); runs as usize * tellers]);
}

#[test]
fn whoever_follows_reads_runs_that_began_after_the_keys_were_read() {
    let place = Place::new();
    let ledger = place.ledger();
    let old = Seals::read(&place.state).unwrap();
    let mut followed = FollowedSeals::read(&place.state).unwrap();
    run(&ledger, 1, None);
    let events = || Ledger::events(&place.state, Filter::default()).unwrap();
    let opened = events()
        .map(Result::unwrap)
        .find(|event| event.kind == "run.opened");
    let opened = opened.unwrap();
    assert_eq!(
        old.open(opened.clone()).body["command"],
        json!(["(sealed)"])
    );
    let read = followed.open(&place.state, opened.clone()).unwrap();
    assert_eq!(read.body["command"], json!(["true", format!("{WORD}-1")]));
    // A key that is nowhere is looked for once.
    std::fs::remove_file(keys(&place)).unwrap();
    let mut followed = FollowedSeals::read(&place.state).unwrap();
    for _ in 0..2 {
        let read = followed.open(&place.state, opened.clone()).unwrap();
        assert_eq!(read.body["command"], json!(["(sealed)"]));
        assert!(crate::unread(&read.body["command"]).is_some());
    }
}
