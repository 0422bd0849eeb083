use std::fs::OpenOptions;
use std::io::Write;

use super::*;

/// A ledger of a few events; its lines, with their newlines.
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
        create_run(&place.state, &record(1)).unwrap();
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
