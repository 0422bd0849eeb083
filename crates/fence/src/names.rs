//! DNS sockets. For the program they are datagram sockets; for the kernel each is one end of a
//! pair whose other end the egress process has, whatever address a message carries.
//!
//! Calls that such a pair does not support are answered here as for a datagram socket, so that
//! resolvers work: an answer comes from the server that was asked. Security does not rest on
//! this: calls that are not answered here go on to the kernel.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use atoll_sys::judging::{self, Answer, Waiting};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::sockopt::socket_cookie;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

use crate::caller::Caller;
use crate::calls::socket::{AF_INET6, SOCK_CLOEXEC, SOCK_NONBLOCK};
use crate::outside::{HANDING_MAX, Outside};
use crate::sockets::{
    ADDRESS_BYTES_MAX, Address, EAFNOSUPPORT, ECONNREFUSED, ENETUNREACH, parse, unless_interrupted,
};
use crate::{EPERM, NameRequest, Refused};

/// The DNS port.
const PORT: u16 = 53;
/// The descriptor numbers of DNS sockets: calls on other numbers are not judged. Programs
/// rarely have as many descriptors, and select(2) still works with these.
pub(crate) const NUMBERS: std::ops::Range<u32> = 960..1024;
/// The most DNS sockets known at once; the oldest are forgotten first.
const KNOWN_MAX: usize = 4096;
/// The longest answer taken at once, bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The most parts of one message that are written to.
const PARTS_MAX: u64 = 16;

const ENOTCONN: i32 = Errno::NOTCONN.raw_os_error();
const EACCES: i32 = Errno::ACCESS.raw_os_error();

/// The DNS sockets, by the kernel's cookies.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: BTreeMap<u64, Asked>,
    next: u32,
}

/// A DNS socket, as its program sees it.
#[derive(Clone, Copy, Debug)]
struct Asked {
    is_6: bool,
    server: Option<SocketAddr>,
}

impl Outside {
    /// Makes a DNS socket, for a call of socket(2).
    pub(crate) fn socket_for_names(
        &mut self,
        listener: BorrowedFd<'_>,
        call: &Waiting,
    ) -> Result<Answer, Refused> {
        let [family, kind, ..] = call.arguments.map(|argument| argument as u32);
        let mut flags = SocketFlags::CLOEXEC;
        flags.set(SocketFlags::NONBLOCK, kind & SOCK_NONBLOCK != 0);
        let (unix, kept) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (program, far) = socketpair(unix, kept, flags, None)?;
        // Nobody answers any more: as where there is no network.
        let handed = self.hand(b"names", far.as_fd());
        handed.map_err(|_| Refused(EAFNOSUPPORT))?;
        let cookie = socket_cookie(&program)?;
        let number = self.names.number(call.thread);
        let closed = kind & SOCK_CLOEXEC != 0;
        // The caller has to be given a turn for it, which on a busy host takes its time.
        let until = Instant::now() + HANDING_MAX;
        let give = |number| {
            unless_interrupted(until, || {
                let given = judging::give(listener, call.id, program.as_fd(), number, closed);
                given.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PERM))
            })
        };
        let given = match give(number) {
            // Beyond what the caller may have: it gets one whose answers come from nobody.
            Err(Errno::BADF) if number.is_some() => give(None)?,
            given => given?,
        };
        let is_6 = family == AF_INET6;
        let server = None;
        self.names.known.insert(cookie, Asked { is_6, server });
        if self.names.known.len() > KNOWN_MAX {
            // Cookies only grow.
            let _ = self.names.known.pop_first();
        }
        Ok(Answer::Value(given))
    }
}

