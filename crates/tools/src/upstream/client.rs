//! The client process of an upstream: it alone parses what the upstream says, and has no rights but
//! three descriptors: what the upstream writes, what it reads, and the line to its session.

use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use atoll_sys::descriptor;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientConfig, Implementation, PaginatedRequestParams,
    ProtocolVersion, Tool,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, NotificationContext, Peer,
    serve_client_with_lifecycle,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientHandler, RoleClient, ServiceError};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::Value;
use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

use super::frames::{BLOCKS_MAX, FRAME_BYTES_MAX, News, OFFERED_MAX, Offered, Order, read, write};
use crate::block::Block;

/// The name of the process.
pub const CLIENT: &CStr = c"atoll-mcp-client";
/// The descriptors that it begins with.
const FROM: i32 = 3;
const TO: i32 = 4;
const LINE: i32 = 5;
/// The largest address space of the process, bytes.
const MEMORY_MAX: u64 = 1 << 30;
/// The most pages of a list of tools.
const PAGES_MAX: usize = 64;
/// The longest time for an upstream to begin, and to list its tools.
const BEGINS_WITHIN: Duration = Duration::from_secs(30);

/// Carries out the role of the client. Returns the exit status.
#[must_use]
pub fn client_program() -> u8 {
    match run() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("atoll: the client of an upstream cannot go on: {error}");
            1
        }
    }
}

fn run() -> io::Result<()> {
    atoll_sys::process::set_name(CLIENT)?;
    let (from, to) = (descriptor::inherited(FROM)?, descriptor::inherited(TO)?);
    let line = UnixStream::from(descriptor::inherited(LINE)?);
    descriptor::never_block(from.as_fd())?;
    descriptor::never_block(to.as_fd())?;
    let most = Rlimit {
        current: Some(MEMORY_MAX),
        maximum: Some(MEMORY_MAX),
    };
    setrlimit(Resource::As, most)?;
    crate::confined::confine("mcp-client-filter")?;
    let (news, told) = channel();
    let (orders, given) = unbounded_channel();
    let mut writing = line.try_clone()?;
    // Blocking reads and writes of the line have threads of their own.
    let writer = std::thread::spawn(move || write_all(&told, &mut writing));
    std::thread::spawn(move || read_all(line, &orders));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // Pipes: that they are, nobody may look at here.
        let from = pipe::Receiver::from_owned_fd_unchecked(from)?;
        let to = pipe::Sender::from_owned_fd_unchecked(to)?;
        let changed = Arc::new(Notify::new());
        let client = Client(Arc::clone(&changed));
        let transport = AsyncRwTransport::new_client(from, to);
        let transport = transport.with_max_line_length(FRAME_BYTES_MAX);
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
        let served = match began.and_then(|began| began.map_err(|error| not_begun(&error))) {
            Ok(served) => served,
            Err(why) => {
                failed(why);
                return Ok::<_, io::Error>(());
            }
        };
        let peer = served.peer().clone();
        offer(&peer, &news).await;
        let (offers, of) = (news.clone(), peer.clone());
        // However often it says that they have changed, they are listed one time after another.
        let again = async move {
            loop {
                changed.notified().await;
                offer(&of, &offers).await;
            }
        };
        tokio::select! {
            () = follow(given, peer, news.clone()) => {}
            () = again => {}
            _ = served.waiting() => failed("it has ended".to_owned()),
        }
        Ok(())
    })?;
    drop((runtime, news));
    let _ = writer.join();
    Ok(())
}

/// Says why nobody speaks MCP there.
fn not_begun(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_)
        | ClientInitializeError::TransportError { .. } => {
            "it has ended before it spoke MCP".to_owned()
        }
        error => error.to_string(),
    }
}

fn write_all(told: &Receiver<News>, to: &mut UnixStream) {
    while let Ok(news) = told.recv() {
        let id = match &news {
            News::Result { id, .. } => Some(*id),
            News::Offered(_) | News::Failed { .. } | News::Error { .. } => None,
        };
        let written = match (write(to, &news), id) {
            // A result that is too long for any session.
            (Err(error), Some(id)) if error.kind() == io::ErrorKind::InvalidData => {
                let why = "its result is too large".to_owned();
                write(to, &News::Error { id, why })
            }
            (written, _) => written,
        };
        if written.is_err() {
            return;
        }
    }
}

fn read_all(mut from: UnixStream, to: &UnboundedSender<Order>) {
    while let Ok(Some(order)) = read(&mut from) {
        if to.send(order).is_err() {
            return;
        }
    }
}

/// Carries out orders, until there is nobody to give one.
async fn follow(
    mut given: tokio::sync::mpsc::UnboundedReceiver<Order>,
    peer: Peer<RoleClient>,
    news: Sender<News>,
) {
    let mut calls = HashMap::<u64, AbortHandle>::new();
    while let Some(order) = given.recv().await {
        calls.retain(|_, call| !call.is_finished());
        match order {
            Order::Call {
                id,
                name,
                arguments,
            } => {
                let (peer, news) = (peer.clone(), news.clone());
                let params = CallToolRequestParams::new(name).with_arguments(arguments);
                // One that is dropped tells the upstream that it was cancelled.
                let call = tokio::spawn(async move {
                    let result = peer.call_tool_once(params).await;
                    let told = match result {
                        Ok(response) => described(id, response),
                        // That it has ended is told once, and to everybody.
                        Err(ServiceError::TransportClosed) => return,
                        Err(error) => News::Error {
                            id,
                            why: error.to_string(),
                        },
                    };
                    let _ = news.send(told);
                });
                calls.insert(id, call.abort_handle());
            }
            Order::Cancel { id } => {
                if let Some(call) = calls.remove(&id) {
                    call.abort();
                    let why = "its caller ended it".to_owned();
                    let _ = news.send(News::Error { id, why });
                }
            }
        }
    }
}

fn described(id: u64, response: CallToolResponse) -> News {
    let result = match response {
        CallToolResponse::Complete(result) => result,
        _ => {
            let why = "it asks for what no client of its tools can give".to_owned();
            return News::Error { id, why };
        }
    };
    let blocks = serde_json::to_value(&result.content)
        .and_then(serde_json::from_value::<Vec<Block>>)
        .ok()
        .filter(|blocks| blocks.len() <= BLOCKS_MAX);
    match blocks {
        Some(blocks) => News::Result {
            id,
            blocks,
            structured: result.structured_content,
            is_error: result.is_error.unwrap_or(false),
        },
        None => News::Error {
            id,
            why: "its result has parts of unknown kinds, or too many".to_owned(),
        },
    }
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
