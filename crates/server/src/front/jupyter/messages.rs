//! Jupyter's messages, and both forms in which a WebSocket carries them. The front makes each: what
//! comes from a cell is in their content and nowhere else.

use std::borrow::Cow;

use axum::extract::ws::Message;
use bytes::{BufMut, Bytes, BytesMut};
use serde_json::value::RawValue;

use super::now;
use crate::front::dialect::*;

/// The name of the form in which every message is binary.
pub(super) const BINARY: &str = "v1.kernel.websocket.jupyter.org";
/// The longest message of a client, bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// The longest header of one, bytes, which every answer repeats.
const HEADER_BYTES_MAX: usize = 16 * 1024;
/// The version of the messages.
pub(super) const VERSION: &str = "5.3";
/// The most parts of a binary message: a channel, four of text, and some of bytes.
const PARTS_MAX: usize = 64;

/// A message of a client.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) channel: String,
    /// Its header: JSON, which answers repeat.
    pub(super) header: Box<str>,
    pub(super) kind: String,
    /// Its content: JSON.
    pub(super) content: Box<str>,
}

/// The form of messages in one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Text, or bytes that begin with text.
    Text,
    /// Bytes.
    Binary,
}

#[derive(Deserialize)]
struct Whole<'a> {
    #[serde(borrow)]
    channel: Cow<'a, str>,
    #[serde(borrow)]
    header: &'a RawValue,
    #[serde(borrow)]
    content: &'a RawValue,
}

#[derive(Deserialize)]
struct Header {
    msg_type: String,
}

impl Whole<'_> {
    fn request(self) -> Option<Request> {
        let header = self.header.get();
        if header.len() > HEADER_BYTES_MAX {
            return None;
        }
        let Header { msg_type } = serde_json::from_str(header).ok()?;
        Some(Request {
            channel: self.channel.into_owned(),
            header: header.into(),
            kind: msg_type,
            content: self.content.get().into(),
        })
    }
}

impl Form {
    /// Reads a message; `None` for one that is not understood.
    pub(super) fn read(self, message: &Message) -> Option<Request> {
        let whole: Whole<'_> = match (self, message) {
            (_, Message::Text(text)) => serde_json::from_str(text).ok()?,
            (Self::Text, Message::Binary(bytes)) => {
                serde_json::from_slice(before_bytes(bytes)?).ok()?
            }
            (Self::Binary, Message::Binary(bytes)) => {
                let parts = parts(bytes)?;
                let [channel, header, _parent, _metadata, content, ..] = parts.as_slice() else {
                    return None;
                };
                Whole {
                    channel: Cow::Borrowed(str::from_utf8(channel).ok()?),
                    header: serde_json::from_slice(header).ok()?,
                    content: serde_json::from_slice(content).ok()?,
                }
            }
            (_, Message::Ping(_) | Message::Pong(_) | Message::Close(_)) => return None,
        };
        whole.request()
    }

    /// Makes an answer to a message.
    pub(super) fn write(self, answer: &Answer<'_>) -> Message {
        let Answer {
            id,
            session,
            channel,
            kind,
            parent,
            content,
        } = answer;
        let header = json!({
            "msg_id": id,
            "msg_type": kind,
            "session": session,
            "username": "kernel",
            "date": now(),
            "version": VERSION,
        });
        let header = header.to_string();
        match self {
            Self::Text => {
                let (channel, id, kind) = (json!(channel), json!(id), json!(kind));
                let text = format!(
                    r#"{{"channel":{channel},"header":{header},"msg_id":{id},"msg_type":{kind},"parent_header":{parent},"metadata":{{}},"content":{content},"buffers":[]}}"#
                );
                Message::Text(text.into())
            }
            Self::Binary => Message::Binary(joined(&[channel, &header, parent, "{}", content])),
        }
    }
}

/// A message of a kernel.
pub(super) struct Answer<'a> {
    pub(super) id: &'a str,
    pub(super) session: &'a str,
    pub(super) channel: &'a str,
    pub(super) kind: &'a str,
    /// The header of the message that it answers: JSON.
    pub(super) parent: &'a str,
    /// JSON.
    pub(super) content: &'a str,
}

