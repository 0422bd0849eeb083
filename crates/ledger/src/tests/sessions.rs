use std::sync::Barrier;

use atoll_model::{SessionId, SessionName};

use super::*;
use crate::event::LABEL_GAINED;

fn name(text: &str) -> SessionName {
    SessionName::parse(text).unwrap()
}

fn id(number: u32) -> SessionId {
    SessionId::new(1_795_253_412, number)
}

fn open(place: &Place, ledger: &Ledger, text: &str, number: u32) -> SessionId {
    let opened = ledger.open_session(&place.state, &name(text), id(number));
    opened.unwrap()
}

fn index(place: &Place, text: &str) -> PathBuf {
    let name = format!("{text}.session");
    place.state.path().join("sessions").join(name)
}

/// Opens a run of a session, and closes it where that is asked for.
fn run(ledger: &Ledger, number: u32, session: Option<SessionId>, close: bool) {
    let verdict = allow();
    let call = Call {
        session,
        ..call(number)
    };
    let entry = ledger.open_call(&call, &verdict, json!({})).unwrap();
    let armed = entry.arm(verdict).unwrap();
    if close {
        ledger.close(armed, &outcome(0), json!({})).unwrap();
    }
}

#[test]
fn a_session_outlives_its_runs_and_what_tells_where_it_began() {
    let place = Place::new();
    let ledger = place.ledger();
    let first = open(&place, &ledger, "fix", 1);
    assert_eq!(first, id(1));
    run(&ledger, 1, Some(first.clone()), true);
    run(&ledger, 2, None, true);
    // Its carrier goes without a word.
    run(&ledger, 3, Some(first.clone()), false);
    drop(ledger);
    let ledger = place.ledger();
    assert_eq!(open(&place, &ledger, "fix", 2), first);
    assert_eq!(open(&place, &ledger, "other", 3), id(3));
    assert_eq!(open(&place, &ledger, "Fix", 4), id(4), "another name");
    // Whatever the file says, the ledger says which one it is.
    let begun = std::fs::read_to_string(index(&place, "fix")).unwrap();
    let other = std::fs::read_to_string(index(&place, "other")).unwrap();
    for said in ["", "nonsense\n", &other, &begun.replace(" 1 ", " 9 ")] {
        std::fs::write(index(&place, "fix"), said).unwrap();
        assert_eq!(open(&place, &ledger, "fix", 5), first, "{said}");
        let mended = std::fs::read_to_string(index(&place, "fix")).unwrap();
        assert_eq!(mended, begun, "{said}");
    }
    std::fs::remove_dir_all(place.state.path().join("sessions")).unwrap();
    assert_eq!(open(&place, &ledger, "fix", 6), first);
    run(&ledger, 4, Some(first.clone()), true);

    let sessions = Ledger::sessions(&place.state).unwrap();
    let names: Vec<_> = sessions.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["fix", "other", "Fix"]);
    let runs: Vec<_> = sessions[0].runs.iter().collect();
    let told: Vec<_> = runs.iter().map(|one| (&one.run, one.state)).collect();
    let expected = [
        (&run_id(1), SessionRunState::Ended),
        (&run_id(3), SessionRunState::Interrupted),
        (&run_id(4), SessionRunState::Ended),
    ];
    assert_eq!(told, expected);
    assert_eq!(runs[0].command, json!(["true"]));
    let has_closed: Vec<bool> = runs.iter().map(|one| one.closed.is_some()).collect();
    assert_eq!(has_closed, [true, false, true]);
    let begun = place.kinds();
    let begun = begun.iter().filter(|kind| *kind == "session.opened");
    assert_eq!(begun.count(), 3);
    place.verified();
}

