use std::path::PathBuf;

use atoll_model::RunId;

use crate::FileFault;
use crate::canonical::CanonicalError;
use crate::lock::LockFault;

/// The ledger could not be opened, read or added to.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The kernel refused a file operation.
    #[error(transparent)]
    File(#[from] FileFault),
    /// The body of an event has no canonical form.
    #[error("an event of type {kind} cannot be recorded: {why}")]
    Body {
        /// The event's type.
        kind: String,
        /// The fault that was found.
        why: CanonicalError,
    },
    /// The event's type is not usable.
    #[error("{kind:?} cannot be recorded as an event's type: {why}")]
    Kind {
        /// The type asked for.
        kind: String,
        /// The fault that was found.
        why: &'static str,
    },
    /// The event is larger than an event may be.
    #[error(
        "an event of type {kind} would be {bytes} bytes, and {max} is the most; for a long \
         command, give the data in a file or on standard input"
    )]
    TooLarge {
        /// The event's type.
        kind: String,
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The end of the ledger is damaged beyond what can be set aside.
    #[error(
        "the ledger {} is damaged ({what}); look at it with `atoll ledger verify`, then move \
         its directory away to begin a new one",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage that was found.
        what: String,
    },
    /// Another process has held a lock for too long.
    #[error(
        "waited {waited_ms} ms for {}: another Atoll process holds it; see who with: \
         fuser {0}",
        path.display()
    )]
    Busy {
        /// The locked file.
        path: PathBuf,
        /// The time that was waited, milliseconds.
        waited_ms: u128,
    },
    /// A run of that name is open already.
    #[error("there is a run {0} already; start again to get another name")]
    RunExists(RunId),
    /// The sensitive members cannot be sealed, or their key cannot be kept.
    #[error("what is sensitive cannot be sealed: {0}")]
    Seal(String),
    /// An earlier wait for the disk failed, so that its content is unknown.
    #[error(
        "the ledger could not be written to disk earlier ({0}); check the disk, then start \
         Atoll again"
    )]
    Broken(String),
}

impl From<LockFault> for LedgerError {
    fn from(fault: LockFault) -> Self {
        match fault {
            LockFault::File(fault) => Self::File(fault),
            LockFault::TimedOut { path, waited_ms } => Self::Busy { path, waited_ms },
        }
    }
}
