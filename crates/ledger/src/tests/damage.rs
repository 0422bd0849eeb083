use std::fs::OpenOptions;
use std::io::Write;

use atoll_model::{SessionId, SessionName};

use super::*;
use crate::head::Head;

/// Makes a ledger of a few events; returns its lines, with their newlines.
fn small(events: u64) -> (Place, Vec<Vec<u8>>) {
    let place = Place::new();
    let ledger = place.ledger();
    for number in 0..events {
        note(&ledger, number);
    }
    let bytes = std::fs::read(place.file("000001.seg")).unwrap();
    let lines = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    (place, lines)
}

#[test]
fn every_flipped_bit_is_found() {
    let (place, lines) = small(3);
    let segment = place.file("000001.seg");
    for path in [&segment, &place.file("head")] {
        let bytes = std::fs::metadata(path).unwrap().len() as usize;
        assert!(bytes > 100);
        for byte in 0..bytes {
            for bit in 0..8 {
                flip_bit(path, byte, bit);
                assert!(
                    matches!(Ledger::verify(&place.state), Err(VerifyError::Damaged(_))),
                    "bit {bit} of byte {byte} of {}",
                    path.display()
                );
                flip_bit(path, byte, bit);
            }
        }
    }
    assert_eq!(place.verified().events, lines.len() as u64);
}

#[test]
fn a_cut_between_lines_is_found() {
    let (place, lines) = small(6);
    for from in 0..lines.len() {
        for to in from + 1..=lines.len() {
            let mut rest = lines.clone();
            rest.drain(from..to);
            std::fs::write(place.file("000001.seg"), rest.concat()).unwrap();
            let damage = place.damage();
            assert!(
                damage
                    .iter()
                    .any(|damage| damage.severity == Severity::Lost),
                "without {from}..{to}: {damage:?}"
            );
        }
    }
}

#[test]
fn a_cut_anywhere_is_found() {
    let (place, lines) = small(3);
    let bytes = lines.concat();
    for length in 0..bytes.len() {
        std::fs::write(place.file("000001.seg"), &bytes[..length]).unwrap();
        let damage = place.damage();
        assert!(
            damage
                .iter()
                .any(|damage| damage.severity == Severity::Lost),
            "{length}"
        );
    }
}

#[test]
fn swapped_and_repeated_lines_are_found() {
    let (place, lines) = small(5);
    for left in 0..lines.len() {
        for right in 0..lines.len() {
            let mut changed = lines.clone();
            if left == right {
                changed.insert(left, lines[left].clone());
            } else {
                changed.swap(left, right);
            }
            std::fs::write(place.file("000001.seg"), changed.concat()).unwrap();
            assert!(!place.damage().is_empty(), "{left} {right}");
        }
    }
}

#[test]
fn a_missing_segment_is_found() {
    let place = Place::new();
    let ledger = place.ledger_in_small_segments();
    for number in 0..20 {
        note(&ledger, number);
    }
    let segments = place.verified().segments;
    assert!(segments >= 4);
    for number in 1..=segments {
        let name = format!("{number:06}.seg");
        let bytes = std::fs::read(place.file(&name)).unwrap();
        std::fs::remove_file(place.file(&name)).unwrap();
        let damage = place.damage();
        assert!(
            damage
                .iter()
                .any(|damage| damage.severity == Severity::Lost),
            "{name}: {damage:?}"
        );
        std::fs::write(place.file(&name), bytes).unwrap();
    }
    place.verified();
}

#[test]
fn a_missing_head_is_found_and_recorded() {
    let (place, _) = small(2);
    for (number, content) in [None, Some(""), Some("garbage")].into_iter().enumerate() {
        match content {
            None => std::fs::remove_file(place.file("head")).unwrap(),
            Some(text) => std::fs::write(place.file("head"), text).unwrap(),
        }
        assert!(
            place
                .damage()
                .iter()
                .any(|damage| damage.severity == Severity::Unprovable)
        );
        note(&place.ledger(), 9);
        let damage = place.damage();
        assert_eq!(damage.len(), number + 1);
        assert!(
            damage
                .iter()
                .all(|damage| damage.severity == Severity::Recorded)
        );
    }
    assert_eq!(place.events()[2].body["cause"], "head-lost");
}

