mod commit;
mod repair;
mod unsynced;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::event::Draft;
use crate::head::{BootId, FoundHead, Head};
use crate::lock::{open_lock, wait_for_lock};
use crate::remains::Remains;
use crate::segment::{SEGMENT_BYTES_MAX, Segment, segment_name};
use crate::state::LEDGER;
use crate::tail::{FoundTail, Tail, find_tail, find_tail_after};
use crate::{FileFault, LedgerError, Position, StateDir, disk};
use commit::Commit;
use repair::repair;
use unsynced::{is_doubted, leave_doubt, settle_doubt};

/// The source of the events' times; `SystemTime::now` outside tests.
pub type Clock = fn() -> SystemTime;

/// The longest wait of an append for another process's append, milliseconds: they hold the lock for
/// microseconds, unless one was stopped.
const APPEND_WAIT_MS_MAX: u64 = 10_000;
/// The longest wait of an opening for another process's search for interrupted runs through the
/// whole ledger, milliseconds.
const RECOVERY_WAIT_MS_MAX: u64 = 120_000;

const APPEND_LOCK: &str = "lock";
const RECOVERY_LOCK: &str = "recovery";

/// A writer of events to the end of the ledger, for many threads and processes.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    state: StateDir,
    directory: OwnedFd,
    lock: OwnedFd,
    clock: Clock,
    boot: BootId,
    segment_bytes_max: u64,
    /// The end of the ledger as this process left it. Its mutex also orders the threads of this
    /// process, which share the file lock.
    tail: Mutex<Option<Tail>>,
    /// The losses that this process found and recorded, as sentences.
    losses: Mutex<Vec<String>>,
    commit: Commit,
}

impl Journal {
    pub(crate) fn open(state: &StateDir, clock: Clock) -> Result<Self, LedgerError> {
        Self::open_as(state, clock, BootId::current(), SEGMENT_BYTES_MAX)
    }

    pub(crate) fn open_as(
        state: &StateDir,
        clock: Clock,
        boot: BootId,
        segment_bytes_max: u64,
    ) -> Result<Self, LedgerError> {
        let path = state.path().join(LEDGER);
        let directory = state.subdirectory(LEDGER, true)?;
        if Head::read(&directory, &path)? == FoundHead::Missing {
            // Whoever made the directory may have ended before its name was on disk.
            state.sync_names()?;
        }
        let lock = open_lock(&directory, &path, APPEND_LOCK)?;
        Ok(Self {
            path,
            state: state.again()?,
            directory,
            lock,
            clock,
            boot,
            segment_bytes_max,
            tail: Mutex::new(None),
            losses: Mutex::new(Vec::new()),
            commit: Commit::default(),
        })
    }

    /// Appends an event and waits until it is on disk.
    pub(crate) fn append_durable(&self, draft: &Draft<'_>) -> Result<Position, LedgerError> {
        let (position, tail) = self.append(draft)?;
        self.commit.wait_for(self, tail)?;
        Ok(position)
    }

    /// Appends an event and hands it to the kernel.
    pub(crate) fn append_buffered(&self, draft: &Draft<'_>) -> Result<Position, LedgerError> {
        self.append(draft).map(|(position, _)| position)
    }

    /// Returns when everything up to this tail is on disk.
    pub(crate) fn make_durable(&self, tail: Tail) -> Result<(), LedgerError> {
        self.commit.wait_for(self, tail)
    }

    /// Appends an event and hands it to the kernel, for a writer that waits for the disk later, by
    /// [`Journal::make_durable`] with the returned tail.
    pub(crate) fn append(&self, draft: &Draft<'_>) -> Result<(Position, Tail), LedgerError> {
        self.extend(|tail| self.write(tail, draft))
    }

