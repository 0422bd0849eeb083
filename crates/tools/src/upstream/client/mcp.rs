//! MCP with an upstream, over the standard streams of its program or over HTTP.

#![expect(
    deprecated,
    reason = "servers of all revisions before 2026-07-28 have logs"
)]

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig,
    ClientRequest, GetPromptRequest, GetPromptRequestParams, GetPromptResult, Implementation,
    LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken,
    ProtocolVersion, ReadResourceRequest, ReadResourceRequestParams, ReadResourceResult,
    RequestMetaObject, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, NotificationContext, Peer, PeerRequestOptions,
    RequestHandle, serve_client_with_lifecycle,
};
use rmcp::transport::IntoTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientHandler, RoleClient, ServiceError};
use serde_json::{Map, Value, json};
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::listing::offer;
use super::{Called, Orders, Pipes, follow};
use crate::block::Block;
use crate::upstream::frames::{
    Askable, Asks, BLOCKS_MAX, FRAME_BYTES_MAX, Form, Given, News, Said,
};

/// The longest time for an upstream to begin.
const BEGINS_WITHIN: Duration = Duration::from_secs(30);

/// Speaks with a program, by what it writes and reads.
pub(super) async fn speak_by_pipes(
    pipes: Pipes,
    orders: Orders,
    news: &Sender<News>,
) -> io::Result<()> {
    // Pipes: that they are, nobody may look at here.
    let from = pipe::Receiver::from_owned_fd_unchecked(pipes.from)?;
    let to = pipe::Sender::from_owned_fd_unchecked(pipes.to)?;
    let transport = AsyncRwTransport::new_client(from, to);
    speak(
        transport.with_max_line_length(FRAME_BYTES_MAX),
        orders,
        news,
        || None,
    )
    .await;
    Ok(())
}

/// Speaks over a transport, until it has ended or nobody gives orders any more. `why` tells why
/// nothing could be sent, if that is known.
pub(super) async fn speak<T, E, A>(
    transport: T,
    orders: Orders,
    news: &Sender<News>,
    why: impl Fn() -> Option<String>,
) where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let (changed, calls) = (Arc::new(Notify::new()), Calls::default());
    let client = Client {
        changed: Arc::clone(&changed),
        calls: Arc::clone(&calls),
        news: news.clone(),
    };
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: None,
    };
    let began = serve_client_with_lifecycle(client, transport, lifecycle);
    let failed = |why: String| {
        let _ = news.send(News::Failed { why });
    };
    let began = tokio::time::timeout(BEGINS_WITHIN, began).await;
    let began = began.map_err(|_| "it does not begin in time".to_owned());
    let served = match began.and_then(|began| began.map_err(|error| not_begun(&error, why()))) {
        Ok(served) => served,
        Err(why) => return failed(why),
    };
    let peer = served.peer().clone();
    offer(&peer, news).await;
    let of = peer.clone();
    // However often it says that they have changed, they are listed one time after another.
    let again = async {
        loop {
            changed.notified().await;
            offer(&of, news).await;
        }
    };
    let call = |called| {
        let (peer, calls) = (peer.clone(), Arc::clone(&calls));
        async move { call(&peer, calls, called).await }
    };
    tokio::select! {
        () = follow(orders, news, call) => {}
        () = again => {}
        _ = served.waiting() => failed("it has ended".to_owned()),
    }
}

/// The calls under way, by the tokens of their progress.
type Calls = Arc<Mutex<HashMap<ProgressToken, u64>>>;

/// A call under way. One that is dropped tells the upstream that it was cancelled.
struct UnderWay {
    request: Option<RequestHandle<RoleClient>>,
    token: ProgressToken,
    calls: Calls,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        locked(&self.calls).remove(&self.token);
        if let (Some(request), Ok(runtime)) = (self.request.take(), Handle::try_current()) {
            runtime.spawn(request.cancel(None));
        }
    }
}

fn locked<T>(one: &Mutex<T>) -> MutexGuard<'_, T> {
    one.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the request of a call.
fn request(called: Called) -> ClientRequest {
    let Called {
        name, arguments, ..
    } = called;
    let (responses, state) = match called.answers {
        Some(answers) => (Some(answers.responses.into_iter().collect()), answers.state),
        None => (None, None),
    };
    match called.form {
        Form::Tool => {
            let mut params = CallToolRequestParams::new(name).with_arguments(arguments);
            (params.input_responses, params.request_state) = (responses, state);
            ClientRequest::CallToolRequest(CallToolRequest::new(params))
        }
        Form::Prompt => {
            let mut params = GetPromptRequestParams::new(name).with_arguments(arguments);
            (params.input_responses, params.request_state) = (responses, state);
            ClientRequest::GetPromptRequest(GetPromptRequest::new(params))
        }
        Form::Resource | Form::Template => {
            let mut params = ReadResourceRequestParams::new(name);
            (params.input_responses, params.request_state) = (responses, state);
            ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params))
        }
    }
}

/// Says beside a call what its caller can be asked, and whether anybody reads a log, where the
/// revision of the upstream has that.
fn meta(peer: &Peer<RoleClient>, called: &Called) -> RequestMetaObject {
    let mut meta = RequestMetaObject::new();
    let server = peer.peer_info();
    let revision = server.as_ref().map(|server| &server.protocol_version);
    if revision.is_some_and(|one| *one >= ProtocolVersion::V_2026_07_28) {
        let Askable {
            elicitation,
            sampling,
            roots,
        } = called.askable;
        let mut able = ClientCapabilities::default();
        able.elicitation = elicitation.then(Default::default);
        able.sampling = sampling.then(Default::default);
        able.roots = roots.then(Default::default);
        meta.set_client_capabilities(able);
        if called.listens {
            meta.set_log_level(LoggingLevel::Debug);
        }
    }
    meta
}

