//! Published ports: a client of a listener on the host's loopback is connected to that port of the
//! sandbox's own.
//!
//! Nothing enters the sandbox's network for that. Sockets that were made in there wait here
//! unconnected, and each is used again when its connection is over.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use atoll_model::network::{Authority, Flow, FlowKind, Published};
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_error, socket_type};
use rustix::net::{AddressFamily, SocketType, connect_unspec, getpeername};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::Egress;
use crate::control_channel::FlowOutcome;
use crate::dropped_rights::DroppedRights;
use crate::limits::Direction;
use crate::opening::StopReason;
use crate::policies::PolicySnapshot;
use crate::program_stream::reset;
use crate::pump::pump;
use crate::scan::Scan;

/// The longest time a server in the sandbox may take to accept a connection.
const DIAL_PATIENCE: Duration = Duration::from_secs(10);
/// The longest time that server may take to acknowledge the last bytes of a connection.
const FAREWELL: Duration = Duration::from_secs(10);
/// The interval at which their acknowledgement is checked.
const LOOK: Duration = Duration::from_millis(5);
/// The pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(10);

/// The host of the sandbox itself in records.
const ITSELF: &str = "localhost";

/// Unconnected sockets of the sandbox's network.
#[derive(Debug)]
pub(crate) struct InnerSockets {
    free: Mutex<Vec<SocketPair>>,
    /// Permits for the free ones.
    permit: Arc<Semaphore>,
}

/// The sockets for one connection: one of each address family.
#[derive(Debug)]
struct SocketPair {
    four: OwnedFd,
    six: Option<OwnedFd>,
}

/// Begins to accept clients of published ports. Returns the sockets of the sandbox's
/// network, and the listeners for anything else.
pub(crate) fn begin(
    egress: &Arc<Egress>,
    tasks: &mut JoinSet<()>,
    descriptors: Vec<OwnedFd>,
) -> io::Result<(Arc<InnerSockets>, Vec<OwnedFd>)> {
    let is_inward = |one: &OwnedFd| {
        matches!(socket_type(one), Ok(SocketType::STREAM))
            && matches!(socket_acceptconn(one), Ok(false))
    };
    let (inward, rest): (Vec<_>, Vec<_>) = descriptors.into_iter().partition(is_inward);
    let inward = Arc::new(InnerSockets::of(inward));
    let mut others = Vec::new();
    for listener in rest {
        let Some(published) = published(egress, &listener) else {
            others.push(listener);
            continue;
        };
        take(egress, tasks, &inward, published, listener)?;
    }
    Ok((inward, others))
}

/// Handles orders, among them to publish further ports, until the run ends.
pub(crate) async fn serve(
    egress: &Arc<Egress>,
    tasks: &mut JoinSet<()>,
    inward: &Arc<InnerSockets>,
) {
    let further = |published: Published, listeners: Vec<OwnedFd>| {
        for listener in listeners {
            // Nobody comes to one that is closed: that shows outside.
            let _ = take(egress, tasks, inward, published.clone(), listener);
        }
    };
    let renounce = |given| egress.policies.dropped.add_all(given);
    let reload = |version, file| egress.policies.reload(version, file);
    let sign_by = |authority: &Authority| {
        let certificates = egress.certificates.as_ref();
        certificates.is_some_and(|certificates| certificates.sign_by(authority).is_ok())
    };
    egress
        .control
        .receive_orders(further, renounce, reload, sign_by)
        .await;
}

/// Begins to accept clients of one listener.
fn take(
    egress: &Arc<Egress>,
    tasks: &mut JoinSet<()>,
    inward: &Arc<InnerSockets>,
    published: Published,
    listener: OwnedFd,
) -> io::Result<()> {
    let listener = std::net::TcpListener::from(listener);
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let (egress, inward) = (Arc::clone(egress), Arc::clone(inward));
    tasks.spawn(accept(egress, listener, inward, published));
    Ok(())
}

/// Returns the published port of a listener on the host's loopback: the sandbox's own listeners are
/// bound to no particular address.
fn published(egress: &Egress, listener: &OwnedFd) -> Option<Published> {
    let at = rustix::net::getsockname(listener).ok()?;
    let at = SocketAddr::try_from(at)
        .ok()
        .filter(|at| at.ip().is_loopback())?;
    let mut all = egress.network().publish.iter();
    all.find(|one| one.port.outside == at.port()).cloned()
}

impl InnerSockets {
    fn of(sockets: Vec<OwnedFd>) -> Self {
        let is_4 = |one: &OwnedFd| matches!(socket_domain(one), Ok(AddressFamily::INET));
        let (fours, sixes): (Vec<_>, Vec<_>) = sockets.into_iter().partition(is_4);
        let mut sixes = sixes.into_iter();
        let pair = |four| SocketPair {
            four,
            six: sixes.next(),
        };
        let free: Vec<SocketPair> = fours.into_iter().map(pair).collect();
        Self {
            permit: Arc::new(Semaphore::new(free.len())),
            free: Mutex::new(free),
        }
    }

    fn take(&self) -> Option<SocketPair> {
        self.free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }

    fn give_back(&self, pair: SocketPair) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(pair);
    }
}

