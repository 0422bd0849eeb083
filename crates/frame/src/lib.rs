//! Bounded messages between the host side, the launcher (`jail`), the first process in the sandbox
//! (`init`) and the exec server beside it.
//!
//! A sandbox is described once, by a [`SandboxSpec`]: a frozen list of closed operations. Then each
//! program is described by an [`ExecSpec`], started by a [`Request`] to the exec server, and known
//! by its [`ExecId`]. Small [`Order`]s go to the first process, and [`Report`]s come out. Every
//! message has a fixed form in little-endian bytes and a named limit; a reader takes the whole
//! message or refuses it.
//!
//! This crate does no I/O and makes no system call. Start reading at [`SandboxSpec`].

mod exec;
mod message;
mod spec;
pub mod wire;

pub use exec::{ExecId, ExecSpec, ExecTerminal, REQUEST_BYTES_MAX, Request, User};
pub use message::{MESSAGE_BYTES_MAX, Order, Report, Stage};
pub use spec::{
    Funnel, HOST_PORTS_MAX, INWARD_MAX, Identity, KILL, LOWER_MAX, NEST_AS_ROOT, Nesting,
    Operation, Permission, Place, ROOT_CAPABILITIES, ResourceLimit, Room, SPEC_BYTES_MAX,
    SandboxSpec, Source, Terminal, WHOLE, Watch,
};
pub use wire::Malformed;

#[cfg(test)]
mod tests;
