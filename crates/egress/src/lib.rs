//! The egress process: the only way out of a sandbox's network.
//!
//! A separate process carries the connections of one sandbox: it receives the listeners on the
//! sandbox's network, decides on each connection's destination, resolves only names that may be
//! reached, checks the address that it then dials, and has everything recorded before it happens.
//! Where rules cover requests, it decides on each request. It holds the rules, and nothing else of
//! its host's.
//!
//! It must never know the ledger, a file of the workspace, or tools. Start reading at [`run`].

mod connections;
pub mod connector;
mod control_channel;
mod credentials;
mod denial_body;
mod destination;
mod dial;
mod dns;
mod dropped_rights;
mod filter;
mod hello;
mod inspect;
mod intercepted;
mod labels;
mod limits;
mod live_rules;
mod names;
mod opening;
mod origin_error;
mod policies;
mod port_peers;
pub mod post;
mod program_stream;
mod proxy;
mod proxy_reply;
mod publish;
mod pump;
mod rates;
mod received_fds;
mod redaction;
mod refusals;
mod resolve;
mod sandbox_api;
mod scan;
pub mod secret;
mod tunnel;
mod vault;

pub use credentials::{check_app_key, make_renewed_placeholder};
pub use names::PROXY_ADDRESS;
pub use secret::{key_placeholders, make_placeholder, text_of as placeholder_of};
pub use vault::{SECRET_BYTES_MAX, VAULT_KEY_BYTES, VaultKey, VaultSealError};

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use atoll_model::conduct::HistoryEvent;
use atoll_model::network::{
    CARRIAGE_BYTES_MAX, EgressConfig, HostName, HostPart, Locks, Network, UNLOCKED_STATUS,
};
use atoll_sys::landlock::{self, Holds, Ruleset};
use atoll_sys::{credentials as rights, descriptor, memory, process, seccomp, socket};
use hickory_resolver::config::{ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::system_conf::read_system_conf;
use hickory_resolver::{Hosts, TokioResolver};
use rustix::net::SocketType;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::connector::{AgentInputs, Connectors};
use crate::control_channel::ControlChannel;
use crate::credentials::{Credentials, fetch};
use crate::dial::Route;
use crate::dropped_rights::DroppedRights;
use crate::inspect::{BodyMemory, CertificateError, Certificates, Releases, Trust, Upstream};
use crate::limits::Budgets;
use crate::live_rules::LiveRules;
use crate::names::Names;
use crate::policies::{Forbidden, Policies, PolicySnapshot};
use crate::port_peers::PortPeers;
use crate::resolve::{Resolver, UnnamedQueries};

/// The number of worker threads of the runtime.
const THREADS: usize = 2;
/// The longest time connections may take to report their end.
const FAREWELL: Duration = Duration::from_secs(1);
/// The pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(10);
/// The most connections at once.
const CONNECTIONS_MAX: usize = 4096;
/// The most requests in flight at once, over all connections.
const REQUESTS_MAX: usize = 2048;
/// The most memory this process may take, bytes: no limit of the run's covers it.
const MEMORY_BYTES_MAX: u64 = 1 << 30;

/// An error for which nothing is carried.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// A system call failed.
    #[error("egress: {what}: {error}")]
    Kernel {
        /// The operation that failed.
        what: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
    /// The first message was not the configuration of the egress process.
    #[error("egress: it was given nothing to carry")]
    Description,
    /// The certificates cannot be made or read.
    #[error("egress: {0}")]
    Certificates(String),
    /// This build has no connector for a protocol that the run needs.
    #[error("egress: this build has no connector for {0}")]
    NoConnector(&'static str),
    /// This host's name servers are unknown.
    #[error("egress: the name servers in /etc/resolv.conf cannot be used: {0}")]
    Resolver(String),
}

fn uncertified(error: CertificateError) -> EgressError {
    EgressError::Certificates(error.to_string())
}

fn kernel_error(what: &'static str) -> impl FnOnce(io::Error) -> EgressError {
    move |error| EgressError::Kernel { what, error }
}

/// The state that all connections share.
#[derive(Debug)]
pub struct Egress {
    rules: Arc<LiveRules>,
    /// The policies, which decide beside the rules.
    policies: Policies,
    /// The budgets of rules that limit something.
    budgets: Budgets,
    control: ControlChannel,
    names: Mutex<Names>,
    unnamed: tokio::sync::Mutex<UnnamedQueries>,
    resolver: Resolver,
    /// The certificates made for origins, where the sandbox trusts their authority: TLS is
    /// inspected then.
    certificates: Option<Certificates>,
    /// Connections to origins whose requests are inspected.
    upstream: Upstream,
    /// The release dates of packages, where rules ask for an age.
    releases: Releases,
    /// The packages that lock files named when the run started, where rules are about them.
    locks: Locks,
    /// The credentials for injection.
    credentials: Credentials,
    /// The connectors for foreign protocols.
    connectors: Connectors,
    /// The clients that may connect to published ports.
    visitors: PortPeers,
    /// Permits for requests in flight.
    request_permits: Arc<Semaphore>,
    /// Memory for bodies that are searched or masked.
    bodies: BodyMemory,
    /// Permits for upstream connections with large buffers.
    wide: Arc<Semaphore>,
    /// Becomes true when the run ends.
    over: watch::Receiver<bool>,
}

impl Egress {
    fn new(
        judging: DecisionInputs,
        known: SystemResolver,
        trust: Trust,
        control: OwnedFd,
        over: watch::Receiver<bool>,
        connectors: Connectors,
    ) -> Result<Self, EgressError> {
        let DecisionInputs {
            network,
            policies,
            locks,
            credentials,
            visitors,
        } = judging;
        let resolver = known.resolver()?.into();
        let budgets = Budgets::new(&network);
        let rules = Arc::new(LiveRules::new(network));
        Ok(Self {
            budgets,
            control: ControlChannel::new(control)
                .map_err(kernel_error("its line"))?
                .with_conduct(policies.conduct())
                .with_rules(Arc::clone(&rules)),
            rules,
            policies,
            names: Mutex::new(Names::with_proxy()),
            unnamed: tokio::sync::Mutex::default(),
            resolver,
            certificates: trust.certificates,
            upstream: trust.upstream,
            releases: Releases::default(),
            locks,
            credentials,
            connectors,
            visitors,
            request_permits: Arc::new(Semaphore::new(REQUESTS_MAX)),
            bodies: BodyMemory::default(),
            wide: Arc::new(Semaphore::new(dial::WIDE_MAX)),
            over,
        })
    }

    /// Returns the rules for the network that are in force.
    pub(crate) fn network(&self) -> &'static Network {
        self.rules.network()
    }

    /// Returns when the run ends.
    pub async fn run_ended(&self) {
        let mut over = self.over.clone();
        // Nobody who could say so any more says the same.
        let _ = over.wait_for(|over| *over).await;
    }

    /// Waits until a host, or the address a connection to it was dialled at, is given up. Returns
    /// the reason.
    async fn given_up(&self, host: &HostPart, place: Option<Route>) -> String {
        let address = match place {
            Some(Route::At(address)) => Some(address),
            Some(Route::ByProxy) | None => None,
        };
        let renounced = &self.policies.dropped;
        let why = |all: &DroppedRights| {
            let of_host = all.host(host);
            of_host.or_else(|| address.and_then(|address| all.address(address)))
        };
        renounced.denied(why).await
    }

    /// Waits until a host or its address is given up, or until policies newer than these deny the
    /// flow. Returns the reason.
    async fn lost(
        &self,
        host: &HostPart,
        place: Option<Route>,
        policies: u32,
        may: impl Fn(&PolicySnapshot<'_>) -> Result<(), Forbidden>,
    ) -> String {
        tokio::select! {
            biased;
            why = self.given_up(host, place) => why,
            why = self.policies.denied_since(policies, may) => why,
        }
    }

    fn name(&self, address: IpAddr) -> Option<HostName> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.name(address).cloned()
    }
}

/// The descriptor of the control channel.
const CONTROL_FD: i32 = 3;

/// Runs the egress process. Returns its exit status.
#[must_use]
pub fn program(connectors: Connectors) -> u8 {
    // What else whoever started Atoll had open is not for this process.
    let control = descriptor::close_from(CONTROL_FD as u32 + 1)
        .and_then(|()| process::set_name(c"atoll-egress"))
        .and_then(|()| descriptor::inherited(CONTROL_FD));
    let control = control.map_err(kernel_error("its line"));
    // Nobody reads what it would say: whoever started it sees the line's end, and how it ended.
    match control.and_then(|control| run(control, connectors)) {
        Ok(()) => 0,
        Err(_) if secret::is_unlocked() => UNLOCKED_STATUS,
        Err(_) => 1,
    }
}

/// Carries a sandbox's connections until the other end of this control channel orders the end, or
/// is gone.
///
/// # Errors
/// [`EgressError`]: nothing was carried then.
pub fn run(control: OwnedFd, connectors: Connectors) -> Result<(), EgressError> {
    // Before there is anything of a credential: another process of this user could look on.
    hold_alone().map_err(kernel_error("giving rights up"))?;
    let mut message = vec![0_u8; CARRIAGE_BYTES_MAX];
    let received = socket::receive(control.as_fd(), &mut message);
    let (got, given) = received.map_err(kernel_error("waiting for a description"))?;
    let (mut roots, mut listeners): (Vec<_>, Vec<_>) =
        given.into_iter().partition(received_fds::is_file);
    let message = message.get(..got).unwrap_or_default();
    let carriage: EgressConfig =
        serde_json::from_slice(message).map_err(|_| EgressError::Description)?;
    descriptor::never_block(control.as_fd()).map_err(kernel_error("its line"))?;
    let has_values = !carriage.placeholders.is_empty() || !carriage.issues.is_empty();
    if has_values {
        memory::set_erasing(true);
    }
    let values = (has_values && !listeners.is_empty()).then(|| listeners.remove(0));
    let credentials = Credentials::receive(
        &carriage.network,
        carriage.placeholders,
        &carriage.fetched,
        values.as_ref(),
    );
    let credentials = match credentials {
        Ok(credentials) => credentials,
        Err(error) => {
            // Open until this process is over: whoever sees its end sees how that ended.
            let _ = control.into_raw_fd();
            return Err(kernel_error("taking credentials")(error));
        }
    };
    let credentials = credentials.issuing(carriage.issues, values);
    let agent =
        received_fds::agent(&mut listeners, carriage.ssh).ok_or(EgressError::Description)?;
    let known = SystemResolver::read()?;
    let gained =
        received_fds::gained(carriage.has_gained, &mut roots).ok_or(EgressError::Description)?;
    let tokens =
        received_fds::tokens(carriage.has_tokens, &mut roots).ok_or(EgressError::Description)?;
    let policies = received_fds::policies(carriage.has_policies, &mut roots);
    let policies = policies.ok_or(EgressError::Description)?;
    let policies = policies.numbered(carriage.policies);
    let policies = policies.without(carriage.given_up).holding(tokens);
    let policies = policies.beside(gained);
    if carriage.has_attempted {
        policies.did(HistoryEvent::Attempt);
    }
    let locks =
        received_fds::locks(carriage.has_locks, &mut roots).ok_or(EgressError::Description)?;
    let roots = received_fds::roots(roots).map_err(kernel_error("reading certificates"))?;
    let trust = Trust::read(carriage.authority.as_ref(), &roots).map_err(uncertified)?;
    let visitors = PortPeers::new(carriage.visitors).map_err(kernel_error("asking who comes"))?;
    // Before there are threads, which would be without it.
    confine().map_err(kernel_error("giving rights up"))?;
    #[cfg(feature = "without_defences")]
    if let Some(detail) = atoll_sys::takeover::act("egress") {
        say(&control, &detail);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .map_err(kernel_error("starting"))?;
    let judging = DecisionInputs {
        network: carriage.network,
        policies,
        locks,
        credentials,
        visitors,
    };
    let serving = serve(judging, known, trust, control, listeners, agent, connectors);
    // On the threads that carry: what is heard there wakes no other one.
    let ran = runtime.block_on(runtime.spawn(serving));
    // What still waits for a name server is not waited for.
    runtime.shutdown_background();
    ran.unwrap_or_else(|error| Err(kernel_error("serving")(error.into())))
}

/// Reports a refused flow for a test of this process.
#[cfg(feature = "without_defences")]
fn say(control: &OwnedFd, text: &[u8]) {
    let flow = atoll_model::network::Flow::to(
        atoll_model::network::FlowKind::Name,
        "taken.over".to_owned(),
        0,
    );
    let report = atoll_model::network::FlowReport::Refused {
        flow,
        why: String::from_utf8_lossy(text).into_owned(),
        count: 1,
    };
    let message = serde_json::to_vec(&report).unwrap_or_default();
    let _ = socket::send(control.as_fd(), &message, &[]);
}

/// Name resolution as this host configures it: the name servers to query, and names that need no
/// query.
struct SystemResolver {
    servers: ResolverConfig,
    options: ResolverOpts,
    hosts: Hosts,
}

impl SystemResolver {
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

/// Keeps other processes of this user from reading this one's memory from here on, and leaves no
/// core dump of it: for a process that holds a secret, and starts no sandbox any more.
///
/// # Errors
/// The kernel's; the process must hold no secret then.
pub fn hold_alone() -> io::Result<()> {
    rights::forbid_inspection()?;
    leave_no_core()
}

/// Keeps this process and its children from leaving a core dump (core(5)) from here on.
///
/// # Errors
/// The kernel's.
pub fn leave_no_core() -> io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    Ok(setrlimit(Resource::Core, none)?)
}

/// Confines this process: no file, no other process, and no right but that to make connections.
fn confine() -> io::Result<()> {
    // Each connection is two descriptors.
    let files = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: files.maximum,
        ..files
    };
    setrlimit(Resource::Nofile, most)?;
    let memory = Rlimit {
        current: Some(MEMORY_BYTES_MAX),
        maximum: Some(MEMORY_BYTES_MAX),
    };
    setrlimit(Resource::Data, memory)?;
    rights::forbid_new_privileges()?;
    rights::keep_capabilities(0)?;
    Ruleset::new(landlock::version()?, Holds::AllButPorts)?.enter()?;
    seccomp::install(&filter::filter(), "egress-filter")
}

/// The parts that decide on connections.
struct DecisionInputs {
    network: Network,
    policies: Policies,
    locks: Locks,
    credentials: Credentials,
    visitors: PortPeers,
}

async fn serve(
    judging: DecisionInputs,
    known: SystemResolver,
    trust: Trust,
    control: OwnedFd,
    listeners: Vec<OwnedFd>,
    agent: Option<AgentInputs>,
    connectors: Connectors,
) -> Result<(), EgressError> {
    let (end, over) = watch::channel(false);
    let egress = Arc::new(Egress::new(
        judging, known, trust, control, over, connectors,
    )?);
    let told = tokio::spawn({
        let egress = Arc::clone(&egress);
        async move { egress.control.send().await }
    });
    egress.upstream.tasks.spawn({
        let egress = Arc::clone(&egress);
        async move { egress.upstream.forget().await }
    });
    let mut tasks = JoinSet::new();
    if let Some(inputs) = agent {
        let ssh = egress.connectors.ssh.as_ref();
        let ssh = ssh.ok_or(EgressError::NoConnector("SSH"))?;
        let serving = ssh.serve(&egress, inputs);
        tasks.spawn(serving.map_err(kernel_error("listening for an agent"))?);
    }
    let begun = publish::begin(&egress, &mut tasks, listeners);
    let (inward, listeners) = begun.map_err(kernel_error("listening"))?;
    for listener in listeners {
        let egress = Arc::clone(&egress);
        serve_listener(egress, &mut tasks, listener).map_err(kernel_error("listening"))?;
    }
    publish::serve(&egress, &mut tasks, &inward).await;
    let _ = end.send(true);
    // What carries tells how far it came.
    let ended = async { while tasks.join_next().await.is_some() {} };
    let _ = timeout(FAREWELL, ended).await;
    tasks.shutdown().await;
    let (taken_back, settled) = (fetch::revoke(&egress), fetch::settle(&egress));
    tokio::join!(taken_back, settled);
    egress.upstream.end().await;
    egress.control.report_refusals();
    egress.control.end();
    let _ = timeout(FAREWELL, told).await;
    Ok(())
}

/// Serves a listener or socket of the sandbox, by its type.
fn serve_listener(
    egress: Arc<Egress>,
    tasks: &mut JoinSet<()>,
    listener: OwnedFd,
) -> io::Result<()> {
    match rustix::net::sockopt::socket_type(&listener) {
        Ok(SocketType::STREAM) => {
            let listener = TcpListener::from_std(listener.into())?;
            tasks.spawn(accept(egress, listener));
        }
        Ok(SocketType::SEQPACKET) => {
            tasks.spawn(intercepted::take(egress, intercepted::socket_of(listener)?));
        }
        Ok(_) | Err(_) => {
            let socket = UdpSocket::from_std(listener.into())?;
            tasks.spawn(dns::serve(egress, socket));
        }
    }
    Ok(())
}

/// Accepts connections until the run ends, then waits until they have all ended and reported it.
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
            () = egress.run_ended() => break,
        };
        match accepted {
            Ok((program, _)) => {
                carried.spawn(connections::carry(Arc::clone(&egress), program));
            }
            // Too many descriptors, or a connection that is gone already.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    drop(listener);
    while carried.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests;
