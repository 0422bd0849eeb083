//! Connections to upstreams, kept for further requests with the same key.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atoll_model::network::{Endpoint, HostPart, Scheme};
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, DnsName, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Origin;
use super::body::RequestBody;
use super::certificates::DATABASE;
use super::limits::{CONNECTION_WINDOW_BYTES, HEAD_BYTES_MAX, STREAM_WINDOW_BYTES};
use super::tasks::Tasks;
use crate::Egress;
use crate::dial::{Route, UpstreamStream, dial};

/// The longest wait for a server's first packet, and again for its TLS handshake.
const DIAL_PATIENCE: Duration = Duration::from_secs(10);
/// The longest time that an idle connection is kept: shorter than on most servers.
const KEPT: Duration = Duration::from_secs(30);
/// The most idle connections kept to one host.
const KEPT_MAX: usize = 128;
/// The most keys with kept connections.
const HOSTS_MAX: usize = 512;

/// The key of a connection: the requests that it can be reused for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) host: HostPart,
    pub(crate) port: u16,
    pub(crate) scheme: Scheme,
    /// Set if the program speaks HTTP/2: then so does Atoll to a server that offers it.
    pub(crate) is_2: bool,
    /// Set for Atoll's own requests, which never use a connection that carried a program's.
    pub(crate) is_own: bool,
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Server {
    sender: Sender,
    /// The checked address and route.
    pub(crate) place: Route,
}

#[derive(Debug)]
enum Sender {
    /// HTTP/1.1: one request at a time.
    One(http1::SendRequest<RequestBody>),
    /// HTTP/2: many at once.
    Many(http2::SendRequest<RequestBody>),
}

impl Server {
    /// Returns whether requests are sent by HTTP/2.
    pub(crate) fn is_2(&self) -> bool {
        matches!(self.sender, Sender::Many(_))
    }

    /// Sends a request. A request that was not sent at all comes back with the error.
    pub(crate) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        match &mut self.sender {
            Sender::One(sender) => sender.try_send_request(request).await,
            Sender::Many(sender) => sender.try_send_request(request).await,
        }
    }

    /// Returns whether it can be reused, once the exchange before has ended.
    async fn is_ready(&mut self) -> bool {
        let ready = match &mut self.sender {
            Sender::One(sender) => poll_fn(|context| sender.poll_ready(context)).await,
            Sender::Many(sender) => poll_fn(|context| sender.poll_ready(context)).await,
        };
        ready.is_ok()
    }

    fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::One(sender) => sender.is_closed(),
            Sender::Many(sender) => sender.is_closed(),
        }
    }
}

/// The pool of connections to upstreams.
pub(crate) struct Upstream {
    /// The configurations that offer HTTP/1.1 alone, and HTTP/2 first; `None` if TLS is not
    /// inspected.
    tls: Option<[Arc<ClientConfig>; 2]>,
    kept: Mutex<HashMap<Key, Vec<(Server, Instant)>>>,
    pub(crate) tasks: Tasks,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Upstream").finish_non_exhaustive()
    }
}

/// Returns the readable trust roots of this host.
pub(crate) fn system_roots() -> Vec<CertificateDer<'static>> {
    rustls_native_certs::load_native_certs().certs
}

/// Parses certificates (PEM).
pub(crate) fn roots_of(
    text: &[u8],
) -> Result<Vec<CertificateDer<'static>>, super::CertificateError> {
    let unread = |error: rustls::pki_types::pem::Error| {
        super::CertificateError::Authority(format!("upstream-roots: {error}"))
    };
    CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(unread)
}

/// Builds the client configurations that verify servers against these roots: one that offers
/// HTTP/1.1 alone, and one that offers HTTP/2 first.
pub(crate) fn client_configs(
    roots: Vec<CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<[Arc<ClientConfig>; 2], rustls::Error> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots);
    let mut one = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(store)
        .with_no_client_auth();
    let mut both = one.clone();
    one.alpn_protocols = vec![b"http/1.1".to_vec()];
    both.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok([Arc::new(one), Arc::new(both)])
}

impl Upstream {
    pub(crate) fn new(tls: Option<[Arc<ClientConfig>; 2]>) -> Self {
        Self {
            tls,
            kept: Mutex::default(),
            tasks: Tasks::default(),
        }
    }

    fn kept_now(&self) -> MutexGuard<'_, HashMap<Key, Vec<(Server, Instant)>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes all connections.
    pub(crate) async fn end(&self) {
        self.kept_now().clear();
        self.tasks.end().await;
    }

    /// Takes a kept connection.
    pub(crate) async fn kept(&self, key: &Key) -> Option<Server> {
        loop {
            let mut server = self.take(key)?;
            if server.is_ready().await {
                return Some(server);
            }
        }
    }

    fn take(&self, key: &Key) -> Option<Server> {
        let mut kept = self.kept_now();
        let servers = kept.get_mut(key)?;
        while let Some((server, since)) = servers.pop() {
            if server.is_closed() || since.elapsed() > KEPT {
                continue;
            }
            if let Sender::Many(sender) = &server.sender {
                let sender = Sender::Many(sender.clone());
                let place = server.place;
                servers.push((server, Instant::now()));
                return Some(Server { sender, place });
            }
            return Some(server);
        }
        None
    }

