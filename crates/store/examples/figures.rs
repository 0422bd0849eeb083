//! Measures the cost of the ledger, for `cargo xtask bench ledger`: one figure a call, as JSON on
//! standard output. `figures FIGURE DIRECTORY COUNT`; the directory is an empty one on the disk
//! that is measured.

#![allow(missing_docs)]

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Instant, SystemTime};

use atoll_ledger::{Durability, EventBody, Filter, Ledger, StateDir};
use atoll_model::{Action, Call, Ending, Outcome, Principal, Program, RunId, Usage, Verdict};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

type Done = Result<(), Box<dyn Error>>;

/// The rounds before those that count.
const WARM_UP: u64 = 50;
/// The number of events that are appended at once where a ledger is made.
const BATCH: u64 = 10_000;

fn main() -> Done {
    let mut arguments = std::env::args().skip(1);
    let figure = arguments.next().unwrap_or_default();
    let directory = arguments.next().unwrap_or_default();
    let count: u64 = arguments.next().unwrap_or_default().parse()?;
    let state = StateDir::open(&Path::new(&directory).join("state"))?;
    match figure.as_str() {
        "append" => append(&state, Path::new(&directory), count),
        "writers" => writers(&state, count),
        "make" => make(&state, count),
        "verify" => verify(&state),
        "query" => query(&state),
        "restart" => restart(&state),
        "open" => open(&state),
        "run" => run(&state, count),
        other => Err(format!("no figure is called {other}").into()),
    }
}

fn say(name: &str, unit: &str, values: &[f64]) {
    println!(
        "{}",
        json!({ "name": name, "unit": unit, "values": values })
    );
}

fn microseconds(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e6
}

fn body(number: u64) -> Value {
    json!({ "flow": number, "host": "packages.example.com", "port": 443, "up_bytes": 1_234 })
}

/// Measures durable appends of one writer, and bare ones of as many bytes, in turns.
fn append(state: &StateDir, directory: &Path, count: u64) -> Done {
    let ledger = atoll_store::open_ledger(state, SystemTime::now)?;
    let mut bare = File::create(directory.join("bare"))?;
    let segment = state.path().join("ledger/000001.seg");
    let (mut durable, mut written) = (Vec::new(), Vec::new());
    let mut length = 0;
    for number in 0..WARM_UP + count {
        let begin = Instant::now();
        ledger.record(None, "test.noted", body(number), Durability::Durable)?;
        let took = microseconds(begin);
        let grown = std::fs::metadata(&segment)?.len();
        let line = vec![b'x'; usize::try_from(grown - length)?];
        length = grown;
        let begin = Instant::now();
        bare.write_all(&line)?;
        bare.sync_data()?;
        let alone = microseconds(begin);
        if number >= WARM_UP {
            durable.push(took);
            written.push(alone);
        }
    }
    say("durable append", "µs", &durable);
    say("bare write and fdatasync", "µs", &written);
    Ok(())
}

/// Measures durable appends of many writers at once.
fn writers(state: &StateDir, count: u64) -> Done {
    const WRITERS: u64 = 64;
    let ledger = atoll_store::open_ledger(state, SystemTime::now)?;
    let barrier = Barrier::new(usize::try_from(WRITERS + 1)?);
    let begin = std::thread::scope(|scope| -> Result<Instant, Box<dyn Error>> {
        let each = || {
            barrier.wait();
            for number in 0..count / WRITERS {
                let told = ledger.record(None, "test.noted", body(number), Durability::Durable);
                if let Err(error) = told {
                    eprintln!("{error}");
                    std::process::exit(1);
                }
            }
        };
        for _ in 0..WRITERS {
            scope.spawn(each);
        }
        barrier.wait();
        Ok(Instant::now())
    })?;
    let done = (count / WRITERS * WRITERS) as f64;
    say(
        "durable appends of 64 writers",
        "1/s",
        &[done / begin.elapsed().as_secs_f64()],
    );
    Ok(())
}

/// Makes a ledger of this many events, as runs with connections leave them; measures its first
/// checkpoint.
fn make(state: &StateDir, count: u64) -> Done {
    let ledger = atoll_store::open_ledger(state, SystemTime::now)?;
    let run = RunId::new(1_795_253_412, 1);
    let mut made = 0;
    while made < count {
        let events = (made..count.min(made + BATCH)).map(|number| {
            let told = match number % 2 {
                0 => EventBody::default()
                    .text("address", "203.0.113.7")
                    .number("flow", number)
                    .text("host", "packages.example.com")
                    .text("kind", "request")
                    .text("method", "GET")
                    .text("path", "/simple/requests/")
                    .number("port", 443)
                    .text("rule", "packages.example.com in atoll.toml, line 7")
                    .text("scheme", "https"),
                _ => EventBody::default()
                    .number("down_bytes", 48_221)
                    .number("duration_us", 31_337)
                    .number("flow", number)
                    .number("up_bytes", 912),
            };
            (
                if number % 2 == 0 {
                    "flow.opened"
                } else {
                    "flow.closed"
                },
                told,
            )
        });
        ledger.record_flows(&run, events.collect(), Durability::Buffered)?;
        made += BATCH;
    }
    ledger.record(None, "test.noted", json!({}), Durability::Durable)?;
    let begin = Instant::now();
    let checkpoint = ledger.checkpoint(state)?;
    let rate = checkpoint.size() as f64 / begin.elapsed().as_secs_f64();
    say("events of a first checkpoint", "1/s", &[rate]);
    Ok(())
}

