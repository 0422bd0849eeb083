//! The one way out of a sandbox.
//!
//! A process of its own carries the connections of one sandbox: it gets what listens on
//! the sandbox's network, judges where each connection is meant to go, asks name servers
//! only for what may be reached, checks the address that it then dials, and has
//! everything recorded before it happens. It holds the rules, and nothing else of its
//! host's.
//!
//! It must never know the ledger, a file of the workspace, or tools. Start reading at
//! [`run`].

mod dns;
mod filter;
mod hello;
mod line;
mod names;
mod refusals;
mod resolve;
mod tunnel;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use atoll_model::network::{Carriage, FLOW_MESSAGE_BYTES_MAX, Flow, FlowKind, HostName, Network};
use atoll_sys::landlock::{self, Holds, Ruleset};
use atoll_sys::{credentials, descriptor, process, seccomp, socket};
use hickory_resolver::config::{ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::system_conf::read_system_conf;
use hickory_resolver::{Hosts, TokioResolver};
use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::line::Line;
use crate::names::Names;

/// How many threads carry.
const THREADS: usize = 2;
/// How long a program may take over a question by TCP.
const QUESTION_PATIENCE: Duration = Duration::from_secs(10);
/// How long connections may take to tell of their end.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long nothing is taken after it could not be.
const PAUSE: Duration = Duration::from_millis(10);
/// How many connections there can be at once.
const CONNECTIONS_MAX: usize = 4096;

/// Why nothing is carried.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The kernel's answer.
    #[error("egress: {what}: {error}")]
    Kernel {
        /// At what.
        what: &'static str,
        /// Its answer.
        error: io::Error,
    },
    /// What came first was no description.
    #[error("egress: it was given nothing to carry")]
    Description,
    /// This host's name servers are not known.
    #[error("egress: the name servers in /etc/resolv.conf cannot be used: {0}")]
    Resolver(String),
}

fn at(what: &'static str) -> impl FnOnce(io::Error) -> EgressError {
    move |error| EgressError::Kernel { what, error }
}

/// What every connection needs.
#[derive(Debug)]
struct Egress {
    network: Network,
    line: Line,
    names: Mutex<Names>,
    resolver: TokioResolver,
    /// Says when there is to be no more.
    over: watch::Receiver<bool>,
}

impl Egress {
    /// Returns when there is to be no more.
    async fn is_over(&self) {
        let mut over = self.over.clone();
        // Nobody who could say so any more says the same.
        let _ = over.wait_for(|over| *over).await;
    }

    fn name(&self, address: IpAddr) -> Option<HostName> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.name(address).cloned()
    }
}

/// The descriptor by which this process is told what to carry.
const LINE: i32 = 3;

/// All that a process of its own does. Returns its exit status.
#[must_use]
pub fn program() -> u8 {
    // What else whoever started Atoll had open is not for this process.
    let line = descriptor::close_from(LINE as u32 + 1)
        .and_then(|()| process::set_name(c"atoll-egress"))
        .and_then(|()| descriptor::inherited(LINE));
    let line = line.map_err(at("its line"));
    // Nobody reads what it would say: whoever started it sees the line's end.
    u8::from(line.and_then(run).is_err())
}