    /// Appends events one after another as [`Journal::append`] does, with one look at the ledger's
    /// end for all of them, and one write per segment. On an error the first of them may have been
    /// appended.
    pub(crate) fn append_all(&self, drafts: &[Draft<'_>]) -> Result<Tail, LedgerError> {
        let write = |mut tail| {
            let mut unwritten = Vec::new();
            for draft in drafts {
                (_, tail) = self.add(tail, draft, &mut unwritten)?;
            }
            self.write_out(&tail, &mut unwritten)?;
            Ok(((), tail))
        };
        self.extend(write).map(|((), tail)| tail)
    }

    /// Runs a write at the end of the ledger, under the append lock.
    fn extend<T>(
        &self,
        write: impl FnOnce(Tail) -> Result<(T, Tail), LedgerError>,
    ) -> Result<(T, Tail), LedgerError> {
        self.commit.check()?;
        let mut known = self.own_tail();
        let _held = self.hold_append_lock()?;
        let tail = self.sound_tail(known.take())?;
        let (written, tail) = write(tail)?;
        *known = Some(tail.clone());
        Ok((written, tail))
    }

    /// Returns the end of the ledger, after setting aside and recording any damage there. The
    /// append lock is held.
    fn sound_tail(&self, known: Option<Tail>) -> Result<Tail, LedgerError> {
        // As this process left it: it was held against the head then, and is again when the
        // head moves on.
        if let Some(tail) = known
            && self.is_current(&tail)?
        {
            return Ok(tail);
        }
        let mut head = Head::read(&self.directory, &self.path)?;
        let found = self.find_end(&head)?;
        // Without any segment they are there only where somebody removed the ledger.
        let remains = match (&found.tail.segment, &head) {
            (Some(_), _) => Remains::default(),
            (None, FoundHead::Missing) => Remains::all(&self.state)?,
            (None, FoundHead::Sound(_) | FoundHead::Garbled) => Remains::runs(&self.state),
        };
        if head == FoundHead::Missing && found.tail.segment.is_none() {
            let empty = Head::empty(self.boot.clone());
            empty
                .write(&self.directory, &self.path, true)
                .inspect_err(|fault| self.distrust(fault))?;
            head = FoundHead::Sound(empty);
        }
        repair(self, &head, found, remains)
    }

    /// Finds the end of the ledger on the disk. If the kernel may have written out of order, as
    /// when the power went or the disk failed, it reads from the last acknowledged event on: a line
    /// can be whole although one before it is lost.
    fn find_end(&self, head: &FoundHead) -> Result<FoundTail, LedgerError> {
        let known = match head {
            FoundHead::Sound(head) => Some(head),
            FoundHead::Missing | FoundHead::Garbled => None,
        };
        let doubted = is_doubted(&self.directory, &self.path)?;
        let in_order = known.is_some_and(|head| head.boot == self.boot) && !doubted;
        let found = match in_order {
            true => find_tail(&self.directory, &self.path, head)?,
            false => find_tail_after(&self.directory, &self.path, head)?,
        };
        // Whoever made a segment may have ended before its name was on disk.
        let number = found.tail.segment.as_ref().map_or(0, |last| last.number);
        if number > known.map_or(0, |head| head.segment) {
            self.sync_names()?;
        }
        if doubted {
            settle_doubt(self, known, &found)?;
        }
        Ok(found)
    }

    /// Begins the ledger if there is none. Files that are only made after that prove, if the ledger
    /// is gone, that somebody removed it.
    pub(crate) fn begin(&self) -> Result<(), LedgerError> {
        match Head::read(&self.directory, &self.path)? {
            FoundHead::Missing => self.settle_end(),
            FoundHead::Sound(_) | FoundHead::Garbled => Ok(()),
        }
    }

    /// Sets aside and records any damage at the end.
    pub(crate) fn settle_end(&self) -> Result<(), LedgerError> {
        self.extend(|tail| Ok(((), tail))).map(|_| ())
    }

    /// Waits until everything up to this tail is on disk. If that fails, this process does not
    /// trust the disk any more.
    pub(crate) fn sync_all_of(&self, tail: &Tail) -> Result<(), FileFault> {
        match &tail.segment {
            Some(segment) => self.sync(segment),
            None => Ok(()),
        }
    }

    pub(crate) fn sync(&self, segment: &Segment) -> Result<(), FileFault> {
        let path = self.path.join(segment_name(segment.number));
        let synced = disk::sync(&segment.file);
        synced
            .map_err(FileFault::on("wait for the disk to hold", path))
            .inspect_err(|fault| self.distrust(fault))
    }

    /// Waits until the names of segments are on disk.
    pub(crate) fn sync_names(&self) -> Result<(), FileFault> {
        disk::sync_names(&self.directory)
            .map_err(FileFault::on("wait for the disk to hold", &self.path))
            .inspect_err(|fault| self.distrust(fault))
    }

    /// Stops all further waits for the disk in this process, and warns others: after a failed wait
    /// the kernel takes what it could not write for written, and another wait would succeed.
    fn distrust(&self, fault: &FileFault) {
        self.commit.break_off(fault);
        leave_doubt(&self.directory);
    }

    /// Notes that everything up to here is on disk, also if there was more before.
    pub(crate) fn begin_at(&self, tail: &Tail) {
        self.commit.begin_at(tail.size);
    }

    /// Makes the segment after this one, once that is on disk.
    fn begin_segment(&self, last: Option<&Segment>) -> Result<Segment, LedgerError> {
        if let Some(last) = last {
            self.sync(last)?;
        }
        let number = last.map_or(0, |last| last.number) + 1;
        let segment = Segment::create(&self.directory, &self.path, number)?;
        self.sync_names()?;
        Ok(segment)
    }

    fn is_current(&self, tail: &Tail) -> Result<bool, FileFault> {
        match &tail.segment {
            Some(segment) => segment.is_still_last(&self.directory, &self.path),
            None => Ok(false),
        }
    }

    /// Writes one event after the tail. The append lock is held.
    pub(crate) fn write(
        &self,
        tail: Tail,
        draft: &Draft<'_>,
    ) -> Result<(Position, Tail), LedgerError> {
        let mut unwritten = Vec::new();
        let (position, tail) = self.add(tail, draft, &mut unwritten)?;
        self.write_out(&tail, &mut unwritten)?;
        Ok((position, tail))
    }

    /// Adds one event to the unwritten part of the tail's segment. If it does not fit there, it
    /// begins a new segment, once everything before it is written.
    fn add(
        &self,
        tail: Tail,
        draft: &Draft<'_>,
        unwritten: &mut Vec<u8>,
    ) -> Result<(Position, Tail), LedgerError> {
        let (line, leaf) = draft.line(tail.size, tail.leaf, (self.clock)())?;
        let line_bytes = line.len() as u64;
        let fits =
            |last: &Segment| last.bytes == 0 || last.bytes + line_bytes <= self.segment_bytes_max;
        if !tail.segment.as_ref().is_some_and(fits) {
            self.write_out(&tail, unwritten)?;
        }
        let mut segment = match tail.segment {
            Some(last) if fits(&last) => last,
            last => self.begin_segment(last.as_ref())?,
        };
        let offset = segment.bytes;
        segment.bytes += line_bytes;
        unwritten.extend_from_slice(&line);
        let position = Position {
            seq: tail.size,
            leaf,
            segment: segment.number,
            offset,
        };
        let tail = Tail {
            size: tail.size + 1,
            leaf,
            segment: Some(segment),
        };
        Ok((position, tail))
    }

    /// Writes the bytes that end at this tail.
    fn write_out(&self, tail: &Tail, unwritten: &mut Vec<u8>) -> Result<(), LedgerError> {
        let Some(segment) = &tail.segment else {
            return Ok(());
        };
        let offset = segment.bytes - unwritten.len() as u64;
        if let Err(cause) = disk::write(&segment.file, unwritten, offset) {
            // Part of it may be there. If it cannot be taken back, the next append finds
            // it and sets it aside.
            let _ = disk::set_length(&segment.file, offset);
            let file = self.path.join(segment_name(segment.number));
            return Err(FileFault::on("write an event to", file)(cause).into());
        }
        unwritten.clear();
        Ok(())
    }

    /// Notes in the head that everything up to this tail is on disk, unless
    /// another process has noted more.
    pub(crate) fn advance_head(&self, tail: &Tail) -> Result<(), LedgerError> {
        let mut known = self.own_tail();
        let _held = self.hold_append_lock()?;
        match Head::read(&self.directory, &self.path)? {
            FoundHead::Sound(head) if head.size >= tail.size => Ok(()),
            head @ FoundHead::Sound(_) => self.write_head(tail, &head, false),
            // Somebody took it away: that is recorded, and not covered by a new one.
            FoundHead::Missing | FoundHead::Garbled => {
                *known = None;
                *known = Some(self.sound_tail(None)?);
                Ok(())
            }
        }
    }

    /// Sets the head. The boot in it stays: only [`Journal::note_boot`] notes that the ledger has
    /// been looked through. The append lock is held.
    pub(crate) fn write_head(
        &self,
        tail: &Tail,
        before: &FoundHead,
        first: bool,
    ) -> Result<(), LedgerError> {
        let segment = tail.segment.as_ref();
        let boot = match before {
            FoundHead::Sound(before) => &before.boot,
            FoundHead::Missing | FoundHead::Garbled => &self.boot,
        };
        let head = Head {
            size: tail.size,
            leaf: tail.leaf,
            segment: segment.map_or(0, |segment| segment.number),
            bytes: segment.map_or(0, |segment| segment.bytes),
            boot: boot.clone(),
        };
        Ok(head.write(&self.directory, &self.path, first)?)
    }

    /// Returns whether the ledger was last written under another boot of the kernel: then runs may
    /// have been open whose markers never reached the disk.
    pub(crate) fn is_from_another_boot(&self) -> Result<bool, LedgerError> {
        Ok(match Head::read(&self.directory, &self.path)? {
            FoundHead::Sound(head) => head.boot != self.boot,
            FoundHead::Garbled => true,
            FoundHead::Missing => Segment::open(&self.directory, &self.path, 1, false)?.is_some(),
        })
    }

    /// Notes in the head that the ledger has been looked through since boot.
    pub(crate) fn note_boot(&self) -> Result<(), LedgerError> {
        let _threads = self.own_tail();
        let _held = self.hold_append_lock()?;
        if let FoundHead::Sound(mut head) = Head::read(&self.directory, &self.path)? {
            head.boot = self.boot.clone();
            head.write(&self.directory, &self.path, false)?;
        }
        Ok(())
    }

    /// Returns a place in the ledger before which the run that is about to be opened has no event:
    /// segment and offset of a line's begin.
    pub(crate) fn scan_start(&self) -> Result<(u32, u64), LedgerError> {
        Ok(match Head::read(&self.directory, &self.path)? {
            FoundHead::Sound(head) => (head.segment, head.bytes),
            FoundHead::Missing | FoundHead::Garbled => (0, 0),
        })
    }

    pub(crate) fn hold_recovery_lock(&self) -> Result<OwnedFd, LedgerError> {
        let lock = open_lock(&self.directory, &self.path, RECOVERY_LOCK)?;
        let path = self.path.join(RECOVERY_LOCK);
        wait_for_lock(&lock, &path, EXCLUSIVE, RECOVERY_WAIT_MS_MAX)?;
        Ok(lock)
    }

    fn hold_append_lock(&self) -> Result<HeldLock<'_>, LedgerError> {
        let path = self.path.join(APPEND_LOCK);
        wait_for_lock(&self.lock, &path, EXCLUSIVE, APPEND_WAIT_MS_MAX)?;
        Ok(HeldLock { lock: &self.lock })
    }

