//! The only network device of a sandbox: its loopback.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::check;
use crate::descriptor::owned;

/// The request number as in linux/sockios.h.
const SIOCGSKNS: libc::Ioctl = 0x894c;

/// Brings the loopback device of this network namespace up (netdevice(7)), and opens the namespace.
///
/// # Errors
/// The kernel's; EPERM without rights over the namespace.
pub fn with_loopback() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    #[cfg(feature = "without_defences")]
    if crate::without::is("network") {
        return Ok(std::fs::File::open("/proc/self/ns/net")?.into());
    }
    // SAFETY: ifreq is plain data for which zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: `request` lives through the call, which reads it.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) })?;
    namespace_of(&socket)
}

/// Returns the network namespace of a socket, without a look-up in /proc.
fn namespace_of(socket: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: this request takes no argument.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSKNS) }).map(owned)
}
