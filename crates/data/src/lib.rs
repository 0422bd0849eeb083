//! Scanners of artifacts, each in a sandbox of its own, and the evidence that they give; and the end of
//! all that is kept.
//!
//! This crate must never look at content itself: that is for [`atoll_scan`], in the program that
//! [`work`] is, inside. It must never speak HTTP, or to a terminal. Start reading at [`scan`], and at
//! [`retention`].

mod attending;
mod clamav;
pub mod retention;
mod scanning;
pub mod served;
mod verdict;
mod worker;

pub use attending::{Attended, attend};
pub use scanning::{Scanned, evidence, missing, scan, seen};
pub use verdict::Verdict;
pub use worker::{SCAN_WORKER, work};
