//! Resolution of names to the addresses that may be dialled.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use atoll_model::network::{
    Flow, FlowKind, HostName, HostPart, NO_NAME_SERVER, Network, NetworkRule, Request,
    THIS_HOST_ADDRESSES, Unreachable,
};
use hickory_resolver::TokioResolver;
use hickory_resolver::lookup_ip::LookupIp;
use hickory_resolver::net::NetError;

use crate::Egress;
use crate::control_channel::{FlowOutcome, OpenFlow};
use crate::dial::Route;

/// The longest time that resolving a name may take, in all.
const PATIENCE: Duration = Duration::from_secs(10);
/// The limit while no name server has answered the query before: programs retry, each time for all
/// of it.
const PATIENCE_IN_SILENCE: Duration = Duration::from_secs(2);

/// The most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// The most names not named by any rule that are queried at once, and then for each second: a name
/// can carry a message to name servers.
const UNNAMED_MAX: f64 = 512.0;
const UNNAMED_PER_SECOND: f64 = 4.0;
/// The most of them that are remembered as queried.
const KNOWN_MAX: usize = 16 * 1024;

/// The name servers of this host.
#[derive(Debug)]
pub(crate) struct Resolver {
    servers: TokioResolver,
    /// Set when none of them has answered the last query.
    is_silent: AtomicBool,
}

impl From<TokioResolver> for Resolver {
    fn from(servers: TokioResolver) -> Self {
        Self {
            servers,
            is_silent: AtomicBool::new(false),
        }
    }
}

impl Resolver {
    /// Returns the addresses of a name, or the reason why there are none.
    pub(crate) async fn find(&self, name: &HostName) -> Result<LookupIp, String> {
        let patience = match self.is_silent.load(Ordering::Relaxed) {
            true => PATIENCE_IN_SILENCE,
            false => PATIENCE,
        };
        // With a dot at its end nothing is added to it.
        let asked = self.servers.lookup_ip(format!("{name}."));
        let found = match tokio::time::timeout(patience, asked).await {
            Ok(found) => found,
            Err(_) => Err(NetError::Timeout),
        };
        let is_silent = found.as_ref().err().is_some_and(is_silence);
        self.is_silent.store(is_silent, Ordering::Relaxed);
        found.map_err(|error| unknown(&error))
    }
}

/// The names that were queried though no rule names them.
#[derive(Debug)]
pub(crate) struct UnnamedQueries {
    known: HashSet<HostName>,
    room: f64,
    since: Instant,
}

impl Default for UnnamedQueries {
    fn default() -> Self {
        Self {
            known: HashSet::new(),
            room: UNNAMED_MAX,
            since: Instant::now(),
        }
    }
}

impl UnnamedQueries {
    /// Takes a token for one more query now. Returns whether there was one.
    fn has_room(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        self.room = (self.room + passed * UNNAMED_PER_SECOND).min(UNNAMED_MAX);
        self.since = now;
        let has_room = self.room >= 1.0;
        if has_room {
            self.room -= 1.0;
        }
        has_room
    }

    fn remember(&mut self, name: &HostName) {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(name.clone());
    }
}

/// A failed DNS lookup.
#[derive(Debug)]
pub enum ResolveError {
    /// A name without an address that may be dialled.
    Refused {
        /// The reason for the record.
        why: String,
        /// The reason for the program.
        shown: String,
    },
    /// An unknown name, or no answer of a name server.
    Unknown(String),
}

impl ResolveError {
    fn refused(unreachable: &Unreachable<'_>) -> Self {
        Self::Refused {
            why: unreachable.why(),
            shown: unreachable.why_inside(),
        }
    }
}

