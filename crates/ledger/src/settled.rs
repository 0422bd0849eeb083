use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};

use crate::hash::hex;
use crate::head::{FoundHead, Head};
use crate::journal::Journal;
use crate::note::decimal;
use crate::open_runs::OpenRuns;
use crate::segment::Segment;
use crate::tail::last_event;
use crate::{LedgerError, TreeHash, disk};

/// The file of a place in the ledger before which every run is closed, so that the first opening
/// after boot need not read all of it. It only saves time: one that cannot be read, or does not
/// match the ledger, counts as missing.
const SETTLED: &str = "settled";
const MAGIC: &str = "atoll-settled 1";
const CHECK_DIGITS: usize = 16;
const BYTES_MAX: u64 = 1 << 10;
/// The most living runs for which the place is noted: beyond, looking at each of them takes longer
/// than it saves.
const ALIVE_MAX: usize = 256;

/// Notes the place before which all runs are closed.
pub(crate) fn note_settled(journal: &Journal, open_runs: &OpenRuns) -> Result<(), LedgerError> {
    // The head comes first: a run that is opened later is recorded after what it names now.
    let FoundHead::Sound(head) = Head::read(journal.directory(), journal.path())? else {
        return Ok(());
    };
    let alive = open_runs.list()?;
    if alive.len() > ALIVE_MAX {
        return Ok(());
    }
    let mut place = (head.segment, head.bytes);
    for run in alive {
        if let Some(start) = open_runs.start_of(&run)? {
            place = place.min(start);
        }
    }
    let Some(leaf) = leaf_before(journal, place)? else {
        return Ok(());
    };
    let (segment, bytes) = place;
    let facts = format!("{MAGIC} {segment} {bytes} {leaf}");
    let text = format!("{facts} {}\n", check_digits(&facts));
    let path = journal.path().join(SETTLED);
    let write = || -> std::io::Result<()> {
        let file = disk::create(journal.directory(), SETTLED, OFlags::WRONLY)?;
        let file = std::fs::File::from(file);
        disk::write(&file, text.as_bytes(), 0)?;
        disk::set_length(&file, text.len() as u64)
    };
    Ok(write().map_err(crate::FileFault::on("write", path))?)
}

/// Returns the place from which to search for runs that are not closed: segment and offset.
pub(crate) fn settled_place(journal: &Journal) -> Result<(u32, u64), LedgerError> {
    if let Some((place, leaf)) = read(journal.directory())
        && leaf_before(journal, place)? == Some(leaf)
    {
        return Ok(place);
    }
    Ok((1, 0))
}

/// Returns the hash of the event whose line ends at this place.
fn leaf_before(
    journal: &Journal,
    (number, bytes): (u32, u64),
) -> Result<Option<TreeHash>, LedgerError> {
    let (directory, path): (&OwnedFd, &Path) = (journal.directory(), journal.path());
    let found = match Segment::open(directory, path, number, false)? {
        Some(segment) if number > 0 && bytes <= segment.bytes => {
            last_event(&segment.cut_to(bytes), path)?
        }
        Some(_) | None => None,
    };
    Ok(found
        .filter(|(_, end)| *end == bytes)
        .map(|(event, _)| event.position.leaf))
}

fn read(directory: &OwnedFd) -> Option<((u32, u64), TreeHash)> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::openat(directory, SETTLED, flags, Mode::empty()).ok()?;
    let mut text = String::new();
    let mut limited = std::fs::File::from(file).take(BYTES_MAX);
    limited.read_to_string(&mut text).ok()?;
    let (facts, check) = text.strip_suffix('\n')?.rsplit_once(' ')?;
    if check != check_digits(facts) {
        return None;
    }
    let mut fields = facts.strip_prefix(MAGIC)?.strip_prefix(' ')?.split(' ');
    let segment = u32::try_from(decimal(fields.next()?)?).ok()?;
    let place = (segment, decimal(fields.next()?)?);
    let leaf = TreeHash::parse(fields.next()?).ok()?;
    fields.next().is_none().then_some((place, leaf))
}

fn check_digits(text: &str) -> String {
    let mut digits = hex(&Sha256::digest(text.as_bytes()));
    digits.truncate(CHECK_DIGITS);
    digits
}
