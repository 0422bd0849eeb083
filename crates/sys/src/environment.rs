//! The environment that this process was started with.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;

unsafe extern "C" {
    static environ: *const *mut libc::c_char;
}

/// Passes the value of a variable to a function in place, and overwrites it there: afterwards it is
/// empty, also in `/proc/PID/environ` (proc(5)). `None` if it is not set.
///
/// Must be called while no other thread changes the environment or reads this variable.
pub fn take<T>(name: &OsStr, hand_out: impl FnOnce(&[u8]) -> T) -> Option<T> {
    let mut handed = Some(hand_out);
    let mut result = None;
    // SAFETY: the list ends with null, each of its texts with NUL, and nobody changes them
    // meanwhile, as the caller has promised. What is overwritten is this process's own, from
    // behind the name up to the NUL.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            let rest = text.strip_prefix(name.as_bytes());
            if let Some(value) = rest.and_then(|rest| rest.strip_prefix(b"=")) {
                let length = value.len();
                // Of a name given twice the first counts, as for getenv.
                if let Some(hand_out) = handed.take() {
                    result = Some(hand_out(value));
                }
                let start = (*entry).add(name.len() + 1);
                libc::explicit_bzero(start.cast(), length);
            }
            entry = entry.add(1);
        }
    }
    result
}
