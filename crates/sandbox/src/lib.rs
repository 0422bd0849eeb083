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

mod approval;
mod attachment;
mod copies;
mod disk;
mod enforcement;
mod error;
mod exec;
mod fence;

mod execution;
mod files;
mod groups;
mod held;
mod host;
mod host_ports;
mod in_use;
mod launcher;
mod leftovers;
mod listening;
mod merged;
mod mountinfo;
mod native;
mod owners;
mod placement;
mod reclaim;
mod reports;
pub mod role;
mod roots;
mod session;
mod signals;
mod ssh_files;
mod subordinate;
mod system;
mod tree;
mod trial;
mod trusting;
mod unshown;
#[cfg(feature = "without_defences")]
mod without;
#[cfg(feature = "without_defences")]
pub use without::name_of;

pub use approval::{
    Agreed, ApprovalNews, Decision, Declined, Lease, Pending, PortAgreed, Second, Stopped, Who,
};
pub use atoll_guest::{Change, Entry, EntryKind};
pub use attachment::{
    Allowance, Answered, Attachment, Carrier, Denial, EndedExec, ExecCommand, FilesRequest,
    Reaction, SandboxRequest, SecondApproval, Settled, SettledOf, Size, StartExec, Stream, Turn,
};
pub use copies::copies_beside;
pub use disk::volume_usage;
pub use enforcement::{USER_NAMESPACE, forecast};
pub use error::{SandboxError, explain};
pub use files::{FileChange, FileServer, FileWatch};
pub use held::{First, Held, Unified, detect as detect_groups};
pub use host::{FENCE_LANDLOCK, Host};
pub use in_use::{InUse, disk_bytes, in_use, memory_in_use, resize};
pub use launcher::{LauncherReaper, Spawner, Starting};
pub use leftovers::{RunGroup, run_groups};
pub use listening::Listening;
pub use merged::{merged, shown_path};
pub use mountinfo::{MountPoint, parse_mounts};
pub use native::{Native, assemble};
pub use owners::unmapped_mounts;
pub use placement::{
    FencePlace, FurtherIds, IDS, OutputsPlace, PlacedLayer, Placement, WorkspacePlace,
    identity_base, make_layer,
};
pub use reclaim::{RECLAIM, reclaim, reclaim_inside};
pub use roots::read_roots;
pub use session::{Assembled, Running, Witness};
pub use signals::{SIGWINCH, Signals};
pub use subordinate::Subordinate;
pub use system::{furnish_part, furnish_system};
pub use tree::{ACCOUNTS, FROZEN_FILE, HOME_FILE_BYTES_MAX, TEMPLATE_DIRECTORY};
pub use trial::{Trial, try_namespaces};
pub use trusting::furnish_trust;

#[cfg(test)]
mod tests;
