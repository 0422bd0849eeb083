//! Atoll's words as types.
//!
//! Everything that two other crates must agree about lives here: what a run is
//! called, what is asked for ([`Call`]), what may be seen and changed
//! ([`Boundary`]), how much may be used ([`Limits`]) and how it ended
//! ([`Outcome`]).
//!
//! This crate never does I/O, never reads a clock and knows no other crate.
//! Start reading at [`Boundary`].

mod attempt;
mod boundary;
mod call;
pub mod conduct;
mod ids;
mod limits;
pub mod network;
mod outcome;
mod quantity;
mod secret;
mod session;
mod settings;
mod verdict;

pub use attempt::{ATLAS_VERSION, Attempt, TOLD_CALLS, Technique, Wall};
pub use boundary::{
    Access, Boundary, Keep, Layering, Mode, SyscallRights, TerminalRights, View, ViewKind,
    WorkspaceMode,
};
pub use call::{Call, Principal};
pub use ids::{InvalidRunId, RunId, civil_date, days_of_date};
pub use limits::{InvalidLimit, LimitKey, Limits, parse_limit};
pub use outcome::{Ending, Enforcement, LimitHit, Outcome, Usage};
pub use quantity::{InvalidQuantity, format_bytes, format_duration, parse_bytes, parse_duration};
pub use secret::{InvalidSecretName, SECRET_NAME_BYTES_MAX, SecretName};
pub use session::{
    InvalidSessionId, InvalidSessionName, SESSION_NAME_BYTES_MAX, SessionId, SessionName,
};
pub use settings::Stood;
pub use verdict::{Reason, Verdict};

#[cfg(test)]
mod tests;
