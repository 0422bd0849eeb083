//! The ledger: an append-only, hash-chained log of events, its proofs, and the files that are kept
//! beside it for its sake.
//!
//! Its format is described in `docs/ledger.md`. It also guards the order of the main path: a call
//! is recorded durably before any effect, and only a recorded and allowed call becomes an
//! [`Armed`], without which no sandbox can be started.
//!
//! This crate must never decide anything (that is policy's), never speak to a network, and never
//! change an event that was written. It knows runs only by their names: their files are settled by
//! the caller that opens the ledger ([`RunFiles`]). Anything that it cannot vouch for — a torn
//! line, a truncation, a run whose Atoll died — it sets aside and records.
//!
//! Start reading at [`Ledger`], then `journal.rs` for how one event is written, `event.rs` and
//! `canonical.rs` for its format, `checkpoint.rs` for signatures, `verify.rs` for checks. Beneath
//! them all lie `state.rs`, the state directory, and `disk.rs`, through which every change goes
//! that evidence rests on.

mod bodies;
mod canonical;
mod checkpoint;
mod conduct;
mod cosignature;
mod disk;
mod entry;
mod error;
mod event;
mod fault;
mod gained;
mod hash;
mod head;
mod holds;
pub mod host_text;
mod journal;
mod labels;
mod ledger;
mod lines;
pub mod lock;
mod masking;
mod merkle;
mod note;
mod open_runs;
pub mod private;
mod proof;
pub mod random;
mod read;
mod recovery;
mod remains;
mod scan;
mod seals;
mod segment;
mod sent;
mod sessions;
mod settled;
mod shorten;
mod shredding;
pub mod state;
mod tail;
mod tiles;
mod told;
mod unanswering;
mod verify;
mod verify_report;
mod wanted;
mod witness;

pub use canonical::{CanonicalError, EventBody, INTEGER_MAX, NESTING_MAX};
pub use checkpoint::{SigningError, sign_statement};
pub use cosignature::{Cosigned, WitnessKey};
pub use disk::Durability;
pub use entry::{Armed, ClosedExec, Entry, Refusal, Refused};
pub use error::LedgerError;
pub use event::seal::unread;
pub use event::{EVENT_BYTES_MAX, Event, LineFault, Position, format_time};
pub use event::{LABEL_GAINED, RIGHTS_GIVEN_UP};
pub use fault::FileFault;
pub use gained::{GAINED_BYTES_MAX, SharedLabels, forget, forgettable};
pub use hash::{InvalidHash, TreeHash, hex};
pub use holds::{Evidence, Holds, ShredError, runs_of};
pub use host_text::{host_text, read_host_text};
pub use journal::Clock;
pub use labels::{KeptUse, RunPurposes};
pub use ledger::{Asked, Ledger};
pub use note::{CHECKPOINT_BYTES_MAX, Checkpoint, NoteFault, SigningKey, VerifierKey};
pub use note::{decimal, signed_text};
pub use open_runs::{OpenCalls, OpenRuns};
pub use private::PrivateFault;
pub use proof::check_proof;
pub use proof::{ConsistencyProof, InclusionProof, PROOF_BYTES_MAX, ProofFault, Proven, Prover};
pub use read::{Events, Filter};
pub use recovery::{InterruptedRun, RunFault, RunFiles, live_runs};
pub use seals::{FollowedSeals, Seals, ShredWhy};
pub use sent::Sent;
pub use sessions::{Session, SessionError, SessionRun, SessionRunState};
pub use shredding::Shredded;
pub use state::{StateDir, StateError};
pub use tiles::{ExportedTiles, export_tiles};
pub use told::{forget_tellings, is_first_telling};
pub use unanswering::{UnresponsiveRun, end_unanswering};
pub use verify_report::{Damage, Place, Severity, Verified, VerifyError, VerifyReport};
pub use wanted::Against;
pub use witness::{Witness, WitnessFile, add_to_witness};

#[cfg(test)]
mod tests;