/// Calls a tool, gets a prompt or reads a resource.
async fn call(
    peer: &Peer<RoleClient>,
    calls: Calls,
    called: Called,
) -> Option<Result<Given, String>> {
    let (id, form) = (called.id, called.form);
    let options = PeerRequestOptions::no_options().with_meta(meta(peer, &called));
    let sent = peer.send_cancellable_request(request(called), options);
    let request = match sent.await {
        Ok(request) => request,
        Err(error) => return unanswered(&error),
    };
    let token = request.progress_token.clone();
    locked(&calls).insert(token.clone(), id);
    let mut under_way = UnderWay {
        request: Some(request),
        token,
        calls,
    };
    let answer = (&mut under_way.request.as_mut()?.rx).await;
    // Nothing is left to be cancelled.
    under_way.request = None;
    match answer {
        Ok(Ok(result)) => Some(described(form, result)),
        Ok(Err(error)) => unanswered(&error),
        Err(_) => None,
    }
}

/// Says why there is no answer; that the upstream has ended is told once, and to everybody.
fn unanswered(error: &ServiceError) -> Option<Result<Given, String>> {
    match error {
        ServiceError::TransportClosed => None,
        error => Some(Err(error.to_string())),
    }
}

/// Says why nobody speaks MCP there.
fn not_begun(error: &ClientInitializeError, why: Option<String>) -> String {
    let ended = || "it has ended before it spoke MCP".to_owned();
    match error {
        ClientInitializeError::ConnectionClosed(_)
        | ClientInitializeError::TransportError { .. } => why.unwrap_or_else(ended),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => not_begun(fallback, why),
        error => error.to_string(),
    }
}

fn described(form: Form, result: ServerResult) -> Result<Given, String> {
    match (form, result) {
        (Form::Tool, ServerResult::CallToolResult(result)) => of_tool(result),
        // Without content.
        (Form::Tool, ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_)) => {
            of_tool(CallToolResult::default())
        }
        (Form::Prompt, ServerResult::GetPromptResult(result)) => of_prompt(result),
        (Form::Resource | Form::Template, ServerResult::ReadResourceResult(result)) => {
            of_resource(result)
        }
        (_, ServerResult::InputRequiredResult(asked)) => Ok(Given {
            asks: Some(Asks {
                requests: match json!(asked.input_requests) {
                    Value::Object(requests) => requests,
                    _ => Map::new(),
                },
                state: asked.request_state,
                undeclared: Askable::default(),
            }),
            ..Given::of(Vec::new())
        }),
        _ => Err("its answer is none to what was asked".to_owned()),
    }
}

fn of_tool(result: CallToolResult) -> Result<Given, String> {
    Ok(Given {
        structured: result.structured_content,
        is_error: result.is_error.unwrap_or(false),
        ..Given::of(blocks(json!(result.content))?)
    })
}

/// Describes a prompt: the contents of its messages, and beside them who speaks.
fn of_prompt(result: GetPromptResult) -> Result<Given, String> {
    let roles: Vec<Value> = result.messages.iter().map(|one| json!(one.role)).collect();
    let contents = result.messages.into_iter().map(|one| json!(one.content));
    Ok(Given {
        structured: Some(json!({ "description": result.description, "roles": roles })),
        ..Given::of(blocks(contents.collect())?)
    })
}

fn of_resource(result: ReadResourceResult) -> Result<Given, String> {
    let contents = result.contents.iter();
    let contents = contents.map(|one| json!({ "type": "resource", "resource": one }));
    Ok(Given::of(blocks(contents.collect())?))
}

fn blocks(contents: Value) -> Result<Vec<Block>, String> {
    let blocks = serde_json::from_value::<Vec<Block>>(contents).ok();
    let none = || "its result has parts of unknown kinds, or too many".to_owned();
    blocks
        .filter(|blocks| blocks.len() <= BLOCKS_MAX)
        .ok_or_else(none)
}

/// The client, to its upstream: it declares nothing that an upstream could ask for. What the caller of
/// a call can be asked is said beside it.
struct Client {
    changed: Arc<Notify>,
    calls: Calls,
    news: Sender<News>,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let mut own = ClientConfig::default();
        own.client_info = Implementation::new("atoll", env!("CARGO_PKG_VERSION"));
        own
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    async fn on_progress(
        &self,
        progress: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let call = locked(&self.calls).get(&progress.progress_token).copied();
        if let Some(id) = call {
            let said = Said::Progress {
                progress: progress.progress,
                total: progress.total,
                message: progress.message,
            };
            let _ = self.news.send(News::Said { id, said });
        }
    }

    /// A message is of every call under way: it does not say of which.
    async fn on_logging_message(
        &self,
        message: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let calls: Vec<u64> = locked(&self.calls).values().copied().collect();
        for id in calls {
            let said = Said::Log {
                level: json!(message.level).as_str().unwrap_or_default().to_owned(),
                logger: message.logger.clone(),
                data: message.data.clone(),
            };
            let _ = self.news.send(News::Said { id, said });
        }
    }
}