#[test]
fn a_head_that_goes_under_a_living_process_is_recorded() {
    for content in [None, Some("garbage")] {
        let place = Place::new();
        let ledger = place.ledger();
        note(&ledger, 1);
        match content {
            None => std::fs::remove_file(place.file("head")).unwrap(),
            Some(text) => std::fs::write(place.file("head"), text).unwrap(),
        }
        note(&ledger, 2);
        note(&ledger, 3);
        assert_eq!(ledger.losses().len(), 1);
        let kinds = place.kinds();
        assert_eq!(kinds.len(), 4, "{kinds:?}");
        let damage = place.damage();
        assert_eq!(damage.len(), 1, "{damage:?}");
        assert_eq!(damage[0].severity, Severity::Recorded);
        assert!(damage[0].what.contains("head-lost"), "{damage:?}");
    }
}

#[test]
fn an_event_that_is_not_canonical_is_found() {
    let (place, lines) = small(1);
    let event = String::from_utf8(lines[0][65..lines[0].len() - 1].to_vec()).unwrap();
    for changed in [
        event.replacen('{', "{ ", 1),
        event.replacen("\"number\"", "\"\\u006eumber\"", 1),
        event.replacen("{\"number\":0}", "{\"number\":0,\"number\":0}", 1),
        event.replacen("{\"number\":0}", "{\"number\":-0}", 1),
        event.replacen("{\"number\":0}", "{\"number\":0.0}", 1),
        event.replacen("{\"number\":0}", "[]", 1),
        event.replacen("\"seq\":0", "\"run\":null,\"seq\":0", 1),
        event.replacen("\"seq\":0", "\"seq\":18446744073709551615", 1),
        event.replacen("\"v\":1", "\"v\":1,\"w\":1", 1),
        event.replacen("\"v\":1", "\"v\":2", 1),
        event.replacen("test.noted", "TEST", 1),
        event.replacen("T", " ", 1),
        format!("{event} "),
    ] {
        assert_ne!(changed, event);
        let leaf = TreeHash::of_leaf(changed.as_bytes());
        std::fs::write(place.file("000001.seg"), format!("{leaf} {changed}\n")).unwrap();
        let damage = place.damage();
        assert_eq!(damage[0].severity, Severity::Altered, "{changed}");
    }
}

#[test]
fn a_rewritten_chain_differs_from_the_head() {
    let (place, _) = small(2);
    let head = std::fs::read(place.file("head")).unwrap();
    let (other, _) = small(2);
    std::fs::copy(other.file("000001.seg"), place.file("000001.seg")).unwrap();
    assert_eq!(place.damage()[0].severity, Severity::Altered);
    note(&place.ledger(), 2);
    assert_eq!(place.events()[2].body["cause"], "rewritten");
    assert_ne!(std::fs::read(place.file("head")).unwrap(), head);
    assert_eq!(place.damage()[0].severity, Severity::Recorded);
}

#[test]
fn a_torn_line_is_set_aside_and_recorded() {
    let (whole, lines) = small(3);
    drop(whole);
    let torn = &lines[2];
    for length in 1..torn.len() {
        let (place, lines) = small(2);
        let segment = place.file("000001.seg");
        let mut file = OpenOptions::new().append(true).open(&segment).unwrap();
        file.write_all(&torn[..length]).unwrap();
        drop(file);
        assert_eq!(place.verified().unfinished_bytes, length as u64);
        note(&place.ledger(), 7);
        let verified = place.verified();
        assert_eq!(
            (verified.events, verified.torn, verified.unfinished_bytes),
            (4, 1, 0)
        );
        assert_eq!(
            std::fs::read(place.file("torn-1")).unwrap(),
            &torn[..length]
        );
        assert!(
            std::fs::read(&segment)
                .unwrap()
                .starts_with(&lines.concat())
        );
        let event = &place.events()[2];
        assert_eq!(
            (event.kind.as_str(), &event.body["cause"]),
            ("ledger.repaired", &json!("torn"))
        );
        assert_eq!(event.body["set_aside"]["bytes"], length);
    }
}

