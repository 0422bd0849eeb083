//! `cargo xtask bench tools`: measures calls of tools over MCP, from outside.
//!
//! Start reading at [`run`].

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::ledger::{Figure, Measured, Wanted, outcome_of, table_of};
use super::machine;
use super::outcome::Outcome;
use super::report::free_name;
use super::serve::{Client, Server, add, milliseconds};
use crate::person::Stage;
use crate::suite;
use crate::tree;

/// The clients that call at once, each in a session of its own.
const CLIENTS: usize = 64;
/// The time that they do that for.
const CLIENTS_FOR: Duration = Duration::from_secs(5);
const MCP: &str = "2025-11-25";

const FRESH: &str = "command true, a fresh sandbox";
const LIVING: &str = "command true, the session's sandbox";
const STRAIGHT: &str = "upstream echo, straight";
const GATED: &str = "upstream echo, through the gate";
const ADDED: &str = "added to a call of an upstream";
const ADDED_SLOWEST: &str = "added, the slowest hundredth";
const RATE: &str = "calls by 64 clients";
const IDLE: &str = "memory of idle sessions";

const FIGURES: [Figure; 6] = [
    Figure::of(FRESH, Wanted::AtMost(5.0)),
    Figure::of(LIVING, Wanted::AtMost(2.5)),
    Figure::of(ADDED, Wanted::AtMost(1.0)),
    Figure::of(ADDED_SLOWEST, Wanted::AtMost(4.0)),
    Figure::of(RATE, Wanted::AtLeast(3_000.0)),
    Figure::of(IDLE, Wanted::AtMost(1_024.0)),
];

const TOOLS: &str = r#"
[tool.fresh]
description = "Does nothing."
kind = "command"
command = ["true"]
effect = "read"

[tool.living]
description = "Does nothing."
kind = "command"
command = ["true"]
effect = "read"
sandbox = "session"

[upstream.echo]
command = ["python3", "-c", '''ECHO''']
effect = "read"
"#;

const POLICY: &str = r#"@id("all") permit(principal, action == Action::"call", resource);"#;

/// An MCP server that says what it is told.
const ECHO: &str = r#"
import json, sys
TOOL = {"name": "say", "description": "Says it.", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}
for line in sys.stdin:
    ask = json.loads(line)
    if "id" not in ask:
        continue
    method = ask["method"]
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "echo", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [TOOL]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": ask["params"]["arguments"]["text"]}]}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": ask["id"], "error": {"code": -32601, "message": "no such method"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": ask["id"], "result": result}), flush=True)
"#;

#[derive(Args)]
pub(crate) struct Options {
    /// The calls of each kind, one after the other
    #[arg(long, default_value_t = 300)]
    rounds: usize,
    /// The number of sessions that are idle at once
    #[arg(long, default_value_t = 1_000)]
    sessions: usize,
    /// A program to measure in place of one that is built
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// A directory on the disk that is measured
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    below: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let root = tree::root()?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => suite::program(&root)?,
    };
    let stage = Stage::below(&options.below, "atoll-bench-")?;
    let echo = describe(&program, stage.path())?;
    let mut all = Vec::new();
    let server = Server::start(&program, stage.path(), 0, None)?;
    one_by_one(&server, &echo, options.rounds, &mut all)?;
    many(&server, &mut all)?;
    idle(&server, options.sessions, &mut all)?;
    print!("{}", table_of(&FIGURES, &all));
    let machine = machine::describe(&root, stage.path())?;
    let content = json!({
        "benchmark": "tools",
        "what": "calls of tools over Streamable HTTP on the loopback, with a durable ledger",
        "how": "one server; a client that speaks HTTP by hand, on the same machine; the upstream is \
                a program in Python on pipes, straight beside through the gate",
        "machine": machine,
        "load": fs::read_to_string("/proc/loadavg")?.trim(),
        "measured": all,
    });
    let name = format!("{}-tools", machine.date);
    let path = free_name(&root.join("bench/results"), &name)?;
    fs::write(&path, format!("{content}\n"))?;
    println!(
        "\nraw numbers: {}",
        path.strip_prefix(&root).unwrap_or(&path).display()
    );
    drop(server);
    stage.close()?;
    Ok(outcome_of(&FIGURES, &all))
}

/// Describes the tools, and approves those of the upstream; returns its program.
fn describe(program: &Path, home: &Path) -> Result<PathBuf> {
    let configuration = home.join(".config/atoll");
    fs::create_dir_all(&configuration)?;
    let echo = home.join("echo.py");
    fs::write(&echo, ECHO)?;
    // Its text is an argument: a served sandbox sees no file of this directory.
    fs::write(
        configuration.join("tools.toml"),
        TOOLS.replace("ECHO", ECHO),
    )?;
    fs::write(configuration.join("own.cedar"), POLICY)?;
    let workspace = home.join("workspace");
    fs::create_dir(&workspace)?;
    let pinned = Command::new(program)
        .args(["tools", "pin", "echo", "--yes"])
        .current_dir(&workspace)
        .env("HOME", home)
        .stdout(Stdio::null())
        .status()?;
    ensure!(pinned.success(), "the upstream cannot be approved");
    Ok(echo)
}

/// A session over Streamable HTTP.
struct Session {
    client: Client,
    headers: String,
    next: u64,
}

