//! Where a program has no network of its own (a fence): its judge makes connections for
//! it, and hands each one out with where it was meant to go.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use atoll_model::network::CONNECTIONS_MAX;
use atoll_sys::{descriptor, socket};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixDatagram};
use tokio::task::JoinSet;

use crate::arrival::reset;
use crate::{Egress, dns, tunnel};

/// How many sockets for questions there can be at once.
const ASKING_MAX: usize = 1024;
/// The longest message, bytes: an address in words.
const MESSAGE_BYTES_MAX: usize = 64;
/// Comes with a socket on which names are asked for.
const NAMES: &[u8] = b"names";

/// The line on which they come. Of messages in order: to the runtime the same as datagrams.
pub(crate) fn line(line: OwnedFd) -> io::Result<UnixDatagram> {
    descriptor::never_block(line.as_fd())?;
    UnixDatagram::from_std(line.into())
}

/// Takes what is handed out, until there is to be no more.
pub(crate) async fn take(egress: Arc<Egress>, line: UnixDatagram) {
    let (mut carried, mut asking) = (JoinSet::new(), JoinSet::new());
    loop {
        while carried.try_join_next().is_some() {}
        while asking.try_join_next().is_some() {}
        let mut message = [0; MESSAGE_BYTES_MAX];
        let receive = || socket::receive(line.as_fd(), &mut message);
        let received = tokio::select! {
            received = line.async_io(Interest::READABLE, receive) => received,
            () = egress.is_over() => break,
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
                    true => {
                        drop(carried.spawn(tunnel::carry_to(Arc::clone(&egress), program, meant)))
                    }
                    false => reset(program),
                }
            }
        }
    }
    drop(line);
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

/// Answers the questions that come on one socket.
async fn answer(egress: Arc<Egress>, given: OwnedFd) {
    let Ok(asking) = line(given) else {
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