/// Accepts clients until the run ends. While no socket is free the next one waits.
async fn accept(
    egress: Arc<Egress>,
    listener: TcpListener,
    inward: Arc<InnerSockets>,
    published: Published,
) {
    let mut carried = JoinSet::new();
    loop {
        while carried.try_join_next().is_some() {}
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = egress.run_ended() => break,
        };
        let Ok((visitor, _)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let permit = tokio::select! {
            permit = Arc::clone(&inward.permit).acquire_owned() => permit,
            () = egress.run_ended() => break,
        };
        let Ok(permit) = permit else {
            break;
        };
        let (egress, inward) = (Arc::clone(&egress), Arc::clone(&inward));
        let published = published.clone();
        carried.spawn(async move { visit(&egress, &inward, visitor, &published, permit).await });
    }
    drop(listener);
    while carried.join_next().await.is_some() {}
}

/// Connects one client to the sandbox's port, once that is recorded.
async fn visit(
    egress: &Egress,
    inward: &InnerSockets,
    visitor: TcpStream,
    published: &Published,
    permit: OwnedSemaphorePermit,
) {
    let now = egress.policies.now();
    let flow = Flow {
        rule: Some(published.told()),
        policies: now.version(),
        ..Flow::to(
            FlowKind::Published,
            ITSELF.to_owned(),
            published.port.inside,
        )
    };
    let admitted = egress.visitors.admit(&visitor);
    let closed = egress.policies.closed(published.port.inside);
    let admitted = admitted.and_then(|()| closed.map_or(Ok(()), Err));
    if let Err(why) = admitted.and_then(|()| is_published(&now, published)) {
        egress.control.refuse(flow, why);
        return reset(visitor);
    }
    let Ok(opened) = egress.control.open(flow, true).await else {
        return reset(visitor);
    };
    let Some(pair) = inward.take() else {
        return reset(visitor);
    };
    let carried = match connect(&pair, published.port.inside).await {
        Ok(server) => relay(egress, visitor, server, published, now.version()).await,
        Err(error) => {
            reset(visitor);
            let why = match error.kind() {
                io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
                _ => format!("nothing answers there: {error}"),
            };
            FlowOutcome::nothing(why).at_last(true)
        }
    };
    // What was broken off is ended inside at once.
    let patience = match &carried.failure {
        Some(_) => Duration::ZERO,
        None => FAREWELL,
    };
    egress.control.close(&opened, carried);
    tokio::select! {
        () = pair.settle(patience) => {}
        () = egress.run_ended() => return,
    }
    inward.give_back(pair);
    drop(permit);
}

/// Checks the policies that have come since the port was published. The first ones were asked
/// before it was.
fn is_published(now: &PolicySnapshot<'_>, published: &Published) -> Result<(), String> {
    match now.version() {
        0 => Ok(()),
        _ => now.publishing(published).map_err(|forbidden| forbidden.why),
    }
}

/// Connects to a port of the sandbox, at the first address of its loopback with a listener.
async fn connect(pair: &SocketPair, port: u16) -> io::Result<TcpStream> {
    let places = [
        (Some(&pair.four), IpAddr::from(Ipv4Addr::LOCALHOST)),
        (pair.six.as_ref(), Ipv6Addr::LOCALHOST.into()),
    ];
    let mut failed = io::Error::from(io::ErrorKind::ConnectionRefused);
    for (socket, ip) in places {
        let Some(socket) = socket else {
            continue;
        };
        let socket = TcpSocket::from_std_stream(socket.try_clone()?.into());
        match timeout(DIAL_PATIENCE, socket.connect(SocketAddr::new(ip, port))).await {
            // Where nobody listens a socket can come to be connected to itself.
            Ok(Ok(server)) if server.local_addr()? != server.peer_addr()? => return Ok(server),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => failed = error,
            Err(_) => failed = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failed)
}

/// Carries bytes in both directions until both sides have ended.
async fn relay(
    egress: &Egress,
    mut visitor: TcpStream,
    mut server: TcpStream,
    published: &Published,
    policies: u32,
) -> FlowOutcome {
    let _ = (visitor.set_nodelay(true), server.set_nodelay(true));
    let carried = [AtomicU64::new(0), AtomicU64::new(0)];
    let [up, down] = &carried;
    let work = async {
        let (from_visitor, mut to_visitor) = visitor.split();
        let (from_server, mut to_server) = server.split();
        // Who has published it scans at what the program shows.
        let [mut shown, mut said] = [Scan::Not, Scan::Not];
        let both = tokio::try_join!(
            pump(
                None,
                Direction::Up,
                &mut shown,
                &from_server,
                &mut to_visitor,
                up
            ),
            pump(
                None,
                Direction::Down,
                &mut said,
                &from_visitor,
                &mut to_server,
                down
            ),
        );
        both.map(drop).map_err(StopReason::why)
    };
    let worked = tokio::select! {
        worked = work => worked,
        why = egress.policies.dropped.denied(DroppedRights::network) => Err(why),
        why = egress.policies.denied_since(policies, |now| now.publishing(published)) => Err(why),
        () = egress.run_ended() => Err("the sandbox ended".to_owned()),
    };
    if worked.is_err() {
        reset(visitor);
    }
    FlowOutcome {
        bytes: carried.map(AtomicU64::into_inner),
        failure: worked.err(),
        ..FlowOutcome::default()
    }
}

impl SocketPair {
    /// Disconnects the sockets for their next use, once their last bytes are acknowledged.
    async fn settle(&self, patience: Duration) {
        let until = Instant::now() + patience;
        for socket in [Some(&self.four), self.six.as_ref()].into_iter().flatten() {
            // A connection that both sides have ended, and all of it acknowledged, has no
            // peer.
            while getpeername(socket).is_ok_and(|peer| peer.is_some()) && Instant::now() < until {
                tokio::time::sleep(LOOK).await;
            }
            // What is left is reset by that, and leaves an error behind.
            let _ = (connect_unspec(socket), socket_error(socket));
        }
    }
}
