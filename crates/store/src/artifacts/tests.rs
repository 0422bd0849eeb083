use std::time::SystemTime;

use atoll_model::OutputsRule;

use super::*;

struct World {
    _directory: tempfile::TempDir,
    state: StateDir,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        Self {
            _directory: directory,
            state,
        }
    }

    fn store(&self) -> Artifacts {
        Artifacts::open(&self.state, true).unwrap().unwrap()
    }

    fn deposit(&self, run: &RunId, tenant: Option<&str>, files: &[(&str, &[u8])]) {
        let mut store = self.store();
        let origin = ArtifactOrigin {
            run: run.clone(),
            tenant: tenant.map(str::to_owned),
            sandbox: None,
            session: None,
            interrupted: false,
            rule: OutputsRule::Hold,
        };
        let mut deposit = store.begin(origin).unwrap();
        for (name, content) in files {
            let mut content: &[u8] = content;
            deposit.add(name.as_bytes().to_vec(), &mut content).unwrap();
        }
        deposit.sync().unwrap();
        store
            .keep(deposit, 7, "{}", SystemTime::UNIX_EPOCH)
            .unwrap();
    }
}

fn run(number: u32) -> RunId {
    RunId::new(1_700_000_000, number)
}

fn read(store: &Artifacts, artifact: &Artifact) -> Result<Vec<u8>, ArtifactError> {
    let mut content = Vec::new();
    store.read(artifact, &mut content).map(|()| content)
}

fn of(tenant: Option<&str>) -> ArtifactFilter {
    ArtifactFilter {
        tenant: tenant.map(str::to_owned),
        ..ArtifactFilter::default()
    }
}

#[test]
fn what_is_put_away_comes_back_as_it_was() {
    let world = World::new();
    let chunk = vec![0; 1 << 20];
    let more = vec![255; (1 << 20) + 1];
    let files: [(&str, &[u8]); 5] = [
        ("empty", b""),
        ("text", "gr\u{fc}n".as_bytes()),
        ("chunk", &chunk),
        ("more", &more),
        ("page.png", b"<html><body>no picture</body></html>"),
    ];
    world.deposit(&run(1), None, &files);
    let store = world.store();
    let all = store.list(&of(None)).unwrap();
    assert_eq!(all.len(), files.len());
    for (artifact, (name, content)) in all.iter().zip(files) {
        assert_eq!(artifact.name, name.as_bytes());
        assert_eq!(artifact.bytes, content.len() as u64);
        assert_eq!(artifact.state, ArtifactState::Held);
        assert_eq!(read(&store, artifact).unwrap(), content, "{name}");
        assert_eq!(artifact.blake3, blake3::hash(content).to_hex().as_str());
    }
    let media: Vec<_> = all.iter().map(|one| one.media.as_str()).collect();
    assert_eq!(
        media,
        [
            "application/x-empty",
            "text/plain",
            "application/octet-stream",
            "application/octet-stream",
            "text/html"
        ]
    );
}

#[test]
fn content_is_not_in_the_files() {
    let world = World::new();
    let secret = b"what only the key's owner reads".repeat(10);
    world.deposit(&run(1), None, &[("a", &secret)]);
    let directory = world.state.path().join(ARTIFACTS);
    for entry in std::fs::read_dir(directory).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(16).any(|part| part == &secret[..16]));
    }
}

#[test]
fn what_was_changed_on_the_disk_is_refused() {
    let world = World::new();
    world.deposit(&run(1), None, &[("a", b"content"), ("b", b"other")]);
    let store = world.store();
    let all = store.list(&of(None)).unwrap();
    let pack = store.pack(&run(1));
    let whole = std::fs::read(&pack).unwrap();
    for place in 0..whole.len() {
        let mut other = whole.clone();
        other[place] ^= 1;
        std::fs::write(&pack, other).unwrap();
        let failed = all.iter().filter(|one| read(&store, one).is_err());
        assert_eq!(failed.count(), 1, "at {place}");
    }
    // Cut off, and each in the other's place.
    std::fs::write(&pack, &whole[..whole.len() - 1]).unwrap();
    assert!(read(&store, &all[1]).is_err());
    std::fs::write(&pack, &whole).unwrap();
    let swapped = Artifact {
        at_byte: all[1].at_byte,
        sealed_bytes: all[1].sealed_bytes,
        ..all[0].clone()
    };
    assert!(read(&store, &swapped).is_err());
    let other_key = Artifact {
        key: all[1].key.clone(),
        ..all[0].clone()
    };
    assert!(read(&store, &other_key).is_err());
}

