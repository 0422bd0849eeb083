//! Signals: to the processes of the fence only. Landlock confines them from its version 6 on;
//! this is for earlier versions.
//!
//! The numbers are in the call itself, not behind pointers, so the kernel may go on with it:
//! only a process that ends at this very moment, and whose id is reused at once, could be
//! mistaken.

use atoll_sys::judging::{Answer, Waiting};

use crate::processes::{descendants, group, is_below, parent};
use crate::{EPERM, ESRCH, Recipient, Refused, attempt};

/// Lets a signal pass to a process of the fence.
pub(crate) fn signal(recipient: Recipient, call: &Waiting) -> Result<Answer, Refused> {
    let [number, signal, ..] = call.arguments;
    // The kernel reads an `int`.
    let number = number as i32;
    let pid = number.unsigned_abs();
    // Signal 0 asks whether there is such a process, as many programs do.
    let asks = recipient == Recipient::ProcessOrGroup && signal as i32 == 0;
    let refused = || match asks {
        true => Err(Refused(EPERM)),
        false => attempt(EPERM),
    };
    match (recipient, number) {
        (Recipient::ProcessOrGroup, 0) => to_group(group(call.thread)),
        // Everybody whom the user may signal.
        (Recipient::ProcessOrGroup, -1) => refused(),
        (Recipient::ProcessOrGroup, ..=-2) => to_group(Some(pid)),
        (_, 1..) if is_below(pid) => Ok(Answer::Continue),
        (_, 1..) if parent(pid).is_some() => refused(),
        (Recipient::ProcessOrGroup | Recipient::Thread, _) => Err(Refused(ESRCH)),
    }
}

/// Lets a signal pass to a process group of the fence. A group with one process of the fence
/// has no others, as groups do not span sessions; except this process's own group, which is in
/// the same session.
fn to_group(asked: Option<u32>) -> Result<Answer, Refused> {
    let is_member = |one: &u32| group(*one) == asked;
    let is_own = asked == group(std::process::id());
    match asked.is_some() && !is_own && descendants().iter().any(is_member) {
        true => Ok(Answer::Continue),
        false => Err(Refused(EPERM)),
    }
}
