//! E2B's process service, by the Connect protocol in JSON.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;

use super::dialect::*;
use super::envelopes::{self, Envelopes, connect, message, ping_every, with_bytes};
use super::permit::permitted;
use super::senders::asked_user;

const SIGKILL: u8 = 9;
const SIGTERM: u8 = 15;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    process: Option<Process>,
    pty: Option<Pty>,
    tag: Option<String>,
    stdin: Option<bool>,
    input: Option<Input>,
    signal: Option<Value>,
}

/// A program to start, or the name of one that was.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Process {
    cmd: String,
    args: Vec<String>,
    envs: BTreeMap<String, String>,
    cwd: Option<String>,
    pid: Option<u32>,
    tag: Option<String>,
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

#[derive(Deserialize)]
struct Input {
    stdin: Option<String>,
    pty: Option<String>,
}

/// A message of a stream of input.
#[derive(Deserialize)]
struct Streamed {
    start: Option<Asked>,
    data: Option<Asked>,
}

impl Asked {
    fn selector(&self) -> Result<Selector, Refusal> {
        let process = self.process.as_ref();
        let by_tag = || Some(Selector::Tag(process?.tag.clone()?));
        let found = process.and_then(|process| process.pid).map(Selector::Pid);
        let what = "process names neither pid nor tag";
        let none = || Refusal::invalid(what);
        found.or_else(by_tag).ok_or_else(none)
    }

