//! HTTP in a client process: requests with bounded answers, and MCP's Streamable HTTP by them.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, ServerJsonRpcMessage};
use rmcp::transport::common::client_side_sse::NeverRetry;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransport,
    StreamableHttpClientTransportConfig, StreamableHttpError, StreamableHttpPostResponse,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use sse_stream::{Sse, SseStream};

use super::dial::Dialer;
use crate::upstream::frames::{FRAME_BYTES_MAX, Trust};

/// The most bytes that come unasked, of all messages of an upstream.
const UNASKED_BYTES_MAX: usize = 64 << 20;
/// The part of an answer with an error that is told, bytes.
const ERROR_BYTES_MAX: usize = 4 << 10;
const SESSION: &str = "mcp-session-id";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// A client of HTTP, whose connections are kept and used again. Nothing is sent twice.
pub(super) type Http = Client<HttpsConnector<Dialer>, Full<Bytes>>;

/// Makes a client that trusts these certificates, PEM.
pub(super) fn client(dialer: Dialer, roots: &str) -> io::Result<Http> {
    let mut trusted = RootCertStore::empty();
    for one in CertificateDer::pem_slice_iter(roots.as_bytes()) {
        // One that nobody can read is trusted by nobody.
        let _ = one.map(|one| trusted.add(one));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = tls
        .map_err(io::Error::other)?
        .with_root_certificates(trusted);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls.with_no_client_auth())
        .https_or_http()
        .enable_http1()
        .wrap_connector(dialer);
    let mut client = Client::builder(TokioExecutor::new());
    Ok(client.retry_canceled_requests(false).build(connector))
}

/// Returns the headers of every request.
pub(super) fn headers(trust: &Trust) -> io::Result<HashMap<HeaderName, HeaderValue>> {
    let header = |(name, value): &(String, String)| {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(io::Error::other)?;
        let value = HeaderValue::from_str(value).map_err(io::Error::other)?;
        Ok((name, value))
    };
    trust.headers.iter().map(header).collect()
}

/// Makes the transport of MCP to an address.
pub(super) fn transport(
    dialer: Dialer,
    url: &str,
    trust: &Trust,
) -> io::Result<(StreamableHttpClientTransport<McpHttp>, McpHttp)> {
    let client = McpHttp {
        http: client(dialer, &trust.roots)?,
        not_sent: Arc::default(),
    };
    let mut settings = StreamableHttpClientTransportConfig::with_uri(url)
        .max_json_response_size(FRAME_BYTES_MAX)
        .max_sse_event_size(FRAME_BYTES_MAX)
        .max_error_response_size(ERROR_BYTES_MAX)
        .max_concurrent_requests(256)
        // A call is never sent again by itself.
        .reinit_on_expired_session(false)
        .custom_headers(headers(trust)?);
    settings.retry_config = Arc::new(NeverRetry::default());
    let transport = StreamableHttpClientTransport::with_client(client.clone(), settings);
    Ok((transport, client))
}

/// Returns what is behind an error: a refusal comes from there.
pub(super) fn explained(error: &dyn Error) -> String {
    let mut behind = error.source();
    let mut all = match behind {
        Some(_) => Vec::new(),
        None => vec![error.to_string()],
    };
    while let Some(error) = behind {
        all.push(error.to_string());
        behind = error.source();
    }
    all.dedup();
    all.join(": ")
}

/// Reads a body of at most this many bytes.
pub(super) async fn body_of(body: Incoming, bytes_max: usize) -> Result<Bytes, String> {
    let read = Limited::new(body, bytes_max).collect().await;
    let read = read.map_err(|error| format!("its answer cannot be read: {error}"))?;
    Ok(read.to_bytes())
}

/// A client of MCP over HTTP.
#[derive(Clone)]
pub(super) struct McpHttp {
    http: Http,
    /// The reason why the last request was not sent.
    not_sent: Arc<Mutex<Option<String>>>,
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoAnswer(String);

type Failed = StreamableHttpError<NoAnswer>;

fn locked<T>(one: &Mutex<T>) -> MutexGuard<'_, T> {
    one.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(why: impl Into<String>) -> Failed {
    StreamableHttpError::Client(NoAnswer(why.into()))
}

impl McpHttp {
    /// Returns why the last request was not sent, if none was.
    pub(super) fn not_sent(&self) -> Option<String> {
        locked(&self.not_sent).clone()
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
        body: String,
    ) -> Result<Response<Incoming>, Failed> {
        let mut request = Request::builder()
            .method(method)
            .uri(url)
            .header(ACCEPT, format!("{JSON}, {EVENTS}"));
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, JSON);
        }
        if let Some(session) = session {
            request = request.header(SESSION, session);
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| failed(error.to_string()))?;
        self.http.request(request).await.map_err(|error| {
            let why = explained(&error);
            *locked(&self.not_sent) = Some(why.clone());
            failed(why)
        })
    }
}

