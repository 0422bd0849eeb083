//! Connections of the program: each is judged, recorded, dialled and carried.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use atoll_model::network::{Flow, FlowKind, HostName, HostPart};
use atoll_sys::funnel::original_destination;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::timeout;

use crate::hello::{self, Hello};
use crate::names::Names;
use crate::refusals::why;
use crate::resolve::{Nowhere, resolve};
use crate::{Egress, dns};

/// How long a server may take to answer the first packet.
const DIAL_PATIENCE: Duration = Duration::from_secs(10);
/// How long a program may take over the first bytes of TLS.
const HELLO_PATIENCE: Duration = Duration::from_secs(30);
/// The longest beginning of TLS that is read, bytes.
const HELLO_BYTES_MAX: usize = 64 * 1024;
/// How much is carried at once, bytes.
const BLOCK_BYTES: usize = 64 * 1024;

/// Where a program wants to go.
struct Wanted {
    host: HostPart,
    port: u16,
}

impl Wanted {
    fn flow(&self) -> Flow {
        Flow {
            kind: FlowKind::Tunnel,
            host: self.host.to_string(),
            address: None,
            port: self.port,
            rule: None,
        }
    }
}

/// Carries one connection from its arrival to its end.
pub(crate) async fn carry(egress: Arc<Egress>, program: TcpStream) {
    let Ok(meant) = destination(&program) else {
        // Made to the funnel's port itself: it was meant for nobody.
        return reset(program);
    };
    if dns::is_name_server(meant) {
        return crate::serve_names_over_tcp(&egress, program).await;
    }
    match wanted(&egress, meant) {
        Ok(wanted) => judge(&egress, program, wanted).await,
        Err((wanted, why)) => refuse(&egress, program, wanted.flow(), why).await,
    }
}

fn destination(program: &TcpStream) -> io::Result<SocketAddr> {
    let meant = original_destination(program.as_fd())?;
    if meant == program.local_addr()? {
        return Err(io::ErrorKind::AddrNotAvailable.into());
    }
    Ok(SocketAddr::new(meant.ip().to_canonical(), meant.port()))
}

/// The host that an address stands for.
fn wanted(egress: &Egress, meant: SocketAddr) -> Result<Wanted, (Wanted, String)> {
    let (address, port) = (meant.ip(), meant.port());
    let of = |host| Wanted { host, port };
    if !Names::is_for_names(address) {
        return Ok(of(HostPart::address(address)));
    }
    let name = egress.name(address);
    name.map(|name| of(HostPart::Name(name))).ok_or_else(|| {
        let why = "this address stands for no name that was asked for".to_owned();
        (of(HostPart::address(address)), why)
    })
}

async fn judge(egress: &Egress, program: TcpStream, wanted: Wanted) {
    let network = &egress.network;
    let mut flow = wanted.flow();
    match network.connection(&wanted.host, wanted.port) {
        Ok(rule) => flow.rule = Some(format!("{} ({})", rule.to, rule.origin)),
        Err(unreachable) => return refuse(egress, program, flow, why(&unreachable)).await,
    }
    let addresses = match &wanted.host {
        HostPart::Address(address) => match network.address(*address, wanted.port) {
            Ok(()) => Ok(vec![*address]),
            Err(unreachable) => Err(Nowhere::Refused(why(&unreachable))),
        },
        HostPart::Name(name) => resolve(&egress.resolver, network, name, wanted.port).await,
    };
    match addresses {
        Ok(addresses) => connect(egress, program, wanted, flow, addresses).await,
        Err(Nowhere::Refused(why)) => refuse(egress, program, flow, why).await,
        Err(Nowhere::Unknown(why)) => {
            let why = format!("its name leads nowhere: {why}");
            refuse(egress, program, flow, why).await;
        }
    }
}