#[test]
fn a_torn_line_in_a_new_segment_is_set_aside() {
    let (place, _) = small(2);
    std::fs::write(place.file("000002.seg"), "torn").unwrap();
    note(&place.ledger(), 7);
    assert_eq!((place.verified().events, place.verified().torn), (4, 1));
}

#[test]
fn garbage_after_the_end_is_set_aside_whole() {
    let (place, _) = small(2);
    let garbage = [b"\0\n\0\0\n".as_slice(), &[b'x'; 100_000], b"\nno hash\n"].concat();
    let mut file = OpenOptions::new()
        .append(true)
        .open(place.file("000001.seg"))
        .unwrap();
    file.write_all(&garbage).unwrap();
    note(&place.ledger(), 7);
    assert_eq!(std::fs::read(place.file("torn-1")).unwrap(), garbage);
    assert_eq!((place.verified().events, place.verified().torn), (4, 1));
    flip_bit(&place.file("torn-1"), 5, 1);
    assert_eq!(place.damage()[0].severity, Severity::Altered);
    std::fs::remove_file(place.file("torn-1")).unwrap();
    assert_eq!(place.damage()[0].severity, Severity::Lost);
}

#[test]
fn a_cut_that_was_appended_to_stays_visible() {
    let (place, lines) = small(5);
    for (altered, kept) in [(false, 3), (true, 4)] {
        let mut bytes = lines[..kept].concat();
        if altered {
            bytes.extend_from_slice(b"0000");
        }
        std::fs::write(place.file("000001.seg"), bytes).unwrap();
        for number in 0..10 {
            note(&place.ledger(), number);
        }
        let events = place.events();
        assert_eq!(events[kept].body["cause"], "cut");
        let damage = place.damage();
        assert_eq!(damage.len(), 1, "{damage:?}");
        assert_eq!(damage[0].severity, Severity::Recorded);
        // The same ledger, cut again from the begin.
        std::fs::write(place.file("000001.seg"), lines.concat()).unwrap();
        std::fs::remove_file(place.file("head")).unwrap();
        note(&place.ledger(), 1);
        std::fs::write(place.file("000001.seg"), lines.concat()).unwrap();
        let _ = std::fs::remove_file(place.file("torn-1"));
    }
}

#[test]
fn a_ledger_that_was_removed_but_for_its_head_is_found() {
    let (place, _) = small(2);
    std::fs::remove_file(place.file("000001.seg")).unwrap();
    assert_eq!(place.damage()[0].severity, Severity::Lost);
    note(&place.ledger(), 7);
    assert_eq!(place.kinds(), ["ledger.repaired", "test.noted"]);
    assert_eq!(place.damage()[0].severity, Severity::Recorded);
}

