use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use crate::head::Head;
use crate::journal::Journal;
use crate::segment::{Segment, segment_name};
use crate::tail::FoundTail;
use crate::{FileFault, LedgerError, disk};

/// The file that records a failed wait for the disk: the events after the head's may be in the
/// kernel's memory alone, and the kernel has forgotten so. It matters only until the next boot,
/// since from then on only what is on disk is read.
const UNSYNCED: &str = "unsynced";

const COPY_BYTES: usize = 64 << 10;

/// Warns other processes. If not even this file can be written, nothing can.
pub(crate) fn leave_doubt(directory: &OwnedFd) {
    let _ = disk::create(directory, UNSYNCED, OFlags::WRONLY);
}

/// Returns whether a wait for the disk has failed since the head was last known to be right.
pub(crate) fn is_doubted(directory: impl AsFd, path: &Path) -> Result<bool, FileFault> {
    match rustix::fs::statat(directory, UNSYNCED, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(FileFault::on("examine", path.join(UNSYNCED))(errno)),
    }
}

/// Writes once more everything after the head's event that may not be on disk, so that a wait for
/// the disk is meaningful again. The append lock is held.
pub(crate) fn settle_doubt(
    journal: &Journal,
    head: Option<&Head>,
    found: &FoundTail,
) -> Result<(), LedgerError> {
    let (mut number, mut from) = head.map_or((1, 0), |head| (head.segment.max(1), head.bytes));
    let last = found.tail.segment.as_ref();
    while last.is_some_and(|last| number <= last.number) {
        if let Some(segment) = Segment::open(journal.directory(), journal.path(), number, true)? {
            write_again(journal, &segment, from)?;
        }
        (number, from) = (number + 1, 0);
    }
    journal.sync_names()?;
    match disk::remove(journal.directory(), UNSYNCED) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(FileFault::on("remove", journal.path().join(UNSYNCED))(errno).into()),
    }
}

fn write_again(journal: &Journal, segment: &Segment, from: u64) -> Result<(), LedgerError> {
    let path = || journal.path().join(segment_name(segment.number));
    let mut buffer = vec![0_u8; COPY_BYTES];
    let mut at = from;
    loop {
        let count = segment
            .file
            .read_at(&mut buffer, at)
            .map_err(|cause| FileFault::on("read", path())(cause))?;
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        disk::write(&segment.file, bytes, at)
            .map_err(|cause| FileFault::on("write", path())(cause))?;
        at += count as u64;
    }
    Ok(journal.sync(segment)?)
}
