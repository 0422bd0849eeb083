//! Losses of power and failing disks, at every step of every path that writes the ledger.

use atoll_model::{SessionId, SessionName};
use rustix::io::Errno;

use super::power::{Dice, Disk, Failure, Step, acknowledged, finish, told, watch};
use super::*;
use crate::head::{FoundHead, Head};

/// Makes a directory, in memory if there is such a file system: nothing here relies on a disk.
pub(super) fn temporary() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    // By a name that tests of what is left behind know for a test's own.
    match tempfile::Builder::new()
        .prefix("atoll-e2e-")
        .tempdir_in(memory)
    {
        Ok(directory) => directory,
        Err(_) => tempfile::tempdir().unwrap(),
    }
}

/// A state directory, and how its ledger is written.
pub(super) struct Work {
    temporary: tempfile::TempDir,
    segment_bytes_max: u64,
    boot: char,
    /// Numbers that no two events have.
    numbers: std::cell::Cell<u64>,
}

impl Work {
    pub(super) fn new(segment_bytes_max: u64) -> Self {
        let temporary = temporary();
        StateDir::open(&temporary.path().join("state")).unwrap();
        Self {
            temporary,
            segment_bytes_max,
            boot: 'a',
            numbers: std::cell::Cell::new(1_000),
        }
    }

    /// Returns the number of the next event, which the disk records before it is written.
    fn number(&self) -> u64 {
        let number = self.numbers.get();
        self.numbers.set(number + 1);
        told(number);
        number
    }

    pub(super) fn state(&self) -> StateDir {
        StateDir::open(&self.temporary.path().join("state")).unwrap()
    }

    pub(super) fn ledger(&self, state: &StateDir) -> Result<Ledger, LedgerError> {
        let boot = BootId::of_test(self.boot);
        let journal = Journal::open_as(state, SystemTime::now, boot, self.segment_bytes_max)?;
        Ledger::open_journal(state, journal, &())
    }

    /// Tells the disk how far the ledger was acknowledged just now.
    pub(super) fn acknowledge(&self, state: &StateDir) {
        let path = state.path().join("ledger");
        let directory = std::fs::File::open(&path).unwrap();
        let FoundHead::Sound(head) = Head::read(&directory, &path).unwrap() else {
            panic!("no head after a durable append");
        };
        acknowledged(head.size, head.leaf.to_string());
    }

    /// Appends, signs, and comes back as another process, as the dice say. Whatever fails is
    /// simply not acknowledged.
    fn go_on(&self, dice: &mut Dice, count: usize) {
        let state = self.state();
        let mut ledger = self.ledger(&state).ok();
        for _ in 0..count {
            let Some(open) = &ledger else {
                ledger = self.ledger(&state).ok();
                continue;
            };
            let length = [10, 40, 700, 2_500][dice.below(4)];
            let text = "x".repeat(dice.below(length));
            let body = || json!({ "told": self.number(), "text": text });
            match dice.below(10) {
                0..=2 => {
                    if open
                        .record(None, "test.noted", body(), Durability::Durable)
                        .is_ok()
                    {
                        self.acknowledge(&state);
                    }
                }
                3..=5 => {
                    let _ = open.record(None, "test.noted", body(), Durability::Buffered);
                }
                6 => {
                    let events = (0..dice.below(6) as u64)
                        .map(|_| EventBody::default().number("told", self.number()))
                        .map(|body| ("flow.closed", body));
                    let events: Vec<_> = events.collect();
                    let (is_empty, durable) = (events.is_empty(), dice.below(2) == 0);
                    let durability = match durable {
                        true => Durability::Durable,
                        false => Durability::Buffered,
                    };
                    let told = open.record_flows(&run_id(1), events, durability);
                    if told.is_ok() && durable && !is_empty {
                        self.acknowledge(&state);
                    }
                }
                7 | 8 => {
                    let _ = open.checkpoint(&state);
                }
                _ => ledger = None,
            }
        }
    }
}

const SEGMENTS: [u64; 3] = [1_000, 6_000, 1 << 20];

