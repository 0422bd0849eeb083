use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::Path;

use atoll_model::{RunId, SessionId};
use serde_json::Value;

use crate::event::{Event, LineFault, SESSION_OPENED};
use crate::lines::{Line, LineContent, Lines};
use crate::segment::{Segment, list_segments, segment_name};
use crate::state::LEDGER;
use crate::{FileFault, LedgerError, StateDir};

/// A filter of events; the default passes all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Passes only events of this run.
    pub run: Option<RunId>,
    /// Passes only events of this session: its own, and those of its runs.
    pub session: Option<SessionId>,
    /// Passes only events of runs that this user has started: by number or name.
    pub principal: Option<String>,
    /// Passes only events whose type is this, or begins with this and a dot.
    pub kind: Option<String>,
    /// Passes only events of this time or later: RFC 3339, UTC, or a prefix of that.
    pub since: Option<String>,
    /// Passes only events of this time or earlier: likewise.
    pub until: Option<String>,
    /// Passes only events in whose texts each of these may occur: the caller checks in which
    /// member.
    pub mentions: Vec<String>,
}

/// Events, oldest first. The iterator is not fused: polled again after `None`, it goes on with
/// events that were appended meanwhile. A line that is not a sound event is an error in its place;
/// reading goes on after it.
#[derive(Debug)]
pub struct Events {
    lines: Lines,
    search: Search,
    is_whole: bool,
}

/// The state of a search: its filter, and what was learnt on the way.
#[derive(Debug)]
struct Search {
    filter: Filter,
    /// The runs of the wanted session, as far as their openings were read.
    of_session: BTreeSet<RunId>,
    /// The runs of the wanted user, as far as their openings were read.
    of_principal: BTreeSet<RunId>,
}

const CHUNK_BYTES: usize = 64 << 10;
/// The first segment, and its first byte.
const START: (u32, u64) = (1, 0);

impl Events {
    pub(crate) fn from_start(state: &StateDir, filter: Filter) -> Result<Self, LedgerError> {
        Self::from_place(state, filter, START)
    }

    pub(crate) fn from_place(
        state: &StateDir,
        filter: Filter,
        (segment, offset): (u32, u64),
    ) -> Result<Self, LedgerError> {
        let lines = Lines::from(state, segment, offset)?;
        Ok(Self {
            lines,
            is_whole: (segment, offset) == START,
            search: Search {
                filter,
                of_session: BTreeSet::new(),
                of_principal: BTreeSet::new(),
            },
        })
    }

    /// Returns whether the first of these events is the first of the ledger.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub(crate) fn from_last(
        state: &StateDir,
        count: usize,
        filter: Filter,
    ) -> Result<Self, LedgerError> {
        let path = state.path().join(LEDGER);
        let directory = match state.subdirectory(LEDGER, false) {
            Err(fault) if fault.is_not_found() => {
                return Self::from_start(state, filter);
            }
            opened => opened?,
        };
        let segments = list_segments(&directory, &path)?;
        let mut wanted = count;
        let mut place = (segments.last().copied().unwrap_or(START.0), 0);
        for (behind, number) in segments.iter().rev().enumerate() {
            let Some(segment) = Segment::open(&directory, &path, *number, false)? else {
                continue;
            };
            match begin_of_last(&segment, &path, &mut wanted)? {
                Some(offset) => {
                    place = (*number, offset);
                    break;
                }
                None => place = (*number, 0),
            }
            if wanted == 0 && behind > 0 {
                break;
            }
        }
        Self::from_place(state, filter, place)
    }
}

/// Returns the offset at which the last `wanted` lines of a segment begin; `None`, with `wanted`
/// lessened, if the segment has no more lines than that.
fn begin_of_last(
    segment: &Segment,
    path: &Path,
    wanted: &mut usize,
) -> Result<Option<u64>, FileFault> {
    let mut end = segment.bytes;
    let mut buffer = vec![0_u8; CHUNK_BYTES];
    while end > 0 {
        let begin = end.saturating_sub(CHUNK_BYTES as u64);
        let bytes = usize::try_from(end - begin)
            .ok()
            .and_then(|count| buffer.get_mut(..count))
            .unwrap_or_default();
        let name = segment_name(segment.number);
        segment
            .file
            .read_exact_at(bytes, begin)
            .map_err(FileFault::on("read", path.join(name)))?;
        for (index, _) in bytes
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, byte)| **byte == b'\n')
        {
            // A newline ends a line; the one before the wanted lines is their begin.
            if *wanted == 0 {
                return Ok(Some(begin + index as u64 + 1));
            }
            *wanted -= 1;
        }
        end = begin;
    }
    Ok(None)
}

impl Iterator for Events {
    type Item = Result<Event, LedgerError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = match self.lines.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => return None,
                Err(fault) => return Some(Err(fault.into())),
            };
            if !self.search.may_pass(&line) {
                continue;
            }
            let (segment, offset) = (line.segment, line.offset);
            match read_line(&line) {
                Ok(event) => {
                    // The opening of a run counts, whatever else is asked for.
                    if self.search.is_found(&event) {
                        return Some(Ok(event));
                    }
                }
                Err(fault) => {
                    return Some(Err(LedgerError::Damaged {
                        path: Path::new(LEDGER).join(segment_name(segment)),
                        what: format!("at byte {offset}: {fault}"),
                    }));
                }
            }
        }
    }
}