#[test]
fn a_removed_ledger_is_found_where_runs_are_kept() {
    for leave_directory in [false, true] {
        let place = Place::new();
        let ledger = place.ledger();
        note(&ledger, 1);
        std::fs::create_dir_all(place.state.run_dir(&run_id(1))).unwrap();
        drop(ledger);
        let directory = place.file("head").parent().unwrap().to_path_buf();
        std::fs::remove_dir_all(&directory).unwrap();
        if leave_directory {
            std::fs::create_dir(&directory).unwrap();
        }
        let damage = place.damage();
        assert_eq!(damage[0].severity, Severity::Lost, "{damage:?}");
        assert!(damage[0].what.contains("is gone"), "{damage:?}");
        let again = place.ledger();
        assert_eq!(again.losses(), [""; 0]);
        note(&again, 2);
        note(&again, 3);
        assert_eq!(again.losses().len(), 1, "{:?}", again.losses());
        assert!(again.losses()[0].contains("was gone"));
        let events = place.events();
        assert_eq!(
            place.kinds(),
            ["ledger.repaired", "test.noted", "test.noted"]
        );
        assert_eq!(events[0].body["cause"], "removed");
        assert_eq!(events[0].body["runs"], 1);
        // The gap is on record from then on.
        let damage = place.damage();
        assert_eq!(damage[0].severity, Severity::Recorded, "{damage:?}");
        assert_eq!(damage.len(), 1);
        assert_eq!(place.ledger().losses(), [""; 0]);
    }
}

/// Makes a ledger of one run of a session, without the run's files, that was sent elsewhere; then
/// removes it with its key, and of its remains all but `left`.
fn removed_but_for(left: &[&str]) -> Place {
    let place = Place::new();
    let ledger = place.ledger();
    let session = SessionName::parse("fix").unwrap();
    let fresh = SessionId::new(1_795_253_412, 1);
    let session = ledger.open_session(&place.state, &session, fresh).unwrap();
    let verdict = allow();
    let call = Call {
        session: Some(session.clone()),
        ..call(1)
    };
    let entry = ledger.open_call(&call, &verdict, json!({})).unwrap();
    SharedLabels::open(&place.state, &session).unwrap();
    let armed = entry.arm(verdict).unwrap();
    let last = ledger.close(armed, &outcome(0), json!({})).unwrap();
    let sent = Sent {
        seq: last.seq,
        leaf: last.leaf,
    };
    sent.keep(&place.state, "http://127.0.0.1:4318").unwrap();
    Ledger::key(&place.state).unwrap();
    drop(ledger);
    place.verified();
    for name in [
        "ledger",
        "ledger-key",
        "seals",
        "sessions",
        "gained",
        "telemetry",
    ] {
        if !left.contains(&name) {
            std::fs::remove_dir_all(place.state.path().join(name)).unwrap();
        }
    }
    place
}

#[test]
fn ledger_removed_beneath_its_remains_is_found() {
    for (left, told) in [
        (vec!["seals"], "keys of runs: 1"),
        (vec!["sessions"], "sessions: 1"),
        (vec!["gained"], "sessions that gained labels: 1"),
        (vec!["telemetry"], "places that it was sent to: 1"),
        (vec!["seals", "sessions"], "keys of runs: 1, sessions: 1"),
    ] {
        let place = removed_but_for(&left);
        let damage = place.damage();
        assert_eq!(damage[0].severity, Severity::Lost, "{damage:?}");
        assert!(damage[0].what.contains("is gone"), "{damage:?}");
        assert!(damage[0].what.contains(told), "{damage:?}");
        // A new one records it before anything else, and is found for ever.
        let again = place.ledger();
        let verdict = allow();
        let entry = again.open_call(&call(2), &verdict, json!({})).unwrap();
        let _armed = entry.arm(verdict).unwrap();
        assert!(again.losses()[0].contains(told), "{:?}", again.losses());
        assert_eq!(place.kinds(), ["ledger.repaired", "run.opened"]);
        assert_eq!(place.events()[0].body["cause"], "removed");
        let damage = place.damage();
        assert_eq!(damage.len(), 1, "{damage:?}");
        assert_eq!(damage[0].severity, Severity::Recorded, "{damage:?}");
    }
}