/// Records the connection, then makes it.
async fn connect(
    egress: &Egress,
    program: TcpStream,
    wanted: Wanted,
    mut flow: Flow,
    addresses: Vec<IpAddr>,
) {
    for address in addresses {
        flow.address = Some(address);
        let Ok(opened) = egress.line.open(flow.clone()).await else {
            return reset(program);
        };
        let to = SocketAddr::new(address, wanted.port);
        let dialled = match timeout(DIAL_PATIENCE, TcpStream::connect(to)).await {
            Ok(dialled) => dialled,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        match dialled {
            Ok(server) => {
                let ended = relay(egress, program, server, &wanted.host).await;
                let failure = match ended.stopped {
                    Some(Stop::ForAnother(why)) => {
                        egress.line.refuse(wanted.flow(), why.clone()).await;
                        Some(why)
                    }
                    Some(Stop::Failed(why)) => Some(why),
                    None => None,
                };
                return opened.close(&egress.line, ended.bytes, failure).await;
            }
            Err(error) => {
                let failure = format!("the host cannot be reached: {error}");
                opened.close(&egress.line, [0, 0], Some(failure)).await;
            }
        }
    }
    reset(program);
}

/// How a connection ended.
struct Ended {
    bytes: [u64; 2],
    stopped: Option<Stop>,
}

/// Why a connection ended before both sides had ended it.
enum Stop {
    /// It was for another host than was asked for.
    ForAnother(String),
    /// Something went wrong.
    Failed(String),
}

/// Carries bytes both ways, once the first ones are for nobody but who was asked for.
async fn relay(
    egress: &Egress,
    mut program: TcpStream,
    mut server: TcpStream,
    host: &HostPart,
) -> Ended {
    let _ = (program.set_nodelay(true), server.set_nodelay(true));
    let carried = [AtomicU64::new(0), AtomicU64::new(0)];
    let [up, down] = &carried;
    let work = async {
        if let HostPart::Name(name) = host {
            first_bytes(&mut program, &mut server, name, up).await?;
        }
        let (mut from_program, mut to_program) = program.split();
        let (mut from_server, mut to_server) = server.split();
        let both = tokio::try_join!(
            pump(&mut from_program, &mut to_server, up),
            pump(&mut from_server, &mut to_program, down),
        );
        both.map(drop)
            .map_err(|error| Stop::Failed(error.to_string()))
    };
    let worked = tokio::select! {
        worked = work => worked,
        () = egress.is_over() => Err(Stop::Failed("the sandbox ended".to_owned())),
    };
    if worked.is_err() {
        reset(server);
        reset(program);
    }
    Ended {
        bytes: carried.map(AtomicU64::into_inner),
        stopped: worked.err(),
    }
}

/// Carries one way until the end, and passes that on.
async fn pump(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    carried: &AtomicU64,
) -> io::Result<()> {
    let mut block = vec![0_u8; BLOCK_BYTES];
    loop {
        let got = from.read(&mut block).await?;
        if got == 0 {
            return to.shutdown().await;
        }
        to.write_all(block.get(..got).unwrap_or_default()).await?;
        carried.fetch_add(got as u64, Ordering::Relaxed);
    }
}

/// Waits for whoever speaks first. Where it is the program, its first bytes are read
/// until they tell whom they are for, and sent on if that is who it asked for.
async fn first_bytes(
    program: &mut TcpStream,
    server: &mut TcpStream,
    name: &HostName,
    up: &AtomicU64,
) -> Result<(), Stop> {
    let text = |error: io::Error| Stop::Failed(error.to_string());
    let mut bytes = Vec::with_capacity(BLOCK_BYTES);
    // Not by readiness: that may be told when there is nothing to read.
    let mut seen = [0];
    let mut got = tokio::select! {
        got = program.read_buf(&mut bytes) => got.map_err(text)?,
        peeked = server.peek(&mut seen) => return peeked.map(drop).map_err(text),
    };
    let hello = loop {
        let hello = hello::read(&bytes);
        match hello {
            Hello::Partial if got > 0 && bytes.len() < HELLO_BYTES_MAX => {}
            Hello::Partial if got > 0 => break Hello::Malformed,
            _ => break hello,
        }
        let read = timeout(HELLO_PATIENCE, program.read_buf(&mut bytes)).await;
        got = match read {
            Ok(got) => got.map_err(text)?,
            Err(_) => {
                return Err(Stop::Failed(
                    "the beginning of TLS took too long".to_owned(),
                ));
            }
        };
    };
    if hello.is_for_another(name) {
        return Err(Stop::ForAnother(format!(
            "the connection is for another host than {name}: {hello:?}"
        )));
    }
    server.write_all(&bytes).await.map_err(text)?;
    up.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    Ok(())
}

async fn refuse(egress: &Egress, program: TcpStream, flow: Flow, why: String) {
    egress.line.refuse(flow, why).await;
    reset(program);
}

/// Ends a connection as a host does that is not there.
fn reset(stream: TcpStream) {
    // Where it cannot be reset it is closed.
    let _ = stream.set_zero_linger();
}
