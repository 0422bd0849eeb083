//! The filter is data and is tested as data: what it is, byte by byte, and what
//! it says to every call that has ever been a way out. The file tree is built
//! for real.

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

/// Says why a test could not be made here, also to whoever counts.
fn skipped(why: &str) {
    eprintln!("skipped: {why}");
    note_skip(why, Avoidable::No);
}
