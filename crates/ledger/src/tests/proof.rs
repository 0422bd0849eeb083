use super::*;
use crate::merkle::{Tree, is_consistent, root_by_inclusion};

fn leaf(number: u64) -> TreeHash {
    TreeHash::of_leaf(&number.to_be_bytes())
}

/// Returns the root by RFC 6962, section 2.1, to the letter.
fn root_of(leaves: &[TreeHash]) -> TreeHash {
    match leaves {
        [] => TreeHash::of_nothing(),
        [one] => *one,
        more => {
            let mut split = 1;
            while split * 2 < more.len() {
                split *= 2;
            }
            TreeHash::of_node(root_of(&more[..split]), root_of(&more[split..]))
        }
    }
}

fn tree(size: u64) -> Tree {
    let mut tree = Tree::default();
    (0..size).for_each(|number| tree.push(leaf(number)));
    tree
}

#[test]
fn roots_are_those_of_the_rfc() {
    let leaves: Vec<TreeHash> = (0..300).map(leaf).collect();
    let tree = tree(300);
    let mut frontier = crate::hash::Frontier::default();
    for size in 0..=300_u64 {
        let expected = root_of(&leaves[..size as usize]);
        assert_eq!(tree.root_of(size), Some(expected));
        assert_eq!(frontier.root(), expected);
        let subtrees: Vec<TreeHash> = frontier.subtrees().collect();
        let again = crate::hash::Frontier::of_subtrees(size, &subtrees).unwrap();
        assert_eq!(again.root(), expected);
        frontier.push(leaf(size));
    }
    assert_eq!(tree.root_of(301), None);
}

#[test]
fn inclusion_is_proven_for_every_event_and_no_other() {
    let tree = tree(70);
    for size in 1..=70 {
        let root = tree.root_of(size).unwrap();
        assert_eq!(tree.inclusion(size, size), None);
        for index in 0..size {
            let path = tree.inclusion(index, size).unwrap();
            let proves = |leaf, index, size, path: &[TreeHash]| {
                root_by_inclusion(leaf, index, size, path) == Some(root)
            };
            assert!(proves(leaf(index), index, size, &path), "{index} {size}");
            assert!(!proves(leaf(index + 1), index, size, &path));
            assert!(!proves(leaf(index), size, size, &path));
            for other in 0..size {
                assert!(other == index || !proves(leaf(index), other, size, &path));
            }
            for changed in spoilt(&path) {
                assert!(!proves(leaf(index), index, size, &changed));
            }
        }
    }
}

#[test]
fn consistency_is_proven_for_every_beginning_and_no_other() {
    let tree = tree(70);
    let root = |size| tree.root_of(size).unwrap();
    for new in 1..=70 {
        assert_eq!(tree.consistency(0, new), None);
        assert_eq!(tree.consistency(new + 1, new), None);
        for old in 1..=new {
            let path = tree.consistency(old, new).unwrap();
            let (from, to) = ((old, root(old)), (new, root(new)));
            assert!(is_consistent(from, to, &path), "{old} {new}");
            assert!(!is_consistent((old, leaf(0)), to, &path) || old == 1);
            assert!(!is_consistent(from, (new, leaf(99)), &path));
            assert!(!is_consistent((0, from.1), to, &path));
            for changed in spoilt(&path) {
                assert!(!is_consistent(from, to, &changed), "{old} {new}");
            }
        }
    }
}

/// Returns paths with each hash altered, left out, or doubled, and with one too many.
fn spoilt(path: &[TreeHash]) -> Vec<Vec<TreeHash>> {
    let mut all = vec![[path, &[leaf(0)]].concat()];
    for at in 0..path.len() {
        let (mut altered, mut shorter, mut longer) = (path.to_vec(), path.to_vec(), path.to_vec());
        altered[at] = TreeHash::of_leaf(b"other");
        shorter.remove(at);
        longer.insert(at, path[at]);
        all.extend([altered, shorter, longer]);
    }
    all
}

fn filled(events: u64) -> (Place, VerifierKey, Vec<WitnessFile>) {
    let place = Place::new();
    let path = place.state.path().join("witness");
    let ledger = place.ledger_in_small_segments();
    for number in 0..events {
        note(&ledger, number);
        let made = ledger.checkpoint(&place.state).unwrap();
        add_to_witness(&path, &made).unwrap();
    }
    let key = Ledger::key(&place.state).unwrap();
    let noted = vec![WitnessFile::read(&path).unwrap()];
    (place, key, noted)
}

