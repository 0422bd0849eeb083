//! Answers that are streams of events, with what the worker says meanwhile.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;

use super::ask::{Line, Next};

/// The events that wait for a slow reader.
const EVENTS_MAX: usize = 16;

/// The sender of a streamed answer.
pub(crate) struct Out {
    send: mpsc::Sender<io::Result<Bytes>>,
    /// The sign of life, and the time between two.
    sign: Option<(Bytes, Duration)>,
}

/// Makes an answer that is a stream of this kind, and what sends it.
pub(crate) fn streamed(kind: &'static str) -> (Out, Response) {
    let (send, receive) = mpsc::channel(EVENTS_MAX);
    let events = futures_util::stream::unfold(receive, async |mut receive| {
        receive.recv().await.map(|event| (event, receive))
    });
    let mut response = Response::new(Body::from_stream(events));
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    (Out { send, sign: None }, response)
}

/// Makes an answer of server-sent events, and what sends it.
pub(crate) fn events() -> (Out, Response) {
    let (out, mut response) = streamed("text/event-stream");
    let none = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, none);
    (out, response)
}

/// Writes a server-sent event: a kind, data, and the id to go on from.
pub(crate) fn event(kind: &str, id: Option<u64>, data: &Value) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("event: {kind}\n{id}data: {data}\n\n")
}

impl Out {
    /// Sends a sign of life each time that nothing else has come for so long.
    pub(crate) fn alive(self, sign: Bytes, every: Duration) -> Self {
        let sign = Some((sign, every));
        Self { sign, ..self }
    }

    /// Sends an event; returns whether the other side is there.
    pub(crate) async fn send(&self, event: impl Into<Bytes>) -> bool {
        self.send.send(Ok(event.into())).await.is_ok()
    }

    /// Breaks the connection off.
    pub(crate) async fn abort(&self) {
        let broken = io::ErrorKind::ConnectionAborted.into();
        let _ = self.send.send(Err(broken)).await;
    }

    /// Waits until the other side is gone.
    pub(crate) async fn closed(&self) {
        self.send.closed().await;
    }

    /// Waits for what comes next from the worker; `None` once either side is gone.
    pub(crate) async fn next<T, M>(&self, line: &mut Line<T, M>) -> Option<Next<M>>
    where
        T: DeserializeOwned,
        M: DeserializeOwned,
    {
        loop {
            let quiet = async {
                match &self.sign {
                    Some((sign, every)) => {
                        tokio::time::sleep(*every).await;
                        sign.clone()
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                next = line.next() => match next {
                    Ok(next) => return Some(next),
                    // The worker is gone, and every sandbox with it.
                    Err(_) => {
                        self.abort().await;
                        return None;
                    }
                },
                () = self.closed() => return None,
                sign = quiet => if !self.send(sign).await {
                    return None;
                },
            }
        }
    }
}