impl Names {
    /// Returns a descriptor number that the caller does not use, if there is one.
    fn number(&mut self, thread: u32) -> Option<u32> {
        let count = NUMBERS.end - NUMBERS.start;
        let mut numbers = (0..count).map(|one| NUMBERS.start + (self.next + one) % count);
        // One that cannot be looked at may be in use.
        let is_free = |number: &u32| {
            let path = format!("/proc/{thread}/fd/{number}");
            let there = std::fs::symlink_metadata(path);
            there.is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        let number = numbers.find(is_free)?;
        self.next = (number - NUMBERS.start + 1) % count;
        Some(number)
    }

    fn of(&mut self, socket: &OwnedFd) -> Result<Option<&mut Asked>, Refused> {
        Ok(self.known.get_mut(&socket_cookie(socket)?))
    }

    /// Sets the server to ask. `None` for a socket of another kind.
    pub(crate) fn connect(
        &mut self,
        socket: &OwnedFd,
        to: SocketAddr,
    ) -> Result<Option<Answer>, Refused> {
        let asked = self.of(socket)?;
        asked.map(|asked| asked.ask(to, ENETUNREACH)).transpose()
    }

    /// Answers bind(2): the address makes no difference, a port of one's own is refused. `None`
    /// for a socket of another kind.
    pub(crate) fn bind(
        &mut self,
        socket: &OwnedFd,
        to: SocketAddr,
    ) -> Result<Option<Answer>, Refused> {
        match (self.of(socket)?, to.port()) {
            (None, _) => Ok(None),
            (Some(_), 0) => Ok(Some(Answer::Value(0))),
            (Some(_), _) => Err(Refused(EACCES)),
        }
    }

    /// Answers the other calls on a DNS socket.
    pub(crate) fn attend(
        &mut self,
        request: NameRequest,
        caller: &Caller,
        arguments: &[u64; 6],
        waits: impl Fn() -> Result<(), Refused>,
    ) -> Result<Answer, Refused> {
        let [number, first, second, third, fourth, fifth] = *arguments;
        let socket = caller.descriptor(number)?;
        waits()?;
        let Some(asked) = self.of(&socket)? else {
            return Ok(Answer::Continue);
        };
        match request {
            NameRequest::SendTo => asked.send(caller, fourth, fifth),
            NameRequest::SendMessage => {
                let [to, bytes] = words(caller, first)?;
                asked.send(caller, to, bytes)
            }
            NameRequest::Receive => {
                let parts = [[first, second]];
                let got = receive(caller, &socket, &parts, third)?;
                let Some((got, server)) = got.zip(asked.server) else {
                    return Ok(Answer::Continue);
                };
                if fourth != 0 {
                    write_address(caller, server, fourth, fifth)?;
                }
                Ok(Answer::Value(got))
            }
            NameRequest::ReceiveMessage => {
                let Some(server) = asked.server else {
                    return Ok(Answer::Continue);
                };
                receive_message(caller, &socket, server, first, second)
            }
            // What the filter lets pass on any socket; those of the internet's protocols
            // a pair does not have.
            NameRequest::Option if first as u32 != SOL_SOCKET => Ok(Answer::Value(0)),
            NameRequest::Option => Ok(Answer::Continue),
            NameRequest::OwnAddress => {
                let own: IpAddr = match asked.is_6 {
                    true => Ipv6Addr::LOCALHOST.into(),
                    false => Ipv4Addr::LOCALHOST.into(),
                };
                write_address(caller, SocketAddr::new(own, 0), first, second)?;
                Ok(Answer::Value(0))
            }
            NameRequest::ServerAddress => {
                let server = asked.server.ok_or(Refused(ENOTCONN))?;
                write_address(caller, server, first, second)?;
                Ok(Answer::Value(0))
            }
        }
    }
}

const SOL_SOCKET: u32 = 1;

impl Asked {
    fn ask(&mut self, to: SocketAddr, otherwise: i32) -> Result<Answer, Refused> {
        if to.port() != PORT {
            return Err(Refused(otherwise));
        }
        self.server = Some(to);
        Ok(Answer::Value(0))
    }

