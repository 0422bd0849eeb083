//! Capability tokens (Biscuit): what their holder may do, until when and for which session.
//!
//! A token is signed by this deployment. Whoever holds it can append a block that narrows it,
//! without a key and without asking anybody, and nobody can take one away or widen what is left:
//! a block that is appended has only checks, each of which has to hold besides all others.
//!
//! What a token carries is asked beside policies, never in their place: both have to let
//! something happen, and any doubt denies. The Datalog of a token is made from words that people
//! write ([`Right`], [`Terms`]). What others append is taken where it ends in good time whatever
//! it says: no recursion, no loops and no regular expressions.
//!
//! This crate reads and writes no file, and speaks to nobody. Start reading at [`Token`].

mod admitted;
mod held;
mod key;
mod meeting;
mod question;
mod right;
mod terms;
mod token;

pub use admitted::Foreign;
pub use held::{Bound, HANDED_BYTES_MAX, HELD_MAX, Held, Holder};
pub use key::{InvalidKey, IssuingKey, PublicKey};
pub use meeting::{COMMON_MAX, TooManyRights, in_common};
pub use question::{Asked, NOT_CARRIED};
pub use right::{InvalidRight, Right};
pub use terms::{InvalidTerms, RIGHTS_MAX, Terms, read_time, told_time};
pub use token::{BLOCKS_MAX, Part, TOKEN_BYTES_MAX, Token, TokenError, attenuate, issue};

#[cfg(test)]
mod tests;
