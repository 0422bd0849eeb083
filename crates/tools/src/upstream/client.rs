//! The client process of an upstream: it alone parses what the upstream says, and has no rights but
//! its descriptors: what the upstream's program writes and reads, the line to its session, and one
//! by which the session connects it with the upstream's place.

mod dial;
mod http;
mod listing;
mod mcp;
mod service;
mod sql;

use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};

use atoll_sys::descriptor;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::{Map, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

use super::frames::{Answers, Askable, Form, Given, News, Order, Speak, read, write};
use dial::Dialer;
use service::Service;

/// The name of the process.
pub const CLIENT: &CStr = c"atoll-tool-client";
/// The descriptors that it begins with.
const FROM: i32 = 3;
const TO: i32 = 4;
const LINE: i32 = 5;
const DIAL: i32 = 6;
/// The largest address space of the process, bytes.
const MEMORY_MAX: u64 = 1 << 30;

/// The standard streams of an upstream's program.
struct Pipes {
    /// Its output.
    from: OwnedFd,
    /// Its input.
    to: OwnedFd,
}

/// A call that is ordered.
struct Called {
    id: u64,
    form: Form,
    name: String,
    arguments: Map<String, Value>,
    answers: Option<Answers>,
    askable: Askable,
    listens: bool,
}

/// The orders of the session.
type Orders = UnboundedReceiver<Order>;

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
    let pipes = Pipes {
        from: descriptor::inherited(FROM)?,
        to: descriptor::inherited(TO)?,
    };
    let mut line = UnixStream::from(descriptor::inherited(LINE)?);
    let dialer = Dialer::new(descriptor::inherited(DIAL)?);
    descriptor::never_block(pipes.from.as_fd())?;
    descriptor::never_block(pipes.to.as_fd())?;
    let most = Rlimit {
        current: Some(MEMORY_MAX),
        maximum: Some(MEMORY_MAX),
    };
    setrlimit(Resource::As, most)?;
    crate::confined::confine("tool-client-filter")?;
    let Some(speak) = read::<Speak>(&mut line)? else {
        return Ok(());
    };
    let (news, told) = channel();
    let (sender, orders) = unbounded_channel();
    let mut writing = line.try_clone()?;
    // Blocking reads and writes of the line have threads of their own.
    let writer = std::thread::spawn(move || write_all(&told, &mut writing));
    std::thread::spawn(move || read_all(line, &sender));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match speak {
            Speak::Mcp => mcp::speak_by_pipes(pipes, orders, &news).await?,
            Speak::McpByHttp { url, trust } => {
                let (transport, client) = http::transport(dialer, &url, &trust)?;
                mcp::speak(transport, orders, &news, || client.not_sent()).await;
            }
            Speak::Http(trust) => {
                let _ = news.send(News::Offered(Vec::new()));
                let service = Service::new(dialer, trust)?;
                let call = |called: Called| service.clone().answer(called.arguments);
                follow(orders, &news, call).await;
            }
            Speak::Sql(database) => sql::speak(database, dialer, pipes, orders, &news).await?,
        }
        Ok::<_, io::Error>(())
    })?;
    drop((runtime, news));
    let _ = writer.join();
    Ok(())
}

fn write_all(told: &Receiver<News>, to: &mut UnixStream) {
    while let Ok(news) = told.recv() {
        let id = match &news {
            News::Result { id, .. } => Some(*id),
            News::Offered(_) | News::Failed { .. } | News::Said { .. } | News::Error { .. } => None,
        };
        let written = match (write(to, &news), id) {
            // Words that are too long for any session.
            (Err(error), None) if error.kind() == io::ErrorKind::InvalidData => match news {
                News::Said { .. } => Ok(()),
                _ => Err(error),
            },
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

/// Carries out orders, until there is nobody to give one. A call without an answer is one of an
/// upstream that has ended.
async fn follow<F>(mut orders: Orders, news: &Sender<News>, call: impl Fn(Called) -> F)
where
    F: Future<Output = Option<Result<Given, String>>> + Send + 'static,
{
    let mut calls = HashMap::<u64, AbortHandle>::new();
    while let Some(order) = orders.recv().await {
        calls.retain(|_, call| !call.is_finished());
        match order {
            Order::Call {
                id,
                form,
                name,
                arguments,
                answers,
                askable,
                listens,
            } => {
                let called = Called {
                    id,
                    form,
                    name,
                    arguments,
                    answers,
                    askable,
                    listens,
                };
                let (answered, news) = (call(called), news.clone());
                let call = tokio::spawn(async move {
                    let _ = match answered.await {
                        None => return,
                        Some(Ok(given)) => news.send(News::Result { id, given }),
                        Some(Err(why)) => news.send(News::Error { id, why }),
                    };
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
