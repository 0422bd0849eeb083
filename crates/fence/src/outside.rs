//! Connections to the outside: each is made to a listener of this process, and the accepted end
//! is sent to the egress process, with its destination.
//!
//! The caller's own socket is connected, so that its options, its number and the processes that
//! share it stay as they are. Other processes of this host can connect to the listener as well:
//! only the connection whose two addresses are the caller's is passed on.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use atoll_sys::judging::{self, Answer, Waiting};
use atoll_sys::socket::send;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{ipv6_v6only, set_ipv6_v6only, socket_cookie, socket_domain};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, connect_unspec};
use rustix::net::{getpeername, getsockname, socketpair};

use crate::calls::socket::{AF_INET6, SOCK_CLOEXEC, SOCK_NONBLOCK};
use crate::deadline::{unless_interrupted, within_time};
use crate::names::Names;
use crate::{EAFNOSUPPORT, ECONNREFUSED, ENETUNREACH, ETIMEDOUT, Refused};

/// The longest wait for the judge's own listener and for the egress process. Both exist, but a
/// busy host may delay them.
const HANDING_MAX: Duration = Duration::from_secs(5);
/// The most connections of others that are dropped from the listener's queue before one is made
/// to it.
const OTHERS_MAX: usize = 1024;

const EINPROGRESS: i32 = Errno::INPROGRESS.raw_os_error();

/// The way to the egress process, for a program with a network.
#[derive(Debug)]
pub struct Outside {
    listener: TcpListener,
    at: SocketAddrV4,
    /// The socket to the egress process.
    line: OwnedFd,
    /// The program's DNS sockets.
    pub(crate) names: Names,
}

impl Outside {
    /// Starts to listen on the loopback; `line` leads to the egress process.
    ///
    /// # Errors
    /// The kernel's, where there is no loopback to listen on.
    pub fn new(line: OwnedFd) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr()?.port());
        Ok(Self {
            listener,
            at,
            line,
            names: Names::default(),
        })
    }

    /// Returns the listener's address.
    #[cfg(test)]
    pub(crate) fn door(&self) -> SocketAddr {
        self.at.into()
    }

    /// Connects the caller's socket, and passes the other end on.
    pub(crate) fn connect(&self, socket: &OwnedFd, meant: SocketAddr) -> Result<Answer, Refused> {
        let to = self.way_of(socket, meant)?;
        if getpeername(socket).is_ok() {
            // Not to block it is no new connection to ask once more.
            return within_time(socket, HANDING_MAX, || connect(socket, &to));
        }
        self.empty();
        let made = match within_time(socket, HANDING_MAX, || connect(socket, &to)) {
            // The kernel goes on, and the other end comes soon: the loopback is near.
            Err(Refused(EINPROGRESS)) => Err(Refused(EINPROGRESS)),
            Err(Refused(ETIMEDOUT)) => return Self::give_up(socket, Refused(ETIMEDOUT)),
            Err(refused) => return Err(refused),
            Ok(answer) => Ok(answer),
        };
        let handed = self.other_end(socket).and_then(|end| {
            let handed = self.hand(meant.to_string().as_bytes(), end.as_fd());
            handed.map_err(|_| Refused(ECONNREFUSED))
        });
        match handed {
            Ok(()) => made,
            Err(refused) => Self::give_up(socket, refused),
        }
    }

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
        self.names.add(cookie, family == AF_INET6);
        Ok(Answer::Value(given))
    }

    /// Drops the connections of others, so that the listener's queue has room for the caller.
    fn empty(&self) {
        let others = (0..OTHERS_MAX).map(|_| self.listener.accept());
        others.take_while(Result::is_ok).for_each(drop);
    }

    /// Disconnects the socket: whatever it has reached, if anything, is not the outside.
    fn give_up(socket: &OwnedFd, refused: Refused) -> Result<Answer, Refused> {
        let _ = connect_unspec(socket);
        Err(refused)
    }

    /// Returns the listener's address in a family that this socket can be connected to.
    fn way_of(&self, socket: &OwnedFd, meant: SocketAddr) -> Result<SocketAddr, Refused> {
        let family = socket_domain(socket)?;
        match meant {
            SocketAddr::V4(_) if family == AddressFamily::INET => Ok(self.at.into()),
            SocketAddr::V6(meant) if family == AddressFamily::INET6 => {
                if ipv6_v6only(socket)? {
                    if meant.ip().to_ipv4_mapped().is_some() {
                        return Err(Refused(ENETUNREACH));
                    }
                    set_ipv6_v6only(socket, false)?;
                }
                let mapped = self.at.ip().to_ipv6_mapped();
                Ok((mapped, self.at.port()).into())
            }
            SocketAddr::V4(_) | SocketAddr::V6(_) => Err(Refused(EAFNOSUPPORT)),
        }
    }

    /// Accepts the listener's end of this socket's connection. While this process holds the
    /// socket, no other one can have its address.
    fn other_end(&self, socket: &OwnedFd) -> Result<TcpStream, Refused> {
        let plain = |address: SocketAddr| (address.ip().to_canonical(), address.port());
        let own = plain(SocketAddr::try_from(getsockname(socket)?)?);
        let until = Instant::now() + HANDING_MAX;
        while Instant::now() < until {
            match self.listener.accept() {
                Ok((end, from)) if plain(from) == own => return Ok(end),
                // Somebody else's, to whom nothing is said.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(self.listener.as_fd(), PollFlags::IN, until)?;
                }
                Err(_) => {}
            }
        }
        Err(Refused(ECONNREFUSED))
    }

    /// Sends a descriptor to the egress process, with its purpose.
    fn hand(&self, what: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let until = Instant::now() + HANDING_MAX;
        loop {
            match send(self.line.as_fd(), what, &[descriptor]) {
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until =>
                {
                    wait(self.line.as_fd(), PollFlags::OUT, until)?;
                }
                sent => return sent,
            }
        }
    }
}

/// Waits until the descriptor is ready, or until the deadline.
fn wait(on: BorrowedFd<'_>, how: PollFlags, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut [PollFd::from_borrowed_fd(on, how)], Some(&left)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
