//! One copy-on-write layer over a host directory: reading, showing, applying and undoing its
//! changes.
//!
//! A sandboxed program wrote into a layer of Atoll's own. [`changes`] reads what differs,
//! [`write_diff`] shows it, [`plan_apply`] plans its effect on the host directory, [`apply`] does
//! it, [`undo`] reverts it. Where there is no layer, [`checkpoint`] copies the directory first and
//! [`plan_restore`] plans the return to the copy.
//!
//! Everything in a layer is made by an attacker. This crate never follows a symbolic link, never
//! opens a special file, never joins a path of one tree to the name of another, and never gives a
//! file more rights than it had. It does not know what a sandbox, a policy or a terminal is.
//!
//! Start reading at [`changes`] in `read.rs` (with `compare.rs`), then [`plan_apply`] in
//! `planning.rs`, then `stages.rs` and `commit.rs`.

mod access_list;
mod apply;
mod below;
mod building;
mod change;
mod checkpoint;
mod classify;
mod commit;
mod compare;
mod content;
mod control;
mod databases;
mod diff;
mod digest;
mod engine;
mod entries;
mod error;
mod escape;
mod expected;
mod facts;
mod git_config;
mod git_index;
mod git_objects;
mod git_programs;
mod history;
mod host;
mod index;
mod joining;
mod journal;
mod layer;
mod links;
mod live_snapshot;
mod manifest;
mod merged;
mod modes;
mod narrowing;
mod overlay;
mod owners;
mod parting;
mod path;
mod pending_review;
mod plan;
mod planning;
mod progress;
mod put_back;
mod read;
mod removed;
mod reopening;
mod repository;
mod restoring;
mod rollback;
mod sealing;
mod selecting;
mod stages;
mod steps;
mod tree;
mod unchanged;
mod undoing;
mod unreadable;
mod worktrees;
mod writes;

pub use apply::{Applied, JournalState, apply, finish, journal_state, take_back};
pub use change::{Change, ChangeKind, ChangeSet, Class, Counts, EntryFacts, EntryKind, Refusal};
pub use checkpoint::{CheckpointFacts, checkpoint};
pub use control::{CONTROL_FILES, ControlFile, control_reason};
pub use diff::{DiffOptions, write_diff};
pub use digest::PlanDigest;
pub use error::{ApplyError, CheckpointError, PlanError, ReadError, TreeError};
pub use git_config::{CONFIGURATION_BYTES_MAX, NoConfiguration, without_secrets};
pub use git_programs::GitEnvironment;
pub use joining::join;
pub use layer::{AfterTree, Bounds, IdShift, LayerPaths, XattrFlavour};
pub use live_snapshot::LiveSnapshot;
pub use owners::owners_not_given;
pub use parting::RetainedDirectory;
pub use path::{InvalidPath, RelativePath};
pub use pending_review::{changed_outside, set_aside};
pub use plan::{Conflict, Plan, Selection, Step, StepAction};
pub use planning::plan_apply;
pub use progress::{Phase, Progress};
pub use read::{changes, changes_at_rest};
pub use reopening::Opened;
pub use repository::{Configuration, NoRepository, Repository, configurations, repository};
pub use restoring::plan_restore;
pub use sealing::{SealError, control_paths};
pub use steps::has_written;
pub use undoing::{UndoPreview, Undone, take_back_preview, take_undo_back, undo, undo_preview};
pub use unreadable::restore_modes;
pub use writes::{Thing, Write, Writing};

#[cfg(test)]
mod tests;
