//! Losses of power while several writers share one ledger and its waits for the disk.

use std::collections::{BTreeMap, HashSet};

use super::faults::{Work, temporary};
use super::power::{Dice, Disk, Step, finish, held, take_part, told, watch_shared};
use super::*;

/// The number of concurrent writers, and of turns of each.
type Writers = (u64, usize);

const FEW: Writers = (4, 5);
const MANY: Writers = (14, 2);
/// A single writer that waits so seldom that the possible remains are too many to look at.
const ALONE: Writers = (1, 26);
/// The most possible remains of a disk of which each is looked at.
const LEFT_MAX: usize = 1 << 10;
/// The number of remains that are looked at otherwise, chosen by the dice.
const LEFT_SOME: u64 = 64;
/// The number of remains with torn writes that are looked at besides whole or missing ones.
const LEFT_TORN: u64 = 4;

/// Returns the text of the event with this number.
fn text(number: u64) -> String {
    "x".repeat(number as usize * 37 % 5 * 150)
}

/// The way in which a writer comes to believe that its events are durable.
#[derive(Clone, Copy, PartialEq)]
enum Belief {
    /// The writer waits for most events.
    Waited,
    /// The writer waits in one of so many turns, which covers the events before as well.
    WaitedSeldom(usize),
    /// The writer waits for nothing: a loss that must be found.
    Written,
}

/// Runs one writer among several: events alone and several at once.
fn write(ledger: &Ledger, (writer, times): Writers, dice: &mut Dice, belief: Belief) {
    let (mut next, mut unheld) = (writer * 1_000, Vec::new());
    for turn in 1..=times {
        let (kind, more) = (dice.below(8), 2 + dice.below(2) as u64);
        let durability = match belief {
            Belief::Waited if kind > 0 => Durability::Durable,
            Belief::WaitedSeldom(turns) if turn % turns == 0 => Durability::Durable,
            Belief::Waited | Belief::WaitedSeldom(_) | Belief::Written => Durability::Buffered,
        };
        let numbers = next..next + if kind < 3 { more } else { 1 };
        next = numbers.end;
        numbers.clone().for_each(told);
        unheld.extend(numbers.clone());
        let body = |number: u64| EventBody::default().text("text", &text(number));
        let events = numbers
            .clone()
            .map(|number| ("flow.closed", body(number).number("told", number)));
        if kind < 3 {
            let made = ledger.record_flows(&run_id(1), events.collect(), durability);
            made.unwrap();
        } else {
            let body = json!({ "told": numbers.start, "text": text(numbers.start) });
            let made = ledger.record(None, "test.noted", body, durability);
            made.unwrap();
        }
        if durability == Durability::Durable || belief == Belief::Written {
            unheld.drain(..).for_each(held);
        }
    }
}

/// Returns the disk's steps while they write, through one ledger, or through two as if of two
/// processes.
fn written_by_several(work: &Work, seed: u64, writers: Writers, belief: Belief) -> Vec<Step> {
    let state = work.state();
    let ledgers = match seed % 3 {
        0 => vec![work.ledger(&state).unwrap(), work.ledger(&state).unwrap()],
        _ => vec![work.ledger(&state).unwrap()],
    };
    note(&ledgers[0], 0);
    let watched = watch_shared(state.path(), Dice(seed));
    std::thread::scope(|scope| {
        for writer in 1..=writers.0 {
            let ledger = &ledgers[writer as usize % ledgers.len()];
            let watched = watched.clone();
            scope.spawn(move || {
                take_part(watched);
                let mut dice = Dice(seed << 8 | writer);
                write(ledger, (writer, writers.1), &mut dice, belief);
            });
        }
    });
    finish().0
}

/// Checks that a ledger with these remains goes on, and has everything that was acknowledged, once
/// and as it was written, the events of each writer in their order.
fn is_held(left: &Disk, disk: &Disk, segment_bytes_max: u64) -> Result<(), String> {
    let place = temporary();
    let path = place.path().join("state");
    left.put(0, &path);
    let state = StateDir::open(&path).unwrap();
    let boot = BootId::of_test('c');
    let journal = Journal::open_as(&state, SystemTime::now, boot, segment_bytes_max)
        .map_err(|error| error.to_string())?;
    let ledger = Ledger::open_journal(&state, journal, &()).map_err(|error| error.to_string())?;
    ledger
        .record(None, "test.noted", json!({}), Durability::Durable)
        .map_err(|error| error.to_string())?;
    if !ledger.losses().is_empty() {
        return Err(format!("{:?}", ledger.losses()));
    }
    Ledger::verify(&state).map_err(|error| error.to_string())?;
    let mut found = HashSet::new();
    let mut last = BTreeMap::new();
    for event in Ledger::events(&state, Filter::default()).unwrap() {
        let event = event.map_err(|error| error.to_string())?;
        let Some(number) = event.body["told"].as_u64() else {
            continue;
        };
        let before = last.insert(number / 1_000, number);
        let as_told = event.body["text"] == text(number) && disk.told.contains(&number);
        if !as_told || !found.insert(number) || before >= Some(number) {
            return Err(format!("{number} as nobody has told it"));
        }
    }
    match disk.held.iter().find(|number| !found.contains(number)) {
        Some(number) => Err(format!("{number} was acknowledged, and is lost")),
        None => Ok(()),
    }
}