/// Carries a sandbox's connections until the other side of this line says that there are
/// no more, or is gone.
///
/// # Errors
/// [`EgressError`]: nothing was carried then.
pub fn run(line: OwnedFd) -> Result<(), EgressError> {
    let mut message = vec![0_u8; FLOW_MESSAGE_BYTES_MAX];
    let received = socket::receive(line.as_fd(), &mut message);
    let (got, listeners) = received.map_err(at("waiting for a description"))?;
    let message = message.get(..got).unwrap_or_default();
    let carriage: Carriage =
        serde_json::from_slice(message).map_err(|_| EgressError::Description)?;
    descriptor::never_block(line.as_fd()).map_err(at("its line"))?;
    let known = Known::read()?;
    // Before there are threads, which would be without it.
    confine().map_err(at("giving rights up"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .map_err(at("starting"))?;
    let ran = runtime.block_on(serve(carriage, known, line, listeners));
    // What still waits for a name server is not waited for.
    runtime.shutdown_background();
    ran
}

/// What is known of names without a question: how to ask, and what needs none.
struct Known {
    servers: ResolverConfig,
    options: ResolverOpts,
    hosts: Hosts,
}

impl Known {
    fn read() -> Result<Self, EgressError> {
        let unusable =
            |error: hickory_resolver::net::NetError| EgressError::Resolver(error.to_string());
        let (servers, mut options) = read_system_conf().map_err(unusable)?;
        // There are no files later.
        options.use_hosts_file = ResolveHosts::Never;
        let hosts = Hosts::from_system().unwrap_or_default();
        Ok(Self {
            servers,
            options,
            hosts,
        })
    }

    fn resolver(self) -> Result<TokioResolver, EgressError> {
        let provider = TokioRuntimeProvider::default();
        let builder = TokioResolver::builder_with_config(self.servers, provider);
        let built = builder.with_options(self.options).build();
        let mut resolver = built.map_err(|error| EgressError::Resolver(error.to_string()))?;
        resolver.set_hosts(Arc::new(self.hosts));
        Ok(resolver)
    }
}

/// From here on there is no file, no other process, and no right but that to make
/// connections.
fn confine() -> io::Result<()> {
    // Each connection is two descriptors.
    let files = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: files.maximum,
        ..files
    };
    setrlimit(Resource::Nofile, most)?;
    credentials::forbid_inspection()?;
    credentials::forbid_new_privileges()?;
    credentials::keep_capabilities(0)?;
    Ruleset::new(landlock::version()?, Holds::AllButPorts)?.enter()?;
    seccomp::install(&filter::filter(), "egress-filter")
}

async fn serve(
    carriage: Carriage,
    known: Known,
    line: OwnedFd,
    listeners: Vec<OwnedFd>,
) -> Result<(), EgressError> {
    let resolver = known.resolver()?;
    let (end, over) = watch::channel(false);
    let egress = Arc::new(Egress {
        network: carriage.network,
        line: Line::new(line).map_err(at("its line"))?,
        names: Mutex::default(),
        resolver,
        over,
    });
    let mut tasks = JoinSet::new();
    for listener in listeners {
        let is_tcp = rustix::net::sockopt::socket_type(&listener)
            .is_ok_and(|kind| kind == rustix::net::SocketType::STREAM);
        if is_tcp {
            let listener = TcpListener::from_std(listener.into()).map_err(at("listening"))?;
            tasks.spawn(accept(Arc::clone(&egress), listener));
        } else {
            let socket = UdpSocket::from_std(listener.into()).map_err(at("listening"))?;
            tasks.spawn(answer(Arc::clone(&egress), socket));
        }
    }
    egress.line.hear().await;
    let _ = end.send(true);
    // What carries tells how far it came.
    let told = async { while tasks.join_next().await.is_some() {} };
    let _ = timeout(FAREWELL, told).await;
    tasks.shutdown().await;
    egress.line.tell_refusals().await;
    Ok(())
}

/// Takes connections, until it is ended: then they all end, and tell so.
async fn accept(egress: Arc<Egress>, listener: TcpListener) {
    let mut carried = JoinSet::new();
    loop {
        while carried.try_join_next().is_some() {}
        if carried.len() >= CONNECTIONS_MAX {
            carried.join_next().await;
            continue;
        }
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = egress.is_over() => break,
        };
        match accepted {
            Ok((program, _)) => {
                carried.spawn(tunnel::carry(Arc::clone(&egress), program));
            }
            // Too many descriptors, or a connection that is gone already.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    drop(listener);
    while carried.join_next().await.is_some() {}
}

/// Answers questions for names, each from the address that it was sent to.
async fn answer(egress: Arc<Egress>, socket: UdpSocket) {
    let Ok(state) = UdpSocketState::new(UdpSockRef::from(&socket)) else {
        return;
    };
    let mut buffer = vec![0_u8; dns::QUESTION_BYTES_MAX];
    loop {
        let ready = tokio::select! {
            ready = socket.readable() => ready,
            () = egress.is_over() => return,
        };
        if ready.is_err() {
            return;
        }
        let mut meta = [RecvMeta::default()];
        let received = socket.try_io(tokio::io::Interest::READABLE, || {
            let mut buffers = [io::IoSliceMut::new(&mut buffer)];
            state.recv(UdpSockRef::from(&socket), &mut buffers, &mut meta)
        });
        let [meta] = meta;
        if received.is_err() {
            continue;
        }
        let questions = buffer.get(..meta.len).unwrap_or_default();
        // The kernel joins datagrams of the same length (udp(7), `UDP_GRO`).
        for question in questions.chunks(meta.stride.max(1)) {
            let Some(reply) = answered(&egress, question).await else {
                continue;
            };
            let transmit = Transmit {
                destination: meta.addr,
                ecn: None,
                contents: &reply,
                segment_size: None,
                src_ip: meta.dst_ip,
            };
            // Who asks again is answered again.
            let _ = socket.try_io(tokio::io::Interest::WRITABLE, || {
                state.send(UdpSockRef::from(&socket), &transmit)
            });
        }
    }
}

async fn answered(egress: &Egress, question: &[u8]) -> Option<Vec<u8>> {
    let dns::Answered { answer, refused } = dns::answer(question, &egress.network, &egress.names);
    if let Some(refused) = refused {
        let why = refused.why;
        let flow = Flow {
            kind: FlowKind::Name,
            host: refused.name,
            address: None,
            port: 0,
            rule: None,
        };
        egress.line.refuse(flow, why).await;
    }
    answer
}

/// The same by TCP (RFC 7766): each question and answer after its length.
async fn serve_names_over_tcp(egress: &Egress, mut program: TcpStream) {
    loop {
        let question = async {
            let length = usize::from(program.read_u16().await?);
            let mut question = vec![0_u8; length];
            program.read_exact(&mut question).await?;
            io::Result::Ok(question)
        };
        let Ok(Ok(question)) = timeout(QUESTION_PATIENCE, question).await else {
            return;
        };
        let Some(answer) = answered(egress, &question).await else {
            return;
        };
        let Ok(length) = u16::try_from(answer.len()) else {
            return;
        };
        let framed = [&length.to_be_bytes()[..], &answer].concat();
        let sent = timeout(QUESTION_PATIENCE, program.write_all(&framed)).await;
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
