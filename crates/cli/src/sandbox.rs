//! `atoll sandbox`: a client of a server's own API.

pub(crate) mod build;
mod context;
mod dockerfile;
mod exec;
mod network;
mod snapshot;
pub(crate) mod template;
mod volume;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};

use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_model::{parse_bytes, parse_duration};
use atoll_server::tls_of_clients;
use serde_json::{Value, json};
use ureq::http::Response;
use ureq::{Agent, Body, SendBody};

use crate::arguments::{
    CopyArguments, CreateSandboxArguments, ForkArguments, ListFilesArguments,
    ListSandboxesArguments, LogsArguments, PortsOfSandboxArguments, SandboxAction,
    SandboxArguments,
};
use crate::output::Output;

pub use snapshot::snapshots;
pub use volume::volume;

/// The server where none is named.
const DEFAULT_URL: &str = "http://127.0.0.1:3000";
/// The longest answer that is read as a whole, bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The variables that hold a server's key, the first that is set.
const KEYS: [&str; 2] = ["ATOLL_API_KEY", "E2B_API_KEY"];

/// Returns whether a server's key is set.
pub(crate) fn has_key() -> bool {
    KEYS.iter().any(|name| std::env::var_os(name).is_some())
}

/// Returns the calls that wait for an approver of the server.
///
/// # Errors
/// When the server cannot be asked, or refuses.
pub(crate) fn approvals() -> Result<Vec<Value>, Failure> {
    let all = Server::of_environment()?.json("GET", "/v1/approvals", &Value::Null)?;
    Ok(all.as_array().cloned().unwrap_or_default())
}

/// Carries out `atoll sandbox`.
///
/// # Errors
/// When the server cannot be asked, or refuses.
pub fn sandbox(arguments: &SandboxArguments, output: &Output) -> Result<u8, Failure> {
    let server = Server::of_environment()?;
    match &arguments.action {
        SandboxAction::Create(arguments) => create(&server, arguments, output),
        SandboxAction::List(arguments) => list(&server, arguments, output),
        SandboxAction::Exec(arguments) => exec::exec(&server, arguments),
        SandboxAction::Shell(arguments) => exec::shell(&server, arguments),
        SandboxAction::Ports(arguments) => ports(&server, arguments, output),
        SandboxAction::Logs(arguments) => logs(&server, arguments, output),
        SandboxAction::Cp(arguments) => copy(&server, arguments),
        SandboxAction::Ls(arguments) => list_files(&server, arguments, output),
        SandboxAction::Pause(arguments) => {
            let path = sandbox_path(&arguments.id, "/pause");
            let asked = match arguments.files {
                true => json!({ "memory": false }),
                false => json!({}),
            };
            let paused = server.json("POST", &path, &asked)?;
            output.say(match paused.get("memory_kept") == Some(&json!(true)) {
                true => "kept: its memory, for as long as there is room, and its files\n",
                false => "kept: its files; its programs have ended\n",
            });
            Ok(0)
        }
        SandboxAction::Resume(arguments) => {
            let path = sandbox_path(&arguments.id, "/connect");
            server.json("POST", &path, &json!({})).map(|_| 0)
        }
        SandboxAction::Snapshot(arguments) => {
            let path = sandbox_path(&arguments.id, "/snapshots");
            let body = json!({ "name": arguments.name });
            let (made, filed) = server.filed(&path, &body)?;
            match arguments.json {
                true => output.json(&made),
                false => output.result(&format!("{}\n", text_of(&made, "id"))),
            }
            output.say(&filed);
            Ok(0)
        }
        SandboxAction::Fork(arguments) => fork(&server, arguments, output),
        SandboxAction::Rollback(arguments) => {
            let path = sandbox_path(&arguments.id, "/rollback");
            let body = json!({ "snapshot": arguments.snapshot });
            server.json("POST", &path, &body).map(|_| 0)
        }
        SandboxAction::Kill(arguments) => {
            let path = sandbox_path(&arguments.id, "");
            server.ask("DELETE", &path, SendBody::none()).map(|_| 0)
        }
    }
}