#[test]
fn an_artifact_cut_at_a_chunk_does_not_open() {
    let world = World::new();
    let content = vec![1; 3 << 20];
    world.deposit(&run(1), None, &[("a", &content)]);
    let store = world.store();
    let artifact = &store.list(&of(None)).unwrap()[0];
    let cut = Artifact {
        sealed_bytes: 2 * ((1 << 20) + 16),
        ..artifact.clone()
    };
    assert!(read(&store, artifact).is_ok());
    assert!(read(&store, &cut).is_err());
}

#[test]
fn tenants_see_their_own() {
    let world = World::new();
    world.deposit(&run(1), Some("a"), &[("x", b"1")]);
    world.deposit(&run(2), Some("b"), &[("x", b"2")]);
    world.deposit(&run(3), None, &[("x", b"3")]);
    let store = world.store();
    for tenant in [Some("a"), Some("b"), None] {
        let all = store.list(&of(tenant)).unwrap();
        assert_eq!(all.len(), 1, "{tenant:?}");
        let id = &all[0].id;
        for other in [Some("a"), Some("b"), None, Some("")] {
            let found = store.find(id, other).unwrap();
            assert_eq!(found.len(), usize::from(other == tenant), "{other:?}");
        }
    }
}

#[test]
fn a_decision_is_made_once() {
    let world = World::new();
    world.deposit(&run(1), None, &[("x", b"1")]);
    let store = world.store();
    let artifact = store.list(&of(None)).unwrap().remove(0);
    let decision = ArtifactDecision {
        at_ms: 5,
        by: "anna".to_owned(),
        why: None,
    };
    assert!(
        store
            .decide(&artifact, ArtifactState::Rejected, &decision)
            .unwrap()
    );
    assert!(
        !store
            .decide(&artifact, ArtifactState::Promoted, &decision)
            .unwrap()
    );
    let now = store.find(&artifact.id[..6], None).unwrap().remove(0);
    assert_eq!(now.state, ArtifactState::Rejected);
    assert_eq!(now.decision, Some(decision));
}

#[test]
fn what_is_destroyed_is_read_by_nobody_and_leaves_its_digest() {
    let world = World::new();
    let content = b"content".repeat(10_000);
    world.deposit(&run(1), None, &[("x", &content), ("y", b"too")]);
    world.deposit(&run(2), None, &[("z", b"stays")]);
    let store = world.store();
    let all = store.list(&of(None)).unwrap();
    let of_run = |one: &&Artifact| one.origin.run == run(1);
    let wrapped: Vec<_> = all
        .iter()
        .filter(of_run)
        .map(|one| one.key.clone().unwrap())
        .collect();
    world.deposit(&run(3), Some("t"), &[("x", b"12345"), ("y", b"678")]);
    assert_eq!(store.bytes_of("t").unwrap(), 8);
    store.destroy(&run(3)).unwrap();
    assert_eq!(store.bytes_of("t").unwrap(), 0);
    assert_eq!(store.runs().unwrap().len(), 2);
    store.destroy(&run(1)).unwrap();
    store.destroy(&run(1)).unwrap();
    assert_eq!(store.runs().unwrap(), [run(2)]);
    let after = store.list(&of(None)).unwrap();
    for (before, now) in all.iter().zip(&after) {
        assert_eq!(now.blake3, before.blake3);
        let is_there = read(&store, now);
        match now.origin.run != run(2) {
            true => assert!(matches!(is_there, Err(ArtifactError::Destroyed(_)))),
            false => assert_eq!(is_there.unwrap(), b"stays"),
        }
    }
    for entry in std::fs::read_dir(world.state.path().join(ARTIFACTS)).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        for key in &wrapped {
            assert!(!bytes.windows(key.len()).any(|part| part == key));
        }
    }
}

#[test]
fn a_deposit_that_was_cut_short_leaves_nothing() {
    let world = World::new();
    let store = world.store();
    let origin = ArtifactOrigin {
        run: run(1),
        tenant: None,
        sandbox: None,
        session: None,
        interrupted: false,
        rule: OutputsRule::Hold,
    };
    let mut deposit = store.begin(origin).unwrap();
    deposit.add(b"x".to_vec(), &mut &b"half"[..]).unwrap();
    assert!(store.pack(&run(1)).exists());
    drop(deposit);
    assert!(!store.pack(&run(1)).exists());
    assert!(store.list(&of(None)).unwrap().is_empty());
    assert!(!store.has(&run(1)).unwrap());
    world.deposit(&run(1), None, &[("x", b"whole")]);
    let all = store.list(&of(None)).unwrap();
    assert_eq!(read(&store, &all[0]).unwrap(), b"whole");
}
