//! `cargo xtask bench serve`: measures served sandboxes from outside, over HTTP.
//!
//! The client speaks HTTP by hand, so that it costs as little as it can beside what is measured.
//! Start reading at [`run`].

mod crowd;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::ledger::{Figure, Measured, Wanted, outcome_of, table_of};
use super::machine;
use super::outcome::Outcome;
use super::report::free_name;
use crate::person::Stage;
use crate::suite;
use crate::tree;

/// The clients that make, use and end sandboxes at once.
const CLIENTS: usize = 16;
/// The time that they do that for.
const CLIENTS_FOR: Duration = Duration::from_secs(8);
/// The sandboxes that the front begins anew beside.
const BESIDE_FRONT: usize = 1_000;
const MIB: f64 = 1_048_576.0;
const GIB: usize = 1 << 30;

const CREATE: &str = "create until a process can start";
const EXEC: &str = "true in a living sandbox, recorded";
const CYCLES: &str = "create, exec, kill by 16 clients";
const SLOWEST: &str = "their slowest hundredth";
const IDLE: &str = "memory of an idle sandbox";
const ALIVE: &str = "alive at once, each answering";
const UP: &str = "1 GiB up";
const DOWN: &str = "1 GiB down";
const ADDED: &str = "memory added by both";
const OUTPUT: &str = "output of a process";
const FRONT: &str = "another front until it answers";

const FIGURES: [Figure; 13] = [
    Figure::of(CREATE, Wanted::AtMost(8.0)),
    Figure::of(EXEC, Wanted::AtMost(3.0)),
    Figure::of(CYCLES, Wanted::AtLeast(200.0)),
    Figure::of(SLOWEST, Wanted::AtMost(150.0)),
    Figure::of(IDLE, Wanted::AtMost(2.0)),
    Figure::of(ALIVE, Wanted::AtLeast(5_000.0)),
    Figure::of(UP, Wanted::AtLeast(400.0)),
    Figure::of(DOWN, Wanted::AtLeast(400.0)),
    Figure::of(ADDED, Wanted::AtMost(32.0)),
    Figure::of(OUTPUT, Wanted::AtLeast(300.0)),
    Figure::of(FRONT, Wanted::AtMost(1_000.0)),
    Figure::of(crowd::CREATE_RATIO, Wanted::AtMost(2.0)),
    Figure::of(crowd::EXEC_RATIO, Wanted::AtMost(2.0)),
];

#[derive(Args)]
pub(crate) struct Options {
    /// The rounds of a create, execs and a kill, one after the other
    #[arg(long, default_value_t = 200)]
    rounds: usize,
    /// The number of sandboxes that are made to be alive at once
    #[arg(long, default_value_t = 5_000)]
    alive: usize,
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
    let mut all = Vec::new();
    let apart = stage.path().join("crowd");
    fs::create_dir(&apart)?;
    crowd::beside(&program, &apart, options.rounds, &mut all)?;
    let server = Server::start(&program, stage.path(), 0, None)?;
    one_by_one(&server, options.rounds, &mut all)?;
    many(&server, &mut all)?;
    streams(&server, &mut all)?;
    alive(&server, options.alive, &mut all)?;
    print!("{}", table_of(&FIGURES, &all));
    let machine = machine::describe(&root, stage.path())?;
    let content = json!({
        "benchmark": "serve",
        "what": "served sandboxes, over HTTP on the loopback, with a durable ledger",
        "how": "one server; a client that speaks HTTP by hand, on the same machine",
        "machine": machine,
        "load": fs::read_to_string("/proc/loadavg")?.trim(),
        "measured": all,
    });
    let path = free_name(
        &root.join("bench/results"),
        &format!("{}-serve", machine.date),
    )?;
    fs::write(&path, format!("{content}\n"))?;
    println!(
        "\nraw numbers: {}",
        path.strip_prefix(&root).unwrap_or(&path).display()
    );
    drop(server);
    stage.close()?;
    Ok(outcome_of(&FIGURES, &all))
}

