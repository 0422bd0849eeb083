//! The conduct of an agent as the ledger records it: from the newest part that can be read in a
//! bounded time. Nothing that was sealed is needed, so shredding changes nothing.

use std::collections::BTreeMap;

use atoll_model::conduct::{CONDUCT_DAYS_MAX, Conduct, HistoryEvent};
use atoll_model::{RunId, ViolationKind};
use serde_json::Value;

use crate::event::{Event, LineFault, split_line};
use crate::lines::{Line, LineContent, Lines};
use crate::read::read_line;
use crate::scan::{Scanned, scan};
use crate::segment::{Segment, list_segments, segment_name};
use crate::state::LEDGER;
use crate::{LedgerError, StateDir, TreeHash};

/// The most of the ledger that is read for it, bytes: whole segments, the newest ones.
pub(crate) const CONDUCT_BYTES_MAX: u64 = 1 << 30;

/// The types of events that count for conduct.
const KINDS: [&str; 8] = [
    "run.opened",
    "run.closed",
    "attempt.seen",
    "flow.refused",
    "approval.granted",
    "approval.denied",
    "apply.finished",
    "undo.finished",
];

/// A run of the agent.
#[derive(Debug, Default)]
struct Told {
    /// True if the run wrote straight to its workspace: a later apply there is an undo.
    is_live: bool,
    deeds: BTreeMap<HistoryEvent, u64>,
}

/// Reads the conduct of a person's runs by a profile of this name. `None` if more was written
/// lately than is read: the bad part may lie before that.
pub(crate) fn of_agent(
    state: &StateDir,
    (person, profile): (u32, &str),
    today: u64,
    bytes_max: u64,
) -> Result<Option<Conduct>, LedgerError> {
    let begin = newest(state, bytes_max)?;
    let mut lines = Lines::from(state, begin.unwrap_or(1), 0)?;
    let mut runs: BTreeMap<RunId, Told> = BTreeMap::new();
    let mut is_first = begin.is_some();
    let mut next: Next = (!is_first).then_some((0, TreeHash::ZERO));
    while let Some(line) = lines.next_line()? {
        if is_first {
            is_first = false;
            let day = day_of(&sound(&line)?.time);
            if day.saturating_add(CONDUCT_DAYS_MAX) >= today {
                return Ok(None);
            }
        }
        if !says_something(&line, &mut next)? {
            continue;
        }
        let event = sound(&line)?;
        let Some(run) = event.run.clone() else {
            continue;
        };
        if event.kind == "run.opened" {
            if is_of(&event, person, profile) {
                let mode = event.body.pointer("/decision/workspace-mode");
                let is_live = mode.and_then(Value::as_str) == Some("live");
                runs.entry(run).or_default().is_live = is_live;
            }
        } else if let Some(told) = runs.get_mut(&run) {
            let day = day_of(&event.time);
            for deed in deeds(&event, told.is_live) {
                let last = told.deeds.entry(deed).or_default();
                *last = day.max(*last);
            }
        }
    }
    let mut conduct = Conduct::default();
    for told in runs.into_values() {
        conduct.add(told.deeds);
    }
    Ok(Some(conduct))
}

/// Returns the segment to begin with, if it is not the first one.
fn newest(state: &StateDir, bytes_max: u64) -> Result<Option<u32>, LedgerError> {
    let path = state.path().join(LEDGER);
    let directory = match state.subdirectory(LEDGER, false) {
        Err(fault) if fault.is_not_found() => return Ok(None),
        opened => opened?,
    };
    let segments = list_segments(&directory, &path)?;
    let mut bytes = 0_u64;
    let mut begin = None;
    for number in segments.iter().rev() {
        let segment = Segment::open(&directory, &path, *number, false)?;
        bytes = bytes.saturating_add(segment.map_or(0, |segment| segment.bytes));
        // The newest one is read in any case.
        if bytes > bytes_max && begin.is_some() {
            return Ok(begin);
        }
        begin = Some(*number);
    }
    Ok(None)
}

/// The number and predecessor hash that the next event in the chain must have; `None` where reading
/// begins within the chain.
type Next = Option<(u64, TreeHash)>;

