//! E2B's process service, by the Connect protocol in JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Request};
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Front;
use super::answers::{connect, gone, parsed, understood, whole};
use super::ask::{Line, Next, within};
use super::envd::{asked_user, token};
use super::envelopes::{Envelopes, Out, streamed};
use super::permit::permitted;
use crate::line::Stream;
use crate::protocol::{
    self, Attach, CloseInput, End, Kind, ListProcesses, ProcessFacts, Refusal, Resize, Selector,
    Signal, Start, StartAsk, StartedFacts, TerminalSize, describe_limit, limited_status,
};

/// The time between two signs of life, unless the caller says another.
const PING: Duration = Duration::from_secs(90);

const SIGKILL: u8 = 9;
const SIGTERM: u8 = 15;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    process: Option<Value>,
    pty: Option<Pty>,
    tag: Option<String>,
    stdin: Option<bool>,
    input: Option<Input>,
    signal: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pty {
    size: Size,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Size {
    cols: u16,
    rows: u16,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Input {
    stdin: Option<String>,
    pty: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Config {
    cmd: String,
    args: Vec<String>,
    envs: BTreeMap<String, String>,
    cwd: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pointed {
    pid: Option<u32>,
    tag: Option<String>,
}

impl Asked {
    fn selector(&self) -> Result<Selector, Refusal> {
        let pointed: Pointed = of(self.process.as_ref())?;
        match (pointed.pid, pointed.tag) {
            (Some(pid), _) => Ok(Selector::Pid(pid)),
            (None, Some(tag)) => Ok(Selector::Tag(tag)),
            (None, None) => Err(Refusal::new(
                Kind::Invalid,
                "process names neither pid nor tag",
            )),
        }
    }
}

fn of<T: Default + for<'a> Deserialize<'a>>(value: Option<&Value>) -> Result<T, Refusal> {
    match value {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => T::deserialize(value)
            .map_err(|error| Refusal::new(Kind::Invalid, format!("process: {error}"))),
    }
}

impl From<&Pty> for TerminalSize {
    fn from(pty: &Pty) -> Self {
        let or = |size: u16, least: u16| if size == 0 { least } else { size };
        Self {
            rows: or(pty.size.rows, 24),
            columns: or(pty.size.cols, 80),
        }
    }
}

impl Input {
    fn bytes(&self) -> Result<Vec<u8>, Refusal> {
        let text = self.stdin.as_ref().or(self.pty.as_ref());
        let text = text.map(String::as_str).unwrap_or_default();
        BASE64_STANDARD
            .decode(text)
            .map_err(|error| Refusal::new(Kind::Invalid, format!("input: {error}")))
    }
}

/// Answers a request of the service.
pub(crate) async fn answer(
    front: &Front,
    sandbox: &str,
    method: &str,
    request: Request<Body>,
) -> Response {
    match method {
        "Start" | "Connect" => return follow(front, sandbox, method, request).await,
        "StreamInput" => return stream_input(front, sandbox, request).await,
        _ => {}
    }
    let (parts, body) = request.into_parts();
    let answered = async {
        // First, since a connection with an unread body cannot be used again.
        let text = whole(body).await?;
        let credential = token(&parts.headers);
        let asked: Asked = understood(&text).await?;
        match method {
            "List" => {
                let all = front.call_in(credential, sandbox, ListProcesses {}).await?;
                let all: Vec<Value> = all.iter().map(listed).collect();
                return Ok(json!({ "processes": all }));
            }
            "SendInput" => {
                let input = asked.input.as_ref().map(Input::bytes).transpose()?;
                let process = asked.selector()?;
                let ask = within(sandbox, protocol::Input { process });
                let mut line = front.begin(credential, ask).await?;
                let content = input.unwrap_or_default();
                // What stands in its way is in the answer.
                let _ = line.writer.content(Stream::Output, &content).await;
                line.finish().await?;
            }
            "CloseStdin" => {
                let process = asked.selector()?;
                let ask = CloseInput { process };
                front.call_in(credential, sandbox, ask).await?;
            }
            "SendSignal" => {
                let ask = Signal {
                    process: asked.selector()?,
                    number: signal(asked.signal.as_ref())?,
                };
                front.call_in(credential, sandbox, ask).await?;
            }
            "Update" => {
                let ask = Resize {
                    process: asked.selector()?,
                    terminal: TerminalSize::from(&asked.pty.unwrap_or_default()),
                };
                front.call_in(credential, sandbox, ask).await?;
            }
            _ => {
                let what = format!("process.Process has no {method}");
                return Err(Refusal::new(Kind::NotFound, what));
            }
        }
        Ok(json!({}))
    };
    connect(sandbox, answered.await)
}

fn signal(value: Option<&Value>) -> Result<u8, Refusal> {
    match value {
        Some(Value::String(name)) if name == "SIGNAL_SIGKILL" => Ok(SIGKILL),
        Some(Value::String(name)) if name == "SIGNAL_SIGTERM" => Ok(SIGTERM),
        Some(Value::Number(number)) if number.as_u64() == Some(SIGKILL.into()) => Ok(SIGKILL),
        Some(Value::Number(number)) if number.as_u64() == Some(SIGTERM.into()) => Ok(SIGTERM),
        _ => Err(Refusal::new(
            Kind::Invalid,
            "signal is SIGNAL_SIGTERM or SIGNAL_SIGKILL",
        )),
    }
}

fn listed(process: &ProcessFacts) -> Value {
    let started = &process.started;
    let mut described = json!({
        "config": {
            "cmd": started.command.first(),
            "args": started.command.get(1..).unwrap_or_default(),
            "envs": started.environment,
            "cwd": started.directory,
        },
        "pid": process.pid,
    });
    if let (Some(fields), Some(tag)) = (described.as_object_mut(), &started.tag) {
        fields.insert("tag".to_owned(), json!(tag));
    }
    described
}

/// Starts a program, or attaches to one, and streams what it writes.
async fn follow(front: &Front, sandbox: &str, method: &str, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let ping = ping_every(&parts.headers);
    let began = async {
        let text = Envelopes::only(whole(body).await?)?;
        let asked: Asked = understood(&text).await?;
        let credential = token(&parts.headers);
        let mut line = match method {
            "Connect" => {
                let process = asked.selector()?;
                let ask = Attach {
                    process,
                    from: None,
                };
                front.begin(credential, within(sandbox, ask)).await?
            }
            _ => {
                let ask = Start(Box::new(start(&asked, &parts.headers)?));
                front.begin(credential, within(sandbox, ask)).await?
            }
        };
        line.reply().await.map(|started| (line, started.pid))
    };
    let (out, response) = streamed();
    match began.await {
        Err(refusal) if refusal.kind == Kind::NoSandbox => return gone(sandbox),
        Err(refusal) => out.end(Some(&refusal)).await,
        Ok((line, pid)) => drop(tokio::spawn(pass_on(line, pid, out, ping))),
    }
    response
}

/// Passes on what a program writes, until its end.
async fn pass_on(mut line: Line<StartedFacts, End>, pid: u32, out: Out, ping: Duration) {
    let mut told = out
        .message(&json!({ "event": { "start": { "pid": pid } } }))
        .await;
    while told {
        told = tokio::select! {
            next = line.next() => match next {
                Ok(Next::Content(stream, content)) => {
                    let (before, after) = around(stream);
                    out.bytes(before, &content, after).await
                }
                Ok(Next::Message(end)) => return ended(&out, end).await,
                // The worker is gone, and every sandbox with it.
                Err(_) => return out.abort().await,
            },
            () = out.closed() => return,
            () = tokio::time::sleep(ping) => {
                out.message(&json!({ "event": { "keepalive": {} } })).await
            }
        };
    }
}

fn start(asked: &Asked, headers: &HeaderMap) -> Result<StartAsk, Refusal> {
    let config: Config = of(asked.process.as_ref())?;
    let timeout = headers
        .get("connect-timeout-ms")
        .and_then(|value| value.to_str().ok());
    let timeout = timeout.and_then(|value| value.parse::<u64>().ok());
    Ok(StartAsk {
        command: std::iter::once(config.cmd).chain(config.args).collect(),
        environment: config.envs,
        directory: config.cwd.filter(|directory| !directory.is_empty()),
        terminal: asked.pty.as_ref().map(TerminalSize::from),
        tag: asked.tag.clone(),
        input: asked.stdin.unwrap_or(true),
        timeout_ms: timeout.filter(|timeout| *timeout > 0),
        user: asked_user(headers),
    })
}

/// Returns the text around a program's output, of which there can be much.
fn around(stream: Stream) -> (&'static str, &'static str) {
    let before = match stream {
        Stream::Output => r#"{"event":{"data":{"stdout":""#,
        Stream::Error => r#"{"event":{"data":{"stderr":""#,
        Stream::Terminal => r#"{"event":{"data":{"pty":""#,
    };
    (before, r#""}}}"#)
}

/// Tells of a program's end, as far as that can be told.
async fn ended(out: &Out, end: End) {
    let (code, exited, status) = match end {
        End::Exited(status) => (i32::from(status), true, format!("exit status {status}")),
        End::Signalled(number) => (-1, false, format!("signal: {}", signal_name(number))),
        // What an SDK shows of a failed program is its standard error.
        End::Limited(limit) => {
            let why = format!("{}\n", describe_limit(&limit));
            let (before, after) = around(Stream::Error);
            if !out.bytes(before, why.as_bytes(), after).await {
                return;
            }
            (
                limited_status(&limit).into(),
                false,
                why.trim_end().to_owned(),
            )
        }
        End::Late => {
            let late = Refusal::new(Kind::Late, "the program's time was over, and it was ended");
            return out.end(Some(&late)).await;
        }
        End::TooSlow => {
            let what = "others read on, and this reader was too slow";
            return out.end(Some(&Refusal::new(Kind::Quota, what))).await;
        }
        End::Otherwise(why) => return out.end(Some(&Refusal::new(Kind::Invalid, why))).await,
        // The connection breaks off, as it does with a machine that is gone.
        End::Gone(_) => return out.abort().await,
    };
    let mut told = json!({ "exitCode": code, "exited": exited, "status": status });
    if let (Some(fields), true) = (told.as_object_mut(), code != 0) {
        fields.insert("error".to_owned(), json!(status));
    }
    if out.message(&json!({ "event": { "end": told } })).await {
        out.end(None).await;
    }
}

fn signal_name(number: u8) -> String {
    match number {
        1 => "hangup".to_owned(),
        2 => "interrupt".to_owned(),
        3 => "quit".to_owned(),
        6 => "aborted".to_owned(),
        9 => "killed".to_owned(),
        11 => "segmentation fault".to_owned(),
        13 => "broken pipe".to_owned(),
        15 => "terminated".to_owned(),
        other => other.to_string(),
    }
}

/// Passes on a stream of input.
async fn stream_input(front: &Front, sandbox: &str, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let mut envelopes = Envelopes::of(body);
    let mut line: Option<Line<()>> = None;
    let passed = async {
        // Until the process is known, which has a place of its own.
        let mut permit = Some(permitted().await?);
        while let Some(text) = envelopes.next().await? {
            let message: BTreeMap<String, Value> = parsed(&text)?;
            if let Some(begin) = message.get("start") {
                let asked: Asked = of(Some(begin))?;
                let process = asked.selector()?;
                let ask = within(sandbox, protocol::Input { process });
                line = Some(front.begin(token(&parts.headers), ask).await?);
                drop(permit.take());
            } else if let (Some(data), Some(line)) = (message.get("data"), &mut line) {
                let asked: Asked = of(Some(data))?;
                let content = asked.input.as_ref().map(Input::bytes).transpose()?;
                let content = content.unwrap_or_default();
                if line.writer.content(Stream::Output, &content).await.is_err() {
                    break;
                }
            }
        }
        let line = line.ok_or_else(|| Refusal::new(Kind::Invalid, "no process is named"))?;
        line.finish().await
    };
    let (out, response) = streamed();
    match passed.await {
        Err(refusal) if refusal.kind == Kind::NoSandbox => return gone(sandbox),
        Err(refusal) => out.end(Some(&refusal)).await,
        Ok(()) => {
            if out.message(&json!({})).await {
                out.end(None).await;
            }
        }
    }
    response
}

/// Returns how often a caller wants a sign of life.
pub(crate) fn ping_every(headers: &HeaderMap) -> Duration {
    let asked = headers
        .get("keepalive-ping-interval")
        .and_then(|value| value.to_str().ok());
    let seconds = asked
        .and_then(|value| value.parse().ok())
        .filter(|seconds| *seconds > 0);
    seconds.map_or(PING, Duration::from_secs)
}
