//! One message of Atoll's own to a server that a person has named: a collector, a witness.
//! It is no sandbox's way out: no rule is asked, and nothing from inside chooses where it
//! goes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{
    CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::inspect::{HEAD_BYTES_MAX, system_roots};

/// The longest answer, bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Who asks.
const WHO: &str = concat!("atoll/", env!("CARGO_PKG_VERSION"));

/// Where to.
#[derive(Clone, Debug)]
pub struct Address {
    is_tls: bool,
    host: String,
    port: u16,
    authority: HeaderValue,
    path: String,
}

/// What came back.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// After how many seconds the server would be asked again (`Retry-After`, RFC 9110, 10.2.3).
    pub retry_after_seconds: Option<u64>,
    /// The body, 64 KiB at most.
    pub body: Vec<u8>,
}

/// What else goes with each: keys of whoever may send there, as a rule.
#[derive(Clone, Default)]
pub struct Headers(HeaderMap);

/// Why nothing came back, for people.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unsent(String);

impl Address {
    /// An address such as `https://collector.example.com:4318`; what is posted goes to paths
    /// beneath it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Unsent> {
        let unsound = |why: &str| Unsent(why.to_owned());
        let uri: Uri = text.parse().map_err(|_| unsound("it is no address"))?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(_) | None => return Err(unsound("it begins with neither https:// nor http://")),
        };
        let authority = uri.authority().ok_or_else(|| unsound("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(unsound(
                "it has a user in it; what is secret goes in a header",
            ));
        }
        if uri.query().is_some() {
            return Err(unsound("it has a query"));
        }
        let named = HeaderValue::from_str(authority.as_str());
        Ok(Self {
            is_tls,
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority
                .port_u16()
                .unwrap_or(if is_tls { 443 } else { 80 }),
            authority: named.map_err(|_| unsound("it is no address"))?,
            path: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// Whether what is sent there can be read on the way: neither TLS nor this machine.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let is_own = match self.host.parse::<std::net::IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.host.eq_ignore_ascii_case("localhost"),
        };
        !self.is_tls && !is_own
    }
}

impl Headers {
    /// Adds one.
    ///
    /// # Errors
    /// When no header has such a name or such a value.
    pub fn add(&mut self, name: &str, value: &str) -> Result<(), Unsent> {
        let name = HeaderName::from_bytes(name.as_bytes());
        let name = name.map_err(|_| Unsent("no header has such a name".to_owned()))?;
        let value = HeaderValue::from_str(value);
        let mut value = value.map_err(|_| Unsent("no header has such a value".to_owned()))?;
        value.set_sensitive(true);
        self.0.insert(name, value);
        Ok(())
    }
}

/// Without the values: they are secret.
impl fmt::Debug for Headers {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_list().entries(self.0.keys()).finish()
    }
}

/// Sends a body to `path` beneath that address, and waits for the answer for as long. A
/// redirect is an answer like any other: nothing is sent anywhere else. Servers are known by
/// the authorities that this host trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others).
///
/// # Errors
/// When there is no answer in that time. Whether the server got it is not known then.
pub fn post(
    to: &Address,
    path: &str,
    headers: &Headers,
    kind: &'static str,
    body: Vec<u8>,
    patience: Duration,
) -> Result<Reply, Unsent> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| Unsent(format!("no thread to send it: {error}")))?;
    let told = runtime.block_on(timeout(patience, sent(to, path, headers, kind, body)));
    // A name that is still looked up is not waited for.
    runtime.shutdown_background();
    let late = |_| Unsent(format!("no answer in {} s", patience.as_secs()));
    told.map_err(late).and_then(|told| told.map_err(Unsent))
}

async fn sent(
    to: &Address,
    path: &str,
    headers: &Headers,
    kind: &'static str,
    body: Vec<u8>,
) -> Result<Reply, String> {
    let unwritable = |_| "the address cannot be written".to_owned();
    let mut request = Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = format!("{}{path}", to.path).parse().map_err(unwritable)?;
    *request.headers_mut() = headers.0.clone();
    let own = request.headers_mut();
    own.remove(CONTENT_LENGTH);
    own.insert(HOST, to.authority.clone());
    own.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    own.insert(USER_AGENT, HeaderValue::from_static(WHO));
    let stream = TcpStream::connect((to.host.as_str(), to.port)).await;
    let stream = stream.map_err(|error| format!("no connection: {error}"))?;
    if !to.is_tls {
        return answered(stream, request).await;
    }
    let name = ServerName::try_from(to.host.clone());
    let name = name.map_err(|_| "no certificate can be for that name".to_owned())?;
    let secured = TlsConnector::from(trusting()?).connect(name, stream).await;
    answered(
        secured.map_err(|error| format!("no TLS: {error}"))?,
        request,
    )
    .await
}

fn trusting() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(system_roots());
    if added == 0 {
        return Err("this host trusts no authority (apt install ca-certificates)".to_owned());
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let built = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let built = built.map_err(|error| error.to_string())?;
    Ok(Arc::new(
        built.with_root_certificates(roots).with_no_client_auth(),
    ))
}

async fn answered(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Reply, String> {
    let broken = |error: hyper::Error| format!("the connection broke off: {error}");
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    let (mut sender, connection) = builder
        .handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let carried = tokio::spawn(async move { drop(connection.await) });
    let response = sender.send_request(request).await.map_err(broken)?;
    let after = response.headers().get(hyper::header::RETRY_AFTER);
    let after = after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    let body = body.collect().await;
    carried.abort();
    let body = body.map_err(|_| {
        format!("its answer ({status}) broke off or has more than {ANSWER_BYTES_MAX} bytes")
    })?;
    Ok(Reply {
        status,
        retry_after_seconds: after,
        body: body.to_bytes().to_vec(),
    })
}
