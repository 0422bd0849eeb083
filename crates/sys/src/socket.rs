//! Unix sockets that keep message boundaries and carry descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};

/// The most descriptors in one message.
pub const DESCRIPTORS_MAX: usize = 168;

const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX));

/// Creates a connected pair of `SOCK_SEQPACKET` sockets, closed on exec.
///
/// # Errors
/// The kernel's.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message with descriptors. A closed other end is EPIPE, not a signal; a full buffer,
/// because the other end does not read, is EAGAIN.
///
/// # Errors
/// InvalidInput for more than [`DESCRIPTORS_MAX`] descriptors, else the kernel's.
pub fn send(
    socket: BorrowedFd<'_>,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let carried = SendAncillaryMessage::ScmRights(descriptors);
    if descriptors.len() > DESCRIPTORS_MAX || (!descriptors.is_empty() && !control.push(carried)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // A reader that was stopped must not stop the writer too.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let parts = [IoSlice::new(message)];
    retry_on_intr(|| sendmsg(socket, &parts, &mut control, flags))?;
    Ok(())
}

/// Receives one message into `buffer`, with its descriptors (closed on exec). Zero bytes mean that
/// the other end is gone.
///
/// # Errors
/// InvalidData for a message or a set of descriptors that was cut, else the kernel's.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = retry_on_intr(|| recvmsg(socket, &mut parts, &mut control, flags))?;
    // Taken first of all, so that none leaks, whatever becomes of the message.
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(carried) = message {
            descriptors.extend(carried);
        }
    }
    let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
    if got.flags.intersects(cut) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((got.bytes, descriptors))
}
