//! The records of runs, and the keys and secrets of a deployment: with the ledger, on which it
//! builds, the only crate that writes durable data.
//!
//! This crate must never decide anything (that is policy's) and never speak to a network. Records
//! agree with the ledger: when the ledger records that a run was interrupted, the run's record is
//! settled with it.
//!
//! Start reading at [`RunRecord`] and `runs.rs`, then `stored_runs.rs` for how records and the
//! ledger go together.

mod artifacts;
mod authority;
mod control;
mod kept;
mod organisation;
mod outputs;
mod record;
mod record_file;
mod removal;
mod reserve;
mod retention;
mod run_error;
mod runs;
mod scratch;
mod served;
mod stored_runs;
mod tokens;
mod tree;
mod trust;
mod usage;
mod vault;

pub use artifacts::{
    Artifact, ArtifactDecision, ArtifactError, ArtifactFilter, ArtifactOrigin, ArtifactState,
    Artifacts, Deposit, Deposited, Evidence, KeptArtifacts, media_type,
};
pub use authority::{AuthorityError, CertificateAuthority, FormerAuthority, ServerCertificate};
pub use control::control_directory;
pub use kept::{KEPT_VERSION, KeptError, KeptLayer, KeptName, KeptRecord, kept_names, list_kept};
pub use organisation::{Day, MANIFEST_FILES_MAX, Manifest, OrganisationFault, OrganisationKey};
pub use organisation::{SEEN_EVERY, Signed, remember_manifest};
pub use outputs::{
    InputFacts, begin_outputs, end_outputs, end_without_outputs, left_outputs, note_inputs,
    note_origin, noted_inputs, origin_of_left, outputs_dir,
};
pub use record::{ChangeCounts, LayerHow, LayerKind, LayerRecord, OverlayXattrs, SettingsRecord};
pub use record::{RECORD_VERSION, RunRecord, RunState};
pub use removal::{remove_run, remove_run_if};
pub use reserve::{hold_for_removal, release_end, release_for_removal, reserve_end};
pub use retention::{CollectPlan, CollectPolicy, CollectReason, Collectable};
pub use retention::{collect, plan_collection};
pub use run_error::RunError;
pub use runs::{RunList, RunLock, create_run, find_run, list_runs, load_run, lock_run, update_run};
pub use scratch::{create_scratch, remove_directory, remove_scratch};
pub use served::{
    Delivery, NewWebhook, PausedSandbox, Queued, Snapshot, StoredTemplate, Volume, Webhook,
    WebhookChange,
};
pub use served::{
    FIRST_TENANT, ISSUER_MARK, KeyRecord, LifecycleEvent, NewKey, Page, Role, Scope, Scopes,
    ServedError, ServedStore,
};
pub use served::{KeptEvents, RetainedStore, home_name};
pub use served::{KeyStore, SandboxStore, Store, TemplateStore, VolumeStore, WebhookStore};
pub use stored_runs::{end_unanswering, open_ledger, settle_run};
pub use tokens::{TokenFileError, TokenFiles};
pub use trust::TrustFiles;
pub use usage::{DiskUsage, directory_usage, run_disk_usage};
pub use vault::{KeyKept, SECRETS_MAX, SealedSecret, Vault, VaultError, VaultKeyFile};

#[cfg(test)]
mod tests;