/// Returns the places where a host may be dialled at a port for this request, or for a tunnel: its
/// addresses, or the upstream proxy that resolves them.
pub(crate) async fn addresses(
    egress: &Egress,
    host: &HostPart,
    port: u16,
    request: Option<&Request<'_>>,
) -> Result<Vec<Route>, ResolveError> {
    let places = addresses_by(egress, egress.network(), host, port, request).await?;
    // As with an address that a rule refuses: one among others is a name somebody plays with.
    match places.iter().find_map(|place| given_up(egress, *place)) {
        Some(why) => Err(ResolveError::Refused {
            shown: why.clone(),
            why,
        }),
        None => Ok(places),
    }
}

/// Returns the reason for which an address is not dialled any more, if it was given up.
pub(crate) fn given_up(egress: &Egress, place: Route) -> Option<String> {
    match place {
        Route::At(address) => egress.policies.dropped.address(address),
        Route::ByProxy => None,
    }
}

/// Returns the places as [`addresses`] does, by the rules of this network, without a check of what
/// was given up.
pub(crate) async fn addresses_by(
    egress: &Egress,
    network: &Network,
    host: &HostPart,
    port: u16,
    request: Option<&Request<'_>>,
) -> Result<Vec<Route>, ResolveError> {
    if network.proxy_for(host, port).is_some() {
        let asks = network.asks_proxy(host, port, request);
        asks.map_err(|unreachable| ResolveError::refused(&unreachable))?;
        if let HostPart::Name(name) = host {
            // The proxy learns it, and asks name servers for it.
            let recorded = recorded(egress, network, name).await?;
            recorded.inspect(|opened| egress.control.close(opened, FlowOutcome::default()));
        }
        return Ok(vec![Route::ByProxy]);
    }
    let addresses = match host {
        HostPart::Address(address) => checked(network, host, &[*address], port, request),
        // Nobody is asked for it.
        HostPart::Name(name) if name.is_this_host() => {
            checked(network, host, &THIS_HOST_ADDRESSES, port, request)
        }
        HostPart::Name(name) => resolve(egress, network, name, port, request).await,
    }?;
    Ok(addresses.into_iter().map(Route::At).collect())
}

/// Checks whether a connection that leads to a place may be used for a host and this request.
pub(crate) fn may<'a>(
    egress: &'a Egress,
    host: &HostPart,
    place: Route,
    port: u16,
    request: Option<&Request<'_>>,
) -> Result<(), Unreachable<'a>> {
    match place {
        Route::At(address) => egress.network().dials(host, address, port, request),
        Route::ByProxy => egress.network().asks_proxy(host, port, request),
    }
}

/// Returns addresses that need no name server, if each of them may be dialled.
fn checked(
    network: &Network,
    host: &HostPart,
    addresses: &[IpAddr],
    port: u16,
    request: Option<&Request<'_>>,
) -> Result<Vec<IpAddr>, ResolveError> {
    for address in addresses {
        let dials = network.dials(host, *address, port, request);
        dials.map_err(|unreachable| ResolveError::refused(&unreachable))?;
    }
    Ok(addresses.to_vec())
}

/// Returns the addresses of a name that may be dialled at a port: the addresses that were checked
/// are the ones dialled.
async fn resolve(
    egress: &Egress,
    network: &Network,
    name: &HostName,
    port: u16,
    request: Option<&Request<'_>>,
) -> Result<Vec<IpAddr>, ResolveError> {
    let recorded = recorded(egress, network, name).await?;
    let found = egress.resolver.find(name).await;
    if let Some(opened) = recorded {
        let failure = found.as_ref().err().cloned();
        let carried = FlowOutcome {
            failure,
            ..FlowOutcome::default()
        };
        egress.control.close(&opened, carried);
    }
    let found = found.map_err(ResolveError::Unknown)?;
    let mut addresses = Vec::new();
    let mut refused = None;
    for address in found.iter().map(|address| address.to_canonical()) {
        match network.address_of_name(address, port, request) {
            Ok(()) if addresses.len() < ADDRESSES_MAX => addresses.push(address),
            Ok(()) => {}
            Err(unreachable) => refused = Some(ResolveError::refused(&unreachable)),
        }
    }
    // One that is refused among others is a name that somebody plays with.
    match refused {
        Some(refused) => Err(refused),
        None if addresses.is_empty() => Err(ResolveError::Unknown("it has no address".to_owned())),
        None => Ok(addresses),
    }
}