/// Makes forks, and prints their ids; fails if one of them was not made.
fn fork(server: &Server, arguments: &ForkArguments, output: &Output) -> Result<u8, Failure> {
    let path = sandbox_path(&arguments.id, "/fork");
    let (forks, filed) = server.filed(&path, &json!({ "count": arguments.count }))?;
    let mut why = None;
    if arguments.json {
        output.json(&forks);
    }
    for one in forks.as_array().into_iter().flatten() {
        match one.pointer("/problem").and_then(Value::as_str) {
            Some(problem) => why = Some(printable(problem.as_bytes())),
            None if arguments.json => {}
            None => {
                let sandbox = one.pointer("/created/sandbox").unwrap_or(&Value::Null);
                output.result(&format!("{}\n", text_of(sandbox, "id")));
            }
        }
    }
    output.say(&filed);
    match why {
        None => Ok(0),
        Some(why) => Err(Failure::new("not every fork was made").because(why)),
    }
}

/// A server, as its clients see it.
#[derive(Clone)]
struct Server {
    agent: Agent,
    url: String,
    key: String,
}

impl Server {
    fn of_environment() -> Result<Self, Failure> {
        let one_of = |names: [&str; 2]| names.into_iter().find_map(|name| std::env::var(name).ok());
        let url = one_of(["ATOLL_URL", "E2B_API_URL"]);
        let url = url.unwrap_or_else(|| DEFAULT_URL.to_owned());
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(Failure::new(format!("{url} is no address of a server"))
                .because("it begins with http:// or https://")
                .advise(format!("ATOLL_URL={DEFAULT_URL}")));
        }
        let key = one_of(KEYS).ok_or_else(|| {
            Failure::new("no key is set for the server").advise(
                "set ATOLL_API_KEY; atoll serve keys create makes a key, on the server's machine",
            )
        })?;
        let settings = Agent::config_builder().http_status_as_error(false);
        let settings = match url.starts_with("https://") {
            true => settings.tls_config(tls_of_clients()).build(),
            false => settings.build(),
        };
        Ok(Self {
            agent: settings.into(),
            url: url.trim_end_matches('/').to_owned(),
            key,
        })
    }

    /// Makes a request; an answer other than success is the failure that it tells of.
    fn ask(&self, method: &str, path: &str, body: SendBody<'_>) -> Result<Response<Body>, Failure> {
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("X-API-Key", &self.key)
            .body(body)
            .doing("the request cannot be made")?;
        let answer = self.agent.run(request).map_err(|error| {
            Failure::new(format!("the server at {} cannot be asked", self.url))
                .because(error)
                .advise("atoll serve begins one; ATOLL_URL names another")
        })?;
        match answer.status().is_success() {
            true => Ok(answer),
            false => Err(refused(answer)),
        }
    }

    fn json(&self, method: &str, path: &str, body: &Value) -> Result<Value, Failure> {
        read(self.sent(method, path, body)?)
    }

    fn sent(&self, method: &str, path: &str, body: &Value) -> Result<Response<Body>, Failure> {
        match body {
            Value::Null => self.ask(method, path, SendBody::none()),
            _ => {
                let mut text = io::Cursor::new(body.to_string().into_bytes());
                self.ask(method, path, SendBody::from_reader(&mut text))
            }
        }
    }

    /// Asks for others that begin with a sandbox's files; returns also what is to be said of these.
    fn filed(&self, path: &str, body: &Value) -> Result<(Value, String), Failure> {
        let answer = self.sent("POST", path, body)?;
        let how = answer.headers().get("atoll-files");
        let said = match how.map(|how| how.as_bytes()) {
            Some(b"shared") => "its files are shared: none was copied",
            Some(b"flattened") => "its files were copied: as many layers as can be lay beneath",
            _ => "its files were copied",
        };
        Ok((read(answer)?, format!("{said}\n")))
    }
}

fn read(answer: Response<Body>) -> Result<Value, Failure> {
    let mut body = answer.into_body();
    let text = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
    let text = text.doing("the answer cannot be read")?;
    serde_json::from_slice(&text).doing("the answer is not understood")
}