/// A server of its own, which ends with this.
pub(super) struct Server {
    child: Child,
    address: String,
    pub(super) key: String,
}

impl Server {
    /// Starts it, to make so many sandboxes of each kind ahead; one after another in its directory
    /// has the same key.
    pub(super) fn start(
        program: &Path,
        directory: &Path,
        warm: usize,
        known: Option<String>,
    ) -> Result<Self> {
        Self::with_sandboxes(program, directory, warm, known, 20_000)
    }

    /// Starts one whose tenants may have so many sandboxes each.
    fn with_sandboxes(
        program: &Path,
        directory: &Path,
        warm: usize,
        known: Option<String>,
        sandboxes: usize,
    ) -> Result<Self> {
        let configuration = directory.join("serve.toml");
        let text = format!(
            "log = false\n[quota]\nsandboxes = {sandboxes}\ncreates_a_minute = 1000000\n\
             [defaults]\ntimeout_s = 3600\n[warm]\nsandboxes = {warm}\n"
        );
        fs::write(&configuration, text)?;
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(&configuration)
            .env("HOME", directory)
            .stdout(Stdio::piped())
            .spawn()
            .context("the server cannot be started")?;
        let out = child.stdout.take().context("its output")?;
        let (mut address, mut key) = (None, None);
        for line in BufReader::new(out).lines() {
            let line = line?;
            let line = line.trim();
            if let Some(url) = line.strip_prefix("export E2B_API_URL=http://") {
                address = Some(url.to_owned());
            }
            if let Some(text) = line.strip_prefix("export E2B_API_KEY=") {
                key = Some(text.to_owned());
                break;
            }
        }
        Ok(Self {
            child,
            address: address.context("the server has no address")?,
            key: known.or(key).context("the server has no key")?,
        })
    }

    pub(super) fn client(&self) -> Result<Client> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        Ok(Client {
            read: BufReader::with_capacity(256 * 1024, stream.try_clone()?),
            write: stream,
            key: self.key.clone(),
            session: None,
        })
    }

    /// Returns the memory of the worker and of the front, MiB.
    pub(super) fn memory_mib(&self) -> f64 {
        let own = self.child.id();
        let pids = std::iter::once(own).chain(self.front());
        pids.map(|pid| status_kib(pid, "VmRSS:") / 1024.0).sum()
    }

    fn front(&self) -> Option<u32> {
        // Any of its threads can have started it.
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
        let children = threads.flatten().map(|thread| {
            let children = fs::read_to_string(thread.path().join("children"));
            children.unwrap_or_default()
        });
        let children: Vec<String> = children.collect();
        let pids = children
            .iter()
            .flat_map(|children| children.split_whitespace());
        let mut pids = pids.filter_map(|pid| pid.parse().ok());
        pids.find(|pid| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.trim_end() == "atoll-front"
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .args(["-INT", &self.child.id().to_string()])
            .status();
        let _ = self.child.wait();
    }
}

fn status_kib(pid: u32, name: &str) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0.0)
}

fn available_mib() -> f64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    number.unwrap_or(0.0) / 1024.0
}

/// A connection that is kept.
pub(super) struct Client {
    read: BufReader<TcpStream>,
    write: TcpStream,
    key: String,
    /// The session of MCP that an answer has named last.
    pub(super) session: Option<String>,
}

/// A sandbox.
#[derive(Clone)]
pub(super) struct Sandbox {
    pub(super) id: String,
    token: String,
}

impl Sandbox {
    /// Returns one that is only asked with a key.
    pub(super) fn of_id(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            token: String::new(),
        }
    }
}

