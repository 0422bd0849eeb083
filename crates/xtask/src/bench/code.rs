//! `cargo xtask bench code`: measures sandboxes in which code begins at once, over HTTP: made ahead
//! of the request for them, and not.
//!
//! Start reading at [`run`].

mod kept;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::ledger::{Figure, Measured, Wanted, outcome_of, table_of};
use super::machine;
use super::outcome::Outcome;
use super::report::free_name;
use super::serve::{Client, Sandbox, Server, add, milliseconds};
use crate::person::Stage;
use crate::suite;
use crate::tree;

/// The sandboxes of each kind that are made ahead.
const WARM: usize = 2;
/// The longest time for them to be there.
const WARM_WITHIN: Duration = Duration::from_secs(120);
/// The time that the machine has for itself before each round.
const QUIET: Duration = Duration::from_millis(100);
/// The cells without sandboxes made ahead: one in so many rounds, since each takes long.
const COLD_ONE_IN: usize = 10;

const BASE: &str = "base";
const CODE: &str = "code-interpreter-v1";
const FIRST: &str = "import pandas as pd; pd.DataFrame({'a':[1]})";
const FURTHER: &str = "pd.DataFrame({'a':[2]})";

const CREATE: &str = "create of one made ahead until a process can start";
const CREATE_AND_RUN: &str = "the same, and `true` in it, recorded";
const CREATE_COLD: &str = "create of one that is not";
const CELL: &str = "create, import of pandas and a DataFrame, made ahead";
const CELL_COLD: &str = "the same, not made ahead";
const CELL_FURTHER: &str = "a further cell";
const OWN: &str = "own pages of its Python after the first cell";
const OWN_KERNEL: &str = "those of the process that runs the cells";

const FIGURES: [Figure; 4] = [
    Figure::of(CREATE, Wanted::AtMost(3.0)),
    Figure::of(CELL, Wanted::AtMost(12.0)),
    Figure::of(CELL_FURTHER, Wanted::AtMost(2.5)),
    Figure::of(OWN, Wanted::AtMost(10.0)),
];

#[derive(Args)]
pub(crate) struct Options {
    /// The rounds, one after the other
    #[arg(long, default_value_t = 200)]
    rounds: usize,
    /// A program to measure in place of one that is built
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// A directory on the disk that is measured
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    below: PathBuf,
    /// A further destination where the template is built: a mirror of PyPI. Repeatable
    #[arg(long, value_name = "HOST")]
    allow: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let root = tree::root()?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => suite::program(&root)?,
    };
    let stage = Stage::below(&options.below, "atoll-bench-")?;
    build(&program, stage.path(), &options.allow)?;
    let mut all = Vec::new();
    let server = Server::start(&program, stage.path(), 0, None)?;
    cold(&server, options.rounds, &mut all)?;
    let key = server.key.clone();
    drop(server);
    let server = Server::start(&program, stage.path(), WARM, Some(key))?;
    creates(&server, options.rounds, &mut all)?;
    cells(&server, options.rounds, &mut all)?;
    kept::pauses(&server, options.rounds, &mut all)?;
    kept::forks(&server, options.rounds, &mut all)?;
    let figures = [FIGURES, kept::FIGURES].concat();
    print!("{}", table_of(&figures, &all));
    let machine = machine::describe(&root, stage.path())?;
    let content = json!({
        "benchmark": "code",
        "what": "sandboxes for code, over HTTP on the loopback, with a durable ledger",
        "how": "one server; a client that speaks HTTP by hand, on the same machine; before each \
                round those made ahead are there again",
        "program": program,
        "machine": machine,
        "load": fs::read_to_string("/proc/loadavg")?.trim(),
        "measured": all,
    });
    let path = free_name(
        &root.join("bench/results"),
        &format!("{}-code", machine.date),
    )?;
    fs::write(&path, format!("{content}\n"))?;
    println!(
        "\nraw numbers: {}",
        path.strip_prefix(&root).unwrap_or(&path).display()
    );
    drop(server);
    stage.close()?;
    Ok(outcome_of(&figures, &all))
}

/// Builds the template, with pandas and matplotlib.
fn build(program: &Path, home: &Path, allow: &[String]) -> Result<()> {
    eprintln!("building the template");
    let mut build = Command::new(program);
    build.args(["template", "build", CODE]).env("HOME", home);
    for host in allow {
        build.args(["--allow", host]);
    }
    let built = build.args(["pandas", "matplotlib"]).output()?;
    ensure!(
        built.status.success(),
        "the template cannot be built: {}",
        String::from_utf8_lossy(&built.stderr)
    );
    Ok(())
}

/// Measures what is made when it is asked for.
fn cold(server: &Server, rounds: usize, all: &mut Vec<Measured>) -> Result<()> {
    eprintln!("not made ahead: {rounds}");
    let mut client = server.client()?;
    let (mut creates, mut cells) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        thread::sleep(QUIET);
        let (took, sandbox) = milliseconds(|| client.create_of(BASE))?;
        creates.push(took);
        client.kill(&sandbox)?;
    }
    for _ in 0..rounds.div_ceil(COLD_ONE_IN) {
        thread::sleep(QUIET);
        let (took, sandbox) = milliseconds(|| created_with_cell(&mut client))?;
        cells.push(took);
        client.kill(&sandbox)?;
    }
    add(all, CREATE_COLD, "ms", creates);
    add(all, CELL_COLD, "ms", cells);
    Ok(())
}