/// Returns the failure that an answer tells of (RFC 9457).
fn refused(answer: Response<Body>) -> Failure {
    let status = answer.status();
    let told = read(answer).unwrap_or_default();
    let text = |name: &str| {
        told.get(name)
            .and_then(Value::as_str)
            .map(|text| printable(text.as_bytes()))
    };
    let failure = Failure::new("The server rejected the request");
    let failure = match text("detail").or_else(|| text("message")) {
        Some(detail) => failure.because(detail),
        None => failure.because(status),
    };
    match text("advice") {
        Some(advice) => failure.advise(advice),
        None => failure,
    }
}

fn sandbox_path(id: &str, rest: &str) -> String {
    format!("/v1/sandboxes/{}{rest}", encoded(id))
}

/// Writes a text as a part of an address (RFC 3986, 2.1).
fn encoded(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let one = |byte: &u8| match plain(byte) {
        true => char::from(*byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.as_bytes().iter().map(one).collect()
}

/// Reads `NAME=VALUE`s.
fn pairs(texts: &[String], option: &str) -> Result<BTreeMap<String, String>, Failure> {
    let pair = |text: &String| {
        let (name, value) = text.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    let all: Option<_> = texts.iter().map(pair).collect();
    all.ok_or_else(|| Failure::new(format!("{option} takes NAME=VALUE")))
}

fn create(
    server: &Server,
    arguments: &CreateSandboxArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let timeout = arguments.timeout.as_deref().map(parse_duration).transpose();
    let timeout = timeout.map_err(|error| {
        Failure::new("--timeout is no time")
            .because(error)
            .advise("--timeout 10m")
    })?;
    let made = server.json(
        "POST",
        "/v1/sandboxes",
        &json!({
            "template": arguments.template.as_deref().unwrap_or("base"),
            "timeout_s": timeout.map(|time| time.as_secs()),
            "cpus": arguments.cpus,
            "memory_mib": mebibytes(arguments.memory.as_deref(), "--memory")?,
            "disk_mib": mebibytes(arguments.disk.as_deref(), "--disk")?,
            "volumes": volume::mounts(&arguments.volume)?,
            "network": network::asked(arguments.network.as_deref())?,
            "environment": pairs(&arguments.env, "--env")?,
            "metadata": pairs(&arguments.metadata, "--metadata")?,
        }),
    )?;
    if arguments.json {
        output.json(&made);
        return Ok(0);
    }
    let of = |name: &str| text_of(made.pointer("/sandbox").unwrap_or(&Value::Null), name);
    output.result(&format!("{}\n", of("id")));
    output.say(&format!("network {}, run {}\n", of("network"), of("run")));
    Ok(0)
}

/// Reads a size as one of whole MiB, at least 1.
fn mebibytes(size: Option<&str>, option: &str) -> Result<Option<u64>, Failure> {
    let bytes = size.map(parse_bytes).transpose();
    let bytes = bytes.map_err(|error| {
        Failure::new(format!("{option} is no size"))
            .because(error)
            .advise(format!("{option} 512M"))
    })?;
    if bytes == Some(0) {
        let what = format!("{option} 0 is no size");
        return Err(Failure::new(what).advise(format!("{option} 512M")));
    }
    Ok(bytes.map(|bytes| bytes.div_ceil(1 << 20)))
}

fn ports(
    server: &Server,
    arguments: &PortsOfSandboxArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let path = sandbox_path(&arguments.id, "/ports");
    if let Some(port) = arguments.link {
        let path = format!("{path}/{port}/link");
        let link = server.json("POST", &path, &json!({}))?;
        match arguments.json {
            true => output.json(&link),
            false => output.result(&format!("{}\n", text_of(&link, "url"))),
        }
        return Ok(0);
    }
    let all = server.json("GET", &path, &Value::Null)?;
    if arguments.json {
        output.json(&all);
        return Ok(0);
    }
    let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
    if all.is_empty() {
        output.say("Nothing listens in the sandbox.\n");
    }
    for one in all {
        let line = ["port", "program", "url"].map(|name| text_of(one, name));
        output.result(&format!("{}\n", line.join("  ")));
    }
    Ok(0)
}

fn logs(server: &Server, arguments: &LogsArguments, output: &Output) -> Result<u8, Failure> {
    let mut all: Vec<Value> = Vec::new();
    let mut from = 0;
    loop {
        let path = format!("/logs?limit=1000&from={from}");
        let part = server.json("GET", &sandbox_path(&arguments.id, &path), &Value::Null)?;
        let found = part.get("lines").and_then(Value::as_array);
        all.extend(found.cloned().unwrap_or_default());
        match part.get("next").and_then(Value::as_u64) {
            Some(next) => from = next,
            None => break,
        }
    }
    if arguments.json {
        output.json(&json!(all));
        return Ok(0);
    }
    for one in &all {
        let [time, level, message] = ["time", "level", "message"].map(|name| text_of(one, name));
        output.result(&format!("{time}  {level:<5}  {message}\n"));
    }
    Ok(0)
}

/// Returns a text of an object, as a terminal may show it.
fn text_of(object: &Value, name: &str) -> String {
    let text = match object.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    printable(text.as_bytes())
}

fn list(
    server: &Server,
    arguments: &ListSandboxesArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let mut all: Vec<Value> = Vec::new();
    let mut path = "/v1/sandboxes?paused=true".to_owned();
    loop {
        let part = server.json("GET", &path, &Value::Null)?;
        let found = part.get("sandboxes").and_then(Value::as_array);
        all.extend(found.cloned().unwrap_or_default());
        match part.get("cursor").and_then(Value::as_str) {
            Some(cursor) => path = format!("/v1/sandboxes?paused=true&cursor={}", encoded(cursor)),
            None => break,
        }
    }
    if arguments.json {
        output.json(&json!(all));
        return Ok(0);
    }
    if all.is_empty() {
        output.say("No sandbox is alive; atoll sandbox create makes one.\n");
    }
    for one in &all {
        let line = ["id", "state", "template", "network", "run"].map(|name| text_of(one, name));
        output.result(&format!("{}\n", line.join("  ")));
    }
    Ok(0)
}

/// Returns the sandbox and the path of `ID:PATH`; none for a file of this machine.
fn remote(text: &str) -> Option<(&str, &str)> {
    let (id, path) = text.split_once(':')?;
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_id.then_some((id, path))
}

fn copy(server: &Server, arguments: &CopyArguments) -> Result<u8, Failure> {
    let content = |(id, path): (&str, &str)| {
        sandbox_path(id, &format!("/files/content?path={}", encoded(path)))
    };
    match (remote(&arguments.from), remote(&arguments.to)) {
        (None, Some(to)) => {
            let what = format!("{} cannot be read", arguments.from);
            let mut file = File::open(&arguments.from).doing(&what)?;
            if file.metadata().doing(&what)?.is_dir() {
                return Err(Failure::new(what)
                    .because("it is a directory")
                    .advise("cp copies one file; tar packs a directory into one"));
            }
            let body = SendBody::from_reader(&mut file);
            // A server that refuses reads no more; why is in another answer.
            if let Err(failure) = server.ask("PUT", &content(to), body) {
                server.json("GET", &sandbox_path(to.0, ""), &Value::Null)?;
                return Err(failure);
            }
        }
        (Some(from), None) => {
            let answer = server.ask("GET", &content(from), SendBody::none())?;
            let mut reader = answer.into_body().into_reader();
            let what = format!("{} cannot be written", arguments.to);
            let mut file = File::create(&arguments.to).doing(&what)?;
            io::copy(&mut reader.by_ref(), &mut file).doing(&what)?;
        }
        _ => {
            return Err(
                Failure::new("one of both is a file in a sandbox, and the other is not")
                    .advise("atoll sandbox cp FILE ID:PATH, or ID:PATH FILE"),
            );
        }
    }
    Ok(0)
}

fn list_files(
    server: &Server,
    arguments: &ListFilesArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let path = encoded(arguments.path.as_deref().unwrap_or("/home/user"));
    let path = sandbox_path(&arguments.id, &format!("/files?path={path}"));
    let entries = server.json("GET", &path, &Value::Null)?;
    if arguments.json {
        output.json(&entries);
        return Ok(0);
    }
    for entry in entries.as_array().into_iter().flatten() {
        let path = text_of(entry, "path");
        let name = path.rsplit('/').next().unwrap_or_default();
        let mode = entry.get("mode").and_then(Value::as_u64).unwrap_or(0);
        output.result(&format!(
            "{:<9}  {mode:04o}  {:>12}  {name}\n",
            text_of(entry, "kind"),
            text_of(entry, "size"),
        ));
    }
    Ok(0)
}