#[test]
fn proofs_hold_without_the_ledger() {
    let (place, key, noted) = filled(21);
    let prover = Prover::read(&place.state).unwrap();
    for event in place.events() {
        let proof = prover.inclusion(&event).unwrap();
        let text = proof.text();
        assert!(text.starts_with("c2sp.org/tlog-proof@v1\nextra "));
        match check_proof(&text, &key, &[], &[]).unwrap() {
            Proven::Inclusion(checked) => assert_eq!(checked, proof),
            Proven::Consistency(_) => panic!("{text}"),
        }
        let mut altered = event.clone();
        altered.body = json!({ "number": 99 });
        assert!(matches!(
            prover.inclusion(&altered),
            Err(ProofFault::Damaged(_))
        ));
    }
    for old in 1..=21 {
        let proof = prover.consistency(old).unwrap();
        match check_proof(&proof.text(), &key, &noted, &[]).unwrap() {
            Proven::Consistency(checked) => assert_eq!(checked, proof),
            Proven::Inclusion(_) => panic!("{old}"),
        }
        assert!(matches!(
            check_proof(&proof.text(), &key, &[], &[]),
            Err(ProofFault::NotNoted(size)) if size == old
        ));
    }
    assert!(matches!(
        prover.consistency(22),
        Err(ProofFault::NotCovered { .. })
    ));
}

#[test]
fn every_changed_byte_of_a_proof_is_found() {
    let (place, key, noted) = filled(7);
    let prover = Prover::read(&place.state).unwrap();
    let event = place.events().remove(4);
    let inclusion = prover.inclusion(&event).unwrap().text();
    let consistency = prover.consistency(5).unwrap().text();
    for text in [inclusion, consistency] {
        check_proof(&text, &key, &noted, &[]).unwrap();
        for at in 0..text.len() {
            for with in [b'A', b'0', b'\n', b' '] {
                let mut changed = text.clone().into_bytes();
                if changed[at] == with {
                    continue;
                }
                changed[at] = with;
                if let Ok(changed) = String::from_utf8(changed) {
                    assert!(
                        check_proof(&changed, &key, &noted, &[]).is_err(),
                        "{changed}"
                    );
                }
            }
            let cut = &text[..text.floor_char_boundary(at)];
            assert!(check_proof(cut, &key, &noted, &[]).is_err(), "cut at {at}");
        }
    }
    let other = Ledger::key(&Place::new().state).unwrap();
    let text = prover.inclusion(&event).unwrap().text();
    assert!(matches!(
        check_proof(&text, &other, &noted, &[]),
        Err(ProofFault::Note(NoteFault::OtherKey(_)))
    ));
}

/// The earlier state of another past is not the beginning of this one.
#[test]
fn a_fork_has_no_proof() {
    let (place, key, noted) = filled(7);
    let path = place.state.path().join("ledger");
    for name in ["checkpoint", "frontier", "head"] {
        std::fs::remove_file(path.join(name)).unwrap();
    }
    for entry in std::fs::read_dir(&path).unwrap().flatten() {
        if entry.path().extension().is_some_and(|end| end == "seg") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let ledger = place.ledger();
    for number in 0..9 {
        note(&ledger, number);
    }
    ledger.checkpoint(&place.state).unwrap();
    let prover = Prover::read(&place.state).unwrap();
    for old in 1..=7 {
        let text = prover.consistency(old).unwrap().text();
        assert!(matches!(
            check_proof(&text, &key, &noted, &[]),
            Err(ProofFault::Fails(_))
        ));
    }
}

#[test]
fn a_damaged_ledger_proves_nothing() {
    let (place, _, _) = filled(7);
    Prover::read(&place.state).unwrap();
    flip_bit(&place.file("000001.seg"), 100, 0);
    assert!(Prover::read(&place.state).is_err());
    flip_bit(&place.file("000001.seg"), 100, 0);
    std::fs::remove_file(place.file("000002.seg")).unwrap();
    assert!(matches!(
        Prover::read(&place.state),
        Err(ProofFault::Damaged(_))
    ));
    let unsigned = Place::new();
    note(&unsigned.ledger(), 0);
    assert!(matches!(
        Prover::read(&unsigned.state),
        Err(ProofFault::NoCheckpoint)
    ));
}

/// Lists all files below a directory, with their sizes.
fn files(directory: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => open.push(path),
                false => {
                    let place = path.strip_prefix(directory).unwrap();
                    let bytes = entry.metadata().unwrap().len();
                    found.push((place.display().to_string(), bytes));
                }
            }
        }
    }
    found.sort();
    found
}