/// Checks a ledger that went through any of these faults, under the next boot of the kernel: it can
/// be appended to, is without damage, and has everything that was acknowledged.
fn comes_back(state: &Path, segment_bytes_max: u64, disk: &Disk, what: &str) {
    let state = StateDir::open(state).unwrap();
    let boot = BootId::of_test('c');
    let journal = Journal::open_as(&state, SystemTime::now, boot, segment_bytes_max).unwrap();
    let ledger = Ledger::open_journal(&state, journal, &()).unwrap();
    note(&ledger, 1);
    assert_eq!(ledger.losses(), [""; 0], "{what}");
    ledger
        .checkpoint(&state)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    is_whole(&state, disk, what);
}

pub(super) fn is_whole(state: &StateDir, disk: &Disk, what: &str) {
    let verified = Ledger::verify(state).unwrap_or_else(|error| panic!("{what}: {error}"));
    let events: Vec<_> = Ledger::events(state, Filter::default())
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(verified.events, events.len() as u64, "{what}");
    // Whatever was lost or torn: nobody reads what was not handed over, nor in another order,
    // nor twice.
    let mut handed = disk.told.iter();
    for number in events
        .iter()
        .filter_map(|event| event.body["told"].as_u64())
    {
        assert!(handed.any(|told| *told == number), "{what}: {number}");
    }
    if let Some((size, leaf)) = &disk.acknowledged {
        let last = events.get(*size as usize - 1);
        let last = last.unwrap_or_else(|| panic!("{what}: {size} events were acknowledged"));
        assert_eq!(&last.position.leaf.to_string(), leaf, "{what}");
    }
}

/// Cuts the power after each of the steps, several times. `told` is what was written before.
fn cut_everywhere(
    steps: &[Step],
    segment_bytes_max: u64,
    seed: u64,
    times: u64,
    told: &[u64],
    what: &str,
) -> u64 {
    let (mut disk, mut dice, mut cuts) = (Disk::default(), Dice(seed), 0);
    disk.told.extend(told);
    let mut has_begun = false;
    for (number, step) in steps.iter().enumerate() {
        disk.step(step, &mut dice);
        has_begun |= matches!(step, Step::Begun);
        if !has_begun {
            continue;
        }
        for time in 0..times {
            let mut dice = Dice(seed ^ (number as u64) << 20 ^ time << 50);
            let place = temporary();
            let state = place.path().join("state");
            disk.clone().cut_power(&mut dice, &state);
            let what = format!("{what}, after step {number} ({time}) {step:?}");
            comes_back(&state, segment_bytes_max, &disk, &what);
            cuts += 1;
        }
    }
    cuts
}

#[test]
fn what_was_acknowledged_survives_a_loss_of_power_at_every_step() {
    let mut cuts = 0;
    for seed in 0..24 {
        let work = Work::new(SEGMENTS[seed as usize % SEGMENTS.len()]);
        watch(work.state().path(), None);
        work.go_on(&mut Dice(seed), 14);
        let (steps, _) = finish();
        let what = format!("seed {seed}");
        cuts += cut_everywhere(&steps, work.segment_bytes_max, seed, 4, &[], &what);
    }
    assert!(cuts > 2_000, "{cuts}");
}

/// Records a session: its runs, the labels that they gain, and a person's purposes. Each step but
/// the first is acknowledged.
fn session_of_runs(work: &Work, id: &SessionId) {
    let state = work.state();
    let ledger = work.ledger(&state).unwrap();
    let name = SessionName::parse("fix").unwrap();
    // Its first run brings it to disk.
    assert_eq!(&ledger.open_session(&state, &name, id.clone()).unwrap(), id);
    for number in 1..3 {
        let call = Call {
            session: Some(id.clone()),
            ..call(number)
        };
        let verdict = allow();
        let entry = ledger.open_call(&call, &verdict, json!({})).unwrap();
        let armed = entry.arm(verdict).unwrap();
        work.acknowledge(&state);
        for kind in ["label.gained", "approval.asked", "approval.granted"] {
            let body = EventBody::default().text("label", &format!("web-{number}"));
            let body = body.number("told", work.number());
            let told = ledger.record_flows(call.run(), vec![(kind, body)], Durability::Durable);
            told.unwrap();
            work.acknowledge(&state);
        }
        ledger.close(armed, &outcome(0), json!({})).unwrap();
        work.acknowledge(&state);
    }
}

