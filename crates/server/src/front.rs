//! The front: HTTP in, requests to the worker out. It holds no right and decides nothing.
//!
//! Start reading at `dispatch`: a request with the name of a sandbox is for that sandbox, every
//! other is for the control API.

mod answers;
mod api;
mod ask;
mod caller;
mod control;
mod dialect;
mod envd;
mod envelopes;
mod events;
mod exec;
mod files;
mod filesystem;
mod form;
mod idle;
mod interpreter;
mod jupyter;
mod kept;
mod librechat;
mod listed;
mod logs;
mod mcp;
mod methods;
mod observed;
mod opensandbox;
mod permit;
mod port;
mod process;
mod query;
mod refusals;
mod senders;
mod stream;
mod templates;
#[cfg(test)]
mod tests;
mod trace;
mod transfer;
mod unread;
mod volumes;

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use atoll_sys::descriptor;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, Uri};
use axum::response::Response;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::protocol::{Credential, ENVD_PORT};
use crate::started::{DIAL, FRONT, HANDED, HANDED_BYTES_MAX, Handed, LISTENER, McpAccess};
use crate::tls::acceptor;
use ask::{Dial, Front};
use permit::Sender;
use query::{authority, plain_id};
use senders::{credential, token};
use trace::Trace;
use unread::Timed;

/// The most connections at once, and the sixteenths of the descriptors that they may take: each request has
/// others.
const CONNECTIONS_MAX: usize = 16_384;
const CONNECTIONS_SIXTEENTHS: u64 = 9;
/// The longest time for the head of a request to come.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// The longest head of a request, bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The most that is read to see whether a connection says anything, bytes.
const FIRST_BYTES: usize = 8 * 1024;
/// The most requests at once of one connection.
const STREAMS_MAX: u32 = 128;

/// Returns the description of Atoll's own API, as OpenAPI has it.
#[must_use]
pub fn openapi() -> serde_json::Value {
    api::openapi()
}

/// The routes, of which requests are told apart by more than their paths.
#[derive(Clone)]
struct Routes {
    front: Arc<Front>,
    api: Router,
    mcp: Arc<mcp::Mcp>,
}

/// Carries out the role of a front. Returns the exit status.
#[must_use]
pub fn program() -> u8 {
    match run() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("atoll serve: the front cannot go on: {error}");
            1
        }
    }
}

fn run() -> io::Result<()> {
    atoll_sys::process::set_name(FRONT)?;
    let listener = TcpListener::from(descriptor::inherited(LISTENER)?);
    let dial = descriptor::inherited(DIAL)?;
    let Handed {
        identity,
        is_logged,
        mcp,
    } = handed()?;
    let acceptor = identity.as_ref().map(acceptor).transpose()?;
    drop(identity);
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let connections = usize::try_from(limit / 16 * CONNECTIONS_SIXTEENTHS);
    let places =
        Semaphore::new(connections.map_or(CONNECTIONS_MAX, |most| most.min(CONNECTIONS_MAX)));
    atoll_tools::confine("front-filter")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let front = Arc::new(Front {
            dial: Dial::new(dial)?,
            is_logged,
            is_secure: acceptor.is_some(),
        });
        let router = router(&front, mcp);
        serve(listener, &front, router, acceptor, Arc::new(places)).await
    })
}

/// Reads what the worker has handed over.
fn handed() -> io::Result<Handed> {
    let handed = descriptor::inherited(HANDED)?;
    let text = descriptor::read_from_start(handed.as_fd(), HANDED_BYTES_MAX)?;
    Ok(serde_json::from_slice(&text)?)
}

async fn serve(
    listener: TcpListener,
    front: &Front,
    router: Router,
    acceptor: Option<TlsAcceptor>,
    places: Arc<Semaphore>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        let place = place.map_err(io::Error::other)?;
        let connection = tokio::select! {
            accepted = listener.accept() => accepted,
            // Without a worker there is nobody to ask.
            () = front.dial.closed() => return Ok(()),
        };
        let Ok((connection, _)) = connection else {
            // Without descriptors: others end.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let _ = connection.set_nodelay(true);
        let (router, acceptor) = (router.clone(), acceptor.clone());
        tokio::spawn(async move {
            let _place = place;
            // Whoever has gone is told nothing.
            match acceptor {
                None => connected(connection, router, false).await,
                Some(acceptor) => {
                    let accepted = timeout(HEAD_WITHIN, acceptor.accept(connection)).await;
                    if let Ok(Ok(connection)) = accepted {
                        let is_h2 = connection.get_ref().1.alpn_protocol() == Some(b"h2");
                        connected(connection, router, is_h2).await;
                    }
                }
            }
        });
    }
}

/// Returns what answers every request.
fn router(front: &Arc<Front>, access: McpAccess) -> Router {
    let state = Routes {
        mcp: mcp::Mcp::new(front, access),
        api: api::router(front),
        front: Arc::clone(front),
    };
    Router::new().fallback(dispatch).with_state(state)
}