fn verify(state: &StateDir) -> Done {
    let begin = Instant::now();
    let verified = Ledger::verify(state)?;
    let rate = verified.events as f64 / begin.elapsed().as_secs_f64();
    say("events verified", "1/s", &[rate]);
    Ok(())
}

/// Measures searches through all of the ledger that find next to nothing.
fn query(state: &StateDir) -> Done {
    let filters = [
        (
            "search by host",
            Filter {
                mentions: vec!["nowhere.example".to_owned()],
                ..Filter::default()
            },
        ),
        (
            "search by type",
            Filter {
                kind: Some("test".to_owned()),
                ..Filter::default()
            },
        ),
        (
            "search by run",
            Filter {
                run: Some(RunId::new(7, 7)),
                ..Filter::default()
            },
        ),
        (
            "search by time",
            Filter {
                until: Some("2001".to_owned()),
                ..Filter::default()
            },
        ),
    ];
    for (name, filter) in filters {
        let begin = Instant::now();
        for event in Ledger::events(state, filter)? {
            let _ = event?;
        }
        say(name, "ms", &[microseconds(begin) / 1e3]);
    }
    Ok(())
}

/// Makes the ledger look as after a reboot: its head names another boot of the kernel.
fn restart(state: &StateDir) -> Done {
    let path = state.path().join("ledger/head");
    let head = std::fs::read_to_string(&path)?;
    let facts = head
        .trim_end()
        .rsplit_once(' ')
        .map_or("", |(facts, _)| facts);
    let (facts, _) = facts.rsplit_once(' ').ok_or("no head")?;
    let facts = format!("{facts} {}", "0".repeat(36));
    let check = Sha256::digest(facts.as_bytes());
    let check: String = check
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    std::fs::write(&path, format!("{facts} {check}\n"))?;
    Ok(())
}

/// Measures opening a ledger, appending to it and signing it, as the first process of many would.
fn open(state: &StateDir) -> Done {
    let begin = Instant::now();
    let ledger = atoll_store::open_ledger(state, SystemTime::now)?;
    say("opened", "ms", &[microseconds(begin) / 1e3]);
    ledger.record(None, "test.noted", json!({}), Durability::Durable)?;
    ledger.checkpoint(state)?;
    say(
        "opened, added to and signed",
        "ms",
        &[microseconds(begin) / 1e3],
    );
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: f64 = line
        .and_then(|line| line.trim().split(' ').next())
        .unwrap_or("")
        .parse()?;
    say("most memory", "MiB", &[kib / 1024.0]);
    Ok(())
}

/// Measures the ledger's share of a run, from opening it to the signed end.
fn run(state: &StateDir, count: u64) -> Done {
    let mut all = Vec::new();
    for number in 0..WARM_UP + count {
        let call = Call::new(
            RunId::new(1_795_253_412 + number, 1),
            Principal {
                uid: 1000,
                gid: 1000,
                name: "person".to_owned(),
            },
            atoll_model::Place::Directory {
                workspace: "/srv/project".into(),
                directory: "/srv/project".into(),
            },
            Action::Run(Program {
                command: vec!["true".into()],
                options: vec!["--discard".into()],
                ..Program::default()
            }),
        );
        let decision = json!({ "profile": "default", "policy": "0".repeat(64), "mode": "full" });
        let outcome = Outcome {
            ending: Ending::Exited { status: 0 },
            usage: Usage::default(),
            enforcement: Vec::new(),
            attempts: Vec::new(),
        };
        let begin = Instant::now();
        let ledger = atoll_store::open_ledger(state, SystemTime::now)?;
        let verdict = Verdict::Allow(());
        let armed = ledger.open_call(&call, &verdict, decision)?.arm(verdict)?;
        ledger.close(armed, &outcome, json!({ "exit": 0, "kept": false }))?;
        ledger.checkpoint(state)?;
        if number >= WARM_UP {
            all.push(microseconds(begin) / 1e3);
        }
    }
    say("the ledger's share of a run", "ms", &all);
    Ok(())
}