    /// Keeps a connection that can carry other requests at the same time, if it is one.
    pub(crate) fn share(&self, key: &Key, server: &Server) {
        if let Sender::Many(sender) = &server.sender {
            let sender = Sender::Many(sender.clone());
            let place = server.place;
            self.keep(key, Server { sender, place });
        }
    }

    /// Forgets a connection that takes no more requests.
    pub(crate) fn part(&self, key: &Key) {
        if let Some(servers) = self.kept_now().get_mut(key) {
            servers.retain(|(server, _)| !server.is_2());
        }
    }

    /// Keeps a connection for the next request.
    pub(crate) fn keep(&self, key: &Key, server: Server) {
        if server.is_closed() {
            return;
        }
        let mut kept = self.kept_now();
        if kept.len() >= HOSTS_MAX && !kept.contains_key(key) {
            return;
        }
        let servers = match kept.get_mut(key) {
            Some(servers) => servers,
            None => kept.entry(key.clone()).or_default(),
        };
        let is_shared = server.is_2() && servers.iter().any(|(one, _)| one.is_2());
        if servers.len() < KEPT_MAX && !is_shared {
            servers.push((server, Instant::now()));
        }
    }

    /// Forgets connections that have been idle for long, periodically.
    pub(crate) async fn forget(&self) {
        loop {
            tokio::time::sleep(KEPT / 4).await;
            self.kept_now().retain(|_, servers| {
                servers.retain(|(server, since)| !server.is_closed() && since.elapsed() < KEPT);
                !servers.is_empty()
            });
        }
    }

    /// Dials a checked address.
    pub(crate) async fn dial(
        &self,
        egress: &Egress,
        origin: &Origin,
        place: Route,
        is_2: bool,
    ) -> io::Result<Server> {
        let stream = dial_timely(egress, &origin.host, origin.port, place).await?;
        let sender = match origin.scheme {
            Scheme::Http => self.speak(stream, is_2).await?,
            Scheme::Https => {
                let stream = self.within_tls(stream, &origin.host, is_2).await?;
                let speaks_2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                self.speak(stream, speaks_2).await?
            }
        };
        Ok(Server { sender, place })
    }

    /// Dials a checked address, for a request of Atoll's own on an unshared connection, by
    /// HTTP/1.1.
    pub(crate) async fn secure(
        &self,
        egress: &Egress,
        endpoint: &Endpoint,
        place: Route,
    ) -> io::Result<TlsStream<UpstreamStream>> {
        let stream = dial_timely(egress, &endpoint.host, endpoint.port, place).await?;
        self.within_tls(stream, &endpoint.host, false).await
    }

    /// Starts TLS with a host, whose certificate is verified.
    async fn within_tls(
        &self,
        stream: UpstreamStream,
        host: &HostPart,
        is_2: bool,
    ) -> io::Result<TlsStream<UpstreamStream>> {
        let config = self
            .tls
            .as_ref()
            .map(|[one, both]| if is_2 { both } else { one });
        let config = config.ok_or(io::ErrorKind::Unsupported)?;
        let connector = TlsConnector::from(Arc::clone(config));
        let connected = connector.connect(server_name(host)?, stream);
        timeout(DIAL_PATIENCE, connected).await.map_err(late)?
    }

    /// Starts TLS with a database server, whose certificate must be for this host. No session is
    /// resumed.
    pub(crate) async fn connect_database(
        &self,
        host: &HostPart,
        stream: UpstreamStream,
    ) -> io::Result<TlsStream<UpstreamStream>> {
        let config = self.tls.as_ref().map(|[one, _]| one);
        let mut config = ClientConfig::clone(config.ok_or(io::ErrorKind::Unsupported)?);
        config.alpn_protocols = vec![DATABASE.to_vec()];
        config.resumption = Resumption::disabled();
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(server_name(host)?, stream).await
    }

    /// Starts HTTP on a connection.
    async fn speak<T>(&self, stream: T, is_2: bool) -> io::Result<Sender>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let stream = TokioIo::new(stream);
        if !is_2 {
            let mut builder = http1::Builder::new();
            builder.max_buf_size(HEAD_BYTES_MAX);
            let (sender, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
            // What goes wrong with it is told to who waits for an answer.
            self.tasks
                .spawn(async move { drop(connection.with_upgrades().await) });
            return Ok(Sender::One(sender));
        }
        let mut builder = http2::Builder::new(self.tasks.clone());
        builder
            .timer(TokioTimer::new())
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let (sender, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
        self.tasks.spawn(async move { drop(connection.await) });
        Ok(Sender::Many(sender))
    }
}

/// Dials a checked address.
async fn dial_timely(
    egress: &Egress,
    host: &HostPart,
    port: u16,
    place: Route,
) -> io::Result<UpstreamStream> {
    let dialled = timeout(DIAL_PATIENCE, dial(egress, host, port, place)).await;
    dialled.map_err(late)?
}

fn late(_: Elapsed) -> io::Error {
    io::ErrorKind::TimedOut.into()
}

pub(crate) fn server_name(host: &HostPart) -> io::Result<ServerName<'static>> {
    match host {
        HostPart::Address(address) => Ok(ServerName::IpAddress((*address).into())),
        HostPart::Name(name) => DnsName::try_from(name.to_string())
            .map(ServerName::DnsName)
            .map_err(io::Error::other),
    }
}
