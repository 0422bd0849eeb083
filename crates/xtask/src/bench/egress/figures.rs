//! The measurements, one function for each group of figures.

use std::fs::{self, File};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::agent::agent;
use super::process;
use super::series::{Carrier, Contender, Series, Turn, take_turns};
use super::shell::Shell;
use super::world::{
    BIG, BIG_BYTES, ECHO, MITMPROXY_HOST, ORIGIN_HOST, SINK, SINK_HOST, SOURCE, SQUID_HOST,
    WARMING, WARMING_BYTES, World,
};
use crate::bench::measure;

/// A group of figures that can be measured alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Group {
    Tunnel,
    Latency,
    Requests,
    Idle,
    Bulk,
    Start,
    Identity,
    Agent,
}

pub(crate) const STRAIGHT: &str = "straight";
pub(crate) const ATOLL: &str = "atoll";
pub(crate) const SOCAT: &str = "socat";
pub(crate) const MITMPROXY: &str = "mitmproxy";
pub(crate) const SQUID: &str = "squid";
pub(crate) const UNUSED: &str = "allowed, unused";
pub(crate) const NO_NETWORK: &str = "no network";
pub(crate) const WITH_CREDENTIAL: &str = "atoll, with a credential";

const CLIENT: &str = "python3 -I client.py";

/// The bytes of one turn on a tunnel.
const TUNNEL_BYTES: u64 = 2 << 30;
/// The new connections of one turn; [`REQUESTS`] is that of requests one after another.
const CONNECTIONS: usize = 200;
const REQUESTS: usize = 500;
/// The length of one record; [`WRITES_APART`] is the interval between those of new connections.
const RECORD_BYTES: usize = 373;
const WRITES_APART: Duration = Duration::from_millis(4);
/// The duration of one turn of the load, seconds.
const LOAD_SECONDS: usize = 4;
const LOAD_CONNECTIONS: u32 = 64;
/// The number of idle connections.
const IDLE: u32 = 1000;
/// The longest time that an idle connection may take to give its memory back.
const SETTLING: Duration = Duration::from_secs(2);
/// The interval at which memory is read.
const LOOK: Duration = Duration::from_millis(20);
/// The starts for each round of the options.
const STARTS: usize = 20;

impl Group {
    pub(crate) const ALL: [Self; 8] = [
        Self::Tunnel,
        Self::Latency,
        Self::Requests,
        Self::Idle,
        Self::Bulk,
        Self::Start,
        Self::Identity,
        Self::Agent,
    ];

    pub(crate) fn measure(self, world: &mut World, rounds: usize) -> Result<Vec<Series>> {
        match self {
            Self::Tunnel => tunnel(world, rounds),
            Self::Latency => latency(world, rounds),
            Self::Requests => requests(world, rounds),
            Self::Idle => idle(world, rounds.min(3)),
            Self::Bulk => bulk(world, rounds),
            Self::Start => start(world, rounds),
            Self::Identity => identity(world, rounds),
            Self::Agent => agent(world, rounds),
        }
    }
}

fn straight(world: &mut World, host: &'static str) -> Result<Contender> {
    Ok(Contender {
        name: STRAIGHT,
        shell: world.outside()?,
        host,
        carrier: Carrier::Nobody,
    })
}

fn atoll(world: &mut World, host: &'static str, allow: &[&str]) -> Result<Contender> {
    Ok(Contender {
        name: ATOLL,
        shell: world.inside(allow)?,
        host,
        carrier: Carrier::OfSandbox,
    })
}

/// Returns the number in the first line.
fn number(lines: &[String]) -> Result<f64> {
    let all = numbers(lines)?;
    all.first().copied().context("there is no number")
}

fn numbers(lines: &[String]) -> Result<Vec<f64>> {
    let words = lines.iter().flat_map(|line| line.split_whitespace());
    words
        .map(|word| word.parse().with_context(|| format!("{word} is no number")))
        .collect()
}

fn megabytes(bytes: u64) -> f64 {
    u32::try_from(bytes / 1_000_000).map_or(f64::NAN, f64::from)
}

