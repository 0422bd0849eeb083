//! PostgreSQL messages after the first packets: a type, a length, and a body.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use atoll_egress::Egress;

/// The longest message before a connection is ready, bytes: messages are short until then.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 * 1024;
/// The longest part of a server's error text that is reported, bytes.
const WORD_BYTES_MAX: usize = 300;

pub(super) const AUTHENTICATION: u8 = b'R';
pub(super) const ERROR: u8 = b'E';
pub(super) const NOTICE: u8 = b'N';
pub(super) const SETTING: u8 = b'S';
pub(super) const KEY: u8 = b'K';
pub(super) const READY: u8 = b'Z';
const PASSWORD: u8 = b'p';

/// A whole message of a server.
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) body: Vec<u8>,
}

impl Message {
    /// Reads the next message, and not a byte more.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let kind = from.read_u8().await?;
        let length = usize::try_from(from.read_u32().await?).unwrap_or(usize::MAX);
        let length = length.checked_sub(4);
        let Some(length) = length.filter(|length| *length <= MESSAGE_BYTES_MAX) else {
            return Err(io::Error::other("a message of its has no length of one"));
        };
        let mut body = vec![0; length];
        from.read_exact(&mut body).await?;
        Ok(Self { kind, body })
    }

    /// Masks real values in it with their placeholders.
    pub(super) fn mask(&mut self, egress: &Egress) {
        self.body = egress.masked_text(std::mem::take(&mut self.body));
    }

    /// Encodes the message.
    pub(super) fn encode(&self) -> Vec<u8> {
        encode(self.kind, &self.body)
    }

    /// Returns the SQLSTATE and the text of an error.
    pub(super) fn error(&self) -> (String, String) {
        let field = |kind: u8| {
            let mut fields = self.body.split(|byte| *byte == 0);
            let field = fields.find_map(|field| field.strip_prefix(&[kind]));
            let text = String::from_utf8_lossy(field.unwrap_or_default());
            let plain = text
                .chars()
                .map(|one| if one.is_control() { ' ' } else { one });
            let mut plain: String = plain.take(WORD_BYTES_MAX).collect();
            while plain.len() > WORD_BYTES_MAX {
                plain.pop();
            }
            plain
        };
        (field(b'C'), field(b'M'))
    }
}

fn encode(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

/// Encodes `AuthenticationOk`.
pub(super) fn authentication_ok() -> Vec<u8> {
    encode(AUTHENTICATION, &0_u32.to_be_bytes())
}

/// Encodes `SASLInitialResponse`.
pub(super) fn sasl_first(mechanism: &str, first: &str) -> Vec<u8> {
    let length = u32::try_from(first.len()).unwrap_or(u32::MAX);
    let body = [
        mechanism.as_bytes(),
        &[0],
        &length.to_be_bytes(),
        first.as_bytes(),
    ];
    encode(PASSWORD, &body.concat())
}

/// Encodes `SASLResponse`.
pub(super) fn sasl_last(last: &str) -> Vec<u8> {
    encode(PASSWORD, last.as_bytes())
}

/// Encodes a fatal `ErrorResponse`: the SQLSTATE (PostgreSQL, appendix A), the text, and a hint.
pub(super) fn error(state: &str, text: &str, hint: &str) -> Vec<u8> {
    let fields = [
        ("S", "FATAL"),
        ("V", "FATAL"),
        ("C", state),
        ("M", text),
        ("H", hint),
    ];
    let mut body = Vec::new();
    for (kind, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
        body.extend_from_slice(kind.as_bytes());
        body.extend(value.bytes().filter(|byte| *byte != 0));
        body.push(0);
    }
    body.push(0);
    encode(ERROR, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn postgres_error_round_trips_and_is_bounded() {
        let bytes = error("28000", "no\u{7}", "ask");
        let mut rest = &bytes[..];
        let read = Message::read(&mut rest).await.unwrap();
        assert!(rest.is_empty() && read.kind == ERROR && read.encode() == bytes);
        assert_eq!(read.error(), ("28000".to_owned(), "no ".to_owned()));
        let long = Message {
            kind: ERROR,
            body: [b"M".as_slice(), "ä".repeat(5000).as_bytes(), &[0, 0]].concat(),
        };
        assert_eq!(long.error().1.len(), WORD_BYTES_MAX);
        for length in [0_u32, 3, MESSAGE_BYTES_MAX as u32 + 5, u32::MAX] {
            let bytes = [&b"R"[..], &length.to_be_bytes(), &[0; 8]].concat();
            assert!(Message::read(&mut &bytes[..]).await.is_err(), "{length}");
        }
    }
}
