//! The users who connect to published ports: the loopback is open to every user of a host, but a
//! port is published for one.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::net::netlink::SOCK_DIAG;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use tokio::net::TcpStream;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const HEADER_BYTES: usize = 16;
const ANSWER_BYTES_MAX: usize = 4096;
/// Any cookie.
const NO_COOKIE: u32 = u32::MAX;
/// The state of a listening socket (enum in linux/tcp_states.h).
const LISTENING: u8 = 10;

/// The users who may connect, and the socket on which the kernel names a connection's owner
/// (sock_diag(7)).
#[derive(Debug)]
pub(crate) struct PortPeers {
    users: Vec<u32>,
    netlink: Option<Mutex<OwnedFd>>,
}

impl PortPeers {
    /// Allows these users. Where there are none, no socket is opened.
    pub(crate) fn new(users: Vec<u32>) -> io::Result<Self> {
        let open = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
            socket_with(family, kind, flags, Some(SOCK_DIAG)).map(Mutex::new)
        };
        let netlink = (!users.is_empty()).then(open).transpose()?;
        Ok(Self { users, netlink })
    }

    /// Checks that a connection is one of a user who may connect.
    ///
    /// # Errors
    /// The reason for which it is not allowed.
    pub(crate) fn admit(&self, visitor: &TcpStream) -> Result<(), String> {
        let unknown =
            |error: io::Error| format!("the kernel does not tell whose connection it is: {error}");
        let both = visitor
            .peer_addr()
            .and_then(|there| Ok((there, visitor.local_addr()?)));
        let (there, here) = both.map_err(unknown)?;
        match self.owner(there, here).map_err(unknown)? {
            user if self.users.contains(&user) => Ok(()),
            user => Err(format!(
                "it came from user {user} of this host, and what is published is for who \
                 publishes it"
            )),
        }
    }

    /// Returns the user whose socket is at one address and connected to the other.
    fn owner(&self, at: SocketAddr, to: SocketAddr) -> io::Result<u32> {
        let netlink = self.netlink.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        // One question and its answer, which is there when the sending returns.
        let netlink = netlink.lock().unwrap_or_else(PoisonError::into_inner);
        send(&*netlink, &question(at, to), SendFlags::empty())?;
        let mut answer = [0; ANSWER_BYTES_MAX];
        let (got, _) = recv(&*netlink, &mut answer[..], RecvFlags::empty())?;
        read(answer.get(..got).unwrap_or_default())
    }
}

/// Encodes a `struct inet_diag_req_v2` after a header (linux/inet_diag.h).
fn question(at: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let family = if at.is_ipv4() { AF_INET } else { AF_INET6 };
    let mut asked = vec![family, IPPROTO_TCP, 0, 0];
    asked.extend(u32::MAX.to_ne_bytes());
    for address in [at, to] {
        asked.extend(address.port().to_be_bytes());
    }
    for address in [at, to] {
        let mut bytes = match address.ip() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        bytes.resize(16, 0);
        asked.extend(bytes);
    }
    asked.extend(0_u32.to_ne_bytes());
    asked.extend([NO_COOKIE.to_ne_bytes(), NO_COOKIE.to_ne_bytes()].concat());
    let mut message = ((HEADER_BYTES + asked.len()) as u32).to_ne_bytes().to_vec();
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(asked);
    message
}

/// Returns the owner of the socket in a `struct inet_diag_msg`.
fn read(answer: &[u8]) -> io::Result<u32> {
    const STATE_AT: usize = HEADER_BYTES + 1;
    const USER_AT: usize = HEADER_BYTES + 64;
    const INODE_AT: usize = HEADER_BYTES + 68;
    let word = |at: usize| {
        let bytes = answer
            .get(at..)
            .and_then(|rest| rest.first_chunk().copied());
        bytes
            .map(u32::from_ne_bytes)
            .ok_or(io::ErrorKind::InvalidData)
    };
    let kind = answer
        .get(4..6)
        .and_then(|kind| kind.first_chunk().copied());
    if kind.map(u16::from_ne_bytes) != Some(SOCK_DIAG_BY_FAMILY) {
        // An error, negative.
        let error = word(HEADER_BYTES)? as i32;
        return Err(io::Error::from_raw_os_error(error.wrapping_neg()));
    }
    // One that nobody has open any more is nobody's: it says 0 then, which is root.
    let is_open = word(INODE_AT)? != 0 && answer.get(STATE_AT) != Some(&LISTENING);
    if !is_open {
        return Err(io::ErrorKind::NotConnected.into());
    }
    Ok(word(USER_AT)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn port_peer_owner_is_known() {
        let own = rustix::process::geteuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = tokio::net::TcpListener::bind(address).await.unwrap();
            let at = listener.local_addr().unwrap();
            let visitor = TcpStream::connect(at).await.unwrap();
            let (come, _) = listener.accept().await.unwrap();
            PortPeers::new(vec![own]).unwrap().admit(&come).unwrap();
            let others = PortPeers::new(vec![own + 1]).unwrap();
            let why = others.admit(&come).unwrap_err();
            assert!(why.contains(&format!("from user {own}")), "{why}");
            assert!(PortPeers::new(vec![]).unwrap().admit(&come).is_err());
            // Whoever has gone is nobody, and not root.
            drop(visitor);
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            assert!(PortPeers::new(vec![0, own]).unwrap().admit(&come).is_err());
        }
    }
}