#[test]
fn sessions_labels_and_answers_survive_a_loss_of_power_at_every_step() {
    let id = SessionId::new(1_795_253_412, 1);
    for seed in 0..8 {
        let work = Work::new(SEGMENTS[seed as usize % SEGMENTS.len()]);
        watch(work.state().path(), None);
        session_of_runs(&work, &id);
        let (steps, _) = finish();
        let (mut disk, mut dice) = (Disk::default(), Dice(seed));
        let mut labels = 0;
        for (number, step) in steps.iter().enumerate() {
            disk.step(step, &mut dice);
            let acknowledged = disk.acknowledged.as_ref().map_or(0, |(size, _)| *size);
            let place = temporary();
            let path = place.path().join("state");
            let what = format!("seed {seed}, after step {number} {step:?}");
            disk.clone()
                .cut_power(&mut Dice(seed << 32 | number as u64), &path);
            comes_back(&path, work.segment_bytes_max, &disk, &what);
            let state = StateDir::open(&path).unwrap();
            let gained = crate::labels::of_session(&state, &id).unwrap();
            // The session, then five events of each run, the second of which is the label.
            labels = match acknowledged {
                0..3 => 0,
                3..8 => 1,
                _ => 2,
            };
            for number in 1..=labels {
                assert!(gained.contains(&format!("web-{number}")), "{what}");
            }
            let ledger = Ledger::open(&state, SystemTime::now, &()).unwrap();
            let name = SessionName::parse("fix").unwrap();
            let other = SessionId::new(1_795_253_412, 2);
            let found = ledger.open_session(&state, &name, other).unwrap();
            assert!(acknowledged == 0 || found == id, "{what}");
        }
        assert_eq!(labels, 2);
    }
}

/// The power goes while the remains of an earlier loss are repaired.
#[test]
fn a_second_loss_of_power_while_recovering_from_the_first_loses_nothing() {
    for seed in 0..60_u64 {
        let mut dice = Dice(seed);
        let mut work = Work::new(SEGMENTS[dice.below(SEGMENTS.len())]);
        watch(work.state().path(), None);
        work.go_on(&mut dice, 12);
        let (steps, _) = finish();
        let mut disk = Disk::default();
        for step in steps.iter().take(dice.below(steps.len()) + 1) {
            disk.step(step, &mut dice);
        }
        let before = disk.acknowledged.clone();
        let told_before = disk.told.clone();
        work.temporary = temporary();
        disk.cut_power(&mut dice, &work.temporary.path().join("state"));
        work.boot = 'b';
        watch(work.state().path(), None);
        if let Some((size, leaf)) = before {
            acknowledged(size, leaf);
        }
        work.go_on(&mut dice, 4);
        let (steps, _) = finish();
        cut_everywhere(
            &steps,
            work.segment_bytes_max,
            seed,
            2,
            &told_before,
            &format!("second, seed {seed}"),
        );
    }
}

/// Every operation fails once, or all from it on for a while; what fails is not acknowledged,
/// and all that was stays so, also when the power goes later.
#[test]
fn a_disk_that_fails_at_any_operation_loses_nothing_that_was_acknowledged() {
    let failures = [
        Failure::Error(Errno::IO),
        Failure::Error(Errno::NOSPC),
        Failure::Short,
    ];
    for seed in 0..9_u64 {
        let segment_bytes_max = SEGMENTS[seed as usize % SEGMENTS.len()];
        let run = |failing: Option<(std::ops::Range<usize>, Failure)>| {
            let mut dice = Dice(seed);
            let work = Work::new(segment_bytes_max);
            watch(work.state().path(), failing);
            work.go_on(&mut dice, 16);
            // Another process, and the disk is sound again.
            work.go_on(&mut dice, 4);
            let (steps, operations) = finish();
            (work, steps, operations)
        };
        let (_, _, operations) = run(None);
        for at in 0..operations {
            for (number, failure) in failures.into_iter().enumerate() {
                let length = [1, 1, 2, 5][(at + number) % 4];
                let what = format!("seed {seed}, {failure:?} at {at}, {length} times");
                let (work, steps, _) = run(Some((at..at + length, failure)));
                let (mut disk, mut dice) = (Disk::default(), Dice(at as u64));
                for step in &steps {
                    disk.step(step, &mut dice);
                }
                let state = work.state();
                note(&work.ledger(&state).unwrap(), 1);
                is_whole(&state, &disk, &what);
                let place = temporary();
                let image = place.path().join("state");
                disk.clone().cut_power(&mut dice, &image);
                comes_back(&image, segment_bytes_max, &disk, &what);
            }
        }
    }
}

