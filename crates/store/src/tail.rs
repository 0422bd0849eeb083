use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::event::{Event, LINE_BYTES_MAX};
use crate::head::{FoundHead, Head};
use crate::segment::{Segment, list_segments, segment_name};
use crate::{FileFault, LedgerError, TreeHash};

/// The end of the ledger: what the next event continues.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    /// How many events there are.
    pub(crate) size: u64,
    /// The hash of the last one; zero when there is none.
    pub(crate) leaf: TreeHash,
    /// The last segment, if there is any; it may be empty.
    pub(crate) segment: Option<Segment>,
}

/// What a look at the end of the ledger found.
#[derive(Debug)]
pub(crate) struct FoundTail {
    /// The end of what is sound.
    pub(crate) tail: Tail,
    /// What follows it in the last segment: the segment as it is, whose bytes
    /// from the tail's on are not an event.
    pub(crate) remains: Option<Segment>,
}

/// The first read from the end of a segment: enough for a usual event.
const FIRST_WINDOW_BYTES: u64 = 8 << 10;
/// The most that is read: a torn line of any allowed length and one before it.
const LAST_WINDOW_BYTES: u64 = 2 * LINE_BYTES_MAX as u64;

/// Finds the end of the ledger without listing its directory and without
/// reading more than the last lines: the head says where to begin, and segments
/// that were begun since follow it by number.
pub(crate) fn find_tail(
    directory: impl AsFd,
    path: &Path,
    head: &FoundHead,
) -> Result<FoundTail, LedgerError> {
    let directory = directory.as_fd();
    let known = match head {
        FoundHead::Sound(Head { segment, .. }) => *segment,
        FoundHead::Missing | FoundHead::Garbled => 0,
    };
    let Some(last) = last_segment(directory, path, known)? else {
        return Ok(FoundTail {
            tail: Tail {
                size: 0,
                leaf: TreeHash::ZERO,
                segment: None,
            },
            remains: None,
        });
    };
    let mut number = last.number;
    let mut found = last_event(&last, path)?;
    let sound_bytes = found.as_ref().map_or(0, |(_, end)| *end);
    // An empty segment was begun by someone who did not live to write to it.
    while found.is_none() && number > 1 {
        number -= 1;
        if let Some(before) = Segment::open(directory, path, number, false)? {
            found = last_event(&before, path)?;
            if found.as_ref().map_or(0, |(_, end)| *end) != before.bytes {
                return Err(damaged(path, number, "it does not end with an event"));
            }
        }
    }
    let remains = (sound_bytes < last.bytes).then(|| last.clone());
    let (size, leaf) = found.map_or((0, TreeHash::ZERO), |(event, _)| {
        (event.position.seq + 1, event.position.leaf)
    });
    Ok(FoundTail {
        tail: Tail {
            size,
            leaf,
            segment: Some(last.cut_to(sound_bytes)),
        },
        remains,
    })
}

fn last_segment(
    directory: impl AsFd,
    path: &Path,
    known: u32,
) -> Result<Option<Segment>, LedgerError> {
    let directory = directory.as_fd();
    let mut last = match known {
        0 => None,
        _ => Segment::open(directory, path, known, true)?,
    };
    if known > 0 && last.is_none() {
        // The segment that the head names is gone: only a listing can help.
        let listed = list_segments(directory, path)?.last().copied();
        return match listed {
            Some(number) => Ok(Segment::open(directory, path, number, true)?),
            None => Ok(None),
        };
    }
    loop {
        let next = last.as_ref().map_or(0, |last: &Segment| last.number) + 1;
        match Segment::open(directory, path, next, true)? {
            Some(segment) => last = Some(segment),
            None => return Ok(last),
        }
    }
}

/// The last event of a segment and where its line ends; `None` when not even
/// the first line is an event.
fn last_event(segment: &Segment, path: &Path) -> Result<Option<(Event, u64)>, LedgerError> {
    let mut window = FIRST_WINDOW_BYTES;
    loop {
        let begin = segment.bytes.saturating_sub(window);
        let mut bytes = vec![0; usize::try_from(segment.bytes - begin).unwrap_or(0)];
        let name = segment_name(segment.number);
        segment
            .file
            .read_exact_at(&mut bytes, begin)
            .map_err(FileFault::on("read", path.join(name)))?;
        if let Some(found) = last_event_in(&bytes, begin, segment.number) {
            return Ok(Some(found));
        }
        if begin == 0 {
            return Ok(None);
        }
        if window >= LAST_WINDOW_BYTES {
            return Err(damaged(path, segment.number, "its end holds no event"));
        }
        window = (window * 16).min(LAST_WINDOW_BYTES);
    }
}

/// Looks for the last sound line among bytes that begin at `begin`.
fn last_event_in(bytes: &[u8], begin: u64, segment: u32) -> Option<(Event, u64)> {
    let mut rest = bytes;
    loop {
        // `rest` is cut back line by line, to just before the last newline.
        let end = rest.iter().rposition(|byte| *byte == b'\n')?;
        let (before, _) = rest.split_at_checked(end)?;
        let start = match before.iter().rposition(|byte| *byte == b'\n') {
            Some(newline) => newline + 1,
            None if begin == 0 => 0,
            // The line begins before the window.
            None => return None,
        };
        let line = before.get(start..)?;
        if let Ok(event) = Event::read(line, segment, begin + start as u64) {
            return Some((event, begin + end as u64 + 1));
        }
        rest = before;
    }
}

fn damaged(path: &Path, segment: u32, what: &str) -> LedgerError {
    LedgerError::Damaged {
        path: path.join(segment_name(segment)),
        what: what.to_owned(),
    }
}
