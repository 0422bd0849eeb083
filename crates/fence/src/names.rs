//! DNS sockets. For the program they are datagram sockets; for the kernel each is one end of a
//! pair whose other end the egress process has, whatever address a message carries.
//!
//! Calls that such a pair does not support are answered here as for a datagram socket, so that
//! resolvers work: an answer comes from the server that was asked. Security does not rest on
//! this: calls that are not answered here go on to the kernel.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use atoll_sys::judging::Answer;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::sockopt::socket_cookie;
use rustix::net::{RecvFlags, recv};

use crate::address::{ADDRESS_BYTES_MAX, Address, parse, written};
use crate::caller::Caller;
use crate::calls::NUMBERS;
use crate::{EACCES, ECONNREFUSED, ENETUNREACH, EPERM, NameRequest, Refused};

/// The DNS port.
const PORT: u16 = 53;
/// The most DNS sockets known at once; the oldest are forgotten first.
const KNOWN_MAX: usize = 4096;
/// The longest answer taken at once, bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The most parts of one message that are written to.
const PARTS_MAX: u64 = 16;

const ENOTCONN: i32 = Errno::NOTCONN.raw_os_error();

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

impl Names {
    /// Adds a DNS socket, by its cookie.
    pub(crate) fn add(&mut self, cookie: u64, is_6: bool) {
        let server = None;
        self.known.insert(cookie, Asked { is_6, server });
        if self.known.len() > KNOWN_MAX {
            // Cookies only grow.
            let _ = self.known.pop_first();
        }
    }

    /// Returns a descriptor number that the caller does not use, if there is one.
    pub(crate) fn number(&mut self, thread: u32) -> Option<u32> {
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
