use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::journal::Journal;
use crate::tail::Tail;
use crate::{FileFault, LedgerError};

/// Shared waits for the disk among the threads of a process: one thread waits for everything that
/// was appended before, the others for that thread. Processes share in the kernel, which writes all
/// of a file's new bytes for any of them.
#[derive(Debug, Default)]
pub(crate) struct Commit {
    progress: Mutex<Progress>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Progress {
    /// The number of events that are on disk.
    durable_size: u64,
    /// True if a thread is waiting for the disk.
    waiting: bool,
    /// The reason why nothing can be written any more. After a failed fdatasync the kernel forgets
    /// which pages it could not write, and a second one reports success.
    broken: Option<String>,
}

impl Commit {
    /// Returns an error once a wait for the disk has failed.
    pub(crate) fn check(&self) -> Result<(), LedgerError> {
        match &self.progress().broken {
            Some(why) => Err(LedgerError::Broken(why.clone())),
            None => Ok(()),
        }
    }

    /// Returns when everything up to this tail is on disk.
    pub(crate) fn wait_for(&self, journal: &Journal, tail: Tail) -> Result<(), LedgerError> {
        let mut progress = self.progress();
        loop {
            if let Some(why) = &progress.broken {
                return Err(LedgerError::Broken(why.clone()));
            }
            if progress.durable_size >= tail.size {
                return Ok(());
            }
            if !progress.waiting {
                break;
            }
            progress = self
                .moved
                .wait(progress)
                .unwrap_or_else(PoisonError::into_inner);
        }
        progress.waiting = true;
        drop(progress);

        // What other threads have appended since is taken along. A newer segment
        // is as good as this one: the older was synced before it was begun.
        let newest = journal.own_tail().clone();
        let target = newest
            .filter(|newest| newest.size > tail.size)
            .unwrap_or(tail);
        let synced = journal.sync_all_of(&target);
        let noted = match &synced {
            Ok(()) => journal.advance_head(&target),
            Err(_) => Ok(()),
        };

        let mut progress = self.progress();
        progress.waiting = false;
        if synced.is_ok() {
            progress.durable_size = progress.durable_size.max(target.size);
        }
        drop(progress);
        self.moved.notify_all();
        synced?;
        noted
    }

    /// Makes every further wait fail.
    pub(crate) fn break_off(&self, fault: &FileFault) {
        let mut progress = self.progress();
        progress.broken.get_or_insert_with(|| fault.to_string());
    }

    /// Restarts the count: the ledger ends here, on disk, also if it had more events.
    pub(crate) fn begin_at(&self, size: u64) {
        self.progress().durable_size = size;
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
