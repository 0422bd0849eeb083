//! Programs in a sandbox: run to their end, or started, followed, fed and signalled.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io;
use utoipa::{IntoParams, ToSchema};

use super::{Answered, Api, Content, Path, ProblemDetails, Query, done, event, events, resumes};
use crate::front::Front;
use crate::front::answers::{body, json as answer_json};
use crate::front::ask::{Line, Next, within};
use crate::front::control::once;
use crate::line::Stream;
use crate::protocol::{
    Attach, CloseInput, Credential, End, Input, Kind, Launch, ListProcesses, ProcessFacts, Refusal,
    Resize, Selector, Signal, Start, StartAsk, StartedFacts, TerminalSize, describe_limit,
};

/// The most of each output that a run returns, bytes.
const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// A program to run to its end.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunBody {
    /// The program and its arguments.
    command: Vec<String>,
    /// Variables beside those of the sandbox.
    #[serde(default)]
    environment: std::collections::BTreeMap<String, String>,
    /// The working directory; the home if it is left out.
    directory: Option<String>,
    /// The longest time, milliseconds.
    timeout_ms: Option<u64>,
}

/// A program that has run.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct Ran {
    pid: u32,
    /// The status that it returned.
    exit: Option<u8>,
    /// The signal that ended it.
    signal: Option<u8>,
    /// The reason for another end.
    ended: Option<String>,
    /// Its output; what is no UTF-8 is replaced.
    stdout: String,
    stderr: String,
    /// True if there was more output, which is left out.
    truncated: bool,
}

/// Run a program to its end.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/run", request_body = RunBody, tag = "processes",
    params(("sandbox" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "the same again does not run again")),
    responses((status = 200, body = Ran), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn run(
    api: Api,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    content: Body,
) -> Answered {
    let asked: RunBody = body(content).await?;
    let ask = StartAsk {
        command: asked.command,
        environment: asked.environment,
        directory: asked.directory,
        timeout_ms: asked.timeout_ms,
        ..StartAsk::default()
    };
    let ask = within(&sandbox, Start(Box::new(ask)));
    let line = api.front.begin_once(api.key, once(&headers), ask);
    let mut line = line.await?;
    let mut ran = Ran {
        pid: line.reply().await?.pid,
        ..Ran::default()
    };
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        match line.next().await? {
            Next::Content(stream, content) => {
                let kept = match stream {
                    Stream::Output | Stream::Terminal => &mut stdout,
                    Stream::Error => &mut stderr,
                };
                let room = OUTPUT_BYTES_MAX
                    .saturating_sub(kept.len())
                    .min(content.len());
                kept.extend_from_slice(content.get(..room).unwrap_or_default());
                ran.truncated |= room < content.len();
            }
            Next::Message(end) => {
                ran.end(end);
                break;
            }
        }
    }
    ran.stdout = String::from_utf8_lossy(&stdout).into_owned();
    ran.stderr = String::from_utf8_lossy(&stderr).into_owned();
    Ok(answer_json(StatusCode::OK, &ran))
}

impl Ran {
    fn end(&mut self, end: End) {
        match end {
            End::Exited(status) => self.exit = Some(status),
            End::Signalled(number) => self.signal = Some(number),
            End::Limited(limit) => self.ended = Some(describe_limit(&limit)),
            End::Otherwise(why) | End::Gone(why) => self.ended = Some(why),
            End::Late => self.ended = Some("its time was over".to_owned()),
            End::TooSlow => self.ended = Some("its reader was too slow".to_owned()),
        }
    }
}

/// A program that was started.
#[derive(Serialize, ToSchema)]
pub(crate) struct Started {
    /// The number of its process in the sandbox.
    pid: u32,
}

