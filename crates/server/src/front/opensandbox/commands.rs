//! Commands in a sandbox, as execd runs them: followed as server-sent events, or in the background.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use atoll_model::RESIDENT;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Inside, named, number};
use crate::front::answers::{body, empty, json as answer_json, refuse_rest};
use crate::front::ask::{Line, Next, within};
use crate::front::control::not_offered;
use crate::line::Stream;
use crate::protocol::{
    Attach, End, Kind, ListProcesses, Refusal, Selector, Signal, StartAsk, StartedFacts,
    describe_limit, limited_status,
};

/// The events that wait for a slow reader.
const EVENTS_MAX: usize = 16;
/// The time after which nothing more of the output that is kept is to come.
const QUIET: Duration = Duration::from_millis(100);
/// The longest output that is returned at once, bytes.
const LOG_BYTES_MAX: usize = 4 << 20;
const SIGTERM: u8 = 15;

/// Answers a request about commands.
pub(super) async fn answer(
    inside: &Inside<'_>,
    parts: &Parts,
    path: &[&str],
    content: Body,
) -> Result<Response, Refusal> {
    match (parts.method.as_str(), path) {
        ("POST", [_]) => run(inside, body(content).await?).await,
        ("DELETE", [_]) => {
            let id = named(parts, "id").next().unwrap_or_default();
            let ask = Signal {
                process: process(&id)?,
                number: SIGTERM,
            };
            inside.call(ask).await?;
            Ok(empty(StatusCode::OK))
        }
        ("GET", [_, "status", id]) => status(inside, id).await,
        ("GET", [_, id, "logs"]) => logs(inside, id, number(parts, "cursor")?.unwrap_or(0)).await,
        _ => Err(not_offered(parts)),
    }
}

#[derive(Deserialize)]
struct Run {
    command: Option<String>,
    argv: Option<Vec<String>>,
    cwd: Option<String>,
    #[serde(default)]
    background: bool,
    timeout: Option<u64>,
    uid: Option<u32>,
    gid: Option<u32>,
    #[serde(default)]
    envs: BTreeMap<String, String>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

impl Run {
    fn ask(self) -> Result<StartAsk, Refusal> {
        refuse_rest(&self.rest)?;
        let is_other = |id: Option<u32>, own: u32| id.is_some_and(|id| id != own);
        if is_other(self.uid, RESIDENT.uid) || is_other(self.gid, RESIDENT.gid) {
            let what = format!("every program is {} here", RESIDENT.name);
            return Err(Refusal::new(Kind::Forbidden, what).advise("leave out uid and gid"));
        }
        let shell = |command| vec!["/bin/bash".to_owned(), "-c".to_owned(), command];
        let command = match (self.command, self.argv) {
            (Some(command), None) => shell(command),
            (None, Some(argv)) => argv,
            _ => {
                return Err(Refusal::new(
                    Kind::Invalid,
                    "one of command and argv is needed",
                ));
            }
        };
        Ok(StartAsk {
            command,
            environment: self.envs,
            directory: self.cwd,
            timeout_ms: self.timeout.filter(|timeout| *timeout > 0),
            ..StartAsk::default()
        })
    }
}

/// Returns the process that an execution's id names.
fn process(id: &str) -> Result<Selector, Refusal> {
    let none = |_| Refusal::new(Kind::NotFound, format!("there is no command {id:?}"));
    id.parse().map(Selector::Pid).map_err(none)
}

/// Runs a command and streams what it writes; one in the background goes on by itself.
async fn run(inside: &Inside<'_>, asked: Run) -> Result<Response, Refusal> {
    let background = asked.background;
    let (line, pid) = inside.start(asked.ask()?).await?;
    let (events, response) = Events::stream();
    tokio::spawn(async move {
        if events
            .send("init", json!({ "text": pid.to_string() }))
            .await
        {
            match background {
                true => events.complete().await,
                false => follow(line, &events).await,
            }
        }
    });
    Ok(response)
}

/// The events of one command, or of one cell.
pub(super) struct Events {
    send: mpsc::Sender<io::Result<Bytes>>,
    began: Instant,
}

impl Events {
    /// Begins a stream of events; returns the answer that it is.
    pub(super) fn stream() -> (Self, Response) {
        let (send, receive) = mpsc::channel::<io::Result<Bytes>>(EVENTS_MAX);
        let stream = futures_util::stream::unfold(receive, async |mut receive| {
            receive.recv().await.map(|event| (event, receive))
        });
        let mut response = Response::new(Body::from_stream(stream));
        let headers = response.headers_mut();
        let kind = HeaderValue::from_static("text/event-stream");
        headers.insert(header::CONTENT_TYPE, kind);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let began = Instant::now();
        (Self { send, began }, response)
    }

    /// Waits until the other side is gone.
    pub(super) async fn closed(&self) {
        self.send.closed().await;
    }

    /// Sends an event; returns whether the other side is there.
    pub(super) async fn send(&self, kind: &str, fields: Value) -> bool {
        let mut event = json!({ "type": kind, "timestamp": now_ms() });
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        self.send
            .send(Ok(format!("data: {event}\n\n").into()))
            .await
            .is_ok()
    }

    pub(super) async fn complete(&self) {
        let took = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.send("execution_complete", json!({ "execution_time": took }))
            .await;
    }