#[test]
fn the_events_of_a_session_are_its_own_and_those_of_its_runs() {
    let place = Place::new();
    let ledger = place.ledger_in_small_segments();
    let one = open(&place, &ledger, "one", 1);
    let two = open(&place, &ledger, "two", 2);
    for number in 1..=6 {
        let session = [Some(one.clone()), Some(two.clone()), None];
        let session = session[number as usize % 3].clone();
        run(&ledger, number, session, false);
        let told = EventBody::default().number("flow", 1);
        let flows = vec![("flow.opened", told)];
        let run = run_id(number);
        ledger
            .record_flows(&run, flows, Durability::Buffered)
            .unwrap();
        // What only speaks of it is not of it.
        let body = json!({ "session": one.as_str() });
        ledger
            .record(None, "test.noted", body, Durability::Buffered)
            .unwrap();
    }
    let of = |filter: Filter| {
        let events = Ledger::events(&place.state, filter).unwrap();
        let told = events.map(|event| {
            let event = event.unwrap();
            (event.kind, event.run)
        });
        told.collect::<Vec<_>>()
    };
    let kind = |kind: &str| Some(kind.to_owned());
    let filter = |kind: Option<String>| Filter {
        session: Some(one.clone()),
        kind,
        ..Filter::default()
    };
    let of_run = |number: u32, kind: &str| (kind.to_owned(), Some(run_id(number)));
    let all = [
        ("session.opened".to_owned(), None),
        of_run(3, "run.opened"),
        of_run(3, "flow.opened"),
        of_run(6, "run.opened"),
        of_run(6, "flow.opened"),
    ];
    assert_eq!(of(filter(None)), all);
    let flows = [of_run(3, "flow.opened"), of_run(6, "flow.opened")];
    assert_eq!(of(filter(kind("flow"))), flows);
    let nobody = Filter {
        session: Some(id(9)),
        ..Filter::default()
    };
    assert!(of(nobody).is_empty());
}

#[test]
fn two_that_begin_a_session_at_once_begin_the_same() {
    let place = Place::new();
    const AT_ONCE: u32 = 8;
    for round in 0..5 {
        let barrier = Barrier::new(AT_ONCE as usize);
        let text = format!("name-{round}");
        let begin = &|number: u32| {
            // As processes of their own would have it.
            let ledger = place.ledger();
            barrier.wait();
            open(&place, &ledger, &text, round * 100 + number)
        };
        let found: Vec<SessionId> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..AT_ONCE)
                .map(|number| scope.spawn(move || begin(number)))
                .collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
    }
    assert_eq!(Ledger::sessions(&place.state).unwrap().len(), 5);
}

#[test]
fn only_the_ledger_begins_sessions() {
    let place = Place::new();
    let ledger = place.ledger();
    let body = json!({ "name": "x", "session": id(1).as_str() });
    let refused = ledger.record(None, "session.opened", body, Durability::Buffered);
    assert!(matches!(refused, Err(LedgerError::Kind { .. })));
}

/// A label behind damage would be lost: a query for labels returns the damage instead.
#[test]
fn labels_are_not_told_past_damage() {
    let place = Place::new();
    let ledger = place.ledger();
    let session = open(&place, &ledger, "fix", 1);
    run(&ledger, 1, Some(session.clone()), true);
    let of_run = call(1).id.run;
    assert!(Ledger::session_labels(&place.state, &session).is_ok());
    assert!(Ledger::run_labels(&place.state, &of_run).is_ok());
    drop(ledger);
    let segment = place.file("000001.seg");
    let text = std::fs::read_to_string(&segment).unwrap();
    let opened = "\"type\":\"run.opened\"";
    assert_eq!(text.matches(opened).count(), 1);
    let damaged = text.replace(opened, "\"type\";\"run.opened\"");
    std::fs::write(&segment, damaged).unwrap();
    let labels = Ledger::session_labels(&place.state, &session);
    assert!(matches!(labels, Err(LedgerError::Damaged { .. })));
    let labels = Ledger::run_labels(&place.state, &of_run);
    assert!(matches!(labels, Err(LedgerError::Damaged { .. })));
}

