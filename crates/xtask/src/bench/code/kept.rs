//! Pauses with memory, forks and rollbacks: all that is kept of sandboxes.

use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{CODE, FIRST, FURTHER, QUIET, cell};
use crate::bench::ledger::{Figure, Measured, Wanted};
use crate::bench::serve::{Client, Sandbox, Server, add, milliseconds};

const PAUSE: &str = "pause of one that has pandas, memory kept in place";
const RESUME: &str = "until it has gone on";
const RESUME_AND_CELL: &str = "the same, and a cell in it";
const FORK: &str = "fork of a stopped one with 1 GiB in 20,000 files";
const FROM_SNAPSHOT: &str = "create from a snapshot of it";
const ROLLBACK: &str = "rollback to that snapshot";

pub(super) const FIGURES: [Figure; 4] = [
    Figure::of(PAUSE, Wanted::AtMost(5.0)),
    Figure::of(RESUME, Wanted::AtMost(5.0)),
    Figure::of(FORK, Wanted::AtMost(15.0)),
    Figure::of(ROLLBACK, Wanted::AtMost(10.0)),
];

/// Makes 20,000 files of 1 GiB together.
const FILES: &str = "mkdir files; head -c 1073741824 /dev/zero | split -a 4 -b 53688 - files/";

/// Measures pauses that keep memory.
pub(super) fn pauses(server: &Server, rounds: usize, all: &mut Vec<Measured>) -> Result<()> {
    eprintln!("pauses: {rounds}");
    let mut client = server.client()?;
    let sandbox = client.create_of(CODE)?;
    cell(&mut client, &sandbox, FIRST)?;
    let (mut pauses, mut resumes, mut cells) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        thread::sleep(QUIET);
        let (took, told) = milliseconds(|| asked(&mut client, &sandbox, "pause", &json!({})))?;
        ensure!(
            told.get("memory_kept") == Some(&Value::Bool(true)),
            "its memory is not kept: {told}"
        );
        pauses.push(took);
        thread::sleep(QUIET);
        let (took, _) = milliseconds(|| asked(&mut client, &sandbox, "connect", &json!({})))?;
        resumes.push(took);
        let (more, ()) = milliseconds(|| cell(&mut client, &sandbox, FURTHER))?;
        cells.push(took + more);
    }
    client.kill(&sandbox)?;
    add(all, PAUSE, "ms", pauses);
    add(all, RESUME, "ms", resumes);
    add(all, RESUME_AND_CELL, "ms", cells);
    Ok(())
}

/// Measures forks and rollbacks of many files.
pub(super) fn forks(server: &Server, rounds: usize, all: &mut Vec<Measured>) -> Result<()> {
    eprintln!("forks: {rounds}");
    let mut client = server.client()?;
    let sandbox = client.create_of("base")?;
    asked(
        &mut client,
        &sandbox,
        "run",
        &json!({ "command": ["sh", "-c", FILES] }),
    )?;
    asked(&mut client, &sandbox, "pause", &json!({ "memory": false }))?;
    let mut forks = Vec::new();
    for _ in 0..rounds {
        thread::sleep(QUIET);
        let (took, made) = milliseconds(|| asked(&mut client, &sandbox, "fork", &json!({})))?;
        forks.push(took);
        let id = made
            .pointer("/0/created/sandbox/id")
            .and_then(Value::as_str);
        client.kill(&Sandbox::of_id(id.context("a fork has an id")?))?;
    }
    let made = asked(&mut client, &sandbox, "snapshots", &json!({}))?;
    let snapshot = made.get("id").and_then(Value::as_str);
    let snapshot = snapshot.context("a snapshot has an id")?.to_owned();
    let (mut creates, mut rollbacks) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        thread::sleep(QUIET);
        let (took, other) = milliseconds(|| client.create_of(&snapshot))?;
        creates.push(took);
        let change = json!({ "command": ["sh", "-c", "rm files/aaaa; echo new > files/new"] });
        asked(&mut client, &other, "run", &change)?;
        thread::sleep(QUIET);
        let back = json!({ "snapshot": snapshot });
        let (took, _) = milliseconds(|| asked(&mut client, &other, "rollback", &back))?;
        rollbacks.push(took);
        client.kill(&other)?;
    }
    client.kill(&sandbox)?;
    add(all, FORK, "ms", forks);
    add(all, FROM_SNAPSHOT, "ms", creates);
    add(all, ROLLBACK, "ms", rollbacks);
    Ok(())
}

/// Asks something of a sandbox.
fn asked(client: &mut Client, sandbox: &Sandbox, what: &str, body: &Value) -> Result<Value> {
    let path = format!("/v1/sandboxes/{}/{what}", sandbox.id);
    let headers = format!("{}Content-Type: application/json\r\n", client.key());
    client.send("POST", &path, &headers, body.to_string().as_bytes())?;
    let (status, body) = client.whole()?;
    let text = String::from_utf8_lossy(&body);
    ensure!((200..300).contains(&status), "{what}: {status} {text}");
    Ok(serde_json::from_str(&text)?)
}
