//! Streams of the Connect protocol: one message after the other, each in an envelope of a flag and a
//! length.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;

use super::dialect::*;
use super::idle::timed;
use super::stream::streamed;

/// The longest message of a stream, bytes.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// The time between two signs of life, unless the caller says another.
const PING: Duration = Duration::from_secs(90);
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
            return Err(Refusal::invalid("a message is longer than 4 MiB"));
        }
        if self.got.len() < HEAD_BYTES + length {
            return Ok(None);
        }
        let mut message = self.got.split_to(HEAD_BYTES + length);
        Ok(Some(message.split_off(HEAD_BYTES).freeze()))
    }
}

/// Makes a message of an answer.
pub(crate) fn message(message: &Value) -> Bytes {
    enveloped(0, message)
}

/// Makes the last message: the reason why it ends, or none.
pub(crate) fn last(refusal: Option<&Refusal>) -> Bytes {
    enveloped(
        LAST,
        &match refusal {
            None => json!({}),
            Some(refusal) => json!({ "error": Dialect::Connect.body(refusal) }),
        },
    )
}

/// Makes a message that holds bytes, in base64 between these texts.
pub(crate) fn with_bytes(before: &str, content: &[u8], after: &str) -> Bytes {
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
    message.freeze()
}

fn enveloped(flag: u8, message: &Value) -> Bytes {
    let text = serde_json::to_vec(message).unwrap_or_default();
    let mut message = BytesMut::with_capacity(HEAD_BYTES + text.len());
    head(&mut message, flag, text.len());
    message.put_slice(&text);
    message.freeze()
}

fn head(message: &mut BytesMut, flag: u8, length: usize) {
    message.put_u8(flag);
    message.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
}

/// Makes the answer of one request.
pub(crate) fn connect(sandbox: &str, answer: Result<Value, Refusal>) -> Response {
    match answer {
        Ok(body) => answer_json(StatusCode::OK, &body),
        Err(refusal) => Dialect::Connect.refused_in(sandbox, &refusal),
    }
}

/// Answers with the messages that come of what has begun, or with the reason why it has not.
pub(crate) async fn stream<T, F>(
    sandbox: &str,
    begun: Result<T, Refusal>,
    pass_on: impl FnOnce(T, Out) -> F,
) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let (out, response) = streamed("application/connect+json");
    match begun {
        Err(refusal) if refusal.kind == Kind::NoSandbox => return gone(sandbox),
        Err(refusal) => drop(out.send(last(Some(&refusal))).await),
        Ok(begun) => drop(tokio::spawn(pass_on(begun, out))),
    }
    response
}

/// Returns how often a caller wants a sign of life.
pub(crate) fn ping_every(headers: &HeaderMap) -> Duration {
    let seconds = header_of(headers, "keepalive-ping-interval").and_then(|text| text.parse().ok());
    let seconds = seconds.filter(|seconds| *seconds > 0);
    seconds.map_or(PING, Duration::from_secs)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io;

    use futures_util::StreamExt;
    use futures_util::stream::{iter, pending};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_message_of_which_nothing_comes_is_given_up() {
        let begin = iter([Ok::<_, io::Error>(message(&json!({})).split_to(6))]);
        let body = Body::from_stream(begin.chain(pending()));
        let refusal = Envelopes::of(body).next().await.unwrap_err();
        assert_eq!(refusal.kind, Kind::Late);
    }
}
