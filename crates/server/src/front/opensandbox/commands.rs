//! Commands in a sandbox, as execd runs them: followed as server-sent events, or in the background.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::front::dialect::*;

/// The time after which nothing more of the output that is kept is to come.
const QUIET: Duration = Duration::from_millis(100);
/// The longest output that is returned at once, bytes.
const LOG_BYTES_MAX: usize = 4 << 20;
const SIGTERM: u8 = 15;

/// Answers a request about commands.
pub(super) async fn answer(sandbox: &Sandbox, path: &[&str], request: Request<Body>) -> Answered {
    let query = Query::of(request.uri());
    match (request.method().as_str(), path) {
        ("POST", [_]) => run(sandbox, body(request).await?).await,
        ("DELETE", [_]) => {
            let ask = Signal {
                process: process(&query.one("id").unwrap_or_default())?,
                number: SIGTERM,
            };
            done(StatusCode::OK, sandbox.call(ask).await)
        }
        ("GET", [_, "status", id]) => status(sandbox, id).await,
        ("GET", [_, id, "logs"]) => {
            let cursor = query.checked_number("cursor")?;
            logs(sandbox, id, cursor.unwrap_or(0)).await
        }
        _ => Err(not_offered(&request)),
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
                return Err(Refusal::invalid("one of command and argv is needed"));
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
async fn run(sandbox: &Sandbox, asked: Run) -> Answered {
    let background = asked.background;
    let (line, pid) = sandbox.start(asked.ask()?).await?;
    let (events, response) = Events::stream();
    tokio::spawn(async move {
        let started = json!({ "text": pid.to_string() });
        if events.send("init", started).await {
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
    pub(super) out: Out,
    began: Instant,
}

impl Events {
    /// Begins a stream of events; returns the answer that it is.
    pub(super) fn stream() -> (Self, Response) {
        let (out, response) = crate::front::stream::events();
        let began = Instant::now();
        (Self { out, began }, response)
    }

    /// Sends an event; returns whether the other side is there.
    pub(super) async fn send(&self, kind: &str, fields: Value) -> bool {
        let mut event = json!({ "type": kind, "timestamp": now_ms() });
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        self.out.send(format!("data: {event}\n\n")).await
    }

    pub(super) async fn complete(&self) {
        let took = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let took = json!({ "execution_time": took });
        self.send("execution_complete", took).await;
    }

    pub(super) async fn failed(&self, name: &str, value: &str, why: &str) {
        let error = json!({ "ename": name, "evalue": value, "traceback": [why] });
        self.send("error", json!({ "error": error })).await;
    }
}

/// Passes on what a command writes, until its end or the reader's.
async fn follow(mut line: Line<StartedFacts, End>, events: &Events) {
    let (mut stdout, mut stderr) = (Characters::default(), Characters::default());
    while let Some(next) = events.out.next(&mut line).await {
        let (kind, text) = match next {
            Next::Content(Stream::Error, content) => ("stderr", stderr.take(&content)),
            Next::Content(_, content) => ("stdout", stdout.take(&content)),
            Next::Message(end) => {
                for (kind, rest) in [("stdout", stdout.rest()), ("stderr", stderr.rest())] {
                    if !rest.is_empty() {
                        events.send(kind, json!({ "text": rest })).await;
                    }
                }
                return ended(&end, events).await;
            }
        };
        if !text.is_empty() && !events.send(kind, json!({ "text": text })).await {
            return;
        }
    }
}

/// Returns the exit code that clients read, if there is one, and the reason.
fn outcome(end: &End) -> (Option<i32>, String) {
    let code = match end {
        End::Exited(code) => Some((*code).into()),
        // As shells have it.
        End::Signalled(number) => Some(128 + i32::from(*number)),
        End::Limited(limit) => Some(limited_status(limit).into()),
        End::Late => return (None, format!("{}, and it was ended", end.why())),
        End::TooSlow | End::Otherwise(_) | End::Gone(_) => None,
    };
    (code, end.why())
}

async fn ended(end: &End, events: &Events) {
    match outcome(end) {
        (Some(0), _) => events.complete().await,
        (Some(code), why) => {
            let code = code.to_string();
            events.failed("CommandExecError", &code, &why).await;
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
    let last = bytes.utf8_chunks().last();
    let last = last.map(|chunk| chunk.invalid()).unwrap_or_default();
    match str::from_utf8(last) {
        Err(error) if error.error_len().is_none() => last.len(),
        _ => 0,
    }
}

/// Tells whether a command runs, and how it ended.
async fn status(sandbox: &Sandbox, id: &str) -> Answered {
    let wanted = process(id)?;
    let all = sandbox.call(ListProcesses {}).await?;
    if let Some(running) = all.iter().find(|one| wanted == Selector::Pid(one.pid)) {
        let content = running.started.command.last();
        return ok(&json!({ "id": id, "running": true, "content": content }));
    }
    let (_, _, end) = output(sandbox, id, None).await?;
    let (code, why) = end.as_ref().map(outcome).unwrap_or_default();
    let ended = json!({ "id": id, "running": false, "exit_code": code });
    ok(&with(ended, "error", (code != Some(0)).then_some(why)))
}

/// Returns what is kept of a command's output from a place on, the place behind it, and the end if
/// it has come.
async fn output(
    sandbox: &Sandbox,
    id: &str,
    from: Option<u64>,
) -> Result<(Vec<u8>, u64, Option<End>), Refusal> {
    let process = process(id)?;
    let mut line = sandbox.begin(Attach { process, from }).await?;
    let at = line.reply().await?.at;
    let (mut all, mut end) = (Vec::new(), None);
    while end.is_none() && all.len() < LOG_BYTES_MAX {
        let Ok(next) = timeout(QUIET, line.next()).await else {
            break;
        };
        match next? {
            Next::Content(_, content) => all.extend_from_slice(&content),
            Next::Message(last) => end = Some(last),
        }
    }
    let next = at + all.len() as u64;
    Ok((all, next, end))
}

/// Returns what a command has written; the cursor is the number of bytes before.
async fn logs(sandbox: &Sandbox, id: &str, cursor: u64) -> Answered {
    let (content, next, _) = output(sandbox, id, Some(cursor)).await?;
    let content = String::from_utf8_lossy(&content).into_owned();
    let mut response = text("text/plain; charset=utf-8", content);
    let headers = response.headers_mut();
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
