//! The channels of a kernel over a WebSocket: requests in, and what comes of them.

use std::future::pending;
use std::time::Duration;

use atoll_ledger::{hex, random};
use axum::extract::ws::{Message, WebSocket};
use bytes::Bytes;
use futures_util::stream::SplitStream;
use futures_util::{SinkExt, StreamExt};
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use super::Spec;
use super::contents::{Content, error, failure, info, result, unknown};
use super::messages::{Answer, BINARY, Form, MESSAGE_BYTES_MAX, Request};
use crate::front::dialect::*;
use crate::front::interpreter::{Place, broken_off};

/// The messages that wait for a slow client, and the longest time for it to take one.
const MESSAGES_MAX: usize = 2;
const TAKEN_WITHIN: Duration = Duration::from_secs(60);
/// The cells that wait, and the most bytes of them: beyond that nothing more is read.
const CELLS_MAX: usize = 256;
const CELL_BYTES_MAX: usize = MESSAGE_BYTES_MAX;
/// The longest time that a sandbox lives on after its last client, seconds, unless its own is longer.
const LIFE_S_MAX: u64 = 600;

/// A kernel, as one client uses it.
pub(super) struct Kernel {
    sandbox: Sandbox,
    spec: &'static Spec,
    /// The name of this connection in its messages.
    session: String,
}

impl Kernel {
    pub(super) fn new(sandbox: Sandbox, spec: &'static Spec) -> Result<Self, Refusal> {
        Ok(Self {
            sandbox,
            spec,
            session: name()?,
        })
    }

    /// Has its interpreter interrupted, or started again.
    async fn steer(&self, what: &str) -> Result<(), Refusal> {
        self.sandbox.steer(self.spec.language, what).await
    }
}

fn name() -> Result<String, Refusal> {
    let mut bytes = [0; 16];
    random::fill(&mut bytes)
        .map_err(|_| Refusal::new(Kind::Fault, "the kernel gives no random bytes"))?;
    Ok(hex(&bytes))
}

/// A cell that waits, with its place among them.
struct Cell {
    request: Request,
    _place: OwnedSemaphorePermit,
}

/// A connection of a client.
struct Client {
    kernel: Kernel,
    form: Form,
    send: mpsc::Sender<(Message, Place)>,
}

/// Serves a client until it is gone, or the kernel.
pub(super) async fn serve(kernel: Kernel, life_s: u64, socket: WebSocket) {
    let form = match socket.protocol() {
        Some(protocol) if protocol == BINARY => Form::Binary,
        _ => Form::Text,
    };
    let (mut sink, receive) = socket.split();
    let (send, mut messages) = mpsc::channel(MESSAGES_MAX);
    let (queue, cells) = mpsc::channel(CELLS_MAX);
    let client = Client { kernel, form, send };
    let write = async {
        while let Some((message, _place)) = messages.recv().await {
            // Whoever takes nothing more is like one that has gone.
            let Ok(Ok(())) = timeout(TAKEN_WITHIN, sink.send(message)).await else {
                return;
            };
        }
    };
    tokio::select! {
        () = write => {}
        () = client.read(receive, queue) => {}
        () = client.execute_all(cells) => {}
        () = client.stay(life_s) => {}
    }
    let _ = sink.close().await;
}

impl Client {
    /// Has the sandbox live on for as long as the client is there.
    async fn stay(&self, life_s: u64) {
        let life_s = life_s.clamp(3, LIFE_S_MAX);
        loop {
            let ask = SetTimeout {
                timeout_s: life_s,
                extends: true,
            };
            let extended = self.kernel.sandbox.call(ask).await;
            // Beyond its quota it ends at its time.
            if extended.is_err_and(|refusal| refusal.kind == Kind::NoSandbox) {
                return;
            }
            tokio::time::sleep(Duration::from_secs(life_s / 3)).await;
            // One that has gone without a word does not take it.
            let _ = self.send.send((Message::Ping(Bytes::new()), None)).await;
        }
    }

    /// Sends a message that answers another; who has gone is told nothing.
    async fn send(
        &self,
        channel: &str,
        kind: &str,
        request: &Request,
        content: &str,
        place: Place,
    ) {
        let Ok(id) = name() else {
            return;
        };
        let message = self.form.write(&Answer {
            id: &id,
            session: &self.kernel.session,
            channel,
            kind,
            parent: &request.header,
            content,
        });
        let _ = self.send.send((message, place)).await;
    }

    async fn publish(&self, kind: &str, request: &Request, content: &Value) {
        let content = content.to_string();
        self.send("iopub", kind, request, &content, None).await;
    }

    async fn state(&self, request: &Request, state: &str) {
        let content = json!({ "execution_state": state });
        self.publish("status", request, &content).await;
    }

    async fn reply(&self, request: &Request, content: &Value) {
        let kind = request.kind.replace("_request", "_reply");
        let content = content.to_string();
        self.send(&request.channel, &kind, request, &content, None)
            .await;
    }

    /// Carries out what the client asks for, until it is gone.
    async fn read(&self, mut receive: SplitStream<WebSocket>, queue: mpsc::Sender<Cell>) {
        let bytes = Arc::new(Semaphore::new(CELL_BYTES_MAX));
        while let Some(Ok(message)) = receive.next().await {
            let length = match &message {
                Message::Text(text) => text.len(),
                Message::Binary(bytes) => bytes.len(),
                Message::Ping(_) | Message::Pong(_) => continue,
                Message::Close(_) => return,
            };
            let Some(request) = self.form.read(&message) else {
                return;
            };
            if !matches!(request.channel.as_str(), "shell" | "control" | "stdin") {
                return;
            }
            if request.kind != "execute_request" {
                self.answer(&request).await;
                continue;
            }
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            let Ok(_place) = Arc::clone(&bytes).acquire_many_owned(length).await else {
                return;
            };
            if queue.send(Cell { request, _place }).await.is_err() {
                return;
            }
        }
    }

