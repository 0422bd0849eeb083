use super::power::{Dice, Disk, Failure, finish, watch};
use super::*;
use crate::event::{Draft, ROTATED};

fn checkpoint(place: &Place) -> Checkpoint {
    place.ledger().checkpoint(&place.state).unwrap()
}

fn verify(place: &Place, key: Option<&VerifierKey>, witnessed: &[&Checkpoint]) -> Vec<Damage> {
    let texts = witnessed.iter().map(|one| format!("{}\n", one.text()));
    let against = Against {
        key: key.cloned(),
        witnesses: vec![WitnessFile {
            name: "witness".to_owned(),
            content: texts.collect::<String>().into_bytes(),
        }],
    };
    match Ledger::verify_against(&place.state, &against) {
        Ok(_) => Vec::new(),
        Err(VerifyError::Damaged(report)) => report.damage,
        Err(VerifyError::Unreadable(error)) => panic!("{error}"),
    }
}

fn key_file(place: &Place, name: &str) -> PathBuf {
    place.state.path().join("ledger-key").join(name)
}

#[test]
fn a_key_hands_over_and_verify_follows_from_either() {
    let place = Place::new();
    note(&place.ledger(), 1);
    let mut keys = vec![Ledger::key(&place.state).unwrap()];
    let mut made = vec![checkpoint(&place)];
    for number in 0..3 {
        let next = place.ledger().rotate_key(&place.state).unwrap();
        assert_eq!(next.name(), keys[0].name());
        assert!(!keys.contains(&next));
        // One checkpoint bears both signatures.
        let text = std::fs::read_to_string(place.file("checkpoint")).unwrap();
        for key in [keys.last().unwrap(), &next] {
            assert!(Checkpoint::open(&text, key).is_ok(), "{text}");
        }
        keys.push(next);
        note(&place.ledger(), number);
        made.push(checkpoint(&place));
        assert!(Checkpoint::open(made.last().unwrap().text(), &keys[keys.len() - 2]).is_err());
    }
    assert_eq!(Ledger::key(&place.state).unwrap(), keys[3]);
    let all: Vec<&Checkpoint> = made.iter().collect();
    for key in &keys {
        assert_eq!(verify(&place, Some(key), &all), [], "{key}");
    }
    assert_eq!(place.verified().checkpoint, Some(made[3].size()));
    // Another key follows nothing.
    let other = Place::new();
    let foreign = Ledger::key(&other.state).unwrap();
    assert!(!verify(&place, Some(&foreign), &all).is_empty());
    assert!(!key_file(&place, "key.next").exists());
}

/// Whoever has kept a key that was replaced signs nothing with it that counts.
#[test]
fn a_key_that_has_handed_over_signs_no_more() {
    let place = Place::new();
    note(&place.ledger(), 1);
    let first = Ledger::key(&place.state).unwrap();
    let before = checkpoint(&place);
    let kept = std::fs::read(key_file(&place, "key")).unwrap();
    place.ledger().rotate_key(&place.state).unwrap();
    let proof_of = |kind: &str| {
        let events = place.events();
        let event = events.iter().find(|event| event.kind == kind).unwrap();
        let prover = Prover::read(&place.state).unwrap();
        prover.inclusion(event).unwrap().text()
    };
    let handed_over = proof_of(ROTATED);
    let now = Ledger::key(&place.state).unwrap();
    let newest = std::fs::read(key_file(&place, "key")).unwrap();
    note(&place.ledger(), 2);
    note(&place.ledger(), 3);
    // The old one is put back, and signs all of it.
    std::fs::remove_file(place.file("checkpoint")).unwrap();
    std::fs::write(key_file(&place, "key"), &kept).unwrap();
    let forged = checkpoint(&place);
    assert!(Checkpoint::open(forged.text(), &first).is_ok());
    for key in [None, Some(&first)] {
        let damage = verify(&place, key, &[]);
        assert!(damage[0].what.contains("handed over before"), "{damage:?}");
    }
    assert!(!verify(&place, Some(&now), &[]).is_empty());
    // Whoever was told of the hand-over believes no proof of its.
    let stolen = proof_of("test.noted");
    let by = |text: &str, key: &VerifierKey, known: &[&str]| {
        let known: Vec<String> = known.iter().map(|one| (*one).to_owned()).collect();
        check_proof(text, key, &[], &known)
    };
    assert!(by(&stolen, &first, &[]).is_ok(), "the positive control");
    for key in [&first, &now] {
        assert!(by(&stolen, key, &[&handed_over]).is_err());
    }
    // Nor is a hand-over one that only the old key says is in the ledger.
    let own = proof_of(ROTATED);
    assert!(by(&handed_over, &first, &[&own]).is_err());
    assert!(by(&handed_over, &first, &[&stolen]).is_err());
    assert!(by(&handed_over, &now, &[&handed_over]).is_ok());
    // With the right one: the positive control.
    std::fs::write(key_file(&place, "key"), &newest).unwrap();
    std::fs::remove_file(place.file("checkpoint")).unwrap();
    let sound = checkpoint(&place);
    assert_eq!(verify(&place, Some(&first), &[&before, &sound]), []);
}

