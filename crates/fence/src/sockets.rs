//! Connections and listeners: to the program's own sockets, on the loopback.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use atoll_sys::judging::Answer;
use rustix::net::sockopt::{ipv6_v6only, socket_cookie, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketAddrUnix, bind as bind_to, connect as connect_to};

use crate::address::{ADDRESS_BYTES_MAX, Address, on_loopback, parse};
use crate::caller::{Caller, HERE, is_beneath, name_of, whereabouts};
use crate::calls::socket::{AF_INET, AF_INET6, SOCK_DGRAM, SOCKET_TYPE};
use crate::deadline::within_time;
use crate::listeners::{UnixListener, internet_listeners, unix_listeners};
use crate::outside::Outside;
use crate::{EACCES, EAFNOSUPPORT, ECONNREFUSED, ENETUNREACH, Places, Refused, attempt};

const EINVAL: i32 = 22;
const EADDRNOTAVAIL: i32 = 99;
const EMFILE: i32 = 24;

/// The longest wait for a listener whose queue is full.
const CONNECT_MAX: Duration = Duration::from_millis(500);
/// The most listeners that a program has at once.
const LISTENERS_MAX: usize = 4096;

/// The program's own listeners, by the kernel's cookies: a cookie is never reused for another
/// socket.
#[derive(Debug, Default)]
pub(crate) struct Own {
    cookies: BTreeSet<u64>,
}

impl Own {
    fn has(&self, cookie: u64) -> bool {
        self.cookies.contains(&cookie)
    }

    fn add(&mut self, cookie: u64) -> Result<(), Refused> {
        if self.cookies.len() >= LISTENERS_MAX {
            let mut left: BTreeSet<u64> = BTreeSet::new();
            left.extend(unix_listeners()?.iter().map(|one| one.cookie));
            left.extend(internet_listeners()?.iter().map(|one| one.cookie));
            self.cookies = self.cookies.intersection(&left).copied().collect();
        }
        if self.cookies.len() >= LISTENERS_MAX {
            return Err(Refused(EMFILE));
        }
        self.cookies.insert(cookie);
        Ok(())
    }
}

fn address(caller: &Caller, at: u64, bytes: u64) -> Result<Address, Refused> {
    // The kernel reads the length as an `int`.
    let bytes = bytes & 0xffff_ffff;
    if bytes > ADDRESS_BYTES_MAX {
        return Err(Refused(EINVAL));
    }
    parse(&caller.bytes(at, bytes as usize)?).ok_or(Refused(EAFNOSUPPORT))
}

/// Returns whether the arguments of socket(2) ask for internet datagrams.
pub(crate) fn is_for_datagrams(arguments: &[u64; 6]) -> bool {
    let [family, kind, ..] = arguments.map(|argument| argument as u32);
    [AF_INET, AF_INET6].contains(&family) && kind & SOCKET_TYPE == SOCK_DGRAM
}

/// Connects the caller's socket: to one of the program's own listeners, or to the outside.
pub(crate) fn connect(
    caller: &Caller,
    arguments: &[u64; 6],
    own: &Own,
    outside: Option<&mut Outside>,
    places: &Places,
    waits: impl Fn() -> Result<(), Refused>,
) -> Result<Answer, Refused> {
    let [number, at, bytes, ..] = *arguments;
    match address(caller, at, bytes)? {
        Address::Internet(asked) => {
            let socket = caller.descriptor(number)?;
            waits()?;
            connect_internet(&socket, asked, own, outside)
        }
        Address::Path(path) => {
            let place = caller.place(HERE, &path, true)?;
            let socket = caller.descriptor(number)?;
            waits()?;
            let facts = rustix::fs::fstat(&place)?;
            let device = (
                rustix::fs::major(facts.st_dev),
                rustix::fs::minor(facts.st_dev),
            );
            let file = Some((device, facts.st_ino as u32));
            let answering = listening(unix_listeners())?;
            let mut answering = answering.iter().filter(|one| one.file == file).peekable();
            let is_there = answering.peek().is_some();
            let place_of_it = whereabouts(&place)?;
            let is_service = places.services.contains(&place_of_it);
            // It made its socket where it may write, and nowhere else.
            if !is_service
                && (!answering.any(|one| own.has(one.cookie))
                    || !is_beneath(&place_of_it, &places.writable))
            {
                return match is_there && !is_asked_by_libraries(&place_of_it) {
                    true => attempt(ECONNREFUSED),
                    false => Err(Refused(ECONNREFUSED)),
                };
            }
            let to = SocketAddrUnix::new(name_of(&place))?;
            within_time(&socket, CONNECT_MAX, || connect_to(&socket, &to))
        }
        Address::Abstract(name) => {
            let socket = caller.descriptor(number)?;
            waits()?;
            let answering = listening(unix_listeners())?;
            let kind = socket_type(&socket)?.as_raw();
            // The kernel looks for a listener of the socket's own kind: another's name is
            // another name.
            let is_meant = |one: &&UnixListener| one.kind == kind && one.name == name;
            let mut answering = answering.iter().filter(is_meant).peekable();
            let is_there = answering.peek().is_some();
            if !answering.any(|one| own.has(one.cookie)) {
                return match is_there {
                    true => attempt(ECONNREFUSED),
                    false => Err(Refused(ECONNREFUSED)),
                };
            }
            let to = SocketAddrUnix::new_abstract_name(name.get(1..).unwrap_or_default())?;
            within_time(&socket, CONNECT_MAX, || connect_to(&socket, &to))
        }
        Address::Unnamed => Err(Refused(EINVAL)),
    }
}

