use super::*;
use crate::note::SigningKey;

fn checkpoint(place: &Place) -> Checkpoint {
    place.ledger().checkpoint(&place.state).unwrap()
}

fn refused(place: &Place) -> String {
    match place.ledger().checkpoint(&place.state) {
        Ok(made) => panic!("a checkpoint was made: {made:?}"),
        Err(error) => error.to_string(),
    }
}

fn add(place: &Place, events: u64) {
    let ledger = place.ledger();
    for number in 0..events {
        note(&ledger, number);
    }
}

/// Makes the file of a witness that was given these checkpoints.
fn witness(checkpoints: &[&Checkpoint]) -> WitnessFile {
    let texts = checkpoints.iter().map(|one| format!("{}\n", one.text()));
    WitnessFile {
        name: "witness".to_owned(),
        content: texts.collect::<String>().into_bytes(),
    }
}

fn damage_by(place: &Place, witnesses: Vec<WitnessFile>) -> Vec<Damage> {
    let against = Against {
        key: None,
        witnesses,
    };
    match Ledger::verify_against(&place.state, &against) {
        Ok(_) => Vec::new(),
        Err(VerifyError::Damaged(report)) => report.damage,
        Err(VerifyError::Unreadable(error)) => panic!("{error}"),
    }
}

fn severities(damage: &[Damage]) -> Vec<Severity> {
    damage.iter().map(|damage| damage.severity).collect()
}

/// Copies the whole state directory, as an attacker who rolls it back would.
fn copy(from: &Path, to: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(to).unwrap();
    let mode = std::fs::metadata(from).unwrap().permissions().mode();
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(mode)).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

struct Kept {
    directory: tempfile::TempDir,
}

impl Kept {
    fn of(place: &Place) -> Self {
        let directory = tempfile::tempdir().unwrap();
        copy(place.state.path(), &directory.path().join("state"));
        Self { directory }
    }

    fn put_back(&self, place: &Place) {
        for entry in std::fs::read_dir(place.state.path()).unwrap() {
            std::fs::remove_dir_all(entry.unwrap().path()).unwrap();
        }
        copy(&self.directory.path().join("state"), place.state.path());
    }
}

