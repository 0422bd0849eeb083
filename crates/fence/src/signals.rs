//! Signals: to the processes of the fence only. Landlock holds the same from its
//! version 6 on; this is for the ones before.
//!
//! The numbers stand in the call itself, not behind pointers, so the kernel may go on
//! with it: only a process that ends at this very moment, and whose number is given to
//! another at once, could be mistaken.

use atoll_sys::judging::Answer;

use crate::processes::{descendants, group, is_below, parent};
use crate::{EPERM, ESRCH, Recipient, Refused};

/// Lets a signal through to where it may go.
pub(crate) fn signal(recipient: Recipient, arguments: &[u64; 6]) -> Result<Answer, Refused> {
    let [number, ..] = *arguments;
    // The kernel reads an `int`.
    let number = number as i32;
    let pid = number.unsigned_abs();
    match (recipient, number) {
        // The caller's own group: all of its session is of the fence.
        (Recipient::ProcessOrGroup, 0) => Ok(Answer::Continue),
        // Everybody whom the user may signal.
        (Recipient::ProcessOrGroup, -1) => Err(Refused(EPERM)),
        (Recipient::ProcessOrGroup, ..=-2) => {
            let is_member = |one: &u32| group(*one) == Some(pid);
            match descendants().iter().any(is_member) {
                true => Ok(Answer::Continue),
                false => Err(Refused(EPERM)),
            }
        }
        (_, 1..) if is_below(pid) => Ok(Answer::Continue),
        (_, 1..) if parent(pid).is_some() => Err(Refused(EPERM)),
        (Recipient::ProcessOrGroup | Recipient::Thread, _) => Err(Refused(ESRCH)),
    }
}