/// Start a program, which goes on whoever follows it.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/processes", request_body = StartAsk, tag = "processes",
    params(("sandbox" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "the same again does not start again")),
    responses((status = 201, body = Started), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn start(
    api: Api,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    content: Body,
) -> Answered {
    let asked: StartAsk = body(content).await?;
    let ask = within(&sandbox, Launch(Box::new(asked)));
    let line = api.front.begin_once(api.key, once(&headers), ask);
    let pid = line.await?.reply().await?.pid;
    Ok(answer_json(StatusCode::CREATED, &Started { pid }))
}

/// List the running programs.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/processes", params(("sandbox" = String, Path)), tag = "processes",
    responses((status = 200, body = Vec<ProcessFacts>), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn list(api: Api, Path(sandbox): Path<String>) -> Answered {
    api.answer(StatusCode::OK, within(&sandbox, ListProcesses {}))
        .await
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutputQuery {
    /// The offset to begin at, bytes; what is kept of the output if it is left out.
    from: Option<u64>,
}

impl OutputQuery {
    pub(super) fn from(&self) -> u64 {
        self.from.unwrap_or(0)
    }
}

/// Begins to follow a program's output from an offset on; returns with it the bytes that are lost,
/// and the offset of what follows.
pub(super) async fn attach(
    front: &Front,
    key: &Credential,
    sandbox: &str,
    pid: u32,
    from: u64,
) -> Result<(Line<StartedFacts, End>, StartedFacts), Refusal> {
    let ask = Attach {
        process: Selector::Pid(pid),
        from: Some(from),
    };
    let mut line = front.begin(key.clone(), within(sandbox, ask)).await?;
    let started = line.reply().await?;
    Ok((line, started))
}

/// Follow a program's output to its end, as server-sent events.
///
/// `output` has `stream` (`stdout`, `stderr` or `terminal`) and `base64`; its id is the offset
/// behind it. `lost` has the `bytes` that are not kept any more. `end` has `exited`, `signalled`
/// or another reason.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/processes/{pid}/output", params(("sandbox" = String, Path), ("pid" = u32, Path), OutputQuery), tag = "processes",
    responses((status = 200, content_type = "text/event-stream"), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn output(
    api: Api,
    headers: HeaderMap,
    Path((sandbox, pid)): Path<(String, u32)>,
    Query(query): Query<OutputQuery>,
) -> Answered {
    let from = resumes(&headers).unwrap_or(query.from());
    let (line, started) = attach(&api.front, &api.key, &sandbox, pid, from).await?;
    let StartedFacts { lost, at, .. } = started;
    let mut first = String::new();
    if lost > 0 {
        first = event("lost", Some(at), &json!({ "bytes": lost }));
    }
    let first = futures_util::stream::once(async move { Ok(Bytes::from(first)) });
    let rest = futures_util::stream::unfold(Some((line, at)), async |state| {
        let (mut line, at) = state?;
        Some(match line.next().await {
            Ok(Next::Content(stream, content)) => {
                let at = at + content.len() as u64;
                let data =
                    json!({ "stream": name(stream), "base64": BASE64_STANDARD.encode(&content) });
                (
                    Ok(event("output", Some(at), &data).into()),
                    Some((line, at)),
                )
            }
            Ok(Next::Message(end)) => (Ok(event("end", None, &json!(end)).into()), None),
            Err(refusal) => (Err(io::Error::other(refusal)), None),
        })
    });
    Ok(events(Body::from_stream(first.chain(rest))))
}

fn name(stream: Stream) -> &'static str {
    match stream {
        Stream::Output => "stdout",
        Stream::Error => "stderr",
        Stream::Terminal => "terminal",
    }
}

/// Write the body to a program's input.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/processes/{pid}/input", params(("sandbox" = String, Path), ("pid" = u32, Path)), tag = "processes",
    request_body(content = inline(Content), content_type = "application/octet-stream"),
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn input(
    api: Api,
    Path((sandbox, pid)): Path<(String, u32)>,
    content: Body,
) -> Answered {
    let process = Selector::Pid(pid);
    let ask = within(&sandbox, Input { process });
    let line = api.front.begin(api.key, ask).await?;
    line.fill(content).await?;
    Ok(done())
}

/// Close a program's input.
#[utoipa::path(delete, path = "/v1/sandboxes/{sandbox}/processes/{pid}/input", params(("sandbox" = String, Path), ("pid" = u32, Path)), tag = "processes",
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn close_input(api: Api, Path((sandbox, pid)): Path<(String, u32)>) -> Answered {
    let process = Selector::Pid(pid);
    let ask = CloseInput { process };
    api.carry_out(within(&sandbox, ask)).await
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignalBody {
    /// The signal's number, 1 to 64.
    number: u8,
}

/// Send a program's process group a signal.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/processes/{pid}/signal", request_body = SignalBody, params(("sandbox" = String, Path), ("pid" = u32, Path)), tag = "processes",
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn signal(
    api: Api,
    Path((sandbox, pid)): Path<(String, u32)>,
    content: Body,
) -> Answered {
    let asked: SignalBody = body(content).await?;
    if !(1..=64).contains(&asked.number) {
        return Err(Refusal::new(Kind::Invalid, "number is 1 to 64: a signal's").into());
    }
    let ask = Signal {
        process: Selector::Pid(pid),
        number: asked.number,
    };
    api.carry_out(within(&sandbox, ask)).await
}

/// Set the size of a program's terminal.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/processes/{pid}/terminal", request_body = TerminalSize, params(("sandbox" = String, Path), ("pid" = u32, Path)), tag = "processes",
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn resize(
    api: Api,
    Path((sandbox, pid)): Path<(String, u32)>,
    content: Body,
) -> Answered {
    let terminal: TerminalSize = body(content).await?;
    let ask = Resize {
        process: Selector::Pid(pid),
        terminal,
    };
    api.carry_out(within(&sandbox, ask)).await
}