/// The example of Go's package for signed notes (golang.org/x/mod/sumdb/note).
#[test]
fn keys_are_those_of_signed_notes() {
    let private = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
    let public = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    let key = SigningKey::parse(&format!("{private}\n")).unwrap();
    assert_eq!(key.verifier().to_string(), public);
    assert_eq!(VerifierKey::parse(public).as_ref(), Ok(key.verifier()));
    for wrong in [
        "",
        "PeterNeumann",
        "PeterNeumann+c74f20a3",
        "PeterNeumann+c74f20a4+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        "PeterNeumanN+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        "PeterNeumann+c74f20a3+BBpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10T",
        "Peter Neumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
    ] {
        assert!(VerifierKey::parse(wrong).is_err(), "{wrong}");
        assert!(SigningKey::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_checkpoint_signs_size_and_root() {
    let place = Place::new();
    assert!(matches!(
        place.ledger().checkpoint(&place.state),
        Err(SigningError::Empty)
    ));
    assert_eq!(place.verified().checkpoint, None);
    add(&place, 5);
    assert_eq!(place.verified().checkpoint, None);
    let made = checkpoint(&place);
    let verified = place.verified();
    assert_eq!((made.size(), made.root()), (5, verified.root));
    assert_eq!(verified.checkpoint, Some(5));
    let key = Ledger::key(&place.state).unwrap();
    assert_eq!(Checkpoint::open(made.text(), &key).as_ref(), Ok(&made));
    let kept = std::fs::read_to_string(place.file("checkpoint")).unwrap();
    assert_eq!(kept, made.text());
    assert_eq!(made.text().lines().next(), Some(key.name()));
    // Nothing came since, so it is the same one.
    assert_eq!(checkpoint(&place), made);
    use std::os::unix::fs::PermissionsExt;
    let private = place.state.path().join("ledger-key/key");
    let mode = std::fs::metadata(private).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn checkpoints_grow_with_the_ledger_across_segments_and_processes() {
    let place = Place::new();
    for round in 1..40 {
        let ledger = place.ledger_in_small_segments();
        for number in 0..round % 7 + 1 {
            note(&ledger, number);
        }
        let made = ledger.checkpoint(&place.state).unwrap();
        let verified = place.verified();
        assert_eq!((made.size(), made.root()), (verified.events, verified.root));
        assert_eq!(verified.checkpoint, Some(verified.events));
    }
    assert!(place.verified().segments > 10);
}

/// The saved frontier saves reading, and is trusted only as far as it was signed.
#[test]
fn what_is_kept_of_the_tree_can_be_lost_or_wrong() {
    let contents: [Option<&dyn Fn(String) -> String>; 5] = [
        None,
        Some(&|_| String::new()),
        Some(&|kept| kept.replace('a', "b")),
        Some(&|kept| kept[..kept.len() / 2].to_owned()),
        Some(&|_| "another file\n".to_owned()),
    ];
    for content in contents {
        let place = Place::new();
        add(&place, 9);
        checkpoint(&place);
        add(&place, 4);
        let path = place.file("frontier");
        let kept = std::fs::read_to_string(&path).unwrap();
        match content {
            None => std::fs::remove_file(&path).unwrap(),
            Some(change) => std::fs::write(&path, change(kept.clone())).unwrap(),
        }
        let made = checkpoint(&place);
        assert_eq!((made.size(), made.root()), (13, place.verified().root));
        assert_ne!(std::fs::read_to_string(&path).unwrap(), kept);
    }
    // That of another ledger is well-formed, and leads nowhere.
    let (place, other) = (Place::new(), Place::new());
    for one in [&place, &other] {
        add(one, 9);
        checkpoint(one);
    }
    std::fs::copy(other.file("frontier"), place.file("frontier")).unwrap();
    add(&place, 3);
    let made = checkpoint(&place);
    assert_eq!((made.size(), made.root()), (12, place.verified().root));
}

/// With the saved frontier a checkpoint reads only the events that came since: the ones before are
/// for `verify` to check again.
#[test]
fn a_checkpoint_reads_only_what_came_since() {
    let place = Place::new();
    add(&place, 9);
    checkpoint(&place);
    add(&place, 2);
    flip_bit(&place.file("000001.seg"), 100, 0);
    assert_eq!(checkpoint(&place).size(), 11);
    assert!(!place.damage().is_empty());
    add(&place, 1);
    std::fs::remove_file(place.file("frontier")).unwrap();
    let why = refused(&place);
    assert!(why.contains("event 0 is altered"), "{why}");
}

#[test]
fn every_flipped_bit_of_a_checkpoint_is_found() {
    let place = Place::new();
    add(&place, 3);
    let made = checkpoint(&place);
    let path = place.file("checkpoint");
    for byte in 0..made.text().len() {
        for bit in 0..8 {
            flip_bit(&path, byte, bit);
            let damage = place.damage();
            assert_eq!(damage.len(), 1, "bit {bit} of byte {byte}: {damage:?}");
            flip_bit(&path, byte, bit);
        }
        let cut = made.text().floor_char_boundary(byte);
        std::fs::write(&path, &made.text()[..cut]).unwrap();
        match cut {
            // As a loss of power leaves it: there is none, and another one is made.
            0 => assert_eq!(place.verified().checkpoint, None),
            _ => assert!(!place.damage().is_empty(), "cut at {byte}"),
        }
        std::fs::write(&path, made.text()).unwrap();
    }
    assert_eq!(place.verified().checkpoint, Some(3));
    std::fs::write(&path, "").unwrap();
    assert_eq!(checkpoint(&place).text(), made.text());
    assert_eq!(place.verified().checkpoint, Some(3));
}

#[test]
fn a_checkpoint_of_another_key_is_damage_and_is_not_replaced() {
    let (place, other) = (Place::new(), Place::new());
    for one in [&place, &other] {
        add(one, 3);
        checkpoint(one);
    }
    let foreign = std::fs::read(other.file("checkpoint")).unwrap();
    std::fs::write(place.file("checkpoint"), &foreign).unwrap();
    let damage = place.damage();
    assert_eq!(severities(&damage), [Severity::Foreign]);
    assert!(damage[0].what.contains("by another key"), "{damage:?}");
    add(&place, 1);
    let why = refused(&place);
    assert!(why.contains("by a key that is not here"), "{why}");
    assert_eq!(std::fs::read(place.file("checkpoint")).unwrap(), foreign);
    // The same where the key was taken away, and another one made instead.
    let key = other.state.path().join("ledger-key");
    std::fs::remove_dir_all(&key).unwrap();
    assert_eq!(severities(&other.damage()), [Severity::Unprovable]);
    let key = Ledger::key(&other.state);
    assert!(matches!(key, Err(SigningError::OtherKey)), "{key:?}");
    assert!(refused(&other).contains("by a key that is not here"));
    assert_eq!(severities(&other.damage()), [Severity::Foreign]);
}

/// One key, two ledgers: a name tells them apart.
#[test]
fn a_checkpoint_of_another_ledger_is_none_of_this_one() {
    let seed = [7; 32];
    let (one, two) = (
        SigningKey::of("one", &seed).unwrap(),
        SigningKey::of("two", &seed).unwrap(),
    );
    let made = one.sign(3, TreeHash::ZERO);
    assert!(Checkpoint::open(made.text(), one.verifier()).is_ok());
    assert!(Checkpoint::open(made.text(), two.verifier()).is_err());
    let renamed = made.text().replacen("one\n", "two\n", 1);
    assert!(Checkpoint::open(&renamed, one.verifier()).is_err());
    // Lines that witnesses or a later release add are passed over, but only well-formed ones.
    let more = |line: &str| format!("{}{line}\n", made.text());
    let cosigned = more("\u{2014} witness.example AAAAAAAA");
    assert!(Checkpoint::open(&cosigned, one.verifier()).is_ok());
    for wrong in [
        "",
        "words",
        "\u{2014} witness.example",
        "\u{2014} witness.example AA!",
    ] {
        assert!(Checkpoint::open(&more(wrong), one.verifier()).is_err());
    }
}

#[test]
fn a_checkpoint_that_is_not_of_these_events_is_damage() {
    // Cut: the head goes with it, so that nothing else tells.
    let place = Place::new();
    add(&place, 3);
    let segment = std::fs::read(place.file("000001.seg")).unwrap();
    let head = std::fs::read(place.file("head")).unwrap();
    add(&place, 2);
    checkpoint(&place);
    std::fs::write(place.file("000001.seg"), segment).unwrap();
    std::fs::write(place.file("head"), head).unwrap();
    assert_eq!(severities(&place.damage()), [Severity::Lost]);
    assert!(refused(&place).contains("ends after 3 events, and 5 were signed"));
    // Grown again, with other events.
    add(&place, 4);
    assert_eq!(severities(&place.damage()), [Severity::Altered]);
    assert!(refused(&place).contains("others than those that were signed"));
    // Without the checkpoint it is a sound ledger: the positive control.
    std::fs::remove_file(place.file("checkpoint")).unwrap();
    place.verified();
}

/// The head is not synced as the checkpoint is.
#[test]
fn a_head_that_a_loss_of_power_left_behind_is_no_damage() {
    let place = Place::new();
    add(&place, 3);
    checkpoint(&place);
    let head = std::fs::read(place.file("head")).unwrap();
    add(&place, 2);
    let made = checkpoint(&place);
    std::fs::write(place.file("head"), head).unwrap();
    assert_eq!(place.verified().checkpoint, Some(5));
    assert_eq!(checkpoint(&place), made);
    add(&place, 1);
    assert_eq!(checkpoint(&place).size(), 6);
    assert_eq!(place.verified().checkpoint, Some(6));
}

#[test]
fn a_rolled_back_state_is_found_by_a_witness_alone() {
    let place = Place::new();
    add(&place, 4);
    let first = checkpoint(&place);
    let kept = Kept::of(&place);
    add(&place, 3);
    let second = checkpoint(&place);
    let witness = || vec![witness(&[&first, &second])];
    assert_eq!(damage_by(&place, witness()), []);
    kept.put_back(&place);
    // All fits: whoever has only the state cannot know.
    assert_eq!(place.verified().checkpoint, Some(4));
    let damage = damage_by(&place, witness());
    assert_eq!(severities(&damage), [Severity::Lost]);
    assert!(
        damage[0].what.contains("7 events were signed"),
        "{damage:?}"
    );
    // And going on from there makes a fork of it.
    add(&place, 5);
    checkpoint(&place);
    assert_eq!(place.verified().checkpoint, Some(9));
    let damage = damage_by(&place, witness());
    assert_eq!(severities(&damage), [Severity::Altered]);
    assert!(damage[0].what.contains("is a fork"), "{damage:?}");
    assert_eq!(damage[0].place.line, Some(7));
}

/// Whoever has the state has the key as well, and can sign another past.
#[test]
fn a_rewritten_and_newly_signed_ledger_is_found_by_a_witness_alone() {
    let (place, other) = (Place::new(), Place::new());
    add(&place, 4);
    let witnessed = checkpoint(&place);
    add(&other, 6);
    for name in ["000001.seg", "head"] {
        std::fs::copy(other.file(name), place.file(name)).unwrap();
    }
    for name in ["checkpoint", "frontier"] {
        std::fs::remove_file(place.file(name)).unwrap();
    }
    checkpoint(&place);
    assert_eq!(place.verified().checkpoint, Some(6));
    let damage = damage_by(&place, vec![witness(&[&witnessed])]);
    assert_eq!(severities(&damage), [Severity::Altered]);
}

#[test]
fn an_earlier_checkpoint_put_back_is_true_and_is_followed_by_the_next() {
    let place = Place::new();
    add(&place, 4);
    let first = checkpoint(&place);
    add(&place, 3);
    let second = checkpoint(&place);
    std::fs::write(place.file("checkpoint"), first.text()).unwrap();
    assert_eq!(place.verified().checkpoint, Some(4));
    assert_eq!(checkpoint(&place), second);
}

#[test]
fn what_a_witness_has_is_held_against_the_ledger() {
    let place = Place::new();
    add(&place, 2);
    let path = place.state.path().join("witness");
    let mut made = Vec::new();
    for _ in 0..3 {
        add(&place, 3);
        let one = checkpoint(&place);
        add_to_witness(&path, &one).unwrap();
        // The same again is not another.
        add_to_witness(&path, &one).unwrap();
        made.push(one);
    }
    let file = WitnessFile::read(&path).unwrap();
    let against = |file: &WitnessFile| Against {
        key: None,
        witnesses: vec![file.clone()],
    };
    let verified = Ledger::verify_against(&place.state, &against(&file)).unwrap();
    assert_eq!(verified.witnessed, 3);
    // What is no checkpoint of this ledger is not passed over.
    let other = Place::new();
    add(&other, 5);
    let foreign = witness(&[&made[0], &checkpoint(&other)]);
    assert_eq!(
        severities(&damage_by(&place, vec![foreign])),
        [Severity::Foreign]
    );
    for (wrong, severity) in [
        ("words\n", Severity::Altered),
        ("\n\n\nwords\n\n", Severity::Altered),
        // Whatever it says, it is nothing that this ledger's key has signed.
        ("a\nb\nc\n\n\u{2014} x AAAAAAAA\n\n", Severity::Foreign),
    ] {
        let mut garbled = file.clone();
        garbled.content.extend_from_slice(wrong.as_bytes());
        let damage = damage_by(&place, vec![garbled]);
        assert_eq!(severities(&damage), [severity], "{wrong:?}");
    }
    // A writer died within a record: that one is told, those after it stand.
    let mut bytes = file.content.clone();
    bytes.truncate(bytes.len() - 30);
    std::fs::write(&path, &bytes).unwrap();
    add_to_witness(&path, &made[2]).unwrap();
    let torn = WitnessFile::read(&path).unwrap();
    assert_eq!(torn.notes().len(), 4);
    let damage = damage_by(&place, vec![torn]);
    assert_eq!(severities(&damage), [Severity::Altered]);
    assert_eq!(damage[0].place.line, Some(13));
}

#[test]
fn who_the_witness_is_is_kept_whatever_its_name() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    let place = Place::new();
    assert_eq!(Witness::read(&place.state).unwrap(), None);
    let odd = OsString::from_vec(b"/mnt/\xff".to_vec());
    for witness in [
        Witness::File("/mnt/witness".into()),
        Witness::File(odd.clone().into()),
        Witness::Command(vec!["ssh".into(), "host".into(), odd]),
    ] {
        Witness::keep(&place.state, Some(&witness)).unwrap();
        assert_eq!(Witness::read(&place.state).unwrap(), Some(witness));
    }
    let path = place.state.path().join("ledger-key/witness");
    for wrong in ["", "{}", "{\"file\":1}", "{\"file\":\"a\",\"command\":[]}"] {
        std::fs::write(&path, wrong).unwrap();
        assert!(Witness::read(&place.state).is_err(), "{wrong}");
    }
    Witness::keep(&place.state, None).unwrap();
    assert_eq!(Witness::read(&place.state).unwrap(), None);
}

/// Every moment at which the writing of a checkpoint can be cut short leaves the one before or
/// the new one, whole, and the next is made.
#[test]
fn a_checkpoint_that_is_cut_short_leaves_the_one_before() {
    let place = Place::new();
    add(&place, 4);
    checkpoint(&place);
    let before = Kept::of(&place);
    add(&place, 2);
    let appended = Kept::of(&place);
    let new = checkpoint(&place);
    let frontier = std::fs::read(place.file("frontier")).unwrap();
    for length in 0..=new.text().len() {
        // Written in part under the other name, or as a whole and not renamed.
        appended.put_back(&place);
        std::fs::write(
            place.file("checkpoint.new"),
            &new.text().as_bytes()[..length],
        )
        .unwrap();
        assert_eq!(place.verified().checkpoint, Some(4));
        assert_eq!(checkpoint(&place), new);
        assert!(!place.file("checkpoint.new").exists());
    }
    for length in 0..=frontier.len() {
        // Renamed, and what is kept of the tree not yet, or in part.
        appended.put_back(&place);
        std::fs::write(place.file("checkpoint"), new.text()).unwrap();
        std::fs::write(place.file("frontier"), &frontier[..length]).unwrap();
        assert_eq!(place.verified().checkpoint, Some(6));
        add(&place, 1);
        assert_eq!(checkpoint(&place).root(), place.verified().root);
    }
    // The key was made, and no checkpoint yet.
    before.put_back(&place);
    std::fs::remove_file(place.file("checkpoint")).unwrap();
    std::fs::write(place.state.path().join("ledger-key/key.new"), "PRIV").unwrap();
    assert_eq!(checkpoint(&place).size(), 4);
}

/// A directory is in the checkpoint's place: events are as durable as ever.
#[test]
fn a_checkpoint_that_cannot_be_written_loses_no_event() {
    let place = Place::new();
    add(&place, 3);
    let first = checkpoint(&place);
    std::fs::create_dir(place.file("checkpoint.new")).unwrap();
    add(&place, 3);
    assert!(refused(&place).contains("checkpoint.new"));
    let verified = place.verified();
    assert_eq!((verified.events, verified.checkpoint), (6, Some(3)));
    assert_eq!(
        std::fs::read_to_string(place.file("checkpoint")).unwrap(),
        first.text()
    );
    std::fs::remove_dir(place.file("checkpoint.new")).unwrap();
    assert_eq!(checkpoint(&place).size(), 6);
}

#[test]
fn a_key_that_others_can_read_signs_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    add(&place, 1);
    checkpoint(&place);
    add(&place, 1);
    let key = place.state.path().join("ledger-key/key");
    let set = |mode| std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode));
    set(0o640).unwrap();
    assert!(refused(&place).contains("is not yours alone"));
    set(0o600).unwrap();
    assert_eq!(checkpoint(&place).size(), 2);
}