/// Returns the text before the bytes in a message: their number and places come first.
fn before_bytes(message: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| {
        let bytes = message.get(at * 4..)?.first_chunk::<4>()?;
        usize::try_from(u32::from_be_bytes(*bytes)).ok()
    };
    let end = match word(0)? {
        0 => return None,
        1 => message.len(),
        _ => word(2)?,
    };
    message.get(word(1)?..end)
}

/// Returns the parts of a message in the binary form: their places come first.
fn parts(message: &[u8]) -> Option<Vec<&[u8]>> {
    let word = |at: usize| {
        let bytes = message.get(at.checked_mul(8)?..)?.first_chunk::<8>()?;
        usize::try_from(u64::from_le_bytes(*bytes)).ok()
    };
    let count = word(0)?;
    if count > PARTS_MAX {
        return None;
    }
    let places: Vec<usize> = (1..=count).map(word).collect::<Option<_>>()?;
    let pairs = places.windows(2);
    let parts = pairs.map(|pair| message.get(*pair.first()?..*pair.last()?));
    parts.collect()
}

fn joined(parts: &[&str]) -> Bytes {
    let head = 8 * (parts.len() + 2);
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut message = BytesMut::with_capacity(head + length);
    message.put_u64_le(parts.len() as u64 + 1);
    let mut at = head as u64;
    message.put_u64_le(at);
    for part in parts {
        at += part.len() as u64;
        message.put_u64_le(at);
    }
    for part in parts {
        message.put_slice(part.as_bytes());
    }
    message.freeze()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::Value;

    use super::*;

    #[test]
    fn messages_are_read_in_both_forms() {
        let header = r#"{"msg_id":"1","msg_type":"execute_request"}"#;
        let text = format!(r#"{{"channel":"shell","header":{header},"content":{{"code":"1"}}}}"#);
        let mut with_bytes = vec![0, 0, 0, 2, 0, 0, 0, 12];
        with_bytes.extend(u32::try_from(12 + text.len()).unwrap().to_be_bytes());
        with_bytes.extend(text.as_bytes());
        with_bytes.extend(b"bytes");
        let binary = joined(&["shell", header, "{}", "{}", r#"{"code":"1"}"#]);
        for (form, message) in [
            (Form::Text, Message::Text(text.clone().into())),
            (Form::Text, Message::Binary(with_bytes.into())),
            (Form::Binary, Message::Binary(binary.clone())),
        ] {
            let request = form.read(&message).unwrap();
            assert_eq!(
                (&*request.channel, &*request.kind),
                ("shell", "execute_request")
            );
            assert_eq!(
                (&*request.header, &*request.content),
                (header, r#"{"code":"1"}"#)
            );
        }
        for length in 0..binary.len() {
            let cut = Message::Binary(binary.slice(..length));
            assert!(Form::Binary.read(&cut).is_none(), "{length}");
        }
        for odd in [&[0xff; 64][..], &[0; 64], &[1; 8]] {
            let odd = Message::Binary(Bytes::copy_from_slice(odd));
            assert!(Form::Binary.read(&odd).is_none() && Form::Text.read(&odd).is_none());
        }
    }

    #[test]
    fn answers_hold_content_in_its_place() {
        let content = json!({ "text": "\"}, \"channel\": \"shell\"" });
        let text = content.to_string();
        let answer = Answer {
            id: "1",
            session: "s",
            channel: "iopub",
            kind: "stream",
            parent: "{}",
            content: &text,
        };
        let Message::Text(text) = Form::Text.write(&answer) else {
            unreachable!();
        };
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&read["channel"], &read["content"]),
            (&json!("iopub"), &content)
        );
        let Message::Binary(bytes) = Form::Binary.write(&answer) else {
            unreachable!();
        };
        let parts = parts(&bytes).unwrap();
        assert_eq!(parts.first(), Some(&&b"iopub"[..]));
        assert_eq!(parts.get(4), Some(&content.to_string().as_bytes()));
    }
}