impl Client {
    pub(super) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> Result<()> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{headers}\r\n",
            body.len()
        );
        let mut request = head.into_bytes();
        request.extend_from_slice(body);
        Ok(self.write.write_all(&request)?)
    }

    /// Reads an answer; `take` gets its body piece by piece.
    fn answer(&mut self, mut take: impl FnMut(&[u8])) -> Result<u16> {
        let mut line = String::new();
        self.read.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|text| text.parse().ok());
        let status = status.with_context(|| format!("no answer: {line:?}"))?;
        let (mut length, mut is_chunked) = (0, false);
        loop {
            line.clear();
            self.read.read_line(&mut line)?;
            let lower = line.trim_end().to_ascii_lowercase();
            if lower.is_empty() {
                break;
            }
            if let Some(text) = lower.strip_prefix("content-length: ") {
                length = text.parse()?;
            }
            if let Some(id) = lower.strip_prefix("mcp-session-id: ") {
                self.session = Some(id.to_owned());
            }
            is_chunked |= lower == "transfer-encoding: chunked";
        }
        if !is_chunked {
            self.body(length, &mut take)?;
            return Ok(status);
        }
        loop {
            line.clear();
            self.read.read_line(&mut line)?;
            let length = usize::from_str_radix(line.trim_end(), 16)?;
            self.body(length, &mut take)?;
            self.read.read_line(&mut line)?;
            if length == 0 {
                return Ok(status);
            }
        }
    }

    fn body(&mut self, mut left: usize, take: &mut impl FnMut(&[u8])) -> Result<()> {
        while left > 0 {
            let block = self.read.fill_buf()?;
            ensure!(!block.is_empty(), "the answer was cut");
            let got = block.len().min(left);
            take(block.get(..got).unwrap_or_default());
            self.read.consume(got);
            left -= got;
        }
        Ok(())
    }

    pub(super) fn whole(&mut self) -> Result<(u16, Vec<u8>)> {
        let mut body = Vec::new();
        let status = self.answer(|block| body.extend_from_slice(block))?;
        Ok((status, body))
    }

    /// Returns the header of its key.
    pub(super) fn key(&self) -> String {
        format!("X-API-Key: {}\r\n", self.key)
    }

    /// Makes a sandbox of the usual template.
    fn create(&mut self) -> Result<Sandbox> {
        self.create_of("base")
    }

    pub(super) fn create_of(&mut self, template: &str) -> Result<Sandbox> {
        let headers = format!("X-API-Key: {}\r\n", self.key);
        let body = json!({ "templateID": template }).to_string();
        self.send("POST", "/v2/sandboxes", &headers, body.as_bytes())?;
        let (status, body) = self.whole()?;
        let made: Value = serde_json::from_slice(&body)?;
        ensure!(status == 201, "create: {status} {made}");
        let text = |name: &str| {
            let text = made.get(name).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        Ok(Sandbox {
            id: text("sandboxID"),
            token: text("envdAccessToken"),
        })
    }

    fn start(&mut self, sandbox: &Sandbox, command: &[&str]) -> Result<()> {
        let message = json!({
            "process": { "cmd": command.first(), "args": command.get(1..) },
            "stdin": false,
        });
        let message = message.to_string();
        let mut body = vec![0];
        body.extend(u32::try_from(message.len())?.to_be_bytes());
        body.extend(message.as_bytes());
        let headers = format!(
            "{}Content-Type: application/connect+json\r\n",
            Self::headers(sandbox)
        );
        self.send("POST", "/process.Process/Start", &headers, &body)
    }

    pub(super) fn headers(sandbox: &Sandbox) -> String {
        format!(
            "E2b-Sandbox-Id: {}\r\nX-Access-Token: {}\r\n",
            sandbox.id, sandbox.token
        )
    }

    pub(super) fn exec(&mut self, sandbox: &Sandbox) -> Result<()> {
        self.start(sandbox, &["/bin/true"])?;
        let (status, body) = self.whole()?;
        let text = String::from_utf8_lossy(&body);
        ensure!(
            status == 200 && text.contains("exit status 0"),
            "exec: {status} {text}"
        );
        Ok(())
    }

    pub(super) fn kill(&mut self, sandbox: &Sandbox) -> Result<()> {
        let headers = format!("X-API-Key: {}\r\n", self.key);
        self.send(
            "DELETE",
            &format!("/sandboxes/{}", sandbox.id),
            &headers,
            b"",
        )?;
        let (status, _) = self.whole()?;
        ensure!(status == 204, "kill: {status}");
        Ok(())
    }
}

