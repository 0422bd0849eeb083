//! Inspected connections: each request on one is judged.
//!
//! TLS from the sandbox ends here, with a certificate that the sandbox trusts, and is opened anew
//! to the upstream, whose certificate is verified.

pub(crate) mod approval;
mod bodies;
mod body;
mod body_throttle;
mod certificates;
mod denial;
mod ending;
mod exchange;
mod expectation;
mod head;
pub(crate) mod header_names;
mod injection;
mod limits;
mod ranges;
mod request_permit;
mod tasks;
mod upload;
mod upstream;
mod web_socket;

use std::io;
use std::sync::Arc;

use atoll_model::network::{Authority, Flow, HostPart, Look, Scheme};
use hyper::header::HeaderValue;
use hyper::http::uri::Authority as Written;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::AlertDescription;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::Egress;
use crate::destination::{self, Destination};
use crate::hello::{self, Hello};
use crate::policies::PolicySnapshot;
use crate::program_stream::ProgramStream;
use crate::secret::Found;
pub(crate) use bodies::BodyMemory;
pub(crate) use body::ResponseBody as Answer;
pub(crate) use certificates::{CertificateError, Certificates};
pub(crate) use denial::unclear;
pub(crate) use ending::serve as serve_1;
pub(crate) use exchange::{RecordError, Releases, answer};
pub(crate) use limits::HEAD_BYTES_MAX;
use limits::SILENCE_MAX;
use limits::{
    CONNECTION_WINDOW_BYTES, FIRST_BYTES_PATIENCE, HANDSHAKE_PATIENCE, RESETS_MAX,
    STREAM_WINDOW_BYTES, STREAMS_MAX,
};
use upstream::Key;
pub(crate) use upstream::{Upstream, client_configs, server_name, system_roots};

/// The reason for refusing a host that cannot be written in a request.
const UNWRITABLE: &str = "its host cannot be written";

/// The HTTP/2 connection preface (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The most bytes read while waiting for a complete ClientHello.
const HELLO_BYTES_MAX: usize = 64 * 1024;

/// Alerts that end TLS (RFC 8446, 6.2).
const ACCESS_DENIED: u8 = 49;
const UNRECOGNIZED_NAME: u8 = 112;

/// The destination of a connection, in the forms that requests are compared with.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) host: HostPart,
    pub(crate) port: u16,
    pub(crate) scheme: Scheme,
    /// The host, with its port unless that is the scheme's default.
    authority: Written,
    host_header: HeaderValue,
    keys: [Key; 2],
}

impl Origin {
    /// Returns `None` for a host that cannot be written as an authority.
    pub(crate) fn new(to: &Destination, scheme: Scheme) -> Option<Self> {
        Self::by(to, scheme, false)
    }

    /// Builds the destination of a request that Atoll itself makes.
    fn own(to: &Destination, scheme: Scheme) -> Option<Self> {
        Self::by(to, scheme, true)
    }

    fn by(to: &Destination, scheme: Scheme, is_own: bool) -> Option<Self> {
        let (host, port) = (to.host.clone(), to.port);
        let usual = match scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
        };
        let written = match port == usual {
            true => host.to_string(),
            false => format!("{host}:{port}"),
        };
        let key = |is_2| Key {
            host: host.clone(),
            port,
            scheme,
            is_2,
            is_own,
        };
        Some(Self {
            authority: written.parse().ok()?,
            host_header: written.parse().ok()?,
            keys: [key(false), key(true)],
            host,
            port,
            scheme,
        })
    }

    fn key(&self, is_2: bool) -> &Key {
        let [one, two] = &self.keys;
        if is_2 { two } else { one }
    }
}

/// The certificates and trust roots for inspecting TLS, read before the process gives up file
/// access.
pub(crate) struct Trust {
    /// The certificates presented to programs in place of the origins' own.
    pub(crate) certificates: Option<Certificates>,
    /// The client side: connections to upstreams.
    pub(crate) upstream: Upstream,
}

impl Trust {
    /// Reads this host's trust roots and the given further authorities (PEM), where the sandbox
    /// trusts an authority.
    pub(crate) fn read(
        authority: Option<&Authority>,
        further: &[u8],
    ) -> Result<Self, CertificateError> {
        let Some(authority) = authority else {
            return Ok(Self {
                certificates: None,
                upstream: Upstream::new(None),
            });
        };
        let mut roots = upstream::system_roots();
        roots.extend(upstream::roots_of(further)?);
        Self::with(authority, roots)
    }