/// Measures creates of what was made ahead.
fn creates(server: &Server, rounds: usize, all: &mut Vec<Measured>) -> Result<()> {
    eprintln!("made ahead: {rounds}");
    let mut client = server.client()?;
    let first = client.create_of(BASE)?;
    client.kill(&first)?;
    let (mut creates, mut execs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let before = until_warm(&mut client, WARM)?;
        let (took, sandbox) = milliseconds(|| client.create_of(BASE))?;
        let (exec, ()) = milliseconds(|| client.exec(&sandbox))?;
        ensure!(
            number(&mut client, "assigned_total")? > before,
            "a create took none that was made ahead"
        );
        creates.push(took);
        execs.push(took + exec);
        client.kill(&sandbox)?;
    }
    add(all, CREATE, "ms", creates);
    add(all, CREATE_AND_RUN, "ms", execs);
    Ok(())
}

/// Measures cells in what was made ahead.
fn cells(server: &Server, rounds: usize, all: &mut Vec<Measured>) -> Result<()> {
    eprintln!("cells: {rounds}");
    let mut client = server.client()?;
    let first = client.create_of(CODE)?;
    client.kill(&first)?;
    let (mut cells, mut further) = (Vec::new(), Vec::new());
    let (mut own, mut kernels) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let before = until_warm(&mut client, 2 * WARM)?;
        let (took, sandbox) = milliseconds(|| created_with_cell(&mut client))?;
        further.push(milliseconds(|| cell(&mut client, &sandbox, FURTHER))?.0);
        ensure!(
            number(&mut client, "assigned_total")? > before,
            "a create took none that was made ahead"
        );
        cells.push(took);
        let pages = own_mib(&run_of(&mut client, &sandbox)?);
        own.push(pages.iter().sum());
        kernels.push(pages.iter().copied().fold(0.0, f64::max));
        client.kill(&sandbox)?;
    }
    add(all, CELL, "ms", cells);
    add(all, CELL_FURTHER, "ms", further);
    add(all, OWN, "MiB", own);
    add(all, OWN_KERNEL, "MiB", kernels);
    Ok(())
}

fn created_with_cell(client: &mut Client) -> Result<Sandbox> {
    let sandbox = client.create_of(CODE)?;
    cell(client, &sandbox, FIRST)?;
    Ok(sandbox)
}

/// Runs a cell, whose result is a table.
fn cell(client: &mut Client, sandbox: &Sandbox, code: &str) -> Result<()> {
    let headers = format!(
        "{}E2b-Sandbox-Port: 49999\r\nContent-Type: application/json\r\n",
        Client::headers(sandbox)
    );
    let body = json!({ "code": code }).to_string();
    client.send("POST", "/execute", &headers, body.as_bytes())?;
    let (status, body) = client.whole()?;
    let text = String::from_utf8_lossy(&body);
    ensure!(
        status == 200 && text.contains("<table"),
        "cell: {status} {text}"
    );
    Ok(())
}

/// Waits until so many are there that were made ahead; returns how many were assigned before.
fn until_warm(client: &mut Client, count: usize) -> Result<f64> {
    let begun = Instant::now();
    while number(client, "warm")? < count as f64 {
        ensure!(
            begun.elapsed() < WARM_WITHIN,
            "{count} sandboxes are not made ahead"
        );
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(QUIET);
    number(client, "assigned_total")
}

/// Returns one of the server's numbers.
fn number(client: &mut Client, name: &str) -> Result<f64> {
    client.send("GET", "/metrics", "", b"")?;
    let (status, body) = client.whole()?;
    ensure!(status == 200, "metrics: {status}");
    let text = String::from_utf8_lossy(&body);
    let name = format!("atoll_sandboxes_{name} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&name));
    value
        .context("the number is not there")?
        .parse()
        .context("it is none")
}

fn run_of(client: &mut Client, sandbox: &Sandbox) -> Result<String> {
    let path = format!("/v1/sandboxes/{}", sandbox.id);
    let headers = client.key();
    client.send("GET", &path, &headers, b"")?;
    let (_, body) = client.whole()?;
    let told: Value = serde_json::from_slice(&body)?;
    let run = told.get("run").and_then(Value::as_str);
    Ok(run.context("a sandbox has a run")?.to_owned())
}

/// Returns the pages that only one process has, of each of a run's own programs, MiB.
fn own_mib(run: &str) -> Vec<f64> {
    let variable = format!("ATOLL_RUN={run}").into_bytes();
    let pids: BTreeSet<u32> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|one| one.file_name().to_str()?.parse().ok())
        .collect();
    let is_own = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|one| one == variable)
    };
    pids.into_iter().filter(is_own).map(private_mib).collect()
}

fn private_mib(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Private_Dirty:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}
