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
mod control;
mod disk;
mod fault;
mod hash;
mod host_text;
mod kept;
mod ledger;
mod lock;
mod organisation;
mod private;
mod random;
mod record;
mod record_file;
mod removal;
mod reserve;
mod retention;
mod run_error;
mod runs;
mod scratch;
mod state;
mod stored_runs;
mod tokens;
mod tree;
mod trust;
mod usage;
mod vault;

pub use authority::{AuthorityError, CertificateAuthority, FormerAuthority};
pub use control::control_directory;
pub use disk::Durability;
pub use fault::FileFault;
pub use hash::{InvalidHash, TreeHash};
pub use host_text::{host_text, read_host_text};
pub use kept::{KEPT_VERSION, KeptError, KeptLayer, KeptName, KeptRecord, list_kept};
pub use ledger::canonical::{CanonicalError, EventBody, NESTING_MAX};
pub use ledger::checkpoint::SigningError;
pub use ledger::cosignature::{Cosigned, WitnessKey};
pub use ledger::entry::{Armed, Entry, Refusal, Refused};
pub use ledger::error::LedgerError;
pub use ledger::event::seal::unread;
pub use ledger::event::{
    EVENT_BYTES_MAX, Event, LABEL_GAINED, LineFault, Position, RIGHTS_GIVEN_UP, format_time,
};
pub use ledger::gained::{GAINED_BYTES_MAX, Gained, forget, forgettable};
pub use ledger::journal::Clock;
pub use ledger::labels::RunPurposes;
pub use ledger::note::{CHECKPOINT_BYTES_MAX, Checkpoint, NoteFault, VerifierKey};
pub use ledger::proof::{
    ConsistencyProof, InclusionProof, PROOF_BYTES_MAX, ProofFault, Proven, Prover, check_proof,
};
pub use ledger::read::{Events, Filter};
pub use ledger::recovery::{InterruptedRun, RunFault, live_runs};
pub use ledger::seals::{FollowedSeals, Seals, ShredWhy};
pub use ledger::sent::Sent;
pub use ledger::sessions::{Session, SessionError, SessionRun, SessionRunState};
pub use ledger::shredding::{Evidence, ShredError, Shredded};
pub use ledger::tiles::{ExportedTiles, export_tiles};
pub use ledger::unanswering::Unanswering;
pub use ledger::verify_report::{Damage, Place, Severity, Verified, VerifyError, VerifyReport};
pub use ledger::wanted::Against;
pub use ledger::witness::{Witness, WitnessFile, add_to_witness};
pub use ledger::{Asked, Ledger};
pub use organisation::{Day, MANIFEST_FILES_MAX, Manifest, OrganisationFault, OrganisationKey};
pub use organisation::{SEEN_EVERY, remember_manifest};
pub use private::PrivateFault;
pub use record::{ChangeCounts, LayerHow, LayerKind, LayerRecord, OverlayXattrs, SettingsRecord};
pub use record::{RECORD_VERSION, RunRecord, RunState};
pub use removal::{remove_run, remove_run_if};
pub use reserve::{release_end, reserve_end};
pub use retention::{CollectPlan, CollectPolicy, CollectReason, Collectable};
pub use retention::{collect, plan_collection};
pub use run_error::RunError;
pub use runs::{RunList, RunLock, create_run, find_run, list_runs, load_run, lock_run, update_run};
pub use scratch::{create_scratch, remove_scratch};
pub use state::{StateDir, StateError};
pub use stored_runs::{end_unanswering, settle_run};
pub use tokens::{TokenFileError, TokenFiles};
pub use trust::TrustFiles;
pub use usage::{DiskUsage, run_disk_usage};
pub use vault::{KeyKept, SECRETS_MAX, SealedSecret, Vault, VaultError, VaultKeyFile};

#[cfg(test)]
mod tests;