#[test]
fn a_clock_that_is_set_back_changes_nothing() {
    let place = Place::new();
    let clocks: [Clock; 3] = [
        || SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(2_000_000_000),
        || SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000),
        || SystemTime::UNIX_EPOCH,
    ];
    let mut checkpoints = Vec::new();
    for clock in clocks {
        let ledger = Ledger::open(&place.state, clock, &()).unwrap();
        note(&ledger, 0);
        checkpoints.push(ledger.checkpoint(&place.state).unwrap());
    }
    let times: Vec<String> = place.events().into_iter().map(|event| event.time).collect();
    assert!(times[0] > times[1] && times[1] > times[2]);
    let all: Vec<&Checkpoint> = checkpoints.iter().collect();
    assert_eq!(damage_by(&place, vec![witness(&all)]), []);
    assert_eq!(place.verified().checkpoint, Some(3));
}

#[test]
fn many_make_checkpoints_at_once() {
    let place = Place::new();
    let path = place.state.path().join("witness");
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let ledger = place.ledger();
                for number in 0..10 {
                    note(&ledger, number);
                    let made = ledger.checkpoint(&place.state).unwrap();
                    add_to_witness(&path, &made).unwrap();
                }
            });
        }
    });
    assert_eq!(place.verified().checkpoint, Some(60));
    let witnessed = WitnessFile::read(&path).unwrap();
    assert!(witnessed.notes().len() > 10);
    assert_eq!(damage_by(&place, vec![witnessed]), []);
}

/// A chain that does not hold is not signed, whatever a body looks like.
#[test]
fn a_body_is_not_taken_for_a_place_in_the_chain() {
    let prev = TreeHash::of_leaf(b"before");
    let event = |body: &str, prev: TreeHash, seq: u64| {
        format!(
            "{{\"body\":{body},\"prev\":\"{prev}\",\"seq\":{seq},\
             \"time\":\"2026-11-21T09:30:12.123456Z\",\"type\":\"test.noted\",\"v\":1}}"
        )
    };
    let continues = |text: &str| {
        let scanned = crate::scan::scan(text.as_bytes()).unwrap();
        (scanned.prev, scanned.seq) == (prev, 7)
    };
    assert!(continues(&event("{}", prev, 7)));
    assert!(!continues(&event("{}", prev, 8)));
    assert!(!continues(&event("{}", TreeHash::ZERO, 7)));
    let inner = event("{}", prev, 7);
    assert!(!continues(&event(&inner, TreeHash::ZERO, 7)));
    assert!(continues(&event(&inner, prev, 7)));
    let of_run =
        event("{}", prev, 7).replace(",\"seq\"", ",\"run\":\"261121-093012-k7qd\",\"seq\"");
    assert!(continues(&of_run));
}
