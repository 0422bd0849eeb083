//! The ledger and the records of runs: the only crate that writes durable data.
//!
//! The ledger is an append-only, hash-chained log of events ([`Ledger`]); its
//! form is described in `docs/ledger.md`. It also guards the order of the main
//! path: a call is recorded durably before any effect, and only a recorded and
//! allowed call becomes an [`Armed`], without which no sandbox can be started.
//!
//! This crate must never decide anything (that is policy's), never speak to a
//! network, and never change an event that was written. What it cannot vouch
//! for — a torn line, a cut, a run whose Atoll died — it sets aside and records.
//!
//! Start reading at [`Ledger`], then `journal.rs` for how one event is written.

mod authority;
mod canonical;
mod checkpoint;
mod conduct;
mod control;
mod cosignature;
mod disk;
mod entry;
mod error;
mod event;
mod fault;
mod gained;
mod hash;
mod head;
mod host_text;
mod journal;
mod kept;
mod labels;
mod ledger;
mod lines;
mod lock;
mod merkle;
mod note;
mod open_runs;
mod organisation;
mod private;
mod proof;
mod random;
mod read;
mod record;
mod record_file;
mod recovery;
mod remains;
mod removal;
mod reserve;
mod retention;
mod run_error;
mod runs;
mod scan;
mod scratch;
mod seals;
mod segment;
mod sent;
mod sessions;
mod settled;
mod shorten;
mod shredding;
mod state;
mod stored_runs;
mod tail;
mod tiles;
mod tokens;
mod tree;
mod trust;
mod unanswering;
mod usage;
mod vault;
mod verify;
mod verify_report;
mod wanted;
mod witness;

pub use authority::{AuthorityError, CertificateAuthority, FormerAuthority};
pub use canonical::{CanonicalError, EventBody, NESTING_MAX};
pub use checkpoint::SigningError;
pub use control::control_directory;
pub use cosignature::{Cosigned, WitnessKey};
pub use disk::Durability;
pub use entry::{Armed, Entry, Refusal, Refused};
pub use error::LedgerError;
pub use event::seal::unread;
pub use event::{
    EVENT_BYTES_MAX, Event, LABEL_GAINED, LineFault, Position, RIGHTS_GIVEN_UP, format_time,
};
pub use fault::FileFault;
pub use gained::{GAINED_BYTES_MAX, Gained, forget, forgettable};
pub use hash::{InvalidHash, TreeHash};
pub use host_text::{host_text, read_host_text};
pub use journal::Clock;
pub use kept::{KEPT_VERSION, KeptError, KeptLayer, KeptName, KeptRecord, list_kept};
pub use labels::RunPurposes;
pub use ledger::{Asked, Ledger};
pub use note::{CHECKPOINT_BYTES_MAX, Checkpoint, NoteFault, VerifierKey};
pub use organisation::{Day, MANIFEST_FILES_MAX, Manifest, OrganisationFault, OrganisationKey};
pub use organisation::{SEEN_EVERY, remember_manifest};
pub use private::PrivateFault;
pub use proof::{
    ConsistencyProof, InclusionProof, PROOF_BYTES_MAX, ProofFault, Proven, Prover, check_proof,
};
pub use read::{Events, Filter};
pub use record::{ChangeCounts, LayerHow, LayerKind, LayerRecord, OverlayXattrs, SettingsRecord};
pub use record::{RECORD_VERSION, RunRecord, RunState};
pub use recovery::{InterruptedRun, RunFault, live_runs};
pub use removal::{remove_run, remove_run_if};
pub use reserve::{release_end, reserve_end};
pub use retention::{CollectPlan, CollectPolicy, CollectReason, Collectable};
pub use retention::{collect, plan_collection};
pub use run_error::RunError;
pub use runs::{RunList, RunLock, create_run, find_run, list_runs, load_run, lock_run, update_run};
pub use scratch::{create_scratch, remove_scratch};
pub use seals::{FollowedSeals, Seals, ShredWhy};
pub use sent::Sent;
pub use sessions::{Session, SessionError, SessionRun, SessionRunState};
pub use shredding::{Evidence, ShredError, Shredded};
pub use state::{StateDir, StateError};
pub use stored_runs::{end_unanswering, settle_run};
pub use tiles::{ExportedTiles, export_tiles};
pub use tokens::{TokenFileError, TokenFiles};
pub use trust::TrustFiles;
pub use unanswering::Unanswering;
pub use usage::{DiskUsage, run_disk_usage};
pub use vault::{KeyKept, SECRETS_MAX, SealedSecret, Vault, VaultError, VaultKeyFile};
pub use verify_report::{Damage, Place, Severity, Verified, VerifyError, VerifyReport};
pub use wanted::Against;
pub use witness::{Witness, WitnessFile, add_to_witness};

#[cfg(test)]
mod tests;
