//! A list of skipped tests. Used by the tests of more than one crate.

use std::fs::File;
use std::io::Write;

/// The remedy for a skipped test.
#[derive(Clone, Copy)]
pub(crate) enum Avoidable {
    /// The missing thing can be installed.
    #[allow(dead_code, reason = "some crates need nothing that can be installed")]
    Yes,
    /// The missing right cannot be given.
    #[allow(dead_code, reason = "some crates need only what can be installed")]
    No,
}

/// Adds this test to the list named by `ATOLL_SKIP_FILE`, which is counted.
///
/// # Panics
/// When the list cannot be written.
#[allow(dead_code, reason = "some crates skip single rows only")]
pub(crate) fn note_skip(why: &str, avoidable: Avoidable) {
    if let Some(name) = std::thread::current().name() {
        note(name, why, avoidable);
    }
}

/// Adds a row of this test's table to that list: the other rows are tested.
///
/// # Panics
/// When the list cannot be written.
#[allow(
    dead_code,
    reason = "some crates have no tables that depend on the host"
)]
pub(crate) fn note_skipped_row(row: &str, why: &str, avoidable: Avoidable) {
    note(&format!("row {row}"), why, avoidable);
}

fn note(name: &str, why: &str, avoidable: Avoidable) {
    // A reason of several lines would be read as several skips.
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some(list) = std::env::var_os("ATOLL_SKIP_FILE") else {
        return;
    };
    let word = match avoidable {
        Avoidable::Yes => "avoidable",
        Avoidable::No => "unavoidable",
    };
    // One write, because other tests append to the same file: `writeln!` makes several, and
    // lines of two tests would be torn.
    let line = format!("{name}\t{why}\t{word}\n");
    let mut options = File::options();
    let mut list = options.append(true).create(true).open(list).unwrap();
    list.write_all(line.as_bytes()).unwrap();
}