/// An event that names keys is no hand-over without the signatures of both.
#[test]
fn a_hand_over_is_signed_by_both() {
    let (place, other) = (Place::new(), Place::new());
    note(&place.ledger(), 1);
    checkpoint(&place);
    let (own, foreign) = (
        Ledger::key(&place.state).unwrap(),
        Ledger::key(&other.state).unwrap(),
    );
    let journal = Journal::open(&place.state, SystemTime::now).unwrap();
    for body in [
        json!({}),
        json!({ "old": own.to_string(), "new": foreign.to_string(), "by-old": "", "by-new": "" }),
        json!({ "old": own.to_string(), "new": own.to_string(), "by-old": "AA==", "by-new": "AA==" }),
    ] {
        journal
            .append_durable(&Draft::new(ROTATED, None, &body).unwrap())
            .unwrap();
    }
    checkpoint(&place);
    assert_eq!(verify(&place, None, &[]), []);
    assert!(!verify(&place, Some(&foreign), &[]).is_empty());
    let refused = place
        .ledger()
        .record(None, ROTATED, json!({}), Durability::Durable);
    assert!(refused.is_err());
}

/// A user who has lost the key can replace it, and that is on record for ever.
#[test]
fn a_lost_key_is_replaced_and_the_ledger_tells_for_ever() {
    let place = Place::new();
    note(&place.ledger(), 1);
    let first = checkpoint(&place);
    let refused = place.ledger().replace_lost_key(&place.state);
    assert!(matches!(refused, Err(SigningError::NotLost)), "{refused:?}");
    assert_eq!(place.verified().keys_lost, [0; 0]);
    std::fs::remove_dir_all(place.state.path().join("ledger-key")).unwrap();
    note(&place.ledger(), 2);
    assert!(place.ledger().checkpoint(&place.state).is_err());
    let key = place.ledger().replace_lost_key(&place.state).unwrap();
    let verified = place.verified();
    assert_eq!(
        (verified.checkpoint, verified.keys_lost),
        (Some(3), vec![2])
    );
    assert_eq!(Ledger::key(&place.state).unwrap(), key);
    assert_eq!(place.events()[2].body["checkpoint"], first.text());
    note(&place.ledger(), 3);
    let last = checkpoint(&place);
    assert_eq!(verify(&place, None, &[&last]), []);
    assert_eq!(place.verified().keys_lost, [2]);
    // A witness of before is not satisfied by it.
    assert!(!verify(&place, None, &[&first]).is_empty());
}

/// Whatever fails and whenever the power goes, the ledger has a key that signs it, and earlier
/// signatures still count.
#[test]
fn a_hand_over_that_is_cut_short_is_finished_or_taken_back() {
    let work = |failing| {
        let place = Place::new();
        note(&place.ledger(), 1);
        let (first, before) = (Ledger::key(&place.state).unwrap(), checkpoint(&place));
        let ledger = place.ledger();
        watch(place.state.path(), failing);
        let rotated = ledger.rotate_key(&place.state);
        let (steps, operations) = finish();
        (place, first, before, rotated, steps, operations)
    };
    let goes_on = |place: &Place, first: &VerifierKey, before: &Checkpoint, what: &str| {
        note(&place.ledger(), 2);
        let after = place.ledger().checkpoint(&place.state);
        let after = after.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(verify(place, None, &[before, &after]), [], "{what}");
        assert_eq!(verify(place, Some(first), &[before, &after]), [], "{what}");
        assert!(!key_file(place, "key.next").exists(), "{what}");
        place.ledger().rotate_key(&place.state).unwrap();
        assert_eq!(verify(place, Some(first), &[before, &after]), [], "{what}");
    };
    let (_, _, _, rotated, _, operations) = work(None);
    assert!(rotated.is_ok() && operations > 10, "{operations}");
    for at in 0..operations {
        let failing = Some((at..at + 1, Failure::Error(rustix::io::Errno::IO)));
        let (place, first, before, _, _, _) = work(failing);
        goes_on(&place, &first, &before, &format!("failed at {at}"));
    }
    let (_, first, before, _, steps, _) = work(None);
    let (mut disk, mut dice, mut has_begun) = (Disk::default(), Dice(1), false);
    for (number, step) in steps.iter().enumerate() {
        disk.step(step, &mut dice);
        has_begun |= matches!(step, super::power::Step::Begun);
        for time in 0..if has_begun { 6 } else { 0 } {
            let temporary = tempfile::tempdir().unwrap();
            let path = temporary.path().join("state");
            disk.clone()
                .cut_power(&mut Dice(number as u64 * 7 + time), &path);
            let state = StateDir::open(&path).unwrap();
            let place = Place {
                _temporary: temporary,
                state,
            };
            goes_on(
                &place,
                &first,
                &before,
                &format!("cut after {number} ({time}), {step:?}"),
            );
        }
    }
}
