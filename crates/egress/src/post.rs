//! Single messages of Atoll's own to a server that a person has named: a collector, a witness. They
//! do not belong to a sandbox: no rule is asked, and nothing in a sandbox chooses their
//! destination.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use atoll_model::network::HostPart;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{
    CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustls::crypto::aws_lc_rs::default_provider;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::inspect::{HEAD_BYTES_MAX, client_configs, server_name, system_roots};
use crate::origin_error::{why_not, why_unanswered};

/// The longest answer, bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The `User-Agent`.
const WHO: &str = concat!("atoll/", env!("CARGO_PKG_VERSION"));

/// The longest address, bytes.
const URL_BYTES_MAX: usize = 1024;

/// The address of a server, as parsed.
#[derive(Clone, Debug)]
pub struct Address {
    is_tls: bool,
    host: HostPart,
    port: u16,
    authority: HeaderValue,
    path: String,
}

/// A server's response.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The seconds after which the server wants to be asked again (`Retry-After`, RFC 9110,
    /// 10.2.3).
    pub retry_after_seconds: Option<u64>,
    /// The body, at most 64 KiB.
    pub body: Vec<u8>,
}

/// Further headers of each message: as a rule, keys that permit to send there.
#[derive(Clone, Default)]
pub struct Headers(HeaderMap);

/// The reason for which there is no response, as a sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PostError(String);

impl Address {
    /// Parses an address such as `https://collector.example.com:4318`; messages go to paths beneath
    /// it.
    ///
    /// # Errors
    /// The flaw of the address.
    pub fn parse(text: &str) -> Result<Self, PostError> {
        let unsound = |why: &str| PostError(why.to_owned());
        let (is_tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(unsound("it begins with neither https:// nor http://")),
        };
        let is_plain =
            |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'@' | b'\\');
        if text.len() > URL_BYTES_MAX || !rest.bytes().all(is_plain) {
            return Err(unsound(
                "it is a host, perhaps a port and a path, without a user, `?` and `#`",
            ));
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                let port = port.parse().ok().filter(|port| *port != 0);
                (
                    host,
                    port.ok_or_else(|| unsound("its port is no number of a port"))?,
                )
            }
            Some(_) | None => (authority, if is_tls { 443 } else { 80 }),
        };
        let host = host.parse();
        Ok(Self {
            is_tls,
            host: host.map_err(|_| unsound("its host is no name and no address"))?,
            port,
            authority: HeaderValue::from_str(authority).map_err(|_| unsound("it is no address"))?,
            path: path.trim_end_matches('/').to_owned(),
        })
    }

    /// Returns the host, which the server's certificate must be for.
    #[must_use]
    pub fn host(&self) -> &HostPart {
        &self.host
    }

    /// Returns whether the server is reached by TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Returns whether messages can be read on their way: neither TLS nor this machine.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let is_own = match &self.host {
            HostPart::Address(address) => address.is_loopback(),
            HostPart::Name(name) => name.as_str() == "localhost",
        };
        !self.is_tls && !is_own
    }
}

impl Headers {
    /// Adds a header.
    ///
    /// # Errors
    /// When no header can have such a name or such a value.
    pub fn add(&mut self, name: &str, value: &str) -> Result<(), PostError> {
        let name = HeaderName::from_bytes(name.as_bytes());
        let name = name.map_err(|_| PostError("no header has such a name".to_owned()))?;
        let value = HeaderValue::from_str(value);
        let mut value = value.map_err(|_| PostError("no header has such a value".to_owned()))?;
        value.set_sensitive(true);
        self.0.insert(name, value);
        Ok(())
    }
}

/// Lists the names without the values: they are secret.
impl fmt::Debug for Headers {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_list().entries(self.0.keys()).finish()
    }
}

/// Sends a body to `path` beneath the address, and waits for the answer, for `patience` at most. A
/// redirect is an answer like any other: nothing is sent anywhere else. Servers are authenticated
/// by the authorities that this host trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others).
///
/// # Errors
/// When there is no answer in that time. It is unknown then whether the server got the message.
pub fn post(
    to: &Address,
    path: &str,
    headers: &Headers,
    kind: &'static str,
    body: Vec<u8>,
    patience: Duration,
) -> Result<Reply, PostError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| PostError(format!("no thread to send it: {error}")))?;
    // Within the runtime: a time-out belongs to one.
    let told = async { timeout(patience, sent(to, path, headers, kind, body)).await };
    let told = runtime.block_on(told);
    // A name that is still looked up is not waited for.
    runtime.shutdown_background();
    let late = |_| PostError(format!("no answer in {} s", patience.as_secs()));
    told.map_err(late).and_then(|told| told.map_err(PostError))
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
    let unreached = |error: io::Error| why_not(&error);
    let stream = match &to.host {
        HostPart::Address(address) => TcpStream::connect((*address, to.port)).await,
        HostPart::Name(name) => TcpStream::connect((name.to_string(), to.port)).await,
    };
    let stream = stream.map_err(unreached)?;
    if !to.is_tls {
        return answered(stream, request).await;
    }
    let provider = Arc::new(default_provider());
    let [config, _] = client_configs(system_roots(), &provider)
        .map_err(|error| format!("TLS cannot be spoken: {error}"))?;
    let name = server_name(&to.host).map_err(unreached)?;
    let secured = TlsConnector::from(config).connect(name, stream).await;
    answered(secured.map_err(unreached)?, request).await
}

async fn answered(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Reply, String> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    let (mut sender, connection) = builder
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| why_unanswered(&error))?;
    let carried = tokio::spawn(async move { drop(connection.await) });
    let response = sender
        .send_request(request)
        .await
        .map_err(|error| why_unanswered(&error))?;
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

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn post_address_is_parsed_strictly() {
        for (url, expected) in [
            ("https://w.example", Some(("w.example", 443, "", false))),
            ("https://w.example/", Some(("w.example", 443, "", false))),
            ("http://w.example/a/", Some(("w.example", 80, "/a", true))),
            (
                "http://localhost:4318",
                Some(("localhost", 4318, "", false)),
            ),
            ("https://127.0.0.1:1/x", Some(("127.0.0.1", 1, "/x", false))),
            ("http://127.0.0.1", Some(("127.0.0.1", 80, "", false))),
            (
                "https://[2001:db8::1]:7",
                Some(("[2001:db8::1]", 7, "", false)),
            ),
            (
                "http://[2001:db8::1]",
                Some(("[2001:db8::1]", 80, "", true)),
            ),
            ("ftp://w.example", None),
            ("https://", None),
            ("https://user@w.example", None),
            ("https://w.example/?a", None),
            ("https://w.example/#a", None),
            ("https://w.example:0", None),
            ("https://w.example:99999", None),
            ("https://w.example/a b", None),
            ("w.example", None),
        ] {
            let found = Address::parse(url).ok();
            let found = found.map(|one| {
                let is_open = one.is_open();
                (one.host.to_string(), one.port, one.path, is_open)
            });
            let expected = expected.map(|(host, port, path, is_open)| {
                (host.to_owned(), port, path.to_owned(), is_open)
            });
            assert_eq!(found, expected, "{url}");
        }
    }
}
