//! MCP with an upstream, over the standard streams of its program or over HTTP.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientConfig, Implementation, PaginatedRequestParams,
    ProtocolVersion, Tool,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, NotificationContext, Peer,
    serve_client_with_lifecycle,
};
use rmcp::transport::IntoTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientHandler, RoleClient, ServiceError};
use serde_json::{Map, Value};
use tokio::net::unix::pipe;
use tokio::sync::Notify;

use super::{Orders, Pipes, follow};
use crate::block::Block;
use crate::upstream::frames::{BLOCKS_MAX, FRAME_BYTES_MAX, Given, News, OFFERED_MAX, Offered};

/// The most pages of a list of tools.
const PAGES_MAX: usize = 64;
/// The longest time for an upstream to begin, and to list its tools.
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
    let changed = Arc::new(Notify::new());
    let client = Client(Arc::clone(&changed));
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
    let call = |name, arguments| {
        let peer = peer.clone();
        async move { call(&peer, name, arguments).await }
    };
    tokio::select! {
        () = follow(orders, news, call) => {}
        () = again => {}
        _ = served.waiting() => failed("it has ended".to_owned()),
    }
}

/// Calls a tool. A call that is dropped tells the upstream that it was cancelled.
async fn call(
    peer: &Peer<RoleClient>,
    name: String,
    arguments: Map<String, Value>,
) -> Option<Result<Given, String>> {
    let params = CallToolRequestParams::new(name).with_arguments(arguments);
    match peer.call_tool_once(params).await {
        Ok(response) => Some(described(response)),
        // That it has ended is told once, and to everybody.
        Err(ServiceError::TransportClosed) => None,
        Err(error) => Some(Err(error.to_string())),
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

fn described(response: CallToolResponse) -> Result<Given, String> {
    let CallToolResponse::Complete(result) = response else {
        return Err("it asks for what no client of its tools can give".to_owned());
    };
    let blocks = serde_json::to_value(&result.content)
        .and_then(serde_json::from_value::<Vec<Block>>)
        .ok()
        .filter(|blocks| blocks.len() <= BLOCKS_MAX);
    let none = || "its result has parts of unknown kinds, or too many".to_owned();
    Ok(Given {
        blocks: blocks.ok_or_else(none)?,
        structured: result.structured_content,
        is_error: result.is_error.unwrap_or(false),
        sent: None,
    })
}

/// Tells which tools the upstream offers.
async fn offer(peer: &Peer<RoleClient>, news: &Sender<News>) {
    peer.set_response_cache_config(disabled_cache()).await;
    let listed = tokio::time::timeout(BEGINS_WITHIN, list(peer)).await;
    let listed = listed.unwrap_or_else(|_| Err("it does not list its tools in time".to_owned()));
    let _ = news.send(match listed {
        Ok(tools) => News::Offered(tools),
        Err(why) => News::Failed { why },
    });
}

/// Lists its tools, page by page, until there are more than any session takes.
async fn list(peer: &Peer<RoleClient>) -> Result<Vec<Offered>, String> {
    let (mut all, mut bytes, mut cursor) = (Vec::new(), 0, None);
    for _ in 0..PAGES_MAX {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let page = peer.list_tools(Some(params)).await;
        let page = page.map_err(|error| error.to_string())?;
        all.extend(page.tools.into_iter().map(offered));
        let length = serde_json::to_vec(&all).map_err(|error| error.to_string())?;
        bytes += length.len();
        if all.len() > OFFERED_MAX || bytes > FRAME_BYTES_MAX {
            return Err(format!(
                "it offers more than {OFFERED_MAX} tools, or {FRAME_BYTES_MAX} bytes of them"
            ));
        }
        match page.next_cursor {
            None => return Ok(all),
            next => cursor = next,
        }
    }
    Err(format!("it lists its tools on more than {PAGES_MAX} pages"))
}

fn disabled_cache() -> rmcp::service::ClientCacheConfig {
    let mut cache = rmcp::service::ClientCacheConfig::default();
    cache.enabled = false;
    cache
}

fn offered(tool: Tool) -> Offered {
    Offered {
        name: tool.name.into_owned(),
        title: tool.title,
        description: tool.description.map(std::borrow::Cow::into_owned),
        arguments: Value::Object((*tool.input_schema).clone()),
        result: tool.output_schema.map(|one| Value::Object((*one).clone())),
    }
}

/// The client, to its upstream: it declares nothing that an upstream could ask for.
struct Client(Arc<Notify>);

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let mut own = ClientConfig::default();
        own.client_info = Implementation::new("atoll", env!("CARGO_PKG_VERSION"));
        own
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.notify_one();
    }
}
