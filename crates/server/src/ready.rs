//! Waiting until a descriptor is readable or writable.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

/// Watches a descriptor. It stays open for as long as it is watched, since it is owned: that is all
/// that the function called here cannot see for every type, and why it is deprecated.
#[allow(deprecated)]
pub(crate) fn watched(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(descriptor)
}