    pub(super) async fn failed(&self, name: &str, value: &str, why: &str) {
        let error = json!({ "ename": name, "evalue": value, "traceback": [why] });
        self.send("error", json!({ "error": error })).await;
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Passes on what a command writes, until its end or the reader's.
async fn follow(mut line: Line<StartedFacts, End>, events: &Events) {
    let (mut stdout, mut stderr) = (Characters::default(), Characters::default());
    loop {
        let next = tokio::select! {
            next = line.next() => next,
            () = events.closed() => return,
        };
        let (kind, text) = match next {
            Ok(Next::Content(Stream::Error, content)) => ("stderr", stderr.take(&content)),
            Ok(Next::Content(_, content)) => ("stdout", stdout.take(&content)),
            Ok(Next::Message(end)) => {
                for (kind, rest) in [("stdout", stdout.rest()), ("stderr", stderr.rest())] {
                    if !rest.is_empty() {
                        events.send(kind, json!({ "text": rest })).await;
                    }
                }
                return ended(&end, events).await;
            }
            // The worker is gone: the connection breaks off.
            Err(_) => {
                let _ = events
                    .send
                    .send(Err(io::ErrorKind::ConnectionAborted.into()))
                    .await;
                return;
            }
        };
        if !text.is_empty() && !events.send(kind, json!({ "text": text })).await {
            return;
        }
    }
}

/// Returns the exit code that clients read, if there is one, and the reason.
fn outcome(end: &End) -> (Option<i32>, String) {
    match end {
        End::Exited(code) => (Some((*code).into()), format!("exit status {code}")),
        // As shells have it.
        End::Signalled(number) => (Some(128 + i32::from(*number)), format!("signal {number}")),
        End::Limited(limit) => (Some(limited_status(limit).into()), describe_limit(limit)),
        End::Late => (None, "its time was over, and it was ended".to_owned()),
        End::TooSlow => (None, "its reader was too slow".to_owned()),
        End::Otherwise(why) | End::Gone(why) => (None, why.clone()),
    }
}

async fn ended(end: &End, events: &Events) {
    match outcome(end) {
        (Some(0), _) => events.complete().await,
        (Some(code), why) => {
            events
                .failed("CommandExecError", &code.to_string(), &why)
                .await
        }
        (None, why) => events.failed("CommandEnded", &why, &why).await,
    }
}

/// Text that comes in parts, at whose ends a character may be cut.
#[derive(Default)]
struct Characters(Vec<u8>);

impl Characters {
    /// Adds a part; returns all whole characters that are there.
    fn take(&mut self, part: &[u8]) -> String {
        self.0.extend_from_slice(part);
        let whole = self.0.len() - cut(&self.0);
        let rest = self.0.split_off(whole);
        let text = String::from_utf8_lossy(&self.0).into_owned();
        self.0 = rest;
        text
    }

    fn rest(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.0)).into_owned()
    }
}

/// Returns the number of bytes at the end that begin a character which is not whole.
fn cut(bytes: &[u8]) -> usize {
    for back in 1..=3.min(bytes.len()) {
        let length = match bytes.get(bytes.len() - back) {
            Some(0x80..=0xbf) => continue,
            Some(0xc2..=0xdf) => 2,
            Some(0xe0..=0xef) => 3,
            Some(0xf0..=0xf4) => 4,
            _ => 1,
        };
        return if length > back { back } else { 0 };
    }
    0
}

/// Tells whether a command runs, and how it ended.
async fn status(inside: &Inside<'_>, id: &str) -> Result<Response, Refusal> {
    let wanted = process(id)?;
    let all = inside.call(ListProcesses {}).await?;
    let running = all.iter().find(|one| wanted == Selector::Pid(one.pid));
    let told = match running {
        Some(process) => {
            let content = process.started.command.last();
            json!({ "id": id, "running": true, "content": content })
        }
        None => {
            let (_, _, end) = output(inside, id, None).await?;
            match end.as_ref().map(outcome).unwrap_or_default() {
                (Some(0), _) => json!({ "id": id, "running": false, "exit_code": 0 }),
                (code, why) => {
                    json!({ "id": id, "running": false, "exit_code": code, "error": why })
                }
            }
        }
    };
    Ok(answer_json(StatusCode::OK, &told))
}

/// Returns what is kept of a command's output from a place on, the place behind it, and the end if
/// it has come.
async fn output(
    inside: &Inside<'_>,
    id: &str,
    from: Option<u64>,
) -> Result<(Vec<u8>, u64, Option<End>), Refusal> {
    let process = process(id)?;
    let ask = within(inside.sandbox, Attach { process, from });
    let mut line = inside.front.begin(inside.credential.clone(), ask).await?;
    let at = line.reply().await?.at;
    let mut all = Vec::new();
    let mut end = None;
    while all.len() < LOG_BYTES_MAX {
        let Ok(next) = timeout(QUIET, line.next()).await else {
            break;
        };
        match next? {
            Next::Content(_, content) => all.extend_from_slice(&content),
            Next::Message(told) => {
                end = Some(told);
                break;
            }
        }
    }
    let next = at + all.len() as u64;
    Ok((all, next, end))
}

/// Returns what a command has written; the cursor is the number of bytes before.
async fn logs(inside: &Inside<'_>, id: &str, cursor: u64) -> Result<Response, Refusal> {
    let (content, next, _) = output(inside, id, Some(cursor)).await?;
    let text = String::from_utf8_lossy(&content).into_owned();
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, kind);
    // A program has written it: no browser is to take it for a page.
    let sniffed = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, sniffed);
    headers.insert("execd-commands-tail-cursor", HeaderValue::from(next));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_come_in_parts_stay_whole() {
        let text = "a\u{e9}\u{20ac}\u{1f300}z";
        for size in 1..text.len() {
            let mut characters = Characters::default();
            let parts = text.as_bytes().chunks(size);
            let mut read: String = parts.map(|part| characters.take(part)).collect();
            read += &characters.rest();
            assert_eq!(read, text, "{size}");
        }
        let mut characters = Characters::default();
        assert_eq!(characters.take(b"\xff\xe2\x82"), "\u{fffd}");
        assert_eq!(characters.rest(), "\u{fffd}");
    }
}
