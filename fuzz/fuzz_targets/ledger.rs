//! The ledger's reader and verifier. The first byte chooses what the rest is: a
//! segment with or without the head of a sound ledger, changes to a sound
//! segment, or events whose hashes are made right.

#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use atoll_ledger::{
    Durability, Filter, Ledger, LedgerError, Severity, StateDir, TreeHash, Verified, VerifyError,
};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use tempfile::TempDir;

/// What stands for the hash of the event before, where hashes are made right.
const PREV: &[u8] = b"@";
const SEGMENT: &str = "000001.seg";

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else {
        return;
    };
    let place = Place::get();
    let append = choice & 4 != 0;
    match choice & 3 {
        0 => place.check(bytes, false, append),
        1 => place.check(bytes, true, append),
        2 => place.check(&changed(&place.segment, bytes), true, append),
        _ => place.check(&hashed(bytes), false, append),
    }
});

/// A state directory, and the files of a small sound ledger.
struct Place {
    _temporary: TempDir,
    state: StateDir,
    directory: PathBuf,
    segment: Vec<u8>,
    head: Vec<u8>,
}

impl Place {
    fn get() -> &'static Self {
        static PLACE: OnceLock<Place> = OnceLock::new();
        PLACE.get_or_init(Self::new)
    }

    fn new() -> Self {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let path = temporary.path().join("state");
        let state = StateDir::open(&path).expect("a state directory");
        let ledger = atoll_store::open_ledger(&state, SystemTime::now).expect("a ledger");
        for number in 0..3 {
            let body = json!({ "number": number, "text": "ö\"\\\u{1}" });
            append(&ledger, body).expect("an event");
        }
        let directory = path.join("ledger");
        let read = |name: &str| fs::read(directory.join(name)).expect("a file of the ledger");
        let (segment, head) = (read(SEGMENT), read("head"));
        Self {
            _temporary: temporary,
            state,
            directory,
            segment,
            head,
        }
    }

    fn check(&self, segment: &[u8], with_head: bool, append: bool) {
        self.set_up(segment, with_head);
        let before = self.verify();
        if with_head && before == Health::Sound {
            assert!(segment.starts_with(&self.segment), "a change is not found");
        }
        if let Health::Sound | Health::Unprovable = before {
            assert_all_canonical(segment);
        }
        self.read(before == Health::Sound);
        if append {
            self.append_to(segment, with_head, before);
        }
    }

    /// Exactly these files, and none that an append has left.
    fn set_up(&self, segment: &[u8], with_head: bool) {
        let listed = fs::read_dir(&self.directory).expect("the ledger's directory");
        for entry in listed.flatten() {
            let name = entry.file_name();
            let kept = name == "lock" || name == "recovery" || name == SEGMENT;
            if !kept {
                fs::remove_file(entry.path()).expect("an old file is removed");
            }
        }
        write(&self.directory.join(SEGMENT), segment);
        if with_head {
            write(&self.directory.join("head"), &self.head);
        }
    }

    fn verify(&self) -> Health {
        match Ledger::verify(&self.state) {
            Ok(Verified { .. }) => Health::Sound,
            Err(VerifyError::Damaged(report)) => {
                let _ = report.to_string();
                let only_the_head = report
                    .damage
                    .iter()
                    .all(|damage| damage.severity == Severity::Unprovable);
                if only_the_head {
                    Health::Unprovable
                } else {
                    Health::Damaged
                }
            }
            Err(VerifyError::Unreadable(error)) => panic!("{error}"),
        }
    }

    /// Reads all events; those of a sound ledger are a chain.
    fn read(&self, sound: bool) {
        let events = Ledger::events(&self.state, Filter::default()).expect("events");
        let mut prev = TreeHash::ZERO;
        for (index, event) in events.enumerate() {
            let Ok(event) = event else {
                assert!(!sound, "{event:?}");
                continue;
            };
            let canonical = event.canonical().expect("what was read has a form");
            assert_eq!(TreeHash::of_leaf(&canonical), event.position.leaf);
            if sound {
                assert_eq!((event.position.seq, event.prev), (index as u64, prev));
            }
            prev = event.position.leaf;
        }
        let last = Ledger::tail(&self.state, 2).expect("the last events");
        assert!(last.count() <= 2 || !sound);
    }

    /// Goes on after whatever is there: damage stays visible, but for an end that
    /// nobody has acknowledged, and nothing sound is lost.
    fn append_to(&self, segment: &[u8], with_head: bool, before: Health) {
        let appended = atoll_store::open_ledger(&self.state, SystemTime::now)
            .and_then(|ledger| append(&ledger, json!({ "number": 9 })));
        let after = self.verify();
        match appended {
            Ok(()) => {
                let text = fs::read(self.directory.join(SEGMENT)).expect("the segment");
                let acknowledged = with_head && segment.starts_with(&self.segment);
                if acknowledged {
                    assert!(text.starts_with(&self.segment), "sound events are lost");
                }
                match before {
                    Health::Sound if with_head => assert_eq!(after, Health::Sound),
                    // The head is older than any segment, so without one it is lost.
                    Health::Sound => assert_ne!(after, Health::Unprovable),
                    Health::Damaged if acknowledged => {}
                    Health::Damaged | Health::Unprovable => assert_eq!(after, Health::Damaged),
                }
            }
            Err(LedgerError::Damaged { .. }) => assert_ne!(before, Health::Sound),
            Err(error) => panic!("{error}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Sound,
    /// All but the head is sound.
    Unprovable,
    Damaged,
}

fn append(ledger: &Ledger, body: Value) -> Result<(), LedgerError> {
    ledger
        .record(None, "test.noted", body, Durability::Durable)
        .map(drop)
}

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("a file is written");
}

/// A sound segment with some bytes changed, removed or put in: three bytes say
/// where and what, one of them how.
fn changed(sound: &[u8], changes: &[u8]) -> Vec<u8> {
    let mut changed = sound.to_vec();
    for change in changes.chunks_exact(4) {
        let [high, low, how, what] = change else {
            continue;
        };
        let at = usize::from(u16::from_be_bytes([*high, *low])) % (changed.len() + 1);
        match (how % 4, changed.get_mut(at)) {
            (0, Some(byte)) => *byte ^= 1 << (what % 8),
            (1, Some(_)) => drop(changed.drain(at..=at)),
            (2, _) => changed.insert(at, *what),
            _ => changed.truncate(at),
        }
    }
    changed
}

/// Lines of a segment from bare events, each with its hash, the hash of the
/// event before it in the place of an `@`.
fn hashed(events: &[u8]) -> Vec<u8> {
    let mut segment = Vec::new();
    let mut prev = TreeHash::ZERO;
    for event in events.split(|byte| *byte == b'\n') {
        let mut whole = Vec::new();
        for (index, part) in event.split(|byte| PREV.contains(byte)).enumerate() {
            if index > 0 {
                whole.extend_from_slice(prev.to_string().as_bytes());
            }
            whole.extend_from_slice(part);
        }
        prev = TreeHash::of_leaf(&whole);
        segment.extend_from_slice(format!("{prev} ").as_bytes());
        segment.extend_from_slice(&whole);
        segment.push(b'\n');
    }
    segment
}

/// The verifier of docs/ledger.md, as far as it looks at one line.
fn assert_all_canonical(segment: &[u8]) {
    let complete = segment.split_inclusive(|byte| *byte == b'\n');
    for line in complete.filter_map(|line| line.strip_suffix(b"\n")) {
        let (leaf, event) = line.split_at_checked(65).expect("a hash");
        assert_eq!(format!("{} ", TreeHash::of_leaf(event)).as_bytes(), leaf);
        let value: Value = serde_json::from_slice(event).expect("JSON");
        let again = serde_json::to_vec(&value).expect("JSON");
        assert_eq!(
            String::from_utf8_lossy(&again),
            String::from_utf8_lossy(event)
        );
    }
}
