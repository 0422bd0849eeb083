//! Scanners of artifacts, each in a sandbox of its own, and the evidence that they give.
//!
//! This crate must never look at content itself: that is for [`atoll_scan`], in the program that
//! [`work`] is, inside. It must never speak HTTP, or to a terminal. Start reading at [`scan`].

mod scanning;
pub mod served;
mod worker;

pub use scanning::{Scanned, Verdict, evidence, scan};
pub use worker::{SCAN_WORKER, work};
