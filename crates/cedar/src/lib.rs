//! Cedar policies: read strictly, compiled with an index in front, and asked one pure question.
//!
//! A file of policies is read into [`Policies`] by the schema that ships with Atoll, with strict
//! types and bounds on its size, number and depth. [`Layers`] are those of the organisation, the
//! user and the project: each can only take away from what the others allow.
//! [`Layers::authorize`] answers a [`Question`] with a [`Decision`]: allowed, to be asked of a
//! person, or denied, with the policies that decided and the obligations that ride on it. Forbid
//! beats permit, what nothing permits is denied, and any error on the way is a denial: Cedar
//! itself passes over a policy that fails, a forbid too.
//!
//! A crate of its own for the weight of what it brings in, and because two need it that do not
//! know each other: `policy`, which decides on a run, and the process that carries its
//! connections. It must never do I/O, read a clock, or know what a decision is for.
//!
//! Start reading at [`Layers::authorize`], then [`Policies::compile`].

mod action;
mod case;
mod decision;
mod depth;
pub mod edited;
mod facts;
mod fault;
mod handed;
mod ids;
mod index;
mod labelled;
mod layers;
mod lint;
mod literals;
mod meant;
mod never;
mod obligation;
mod owed;
mod policies;
mod proof;
mod question;
mod reading;
mod redaction;
mod segments;
mod source;
mod stated;
mod unclear;
mod vocabulary;
mod written;

pub use action::Action;
pub use case::{Case, Expected, cases};
pub use decision::{Deciding, Decision, Effect, purpose_of};
pub use facts::Facts;
pub use fault::Fault;
pub use handed::{HANDED_BYTES_MAX, hand, take};
pub use layers::{Layer, Layers, PolicyFile};
pub use lint::{Remark, Standing, forbid_nothing, refused, remarks};
pub use meant::{Meant, Reach};
pub use obligation::{Obligation, Obligations, Rate, carried};
pub use owed::{Counter, Owed, Unkept};
pub use policies::{Known, Named, Policies};
pub use proof::{
    ANSWER_BYTES_MAX, ASKED_BYTES_MAX, Property, Proving, Refuted, Subject, Target, Verdict,
};
pub use question::{Asked, Follows, Look, Principal, Question};
pub use reading::forbids_alone;
pub use redaction::Redaction;
pub use source::{POLICIES_MAX, SOURCE_BYTES_MAX};
pub use written::{Granted, written};

/// The types that policies are held to, as they ship.
pub const SCHEMA: &str = include_str!("atoll.cedarschema");

#[cfg(test)]
mod tests;