/// Answers the requests of one connection.
async fn connected(
    connection: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    is_h2: bool,
) {
    // One that says nothing has its place for no longer than one that says too little.
    let mut connection = BufReader::with_capacity(FIRST_BYTES, Timed::new(connection));
    match timeout(HEAD_WITHIN, connection.fill_buf()).await {
        Ok(Ok([_, ..])) => {}
        Ok(_) | Err(_) => return,
    }
    let service = TowerToHyperService::new(router);
    let connection = TokioIo::new(connection);
    // Whoever has gone is told nothing.
    if is_h2 {
        let server = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .max_concurrent_streams(STREAMS_MAX)
            .keep_alive_interval(HEAD_WITHIN)
            .serve_connection(connection, service);
        let _ = server.await;
    } else {
        let server = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(connection, service)
            .with_upgrades();
        let _ = server.await;
    }
}

/// Answers one request.
async fn dispatch(State(routes): State<Routes>, request: Request<Body>) -> Response {
    let target = Target::of(request.headers(), request.uri());
    let told = target.told(request.uri());
    let trace = Trace::begin(request.headers(), request.method(), told);
    let is_logged = routes.front.is_logged;
    let (headers, uri) = (request.headers(), request.uri());
    let (credential, sandbox) = target.sender(headers, uri);
    let sender = Sender::new(&routes.front, credential, sandbox, headers, uri);
    let answer = sender.within(answer(routes, target, request));
    trace.within(is_logged, answer).await
}

async fn answer(routes: Routes, target: Target, request: Request<Body>) -> Response {
    let front = routes.front;
    match target {
        Target::Own => match routes.api.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        },
        Target::Control => control::answer(&front, request).await,
        Target::Mcp => routes.mcp.answer(&front, request).await,
        Target::McpMetadata => routes.mcp.metadata(request.headers(), front.is_secure),
        Target::Jupyter => jupyter::answer(&front, request).await,
        Target::LibreChat => librechat::answer(&front, request).await,
        Target::OpenSandbox => opensandbox::answer(&front, request).await,
        Target::Signed => transfer::answer(&front, None, request).await,
        Target::Sandbox { id, port } if port == ENVD_PORT => {
            envd::answer(&front, &id, request).await
        }
        Target::Sandbox { id, port } => port::answer(&front, &id, port, request).await,
    }
}

/// The target of a request.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// The API for sandboxes, in E2B's form.
    Control,
    /// Atoll's own API.
    Own,
    /// Jupyter's API.
    Jupyter,
    /// LibreChat's code API.
    LibreChat,
    /// Tools over MCP.
    Mcp,
    /// The description of that for OAuth clients.
    McpMetadata,
    /// OpenSandbox' API.
    OpenSandbox,
    /// A file of a sandbox that the signature finds.
    Signed,
    /// A port of a sandbox.
    Sandbox { id: String, port: u16 },
}

impl Target {
    /// Returns what a log says of it.
    fn told(&self, uri: &Uri) -> String {
        match self {
            Self::Control
            | Self::Own
            | Self::Jupyter
            | Self::LibreChat
            | Self::Mcp
            | Self::McpMetadata
            | Self::OpenSandbox
            | Self::Signed => uri.path().to_owned(),
            Self::Sandbox { id, port } if *port == ENVD_PORT => format!("{id}{}", uri.path()),
            Self::Sandbox { id, port } => format!("{id}:{port}"),
        }
    }

    /// Returns who sends a request, and the sandbox that it is for, if its head tells that.
    fn sender(&self, headers: &HeaderMap, uri: &Uri) -> (Credential, Option<String>) {
        match self {
            Self::Control | Self::Own | Self::LibreChat | Self::Mcp | Self::McpMetadata => {
                (credential(headers), None)
            }
            Self::Jupyter => (jupyter::credential(headers, uri), None),
            Self::OpenSandbox => opensandbox::sender(headers, uri.path()),
            Self::Signed => (transfer::credential(headers, uri), None),
            Self::Sandbox {
                id,
                port: ENVD_PORT,
            } if uri.path() == "/files" => (transfer::credential(headers, uri), Some(id.clone())),
            Self::Sandbox { id, .. } => (token(headers), Some(id.clone())),
        }
    }

    fn of(headers: &HeaderMap, uri: &Uri) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        if headers.contains_key("e2b-sandbox-id") {
            // One that is no text is that of no sandbox.
            let id = text("e2b-sandbox-id").unwrap_or_default();
            let port = text("e2b-sandbox-port").and_then(|port| port.parse().ok());
            return Self::Sandbox {
                id: plain_id(id),
                port: port.unwrap_or(ENVD_PORT),
            };
        }
        if let Some((id, port)) = authority(headers, uri).and_then(in_host) {
            return Self::Sandbox { id, port };
        }
        let is_signed = uri
            .query()
            .is_some_and(|query| query.contains("signature="));
        match uri.path() {
            "/files" if is_signed => Self::Signed,
            mcp::PATH => Self::Mcp,
            path if path.starts_with(mcp::METADATA) => Self::McpMetadata,
            path if path.starts_with("/v1/") => Self::Own,
            path if path.starts_with(jupyter::PREFIX) => Self::Jupyter,
            path if path.starts_with(librechat::PREFIX) => Self::LibreChat,
            path if path.starts_with(opensandbox::PREFIX) => Self::OpenSandbox,
            _ => Self::Control,
        }
    }
}

/// Reads a host name of the form `{port}-{id}.{domain}`.
fn in_host(host: &str) -> Option<(String, u16)> {
    let (first, _) = host.split_once('.')?;
    let (port, id) = first.split_once('-')?;
    let is_id = id.len() == 21
        && id
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    match port.parse() {
        Ok(port @ 1..) if is_id => Some((id.to_owned(), port)),
        _ => None,
    }
}