/// A process that ends the runs of a session or an agent reads no more of the ledger than their
/// openings.
#[test]
fn how_a_run_that_goes_on_began_is_found_without_the_rest() {
    let place = Place::new();
    let ledger = place.ledger();
    let session = open(&place, &ledger, "fix", 1);
    run(&ledger, 1, None, true);
    let before = place.file("000001.seg");
    let text = std::fs::read_to_string(&before).unwrap();
    let verdict = allow();
    let living = Call {
        session: Some(session.clone()),
        ..call(2)
    };
    let entry = ledger.open_call(&living, &verdict, json!({})).unwrap();
    let armed = entry.arm(verdict).unwrap();
    run(&ledger, 3, Some(session.clone()), true);
    // What was there before it began is not read: nobody hears of the damage.
    let whole = std::fs::read_to_string(&before).unwrap();
    let hidden = "x".repeat(text.len() - 1) + "\n" + &whole[text.len()..];
    std::fs::write(&before, hidden).unwrap();
    let begun = Ledger::beginning(&place.state, living.run())
        .unwrap()
        .unwrap();
    assert_eq!(begun.run.as_ref(), Some(living.run()));
    assert_eq!(begun.body["session"], session.as_str());
    std::fs::write(&before, whole).unwrap();
    for over in [1, 3, 9] {
        assert!(
            Ledger::beginning(&place.state, call(over).run())
                .unwrap()
                .is_none()
        );
    }
    assert_eq!(
        Ledger::noted_session(&place.state, &name("fix")),
        Some(session)
    );
    assert_eq!(Ledger::noted_session(&place.state, &name("other")), None);
    ledger.close(armed, &outcome(0), json!({})).unwrap();
    assert!(
        Ledger::beginning(&place.state, living.run())
            .unwrap()
            .is_none()
    );
}

/// Labels are read from the place at which the session began; without the file of that place, the
/// whole ledger gives the same.
#[test]
fn labels_of_a_session_are_read_from_where_it_began() {
    let place = Place::new();
    let ledger = place.ledger();
    // Something that speaks of it stands before it.
    let body = json!({ "session": id(2).as_str() });
    let noted = ledger.record(None, "test.noted", body, Durability::Buffered);
    noted.unwrap();
    let session = open(&place, &ledger, "fix", 2);
    open(&place, &ledger, "other", 3);
    run(&ledger, 3, Some(session.clone()), false);
    let gained = EventBody::default()
        .text("by", "example.com")
        .text("label", "untrusted");
    let news = vec![("label.gained", gained)];
    let recorded = ledger.record_flows(&run_id(3), news, Durability::Durable);
    recorded.unwrap();
    drop(ledger);
    let labels = || Ledger::session_labels(&place.state, &session);
    let expected = std::collections::BTreeSet::from(["untrusted".to_owned()]);
    assert_eq!(labels().unwrap(), expected);
    let file = index(&place, "fix");
    let aside = place.state.path().join("aside");
    std::fs::rename(&file, &aside).unwrap();
    assert_eq!(labels().unwrap(), expected);
    std::fs::write(&file, "nonsense\n").unwrap();
    assert_eq!(labels().unwrap(), expected);
    std::fs::rename(&aside, &file).unwrap();
    // What is before it is not even read: damage there is none of its own.
    let segment = place.file("000001.seg");
    let text = std::fs::read_to_string(&segment).unwrap();
    let damaged = text.replacen("\"type\":\"test.noted\"", "\"type\";\"test.noted\"", 1);
    assert_ne!(text, damaged);
    std::fs::write(&segment, damaged).unwrap();
    assert_eq!(labels().unwrap(), expected);
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(labels(), Err(LedgerError::Damaged { .. })));
}