    /// Returns the bytes of its input.
    fn content(&self) -> Result<Bytes, Refusal> {
        let input = self.input.as_ref();
        let text = input.and_then(|input| input.stdin.as_deref().or(input.pty.as_deref()));
        let wrong = |error| Refusal::invalid(format!("input: {error}"));
        let content = BASE64_STANDARD.decode(text.unwrap_or_default());
        Ok(content.map_err(wrong)?.into())
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

/// Answers a request of the service.
pub(crate) async fn answer(sandbox: &Sandbox, method: &str, request: Request<Body>) -> Response {
    match method {
        "Start" | "Connect" => return follow(sandbox, method, request).await,
        "StreamInput" => return stream_input(sandbox, request).await,
        _ => {}
    }
    let answered = async {
        // First, since a connection with an unread body cannot be used again.
        let text = whole(request.into_body()).await?;
        carry_out(sandbox, method, understood(&text).await?).await
    };
    connect(&sandbox.id, answered.await)
}

async fn carry_out(sandbox: &Sandbox, method: &str, asked: Asked) -> Result<Value, Refusal> {
    let process = || asked.selector();
    match method {
        "List" => {
            let all = sandbox.call(ListProcesses {}).await?;
            let all: Vec<Value> = all.iter().map(listed).collect();
            return Ok(json!({ "processes": all }));
        }
        "SendInput" => {
            let content = asked.content()?;
            let process = process()?;
            let mut line = sandbox.begin(protocol::Input { process }).await?;
            // What stands in its way is in the answer.
            let _ = line.writer.content(Stream::Output, &content).await;
            line.finish().await?;
        }
        "CloseStdin" => {
            let process = process()?;
            sandbox.call(CloseInput { process }).await?;
        }
        "SendSignal" => {
            let (process, number) = (process()?, signal(asked.signal.as_ref())?);
            sandbox.call(Signal { process, number }).await?;
        }
        "Update" => {
            let terminal = TerminalSize::from(asked.pty.as_ref().unwrap_or(&Pty::default()));
            let process = process()?;
            sandbox.call(Resize { process, terminal }).await?;
        }
        _ => {
            let what = format!("process.Process has no {method}");
            return Err(Refusal::new(Kind::NotFound, what));
        }
    }
    Ok(json!({}))
}

fn signal(value: Option<&Value>) -> Result<u8, Refusal> {
    match value {
        Some(Value::String(name)) if name == "SIGNAL_SIGKILL" => Ok(SIGKILL),
        Some(Value::String(name)) if name == "SIGNAL_SIGTERM" => Ok(SIGTERM),
        Some(Value::Number(number)) if number.as_u64() == Some(SIGKILL.into()) => Ok(SIGKILL),
        Some(Value::Number(number)) if number.as_u64() == Some(SIGTERM.into()) => Ok(SIGTERM),
        _ => Err(Refusal::invalid(
            "signal is SIGNAL_SIGTERM or SIGNAL_SIGKILL",
        )),
    }
}

fn listed(process: &ProcessFacts) -> Value {
    let started = &process.started;
    let described = json!({
        "config": {
            "cmd": started.command.first(),
            "args": started.command.get(1..).unwrap_or_default(),
            "envs": started.environment,
            "cwd": started.directory,
        },
        "pid": process.pid,
    });
    with(described, "tag", started.tag.as_ref())
}

/// Starts a program, or attaches to one, and streams what it writes.
async fn follow(sandbox: &Sandbox, method: &str, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let begun = async {
        let text = Envelopes::only(whole(body).await?)?;
        let asked: Asked = understood(&text).await?;
        if method == "Start" {
            return sandbox.start(start(asked, &parts.headers)).await;
        }
        let (process, from) = (asked.selector()?, None);
        let mut line = sandbox.begin(Attach { process, from }).await?;
        line.reply().await.map(|started| (line, started.pid))
    };
    let sign = message(&json!({ "event": { "keepalive": {} } }));
    let ping = ping_every(&parts.headers);
    let pass_on = |(line, pid), out: Out| pass_on(line, pid, out.alive(sign, ping));
    envelopes::stream(&sandbox.id, begun.await, pass_on).await
}

/// Passes on what a program writes, until its end.
async fn pass_on(mut line: Line<StartedFacts, End>, pid: u32, out: Out) {
    let started = json!({ "event": { "start": { "pid": pid } } });
    let mut is_there = out.send(message(&started)).await;
    while is_there && let Some(next) = out.next(&mut line).await {
        is_there = match next {
            Next::Content(stream, content) => out.send(output(stream, &content)).await,
            Next::Message(end) => return ended(&out, end).await,
        };
    }
}

fn start(asked: Asked, headers: &HeaderMap) -> StartAsk {
    let process = asked.process.unwrap_or_default();
    let timeout = header_of(headers, "connect-timeout-ms");
    let timeout = timeout.and_then(|value| value.parse::<u64>().ok());
    StartAsk {
        command: std::iter::once(process.cmd).chain(process.args).collect(),
        environment: process.envs,
        directory: process.cwd.filter(|directory| !directory.is_empty()),
        terminal: asked.pty.as_ref().map(TerminalSize::from),
        tag: asked.tag,
        input: asked.stdin.unwrap_or(true),
        timeout_ms: timeout.filter(|timeout| *timeout > 0),
        user: asked_user(headers),
    }
}

/// Makes the message of a program's output, of which there can be much.
fn output(stream: Stream, content: &[u8]) -> Bytes {
    let before = match stream {
        Stream::Output => r#"{"event":{"data":{"stdout":""#,
        Stream::Error => r#"{"event":{"data":{"stderr":""#,
        Stream::Terminal => r#"{"event":{"data":{"pty":""#,
    };
    with_bytes(before, content, r#""}}}"#)
}

/// Tells of a program's end, as far as that can be told.
async fn ended(out: &Out, end: End) {
    let refuse = async |kind, what: &str| {
        let refusal = Refusal::new(kind, what);
        out.send(envelopes::last(Some(&refusal))).await;
    };
    let why = end.why();
    let (code, exited, status) = match end {
        End::Exited(status) => (i32::from(status), true, why),
        End::Signalled(number) => (-1, false, format!("signal: {}", signal_name(number))),
        // What an SDK shows of a failed program is its standard error.
        End::Limited(limit) => {
            let shown = format!("{why}\n");
            if !out.send(output(Stream::Error, shown.as_bytes())).await {
                return;
            }
            (limited_status(&limit).into(), false, why)
        }
        End::Late => {
            let what = "the program's time was over, and it was ended";
            return refuse(Kind::Late, what).await;
        }
        End::TooSlow => {
            let what = "others read on, and this reader was too slow";
            return refuse(Kind::Quota, what).await;
        }
        End::Otherwise(_) => return refuse(Kind::Invalid, &why).await,
        // The connection breaks off, as it does with a machine that is gone.
        End::Gone(_) => return out.abort().await,
    };
    let ended = json!({ "exitCode": code, "exited": exited, "status": status });
    let ended = with(ended, "error", (code != 0).then_some(status));
    let ended = message(&json!({ "event": { "end": ended } }));
    if out.send(ended).await {
        out.send(envelopes::last(None)).await;
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
async fn stream_input(sandbox: &Sandbox, request: Request<Body>) -> Response {
    let mut envelopes = Envelopes::of(request.into_body());
    let mut line: Option<Line<()>> = None;
    let passed = async {
        // Until the process is known, which has a place of its own.
        let mut permit = Some(permitted().await?);
        while let Some(text) = envelopes.next().await? {
            let Streamed { start, data } = parsed(&text)?;
            if let Some(asked) = start {
                let process = asked.selector()?;
                line = Some(sandbox.begin(protocol::Input { process }).await?);
                drop(permit.take());
            } else if let (Some(asked), Some(line)) = (data, &mut line) {
                let content = asked.content()?;
                if line.writer.content(Stream::Output, &content).await.is_err() {
                    break;
                }
            }
        }
        let line = line.ok_or_else(|| Refusal::invalid("no process is named"))?;
        line.finish().await
    };
    let end = async |(), out: Out| {
        if out.send(message(&json!({}))).await {
            out.send(envelopes::last(None)).await;
        }
    };
    envelopes::stream(&sandbox.id, passed.await, end).await
}
