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
mod tree;

use std::io::Write;

use atoll_sys::seccomp::Instruction;

/// Says why a test could not be made here, also to whoever counts.
fn skipped(why: &str) {
    eprintln!("skipped: {why}");
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    if let Some(path) = std::env::var_os("ATOLL_SKIP_FILE") {
        let mut file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(path)
            .unwrap();
        // Whoever may not do it cannot be made to.
        writeln!(file, "{name}\t{why}\tunavoidable").unwrap();
    }
}
