use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::event::{Event, LINE_BYTES_MAX};
use crate::head::{FoundHead, Head};
use crate::segment::{Segment, list_segments, segment_name};
use crate::{FileFault, LedgerError, TreeHash};

/// The end of the ledger, which the next event continues.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    /// The number of events.
    pub(crate) size: u64,
    /// The hash of the last event; zero if there is none.
    pub(crate) leaf: TreeHash,
    /// The last segment, if there is any; it may be empty.
    pub(crate) segment: Option<Segment>,
}

/// The end of the ledger, as found.
#[derive(Debug)]
pub(crate) struct FoundTail {
    /// The end of the sound events.
    pub(crate) tail: Tail,
    /// The remains after it in the last segment: the segment as it is, whose bytes from the tail's
    /// end on are not an event.
    pub(crate) remains: Option<Segment>,
}

/// The size of the first read from the end of a segment, bytes: enough for a usual event.
const FIRST_WINDOW_BYTES: u64 = 8 << 10;
/// The size of one read of a segment that is followed, bytes.
const READ_BYTES: usize = 64 << 10;
/// The most that is read: a torn line of any allowed length and one before it.
const LAST_WINDOW_BYTES: u64 = 2 * LINE_BYTES_MAX as u64;

/// Finds the end of the ledger without listing its directory and without reading more than the last
/// lines: the search begins at the head's segment, and segments that were begun since follow it by
/// number.
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

/// Finds the end of the ledger by reading on from the event that the head names, as far as
/// each event continues the one before it.
pub(crate) fn find_tail_after(
    directory: impl AsFd,
    path: &Path,
    head: &FoundHead,
) -> Result<FoundTail, LedgerError> {
    let directory = directory.as_fd();
    let (mut end, number) = match head {
        FoundHead::Sound(head) if head.segment > 0 => (End::of(head), head.segment),
        FoundHead::Sound(_) | FoundHead::Missing | FoundHead::Garbled => (End::FIRST, 1),
    };
    let Some(mut segment) = Segment::open(directory, path, number, true)? else {
        return find_tail(directory, path, head);
    };
    // A head that names what is not there is for whoever looks from the end.
    let is_there = end.bytes <= segment.bytes
        && match last_event(&segment.clone().cut_to(end.bytes), path)? {
            Some((event, bytes)) => event.position.leaf == end.leaf && bytes == end.bytes,
            None => end.bytes == 0,
        };
    if !is_there {
        return find_tail(directory, path, head);
    }
    loop {
        end.follow(&segment, path)?;
        match Segment::open(directory, path, segment.number + 1, true)? {
            Some(next) if end.bytes == segment.bytes => (segment, end.bytes) = (next, 0),
            // A segment is on disk before the next one is begun.
            Some(_) => return find_tail(directory, path, head),
            None => break,
        }
    }
    let remains = (end.bytes < segment.bytes).then(|| segment.clone());
    Ok(FoundTail {
        tail: Tail {
            size: end.size,
            leaf: end.leaf,
            segment: Some(segment.cut_to(end.bytes)),
        },
        remains,
    })
}

/// The place that reading has reached.
struct End {
    size: u64,
    leaf: TreeHash,
    /// The offset in its segment at which the last event's line ends.
    bytes: u64,
}

impl End {
    const FIRST: Self = Self {
        size: 0,
        leaf: TreeHash::ZERO,
        bytes: 0,
    };

    fn of(head: &Head) -> Self {
        Self {
            size: head.size,
            leaf: head.leaf,
            bytes: head.bytes,
        }
    }

    /// Reads on through a segment, up to the first line that does not continue the chain.
    fn follow(&mut self, segment: &Segment, path: &Path) -> Result<(), FileFault> {
        let from = From {
            file: &segment.file,
            offset: self.bytes,
        };
        let mut lines = BufReader::with_capacity(READ_BYTES, from);
        let mut line = Vec::new();
        loop {
            line.clear();
            let count = (&mut lines)
                .take(LINE_BYTES_MAX as u64)
                .read_until(b'\n', &mut line)
                .map_err(|cause| {
                    FileFault::on("read", path.join(segment_name(segment.number)))(cause)
                })?;
            let event = line.strip_suffix(b"\n");
            match event.map(|line| Event::read(line, segment.number, self.bytes)) {
                Some(Ok(event)) if event.prev == self.leaf && event.position.seq == self.size => {
                    self.leaf = event.position.leaf;
                }
                Some(Ok(_) | Err(_)) | None => return Ok(()),
            }
            self.size += 1;
            self.bytes += count as u64;
        }
    }
}

/// A file, read from a place on.
struct From<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for From<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
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

/// Returns the last event of a segment and the offset at which its line ends; `None` if not even
/// the first line is an event.
pub(crate) fn last_event(
    segment: &Segment,
    path: &Path,
) -> Result<Option<(Event, u64)>, LedgerError> {
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

/// Finds the last sound line among bytes that begin at `begin`.
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