/// Measures the same stream directly, through socat and through a tunnel, in both directions.
fn tunnel(world: &mut World, rounds: usize) -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for (what, word, port) in [("pull", "pull", SOURCE), ("push", "push", SINK)] {
        let from = port + 1000;
        let allow = format!("{ORIGIN_HOST}:{port}");
        let mut contenders = vec![straight(world, ORIGIN_HOST)?];
        match world.socat(from, port) {
            Ok(socat) => contenders.push(Contender {
                name: SOCAT,
                shell: world.outside()?,
                host: "127.0.0.1",
                carrier: Carrier::Peer(socat),
            }),
            Err(why) => all.push(Series::new(what, SOCAT, "MB/s").failed(&why)),
        }
        contenders.push(atoll(world, ORIGIN_HOST, &[&allow])?);
        let turn = |shell: &mut Shell, host: &'static str| {
            let port = if host == ORIGIN_HOST { port } else { from };
            let told = shell.ask(&format!("{CLIENT} {word} {host} {port} {TUNNEL_BYTES}"))?;
            let megabytes = megabytes(TUNNEL_BYTES);
            Ok(Turn {
                values: vec![megabytes / number(&told)?],
                work: Some(megabytes),
            })
        };
        all.extend(take_turns(what, "MB/s", rounds, &mut contenders, turn));
    }
    Ok(all)
}

/// Measures new connections through a tunnel, and requests on a connection that is intercepted.
fn latency(world: &mut World, rounds: usize) -> Result<Vec<Series>> {
    let milliseconds = |told: Vec<String>| -> Result<Turn> {
        let values = numbers(&told)?.into_iter().map(|spent| spent / 1e6);
        Ok(Turn {
            values: values.collect(),
            work: None,
        })
    };
    let allow = format!("{ORIGIN_HOST}:{ECHO}");
    let mut contenders = [
        straight(world, ORIGIN_HOST)?,
        atoll(world, ORIGIN_HOST, &[&allow])?,
    ];
    let connections = |shell: &mut Shell, host: &'static str| {
        milliseconds(shell.ask(&format!("{CLIENT} connections {host} {ECHO} {CONNECTIONS}"))?)
    };
    let mut all = take_turns("connection", "ms", rounds, &mut contenders, connections);
    let mut contenders = [
        straight(world, ORIGIN_HOST)?,
        atoll(world, ORIGIN_HOST, &[ORIGIN_HOST])?,
    ];
    let requests = |shell: &mut Shell, host: &'static str| {
        milliseconds(shell.ask(&format!("{CLIENT} requests {host} {REQUESTS}"))?)
    };
    all.extend(take_turns(
        "request",
        "ms",
        rounds,
        &mut contenders,
        requests,
    ));
    all.push(durable_writes(world, rounds)?);
    Ok(all)
}

/// Measures durable writes of a record by the disk alone: a new connection waits for one.
fn durable_writes(world: &World, rounds: usize) -> Result<Series> {
    let mut series = Series::new("a durable write", "disk", "ms");
    let path = world.workspace().join("record");
    let mut file = File::create(&path)?;
    for _ in 0..rounds * CONNECTIONS {
        let started = Instant::now();
        file.write_all(&[b'x'; RECORD_BYTES])?;
        file.sync_data()?;
        series.values.push(started.elapsed().as_secs_f64() * 1e3);
        thread::sleep(WRITES_APART);
    }
    fs::remove_file(&path)?;
    Ok(series)
}

