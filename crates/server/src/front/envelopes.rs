//! Streams of the Connect protocol: one message after the other, each in an envelope of a flag and a
//! length.

use std::io;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::answers::connect_error;
use super::form::wrong_body;
use super::idle::timed;
use crate::protocol::{Kind, Refusal};

/// The longest message of a stream, bytes.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// The messages that wait for a slow reader.
const MESSAGES_MAX: usize = 16;
/// The flag and the length before each message, bytes.
const HEAD_BYTES: usize = 5;
/// The flag of the last envelope.
const LAST: u8 = 2;

/// The messages of a request.
pub(crate) struct Envelopes {
    body: Body,
    got: BytesMut,
}

impl Envelopes {
    pub(crate) fn of(body: Body) -> Self {
        Self {
            body: timed(body),
            got: BytesMut::new(),
        }
    }

    /// Returns the text of the first message of a whole body.
    pub(crate) fn only(body: Bytes) -> Result<Bytes, Refusal> {
        let mut envelopes = Self {
            body: Body::empty(),
            got: BytesMut::from(&body[..]),
        };
        envelopes.take().map(Option::unwrap_or_default)
    }

    /// Waits for the next message; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            if let Some(text) = self.take()? {
                return Ok(Some(text));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(wrong_body(&error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.got.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    fn take(&mut self) -> Result<Option<Bytes>, Refusal> {
        let Some((head, _)) = self.got.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let [_, length @ ..] = *head;
        let length = u32::from_be_bytes(length) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(Refusal::new(
                Kind::Invalid,
                "a message is longer than 4 MiB",
            ));
        }
        if self.got.len() < HEAD_BYTES + length {
            return Ok(None);
        }
        let mut message = self.got.split_to(HEAD_BYTES + length);
        Ok(Some(message.split_off(HEAD_BYTES).freeze()))
    }
}

/// The messages of an answer.
pub(crate) struct Out(mpsc::Sender<io::Result<Bytes>>);

impl Out {
    /// Sends a message; returns whether the other side is there.
    pub(crate) async fn message(&self, message: &Value) -> bool {
        let text = serde_json::to_vec(message).unwrap_or_default();
        self.0.send(Ok(enveloped(0, &text))).await.is_ok()
    }

    /// Sends a message that holds bytes, in base64 between these texts; returns whether the other
    /// side is there.
    pub(crate) async fn bytes(&self, before: &str, content: &[u8], after: &str) -> bool {
        let length = base64::encoded_len(content.len(), true).unwrap_or_default();
        let whole = before.len() + length + after.len();
        let mut message = BytesMut::with_capacity(HEAD_BYTES + whole);
        head(&mut message, 0, whole);
        message.put_slice(before.as_bytes());
        let begin = message.len();
        message.resize(begin + length, 0);
        let place = message.get_mut(begin..).unwrap_or_default();
        // It has the length that is needed.
        let _ = BASE64_STANDARD.encode_slice(content, place);
        message.put_slice(after.as_bytes());
        self.0.send(Ok(message.freeze())).await.is_ok()
    }

    /// Sends the last message: the reason why it ends, or none.
    pub(crate) async fn end(&self, refusal: Option<&Refusal>) {
        let message = match refusal {
            None => json!({}),
            Some(refusal) => json!({ "error": connect_error(refusal) }),
        };
        let text = serde_json::to_vec(&message).unwrap_or_default();
        let _ = self.0.send(Ok(enveloped(LAST, &text))).await;
    }

    /// Breaks the connection off.
    pub(crate) async fn abort(&self) {
        let _ = self
            .0
            .send(Err(io::ErrorKind::ConnectionAborted.into()))
            .await;
    }

    /// Waits until the other side is gone.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }
}

fn enveloped(flag: u8, text: &[u8]) -> Bytes {
    let mut message = BytesMut::with_capacity(HEAD_BYTES + text.len());
    head(&mut message, flag, text.len());
    message.put_slice(text);
    message.freeze()
}

fn head(message: &mut BytesMut, flag: u8, length: usize) {
    message.put_u8(flag);
    message.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
}

/// Makes an answer of messages, and what sends them.
pub(crate) fn streamed() -> (Out, Response) {
    let (send, receive) = mpsc::channel(MESSAGES_MAX);
    let messages = futures_util::stream::unfold(receive, async |mut receive| {
        receive.recv().await.map(|message| (message, receive))
    });
    let mut response = Response::new(Body::from_stream(messages));
    let kind = HeaderValue::from_static("application/connect+json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    (Out(send), response)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures_util::StreamExt;
    use futures_util::stream::{iter, pending};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_message_of_which_nothing_comes_is_given_up() {
        let begin = iter([Ok::<_, io::Error>(enveloped(0, b"{}").split_to(6))]);
        let body = Body::from_stream(begin.chain(pending()));
        let refusal = Envelopes::of(body).next().await.unwrap_err();
        assert_eq!(refusal.kind, Kind::Late);
    }
}
