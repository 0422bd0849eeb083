//! The main path, from a call to its outcome, and the use cases above it, for any surface.
//!
//! Every action ends in [`call`], one function that reads from top to bottom: decide, record,
//! arm, run, close. Types enforce the order: only policy makes a grant, only the ledger arms
//! it, only an armed grant starts a sandbox. Beside a sandbox [`supervision`] serves its run.
//!
//! A use case takes a typed request, and gives a typed result or a [`Failure`](failure::Failure)
//! whose hints are data; what a person should know meanwhile are [notices](notice).
//!
//! This crate must never know a terminal, an argument parser or HTTP. Start reading at [`call`],
//! then at [`run`].

mod accounts;
mod approvals;
pub mod artifacts;
mod asking;
pub mod at_rest;
mod call;
pub mod changes;
pub mod checkpoints;
pub mod checks;
pub mod configuration;
pub mod control;
pub mod credentials;
pub mod decision;
pub mod delegation;
mod describe;
pub mod doctor;
pub mod errands;
pub mod events;
mod execs;
pub mod explain;
pub mod export;
pub mod failure;
mod fallback;
mod fencing;
pub mod finding;
mod flows;
pub mod git_settings;
mod given_up;
pub mod held;
pub mod hidden;
mod home;
mod inputs;
mod journals;
mod kept;
pub mod kept_changes;
mod layer_copies;
pub mod learning;
mod login;
pub mod logins;
pub mod loopback;
mod meanwhile;
pub mod not_started;
pub mod notice;
pub mod outputs;
mod persons;
mod place;
mod place_error;
pub mod policy_changes;
pub mod printable;
pub mod promotion;
pub mod prover;
mod ranged;
mod record;
pub mod remedies;
pub mod replay;
mod repository;
pub mod reputation;
mod request;
mod resuming;
pub mod roles;
pub mod room;
mod rooted;
pub mod run;
mod running;
pub mod sandboxes;
pub mod secrets;
mod served;
pub mod shadow;
pub mod shell;
pub mod signed;
mod slug;
mod ssh;
pub mod ssh_keys;
pub mod stop;
pub mod supervision;
pub mod tokens;
pub mod tools;
pub mod transparency;
mod trust;
pub mod undo_notes;
pub mod undo_report;
mod volume_place;

pub use call::{CallError, NeedsApproval, preview};
pub use fallback::holds_layers;
pub use given_up::{is_of_token, of_session as given_up_of_session, take_given_up};
pub use inputs::{InputError, fetched_input};
pub use kept::{NOT_WRITTEN, kept_labels};
pub use login::is_taken_over;
pub use persons::{NoSecondPerson, widening};
pub use place_error::PlaceError;
pub use ranged::reclaim_leftovers;
pub use request::{ChangeRetention, MakeFilter, PolicyReloader, Request, RequestBase, Tokens};
pub use rooted::missing_ids;
pub use running::{CallOutcome, call};

#[cfg(test)]
#[path = "../../sys/src/tests/skipping.rs"]
mod skipping;