/// Measures as many requests as possible, then half as many as Atoll can do.
fn requests(world: &mut World, rounds: usize) -> Result<Vec<Series>> {
    let (what, unit) = ("requests", "1/s");
    let mut missing = Vec::new();
    let mut contenders = vec![
        straight(world, ORIGIN_HOST)?,
        atoll(world, ORIGIN_HOST, &[ORIGIN_HOST])?,
    ];
    for (name, host, peer) in [
        (MITMPROXY, MITMPROXY_HOST, world.mitmproxy()),
        (SQUID, SQUID_HOST, world.squid()),
    ] {
        match peer {
            Ok(peer) => contenders.push(Contender {
                name,
                shell: world.outside()?,
                host,
                carrier: Carrier::Peer(peer),
            }),
            Err(why) => missing.push(Series::new(what, name, unit).failed(&why)),
        }
    }
    let load = |shell: &mut Shell, host: &'static str| {
        let told = shell.ask(&format!(
            "h2load --h1 -t 1 -c {LOAD_CONNECTIONS} -D {LOAD_SECONDS} https://{host}/small"
        ))?;
        loaded(&told)
    };
    let mut all = take_turns(what, unit, rounds, &mut contenders, load);
    all.extend(missing);
    let inspected = all.iter().find(|series| series.contender == ATOLL);
    let Some(most) = inspected.and_then(Series::median) else {
        return Ok(all);
    };
    let rate = (most / 2.0 / f64::from(LOAD_CONNECTIONS)).floor().max(1.0);
    contenders.truncate(2);
    let paced = |shell: &mut Shell, host: &'static str| {
        let told = shell.ask(&format!(
            "rm -f log; h2load --h1 -t 1 -c {LOAD_CONNECTIONS} -D {LOAD_SECONDS} --rps {rate} --log-file=log \
             https://{host}/small >/dev/null && {CLIENT} slowest log"
        ))?;
        let told = numbers(&told)?;
        let [_, failed, _, slow] = told.as_slice() else {
            anyhow::bail!("the log of h2load was not understood");
        };
        anyhow::ensure!(*failed == 0.0, "{failed} requests failed");
        Ok(Turn::of(slow / 1e3))
    };
    all.extend(take_turns(
        "half of the requests, p99",
        "ms",
        rounds,
        &mut contenders,
        paced,
    ));
    Ok(all)
}

/// Reads the results that h2load prints; no request may have failed.
pub(super) fn loaded(told: &[String]) -> Result<Turn> {
    let line = |beginning: &str| {
        let mut lines = told.iter().map(|line| line.trim());
        let found = lines.find_map(|line| line.strip_prefix(beginning));
        found.with_context(|| format!("h2load did not tell of {beginning}"))
    };
    let rate = line("finished in ")?
        .split(',')
        .find_map(|part| part.trim().strip_suffix("req/s"));
    let rate: f64 = rate
        .context("h2load told no rate")?
        .trim()
        .parse()
        .context("h2load told an unknown rate")?;
    let count = |name: &str, of: &str| -> Option<f64> {
        let part = of
            .split(',')
            .find_map(|part| part.trim().strip_suffix(name));
        part?.trim().parse().ok()
    };
    let codes = line("status codes: ")?;
    let good = count("2xx", codes).context("h2load told no statuses")?;
    let bad = ["3xx", "4xx", "5xx"]
        .iter()
        .filter_map(|name| count(name, codes));
    let failed = count("errored", line("requests: ")?).unwrap_or(f64::NAN);
    let bad = bad.sum::<f64>() + failed;
    anyhow::ensure!(
        bad == 0.0 && good > 0.0,
        "{bad} requests failed, {good} did not"
    );
    Ok(Turn {
        values: vec![rate],
        work: Some(good),
    })
}

/// Measures the memory of idle connections, each time with an egress process of their own.
fn idle(world: &mut World, rounds: usize) -> Result<Vec<Series>> {
    let mut all = [
        Series::new("idle, proportional", ATOLL, "KiB"),
        Series::new("idle, resident", ATOLL, "KiB"),
    ];
    for _ in 0..rounds {
        let mut shell = world.inside(&[ORIGIN_HOST])?;
        match idle_once(&mut shell) {
            Ok(memory) => {
                for (series, value) in all.iter_mut().zip(memory) {
                    series.values.push(value);
                }
            }
            Err(why) => {
                for series in &mut all {
                    series.failure = Some(format!("{why:#}"));
                }
                break;
            }
        }
    }
    Ok(all.into())
}

fn idle_once(shell: &mut Shell) -> Result<[f64; 2]> {
    shell.ask(&format!("{CLIENT} requests {ORIGIN_HOST} 20"))?;
    thread::sleep(SETTLING);
    let carrier = process::carrier(shell.id())?;
    let before = process::memory(carrier)?;
    shell.say(&format!("{CLIENT} hold {ORIGIN_HOST} {IDLE} 5"))?;
    let (_, held) = shell.until("held ")?;
    anyhow::ensure!(held == IDLE.to_string(), "only {held} were held");
    thread::sleep(SETTLING);
    let after = process::memory(carrier)?;
    shell.until("end-of-turn ")?;
    let count = f64::from(IDLE);
    Ok([
        (after.proportional - before.proportional) / count,
        (after.resident - before.resident) / count,
    ])
}

