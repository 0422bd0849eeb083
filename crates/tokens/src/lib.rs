//! Capability tokens (Biscuit): the rights of their holder, with an end and a session.
//!
//! A token is signed by this deployment. Its holder can append a block that narrows it, without a
//! key and without asking anybody, and nobody can take one away or widen the remaining rights: an
//! appended block has only checks, each of which has to hold besides all others.
//!
//! A token is evaluated beside policies, never in their place: both have to allow an action, and
//! any doubt denies. The Datalog of a token is made from words that people write ([`Right`],
//! [`Terms`]). Blocks that others append are admitted if their evaluation takes bounded time: no
//! recursion, no loops and no regular expressions.
//!
//! This crate reads and writes no file, and speaks to nobody. Start reading at [`Token`].

mod admitted;
mod calls;
mod held;
mod key;
mod meeting;
mod question;
mod right;
mod terms;
mod token;

pub use admitted::{BLOCKS_MAX, Foreign};
pub use calls::Calls;
pub use held::{Bound, HANDED_BYTES_MAX, HELD_MAX, Held};
pub use key::{InvalidKey, IssuingKey, PublicKey};
pub use meeting::{COMMON_MAX, TooManyRights, in_common};
pub use question::{Asked, Holder, NOT_CARRIED};
pub use right::{InvalidRight, Right};
pub use terms::{InvalidTerms, RIGHTS_MAX, Terms, read_time, told_time};
pub use token::{Part, TOKEN_BYTES_MAX, Token, TokenError, attenuate, issue};

#[cfg(test)]
mod tests;
