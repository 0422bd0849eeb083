//! The launcher program (`jail`, with `init` in it), built by this crate's build script.
//!
//! The crate must never hold anything else: whoever makes sandboxes links it. Start reading at
//! [`LAUNCHER`].

/// The launcher program. One place in memory: a constant would be in the program once for each part
/// that names it.
pub static LAUNCHER: &[u8] = include_bytes!(env!("ATOLL_LAUNCHER"));