/// Measures a large file each way, and the memory that the egress process took meanwhile.
fn bulk(world: &mut World, rounds: usize) -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for (what, host, command, warming) in [
        (
            "download",
            ORIGIN_HOST,
            format!("{CLIENT} download {ORIGIN_HOST} {BIG}"),
            format!("{CLIENT} download {ORIGIN_HOST} {WARMING}"),
        ),
        (
            "upload",
            SINK_HOST,
            format!("{CLIENT} upload {SINK_HOST} {BIG_BYTES}"),
            format!("{CLIENT} upload {SINK_HOST} {WARMING_BYTES}"),
        ),
    ] {
        let mut growth = Series::new(&format!("{what}, growth"), ATOLL, "MiB");
        let mut contenders = [straight(world, host)?, atoll(world, host, &[host])?];
        for contender in &mut contenders {
            // Also so that there is a carrier. A failure is told by the turns.
            let _ = contender.shell.ask(&warming);
        }
        let turn = |shell: &mut Shell, _| {
            let carrier = process::carrier(shell.id()).ok();
            let (told, grown) = watched(carrier, || shell.ask(&command))?;
            growth.values.extend(grown);
            let [bytes, seconds] = numbers(&told)?[..] else {
                anyhow::bail!("the client said something unknown");
            };
            Ok(Turn {
                values: vec![bytes / 1e6 / seconds],
                work: Some(bytes / 1e6),
            })
        };
        all.extend(take_turns(what, "MB/s", rounds, &mut contenders, turn));
        if growth.values.is_empty() {
            growth.failure = Some("nothing could be carried".to_owned());
        }
        all.push(growth);
    }
    Ok(all)
}

/// Does the work; returns its result, and the most memory that a process added meanwhile, MiB.
fn watched<T>(carrier: Option<u32>, work: impl FnOnce() -> Result<T>) -> Result<(T, Option<f64>)> {
    let Some(carrier) = carrier else {
        return Ok((work()?, None));
    };
    let before = process::memory(carrier)?.resident;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut most = before;
            while !over.load(Ordering::Relaxed) {
                if let Ok(memory) = process::memory(carrier) {
                    most = most.max(memory.resident);
                }
                thread::sleep(LOOK);
            }
            most
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        let most = watching.join().unwrap_or(f64::NAN);
        Ok((done?, Some((most - before) / 1024.0)))
    })
}

/// Measures requests one after another with a key in a header: the program's own, and one that is
/// injected outside and masked in answers.
fn identity(world: &mut World, rounds: usize) -> Result<Vec<Series>> {
    let contender = |name, shell| Contender {
        name,
        shell,
        host: ORIGIN_HOST,
        carrier: Carrier::OfSandbox,
    };
    let mut contenders = [
        contender(ATOLL, world.inside_with_a_key(false)?),
        contender(WITH_CREDENTIAL, world.inside_with_a_key(true)?),
    ];
    let turn = |shell: &mut Shell, host: &'static str| {
        let told = shell.ask(&format!("{CLIENT} requests {host} {REQUESTS}"))?;
        Ok(Turn {
            values: numbers(&told)?
                .into_iter()
                .map(|spent| spent / 1e3)
                .collect(),
            work: None,
        })
    };
    Ok(take_turns(
        "request with a key",
        "us",
        rounds,
        &mut contenders,
        turn,
    ))
}

/// Measures a run that may reach something and does not, against one that may reach nothing.
fn start(world: &mut World, rounds: usize) -> Result<Vec<Series>> {
    let contender = |name, allow: &[&str]| measure::Contender {
        name,
        command: world
            .atoll(allow)
            .into_iter()
            .chain(["true".to_owned()])
            .collect(),
        directory: world.workspace().to_path_buf(),
        afterwards: None,
        times_itself: false,
    };
    let prepared = measure::Prepared {
        contenders: vec![
            contender(NO_NETWORK, &[]),
            contender(UNUSED, &[ORIGIN_HOST]),
        ],
        absent: Vec::new(),
        directory: world.workspace().to_path_buf(),
    };
    let measured = measure::take_turns(&prepared, rounds * STARTS)?;
    let series = measured.into_iter().map(|measured| Series {
        values: measured.whole_ms,
        failure: measured.failure,
        ..Series::new("start", &measured.name, "ms")
    });
    Ok(series.collect())
}
