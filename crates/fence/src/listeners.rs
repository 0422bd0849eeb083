//! The listening sockets of this host, from the kernel (sock_diag(7)).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::netlink::SOCK_DIAG;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

const AF_UNIX: u8 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
/// The state that is asked for, as a bit: TCP_LISTEN, which Unix sockets use too.
const LISTENING: u32 = 1 << 10;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST_ALL: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER_BYTES: usize = 16;
const BLOCK_BYTES: usize = 64 * 1024;
/// The most answer blocks read. A host with more sockets is not judged.
const BLOCKS_MAX: usize = 1024;

/// A listening Unix socket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnixListener {
    pub(crate) cookie: u64,
    /// Its type (`SOCK_STREAM` and so on). Each type has its own abstract names.
    pub(crate) kind: u32,
    /// Its name: a path, or an abstract name with its leading NUL.
    pub(crate) name: Vec<u8>,
    /// Its file: the device's two numbers, and the low half of the inode number.
    pub(crate) file: Option<((u32, u32), u32)>,
}

/// A listening internet socket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InternetListener {
    pub(crate) cookie: u64,
    pub(crate) on: SocketAddr,
}

impl InternetListener {
    /// Returns whether a connection to this address could reach it.
    pub(crate) fn answers(&self, to: SocketAddr) -> bool {
        let plain = |ip: IpAddr| ip.to_canonical();
        let on = self.on.ip();
        self.on.port() == to.port()
            && (on.is_unspecified() || plain(on).is_unspecified() || plain(on) == plain(to.ip()))
    }
}

pub(crate) fn unix_listeners() -> io::Result<Vec<UnixListener>> {
    const SHOW_NAME_AND_FILE: u32 = 0b11;
    let mut request = vec![AF_UNIX, 0, 0, 0];
    for word in [LISTENING, 0, SHOW_NAME_AND_FILE, 0, 0] {
        request.extend(word.to_ne_bytes());
    }
    let mut found = Vec::new();
    ask(&request, &mut |message| {
        found.extend(parse_unix(message));
    })?;
    Ok(found)
}

pub(crate) fn internet_listeners() -> io::Result<Vec<InternetListener>> {
    const SOCKET_ID_BYTES: usize = 48;
    let mut found = Vec::new();
    for family in [AF_INET, AF_INET6] {
        let mut request = vec![family, IPPROTO_TCP, 0, 0];
        request.extend(LISTENING.to_ne_bytes());
        request.extend([0; SOCKET_ID_BYTES]);
        ask(&request, &mut |message| {
            found.extend(parse_internet(message));
        })?;
    }
    Ok(found)
}

/// Sends a request and passes on the body of each answer.
fn ask(request: &[u8], each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let line = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(SOCK_DIAG),
    )?;
    let bytes = (HEADER_BYTES + request.len()) as u32;
    let mut message = bytes.to_ne_bytes().to_vec();
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(REQUEST_ALL.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(request);
    send(&line, &message, SendFlags::empty())?;
    let mut block = vec![0; BLOCK_BYTES];
    for _ in 0..BLOCKS_MAX {
        if !take_block(&line, &mut block, each)? {
            return Ok(());
        }
    }
    Err(io::ErrorKind::QuotaExceeded.into())
}

/// Reads one block of answers; returns whether there are more.
fn take_block(line: &OwnedFd, block: &mut [u8], each: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
    let (_, got) = recv(line, &mut *block, RecvFlags::TRUNC)?;
    let mut rest = block.get(..got).ok_or(io::ErrorKind::InvalidData)?;
    while let Some((bytes, kind)) = number(rest, 0).zip(short(rest, 4)) {
        let message = rest
            .get(..bytes as usize)
            .filter(|message| message.len() >= HEADER_BYTES)
            .ok_or(io::ErrorKind::InvalidData)?;
        match kind {
            NLMSG_DONE => return Ok(false),
            NLMSG_ERROR => {
                let error = number(message, HEADER_BYTES).unwrap_or_default() as i32;
                return Err(io::Error::from_raw_os_error(-error));
            }
            _ => each(message.get(HEADER_BYTES..).unwrap_or_default()),
        }
        let next = (bytes as usize).next_multiple_of(4).min(rest.len());
        rest = rest.get(next..).unwrap_or_default();
    }
    Ok(true)
}

/// Reads `struct unix_diag_msg` and its attributes.
pub(crate) fn parse_unix(message: &[u8]) -> Option<UnixListener> {
    const KIND_AT: usize = 1;
    const FIXED_BYTES: usize = 16;
    const NAME: u16 = 0;
    const FILE: u16 = 1;
    let mut listener = UnixListener {
        cookie: cookie(message, 8)?,
        kind: u32::from(*message.get(KIND_AT)?),
        name: Vec::new(),
        file: None,
    };
    let mut rest = message.get(FIXED_BYTES..)?;
    while let Some((bytes, kind)) = short(rest, 0).zip(short(rest, 2)) {
        let value = rest.get(4..usize::from(bytes))?;
        match kind {
            NAME => listener.name = value.to_vec(),
            FILE => {
                let (inode, device) = (number(value, 0)?, number(value, 4)?);
                // The kernel's own form of a device's number.
                listener.file = Some(((device >> 20, device & 0xf_ffff), inode));
            }
            _ => {}
        }
        let next = usize::from(bytes).next_multiple_of(4).min(rest.len());
        rest = rest.get(next..)?;
    }
    Some(listener)
}

/// Reads `struct inet_diag_msg`.
pub(crate) fn parse_internet(message: &[u8]) -> Option<InternetListener> {
    const PORT_AT: usize = 4;
    const ADDRESS_AT: usize = 8;
    const COOKIE_AT: usize = 44;
    let port: [u8; 2] = message.get(PORT_AT..)?.first_chunk().copied()?;
    let address = message.get(ADDRESS_AT..)?;
    let ip: IpAddr = match *message.first()? {
        AF_INET => address.first_chunk::<4>().copied()?.into(),
        AF_INET6 => address.first_chunk::<16>().copied()?.into(),
        _ => return None,
    };
    Some(InternetListener {
        cookie: cookie(message, COOKIE_AT)?,
        on: SocketAddr::new(ip, u16::from_be_bytes(port)),
    })
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u32::from_ne_bytes)
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u16::from_ne_bytes)
}

/// Reads a socket cookie: two words, the low one first.
fn cookie(bytes: &[u8], at: usize) -> Option<u64> {
    let (low, high) = (number(bytes, at)?, number(bytes, at + 4)?);
    Some(u64::from(high) << 32 | u64::from(low))
}
