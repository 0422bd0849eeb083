//! Memory without remains of its former content.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// The system's allocator, which overwrites freed memory once a process has called [`set_erasing`]:
/// whoever takes the process over later finds only what it still uses.
#[derive(Debug)]
pub struct Erasing;

static IS_ERASING: AtomicBool = AtomicBool::new(false);

/// Sets whether this process overwrites the memory that it frees to [`Erasing`] from now on.
/// Returns the previous setting.
pub fn set_erasing(is_erasing: bool) -> bool {
    IS_ERASING.swap(is_erasing, Ordering::Relaxed)
}

// SAFETY: every call is passed on as it came; what is moved is copied to as many bytes.
unsafe impl GlobalAlloc for Erasing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller gives back so many bytes of its own.
        unsafe {
            if IS_ERASING.load(Ordering::Relaxed) {
                libc::explicit_bzero(memory.cast(), layout.size());
            }
            System.dealloc(memory, layout);
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's promise is passed on; it holds of the new layout too.
        unsafe {
            if !IS_ERASING.load(Ordering::Relaxed) {
                return System.realloc(memory, layout, bytes);
            }
            let moved = System.alloc(Layout::from_size_align_unchecked(bytes, layout.align()));
            if !moved.is_null() {
                memory.copy_to_nonoverlapping(moved, layout.size().min(bytes));
                self.dealloc(memory, layout);
            }
            moved
        }
    }
}

/// Overwrites bytes that are not needed any more.
pub fn erase(bytes: &mut [u8]) {
    // SAFETY: so many bytes are the caller's.
    unsafe { libc::explicit_bzero(bytes.as_mut_ptr().cast(), bytes.len()) }
}

/// Overwrites the remains of returned functions on the stack.
#[inline(never)]
pub fn erase_stack() {
    const BYTES: usize = 32 * 1024;
    std::hint::black_box(&mut [0_u8; BYTES]);
}

/// Keeps the pages of this memory out of swap and of core dumps, for as long as the process has
/// them: other data may lie on the same pages.
///
/// # Errors
/// The kernel's: `RLIMIT_MEMLOCK` allows no more, for example. No file is opened.
pub fn lock(memory: &mut [u8]) -> io::Result<()> {
    let page_bytes = usize::try_from(crate::process::page_bytes()).unwrap_or(4096);
    let into_page = memory.as_ptr().addr() % page_bytes;
    let first = memory.as_mut_ptr().wrapping_byte_sub(into_page).cast();
    let bytes = memory.len() + into_page;
    // SAFETY: neither call changes what the pages hold, of which some is the caller's.
    crate::check(unsafe { libc::mlock(first, bytes) })?;
    // SAFETY: as above.
    crate::check(unsafe { libc::madvise(first, bytes, libc::MADV_DONTDUMP) }).map(drop)
}