#[test]
fn tiles_are_where_clients_of_tiled_logs_look_for_them() {
    let place = Place::new();
    let ledger = place.ledger();
    let to = tempfile::tempdir().unwrap();
    for number in 0..600 {
        let body = json!({ "number": number });
        ledger
            .record(None, "test.noted", body, Durability::Buffered)
            .unwrap();
    }
    note(&ledger, 600);
    ledger.checkpoint(&place.state).unwrap();
    let exported = export_tiles(&place.state, to.path()).unwrap();
    assert_eq!((exported.tiles, exported.bundles), (4, 3));
    let names: Vec<(String, u64)> = files(to.path())
        .into_iter()
        .filter(|(name, _)| !name.starts_with("tile/entries"))
        .collect();
    let checkpoint = std::fs::read_to_string(place.file("checkpoint")).unwrap();
    let expected = [
        ("checkpoint", checkpoint.len() as u64),
        ("tile/0/000", 8192),
        ("tile/0/001", 8192),
        ("tile/0/002.p/89", 89 * 32),
        ("tile/1/000.p/2", 64),
    ];
    assert_eq!(names, expected.map(|(name, size)| (name.to_owned(), size)));
    // The bundles hold the events, which hash to what is in the tiles.
    let mut leaves = Vec::new();
    for name in ["000", "001", "002.p/89"] {
        let bundle = std::fs::read(to.path().join("tile/entries").join(name)).unwrap();
        let tile = std::fs::read(to.path().join("tile/0").join(name)).unwrap();
        let mut rest = bundle.as_slice();
        for hash in tile.chunks(32) {
            let length = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
            let leaf = TreeHash::of_leaf(&rest[2..2 + length]);
            assert_eq!(leaf.as_bytes(), hash);
            leaves.push(leaf);
            rest = &rest[2 + length..];
        }
        assert!(rest.is_empty());
    }
    assert_eq!(root_of(&leaves), place.verified().root);
    let level = std::fs::read(to.path().join("tile/1/000.p/2")).unwrap();
    assert_eq!(level[..32], root_of(&leaves[..256]).as_bytes()[..]);
    assert_eq!(level[32..], root_of(&leaves[256..512]).as_bytes()[..]);
}

/// The lengths in a bundle have 16 bits.
#[test]
fn every_event_that_is_written_fits_a_bundle_and_an_older_one_is_named() {
    let place = Place::new();
    let first = note(&place.ledger(), 0);
    let body = json!({ "text": "x".repeat(70_000) });
    let told = || {
        let record = place
            .ledger()
            .record(None, "test.noted", body.clone(), Durability::Durable);
        record.unwrap();
        place.ledger().checkpoint(&place.state).unwrap();
        let to = tempfile::tempdir().unwrap();
        let exported = export_tiles(&place.state, to.path()).unwrap();
        (exported, files(to.path()).len())
    };
    let (exported, count) = told();
    assert_eq!(
        (exported.too_large.len(), exported.bundles, count),
        (0, 1, 3)
    );
    // As earlier releases wrote it.
    let segment = place.file("000001.seg");
    let lines = std::fs::read_to_string(&segment).unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    let shorter = lines[1].split_once(' ').unwrap().1;
    let (_, members) = shorter.split_once(",\"prev\"").unwrap();
    let older = format!("{{\"body\":{body},\"prev\"{members}");
    let leaf = TreeHash::of_leaf(older.as_bytes());
    std::fs::write(&segment, format!("{}\n{leaf} {older}\n", lines[0])).unwrap();
    for name in ["head", "checkpoint", "frontier", "settled"] {
        std::fs::remove_file(place.file(name)).unwrap();
    }
    let (exported, count) = told();
    assert_eq!(exported.too_large, [1]);
    assert_eq!((exported.tiles, exported.bundles, count), (1, 0, 2));
    let events = place.events();
    assert_eq!((events[0].position, &events[1].body), (first, &body));
    // That the head is gone is all that is said of it.
    assert_eq!(place.damage().len(), 1);
}
