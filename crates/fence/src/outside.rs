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

use atoll_sys::judging::Answer;
use atoll_sys::socket::send;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{ipv6_v6only, set_ipv6_v6only, socket_domain};
use rustix::net::{AddressFamily, connect, connect_unspec, getpeername, getsockname};

use crate::Refused;
use crate::names::Names;
use crate::sockets::{EAFNOSUPPORT, ECONNREFUSED, ENETUNREACH, ETIMEDOUT, within_time};

/// The longest wait for the judge's own listener and for the egress process. Both exist, but a
/// busy host may delay them.
pub(crate) const HANDING_MAX: Duration = Duration::from_secs(5);
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
    pub(crate) fn hand(&self, what: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<()> {
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