/// The tests above rely on this: without waiting for the disk, events are lost.
#[test]
fn a_disk_without_its_waits_loses_what_was_acknowledged() {
    let mut lost = 0;
    for seed in 0..40 {
        let work = Work::new(6_000);
        watch(work.state().path(), None);
        work.go_on(&mut Dice(seed), 14);
        let (steps, _) = finish();
        let (mut disk, mut dice) = (Disk::default(), Dice(seed));
        for step in steps
            .iter()
            .filter(|step| !matches!(step, Step::Sync { .. }))
        {
            disk.step(step, &mut dice);
        }
        let place = temporary();
        let image = place.path().join("state");
        disk.clone().cut_power(&mut dice, &image);
        let whole = std::panic::catch_unwind(|| comes_back(&image, 6_000, &disk, "unsynced"));
        lost += u32::from(whole.is_err());
    }
    assert!(lost > 5, "{lost}");
}

#[test]
fn a_process_whose_wait_for_the_disk_failed_appends_nothing_more() {
    // Which operation is the wait of the first durable append.
    let waits = |failing| {
        let work = Work::new(1 << 20);
        let state = work.state();
        let ledger = work.ledger(&state).unwrap();
        note(&ledger, 0);
        watch(state.path(), failing);
        let first = ledger.record(None, "test.noted", json!({}), Durability::Durable);
        let second = ledger.record(None, "test.noted", json!({}), Durability::Durable);
        let buffered = ledger.record(None, "test.noted", json!({}), Durability::Buffered);
        let (steps, _) = finish();
        (work, first, second, buffered, steps)
    };
    let (_, first, second, _, steps) = waits(None);
    assert!(first.is_ok() && second.is_ok());
    let fallible = |step: &&Step| {
        !matches!(
            step,
            Step::Node { .. }
                | Step::Link { .. }
                | Step::Wait { .. }
                | Step::Told(_)
                | Step::Held(_)
                | Step::Acknowledged { .. }
        )
    };
    let is_begin = |step: &Step| matches!(step, Step::Begun);
    let begun = steps.iter().position(is_begin).unwrap();
    let at = steps[begun + 1..]
        .iter()
        .filter(fallible)
        .position(|step| matches!(step, Step::Sync { .. }))
        .unwrap();
    let failing = Some((at..at + 1, Failure::Error(Errno::IO)));
    let (work, first, second, buffered, _) = waits(failing);
    assert!(first.unwrap_err().to_string().contains("wait for the disk"));
    for refused in [second, buffered] {
        assert!(
            matches!(refused, Err(LedgerError::Broken(_))),
            "{refused:?}"
        );
    }
    // The next process writes once more what may not be there, and says so to nobody.
    let state = work.state();
    let doubt = state.path().join("ledger/unsynced");
    assert!(doubt.exists());
    let ledger = work.ledger(&state).unwrap();
    watch(state.path(), None);
    note(&ledger, 2);
    let (steps, _) = finish();
    let begun = steps
        .iter()
        .rposition(|step| matches!(step, Step::Remove { .. }))
        .unwrap();
    let written = |step: &&Step| matches!(step, Step::Write { .. });
    assert!(steps[..begun].iter().filter(written).count() > 0);
    assert!(!doubt.exists());
    assert_eq!(Ledger::verify(&state).unwrap().events, 3);
}

#[test]
fn a_clock_that_is_set_back_changes_no_order() {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, UNIX_EPOCH};
    static NOW_S: AtomicU64 = AtomicU64::new(1_795_253_412);
    let clock: Clock = || UNIX_EPOCH + Duration::from_secs(NOW_S.load(Ordering::Relaxed));
    let place = Place::new();
    let mut ledger = Ledger::open(&place.state, clock, &()).unwrap();
    for (number, now_s) in [1_795_253_412, 1_000, 0, 1_795_000_000, u64::MAX >> 2]
        .iter()
        .enumerate()
    {
        NOW_S.store(*now_s, Ordering::Relaxed);
        note(&ledger, number as u64);
        ledger.checkpoint(&place.state).unwrap();
        ledger = Ledger::open(&place.state, clock, &()).unwrap();
    }
    let verified = place.verified();
    assert_eq!((verified.events, verified.checkpoint), (5, Some(5)));
    let numbers = place
        .events()
        .into_iter()
        .map(|event| event.body["number"].as_u64());
    assert_eq!(
        numbers.collect::<Vec<_>>(),
        (0..5).map(Some).collect::<Vec<_>>()
    );
}