/// The control: with all that rested on it moved away a new one is begun.
#[test]
fn ledger_removed_with_its_remains_begins_anew() {
    let place = removed_but_for(&[]);
    assert_eq!(place.verified().events, 0);
    let ledger = place.ledger();
    let verdict = allow();
    let entry = ledger.open_call(&call(2), &verdict, json!({})).unwrap();
    let _armed = entry.arm(verdict).unwrap();
    assert_eq!(place.kinds(), ["run.opened"]);
    assert_eq!(place.verified().events, 1);
    assert_eq!(ledger.losses(), [""; 0]);
}

/// A first run's key is on disk before its opening: the power may go in between.
#[test]
fn first_run_cut_short_is_no_removed_ledger() {
    let place = Place::new();
    let ledger = place.ledger();
    let verdict = allow();
    let entry = ledger.open_call(&call(1), &verdict, json!({})).unwrap();
    drop(entry);
    drop(ledger);
    // As it is where its opening never reached the disk.
    std::fs::remove_file(place.file("000001.seg")).unwrap();
    assert_eq!(place.verified().events, 0);
    let ledger = place.ledger();
    note(&ledger, 1);
    assert_eq!(place.kinds(), ["test.noted"]);
    assert_eq!(place.verified().events, 1);
}

#[test]
fn a_first_ledger_is_begun_without_a_remark() {
    let place = Place::new();
    note(&place.ledger(), 1);
    assert_eq!(place.kinds(), ["test.noted"]);
    assert_eq!(place.ledger().losses(), [""; 0]);
}

#[test]
fn a_line_without_end_takes_no_memory_and_is_found() {
    let (place, lines) = small(2);
    let mut bytes = lines[0].clone();
    bytes.extend(std::iter::repeat_n(b'x', 5 << 20));
    bytes.push(b'\n');
    bytes.extend_from_slice(&lines[1]);
    std::fs::write(place.file("000001.seg"), bytes).unwrap();
    let damage = place.damage();
    assert!(damage[0].what.contains("longer than"), "{damage:?}");
    assert_eq!(place.damage()[0].place.line, Some(2));
    let mut events = Ledger::events(&place.state, Filter::default()).unwrap();
    assert!(events.next().unwrap().is_ok());
    assert!(events.next().unwrap().is_err());
    assert!(events.next().unwrap().is_ok());
}

#[test]
fn a_long_list_of_damage_is_cut_short() {
    let place = Place::new();
    let ledger = place.ledger();
    note(&ledger, 0);
    std::fs::write(place.file("000001.seg"), "x\n".repeat(1_000)).unwrap();
    let Err(VerifyError::Damaged(report)) = Ledger::verify(&place.state) else {
        panic!("no damage");
    };
    assert_eq!(report.damage.len(), 100);
    assert!(report.more >= 900);
    assert!(
        report
            .to_string()
            .contains("000001.seg line 1 (byte 0): altered")
    );
    drop(ledger);
    let error = place.ledger();
    note(&error, 1);
}

#[test]
fn an_empty_ledger_is_whole() {
    let place = Place::new();
    assert_eq!(place.verified().events, 0);
    let _ledger = place.ledger();
    assert_eq!(place.verified().events, 0);
    assert_eq!(
        place.verified().root,
        crate::hash::Frontier::default().root()
    );
}

