//! The diagnosis of this host: what it can enforce, why not more, and what helps.
//!
//! [`facts`] reads and tries, [`findings`] draws the conclusions. The choices of a run come from the
//! same functions that make them.

pub mod apparmor;
pub mod facts;
pub mod finding;
pub mod findings;
pub mod fixes;
pub mod known;
pub mod proving;
pub mod version;
