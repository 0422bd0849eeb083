//! Tools over MCP's Streamable HTTP, at `/mcp`. A session belongs to whoever began it: its id alone
//! opens nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atoll_tools::{ChangedLists, Form};
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use axum::response::Response;
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc::UnboundedSender;

use super::answers::{answer_json, header_of, whole};
use super::ask::{Front, Next};
use super::caller::Caller;
use super::senders::credential;
use crate::mcp::{MESSAGE_BYTES_MAX, Server, ToolCall, Toolbox, Watch, is_clear, key_of};
use crate::protocol::{
    CallTool, CallToolAsk, CallerFacts, Credential, EndToolSession, Identify, Kind, ListTools,
    MayCall, MayFacts, ReadResult, Refusal, ResultPart, ToolFacts, ToolReply, WatchTools,
};
use crate::started::McpAccess;

/// The path of the endpoint.
pub(super) const PATH: &str = "/mcp";
/// The path of what OAuth clients are told about it (RFC 9728).
pub(super) const METADATA: &str = "/.well-known/oauth-protected-resource";
/// The header of a session.
const SESSION: &str = "mcp-session-id";
/// The most sessions whose owners are remembered before those that have ended are forgotten.
const SESSIONS_KEPT: usize = 4_096;
/// The time for which a key's caller is known.
const KNOWN: Duration = Duration::from_secs(10);
/// The time after which a session ends in which nothing is said.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// JSON-RPC's codes of messages that are none, and of requests that are refused.
const INVALID_REQUEST: i32 = -32_600;

/// The endpoint.
pub(super) struct Mcp {
    service: StreamableHttpService<Server<Remote>, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    owners: Mutex<HashMap<String, Owner>>,
    issuers: Vec<String>,
}

/// The owner of a session, as the worker has said.
#[derive(Clone)]
struct Owner {
    facts: CallerFacts,
    /// The digest of the key by which that is known. Tokens end: clients are told in time.
    key: Option<[u8; 32]>,
    since: Instant,
}

impl Mcp {
    pub(super) fn new(front: &Arc<Front>, access: McpAccess) -> Arc<Self> {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(IDLE);
        let sessions = Arc::new(sessions);
        let origins = access.hosts.iter().flat_map(|host| {
            let host = match host.contains(':') {
                true => format!("[{host}]"),
                false => host.clone(),
            };
            [format!("http://{host}:*"), format!("https://{host}:*")]
        });
        let mut configuration = StreamableHttpServerConfig::default()
            .with_allowed_hosts(access.hosts.clone())
            .with_max_request_body_bytes(MESSAGE_BYTES_MAX)
            .enforce_origin_validation();
        configuration.allowed_origins = origins.collect();
        let own = Arc::clone(front);
        let made = move || Ok(Server::new(Remote(Arc::clone(&own))));
        Arc::new(Self {
            service: StreamableHttpService::new(made, Arc::clone(&sessions), configuration),
            sessions,
            owners: Mutex::default(),
            issuers: access.issuers,
        })
    }

    /// Answers a request.
    pub(super) async fn answer(&self, front: &Arc<Front>, request: Request<Body>) -> Response {
        let caller = Caller::new(front, credential(request.headers()));
        let answered = self.answered(&caller, request);
        let (is_secure, headers_of) = (front.is_secure, |error: &Told| error.0.clone());
        match answered.await {
            Ok(response) => response,
            Err(told) => refused(&told.1, &headers_of(&told), is_secure),
        }
    }

