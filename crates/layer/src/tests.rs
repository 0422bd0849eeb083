mod access_lists;
mod branches;
mod diffs;
mod further_names;
mod hostile;
mod indexes;
mod interrupted;
mod joined;
mod kinds;
mod left_out;
mod memory;
mod modes;
mod names;
mod originals;
mod owners;
mod pending_review;
mod programs;
mod races;
mod racing;
mod random;
#[path = "../../sys/src/tests/skipping.rs"]
mod skipping;
mod support;
mod undone;
mod unreadable;
mod worktrees;

use self::skipping::{Avoidable, note_skip, note_skipped_row};

/// Reports why a test could not be run here, also to the count of skipped tests.
fn skipped(why: &str) {
    println!("skipped: {why}");
    note_skip(why, Avoidable::No);
}

/// Reports why a row of a test's table could not be tried here, also to the count of skipped rows.
fn skipped_row(row: &str, why: &str) {
    println!("skipped row {row}: {why}");
    note_skipped_row(row, why, Avoidable::No);
}
