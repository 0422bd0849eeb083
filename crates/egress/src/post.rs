//! A request of Atoll's own that belongs to no run: a person's command posts something to a
//! host of the internet that they named, by TLS, and reads a short answer.
//!
//! No rule of a run is asked, and nothing of a run is in it; programs inside have no part in
//! where it goes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use atoll_model::network::HostPart;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustls::crypto::aws_lc_rs::default_provider;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::inspect::{client_configs, server_name, system_roots, why_not, why_unanswered};

/// The longest answer, bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Who asks.
const WHO: &str = concat!("atoll/", env!("CARGO_PKG_VERSION"));

/// Where something is posted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The host, whose certificate has to be for it.
    pub host: HostPart,
    /// Its port.
    pub port: u16,
    /// The path, beginning with `/`.
    pub target: String,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// Posts a text, and waits for the answer, so long at most. A redirection is not followed: it
/// is an answer of that status.
///
/// # Errors
/// Why there is no answer, in words.
pub fn post(to: &Address, body: String, patience: Duration) -> Result<Answer, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("nothing can be sent: {error}"))?;
    let posted = runtime.block_on(async { timeout(patience, posted(to, body)).await });
    // A name server that does not answer is asked by a thread, which is not waited for.
    runtime.shutdown_background();
    posted
        .map_err(|_| format!("it does not answer within {} s", patience.as_secs()))
        .and_then(|posted| posted)
}

async fn posted(to: &Address, body: String) -> Result<Answer, String> {
    let unreached = |error: io::Error| why_not(&error);
    let stream = match &to.host {
        HostPart::Address(address) => TcpStream::connect((*address, to.port)).await,
        HostPart::Name(name) => TcpStream::connect((name.to_string(), to.port)).await,
    };
    let provider = Arc::new(default_provider());
    let [config, _] = client_configs(system_roots(), &provider)
        .map_err(|error| format!("TLS cannot be spoken: {error}"))?;
    let name = server_name(&to.host).map_err(unreached)?;
    let stream = TlsConnector::from(config)
        .connect(name, stream.map_err(unreached)?)
        .await
        .map_err(unreached)?;
    let begun = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = begun.map_err(|error| why_unanswered(&error))?;
    // It lives as long as what asks: both are of one thread, and end together.
    let carried = tokio::spawn(connection);
    let answered = sender.send_request(request(to, body)?).await;
    let response = answered.map_err(|error| why_unanswered(&error))?;
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| "its answer broke off".to_owned())?;
        let data = frame.data_ref().map_or(&[][..], |data| data);
        if whole.len() + data.len() > ANSWER_BYTES_MAX {
            return Err(format!("its answer has more than {ANSWER_BYTES_MAX} bytes"));
        }
        whole.extend_from_slice(data);
    }
    carried.abort();
    Ok(Answer {
        status,
        body: whole,
    })
}

fn request(to: &Address, body: String) -> Result<Request<Full<Bytes>>, String> {
    let unwritable = || "its address cannot be written".to_owned();
    let authority = match to.port {
        443 => to.host.to_string(),
        port => format!("{}:{port}", to.host),
    };
    let mut request = Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = to.target.parse().map_err(|_| unwritable())?;
    let headers = request.headers_mut();
    let host = HeaderValue::from_str(&authority).map_err(|_| unwritable())?;
    headers.insert(HOST, host);
    headers.insert(USER_AGENT, HeaderValue::from_static(WHO));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(request)
}