    /// Answers a request that executes nothing.
    async fn answer(&self, request: &Request) {
        if !request.kind.ends_with("_request") {
            // An answer, or a message to an object of another kind: there are none.
            return;
        }
        self.state(request, "busy").await;
        let answered = self.answered(request).await;
        let content = answered.unwrap_or_else(|refusal| failure(&refusal));
        self.reply(request, &content).await;
        self.state(request, "idle").await;
    }

    async fn answered(&self, request: &Request) -> Result<Value, Refusal> {
        let kernel = &self.kernel;
        let asked = Content::of(request)?;
        Ok(match request.kind.as_str() {
            "kernel_info_request" => info(kernel.spec),
            "is_complete_request" => json!({ "status": "unknown" }),
            "complete_request" => json!({
                "status": "ok",
                "matches": [],
                "cursor_start": asked.cursor_pos,
                "cursor_end": asked.cursor_pos,
                "metadata": {},
            }),
            "inspect_request" => {
                json!({ "status": "ok", "found": false, "data": {}, "metadata": {} })
            }
            "history_request" => json!({ "status": "ok", "history": [] }),
            "comm_info_request" => json!({ "status": "ok", "comms": {} }),
            "interrupt_request" => {
                kernel.steer("interrupt").await?;
                json!({ "status": "ok" })
            }
            "shutdown_request" => {
                match asked.restart {
                    true => kernel.steer("restart").await?,
                    false => kernel.sandbox.call(Kill {}).await?,
                }
                json!({ "status": "ok", "restart": asked.restart })
            }
            other => {
                let what = format!("{other} is not offered");
                return Err(Refusal::new(Kind::NotFound, what));
            }
        })
    }

    /// Executes the cells that come, one after the other.
    async fn execute_all(&self, mut cells: mpsc::Receiver<Cell>) {
        while let Some(cell) = cells.recv().await {
            let request = &cell.request;
            self.state(request, "busy").await;
            let asked = Content::of(request);
            let goes_on = matches!(&asked, Ok(one) if one.stop_on_error == Some(false));
            let (reply, failed) = match asked {
                Ok(asked) => self.execute(request, &asked).await,
                Err(refusal) => (failure(&refusal), true),
            };
            self.reply(request, &reply).await;
            self.state(request, "idle").await;
            while failed
                && !goes_on
                && let Ok(next) = cells.try_recv()
            {
                self.state(&next.request, "busy").await;
                self.reply(&next.request, &json!({ "status": "aborted" }))
                    .await;
                self.state(&next.request, "idle").await;
            }
        }
        // The client is gone: whoever reads says so.
        pending().await
    }

    /// Executes a cell; returns the reply, and whether it failed.
    async fn execute(&self, request: &Request, asked: &Content<'_>) -> (Value, bool) {
        match self.follow(request, asked).await {
            Ok((count, None)) => {
                let expressions = unknown(asked.user_expressions);
                let reply = json!({
                    "status": "ok",
                    "execution_count": count,
                    "user_expressions": expressions,
                    "payload": [],
                });
                (reply, false)
            }
            Ok((count, Some(mut error))) => {
                if let Some(error) = error.as_object_mut() {
                    error.insert("status".to_owned(), json!("error"));
                    error.insert("execution_count".to_owned(), json!(count));
                }
                (error, true)
            }
            Err(refusal) => {
                let content = failure(&refusal);
                self.publish("error", request, &content).await;
                if refusal.kind == Kind::NoSandbox {
                    self.state(request, "dead").await;
                }
                (content, true)
            }
        }
    }

    /// Passes on what happens while a cell is executed; returns its number, and its error if it has
    /// failed.
    async fn follow(
        &self,
        request: &Request,
        asked: &Content<'_>,
    ) -> Result<(u64, Option<Value>), Refusal> {
        let (mut count, mut failed) = (0, None);
        let Kernel { sandbox, spec, .. } = &self.kernel;
        let mut events = sandbox.execute(spec.language, &asked.code).await?;
        loop {
            let line = events.next().await?;
            let line = line.ok_or_else(|| broken_off("its answer has no end"))?;
            let event = line.event()?;
            match &*event.kind {
                "number_of_executions" => {
                    count = event.execution_count.unwrap_or(0);
                    if !asked.silent {
                        let content = json!({ "code": asked.code, "execution_count": count });
                        self.publish("execute_input", request, &content).await;
                    }
                }
                name @ ("stdout" | "stderr") => {
                    let text = event.text.map_or("\"\"", RawValue::get);
                    let content = format!(r#"{{"name":"{name}","text":{text}}}"#);
                    let place = line.place.clone();
                    self.send("iopub", "stream", request, &content, place).await;
                }
                "result" if !asked.silent => {
                    let (kind, content) = result(&event, count);
                    let place = line.place.clone();
                    self.send("iopub", kind, request, &content, place).await;
                }
                "error" => {
                    let error = error(&event);
                    self.publish("error", request, &error).await;
                    failed = Some(error);
                }
                "end_of_execution" => return Ok((count, failed)),
                _ => {}
            }
        }
    }
}