/// Someone else's verifier, as far as it can be had: that of the documentation.
#[test]
fn the_verifier_of_the_documentation_agrees() {
    let manual = include_str!("../../../../docs/ledger.md");
    let (_, script) = manual.split_once("```python\n").unwrap();
    let (script, _) = script.split_once("```").unwrap();
    let place = Place::new();
    let ledger = place.ledger_in_small_segments();
    for number in 0..23 {
        let body = json!({ "number": number, "text": "ö\"\\\u{1}\u{7f}\u{2028}😂" });
        ledger
            .record(None, "test.noted", body, Durability::Durable)
            .unwrap();
    }
    let check = |place: &Place| {
        let mut command = std::process::Command::new("python3");
        command
            .args(["-c", script])
            .arg(place.state.path().join("ledger"));
        command.output()
    };
    match check(&place) {
        Err(error) => eprintln!("skipped: python3 cannot be run: {error}"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let expected = format!("23 events, root {}\n", place.verified().root);
            assert_eq!(
                said,
                expected,
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            flip_bit(&place.file("000002.seg"), 100, 0);
            assert!(!check(&place).unwrap().status.success());
            flip_bit(&place.file("000002.seg"), 100, 0);
            let made = place.ledger().checkpoint(&place.state).unwrap();
            assert!(check(&place).unwrap().status.success());
            let of_fewer = made.text().replacen("\n23\n", "\n22\n", 1);
            std::fs::write(place.file("checkpoint"), of_fewer).unwrap();
            assert!(!check(&place).unwrap().status.success());
            std::fs::write(place.file("checkpoint"), made.text()).unwrap();
            let last = format!("{:06}.seg", place.verified().segments);
            std::fs::remove_file(place.file(&last)).unwrap();
            assert!(!check(&place).unwrap().status.success());
        }
    }
}

/// The parts that a forger has rewritten after an event was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// The hash of the event's own line.
    Line,
    /// The chain from there to the end.
    Chain,
    /// The head too: how far the ledger was acknowledged.
    Head,
    /// Everything but the witness's copy: the checkpoint is signed anew with the key of this host.
    Signature,
}

/// The check that finds a change, in a ledger that was signed and witnessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finder {
    /// The event is none, or not as it would be written.
    Form,
    /// The event's number or predecessor does not continue the chain.
    Chain,
    /// The event is another one, which nothing in itself shows.
    Others,
}

type Members = Vec<(String, String)>;

/// Returns the members of a JSON object, each value as text.
fn members(object: &str) -> Members {
    let read: serde_json::Map<String, serde_json::Value> = serde_json::from_str(object).unwrap();
    read.into_iter()
        .map(|(name, value)| (name, value.to_string()))
        .collect()
}

fn object(members: &Members) -> String {
    let all = members
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"));
    format!("{{{}}}", all.collect::<Vec<_>>().join(","))
}

/// Returns another value of the same kind.
fn another(name: &str, value: &str) -> String {
    match name {
        "prev" => format!("\"{}\"", "a".repeat(64)),
        "run" => format!("\"{}\"", run_id(77)),
        "time" => "\"2020-01-01T00:00:00.000000Z\"".to_owned(),
        "type" => "\"test.other\"".to_owned(),
        "seq" | "v" => (value.parse::<u64>().unwrap() + 1).to_string(),
        _ => "\"forged\"".to_owned(),
    }
}

/// Returns each change of each member of an object: its name, the change, and the object after it.
fn changes(of: &Members) -> Vec<(String, &'static str, Members)> {
    let mut all = Vec::new();
    for (at, (name, value)) in of.iter().enumerate() {
        let (mut changed, mut removed, mut doubled) = (of.clone(), of.clone(), of.clone());
        changed[at].1 = another(name, value);
        removed.remove(at);
        doubled.insert(at, of[at].clone());
        all.push((name.clone(), "changed", changed));
        all.push((name.clone(), "removed", removed));
        all.push((name.clone(), "doubled", doubled));
        if of.len() > 1 {
            let mut moved = of.clone();
            let one = moved.remove(at);
            moved.insert(if at == 0 { of.len() - 1 } else { 0 }, one);
            all.push((name.clone(), "moved", moved));
        }
    }
    all
}

