//! Requests through the boundary in one process: a program's raw bytes on one side, a server that
//! records what reaches it on the other.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_model::network::{
    Authority, Conditions, FLOW_MESSAGE_BYTES_MAX, FlowEnd, FlowOrder, FlowReport, HostPart,
    Network, NetworkRule, RuleLimits, Way,
};
use atoll_sys::{descriptor, socket};
use hickory_resolver::config::{ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::{Hosts, TokioResolver};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{BodyMemory, Trust};
use crate::control_channel::ControlChannel;
use crate::destination::Destination;
use crate::limits::Budgets;
use crate::policies::Policies;
use crate::port_peers::PortPeers;
use crate::program_stream::ProgramStream;
use crate::tunnel;
use crate::{Credentials, Egress, Names, proxy};

mod at_once;
mod given_up;
mod headers;
mod limited;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn only_alerts_about_certificates_refuse_the_certificate() {
    use std::io::{Error, ErrorKind};

    use rustls::AlertDescription;

    let alert = |alert| Error::other(rustls::Error::AlertReceived(alert));
    let not_accepted = "the program did not accept Atoll's certificate: ";
    let ended = "the program ended the connection during the TLS handshake: ";
    for (error, expected) in [
        (alert(AlertDescription::UnknownCA), not_accepted),
        (alert(AlertDescription::BadCertificate), not_accepted),
        (alert(AlertDescription::CertificateUnknown), not_accepted),
        (alert(AlertDescription::UserCanceled), ended),
        (ErrorKind::ConnectionReset.into(), ended),
        (ErrorKind::UnexpectedEof.into(), ended),
        (
            Error::other(rustls::Error::HandshakeNotComplete),
            "no TLS handshake with the program is possible: ",
        ),
    ] {
        let why = super::not_shaken(&error);
        assert!(why.starts_with(expected), "{why}");
        assert_eq!(why.contains("tunnel"), expected == not_accepted, "{why}");
    }
}

/// A certificate authority of a test's own.
struct Signer {
    certificate: String,
    key: String,
}

impl Signer {
    fn new() -> Self {
        Self::named("Somebody")
    }

    fn named(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        let names = &mut parameters.distinguished_name;
        names.push(rcgen::DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&key).unwrap();
        Self {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    fn authority(&self) -> Authority {
        Authority {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
        }
    }

    fn root(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()
    }

    /// Returns the TLS configuration of a server with this name and these protocols, valid until
    /// this year.
    fn server(&self, name: &str, protocols: &[&str], until: i32) -> Arc<ServerConfig> {
        let signer = KeyPair::from_pem(&self.key).unwrap();
        let issuer = Issuer::from_ca_cert_der(&self.root(), signer).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new([name.to_owned()]).unwrap();
        parameters.not_after = rcgen::date_time_ymd(until, 1, 1);
        let leaf = parameters.signed_by(&key, &issuer).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![leaf.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .unwrap();
        config.alpn_protocols = protocols
            .iter()
            .map(|one| one.as_bytes().to_vec())
            .collect();
        Arc::new(config)
    }

    /// Returns a client that trusts this authority.
    fn client(&self, protocols: &[&str]) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.root()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols
            .iter()
            .map(|one| one.as_bytes().to_vec())
            .collect();
        Arc::new(config).into()
    }
}

/// A server that records what reaches it, and answers each connection's bytes.
struct Origin {
    port: u16,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Origin {
    /// Starts a server that answers at the end of each head.
    async fn start(tls: Option<Arc<ServerConfig>>, answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::<Mutex<Vec<u8>>>::default();
        let written = Arc::clone(&seen);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (seen, tls) = (Arc::clone(&written), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => record(stream, &seen, answer).await,
                        Some(tls) => {
                            if let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await {
                                record(stream, &seen, answer).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, seen }
    }

    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }
}

async fn record(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    seen: &Mutex<Vec<u8>>,
    answer: &str,
) {
    let mut buffer = vec![0; 65536];
    let mut whole = Vec::new();
    while let Ok(got) = stream.read(&mut buffer).await {
        if got == 0 {
            return;
        }
        seen.lock().unwrap().extend_from_slice(&buffer[..got]);
        whole.extend_from_slice(&buffer[..got]);
        while let Some(end) = whole.windows(4).position(|four| four == b"\r\n\r\n") {
            let head: Vec<u8> = whole.drain(..end + 4).collect();
            // The end of a body by chunks looks the same.
            if String::from_utf8_lossy(&head).contains(" HTTP/1.1\r\n") {
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The egress side of a sandbox, with what it has reported.
pub(crate) struct Outside {
    pub(crate) egress: Arc<Egress>,
    told: Arc<Mutex<Vec<FlowReport>>>,
    _end: watch::Sender<bool>,
}

/// Answers reports as the recording side does.
fn recorder(channel: OwnedFd, told: Arc<Mutex<Vec<FlowReport>>>) {
    let mut message = vec![0; FLOW_MESSAGE_BYTES_MAX];
    while let Ok((got, _)) = socket::receive(channel.as_fd(), &mut message) {
        if got == 0 {
            return;
        }
        for report in message[..got].split(|byte| *byte == b'\n') {
            if report.is_empty() {
                continue;
            }
            let report: FlowReport = serde_json::from_slice(report).unwrap();
            let recorded = match &report {
                FlowReport::Open {
                    id, waits: true, ..
                }
                | FlowReport::GivesUp { id, .. } => Some(*id),
                _ => None,
            };
            // Recorded first: whoever is answered then finds it.
            told.lock().unwrap().push(report);
            if let Some(id) = recorded {
                let order = serde_json::to_vec(&FlowOrder::Recorded { id }).unwrap();
                socket::send(channel.as_fd(), &order, &[]).unwrap();
            }
        }
    }
}

impl Outside {
    /// Allows one port, with these hosts and methods besides.
    fn new(rules: &[(&str, &[&str])], port: u16, trust: Trust) -> Self {
        let rule = |to: String, methods: &[&str]| NetworkRule {
            to: to.parse().unwrap(),
            way: Way::Inspect,
            requests: Conditions {
                methods: methods.iter().map(|one| (*one).to_owned()).collect(),
                ..Conditions::default()
            },
            limits: RuleLimits::default(),
            origin: "a test".to_owned(),
        };
        let mut allow: Vec<NetworkRule> = rules
            .iter()
            .map(|(host, methods)| rule(format!("{host}:{port}"), methods))
            .collect();
        allow.push(rule(format!("127.0.0.1:{port}"), &[]));
        Self::with(allow, trust)
    }

    /// Allows what these rules do.
    pub(crate) fn with(allow: Vec<NetworkRule>, trust: Trust) -> Self {
        let (channel, far) = socket::pair().unwrap();
        descriptor::never_block(channel.as_fd()).unwrap();
        let told = Arc::<Mutex<Vec<FlowReport>>>::default();
        let kept = Arc::clone(&told);
        std::thread::spawn(move || recorder(far, kept));
        let mut hosts = Hosts::default();
        let known = "127.0.0.1 host.atoll.internal other.test\n10.9.8.7 private.test\n";
        hosts.read_hosts_conf(known.as_bytes()).unwrap();
        let provider = TokioRuntimeProvider::default();
        let nobody = ResolverConfig::from_parts(None, Vec::new(), Vec::new());
        let mut resolver = TokioResolver::builder_with_config(nobody, provider)
            .with_options(ResolverOpts::default())
            .build()
            .unwrap();
        resolver.set_hosts(Arc::new(hosts));
        let (end, over) = watch::channel(false);
        let network = Network {
            allow,
            deny: Vec::new(),
            learn: None,
            ..Network::default()
        };
        let egress = Arc::new(Egress {
            budgets: Budgets::new(&network),
            rules: Arc::new(crate::live_rules::LiveRules::new(network)),
            policies: Policies::default(),
            control: ControlChannel::new(channel).unwrap(),
            names: Mutex::<Names>::default(),
            unnamed: tokio::sync::Mutex::default(),
            resolver: resolver.into(),
            certificates: trust.certificates,
            upstream: trust.upstream,
            releases: crate::inspect::Releases::default(),
            locks: atoll_model::network::Locks::default(),
            credentials: Credentials::default(),
            connectors: crate::connector::Connectors::default(),
            visitors: PortPeers::new(Vec::new()).unwrap(),
            bodies: BodyMemory::default(),
            request_permits: Arc::new(tokio::sync::Semaphore::new(crate::REQUESTS_MAX)),
            wide: Arc::new(tokio::sync::Semaphore::new(crate::dial::WIDE_MAX)),
            over,
        });
        let (hears, sends) = (Arc::clone(&egress), Arc::clone(&egress));
        tokio::spawn(async move {
            hears
                .control
                .receive_orders(|_, _| {}, |_| {}, |_, _| false, |_| true)
                .await
        });
        tokio::spawn(async move { sends.control.send().await });
        Self {
            egress,
            told,
            _end: end,
        }
    }

    /// Connects a program to a host.
    async fn connect(&self, host: &str, port: u16) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let program = TcpStream::connect(listener.local_addr().unwrap());
        let (program, accepted) = tokio::join!(program, listener.accept());
        let (egress, host) = (Arc::clone(&self.egress), host.parse::<HostPart>().unwrap());
        tokio::spawn(async move {
            let wanted = Destination { host, port };
            tunnel::judge(&egress, ProgramStream::new(accepted.unwrap().0), wanted).await;
        });
        program.unwrap()
    }

    /// Returns the reasons of the refusals reported so far.
    fn refused(&self) -> Vec<String> {
        let told = self.told.lock().unwrap();
        let of = |report: &FlowReport| match report {
            FlowReport::Refused { why, .. } => Some(why.clone()),
            FlowReport::Open { .. }
            | FlowReport::Closed { .. }
            | FlowReport::Ask { .. }
            | FlowReport::Left { .. }
            | FlowReport::GivesUp { .. }
            | FlowReport::GaveUp { .. }
            | FlowReport::Reloaded { .. }
            | FlowReport::Renew { .. }
            | FlowReport::Label { .. }
            | FlowReport::Command { .. } => None,
        };
        told.iter().filter_map(of).collect()
    }

    /// Returns the reasons of the refusals, waiting for one if one is expected.
    async fn refused_soon(&self, is_some: bool) -> Vec<String> {
        let some = async {
            while is_some && self.refused().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, some).await.unwrap();
        self.refused()
    }

    /// Returns the ends of this many flows, once they have ended.
    async fn ends(&self, count: usize) -> Vec<FlowEnd> {
        let all = async {
            loop {
                let of = |report: &FlowReport| match report {
                    FlowReport::Closed { end, .. } => Some(end.clone()),
                    FlowReport::Open { .. }
                    | FlowReport::Refused { .. }
                    | FlowReport::Ask { .. }
                    | FlowReport::Left { .. }
                    | FlowReport::GivesUp { .. }
                    | FlowReport::GaveUp { .. }
                    | FlowReport::Reloaded { .. }
                    | FlowReport::Renew { .. }
                    | FlowReport::Label { .. }
                    | FlowReport::Command { .. } => None,
                };
                let ends: Vec<_> = self.told.lock().unwrap().iter().filter_map(of).collect();
                if ends.len() >= count {
                    return ends;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, all).await.unwrap()
    }
}

pub(crate) fn no_trust() -> Trust {
    Trust::read(None, &[]).unwrap()
}

/// Sends these bytes, and reads until the end, or until nothing more comes.
async fn say(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) -> String {
    let _ = stream.write_all(bytes).await;
    let mut heard = Vec::new();
    // The first of it takes longer on a busy machine.
    let mut quiet = Duration::from_secs(15);
    while let Ok(Ok(got)) = timeout(quiet, stream.read_buf(&mut heard)).await {
        if got == 0 {
            break;
        }
        quiet = Duration::from_millis(300);
    }
    String::from_utf8_lossy(&heard).into_owned()
}

#[tokio::test]
async fn request_is_forwarded_as_judged() {
    let origin = Origin::start(None, OK).await;
    let way = Outside::new(&[("host.atoll.internal", &[])], origin.port, no_trust());
    let program = way.connect("host.atoll.internal", origin.port).await;
    let host = format!("host.atoll.internal:{}", origin.port);
    let request = format!(
        "GET /a?b=c HTTP/1.1\r\nHost: {host}\r\nConnection: X-Gone\r\nX-Gone: 1\r\nX-Stays: 2\r\n\r\n"
    );
    let heard = say(program, format!("{request}{request}").as_bytes()).await;
    assert_eq!(heard.matches("HTTP/1.1 200 OK").count(), 2, "{heard}");
    assert!(heard.ends_with("\r\n\r\nok"), "{heard}");
    let sent = format!("GET /a?b=c HTTP/1.1\r\nhost: {host}\r\nx-stays: 2\r\n\r\n");
    assert_eq!(origin.seen(), sent.repeat(2));
    let ends = way.ends(2).await;
    assert_eq!((ends[0].status, ends[0].down_bytes), (Some(200), 2));
    assert_eq!(way.refused(), Vec::<String>::new());
}

#[tokio::test]
async fn tls_is_terminated_and_reopened() {
    let signer = Signer::new();
    for protocols in [&["http/1.1"][..], &[]] {
        let tls = signer.server("host.atoll.internal", protocols, 4000);
        let origin = Origin::start(Some(tls), OK).await;
        let trust = Trust::with(&signer.authority(), vec![signer.root()]).unwrap();
        let way = Outside::new(&[("host.atoll.internal", &[])], origin.port, trust);
        let program = way.connect("host.atoll.internal", origin.port).await;
        let name = ServerName::try_from("host.atoll.internal").unwrap();
        let program = signer
            .client(protocols)
            .connect(name, program)
            .await
            .unwrap();
        let request = format!(
            "GET / HTTP/1.1\r\nHost: host.atoll.internal:{}\r\n\r\n",
            origin.port
        );
        let heard = say(program, request.as_bytes()).await;
        assert!(heard.starts_with("HTTP/1.1 200 OK"), "{heard}");
    }
}

/// Framings of a body that programs send (`HOST` is the right header): the status of the response,
/// and what reaches the server, which is written anew from what was read. An ambiguous request is
/// forwarded only if one reading is the only safe one.
const FRAMINGS: &[(&str, &str, u16, &str)] = &[
    (
        "both, length first",
        "POST / HTTP/1.1\r\nHOST\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHOST\r\n\r\n",
        200,
        "POST / HTTP/1.1\r\nHOST\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "both, chunks first",
        "POST / HTTP/1.1\r\nHOST\r\nTransfer-Encoding: chunked\r\nContent-Length: 50\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHOST\r\n\r\n",
        200,
        "POST / HTTP/1.1\r\nHOST\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "two lengths",
        "POST / HTTP/1.1\r\nHOST\r\nContent-Length: 0\r\nContent-Length: 46\r\n\r\nGET /smuggled HTTP/1.1\r\nHOST\r\n\r\n",
        400,
        "",
    ),
    (
        "two equal lengths",
        "POST / HTTP/1.1\r\nHOST\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
        200,
        "POST / HTTP/1.1\r\nHOST\r\ncontent-length: 2\r\n\r\nab",
    ),
    (
        "a list of lengths",
        "POST / HTTP/1.1\r\nHOST\r\nContent-Length: 2, 2\r\n\r\nab",
        400,
        "",
    ),
    (
        "a signed length",
        "POST / HTTP/1.1\r\nHOST\r\nContent-Length: +2\r\n\r\nab",
        400,
        "",
    ),
    (
        "a negative length",
        "POST / HTTP/1.1\r\nHOST\r\nContent-Length: -1\r\n\r\nab",
        400,
        "",
    ),
    (
        "a length by 0x",
        "POST / HTTP/1.1\r\nHOST\r\nContent-Length: 0x2\r\n\r\nab",
        400,
        "",
    ),
    (
        "a length that looks octal",
        "POST / HTTP/1.1\r\nHOST\r\nContent-Length: 010\r\n\r\nabcdefghij",
        200,
        "POST / HTTP/1.1\r\nHOST\r\ncontent-length: 10\r\n\r\nabcdefghij",
    ),
    (
        "zeroes alone",
        "POST / HTTP/1.1\r\nHOST\r\nContent-Length: 000\r\n\r\n",
        200,
        "POST / HTTP/1.1\r\nHOST\r\ncontent-length: 0\r\n\r\n",
    ),
    (
        "an empty length",
        "POST / HTTP/1.1\r\nHOST\r\nContent-Length:\r\n\r\n",
        400,
        "",
    ),
    (
        "a length by another name",
        "POST / HTTP/1.1\r\nHOST\r\nContent_Length: 46\r\n\r\nGET /smuggled HTTP/1.1\r\nHOST\r\n\r\n",
        400,
        "",
    ),
    (
        "a length by a third name",
        "POST / HTTP/1.1\r\nHOST\r\ncontent.LENGTH: 2\r\n\r\nab",
        400,
        "",
    ),
    (
        "chunks by another header",
        "POST / HTTP/1.1\r\nHOST\r\nTRANSFER_ENCODING: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        400,
        "",
    ),
    (
        "a connection by another header",
        "POST / HTTP/1.1\r\nHOST\r\nproxy_connection: close\r\n\r\n",
        400,
        "",
    ),
    (
        "a header that only looks so",
        "POST / HTTP/1.1\r\nHOST\r\nx_content_length: 2\r\n\r\n",
        200,
        "POST / HTTP/1.1\r\nHOST\r\nx_content_length: 2\r\n\r\n",
    ),
    (
        "trailers that frame by another name",
        "POST / HTTP/1.1\r\nHOST\r\nTrailer: content_length\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent_Length: 46\r\n\r\n",
        400,
        "",
    ),
    (
        "a huge length",
        "POST / HTTP/1.1\r\nHOST\r\nContent-Length: 18446744073709551616\r\n\r\nab",
        400,
        "",
    ),
    (
        "a coding before chunks",
        "POST / HTTP/1.1\r\nHOST\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        400,
        "",
    ),
    (
        "a coding alone",
        "POST / HTTP/1.1\r\nHOST\r\nTransfer-Encoding: identity\r\n\r\nab",
        400,
        "",
    ),
    (
        "chunks, then not",
        "POST / HTTP/1.1\r\nHOST\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        400,
        "",
    ),
    (
        "chunks twice",
        "POST / HTTP/1.1\r\nHOST\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        "",
    ),
    (
        "chunks by another name",
        "POST / HTTP/1.1\r\nHOST\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        400,
        "",
    ),
    (
        "chunks after a tab",
        "POST / HTTP/1.1\r\nHOST\r\nTransfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n",
        200,
        "POST / HTTP/1.1\r\nHOST\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunks after a form feed",
        "POST / HTTP/1.1\r\nHOST\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        400,
        "",
    ),
    (
        "a space before the colon",
        "POST / HTTP/1.1\r\nHOST\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        400,
        "",
    ),
    (
        "a folded header",
        "POST / HTTP/1.1\r\nHOST\r\nX: a\r\n Transfer-Encoding: chunked\r\n\r\n",
        400,
        "",
    ),
    (
        "a header without a name",
        "POST / HTTP/1.1\r\nHOST\r\n: a\r\n\r\n",
        400,
        "",
    ),
    (
        "a header without a colon",
        "POST / HTTP/1.1\r\nHOST\r\nTransfer-Encoding\r\n\r\n",
        400,
        "",
    ),
    (
        "a bare return in a value",
        "POST / HTTP/1.1\r\nHOST\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n",
        400,
        "",
    ),
    (
        "a zero byte in a value",
        "POST / HTTP/1.1\r\nHOST\r\nX: a\0b\r\n\r\n",
        400,
        "",
    ),
    (
        "ends of lines without returns",
        "POST / HTTP/1.1\nHOST\nX: a\n\n",
        200,
        "POST / HTTP/1.1\r\nHOST\r\nx: a\r\n\r\n",
    ),
    (
        "chunks in HTTP/1.0",
        "POST / HTTP/1.0\r\nHOST\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        "",
    ),
    (
        "a later version",
        "POST / HTTP/1.2\r\nHOST\r\n\r\n",
        400,
        "",
    ),
    ("no version", "POST /\r\n\r\n", 400, ""),
    ("a space more", "POST  / HTTP/1.1\r\nHOST\r\n\r\n", 400, ""),
    (
        "a space in the target",
        "POST /a b HTTP/1.1\r\nHOST\r\n\r\n",
        400,
        "",
    ),
    (
        "a bad size of a chunk",
        "POST / HTTP/1.1\r\nHOST\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
        400,
        "",
    ),
    (
        "a huge chunk",
        "POST / HTTP/1.1\r\nHOST\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000001\r\na\r\n0\r\n\r\n",
        400,
        "",
    ),
    (
        "an extension of a chunk",
        "POST / HTTP/1.1\r\nHOST\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\na\r\n0\r\n\r\n",
        200,
        "POST / HTTP/1.1\r\nHOST\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    ),
    (
        "a bare newline in an extension",
        "POST / HTTP/1.1\r\nHOST\r\nTransfer-Encoding: chunked\r\n\r\n1;a\nb\r\na\r\n0\r\n\r\n",
        400,
        "",
    ),
    (
        "a chunk that ends by a newline",
        "POST / HTTP/1.1\r\nHOST\r\nTransfer-Encoding: chunked\r\n\r\n1\na\n0\n\n",
        400,
        "",
    ),
    (
        "a chunk longer than said",
        "POST / HTTP/1.1\r\nHOST\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
        400,
        "",
    ),
    (
        "trailers that frame",
        "POST / HTTP/1.1\r\nHOST\r\nTrailer: content-length\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 46\r\n\r\n",
        200,
        "POST / HTTP/1.1\r\nHOST\r\ntrailer: content-length\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "a body that is a request",
        "POST / HTTP/1.1\r\nHOST\r\nContent-Length: 51\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: host.atoll.internal\r\n\r\n",
        200,
        "POST / HTTP/1.1\r\nHOST\r\ncontent-length: 51\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: host.atoll.internal\r\n",
    ),
    (
        "empty lines first",
        "\r\n\r\nPOST / HTTP/1.1\r\nHOST\r\n\r\n",
        200,
        "POST / HTTP/1.1\r\nHOST\r\n\r\n",
    ),
    (
        "another request unasked",
        "POST / HTTP/1.1\r\nHOST\r\n\r\nGET /smuggled HTTP/1.1\r\nHOST\r\n\r\n",
        200,
        "POST / HTTP/1.1\r\nHOST\r\n\r\n",
    ),
];

#[tokio::test]
async fn request_with_ambiguous_framing_is_refused() {
    for (name, said, status, reaches) in FRAMINGS {
        let origin = Origin::start(None, OK).await;
        let way = Outside::new(
            &[("host.atoll.internal", &["POST"])],
            origin.port,
            no_trust(),
        );
        let program = way.connect("host.atoll.internal", origin.port).await;
        let host = format!("Host: host.atoll.internal:{}", origin.port);
        let heard = say(program, said.replace("HOST", &host).as_bytes()).await;
        assert!(
            heard.starts_with(&format!("HTTP/1.1 {status} ")),
            "{name}: {heard}"
        );
        let reaches = reaches.replace("HOST", &host.to_lowercase());
        assert_eq!(origin.seen(), reaches, "{name}");
    }
}

/// Heads that name a host, sent where `host.atoll.internal` at the port `PORT` was connected to,
/// with the status of the response.
const NAMES: &[(&str, u16)] = &[
    ("GET / HTTP/1.1\r\nHost: host.atoll.internal:PORT\r\n", 200),
    ("GET / HTTP/1.1\r\nHost: HOST.atoll.internal.:PORT\r\n", 200),
    (
        "GET http://host.atoll.internal:PORT/ HTTP/1.1\r\nHost: host.atoll.internal:PORT\r\n",
        200,
    ),
    ("GET / HTTP/1.0\r\n", 200),
    ("GET / HTTP/1.1\r\n", 400),
    ("GET / HTTP/1.1\r\nHost:\r\n", 421),
    ("GET / HTTP/1.1\r\nHost: host.atoll.internal\r\n", 421),
    ("GET / HTTP/1.1\r\nHost: host.atoll.internal:80\r\n", 421),
    ("GET / HTTP/1.1\r\nHost: host.atoll.internal:\r\n", 421),
    ("GET / HTTP/1.1\r\nHost: host.atoll.internal:+PORT\r\n", 421),
    ("GET / HTTP/1.1\r\nHost: other.test:PORT\r\n", 421),
    (
        "GET / HTTP/1.1\r\nHost: a.host.atoll.internal:PORT\r\n",
        421,
    ),
    ("GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n", 421),
    (
        "GET / HTTP/1.1\r\nHost: host.atoll.internal:PORT, other.test\r\n",
        421,
    ),
    (
        "GET / HTTP/1.1\r\nHost: other.test@host.atoll.internal:PORT\r\n",
        421,
    ),
    (
        "GET / HTTP/1.1\r\nHost: host.atoll.internal:PORT@other.test\r\n",
        421,
    ),
    (
        "GET / HTTP/1.1\r\nHost: host.atoll.internal:PORT\r\nHost: other.test\r\n",
        400,
    ),
    (
        "GET / HTTP/1.1\r\nHost: host.atoll.internal:PORT\r\nHost: host.atoll.internal:PORT\r\n",
        400,
    ),
    (
        "GET http://other.test/ HTTP/1.1\r\nHost: host.atoll.internal:PORT\r\n",
        421,
    ),
    (
        "GET http://host.atoll.internal:PORT/ HTTP/1.1\r\nHost: other.test\r\n",
        421,
    ),
    (
        "GET http://u@host.atoll.internal:PORT/ HTTP/1.1\r\nHost: host.atoll.internal:PORT\r\n",
        421,
    ),
    (
        "GET https://host.atoll.internal:PORT/ HTTP/1.1\r\nHost: host.atoll.internal:PORT\r\n",
        421,
    ),
    (
        "GET //other.test/ HTTP/1.1\r\nHost: host.atoll.internal:PORT\r\n",
        200,
    ),
    (
        "CONNECT other.test:443 HTTP/1.1\r\nHost: host.atoll.internal:PORT\r\n",
        403,
    ),
    (
        "CONNECT host.atoll.internal:PORT HTTP/1.1\r\nHost: host.atoll.internal:PORT\r\n",
        403,
    ),
    (
        "TRACE / HTTP/1.1\r\nHost: host.atoll.internal:PORT\r\n",
        403,
    ),
    ("POST / HTTP/1.1\r\nHost: host.atoll.internal:PORT\r\n", 403),
    ("get / HTTP/1.1\r\nHost: host.atoll.internal:PORT\r\n", 403),
    (
        "GET /\u{e9} HTTP/1.1\r\nHost: host.atoll.internal:PORT\r\n",
        400,
    ),
    (
        "GET / HTTP/1.1\r\nHost: host.atoll.internal:PORT\r\nUpgrade: tcp\r\nConnection: upgrade\r\n",
        403,
    ),
    (
        "GET / HTTP/1.1\r\nHost: host.atoll.internal:PORT\r\nUpgrade: TLS/1.0, websocket\r\nConnection: upgrade\r\n",
        403,
    ),
    (
        "GET / HTTP/1.1\r\nHost: host.atoll.internal:PORT\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\nConnection: Upgrade, HTTP2-Settings\r\n",
        200,
    ),
];

#[tokio::test]
async fn request_for_other_host_or_scheme_is_refused() {
    for (said, status) in NAMES {
        let origin = Origin::start(None, OK).await;
        let way = Outside::new(
            &[("host.atoll.internal", &["GET"])],
            origin.port,
            no_trust(),
        );
        let program = way.connect("host.atoll.internal", origin.port).await;
        let said = said.replace("PORT", &origin.port.to_string());
        let heard = say(program, format!("{said}\r\n").as_bytes()).await;
        assert!(heard.contains(&format!(" {status} ")), "{said}: {heard}");
        let seen = origin.seen().to_lowercase();
        assert_eq!(seen.is_empty(), *status != 200, "{said}: {seen}");
        assert!(
            !seen.contains("upgrade") && !seen.contains("settings"),
            "{seen}"
        );
        assert_eq!(
            way.refused_soon(*status != 200).await.is_empty(),
            *status == 200
        );
    }
}

#[tokio::test]
async fn method_override_is_refused_under_method_rules() {
    let header = "X-HTTP-Method-Override: DELETE\r\n";
    for (methods, header, status) in [
        (&["GET"][..], header, 403),
        (&["GET"][..], "x-method-override: GET\r\n", 403),
        (&["GET"][..], "", 200),
        (&[][..], header, 200),
    ] {
        let origin = Origin::start(None, OK).await;
        let way = Outside::new(&[("host.atoll.internal", methods)], origin.port, no_trust());
        let program = way.connect("host.atoll.internal", origin.port).await;
        let port = origin.port;
        let said = format!("GET / HTTP/1.1\r\nHost: host.atoll.internal:{port}\r\n{header}\r\n");
        let heard = say(program, said.as_bytes()).await;
        assert!(heard.contains(&format!(" {status} ")), "{said}: {heard}");
        assert_eq!(origin.seen().is_empty(), status != 200, "{said}");
    }
}

#[tokio::test]
async fn denial_says_what_why_and_how_to_ask() {
    let origin = Origin::start(None, OK).await;
    let way = Outside::new(
        &[("host.atoll.internal", &["GET"])],
        origin.port,
        no_trust(),
    );
    let program = way.connect("host.atoll.internal", origin.port).await;
    let said = format!(
        "POST /a?secret=1 HTTP/1.1\r\nHost: host.atoll.internal:{}\r\nContent-Length: 0\r\n\r\n",
        origin.port
    );
    let heard = say(program, said.as_bytes()).await;
    let (head, body) = heard.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/json"), "{head}");
    let told: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        told["what"],
        format!("POST http://host.atoll.internal:{}/a", origin.port)
    );
    assert_eq!(told["why"], "no rule allows it");
    assert!(told["rule"].is_null());
    let how = told["how_to_ask"].as_str().unwrap();
    let rule = format!("POST http://host.atoll.internal:{}/a", origin.port);
    assert!(
        how.contains(&format!("atoll run --allow '{rule}'")),
        "{how}"
    );
}

#[tokio::test]
async fn first_bytes_for_other_host_are_refused() {
    let signer = Signer::new();
    let tls = signer.server("host.atoll.internal", &[], 4000);
    for (asked, name, reaches) in [
        ("host.atoll.internal", "host.atoll.internal", true),
        ("host.atoll.internal", "other.test", false),
        ("host.atoll.internal", "a.host.atoll.internal", false),
        ("host.atoll.internal", "127.0.0.1", false),
        ("127.0.0.1", "host.atoll.internal", false),
        ("127.0.0.1", "127.0.0.1", false),
    ] {
        let origin = Origin::start(Some(Arc::clone(&tls)), OK).await;
        let trust = Trust::with(&signer.authority(), vec![signer.root()]).unwrap();
        let way = Outside::new(&[("host.atoll.internal", &[])], origin.port, trust);
        let program = way.connect(asked, origin.port).await;
        let named = ServerName::try_from(name.to_owned()).unwrap();
        let connected = signer.client(&[]).connect(named, program).await;
        let heard = match connected {
            Ok(stream) => {
                let host = format!("{asked}:{}", origin.port);
                say(
                    stream,
                    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes(),
                )
                .await
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(heard.contains(" 200 "), reaches, "{asked} {name}: {heard}");
        assert_eq!(origin.seen().is_empty(), !reaches, "{asked} {name}");
    }
}

#[tokio::test]
async fn server_with_wrong_certificate_gets_no_request() {
    let (signer, stranger) = (Signer::new(), Signer::named("A stranger"));
    for (tls, why) in [
        (signer.server("host.atoll.internal", &[], 4000), None),
        (
            signer.server("other.test", &[], 4000),
            Some("it is for another name"),
        ),
        (
            signer.server("host.atoll.internal", &[], 2001),
            Some("it has expired"),
        ),
        (
            stranger.server("host.atoll.internal", &[], 4000),
            Some("nobody that this host trusts"),
        ),
    ] {
        let origin = Origin::start(Some(tls), OK).await;
        let trust = Trust::with(&signer.authority(), vec![signer.root()]).unwrap();
        let way = Outside::new(&[("host.atoll.internal", &[])], origin.port, trust);
        let program = way.connect("host.atoll.internal", origin.port).await;
        let name = ServerName::try_from("host.atoll.internal").unwrap();
        let program = signer.client(&[]).connect(name, program).await.unwrap();
        let host = format!("host.atoll.internal:{}", origin.port);
        let heard = say(
            program,
            format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes(),
        )
        .await;
        let ends = way.ends(1).await;
        match why {
            None => assert!(heard.starts_with("HTTP/1.1 200"), "{heard}"),
            Some(why) => {
                assert!(
                    heard.starts_with("HTTP/1.1 502") && heard.contains(why),
                    "{heard}"
                );
                assert!(ends[0].failure.as_ref().unwrap().contains(why), "{ends:?}");
                assert_eq!(origin.seen(), "");
            }
        }
    }
}

#[tokio::test]
async fn malformed_request_is_refused() {
    let signer = Signer::new();
    let tls = signer.server("host.atoll.internal", &[], 4000);
    for said in [
        "SSH-2.0-client\r\n\r\n",
        "\x00\x00\x00\x08\x04\x12\x16\x2f",
        "EHLO a\r\n\r\n",
        "* OK\r\n\r\n",
    ] {
        let origin = Origin::start(None, OK).await;
        let way = Outside::new(&[("host.atoll.internal", &[])], origin.port, no_trust());
        let program = way.connect("host.atoll.internal", origin.port).await;
        let _ = say(program, said.as_bytes()).await;
        assert_eq!(origin.seen(), "", "{said}");
        let refused = way.refused_soon(true).await;
        assert!(refused[0].contains("tunnel"), "{refused:?}");
    }
    // Within TLS nothing is seen without an authority, and nothing is carried.
    let origin = Origin::start(Some(tls), OK).await;
    let way = Outside::new(&[("host.atoll.internal", &[])], origin.port, no_trust());
    let program = way.connect("host.atoll.internal", origin.port).await;
    let name = ServerName::try_from("host.atoll.internal").unwrap();
    let error = signer.client(&[]).connect(name, program).await.unwrap_err();
    assert!(error.to_string().contains("AccessDenied"), "{error}");
    assert!(way.refused_soon(true).await[0].contains("authority"));
}

#[tokio::test]
async fn overlong_request_is_refused_and_reported() {
    let origin = Origin::start(None, OK).await;
    let rules: &[(&str, &[&str])] = &[("host.atoll.internal", &[])];
    let get = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "y".repeat(40_000));
    let method = format!(
        "{} / HTTP/1.1\r\nHost: host.atoll.internal:{}\r\n\r\n",
        "M".repeat(65),
        origin.port
    );
    let upgrade = format!(
        "GET / HTTP/1.1\r\nHost: host.atoll.internal:{}\r\nUpgrade: {}\r\n\r\n",
        origin.port,
        "u".repeat(40_000)
    );
    for (text, status, why) in [
        (get, "421", "another host than"),
        (method, "501", "its method is longer than 64 bytes"),
        (upgrade, "403", "another protocol"),
    ] {
        let outside = Outside::new(rules, origin.port, no_trust());
        let program = outside.connect("host.atoll.internal", origin.port).await;
        let heard = say(program, text.as_bytes()).await;
        assert!(heard.starts_with(&format!("HTTP/1.1 {status} ")), "{heard}");
        let refused = outside.refused_soon(true).await;
        let [told] = &refused[..] else {
            panic!("{refused:?}");
        };
        assert!(told.contains(why) && told.len() < 512, "{told}");
    }
    // As long as a method may be.
    let outside = Outside::new(rules, origin.port, no_trust());
    let program = outside.connect("host.atoll.internal", origin.port).await;
    let text = format!(
        "{} / HTTP/1.1\r\nHost: host.atoll.internal:{}\r\n\r\n",
        "M".repeat(64),
        origin.port
    );
    let heard = say(program, text.as_bytes()).await;
    assert!(heard.starts_with("HTTP/1.1 200 "), "{heard}");
    assert!(outside.refused().is_empty());
}

#[tokio::test]
async fn proxy_unreadable_request_is_reported() {
    let long = [b"CONNECT ", &[b'y'; 20_000][..]].concat();
    for (bytes, heard, why) in [
        (
            &b"CONNECT a.example HTTP/1.1\r\n\r\n"[..],
            "HTTP/1.1 400 ",
            "no host with a port",
        ),
        (&long, "HTTP/1.1 400 ", "its head is too long"),
        (
            b"CONNECT a.example:1 HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "HTTP/1.1 400 ",
            "its Host",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "HTTP/1.1 400 ",
            "a proxy is asked by",
        ),
        (
            b"GET  http://a.example/ no\r\n\r\n",
            "HTTP/1.1 400 ",
            "no request that can be read",
        ),
        (
            b"\x16\x03\x01\x00\x05hello\r\n\r\n",
            "HTTP/1.1 400 ",
            "no request that can be read",
        ),
        (b"\x05\x00", "", "none of SOCKS 5"),
        (b"\x05\x01\x02\x05\x00", "\x05\x02", "none of SOCKS 5"),
        (b"\x05\x01\x01", "\x05", "in no way that is known"),
        (
            b"\x05\x01\x00\x05\x02\x00\x01\x01\x01\x01\x01\x00\x50",
            "\x05\x00\x05\x07",
            "but connecting",
        ),
        (
            b"\x05\x01\x00\x05\x01\x00\x02",
            "\x05\x00\x05\x08",
            "no kind that there is",
        ),
        (
            b"\x05\x01\x00\x05\x01\x00\x03\x01%\x00\x50",
            "\x05\x00\x05\x01",
            "no host with a port",
        ),
    ] {
        let outside = Outside::new(&[], 80, no_trust());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let program = TcpStream::connect(listener.local_addr().unwrap());
        let (program, accepted) = tokio::join!(program, listener.accept());
        let egress = Arc::clone(&outside.egress);
        let served = tokio::spawn(async move {
            proxy::serve(&egress, accepted.unwrap().0).await;
        });
        let text = String::from_utf8_lossy(bytes);
        let told = say(program.unwrap(), bytes).await;
        assert!(told.starts_with(heard), "{text:?}: {told:?}");
        served.await.unwrap();
        outside.refused_soon(true).await;
        let told = outside.told.lock().unwrap().clone();
        let [
            FlowReport::Refused {
                flow,
                why: said,
                count: 1,
            },
        ] = &told[..]
        else {
            panic!("{text:?}: {told:?}");
        };
        assert!(said.contains(why), "{text:?}: {said}");
        assert_eq!(
            (flow.host.as_str(), flow.port),
            (crate::names::PROXY_NAME, 0)
        );
    }
}
