//! The types that Atoll's crates share.
//!
//! Anything that two other crates must agree about lives here: the ids of runs and sessions, the
//! request to execute a program ([`Call`]), the rights to see and change things ([`Boundary`]), the
//! resource limits ([`Limits`]) and the result of an execution ([`Outcome`]).
//!
//! This crate never does I/O, never reads a clock and depends on no other crate of Atoll. Start
//! reading at [`Boundary`].

mod attempt;
mod boundary;
mod call;
pub mod conduct;
mod ids;
mod input;
mod limits;
mod masking;
pub mod network;
mod outcome;
mod quantity;
mod secret;
mod session;
mod settings;
mod verdict;
mod volume;
mod words;

pub use attempt::{ATLAS_VERSION, Attempt, TOLD_CALLS, Technique, ViolationKind, is_probe};
pub use boundary::{
    Access, Boundary, Keep, Layering, Mode, OUTPUTS_DIRECTORY, OutputsRule, SyscallRights,
    TerminalRights, View, ViewKind, WorkspaceMode,
};
pub use call::{
    Action, Administer, AllowHost, Argument, ArgumentValue, Asker, Call, CallId, CallTool,
    ChangeLimits, Escalate, Exec, InvalidToolName, Once, Place, Principal, Program, PublishPort,
    RESIDENT, Resident, Served, ServedExec, Shadow, TOOL_NAME_BYTES_MAX, ToolEffect, ToolEnd,
    ToolKind, ToolName, ToolUndo,
};
pub use ids::{InvalidRunId, RunId, civil_date, days_of_date};
pub use input::{INPUTS_DIRECTORY, Input, InputBounds, InputName, InputSource, Inputs};
pub use limits::{InvalidLimit, LimitKey, Limits, parse_limit};
pub use masking::{SECRET_KINDS, SecretKind, mask_secrets, mask_secrets_in};
pub use outcome::{Ending, Enforcement, LimitHit, Outcome, Usage};
pub use quantity::{InvalidQuantity, format_bytes, format_duration, parse_bytes, parse_duration};
pub use secret::{InvalidSecretName, SECRET_NAME_BYTES_MAX, SecretName};
pub use session::{
    InvalidSessionId, InvalidSessionName, SESSION_NAME_BYTES_MAX, SessionId, SessionName,
};
pub use settings::PlaceholderState;
pub use verdict::{Reason, Verdict};
pub use volume::{VOLUME_INODES_MAX, VolumeMount};
pub use words::{WORD_BYTES_MAX, WordTooLong, check_words};

#[cfg(test)]
mod tests;