fn connect_internet(
    socket: &OwnedFd,
    asked: SocketAddr,
    own: &Own,
    outside: Option<&mut Outside>,
) -> Result<Answer, Refused> {
    let to = match (on_loopback(asked), outside) {
        (None, None) => return Err(Refused(ENETUNREACH)),
        (Some(to), None) => to,
        (to, Some(outside)) => match (outside.names.connect(socket, asked)?, to) {
            (Some(answer), _) => return Ok(answer),
            (None, Some(to)) => to,
            (None, None) => return outside.connect(socket, asked),
        },
    };
    let answering = listening(internet_listeners())?;
    let mut answering = answering.iter().filter(|one| one.answers(to)).peekable();
    // One that is not the program's could be given the connection.
    if answering.peek().is_none() || !answering.all(|one| own.has(one.cookie)) {
        return Err(Refused(ECONNREFUSED));
    }
    within_time(socket, CONNECT_MAX, || connect_to(socket, &to))
}

/// Directories of services that a C library asks by itself for names, or sends messages about
/// errors.
const ASKED_BY_LIBRARIES: [&[u8]; 6] = [
    b"/run/nscd/",
    b"/var/run/nscd/",
    b"/run/avahi-daemon/",
    b"/run/systemd/userdb/",
    b"/run/systemd/resolve/",
    b"/run/systemd/journal/",
];

fn is_asked_by_libraries(place: &[u8]) -> bool {
    let mut asked = ASKED_BY_LIBRARIES.iter();
    asked.any(|directory| place.starts_with(directory))
}

/// Treats a kernel that does not list its listeners as having none.
fn listening<T>(told: std::io::Result<Vec<T>>) -> Result<Vec<T>, Refused> {
    told.map_err(|_| Refused(ECONNREFUSED))
}

/// Binds the caller's socket: to the loopback, whatever address was asked for.
pub(crate) fn bind(
    caller: &Caller,
    arguments: &[u64; 6],
    outside: Option<&mut Outside>,
    waits: impl Fn() -> Result<(), Refused>,
) -> Result<Answer, Refused> {
    let [number, at, bytes, ..] = *arguments;
    match address(caller, at, bytes)? {
        Address::Internet(asked) => {
            let socket = caller.descriptor(number)?;
            waits()?;
            let of_names = outside.map(|outside| outside.names.bind(&socket, asked));
            if let Some(answer) = of_names.transpose()?.flatten() {
                return Ok(answer);
            }
            bind_loopback(&socket, asked)?;
            Ok(Answer::Value(0))
        }
        // Files are made with the caller's rights; names that are no files lead
        // nowhere until something listens. An internet socket that was put in its
        // place meanwhile cannot be bound: Landlock refuses all ports.
        Address::Path(_) | Address::Abstract(_) | Address::Unnamed => Ok(Answer::Continue),
    }
}

fn bind_loopback(socket: &OwnedFd, asked: SocketAddr) -> Result<(), Refused> {
    let to = match asked.ip() {
        // "Every address" of both kinds is reached by the older one too.
        IpAddr::V6(ip) if ip.is_unspecified() && !ipv6_v6only(socket)? => {
            SocketAddr::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), asked.port())
        }
        _ => on_loopback(asked).ok_or(Refused(EADDRNOTAVAIL))?,
    };
    Ok(bind_to(socket, &to)?)
}

/// Lets the caller's socket listen, once its address is known to be allowed.
pub(crate) fn listen(
    caller: &Caller,
    arguments: &[u64; 6],
    own: &mut Own,
    waits: impl Fn() -> Result<(), Refused>,
) -> Result<Answer, Refused> {
    let [number, queue, ..] = *arguments;
    let socket = caller.descriptor(number)?;
    waits()?;
    let domain = socket_domain(&socket)?;
    if domain == AddressFamily::INET || domain == AddressFamily::INET6 {
        let bound = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
        if bound.port() == 0 {
            bind_loopback(&socket, SocketAddr::new(bound.ip(), 0))?;
        } else if bound.ip().is_unspecified() || on_loopback(bound).is_none() {
            return Err(Refused(EACCES));
        }
    } else if domain != AddressFamily::UNIX {
        return Err(Refused(EACCES));
    }
    // Its own before it listens, so that no moment is left in between.
    own.add(socket_cookie(&socket)?)?;
    rustix::net::listen(&socket, queue as i32)?;
    Ok(Answer::Value(0))
}