fn header<'a>(response: &'a Response<Incoming>, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

fn is(response: &Response<Incoming>, kind: &str) -> bool {
    let given = header(response, CONTENT_TYPE.as_str()).unwrap_or_default();
    let given = given.split(';').next().unwrap_or_default();
    given.trim().eq_ignore_ascii_case(kind)
}

fn events(body: Incoming, bytes_max: usize) -> BoxStream<'static, Result<Sse, SseError>> {
    let body = Limited::new(body, bytes_max);
    SseStream::from_bytes_stream(
        body.into_data_stream()
            .map(|one| one.map_err(io::Error::other)),
    )
    .boxed()
}

/// Returns the answer to a first message that a server of an older revision refuses by a status: its
/// client asks in the older way then.
fn not_discovered(
    message: &ClientJsonRpcMessage,
    status: StatusCode,
    body: &str,
) -> Option<StreamableHttpPostResponse> {
    let ClientJsonRpcMessage::Request(request) = message else {
        return None;
    };
    let is_refused = status.is_client_error()
        && ![StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);
    if !is_refused || !matches!(request.request, ClientRequest::DiscoverRequest(_)) {
        return None;
    }
    let error = match serde_json::from_str::<ServerJsonRpcMessage>(body) {
        Ok(ServerJsonRpcMessage::Error(error)) => error.error,
        Ok(_) | Err(_) => ErrorData::invalid_request(format!("{status}: {body}"), None),
    };
    let error = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
    Some(StreamableHttpPostResponse::Json(error, None))
}

impl StreamableHttpClient for McpHttp {
    type Error = NoAnswer;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let text = serde_json::to_string(&message)?;
        let session = session_id.as_deref();
        let sent = self.send(Method::POST, &uri, session, custom_headers, text);
        let response = sent.await?;
        let status = response.status();
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && session.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        let (given, is_json) = (
            header(&response, SESSION).map(str::to_owned),
            is(&response, JSON),
        );
        if status.is_success() && is(&response, EVENTS) {
            let events = events(response.into_body(), FRAME_BYTES_MAX);
            return Ok(StreamableHttpPostResponse::Sse(events, given));
        }
        let body = body_of(response.into_body(), FRAME_BYTES_MAX)
            .await
            .map_err(failed)?;
        let waits = matches!(message, ClientJsonRpcMessage::Request(_));
        if status.is_success() && !waits {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let read = serde_json::from_slice::<ServerJsonRpcMessage>(&body);
        let shown = String::from_utf8_lossy(body.get(..ERROR_BYTES_MAX).unwrap_or(&body));
        match read {
            Ok(answer) if is_json && status.is_success() => {
                Ok(StreamableHttpPostResponse::Json(answer, given))
            }
            Err(error) if is_json && status.is_success() => {
                Err(failed(format!("its answer is no message of MCP: {error}")))
            }
            read => match (not_discovered(&message, status, &shown), read) {
                (Some(answer), _) => Ok(answer),
                (None, Ok(error @ ServerJsonRpcMessage::Error(_))) if is_json => {
                    Ok(StreamableHttpPostResponse::Json(error, given))
                }
                (None, _) => Err(failed(format!("it answers {status}: {shown}"))),
            },
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failed> {
        let (session, body) = (Some(&*session_id), String::new());
        let sent = self.send(Method::DELETE, &uri, session, custom_headers, body);
        sent.await.map(drop)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        mut custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failed> {
        if let Some(id) = last_event_id {
            let id = HeaderValue::from_str(&id).map_err(|error| failed(error.to_string()))?;
            custom_headers.insert(HeaderName::from_static("last-event-id"), id);
        }
        let (session, body) = (session_id.as_deref(), String::new());
        let sent = self.send(Method::GET, &uri, session, custom_headers, body);
        let response = sent.await?;
        match response.status().is_success() && is(&response, EVENTS) {
            true => Ok(events(response.into_body(), UNASKED_BYTES_MAX)),
            false => Err(StreamableHttpError::ServerDoesNotSupportSse),
        }
    }
}
