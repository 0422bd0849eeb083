//! The client process of an upstream: it alone parses what the upstream says, and has no rights but
//! three descriptors: what the upstream writes, what it reads, and the line to its session.

use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use atoll_sys::descriptor;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientConfig, Implementation, ProtocolVersion, Tool,
};
use rmcp::service::{ClientLifecycleMode, NotificationContext, Peer, serve_client_with_lifecycle};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientHandler, RoleClient};
use serde_json::Value;
use tokio::net::unix::pipe;
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
        let client = Client { news: news.clone() };
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
        let served = match tokio::time::timeout(BEGINS_WITHIN, began).await {
            Ok(Ok(served)) => served,
            Ok(Err(error)) => return Ok::<_, io::Error>(failed(error.to_string())),
            Err(_) => return Ok(failed("it does not begin in time".to_owned())),
        };
        let peer = served.peer().clone();
        offer(&peer, &news).await;
        tokio::select! {
            () = follow(given, peer, news.clone()) => {}
            _ = served.waiting() => failed("it has ended".to_owned()),
        }
        Ok(())
    })?;
    drop((runtime, news));
    let _ = writer.join();
    Ok(())
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
    let listed = tokio::time::timeout(BEGINS_WITHIN, peer.list_all_tools()).await;
    let _ = news.send(match listed {
        Ok(Ok(tools)) if tools.len() <= OFFERED_MAX => {
            News::Offered(tools.into_iter().map(offered).collect())
        }
        Ok(Ok(tools)) => News::Failed {
            why: format!("it offers {} tools, and {OFFERED_MAX} at most", tools.len()),
        },
        Ok(Err(error)) => News::Failed {
            why: error.to_string(),
        },
        Err(_) => News::Failed {
            why: "it does not list its tools in time".to_owned(),
        },
    });
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
struct Client {
    news: Sender<News>,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let mut own = ClientConfig::default();
        own.client_info = Implementation::new("atoll", env!("CARGO_PKG_VERSION"));
        own
    }

    async fn on_tool_list_changed(&self, context: NotificationContext<RoleClient>) {
        offer(&context.peer, &self.news).await;
    }
}
