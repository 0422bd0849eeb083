//! Tests of the filter as data: its bytes, and its verdict on every call that has ever been a way
//! out of a sandbox. The file tree is built for real.

mod execs;
mod filter;
#[path = "../../sys/src/tests/interpreter.rs"]
mod interpreter;
mod memory;
mod own;
mod races;
#[path = "../../layer/src/tests/racing.rs"]
mod racing;
#[path = "../../sys/src/tests/skipping.rs"]
mod skipping;
mod tree;

use atoll_sys::seccomp::Instruction;

use self::skipping::{Avoidable, note_skip};

/// Prints why a test was skipped, and adds it to the list of skipped tests.
fn skipped(why: &str) {
    eprintln!("skipped: {why}");
    note_skip(why, Avoidable::No);
}