/// Returns every change of one event, and the check that finds it.
fn forgeries(event: &str) -> Vec<(String, String, Finder)> {
    let whole = members(event);
    let mut all = Vec::new();
    for (name, how, changed) in changes(&whole) {
        let finder = match (name.as_str(), how) {
            ("prev" | "seq", "changed") => Finder::Chain,
            ("time" | "type", "changed") | ("run", "changed" | "removed") => Finder::Others,
            _ => Finder::Form,
        };
        // A body that is no object is none.
        all.push((format!("{name} {how}"), object(&changed), finder));
    }
    assert_eq!(whole[0].0, "body");
    for (name, how, changed) in changes(&members(&whole[0].1)) {
        let finder = match how {
            "changed" | "removed" => Finder::Others,
            _ => Finder::Form,
        };
        let mut forged = whole.clone();
        forged[0].1 = object(&changed);
        all.push((format!("body.{name} {how}"), object(&forged), finder));
    }
    all
}

/// Puts an event in the place of one, and rewrites what stands after it to this depth.
fn forge(place: &Place, lines: &[Vec<u8>], at: usize, event: &str, depth: Depth) {
    let mut written = Vec::new();
    let mut last = TreeHash::ZERO;
    for (number, line) in lines.iter().enumerate() {
        let text = std::str::from_utf8(&line[65..line.len() - 1]).unwrap();
        let mut text = if number == at { event } else { text }.to_owned();
        if number > at && depth != Depth::Line {
            let mut chained = members(&text);
            let prev = chained.iter_mut().find(|(name, _)| name == "prev").unwrap();
            prev.1 = format!("\"{last}\"");
            text = object(&chained);
        }
        last = TreeHash::of_leaf(text.as_bytes());
        written.extend_from_slice(format!("{last} {text}\n").as_bytes());
    }
    std::fs::write(place.file("000001.seg"), &written).unwrap();
    if matches!(depth, Depth::Head | Depth::Signature) {
        let path = place.state.path().join("ledger");
        let directory = std::fs::File::open(&path).unwrap();
        let head = Head {
            size: lines.len() as u64,
            leaf: last,
            segment: 1,
            bytes: written.len() as u64,
            boot: BootId::current(),
        };
        head.write(&directory, &path, false).unwrap();
    }
    if depth == Depth::Signature {
        for name in ["checkpoint", "frontier"] {
            let _ = std::fs::remove_file(place.file(name));
        }
    }
}

/// Makes a signed ledger of events with and without a run; returns its lines.
fn signed() -> (Place, Vec<Vec<u8>>, Checkpoint) {
    let place = Place::new();
    let ledger = place.ledger();
    for number in 0..4_u32 {
        let run = run_id(number);
        let body = json!({ "list": [1, "two"], "number": number, "text": "said" });
        let run = (number % 2 == 0).then_some(&run);
        ledger
            .record(run, "test.noted", body, Durability::Durable)
            .unwrap();
    }
    let made = ledger.checkpoint(&place.state).unwrap();
    let bytes = std::fs::read(place.file("000001.seg")).unwrap();
    let lines: Vec<_> = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    assert_eq!((lines.len() as u64, place.verified().events), (4, 4));
    (place, lines, made)
}

fn found_with(place: &Place, witness: Option<&Checkpoint>) -> Vec<Damage> {
    let witnesses = witness.map(|checkpoint| WitnessFile {
        name: "witness".to_owned(),
        content: format!("{}\n", checkpoint.text()).into_bytes(),
    });
    let against = Against {
        key: None,
        witnesses: witnesses.into_iter().collect(),
    };
    match Ledger::verify_against(&place.state, &against) {
        Ok(_) => Vec::new(),
        Err(VerifyError::Damaged(report)) => report.damage,
        Err(VerifyError::Unreadable(error)) => panic!("{error}"),
    }
}

