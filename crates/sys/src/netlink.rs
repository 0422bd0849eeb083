//! Messages of netlink(7), as far as setting up a network namespace needs them.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// Flags of a request (linux/netlink.h).
pub(crate) const REQUEST: u16 = 0x1;
pub(crate) const EXCLUSIVE: u16 = 0x200;
pub(crate) const CREATE: u16 = 0x400;
pub(crate) const APPEND: u16 = 0x800;
const ACKNOWLEDGE: u16 = 0x4;

const HEADER_BYTES: usize = 16;
const ERROR: u16 = 2;
const NESTED: u16 = 0x8000;

/// The size of the answer buffer, bytes: more than the answers to one of our batches.
const ANSWER_BYTES_MAX: usize = 8192;

/// A batch of messages that are sent together.
#[derive(Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    messages: u32,
    awaited: u32,
}

impl Batch {
    /// Adds one message; a request is acknowledged, unless `flags` is 0.
    pub(crate) fn message(&mut self, kind: u16, flags: u16, fill: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        let wanted = if flags == 0 { 0 } else { ACKNOWLEDGE };
        self.messages += 1;
        self.awaited += u32::from(wanted != 0);
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend((flags | wanted | REQUEST).to_ne_bytes());
        self.bytes.extend(self.messages.to_ne_bytes());
        self.bytes.extend([0; 4]);
        fill(&mut self.bytes);
        let length = (self.bytes.len() - start) as u32;
        put(&mut self.bytes, start, &length.to_ne_bytes());
    }

    /// Sends all of them by a protocol, [`None`] for routes, and waits until each is done; the
    /// kernel answers before the sending returns.
    ///
    /// # Errors
    /// That of the first one which failed.
    pub(crate) fn send(self, protocol: Option<Protocol>) -> io::Result<()> {
        let socket = open(protocol)?;
        let sent = retry_on_intr(|| send(&socket, &self.bytes, SendFlags::empty()))?;
        if sent != self.bytes.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let mut left = self.awaited;
        let mut answer = vec![0_u8; ANSWER_BYTES_MAX];
        while left > 0 {
            let flags = RecvFlags::DONTWAIT;
            let (got, _) = retry_on_intr(|| recv(&socket, &mut *answer, flags))?;
            let mut rest = answer.get(..got).unwrap_or_default();
            while let Some((kind, body, after)) = split(rest) {
                rest = after;
                if kind != ERROR {
                    continue;
                }
                match number(body) {
                    0 => left = left.saturating_sub(1),
                    failed => return Err(io::Error::from_raw_os_error(-failed)),
                }
            }
        }
        Ok(())
    }
}

fn open(protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?)
}

/// Splits off the first message: its kind and body, and the rest.
fn split(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::try_from(number(bytes)).ok()?;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let body = bytes.get(HEADER_BYTES..length)?;
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, after))
}

fn number(bytes: &[u8]) -> i32 {
    let first = bytes.get(..4).and_then(|four| four.try_into().ok());
    i32::from_ne_bytes(first.unwrap_or_default())
}

/// Adds an attribute with this value.
pub(crate) fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend(((value.len() + 4) as u16).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Adds an attribute that contains others.
pub(crate) fn nested(out: &mut Vec<u8>, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    attribute(out, kind | NESTED, b"");
    fill(out);
    let length = (out.len() - start) as u16;
    put(out, start, &length.to_ne_bytes());
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = out.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}
