//! A program over a WebSocket (RFC 6455): its output, its input and its terminal at once.

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};

use super::processes::{OutputQuery, attach};
use super::{Answered, Process, Query};
use crate::front::dialect::*;

/// The longest message of a caller, bytes.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The first byte of a binary message: the stream that the rest is of.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;

/// A caller's message of text.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Control {
    /// Set the size of the terminal.
    Resize(TerminalSize),
    /// Send the program a signal.
    Signal(u8),
    /// Close its input.
    CloseInput,
}

/// Follow and feed a program over a WebSocket.
///
/// Binary messages begin with a byte: 0 for input, 1 for output or the terminal, 2 for standard
/// error. Text is JSON. To the program: `{"resize": {"rows": 24, "columns": 80}}`, `{"signal": 2}`,
/// `"close_input"`. From it: `{"at": …, "lost": …}` first, the offset of what follows and the bytes
/// that are not kept any more; `{"end": …}` last, with `exited`, `signalled` or another reason;
/// `{"problem": …}` for what was refused meanwhile. After a break, ask again with `from`.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/processes/{pid}/socket", params(OutputQuery), tag = "processes", responses((status = 101)))]
pub(crate) async fn socket(
    of: Process,
    Query(query): Query<OutputQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Answered {
    let no_socket = |error: WebSocketUpgradeRejection| {
        Refusal::invalid(error.body_text()).advise("ask for a WebSocket by HTTP/1.1")
    };
    let upgrade = upgrade.map_err(no_socket)?;
    let (line, started) = attach(&of, query.from()).await?;
    let first = json!({ "at": started.at, "lost": started.lost });
    Ok(upgrade
        .max_message_size(MESSAGE_BYTES_MAX)
        .on_upgrade(move |socket| joined(of, line, first, socket)))
}

/// Passes both ways until the program or the caller is gone.
async fn joined(of: Process, line: Line<StartedFacts, End>, first: Value, socket: WebSocket) {
    let (mut send, receive) = socket.split();
    let (problems, mut told) = tokio::sync::mpsc::channel(16);
    if send.send(text(&first)).await.is_err() {
        return;
    }
    // Each by itself: a program that reads no input writes on.
    let fed = feed(&of, receive, problems);
    tokio::select! {
        () = follow(line, &mut told, &mut send) => {}
        () = fed => {}
    }
    let _ = send.close().await;
}

/// Passes on what a program writes, to its end.
async fn follow(
    mut line: Line<StartedFacts, End>,
    told: &mut tokio::sync::mpsc::Receiver<Value>,
    send: &mut SplitSink<WebSocket, Message>,
) {
    loop {
        let message = tokio::select! {
            next = line.next() => match next {
                Ok(Next::Content(stream, content)) => binary(stream, &content),
                Ok(Next::Message(end)) => {
                    let _ = send.send(text(&json!({ "end": end }))).await;
                    return;
                }
                Err(_) => return,
            },
            Some(problem) = told.recv() => text(&problem),
        };
        if send.send(message).await.is_err() {
            return;
        }
    }
}

fn text(value: &Value) -> Message {
    Message::Text(value.to_string().into())
}

fn binary(stream: Stream, content: &Bytes) -> Message {
    let mut message = BytesMut::with_capacity(1 + content.len());
    message.put_u8(match stream {
        Stream::Output | Stream::Terminal => STDOUT,
        Stream::Error => STDERR,
    });
    message.put_slice(content);
    Message::Binary(message.freeze())
}

/// Carries out what a caller sends, until they are gone.
async fn feed(
    of: &Process,
    mut receive: SplitStream<WebSocket>,
    problems: tokio::sync::mpsc::Sender<Value>,
) {
    let mut input = None;
    while let Some(Ok(message)) = receive.next().await {
        let done = match message {
            Message::Binary(content) => of.write(&mut input, &content).await,
            Message::Text(text) => of.control(&text, &mut input).await,
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => Ok(()),
        };
        if let Err(refusal) = done {
            let problem = json!({ "problem": refusal.told() });
            // The other direction is gone.
            if problems.send(problem).await.is_err() {
                return;
            }
        }
    }
}

impl Process {
    /// Writes to the program's input, over one request for as long as there is no other.
    async fn write(&self, input: &mut Option<Line<()>>, message: &[u8]) -> Result<(), Refusal> {
        let Some((&STDIN, content)) = message.split_first() else {
            let what = "a binary message begins with 0, for input";
            return Err(Refusal::invalid(what));
        };
        let process = self.selector();
        let mut line = match input.take() {
            Some(line) => line,
            None => self.sandbox.begin(Input { process }).await?,
        };
        match line.writer.content(Stream::Output, content).await {
            Ok(()) => {
                *input = Some(line);
                Ok(())
            }
            // The answer says why.
            Err(_) => line.reply().await,
        }
    }

    /// Waits until all input is written.
    async fn settle(&self, input: &mut Option<Line<()>>) {
        if let Some(line) = input.take() {
            // A program that takes none is told of by what is written next.
            let _ = line.finish().await;
        }
    }

    async fn control(&self, text: &str, input: &mut Option<Line<()>>) -> Result<(), Refusal> {
        let control = serde_json::from_str(text)
            .map_err(|error| Refusal::invalid(format!("the message is not understood: {error}")))?;
        let process = self.selector();
        let sandbox = &self.sandbox;
        match control {
            Control::Resize(terminal) => sandbox.call(Resize { process, terminal }).await,
            Control::CloseInput => {
                // What came before is written before.
                self.settle(input).await;
                sandbox.call(CloseInput { process }).await
            }
            Control::Signal(number @ 1..=64) => sandbox.call(Signal { process, number }).await,
            Control::Signal(_) => Err(Refusal::invalid("a signal's number is 1 to 64")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_read() {
        let size = TerminalSize {
            rows: 24,
            columns: 80,
        };
        let cases = [
            (
                r#"{"resize":{"rows":24,"columns":80}}"#,
                Some(Control::Resize(size)),
            ),
            (r#"{"signal":2}"#, Some(Control::Signal(2))),
            (r#""close_input""#, Some(Control::CloseInput)),
            (r#"{"signal":300}"#, None),
            (r#"{"signal":2,"resize":null}"#, None),
            ("{}", None),
        ];
        for (text, expected) in cases {
            assert_eq!(serde_json::from_str(text).ok(), expected, "{text}");
        }
    }
}
