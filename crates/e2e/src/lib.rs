//! The harness of the end-to-end tests: a fresh [`World`] for each test, the real
//! program started in it, and ways to judge it from outside.
//!
//! The program under test is the file that `ATOLL_BIN` names. Nothing here may use
//! a crate of Atoll's: what the tests see is what a person would see. Every
//! wait is for a condition and has a bound; there is no sleeping for a guess.
//! Start reading at [`World`], then [`Invocation`], [`Running`] and [`Terminal`].

// Everything here runs within tests, where a panic is how a check fails.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod apparmor;
pub mod aws;
pub mod canary;
mod guest;
pub mod holders;
pub mod internet;
mod invocation;
mod outcome;
mod processes;
pub mod registries;
pub mod remains;
mod terminal;
pub mod traces;
mod tree;
mod waiting;
mod world;

pub use apparmor::ProfileParser;
pub use guest::{Guest, GuestReport, Kernel};
pub use invocation::{Invocation, Running};
pub use outcome::Outcome;
pub use processes::{
    Process, children_of, descendants_of, end, is_alive, kill, pids_of_command, status_field,
};
pub use terminal::Terminal;
pub use tree::{Entry, Kind, expect_same, tree};
pub use waiting::{BOUND, wait_until};
pub(crate) use world::site;
pub use world::{
    Avoidable, World, cache, can_be_ordinary_root, fine, id, is_nightly, is_root, make_fifo,
    program_exists, python_site, write_program,
};