/// The file of shared labels goes once none of the session's runs is left, and the next run makes
/// it again from the ledger. A label that the ledger does not have stays.
#[test]
fn what_runs_told_each_other_is_removed_once_the_ledger_alone_is_asked() {
    let place = Place::new();
    let ledger = place.ledger();
    let session = open(&place, &ledger, "fix", 1);
    let file = place.state.path().join("gained").join(session.as_str());
    let begin = |number: u32| {
        let verdict = allow();
        let call = Call {
            session: Some(session.clone()),
            ..call(number)
        };
        let entry = ledger.open_call(&call, &verdict, json!({})).unwrap();
        entry.arm(verdict).unwrap()
    };
    let in_ledger = |label: &str| {
        let body = EventBody::default().text("label", label);
        let flows = vec![("label.gained", body)];
        ledger
            .record_flows(&run_id(1), flows, Durability::Durable)
            .unwrap();
    };
    let can_go = || forgettable(&place.state).unwrap();
    assert_eq!(can_go(), []);
    let armed = begin(1);
    in_ledger("web");
    // Of what it gained before its first run looked.
    let gained = SharedLabels::open(&place.state, &session).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "web\n");
    assert_eq!(can_go(), [], "a run goes on");
    gained.add(["private"]).unwrap();
    ledger.close(armed, &outcome(0), json!({})).unwrap();
    assert_eq!(can_go(), [], "the ledger does not have it");
    assert_eq!(
        forget(&place.state, std::slice::from_ref(&session)).unwrap(),
        0
    );
    in_ledger("private");
    let kept = place.state.run_dir(&run_id(1));
    std::fs::create_dir_all(&kept).unwrap();
    assert_eq!(can_go(), [], "a run is kept");
    std::fs::remove_dir(&kept).unwrap();
    let plan = can_go();
    assert_eq!(plan, std::slice::from_ref(&session));
    // One that begins meanwhile keeps it.
    let armed = begin(2);
    assert_eq!(forget(&place.state, &plan).unwrap(), 0);
    assert!(file.exists());
    ledger.close(armed, &outcome(0), json!({})).unwrap();
    // What goes on and is of no session, or of another, keeps nothing.
    let other = open(&place, &ledger, "other", 2);
    run(&ledger, 3, None, false);
    let verdict = allow();
    let alone = ledger.open_call(&call(4), &verdict, json!({})).unwrap();
    let alone = alone.arm(verdict).unwrap();
    assert_eq!(forget(&place.state, &plan).unwrap(), 1);
    assert!(!file.exists());
    ledger.close(alone, &outcome(0), json!({})).unwrap();
    assert_eq!(
        (can_go(), forget(&place.state, &plan).unwrap()),
        (vec![], 0)
    );
    let _armed = begin(5);
    let _gained = SharedLabels::open(&place.state, &session).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "private\nweb\n");
    let _ = SharedLabels::open(&place.state, &other).unwrap();
    assert_eq!(can_go(), std::slice::from_ref(&other));
}

/// If the record of a kept layer does not have all labels of the runs that used it, the ledger has.
#[test]
fn kept_layer_has_the_labels_of_its_runs() {
    let place = Place::new();
    let ledger = place.ledger();
    let run =
        |number: u32, profile: &str, begun: &[&str], gained: &str, session: Option<SessionId>| {
            let verdict = allow();
            let call = Call {
                session,
                ..call(number)
            };
            let decision = json!({ "labels": begun, "profile": profile });
            let entry = ledger.open_call(&call, &verdict, decision).unwrap();
            let _armed = entry.arm(verdict).unwrap();
            let body = EventBody::default()
                .text("by", "test")
                .text("label", gained);
            let events = vec![(LABEL_GAINED, body)];
            let recorded = ledger.record_flows(&run_id(number), events, Durability::Durable);
            recorded.unwrap();
        };
    let session = open(&place, &ledger, "fix", 1);
    run(1, "agent", &["before"], "earlier", None);
    run(2, "agent", &["begun"], "gained", None);
    run(3, "other", &["foreign"], "foreign too", None);
    run(4, "agent", &[], "later", Some(session.clone()));
    run(5, "other", &[], "beside", Some(session));
    let used = |first: Option<u32>, last: u32, has_all_labels: bool| KeptUse {
        profile: "agent".to_owned(),
        first: first.map(run_id),
        last: run_id(last),
        labels: ["own".to_owned()].into(),
        has_all_labels,
    };
    let labels = |kept: KeptUse| Ledger::kept_labels(&place.state, &kept);
    let of = |kept: KeptUse| labels(kept).unwrap().into_iter().collect::<Vec<_>>();
    assert_eq!(of(used(Some(2), 4, true)), ["own"]);
    let later = ["begun", "beside", "gained", "later", "own"];
    assert_eq!(of(used(Some(2), 4, false)), later);
    let all = [
        "before", "begun", "beside", "earlier", "gained", "later", "own",
    ];
    assert_eq!(of(used(None, 4, false)), all);
    // Of runs that the ledger does not know nobody can tell.
    for unknown in [used(Some(2), 9, false), used(Some(9), 4, false)] {
        assert!(labels(unknown).is_err());
    }
}