    /// Notes the server in `to`, and lets the kernel send the message: it ignores the address.
    fn send(&mut self, caller: &Caller, to: u64, bytes: u64) -> Result<Answer, Refused> {
        if to != 0 {
            let bytes = (bytes & 0xffff_ffff).min(ADDRESS_BYTES_MAX) as usize;
            match parse(&caller.bytes(to, bytes)?) {
                Some(Address::Internet(to)) => drop(self.ask(to, EPERM)?),
                Some(Address::Path(_) | Address::Abstract(_) | Address::Unnamed) | None => {
                    return Err(Refused(EPERM));
                }
            }
        }
        Ok(Answer::Continue)
    }
}

/// Reads two words of the caller's memory.
fn words(caller: &Caller, at: u64) -> Result<[u64; 2], Refused> {
    let bytes = caller.bytes(at, 16)?;
    let (words, _) = bytes.as_chunks::<8>();
    match words {
        [one, other] => Ok([u64::from_ne_bytes(*one), u64::from_ne_bytes(*other)]),
        _ => Err(Refused(EPERM)),
    }
}

/// Takes an answer, if there is one, and writes it to these parts, each an address and a
/// length. `None` where the caller has to wait for it, or uses flags that are not answered
/// here.
fn receive(
    caller: &Caller,
    socket: &OwnedFd,
    parts: &[[u64; 2]],
    flags: u64,
) -> Result<Option<i64>, Refused> {
    const DONTWAIT: u64 = 0x40;
    const PEEK: u64 = 0x2;
    const TRUNC: u64 = 0x20;
    if flags & !(DONTWAIT | PEEK | TRUNC) != 0 {
        return Ok(None);
    }
    let room = parts.iter().map(|[_, bytes]| *bytes);
    let room = room.fold(0, u64::saturating_add);
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    let mut answer = vec![0; room.min(ANSWER_BYTES_MAX)];
    let mut how = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    how.set(RecvFlags::PEEK, flags & PEEK != 0);
    let (got, whole) = match recv(socket, &mut *answer, how) {
        Err(Errno::AGAIN) => {
            let waits = !fcntl_getfl(socket)?.contains(OFlags::NONBLOCK) && flags & DONTWAIT == 0;
            return match waits {
                true => Ok(None),
                false => Err(Errno::AGAIN.into()),
            };
        }
        // Nobody answers any more. That it is the end is not what one of datagrams says.
        Ok((_, 0)) => return Err(Refused(ECONNREFUSED)),
        received => received?,
    };
    let mut rest = answer.get(..got).unwrap_or_default();
    for [at, bytes] in parts {
        let bytes = usize::try_from(*bytes).unwrap_or(usize::MAX);
        let (part, after) = rest.split_at(bytes.min(rest.len()));
        caller.write(*at, part)?;
        rest = after;
    }
    let told = if flags & TRUNC != 0 { whole } else { got };
    Ok(i64::try_from(told).ok())
}

/// Takes an answer into a message (`struct msghdr`), and writes the message's fields.
fn receive_message(
    caller: &Caller,
    socket: &OwnedFd,
    server: SocketAddr,
    at: u64,
    flags: u64,
) -> Result<Answer, Refused> {
    const FLAGS_AT: u64 = 48;
    const CONTROL_BYTES_AT: u64 = 40;
    let field = |offset: u64| at.checked_add(offset).ok_or(Refused(EPERM));
    let [name, _] = words(caller, at)?;
    let [parts_at, count] = words(caller, field(16)?)?;
    let parts = (0..count.min(PARTS_MAX)).map(|one| {
        let at = parts_at.checked_add(16 * one).ok_or(Refused(EPERM))?;
        words(caller, at)
    });
    let parts: Vec<[u64; 2]> = parts.collect::<Result<_, Refused>>()?;
    let Some(got) = receive(caller, socket, &parts, flags)? else {
        return Ok(Answer::Continue);
    };
    if name != 0 {
        write_address(caller, server, name, field(8)?)?;
    }
    caller.write(field(CONTROL_BYTES_AT)?, &[0; 8])?;
    caller.write(field(FLAGS_AT)?, &[0; 4])?;
    Ok(Answer::Value(got))
}

/// Writes an address as the kernel does: as much as fits, and its full length.
fn write_address(
    caller: &Caller,
    address: SocketAddr,
    at: u64,
    length_at: u64,
) -> Result<(), Refused> {
    let bytes = written(address);
    let room = caller.bytes(length_at, 4)?;
    let room = room.first_chunk().copied().map_or(0, u32::from_ne_bytes);
    let part = bytes.get(..room as usize).unwrap_or(&bytes);
    caller.write(at, part)?;
    caller.write(length_at, &(bytes.len() as u32).to_ne_bytes())
}

/// Encodes an address as the kernel does (`struct sockaddr` of its family).
pub(crate) fn written(address: SocketAddr) -> Vec<u8> {
    const AF_INET: u16 = 2;
    const AF_INET6: u16 = 10;
    let port = address.port().to_be_bytes();
    match address.ip() {
        IpAddr::V4(ip) => [&AF_INET.to_ne_bytes()[..], &port, &ip.octets(), &[0; 8]].concat(),
        IpAddr::V6(ip) => {
            let family = AF_INET6.to_ne_bytes();
            [&family[..], &port, &[0; 4], &ip.octets(), &[0; 4]].concat()
        }
    }
}