    /// Locks the tail. A poisoned lock is as good as any: the tail is taken out while it is being
    /// changed, and compared with the files before it is trusted.
    pub(crate) fn own_tail(&self) -> MutexGuard<'_, Option<Tail>> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Saves the message about a loss, for [`Journal::losses`].
    pub(crate) fn remember_loss(&self, remark: Option<String>) {
        let losses = self.losses.lock();
        losses
            .unwrap_or_else(PoisonError::into_inner)
            .extend(remark);
    }

    /// Returns the losses that this process found.
    pub(crate) fn losses(&self) -> Vec<String> {
        let losses = self.losses.lock();
        losses.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn directory(&self) -> &OwnedFd {
        &self.directory
    }
}

/// The append lock, held until dropped.
struct HeldLock<'a> {
    lock: &'a OwnedFd,
}

impl Drop for HeldLock<'_> {
    fn drop(&mut self) {
        // Unlocked by name and not by closing: a child between fork and exec has
        // a copy of the descriptor.
        let _ = rustix::fs::flock(self.lock, FlockOperation::Unlock);
    }
}

/// Waits until no append is going on, and keeps others from beginning; for readers, who need no
/// right to write. Without a lock file there is no writer.
pub(crate) fn hold_for_reading(
    directory: impl AsFd,
    path: &Path,
) -> Result<Option<OwnedFd>, LedgerError> {
    let path = path.join(APPEND_LOCK);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = match rustix::fs::openat(directory, APPEND_LOCK, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.map_err(FileFault::on("open", &path))?,
    };
    let shared = FlockOperation::NonBlockingLockShared;
    wait_for_lock(&lock, &path, shared, APPEND_WAIT_MS_MAX)?;
    Ok(Some(lock))
}

const EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;
