//! Intercepted connections, where a program has no network of its own (a fence): the process that
//! intercepts its connections makes them, and hands each one over with its destination.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use atoll_model::network::CONNECTIONS_MAX;
use atoll_sys::{descriptor, socket};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixDatagram};
use tokio::task::JoinSet;

use crate::program_stream::reset;
use crate::{Egress, connections, dns};

/// The most sockets for DNS queries at once.
const ASKING_MAX: usize = 1024;
/// The longest message, bytes: an address as text.
const MESSAGE_BYTES_MAX: usize = 64;
/// The message that comes with a socket for DNS queries.
const NAMES: &[u8] = b"names";

/// Returns the socket on which connections come: SOCK_SEQPACKET, which the runtime treats as one of
/// datagrams.
pub(crate) fn socket_of(fd: OwnedFd) -> io::Result<UnixDatagram> {
    descriptor::never_block(fd.as_fd())?;
    UnixDatagram::from_std(fd.into())
}

/// Carries the connections that are handed over, until the run ends.
pub(crate) async fn take(egress: Arc<Egress>, socket: UnixDatagram) {
    let (mut carried, mut asking) = (JoinSet::new(), JoinSet::new());
    loop {
        while carried.try_join_next().is_some() {}
        while asking.try_join_next().is_some() {}
        let mut message = [0; MESSAGE_BYTES_MAX];
        let receive = || socket::receive(socket.as_fd(), &mut message);
        let received = tokio::select! {
            received = socket.async_io(Interest::READABLE, receive) => received,
            () = egress.run_ended() => break,
        };
        let Ok((got @ 1.., mut descriptors)) = received else {
            break;
        };
        let Some(given) = descriptors.pop() else {
            continue;
        };
        match message.get(..got).unwrap_or_default() {
            // What is dropped has ended.
            NAMES if asking.len() >= ASKING_MAX => {}
            NAMES => drop(asking.spawn(answer(Arc::clone(&egress), given))),
            meant => {
                let Some((program, meant)) = stream(given).zip(destination(meant)) else {
                    continue;
                };
                // In a network of its own the kernel counts them.
                match carried.len() < CONNECTIONS_MAX as usize {
                    true => drop(carried.spawn(connections::carry_to(
                        Arc::clone(&egress),
                        program,
                        meant,
                    ))),
                    false => reset(program),
                }
            }
        }
    }
    drop(socket);
    asking.shutdown().await;
    while carried.join_next().await.is_some() {}
}

fn destination(meant: &[u8]) -> Option<SocketAddr> {
    std::str::from_utf8(meant).ok()?.parse().ok()
}

fn stream(given: OwnedFd) -> Option<TcpStream> {
    descriptor::never_block(given.as_fd()).ok()?;
    TcpStream::from_std(given.into()).ok()
}

/// Answers the DNS queries that come on one socket.
async fn answer(egress: Arc<Egress>, given: OwnedFd) {
    let Ok(asking) = socket_of(given) else {
        return;
    };
    let mut question = vec![0; dns::QUESTION_BYTES_MAX];
    while let Ok(got @ 1..) = asking.recv(&mut question).await {
        let question = question.get(..got).unwrap_or_default();
        if let Some(answer) = dns::answered(&egress, question) {
            // Who reads none has room for none, and asks again.
            let _ = asking.try_send(&answer);
        }
    }
}
