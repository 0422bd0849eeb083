//! Bounded messages between the host side, the launcher (`jail`) and the first process in the
//! sandbox (`init`).
//!
//! A sandbox is described once, by a [`Spec`]: a frozen list of closed operations. Afterwards only
//! small [`Order`]s go in and [`Report`]s come out. Every message has a fixed form in little-endian
//! bytes and a named limit; a reader takes the whole message or refuses it.
//!
//! This crate does no I/O and makes no system call. Start reading at [`Spec`].

mod message;
mod spec;
mod wire;

pub use message::{MESSAGE_BYTES_MAX, Order, Report, Stage};
pub use spec::{
    Funnel, INWARD_MAX, Identity, KILL, NEST_AS_ROOT, Nesting, Operation, Permission, Place,
    ROOT_CAPABILITIES, ResourceLimit, Room, SPEC_BYTES_MAX, Source, Spec, Terminal, Watch,
};
pub use wire::Malformed;

#[cfg(test)]
mod tests;