/// An attacker who changes an event can rewrite its hash, and everything after it. Then the next
/// check finds it: chain, head, signature, and at last the witness's copy.
#[test]
fn every_changed_member_is_found_however_much_was_rewritten_after_it() {
    let (place, lines, made) = signed();
    let (head, own) = ("head", "checkpoint");
    let kept = [head, own].map(|name| std::fs::read(place.file(name)).unwrap());
    let mut count = 0;
    for at in 0..lines.len() {
        let event = std::str::from_utf8(&lines[at][65..lines[at].len() - 1]).unwrap();
        for (what, forged, finder) in forgeries(event) {
            assert_ne!(forged, event, "{what}");
            for depth in [Depth::Line, Depth::Chain, Depth::Head, Depth::Signature] {
                forge(&place, &lines, at, &forged, depth);
                let what = format!("{what} in event {at}, {depth:?}");
                let alone = found_with(&place, None);
                let is_at = |line: usize| {
                    let line = Some(line as u64 + 1);
                    alone.iter().any(|one| one.place.line == line)
                };
                let says = |text: &str| alone.iter().any(|one| one.what.contains(text));
                let is_found = match (finder, depth) {
                    (Finder::Form | Finder::Chain, _) => is_at(at),
                    (Finder::Others, Depth::Line) if at + 1 < lines.len() => {
                        is_at(at + 1) && says("does not continue the event before it")
                    }
                    (Finder::Others, Depth::Line | Depth::Chain) => {
                        is_at(lines.len() - 1) && says("that the head names as acknowledged")
                    }
                    (Finder::Others, Depth::Head) => {
                        alone.len() == 1
                            && alone[0].place.file == own
                            && says("others than those that were signed")
                    }
                    // Nothing here shows it any more, and it is signed with this host's key.
                    (Finder::Others, Depth::Signature) => {
                        let again = place.ledger().checkpoint(&place.state).unwrap();
                        alone.is_empty() && again.root() != made.root()
                    }
                };
                assert!(is_found, "{what}: {alone:?}");
                let witnessed = found_with(&place, Some(&made));
                assert!(!witnessed.is_empty(), "{what}");
                if (finder, depth) == (Finder::Others, Depth::Signature) {
                    assert_eq!(witnessed.len(), 1, "{what}: {witnessed:?}");
                    assert_eq!(witnessed[0].place.file, "witness", "{what}");
                }
                count += 1;
                for (name, bytes) in [head, own].iter().zip(&kept) {
                    std::fs::write(place.file(name), bytes).unwrap();
                }
            }
        }
    }
    assert!(count > 500, "{count}");
    // The control: as it was written nothing is found.
    std::fs::write(place.file("000001.seg"), lines.concat()).unwrap();
    assert_eq!(found_with(&place, Some(&made)), []);
}

#[test]
fn swapped_repeated_and_shortened_segments_are_found() {
    let place = Place::new();
    let ledger = place.ledger_in_small_segments();
    for number in 0..20 {
        note(&ledger, number);
    }
    let count = place.verified().segments as usize;
    assert!(count >= 4);
    let path = |number: usize| place.file(&format!("{:06}.seg", number + 1));
    let bytes: Vec<_> = (0..count)
        .map(|number| std::fs::read(path(number)).unwrap())
        .collect();
    let put_back = || {
        for (number, bytes) in bytes.iter().enumerate() {
            std::fs::write(path(number), bytes).unwrap();
        }
    };
    for left in 0..count {
        for right in 0..count {
            if left != right {
                // One in the place of another, and both exchanged.
                std::fs::write(path(right), &bytes[left]).unwrap();
                assert!(!place.damage().is_empty(), "{left} for {right}");
                std::fs::write(path(left), &bytes[right]).unwrap();
                assert!(!place.damage().is_empty(), "{left} and {right}");
                put_back();
            }
        }
        // Told once more after the end.
        std::fs::write(path(count), &bytes[left]).unwrap();
        assert!(!place.damage().is_empty(), "{left} again");
        std::fs::remove_file(path(count)).unwrap();
    }
    for (number, bytes) in bytes.iter().enumerate() {
        for length in 0..bytes.len() {
            std::fs::write(path(number), &bytes[..length]).unwrap();
            assert!(!place.damage().is_empty(), "{number} cut at {length}");
        }
        std::fs::write(path(number), bytes).unwrap();
    }
    place.verified();
}