    /// Builds it with these roots.
    pub(crate) fn with(
        authority: &Authority,
        roots: Vec<rustls::pki_types::CertificateDer<'static>>,
    ) -> Result<Self, CertificateError> {
        let provider: Arc<CryptoProvider> = Arc::new(default_provider());
        let configs = upstream::client_configs(roots, &provider)
            .map_err(|error| CertificateError::Making(error.to_string()))?;
        Ok(Self {
            certificates: Some(Certificates::new(authority, &provider)?),
            upstream: Upstream::new(Some(configs)),
        })
    }
}

/// The protocol that a connection opens with, as recognized from its first bytes.
enum InitialProtocol {
    /// TLS for the requested host.
    Tls,
    /// HTTP/1.1, or no known protocol.
    Plain,
    /// HTTP/2 without TLS.
    Plain2,
    /// Closed without a byte.
    Over,
    /// Meant for another host, or unreadable.
    Refused(String),
}

/// Serves an inspected connection: forwards each of its requests as it is judged.
pub(crate) async fn serve(egress: &Arc<Egress>, mut program: ProgramStream, to: &Destination) {
    let over = egress.run_ended();
    let policies = egress.policies.now().version();
    let may = |now: &PolicySnapshot<'_>| {
        let granted = now.connection(&to.host, to.port, Look::Into);
        granted.map(drop)
    };
    let work = async {
        match begin(&mut program, to).await {
            InitialProtocol::Over => {}
            InitialProtocol::Tls => serve_tls(egress, program, to).await,
            InitialProtocol::Plain => serve_plain(egress, program, to, false).await,
            InitialProtocol::Plain2 => serve_plain(egress, program, to, true).await,
            InitialProtocol::Refused(why) => {
                destination::refuse_another(egress, to.flow(), why);
                end_tls(program, UNRECOGNIZED_NAME).await;
            }
        }
    };
    tokio::select! {
        () = work => {}
        _ = egress.lost(&to.host, None, policies, may) => {}
        () = over => {}
    }
}

/// Reads first bytes until the protocol is recognized.
async fn begin(program: &mut ProgramStream, to: &Destination) -> InitialProtocol {
    let mut patience = FIRST_BYTES_PATIENCE;
    loop {
        if !program.first().is_empty() {
            match what_is(program.first(), to) {
                Some(beginning) => return beginning,
                None if program.first().len() > HELLO_BYTES_MAX => {
                    return InitialProtocol::Refused("the beginning of TLS has no end".to_owned());
                }
                None => patience = HANDSHAKE_PATIENCE,
            }
        }
        match timeout(patience, program.read_first()).await {
            Ok(Ok(0) | Err(_)) => return InitialProtocol::Over,
            Ok(Ok(_)) => {}
            Err(_) => {
                let why = "the program said nothing that can be looked into: where the server \
                           speaks first, the rule has to carry the connection as a tunnel";
                return InitialProtocol::Refused(why.to_owned());
            }
        }
    }
}

/// Recognizes a protocol by its first bytes; `None` when more bytes are needed.
fn what_is(bytes: &[u8], to: &Destination) -> Option<InitialProtocol> {
    if PREFACE.starts_with(bytes) {
        return (bytes.len() == PREFACE.len()).then_some(InitialProtocol::Plain2);
    }
    if bytes.starts_with(PREFACE) {
        return Some(InitialProtocol::Plain2);
    }
    let hello = hello::read(bytes);
    let another = || {
        let asked = &to.host;
        let why = format!("the connection is for another host than {asked}: {hello}");
        Some(InitialProtocol::Refused(why))
    };
    match (&hello, &to.host) {
        (Hello::Other, _) => Some(InitialProtocol::Plain),
        (Hello::Partial, _) => None,
        (Hello::Malformed, _) => another(),
        (Hello::Tls(_), HostPart::Name(name)) if hello.is_for_another(name) => another(),
        (Hello::Tls(Some(_)), HostPart::Address(_)) => another(),
        (Hello::Tls(_), HostPart::Name(_)) | (Hello::Tls(None), HostPart::Address(_)) => {
            Some(InitialProtocol::Tls)
        }
    }
}