    async fn answered(&self, caller: &Caller, request: Request<Body>) -> Result<Response, Told> {
        let (parts, body) = request.into_parts();
        let told = |refusal: Refusal| Told(parts.headers.clone(), refusal);
        let named = header_of(&parts.headers, SESSION).map(str::to_owned);
        let known = named
            .as_ref()
            .and_then(|one| self.owners().get(one).cloned());
        let key = digest(&caller.credential);
        let is_known = |known: &&Owner| {
            parts.method == Method::POST
                && key.is_some()
                && known.key == key
                && known.since.elapsed() < KNOWN
        };
        let owner = match known.as_ref().filter(is_known) {
            // Whatever it has the worker do, the worker looks at the key again.
            Some(known) => known.clone(),
            None => Owner {
                facts: caller.call(Identify {}).await.map_err(told)?,
                key,
                since: Instant::now(),
            },
        };
        if known.is_some_and(|known| known.facts != owner.facts) {
            // As one that is not there.
            let what = "there is no such session";
            return Err(told(Refusal::new(Kind::NotFound, what)));
        }
        if let Some(session) = &named
            && let Some(known) = self.owners().get_mut(session)
        {
            *known = owner.clone();
        }
        let body = whole(body).await.map_err(told)?;
        if parts.method == Method::POST && !is_clear(&body) {
            let what = "the message is not JSON with one reading";
            return Err(told(Refusal::new(Kind::Invalid, what)));
        }
        let ends = parts.method == Method::DELETE;
        let request = Request::from_parts(parts, Body::from(body));
        let mut response = self.service.handle(request).await;
        if ends && response.status() == StatusCode::ACCEPTED {
            // It has ended by now, and clients look for that.
            *response.status_mut() = StatusCode::OK;
        }
        match (&named, header_of(response.headers(), SESSION)) {
            (None, Some(session)) => self.keep(session, owner).await,
            (Some(session), _) if ends && has_ended(response.status()) => {
                self.owners().remove(session);
                let session = session.clone();
                let _ = caller.call(EndToolSession { session }).await;
            }
            (_, _) => {}
        }
        Ok(response.map(Body::new))
    }

    /// Remembers the owner of a session.
    async fn keep(&self, session: &str, owner: Owner) {
        let is_full = self.owners().len() >= SESSIONS_KEPT;
        if is_full {
            let there = self.sessions.sessions.read().await;
            let there: std::collections::HashSet<String> =
                there.keys().map(|one| one.to_string()).collect();
            self.owners().retain(|one, _| there.contains(one));
        }
        self.owners().insert(session.to_owned(), owner);
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<String, Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Describes the endpoint for OAuth clients (RFC 9728).
    pub(super) fn metadata(&self, headers: &HeaderMap, is_secure: bool) -> Response {
        let body = json!({
            "resource": format!("{}{PATH}", base(headers, is_secure)),
            "authorization_servers": self.issuers,
            "bearer_methods_supported": ["header"],
        });
        answer_json(StatusCode::OK, &body)
    }
}

/// Returns the digest of a key, by which the same one is known again; `None` for anything else.
fn digest(credential: &Credential) -> Option<[u8; 32]> {
    match credential {
        Credential::Key(key) if !key.contains('.') => Some(Sha256::digest(key).into()),
        _ => None,
    }
}

/// Returns whether a session is not there any more, by the answer to its end.
fn has_ended(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::NOT_FOUND
}

/// A refusal, with the head of its request.
struct Told(HeaderMap, Refusal);

/// Returns the address by which a client has reached the server.
fn base(headers: &HeaderMap, is_secure: bool) -> String {
    let scheme = if is_secure { "https" } else { "http" };
    let host = header_of(headers, "host").unwrap_or("localhost");
    format!("{scheme}://{host}")
}

/// Answers what does not reach the protocol, as JSON-RPC.
fn refused(refusal: &Refusal, headers: &HeaderMap, is_secure: bool) -> Response {
    let status = match refusal.kind {
        Kind::Unauthenticated => StatusCode::UNAUTHORIZED,
        Kind::Forbidden => StatusCode::FORBIDDEN,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Quota => StatusCode::TOO_MANY_REQUESTS,
        Kind::Unavailable | Kind::Fault => StatusCode::SERVICE_UNAVAILABLE,
        Kind::Invalid | Kind::NoSandbox | Kind::Exists | Kind::NoSpace | Kind::Late => {
            StatusCode::BAD_REQUEST
        }
    };
    let error = json!({ "code": INVALID_REQUEST, "message": refusal.told() });
    let body = json!({ "jsonrpc": "2.0", "id": null, "error": error });
    let mut response = answer_json(status, &body);
    let place = format!(
        "Bearer resource_metadata=\"{}{METADATA}{PATH}\"",
        base(headers, is_secure)
    );
    if let (StatusCode::UNAUTHORIZED, Ok(place)) = (status, HeaderValue::from_str(&place)) {
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, place);
    }
    response
}

