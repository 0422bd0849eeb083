//! Sandboxes: disposable places to execute.
//!
//! The native backend turns a [`Boundary`](atoll_model::Boundary) into a frozen description,
//! starts the launcher from sealed memory, and supervises the sandbox until it is gone: it
//! copies input and output, forwards signals, watches time and disk, and reads the resource
//! usage.
//!
//! Only an [`Armed`](atoll_ledger::Armed) grant starts a program. This crate names
//! the types `Grant` and `Armed`, and nothing else of policy and store; it knows
//! no HTTP, no SQL and no ledger. Start reading at [`assemble`].

mod approvals;
mod attachment;
mod commands;
mod control;
mod copies;
mod disk;
mod doors;
mod enforcement;
mod errand;
mod error;
mod exec;
mod fence;

mod execution;
mod flows;
mod groups;
mod handover;
mod held;
mod host;
mod launcher;
mod leftovers;
mod listening;
mod locks;
mod login_file;
mod login_renewal;
mod mountinfo;
mod native;
mod outside;
mod owners;
mod placement;
mod reclaim;
mod roots;
mod session;
mod signals;
mod signing;
mod standing;
mod subordinate;
mod system;
mod token_renewal;
mod tree;
mod trial;
mod trusting;
mod unshown;
#[cfg(feature = "without_defences")]
mod without;

pub use approvals::{
    Agreed, ApprovalNews, Decision, Lease, Pending, Second, Stopped, Who, Widening,
};
pub use attachment::{
    Answered, Attachment, Carrier, EndedExec, OfTwo, OpenFile, Reaction, SandboxRequest, Settled,
    SettledOf, StartExec, Stream, Turn,
};
pub use commands::CredentialCommand;
pub use control::{
    Answer, CONTROL_VERSION, ControlError, Declined, ExecConnection, ExecDone, ExecRequest, Frozen,
    OutputFilter, PortAgreed, Question, Reloaded, Runs, Versions, ask_run as ask, ask_until,
    exec_in, freeze, open_in, runs_spoken_to as spoken_to,
};
pub use copies::copies_beside;
pub use doors::Doors;
pub use enforcement::{USER_NAMESPACE, forecast};
pub use errand::{
    Unfit, Workspaces, Writers, WrittenInside, argument_inside, environment_outside, file_outside,
    program_outside, search_places,
};
pub use error::{SandboxError, explain};
pub use exec::ExecCommand;
pub use flows::{Flows, Refused};
pub use handover::{CaughtToken, Disguise, Handover, SourceError, Stands, Told, take_out};
pub use held::{First, Held, Unified, detect as detect_groups};
pub use host::{FENCE_LANDLOCK, Host};
pub use launcher::{Departing, Spawner, Starting};
pub use leftovers::{RunGroup, run_groups};
pub use login_file::{
    FieldError, LoginFileError, LoginLock, LoginText, read_login_file, read_settings_file,
};
pub use login_renewal::{LoginFacts, LoginRenewal, RenewedLogin};
pub use mountinfo::{MountPoint, parse_mounts};
pub use native::{Native, assemble};
pub use outside::{
    AskedExec, Comparer, ExecGate, FlowNews, IsRevoked, Issuer, Live, NewPolicies, OUTSIDE,
    Outside, Publisher, Recorder, Reloader,
};
pub use owners::unmapped_mounts;
pub use placement::{
    FencePlace, FurtherIds, IDS, PlacedLayer, Placement, WorkspacePlace, identity_base, make_layer,
};
pub use reclaim::{RECLAIM, reclaim, reclaim_inside};
pub use session::{Assembled, Running, Size, Witness};
pub use signals::{SIGWINCH, Signals};
pub use signing::{SIGNER, SshHandover};
pub use standing::{furnish_login, has_changed, is_written_outside, settings_digest};
pub use subordinate::Subordinate;
pub use system::furnish_system;
pub use token_renewal::{RotatedToken, TokenPlace, TokenRenewal, TokenVault};
pub use tree::HOME_FILE_BYTES_MAX;
pub use trial::{Trial, try_namespaces};
pub use trusting::furnish_trust;

#[cfg(test)]
mod tests;