pub(super) fn milliseconds<T>(work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let begun = Instant::now();
    let done = work()?;
    Ok((begun.elapsed().as_secs_f64() * 1_000.0, done))
}

pub(super) fn add(all: &mut Vec<Measured>, name: &str, unit: &str, values: Vec<f64>) {
    all.push(Measured {
        name: name.to_owned(),
        unit: unit.to_owned(),
        values,
    });
}

/// Measures one request after the other.
fn one_by_one(server: &Server, rounds: usize, all: &mut Vec<Measured>) -> Result<()> {
    eprintln!("one by one: {rounds}");
    let mut client = server.client()?;
    let (mut creates, mut execs, mut kills) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (took, sandbox) = milliseconds(|| client.create())?;
        creates.push(took);
        client.exec(&sandbox)?;
        for _ in 0..2 {
            execs.push(milliseconds(|| client.exec(&sandbox))?.0);
        }
        kills.push(milliseconds(|| client.kill(&sandbox))?.0);
    }
    add(all, CREATE, "ms", creates);
    add(all, EXEC, "ms", execs);
    add(all, "kill", "ms", kills);
    Ok(())
}

/// Measures clients that make, use and end sandboxes at once.
fn many(server: &Server, all: &mut Vec<Measured>) -> Result<()> {
    eprintln!("{CLIENTS} clients");
    let begun = Instant::now();
    let works = || -> Result<Vec<f64>> {
        let mut client = server.client()?;
        let mut took = Vec::new();
        while begun.elapsed() < CLIENTS_FOR {
            let cycle = milliseconds(|| {
                let sandbox = client.create()?;
                client.exec(&sandbox)?;
                client.kill(&sandbox)
            })?;
            took.push(cycle.0);
        }
        Ok(took)
    };
    let took: Result<Vec<Vec<f64>>> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(works)).collect();
        let joined = clients.into_iter().map(|one| match one.join() {
            Ok(took) => took,
            Err(_) => bail!("a client has failed"),
        });
        joined.collect()
    });
    let mut took = took?.concat();
    let rate = took.len() as f64 / begun.elapsed().as_secs_f64();
    took.sort_by(f64::total_cmp);
    let slowest = took.get(took.len() * 99 / 100).copied().unwrap_or(0.0);
    add(all, CYCLES, "/s", vec![rate]);
    add(all, SLOWEST, "ms", vec![slowest]);
    Ok(())
}

/// Measures a large file both ways, and the output of a process.
fn streams(server: &Server, all: &mut Vec<Measured>) -> Result<()> {
    eprintln!("streams");
    let mut client = server.client()?;
    let sandbox = client.create()?;
    let before = server.memory_mib();
    let is_over = AtomicBool::new(false);
    let (up, down, most) = thread::scope(|scope| -> Result<_> {
        let watch = scope.spawn(|| {
            let mut most: f64 = 0.0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(server.memory_mib());
                thread::sleep(Duration::from_millis(20));
            }
            most
        });
        let moved = file(&mut client, &sandbox);
        is_over.store(true, Ordering::Relaxed);
        let most = watch.join().unwrap_or(0.0);
        let (up, down) = moved?;
        Ok((up, down, most))
    })?;
    let rate = |took: f64| GIB as f64 / MIB / (took / 1_000.0);
    add(all, UP, "MiB/s", vec![rate(up)]);
    add(all, DOWN, "MiB/s", vec![rate(down)]);
    add(all, ADDED, "MiB", vec![(most - before).max(0.0)]);
    let size = 512 << 20;
    let (took, ()) = milliseconds(|| {
        client.start(
            &sandbox,
            &["/usr/bin/head", "-c", &size.to_string(), "/dev/zero"],
        )?;
        let mut bytes = 0;
        client.answer(|block| bytes += block.len())?;
        // It comes as base64.
        ensure!(bytes > size, "{bytes} bytes of output came");
        Ok(())
    })?;
    add(
        all,
        OUTPUT,
        "MiB/s",
        vec![size as f64 / MIB / (took / 1_000.0)],
    );
    client.kill(&sandbox)
}