/// Checks a line, and returns whether its event counts for conduct. Every line is checked, whatever
/// it holds: an altered or missing one may have been the bad part.
fn says_something(line: &Line<'_>, next: &mut Next) -> Result<bool, LedgerError> {
    let LineContent::Complete(bytes) = line.content else {
        return sound(line).map(|_| true);
    };
    let (leaf, event) = split_line(bytes).map_err(|fault| damaged(line, &fault.to_string()))?;
    let full;
    let scanned = match scan(event) {
        Some(scanned) => scanned,
        None => {
            full = sound(line)?;
            Scanned::of(&full)
        }
    };
    if TreeHash::of_leaf(event) != leaf {
        return Err(damaged(line, &LineFault::HashDiffers.to_string()));
    }
    if next.is_some_and(|next| next != (scanned.seq, scanned.prev)) {
        let what = format!("event {} does not follow what is before it", scanned.seq);
        return Err(damaged(line, &what));
    }
    *next = Some((scanned.seq.saturating_add(1), leaf));
    Ok(KINDS.contains(&scanned.kind))
}

fn sound(line: &Line<'_>) -> Result<Event, LedgerError> {
    read_line(line).map_err(|fault| damaged(line, &fault.to_string()))
}

fn damaged(line: &Line<'_>, what: &str) -> LedgerError {
    LedgerError::Damaged {
        path: std::path::Path::new(LEDGER).join(segment_name(line.segment)),
        what: format!("at byte {}: {what}", line.offset),
    }
}

fn is_of(event: &Event, person: u32, profile: &str) -> bool {
    let uid = event.body.pointer("/principal/uid").and_then(Value::as_u64);
    let own = event.body.pointer("/decision/profile");
    uid == Some(person.into()) && own.and_then(Value::as_str) == Some(profile)
}

/// Returns the deeds of a run that an event records.
fn deeds(event: &Event, is_live: bool) -> Vec<HistoryEvent> {
    let body = &event.body;
    let text = |member: &str| body.get(member).and_then(Value::as_str);
    let did = |deed: HistoryEvent, did: bool| if did { vec![deed] } else { Vec::new() };
    match event.kind.as_str() {
        // What makes a sandbox for a part of itself begins like that too.
        "attempt.seen" => did(
            HistoryEvent::Attempt,
            text("wall") != Some(ViolationKind::Namespaces.name()),
        ),
        "flow.refused" => did(HistoryEvent::Misuse, body.get("credential").is_some()),
        // About what is taken over, which counts by itself.
        "approval.granted" | "approval.denied" if body.get("action").is_some() => Vec::new(),
        "approval.granted" => vec![HistoryEvent::Vouched],
        "approval.denied" => did(HistoryEvent::Refused, text("why") == Some("person")),
        "run.closed" => did(
            HistoryEvent::Stopped,
            body.pointer("/details/stopped").is_some(),
        ),
        "apply.finished" if is_live => vec![HistoryEvent::Undone],
        "apply.finished" => {
            let wrote = body.get("entries").and_then(Value::as_u64) > Some(0);
            did(HistoryEvent::Vouched, wrote && body.get("unseen").is_none())
        }
        "undo.finished" => vec![HistoryEvent::Undone],
        _ => Vec::new(),
    }
}

/// Returns the day of an event's time, counted from 1970-01-01; the reverse of
/// [`atoll_model::civil_date`].
fn day_of(time: &str) -> u64 {
    let number = |from: usize, to: usize| -> u64 {
        let digits = time.get(from..to).unwrap_or_default();
        digits.parse().unwrap_or(0)
    };
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    // The year begins in March, so that the leap day is its last.
    let year = if month < 3 {
        year.saturating_sub(1)
    } else {
        year
    };
    let era = year / 400;
    let of_era = year % 400;
    let month = (month + 9) % 12;
    let of_year = ((153 * month + 2) / 5 + day).saturating_sub(1);
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    days.saturating_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::day_of;

    #[test]
    fn days_are_counted_as_they_are_written() {
        for day in (0..60_000).step_by(7).chain([0, 59, 60, 11_016, 47_541]) {
            let (year, month, of_month) = atoll_model::civil_date(day);
            let time = format!("{year:04}-{month:02}-{of_month:02}T09:30:12.123456Z");
            assert_eq!(day_of(&time), day, "{time}");
        }
    }
}
