//! Programs in a sandbox: run to their end, or started, followed, fed and signalled.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::{Answered, Content, Json, Process, Query, done, resumes};
use crate::front::ask::within;
use crate::front::dialect::*;
use crate::front::exec::collect;
use crate::front::senders::once;
use crate::front::stream::{event, events};

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
#[derive(Serialize, ToSchema)]
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
    params(("Idempotency-Key" = Option<String>, Header, description = "the same again does not run again")),
    responses((status = 200, body = Ran)))]
pub(crate) async fn run(
    sandbox: Sandbox,
    headers: HeaderMap,
    Json(asked): Json<RunBody>,
) -> Answered {
    let ask = StartAsk {
        command: asked.command,
        environment: asked.environment,
        directory: asked.directory,
        timeout_ms: asked.timeout_ms,
        ..StartAsk::default()
    };
    let ask = within(&sandbox.id, Start(Box::new(ask)));
    let mut line = sandbox.caller.begin_once(once(&headers), ask).await?;
    let pid = line.reply().await?.pid;
    let ran = collect(line, OUTPUT_BYTES_MAX).await?;
    let (mut exit, mut signal, mut ended) = (None, None, None);
    match ran.end {
        End::Exited(status) => exit = Some(status),
        End::Signalled(number) => signal = Some(number),
        _ => ended = Some(ran.end.why()),
    }
    let ran = Ran {
        pid,
        exit,
        signal,
        ended,
        stdout: ran.stdout.text(),
        stderr: ran.stderr.text(),
        truncated: ran.stdout.is_cut || ran.stderr.is_cut,
    };
    Ok(answer_json(StatusCode::OK, &ran))
}

/// A program that was started.
#[derive(Serialize, ToSchema)]
pub(crate) struct Started {
    /// The number of its process in the sandbox.
    pid: u32,
}

/// Start a program, which goes on whoever follows it.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/processes", request_body = StartAsk, tag = "processes",
    params(("Idempotency-Key" = Option<String>, Header, description = "the same again does not start again")),
    responses((status = 201, body = Started)))]
pub(crate) async fn start(
    sandbox: Sandbox,
    headers: HeaderMap,
    Json(asked): Json<StartAsk>,
) -> Answered {
    let ask = within(&sandbox.id, Launch(Box::new(asked)));
    let line = sandbox.caller.begin_once(once(&headers), ask);
    let pid = line.await?.reply().await?.pid;
    Ok(answer_json(StatusCode::CREATED, &Started { pid }))
}

/// List the running programs.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/processes", tag = "processes", responses((status = 200, body = Vec<ProcessFacts>)))]
pub(crate) async fn list(sandbox: Sandbox) -> Answered {
    sandbox.answer(ListProcesses {}).await
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
    of: &Process,
    from: u64,
) -> Result<(Line<StartedFacts, End>, StartedFacts), Refusal> {
    let (process, from) = (of.selector(), Some(from));
    let mut line = of.sandbox.begin(Attach { process, from }).await?;
    let started = line.reply().await?;
    Ok((line, started))
}

/// Follow a program's output to its end, as server-sent events.
///
/// `output` has `stream` (`stdout`, `stderr` or `terminal`) and `base64`; its id is the offset
/// behind it. `lost` has the `bytes` that are not kept any more. `end` has `exited`, `signalled`
/// or another reason.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/processes/{pid}/output", params(OutputQuery), tag = "processes",
    responses((status = 200, content_type = "text/event-stream")))]
pub(crate) async fn output(
    headers: HeaderMap,
    process: Process,
    Query(query): Query<OutputQuery>,
) -> Answered {
    let from = resumes(&headers).unwrap_or(query.from());
    let (mut line, StartedFacts { lost, mut at, .. }) = attach(&process, from).await?;
    let (out, response) = events();
    tokio::spawn(async move {
        let lost = match lost {
            0 => String::new(),
            _ => event("lost", Some(at), &json!({ "bytes": lost })),
        };
        let mut is_there = out.send(lost).await;
        while is_there && let Some(next) = out.next(&mut line).await {
            is_there = match next {
                Next::Content(stream, content) => {
                    at += content.len() as u64;
                    let content = BASE64_STANDARD.encode(&content);
                    let output = json!({ "stream": name(stream), "base64": content });
                    out.send(event("output", Some(at), &output)).await
                }
                Next::Message(end) => {
                    out.send(event("end", None, &json!(end))).await;
                    false
                }
            };
        }
    });
    Ok(response)
}

fn name(stream: Stream) -> &'static str {
    match stream {
        Stream::Output => "stdout",
        Stream::Error => "stderr",
        Stream::Terminal => "terminal",
    }
}

/// Write the body to a program's input.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/processes/{pid}/input", tag = "processes",
    request_body(content = inline(Content), content_type = "application/octet-stream"),
    responses((status = 200)))]
pub(crate) async fn input(of: Process, content: Body) -> Answered {
    let process = of.selector();
    let line = of.sandbox.begin(Input { process }).await?;
    line.fill(content).await?;
    Ok(done())
}

/// Close a program's input.
#[utoipa::path(delete, path = "/v1/sandboxes/{sandbox}/processes/{pid}/input", tag = "processes", responses((status = 200)))]
pub(crate) async fn close_input(of: Process) -> Answered {
    let process = of.selector();
    of.sandbox.carry_out(CloseInput { process }).await
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignalBody {
    /// The signal's number, 1 to 64.
    number: u8,
}

/// Send a program's process group a signal.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/processes/{pid}/signal", request_body = SignalBody, tag = "processes", responses((status = 200)))]
pub(crate) async fn signal(of: Process, Json(asked): Json<SignalBody>) -> Answered {
    if !(1..=64).contains(&asked.number) {
        return Err(Refusal::invalid("number is 1 to 64: a signal's").into());
    }
    let (process, number) = (of.selector(), asked.number);
    of.sandbox.carry_out(Signal { process, number }).await
}

/// Set the size of a program's terminal.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/processes/{pid}/terminal", request_body = TerminalSize, tag = "processes", responses((status = 200)))]
pub(crate) async fn resize(of: Process, Json(terminal): Json<TerminalSize>) -> Answered {
    let process = of.selector();
    of.sandbox.carry_out(Resize { process, terminal }).await
}