fn file(client: &mut Client, sandbox: &Sandbox) -> Result<(f64, f64)> {
    let headers = Client::headers(sandbox);
    let block = vec![b'x'; 1 << 20];
    let (up, ()) = milliseconds(|| {
        let head = format!(
            "POST /files?path=large HTTP/1.1\r\nHost: localhost\r\nContent-Length: {GIB}\r\n\
             Content-Type: application/octet-stream\r\n{headers}\r\n"
        );
        client.write.write_all(head.as_bytes())?;
        for _ in 0..GIB / block.len() {
            client.write.write_all(&block)?;
        }
        let (status, body) = client.whole()?;
        ensure!(
            status == 200,
            "up: {status} {}",
            String::from_utf8_lossy(&body)
        );
        Ok(())
    })?;
    let (down, ()) = milliseconds(|| {
        client.send("GET", "/files?path=large", &headers, b"")?;
        let mut bytes = 0;
        let status = client.answer(|block| bytes += block.len())?;
        ensure!(
            status == 200 && bytes == GIB,
            "down: {status}, {bytes} bytes"
        );
        Ok(())
    })?;
    Ok((up, down))
}

/// Measures many sandboxes that are alive at once, and another front beside a thousand.
fn alive(server: &Server, wanted: usize, all: &mut Vec<Measured>) -> Result<()> {
    eprintln!("alive at once: {wanted}");
    let mut client = server.client()?;
    let mut sandboxes = Vec::new();
    let before = available_mib();
    while sandboxes.len() < wanted {
        match client.create() {
            Ok(sandbox) => sandboxes.push(sandbox),
            Err(error) => {
                eprintln!("{} are alive: {error:#}", sandboxes.len());
                client = server.client()?;
                break;
            }
        }
        if sandboxes.len() == BESIDE_FRONT.min(wanted) {
            let lost = (before - available_mib()).max(0.0);
            add(all, IDLE, "MiB", vec![lost / sandboxes.len() as f64]);
            add(all, FRONT, "ms", vec![another_front(server)?]);
            client = server.client()?;
        }
    }
    let mut answering = 0;
    for sandbox in &sandboxes {
        answering += usize::from(client.exec(sandbox).is_ok());
    }
    add(all, ALIVE, "", vec![answering as f64]);
    eprintln!("ending them");
    for sandbox in &sandboxes {
        client.kill(sandbox)?;
    }
    Ok(())
}

/// Ends the front; returns the time until another one answers.
fn another_front(server: &Server) -> Result<f64> {
    let front = server.front().context("there is no front")?;
    let begun = Instant::now();
    let ended = Command::new("kill")
        .args(["-KILL", &front.to_string()])
        .status()?;
    ensure!(ended.success(), "the front cannot be ended");
    loop {
        let answered = server.client().and_then(|mut client| {
            let timeout = Some(Duration::from_millis(500));
            client.write.set_read_timeout(timeout)?;
            let headers = format!("X-API-Key: {}\r\n", client.key);
            client.send("GET", "/v2/sandboxes?limit=1", &headers, b"")?;
            client.whole()
        });
        if answered.is_ok_and(|(status, _)| status == 200) {
            return Ok(begun.elapsed().as_secs_f64() * 1_000.0);
        }
        ensure!(
            begun.elapsed() < Duration::from_secs(60),
            "no front answers"
        );
        thread::sleep(Duration::from_millis(5));
    }
}
