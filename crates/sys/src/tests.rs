//! Tests that ask the kernel itself wherever possible: changes that a process cannot revert happen
//! in a child of the test.

mod descriptors;
mod files;
mod filters;
mod funnel;
mod interpreter;
mod processes;
mod rights;
mod skipping;
mod sockets;

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use self::skipping::{Avoidable, note_skip};
use crate::process::{self, Change};
use crate::seccomp::Instruction;

/// The longest time of a child, seconds; an alarm ends it then.
const CHILD_SECONDS_MAX: u32 = 30;

/// Runs assertions in a new process, which is single-threaded whatever runs in parallel to this
/// test, and fails if they fail.
#[track_caller]
fn in_child(body: impl FnOnce()) {
    assert_eq!(
        ending_of(|| {
            body();
            0
        }),
        Change::Exited(0)
    );
}

/// Runs this in a new process, and returns the way that it ended.
fn ending_of(body: impl FnOnce() -> u8) -> Change {
    let pid = process::fork(|| guarded(body)).unwrap();
    process::wait(Some(pid), true).unwrap().unwrap().change
}

/// Runs the body of a new process; a panic must not come back into the harness.
fn guarded(body: impl FnOnce() -> u8) -> u8 {
    // SAFETY: integers only.
    unsafe { libc::alarm(CHILD_SECONDS_MAX) };
    std::panic::set_hook(Box::new(|facts| say(&facts.to_string())));
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(101)
}

/// Prints a text past the harness, which holds back the output of a child.
fn say(text: &str) {
    let line = format!("{text}\n");
    // SAFETY: the pointer and length describe `line`.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

/// Prints why a test was skipped, and adds it to the list of skipped tests.
fn skipped(why: &str) {
    say(&format!("skipped: {why}"));
    note_skip(why, Avoidable::No);
}

/// Makes one system call; returns the result, or the error's number.
fn call(number: libc::c_long, arguments: [u64; 6]) -> Result<libc::c_long, i32> {
    let [one, two, three, four, five, six] = arguments;
    // SAFETY: the tests pass integers, or pointers to values that live longer.
    let answer = unsafe { libc::syscall(number, one, two, three, four, five, six) };
    if answer < 0 {
        Err(last_error())
    } else {
        Ok(answer)
    }
}

fn last_error() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap()
}

/// Returns the error's number of a result that must be an error.
#[track_caller]
fn number<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn is_root() -> bool {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Returns the numbers of this process's open descriptors.
fn open_numbers() -> Vec<i32> {
    let mut numbers: Vec<i32> = (0..1_024)
        // SAFETY: F_GETFD touches no memory and fails for a closed number.
        .filter(|number| unsafe { libc::fcntl(*number, libc::F_GETFD) } >= 0)
        .collect();
    numbers.sort_unstable();
    numbers
}
