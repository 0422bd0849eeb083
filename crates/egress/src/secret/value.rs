//! Secrets in memory.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use atoll_sys::memory;
use zeroize::Zeroizing;

/// Set once a secret was not taken, since its memory could not be locked.
static IS_UNLOCKED: AtomicBool = AtomicBool::new(false);

/// The process's allocator. Forwarding and signing processes overwrite all memory that they free,
/// requests and responses too, and so does the command that first reads secrets.
#[global_allocator]
static ALLOCATOR: memory::Erasing = memory::Erasing;

/// Makes this process overwrite all memory that it frees, so that nothing stays of a secret whose
/// bytes were moved, joined or split.
pub fn erase_freed_memory() {
    memory::set_erasing(true);
}

/// Returns whether this process has not taken a secret, since no more memory could be locked.
pub(crate) fn is_unlocked() -> bool {
    IS_UNLOCKED.load(Ordering::Relaxed)
}

/// The bytes of a secret: never swapped out, in no core dump, overwritten when dropped. It cannot
/// be copied, compared, shown or written anywhere but by [`Self::expose`].
pub struct Secret(Zeroizing<Box<[u8]>>);

impl Secret {
    /// Takes the bytes, and overwrites where they were.
    ///
    /// # Errors
    /// The kernel's, where no more memory may be locked.
    pub fn new(bytes: Vec<u8>) -> io::Result<Self> {
        let given = Zeroizing::new(bytes);
        let mut held = Zeroizing::new(vec![0_u8; given.len()].into_boxed_slice());
        // Before there is anything in it.
        memory::lock(&mut held).inspect_err(|_| IS_UNLOCKED.store(true, Ordering::Relaxed))?;
        held.copy_from_slice(&given);
        Ok(Self(held))
    }

    /// Returns the bytes, for injection.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}
