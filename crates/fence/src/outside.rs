//! Connections to the outside: each is made to a listener of this process's own, and its
//! other end is handed to whoever carries, with where it was meant to go.
//!
//! The caller's own socket is connected, so that its options, its number and whoever else
//! has it stay as they are. Others on this host can come to the listener as well: only the
//! connection whose two addresses are the caller's is handed on.

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

/// How long the judge waits for its own listener, and for whoever carries: they are there,
/// and on a busy host the kernel may take its time.
pub(crate) const HANDING_MAX: Duration = Duration::from_secs(5);
/// How many connections of others are taken from the listener before one is made to it.
const OTHERS_MAX: usize = 1024;

const EINPROGRESS: i32 = Errno::INPROGRESS.raw_os_error();

/// What leads outside, for a program that may reach something there.
#[derive(Debug)]
pub struct Outside {
    listener: TcpListener,
    at: SocketAddrV4,
    /// To whoever carries.
    line: OwnedFd,
    /// The sockets on which the program asks for names.
    pub(crate) names: Names,
}

impl Outside {
    /// With a line to whoever carries.
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

    /// Where connections come to it.
    #[cfg(test)]
    pub(crate) fn door(&self) -> SocketAddr {
        self.at.into()
    }

    /// Connects the caller's socket, and hands the other end on.
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

    /// Takes what others have brought: the listener's queue has room then for the caller.
    fn empty(&self) {
        let others = (0..OTHERS_MAX).map(|_| self.listener.accept());
        others.take_while(Result::is_ok).for_each(drop);
    }

    /// Whatever the socket has come to, if to anything, is not the outside.
    fn give_up(socket: &OwnedFd, refused: Refused) -> Result<Answer, Refused> {
        let _ = connect_unspec(socket);
        Err(refused)
    }

    /// The listener's address in a form that this socket can be connected to.
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

    /// The listener's end of this socket's connection. As long as this process has the
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

    /// Sends a descriptor to whoever carries, with what it is for.
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

/// Waits until it can go on, or for so long.
fn wait(on: BorrowedFd<'_>, how: PollFlags, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut [PollFd::from_borrowed_fd(on, how)], Some(&left)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