async fn serve_tls(egress: &Arc<Egress>, program: ProgramStream, to: &Destination) {
    let Some(certificates) = &egress.certificates else {
        let why = "requests within TLS cannot be looked into here, since the sandbox trusts no \
                   authority of Atoll's: a rule that carries the connection as a tunnel allows it";
        egress.control.refuse(to.flow(), why.to_owned());
        return end_tls(program, ACCESS_DENIED).await;
    };
    let config = match certificates.of(&to.host) {
        Ok(config) => config,
        Err(error) => {
            egress.control.refuse(to.flow(), error.to_string());
            return end_tls(program, ACCESS_DENIED).await;
        }
    };
    let accepted = TlsAcceptor::from(config).accept(program);
    let stream = match timeout(HANDSHAKE_PATIENCE, accepted).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            return egress.control.refuse(to.flow(), not_shaken(&error));
        }
        Err(_) => {
            let why = "the program took too long over TLS".to_owned();
            return egress.control.refuse(to.flow(), why);
        }
    };
    let is_2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let Some(asked) = Origin::new(to, Scheme::Https) else {
        return egress.control.refuse(to.flow(), UNWRITABLE.to_owned());
    };
    requests(egress, stream, asked, is_2).await;
}

/// Returns the reason why a program's TLS handshake did not come to its end.
fn not_shaken(error: &io::Error) -> String {
    let by_tls = error.get_ref().and_then(|error| error.downcast_ref());
    match by_tls {
        // RFC 8446, 6.2.
        Some(rustls::Error::AlertReceived(
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA,
        )) => format!(
            "the program did not accept Atoll's certificate: {error} (a program that accepts certain \
             certificates only needs a rule that carries the connection as a tunnel)"
        ),
        None | Some(rustls::Error::AlertReceived(_)) => {
            let said = match error.kind() {
                io::ErrorKind::UnexpectedEof => "it hung up".to_owned(),
                _ => error.to_string(),
            };
            format!("the program ended the connection during the TLS handshake: {said}")
        }
        Some(_) => format!("no TLS handshake with the program is possible: {error}"),
    }
}

async fn serve_plain(egress: &Arc<Egress>, program: ProgramStream, to: &Destination, is_2: bool) {
    let Some(asked) = Origin::new(to, Scheme::Http) else {
        return egress.control.refuse(to.flow(), UNWRITABLE.to_owned());
    };
    requests(egress, program, asked, is_2).await;
}

/// Serves the requests of one connection.
async fn requests<T>(egress: &Arc<Egress>, stream: T, asked: Origin, is_2: bool)
where
    T: ending::ProgramSide,
{
    let asked = Arc::new(asked);
    let answer = {
        let (egress, asked) = (Arc::clone(egress), Arc::clone(&asked));
        move |request| exchange::answer(Arc::clone(&egress), Arc::clone(&asked), request)
    };
    let served = if is_2 {
        http2::Builder::new(egress.upstream.tasks.clone())
            .timer(TokioTimer::new())
            .auto_date_header(false)
            .max_concurrent_streams(STREAMS_MAX)
            .max_pending_accept_reset_streams(RESETS_MAX)
            .max_local_error_reset_streams(RESETS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .keep_alive_interval(SILENCE_MAX)
            .serve_connection(TokioIo::new(stream), service_fn(answer))
            .await
    } else {
        ending::serve(stream, answer).await
    };
    if let Err(error) = served
        && error.is_parse()
    {
        let why = format!(
            "what the program sent is no request that can be read in one way: {error} (a rule \
             that carries the connection as a tunnel allows other protocols)"
        );
        egress.control.refuse(asked.flow(), why);
    }
}

impl Origin {
    /// Returns a flow of which only the destination is known.
    fn flow(&self) -> Flow {
        let to = Destination {
            host: self.host.clone(),
            port: self.port,
        };
        to.flow()
    }
}

/// Reports a placeholder in a tunnel. Returns the reason for which the connection ends.
pub(crate) fn misused(egress: &Egress, flow: Flow, found: Found, place: &str) -> String {
    match injection::misuse_in_tunnel(&egress.credentials, &flow, found, place) {
        Some(misuse) => {
            misuse.record(egress, flow);
            misuse.why
        }
        None => found.to_string(),
    }
}

/// Ends a connection with a TLS alert.
async fn end_tls(program: ProgramStream, alert: u8) {
    const FATAL: u8 = 2;
    let (mut stream, first) = program.into_parts();
    if first.first() == Some(&22) {
        let record = [21, 3, 3, 0, 2, FATAL, alert];
        // Whoever does not read it finds the connection ended.
        let _ = stream.write_all(&record).await;
        let _ = stream.shutdown().await;
        return;
    }
    crate::program_stream::reset(stream);
}

#[cfg(test)]
pub(crate) mod tests;