/// The tools of a request's caller, as the worker has them.
struct Remote(Arc<Front>);

impl Remote {
    /// Returns the sender of a request, and the session that it names.
    fn sender(&self, of: &RequestContext<RoleServer>) -> (Caller, Option<String>) {
        let parts = of.extensions.get::<Parts>();
        let none = HeaderMap::new();
        let headers = parts.map_or(&none, |parts| &parts.headers);
        let session = header_of(headers, SESSION).map(str::to_owned);
        (Caller::new(&self.0, credential(headers)), session)
    }
}

impl Toolbox for Remote {
    async fn tools(
        &self,
        of: &RequestContext<RoleServer>,
        form: Form,
    ) -> Result<Vec<ToolFacts>, Refusal> {
        let (caller, session) = self.sender(of);
        caller.call(ListTools { session, form }).await
    }

    fn watch(&self, of: &RequestContext<RoleServer>, to: UnboundedSender<ChangedLists>) -> Watch {
        let (caller, session) = self.sender(of);
        Box::pin(async move {
            let Ok(mut line) = caller.begin(WatchTools { session }).await else {
                return;
            };
            let begun = line.reply().await;
            while let (Ok(()), Ok(changed)) = (&begun, line.last().await) {
                if to.send(changed).is_err() {
                    return;
                }
            }
        })
    }

    async fn call(
        &self,
        of: &RequestContext<RoleServer>,
        call: ToolCall,
    ) -> Result<ToolReply, Refusal> {
        // Callers of a server do not approve their own calls: the worker asks who may.
        if let Some(Ok(_)) = call.agreed {
            return Err(Refusal::new(Kind::Forbidden, "a caller approves no call"));
        }
        let (caller, session) = self.sender(of);
        let listener = call.listener;
        let ask = CallTool(Box::new(CallToolAsk {
            session,
            name: call.name,
            arguments: call.arguments,
            key: key_of(of),
            listens: listener.is_some(),
            answers: call.answers,
            askable: call.askable,
        }));
        let mut line = caller.begin(ask).await?;
        loop {
            let next = tokio::select! {
                next = line.reply_or_content() => next?,
                // The worker ends the call when the line is closed.
                () = of.ct.cancelled() => {
                    return Err(Refusal::new(Kind::Late, "the caller has ended it"));
                }
            };
            match next {
                Next::Message(reply) => return Ok(reply),
                Next::Content(_, said) => {
                    if let (Some(to), Ok(said)) = (&listener, serde_json::from_slice(&said)) {
                        let _ = to.send(said);
                    }
                }
            }
        }
    }

    async fn read(
        &self,
        of: &RequestContext<RoleServer>,
        call: u32,
        from: usize,
    ) -> Result<ResultPart, Refusal> {
        let (caller, session) = self.sender(of);
        let ask = ReadResult {
            session,
            call,
            from,
        };
        caller.call(ask).await
    }

    async fn may(
        &self,
        of: &RequestContext<RoleServer>,
        name: &str,
        arguments: &str,
    ) -> Result<MayFacts, Refusal> {
        let (caller, session) = self.sender(of);
        let (name, arguments) = (name.to_owned(), arguments.to_owned());
        let ask = MayCall {
            session,
            name,
            arguments,
        };
        caller.call(ask).await
    }
}
