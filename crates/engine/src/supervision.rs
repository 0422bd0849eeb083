//! The supervision of a run beside its sandbox: its egress process, credentials and their renewal,
//! approvals, and the control socket.
//!
//! Start reading at [`Outside`].

mod approvals;
mod commands;
mod control;
mod doors;
mod errand;
mod flows;
mod handover;
mod locks;
mod login_file;
mod login_renewal;
mod outside;
mod owner;
mod signing;
mod standing;
mod token_renewal;

pub use approvals::DualControlRule;
pub use commands::CredentialCommand;
pub(crate) use control::connected_to;
pub use control::{
    Answer, CONTROL_VERSION, ControlError, ExecConnection, ExecDone, ExecRequest, Frozen,
    OutputFilter, Question, Reloaded, Runs, Versions, ask_run as ask, ask_until, exec_in, freeze,
    runs_spoken_to as spoken_to,
};
pub use doors::EgressInputs;
pub use errand::{
    Unfit, Workspaces, Writers, WrittenInside, argument_inside, environment_outside, file_outside,
    program_outside, search_places,
};
pub use flows::{Flows, Refused};
pub use handover::{
    CaughtToken, CredentialBundle, Disguise, PlaceholderFile, SourceError, Told, keep_variables,
    take_out,
};
pub use login_file::{
    FieldError, LoginFileError, LoginLock, LoginText, read_login_file, read_settings_file,
};
pub use login_renewal::{LoginFacts, LoginRenewal, RenewedLogin};
pub(crate) use outside::OUTSIDE;
pub use outside::{
    AskedExec, CallGate, ExecGate, FlowEvent, HostEffect, IsRevoked, Issuer, Live, NewPolicies,
    Outside, PortEffect, ProjectAllowance, Recorder,
};
pub use owner::{Owner, OwnerEnd, owner};
pub(crate) use signing::SIGNER;
pub use signing::SshHandover;
pub use standing::{furnish_login, has_changed, is_written_outside, settings_digest};
pub use token_renewal::{RotatedToken, TokenPlace, TokenRenewal, TokenVault};