/// Reads the event on a line.
pub(crate) fn read_line(line: &Line<'_>) -> Result<Event, LineFault> {
    match line.content {
        LineContent::Complete(bytes) => Event::read(bytes, line.segment, line.offset),
        LineContent::Unfinished(_) => Err(LineFault::NotAnEvent(
            "the segment ends within the line".to_owned(),
        )),
        LineContent::TooLong(_) => Err(LineFault::TooLong),
    }
}

impl Search {
    /// Returns whether the event passes the filter; learns from openings which runs do.
    fn is_found(&mut self, event: &Event) -> bool {
        let is_of_session = is_of_session(&self.filter, event, &mut self.of_session);
        let is_of_principal = is_of_principal(&self.filter, event, &mut self.of_principal);
        is_of_session && is_of_principal && passes(&self.filter, event)
    }

    /// Checks quickly, before a line is parsed, whether it may pass: most lines do not. Whether
    /// those are sound is for `verify` to report.
    fn may_pass(&self, line: &Line<'_>) -> bool {
        let LineContent::Complete(bytes) = line.content else {
            return true;
        };
        let Ok(text) = std::str::from_utf8(bytes) else {
            return true;
        };
        let filter = &self.filter;
        let is_named = |session: &SessionId| text.contains(session.as_str());
        if filter.session.as_ref().is_some_and(is_named)
            || (filter.principal.is_some() && text.contains("\"principal\":{"))
        {
            return true;
        }
        let run = after(text, ",\"run\":\"").and_then(|found| found.split('"').next());
        let run = run.and_then(|run| RunId::parse(run).ok());
        let is_of = |runs: &BTreeSet<RunId>| run.as_ref().is_some_and(|run| runs.contains(run));
        if (filter.session.is_some() && !is_of(&self.of_session))
            || (filter.principal.is_some() && !is_of(&self.of_principal))
        {
            return false;
        }
        let of_run = filter.run.as_ref();
        let has_run = of_run.is_none_or(|run| text.contains(run.as_str()));
        // What is written otherwise in JSON than it is said is looked for by whoever asks.
        let is_plain =
            |text: &&String| !text.contains(|one: char| matches!(one, '"' | '\\' | ..' '));
        let mut mentions = filter.mentions.iter().filter(is_plain);
        let has_mentions = mentions.all(|mention| text.contains(mention.as_str()));
        has_run && may_be_of(filter, text) && has_mentions
    }
}

/// Returns what follows the last occurrence of a member's name.
pub(crate) fn after<'a>(text: &'a str, member: &str) -> Option<&'a str> {
    let at = text.rfind(member)?;
    text.get(at + member.len()..)
}

/// Returns whether the event is of the wanted session, which a run's opening names.
fn is_of_session(filter: &Filter, event: &Event, runs: &mut BTreeSet<RunId>) -> bool {
    let Some(session) = &filter.session else {
        return true;
    };
    let said = event.body.get("session").and_then(Value::as_str);
    let is_named = said == Some(session.as_str());
    match &event.run {
        Some(run) if is_named && event.kind == "run.opened" => {
            runs.insert(run.clone());
            true
        }
        Some(run) => runs.contains(run),
        None => is_named && event.kind == SESSION_OPENED,
    }
}

/// Returns whether the event is of a run of the wanted user, whom a run's opening names.
fn is_of_principal(filter: &Filter, event: &Event, runs: &mut BTreeSet<RunId>) -> bool {
    let Some(wanted) = &filter.principal else {
        return true;
    };
    let Some(run) = &event.run else {
        return false;
    };
    if event.kind == "run.opened" {
        let said = |member: &str| event.body.pointer(&format!("/principal/{member}"));
        let is_name = said("name").and_then(Value::as_str) == Some(wanted.as_str());
        let number = said("uid").and_then(Value::as_u64);
        if is_name || number.is_some_and(|number| number.to_string() == *wanted) {
            runs.insert(run.clone());
        }
    }
    runs.contains(run)
}

/// Returns whether the members after the body, which no body can follow, have the wanted type and
/// time.
fn may_be_of(filter: &Filter, text: &str) -> bool {
    let of_kind = match &filter.kind {
        None => true,
        Some(kind) => {
            after(text, ",\"type\":\"").is_none_or(|found| found.starts_with(kind.as_str()))
        }
    };
    if !of_kind || (filter.since.is_none() && filter.until.is_none()) {
        return of_kind;
    }
    let time = after(text, ",\"time\":\"").and_then(|found| found.split('"').next());
    time.is_none_or(|time| is_within(filter, time))
}

fn is_within(filter: &Filter, time: &str) -> bool {
    let begin = |length: usize| time.get(..length).unwrap_or(time);
    let since = filter.since.as_deref();
    let until = filter.until.as_deref();
    since.is_none_or(|since| time >= since) && until.is_none_or(|until| begin(until.len()) <= until)
}

fn passes(filter: &Filter, event: &Event) -> bool {
    let of_run = filter
        .run
        .as_ref()
        .is_none_or(|run| event.run.as_ref() == Some(run));
    let of_kind = filter.kind.as_ref().is_none_or(|kind| {
        event
            .kind
            .strip_prefix(kind.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    });
    of_run && of_kind && is_within(filter, &event.time)
}