impl Session {
    fn begin(server: &Server) -> Result<Self> {
        let client = server.client()?;
        let headers = format!(
            "Authorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n",
            server.key
        );
        let mut own = Self {
            client,
            headers,
            next: 0,
        };
        let client = json!({ "name": "bench", "version": "1" });
        own.ask(
            "initialize",
            &json!({ "protocolVersion": MCP, "capabilities": {}, "clientInfo": client }),
        )?;
        let id = own.client.session.clone().context("there is no session")?;
        own.headers.push_str(&format!(
            "Mcp-Session-Id: {id}\r\nMcp-Protocol-Version: {MCP}\r\n"
        ));
        let told = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let told = told.to_string();
        own.client
            .send("POST", "/mcp", &own.headers, told.as_bytes())?;
        let (status, _) = own.client.whole()?;
        ensure!(status == 202, "initialized: {status}");
        Ok(own)
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.next += 1;
        let message = message(self.next, method, params);
        self.client
            .send("POST", "/mcp", &self.headers, message.as_bytes())?;
        let (status, body) = self.client.whole()?;
        let text = String::from_utf8_lossy(&body);
        let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let answer = lines
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find(|one| one["id"] == self.next);
        let answer = answer.or_else(|| serde_json::from_str(&text).ok());
        answer.with_context(|| format!("{method}: {status} {text}"))
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Result<()> {
        let params = json!({ "name": tool, "arguments": arguments });
        let answer = self.ask("tools/call", &params)?;
        let is_error = answer.pointer("/result/isError") == Some(&Value::Bool(true));
        ensure!(
            answer.get("result").is_some_and(Value::is_object) && !is_error,
            "{tool}: {answer}"
        );
        Ok(())
    }
}

fn message(id: u64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

/// The upstream on pipes, without anything between.
struct Straight {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    next: u64,
}

impl Straight {
    fn begin(echo: &Path) -> Result<Self> {
        let mut child = Command::new("python3")
            .arg(echo)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self {
            to: child.stdin.take().context("its input")?,
            from: BufReader::new(child.stdout.take().context("its output")?),
            child,
            next: 0,
        })
    }

    fn say(&mut self) -> Result<()> {
        self.next += 1;
        let params = json!({ "name": "say", "arguments": { "text": "hello" } });
        let message = message(self.next, "tools/call", &params);
        self.to.write_all(format!("{message}\n").as_bytes())?;
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        ensure!(line.contains("hello"), "the upstream says {line}");
        Ok(())
    }
}

impl Drop for Straight {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures one call after the other, the kinds taking turns.
fn one_by_one(server: &Server, echo: &Path, rounds: usize, all: &mut Vec<Measured>) -> Result<()> {
    eprintln!("one by one: {rounds}");
    let mut session = Session::begin(server)?;
    let mut straight = Straight::begin(echo)?;
    let (none, hello) = (json!({}), json!({ "text": "hello" }));
    let (mut fresh, mut living, mut alone, mut gated) = (vec![], vec![], vec![], vec![]);
    for round in 0..=rounds {
        let took = [
            milliseconds(|| session.call("fresh", &none))?.0,
            milliseconds(|| session.call("living", &none))?.0,
            milliseconds(|| straight.say())?.0,
            milliseconds(|| session.call("echo__say", &hello))?.0,
        ];
        // The first makes the session's sandbox, and starts the upstream.
        if round > 0 {
            let series = [&mut fresh, &mut living, &mut alone, &mut gated];
            series
                .into_iter()
                .zip(took)
                .for_each(|(one, took)| one.push(took));
        }
    }
    let added: Vec<f64> = gated
        .iter()
        .zip(&alone)
        .map(|(one, other)| one - other)
        .collect();
    let mut sorted = added.clone();
    sorted.sort_by(f64::total_cmp);
    let slowest = sorted.get(sorted.len() * 99 / 100).copied();
    add(all, FRESH, "ms", fresh);
    add(all, LIVING, "ms", living);
    add(all, STRAIGHT, "ms", alone);
    add(all, GATED, "ms", gated);
    add(all, ADDED, "ms", added);
    add(all, ADDED_SLOWEST, "ms", slowest.into_iter().collect());
    Ok(())
}

/// Measures clients that call at once.
fn many(server: &Server, all: &mut Vec<Measured>) -> Result<()> {
    eprintln!("{CLIENTS} clients");
    let hello = json!({ "text": "hello" });
    let mut sessions = Vec::new();
    for _ in 0..CLIENTS {
        let mut session = Session::begin(server)?;
        session.call("echo__say", &hello)?;
        sessions.push(session);
    }
    let begun = Instant::now();
    let works = |mut session: Session| -> Result<usize> {
        let mut calls = 0;
        while begun.elapsed() < CLIENTS_FOR {
            session.call("echo__say", &hello)?;
            calls += 1;
        }
        Ok(calls)
    };
    let calls: Result<Vec<usize>> = thread::scope(|scope| {
        let works = &works;
        let clients: Vec<_> = sessions
            .into_iter()
            .map(|session| scope.spawn(move || works(session)))
            .collect();
        let joined = clients.into_iter().map(|one| match one.join() {
            Ok(calls) => calls,
            Err(_) => bail!("a client has failed"),
        });
        joined.collect()
    });
    let calls: usize = calls?.into_iter().sum();
    add(
        all,
        RATE,
        "/s",
        vec![calls as f64 / begun.elapsed().as_secs_f64()],
    );
    Ok(())
}

/// Measures the memory that idle sessions need.
fn idle(server: &Server, sessions: usize, all: &mut Vec<Measured>) -> Result<()> {
    eprintln!("{sessions} sessions");
    let before = server.memory_mib();
    let mut kept = Vec::new();
    for _ in 0..sessions {
        let mut session = Session::begin(server)?;
        session.ask("tools/list", &json!({}))?;
        kept.push(session);
    }
    add(all, IDLE, "MiB", vec![server.memory_mib() - before]);
    Ok(())
}