/// The results of losses of power.
#[derive(Debug, Default)]
struct Seen {
    /// Moments of which all that can be left was looked at, and others.
    whole: usize,
    some: usize,
    /// Different disks.
    left: usize,
    /// The guarantees that did not hold.
    lost: Vec<String>,
}

/// Takes the power away after each of the steps.
fn cut_everywhere(steps: &[Step], segment_bytes_max: u64, seed: u64, seen: &mut Seen) {
    let (mut disk, mut known) = (Disk::default(), HashSet::new());
    let mut has_begun = false;
    for (number, step) in steps.iter().enumerate() {
        disk.step(step, &mut Dice(seed));
        has_begun |= matches!(step, Step::Begun);
        // These change nothing that can be left.
        if !has_begun || matches!(step, Step::Told(_) | Step::Wait { .. }) {
            continue;
        }
        let by_dice =
            |time: u64| disk.some_loss(&mut Dice(seed ^ (number as u64) << 20 ^ time << 50));
        let mut all = disk.every_loss(LEFT_MAX).unwrap_or_default();
        let times = match all.is_empty() {
            true => LEFT_SOME,
            false => LEFT_TORN,
        };
        match all.is_empty() {
            true => seen.some += 1,
            false => seen.whole += 1,
        }
        all.extend((0..times).map(by_dice));
        for (which, left) in all.iter().enumerate() {
            if !known.insert((left.digest(), disk.held.len())) {
                continue;
            }
            seen.left += 1;
            if let Err(why) = is_held(left, &disk, segment_bytes_max) {
                let at = format!("seed {seed}, after step {number}, left {which}");
                seen.lost.push(format!("{at}: {why}"));
            }
        }
    }
}

/// Formats a step in short, for failure messages.
fn in_short(step: &Step) -> String {
    match step {
        Step::Write {
            file,
            offset,
            bytes,
        } => format!("write {} bytes at {offset} of {file}", bytes.len()),
        other => format!("{other:?}"),
    }
}

#[test]
fn what_several_writers_were_told_is_kept_survives_a_loss_of_power_at_every_step() {
    let mut seen = Seen::default();
    let (mut waits, mut acknowledged) = (0, 0);
    let (often, seldom) = (Belief::Waited, Belief::WaitedSeldom(13));
    let all = [
        (FEW, often),
        (FEW, often),
        (FEW, often),
        (ALONE, seldom),
        (MANY, often),
    ];
    for (seed, (writers, belief)) in (0..).zip(all) {
        let segment_bytes_max = [1_500, 1 << 20][seed as usize % 2];
        let work = Work::new(segment_bytes_max);
        let steps = written_by_several(&work, seed, writers, belief);
        let begun = steps.iter().position(|step| matches!(step, Step::Begun));
        let count = |is: fn(&Step) -> bool| {
            steps[begun.unwrap()..]
                .iter()
                .filter(|step| is(step))
                .count()
        };
        waits += count(|step| matches!(step, Step::Sync { .. }));
        acknowledged += count(|step| matches!(step, Step::Held(_)));
        cut_everywhere(&steps, segment_bytes_max, seed, &mut seen);
        if !seen.lost.is_empty() {
            let steps: Vec<String> = steps.iter().map(in_short).collect();
            let lost: Vec<_> = seen.lost.iter().take(10).collect();
            panic!("{lost:#?}\nof these steps: {steps:#?}");
        }
    }
    println!("{waits} waits for {acknowledged}; {seen:?}");
    assert!(waits < acknowledged, "{waits} waits for {acknowledged}");
    assert!(
        seen.left > 1_000 && seen.whole > 100 && seen.some >= 4,
        "{seen:?}"
    );
}

/// The test above relies on this: a writer that does not wait for the disk is found.
#[test]
fn several_writers_that_wait_for_nothing_lose_what_they_believe() {
    let mut seen = Seen::default();
    let work = Work::new(1 << 20);
    let steps = written_by_several(&work, 1, FEW, Belief::Written);
    cut_everywhere(&steps, 1 << 20, 1, &mut seen);
    let lost = seen.lost.iter();
    let lost = lost.filter(|lost| lost.contains("was acknowledged, and is lost"));
    assert!(lost.count() > 20, "{seen:?}");
}
