//! Cedar policies: read strictly, compiled with an index in front, and asked one pure question.
//!
//! A policy file is read into [`Policies`] by the schema that ships with Atoll, with strict types
//! and bounds on its size, number and depth. [`Layers`] are those of the organisation, the user and
//! the project: each can only take away from what the others allow. [`Layers::authorize`] answers a
//! [`Question`] with a [`Decision`]: allowed, to be approved, or denied, with the policies that
//! decided and their obligations. Forbid beats permit, anything that no policy permits is denied,
//! and any error on the way is a denial: Cedar itself skips a policy that fails, a forbid too.
//!
//! A separate crate because of its heavy dependencies, and because two crates need it that do not
//! know each other: `policy`, which decides on a run, and the egress process. It must never do I/O,
//! read a clock, or know the use of a decision.
//!
//! Start reading at [`Layers::authorize`], then [`Policies::compile`].

mod action;
mod canonical;
mod case;
mod decision;
mod depth;
pub mod edited;
mod facts;
mod fault;
mod files;
mod flattened;
mod handed;
mod ids;
mod index;
mod labelled;
mod layers;
mod lint;
mod literals;
mod never;
mod obligation;
mod offered;
mod owed;
mod policies;
mod proof;
mod question;
mod quoting;
mod reading;
mod redaction;
mod remark;
mod segments;
mod source;
mod stated;
mod unclear;
mod vocabulary;
mod written;

pub use action::Action;
pub use canonical::{CanonicalPolicies, Reach};
pub use case::{Case, Expected, cases};
pub use decision::{Deciding, Decision, Effect, purpose_of};
pub use facts::{ArtifactFacts, ChangeFacts, Facts, Served, ShadowFacts};
pub use fault::Fault;
pub use files::{Layer, PolicyFile};
pub use flattened::flattened;
pub use handed::{HANDED_BYTES_MAX, hand, take};
pub use layers::Layers;
pub use lint::{closing, forbid_nothing, refused, remarks};
pub use obligation::{Obligation, Obligations, Rate, carried};
pub use owed::{Counter, DroppedObligation, Owed};
pub use policies::{Known, Named, Policies};
pub use proof::{
    ANSWER_BYTES_MAX, ASKED_BYTES_MAX, Property, Proving, Refuted, Subject, Target, Verdict,
};
pub use question::{Asked, Exec, Follows, Look, Principal, Question};
pub use reading::forbids_alone;
pub use redaction::Redaction;
pub use remark::{Remark, Standing};
pub use source::{POLICIES_MAX, SOURCE_BYTES_MAX};
pub use written::{Granted, written};

/// The Cedar schema that policies are validated against.
pub const SCHEMA: &str = include_str!("atoll.cedarschema");

#[cfg(test)]
mod tests;