/// Has a query recorded for a name that no rule names, the first time: the name can be anything.
/// Others that want it at the same time wait for that.
async fn recorded(
    egress: &Egress,
    network: &Network,
    name: &HostName,
) -> Result<Option<OpenFlow>, ResolveError> {
    if network.is_named(name) {
        return Ok(None);
    }
    let mut unnamed = egress.unnamed.lock().await;
    if unnamed.known.contains(name) {
        return Ok(None);
    }
    if !unnamed.has_room(Instant::now()) {
        let why = format!(
            "more than {UNNAMED_MAX} different names that only a rule with * allows were asked \
             for: there are {UNNAMED_PER_SECOND} more in a second"
        );
        let shown = why.clone();
        return Err(ResolveError::Refused { why, shown });
    }
    let now = egress.policies.now();
    now.name(name).map_err(|forbidden| ResolveError::Refused {
        why: forbidden.why,
        shown: forbidden.shown,
    })?;
    let flow = Flow {
        rule: network.name(name).ok().map(NetworkRule::told),
        policies: now.version(),
        ..Flow::to(FlowKind::Name, name.to_string(), 0)
    };
    let unrecorded = |_| ResolveError::Unknown("nobody records that it is asked for".to_owned());
    let opened = egress.control.open(flow, true).await.map_err(unrecorded)?;
    unnamed.remember(name);
    Ok(Some(opened))
}

/// Returns whether an error means that no name server has answered.
fn is_silence(error: &NetError) -> bool {
    matches!(
        error,
        NetError::Timeout | NetError::NoConnections | NetError::Io(_)
    )
}

/// Returns the reason for which a name has no address.
fn unknown(error: &NetError) -> String {
    if error.is_nx_domain() {
        "no such host".to_owned()
    } else if error.is_no_records_found() {
        "it has no address".to_owned()
    } else if is_silence(error) {
        NO_NAME_SERVER.to_owned()
    } else {
        error.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hickory_resolver::Hosts;
    use hickory_resolver::config::ResolverConfig;
    use hickory_resolver::net::runtime::TokioRuntimeProvider;

    use super::*;

    #[tokio::test]
    async fn name_server_silent_gets_shorter_patience() {
        let mut hosts = Hosts::default();
        hosts
            .read_hosts_conf(&b"192.0.2.1 known.test\n"[..])
            .unwrap();
        let nobody = ResolverConfig::from_parts(None, Vec::new(), Vec::new());
        let builder = TokioResolver::builder_with_config(nobody, TokioRuntimeProvider::default());
        let mut servers = builder.build().unwrap();
        servers.set_hosts(Arc::new(hosts));
        let resolver = Resolver::from(servers);
        let is_silent = || resolver.is_silent.load(Ordering::Relaxed);
        let name = |text: &str| HostName::parse(text).unwrap();
        let unknown = resolver.find(&name("unknown.test")).await;
        assert_eq!(unknown.unwrap_err(), NO_NAME_SERVER);
        assert!(is_silent());
        assert!(resolver.find(&name("known.test")).await.is_ok());
        assert!(!is_silent());
    }

    #[test]
    fn unnamed_queries_are_limited() {
        let start = Instant::now();
        let mut unnamed = UnnamedQueries {
            since: start,
            ..UnnamedQueries::default()
        };
        let most = UNNAMED_MAX as usize;
        assert!((0..most).all(|_| unnamed.has_room(start)));
        assert!(!unnamed.has_room(start));
        let later = start + Duration::from_secs(1);
        let further = UNNAMED_PER_SECOND as usize;
        assert!((0..further).all(|_| unnamed.has_room(later)));
        assert!(!unnamed.has_room(later));
    }
}
