//! The time that `atoll stop` takes: from before its start until the sandbox has no process left
//! and its last byte has arrived outside. The stopped program forks and sends all the while, on
//! every processor that it gets.
//!
//! Both ends are taken too late rather than too early: the end of the processes when the first look
//! that finds none is over, the last byte when the recorder outside has read it.

use std::fs::{self, File};
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::measure::Measured;
use super::scenarios::{Place, Statistic, Target};
use crate::command;

const SENDER: &str = include_str!("stop.c");
/// The program's name, as the kernel shows it.
const SENDER_NAME: &str = "stop-sender";
/// The name by which a sandbox reaches this host's loopback.
const HOST: &str = "host.atoll.internal";
/// The number of connections that the program has.
const SENDERS: usize = 4;
/// The longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);
/// The pause between two looks for what is left: it adds to the measured time.
const LOOK_PAUSE: Duration = Duration::from_micros(200);
/// The time of watching afterwards, for a byte or a process that comes after all.
const AFTERWARDS: Duration = Duration::from_millis(100);
/// The longest time allowed for the median and for the 99th percentile, milliseconds.
const STOPPED_MS_MAX: f64 = 100.0;
/// The exit status of a run that was ended by SIGKILL.
const KILLED: i32 = 137;
const NAME: &str = "bench-stop";

/// A way to name to `atoll stop` what is to be stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Run,
    Last,
    Session,
    Agent,
    All,
}

impl Way {
    const ALL: [Self; 5] = [Self::Run, Self::Last, Self::Session, Self::Agent, Self::All];

    fn name(self) -> &'static str {
        match self {
            Self::Run => "a run",
            Self::Last => "the last run",
            Self::Session => "a session",
            Self::Agent => "an agent",
            Self::All => "all",
        }
    }

    /// Returns the options that the run is started with.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Run | Self::Last | Self::All => &[],
            Self::Session => &["--session", NAME],
            Self::Agent => &["--profile", NAME],
        }
    }

    /// Returns the arguments of `atoll stop`.
    fn words(self, run: &str) -> Vec<&str> {
        match self {
            Self::Run => vec![run],
            Self::Last => vec!["last"],
            Self::Session => vec!["--session", NAME],
            Self::Agent => vec!["--agent", NAME],
            Self::All => vec!["--all"],
        }
    }
}

pub(crate) fn targets() -> Vec<Target> {
    let target = |way: Way, by| Target {
        of: way.name(),
        to: None,
        at_most: STOPPED_MS_MAX,
        by,
    };
    let both = |way| [target(way, Statistic::Median), target(way, Statistic::P99)];
    Way::ALL.into_iter().flat_map(both).collect()
}

/// Measures all ways in turn.
pub(crate) fn measure(place: &Place, rounds: usize) -> Result<Vec<Measured>> {
    let mut all: Vec<Measured> = Way::ALL.iter().map(|way| measured(*way)).collect();
    if command::find("cc").is_none() {
        for one in &mut all {
            one.failure = Some("there is no C compiler".to_owned());
        }
        return Ok(all);
    }
    let bench = Bench::prepare(place)?;
    for _ in 0..rounds {
        for (way, measured) in Way::ALL.into_iter().zip(&mut all) {
            if measured.failure.is_some() {
                continue;
            }
            match bench.turn(way) {
                Ok(ms) => measured.whole_ms.push(ms),
                Err(error) => measured.failure = Some(format!("{error:#}")),
            }
        }
    }
    Ok(all)
}

fn measured(way: Way) -> Measured {
    let words = way.words("RUN").into_iter().map(str::to_owned);
    Measured {
        name: way.name().to_owned(),
        command: ["atoll", "stop"]
            .map(str::to_owned)
            .into_iter()
            .chain(words)
            .collect(),
        ..Measured::default()
    }
}

struct Bench<'a> {
    place: &'a Place,
    /// The directory in which a socket shows that a run can be controlled.
    sockets: PathBuf,
    recorder: Recorder,
}

impl<'a> Bench<'a> {
    fn prepare(place: &'a Place) -> Result<Self> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let home = home.context("HOME is not set")?;
        let profiles = home.join(".config/atoll/profiles");
        fs::create_dir_all(&profiles)?;
        let profile = profiles.join(format!("{NAME}.toml"));
        fs::write(profile, "extends = [\"default\"]\n")?;
        let file = place.directory.join("stop.c");
        fs::write(&file, SENDER)?;
        let mut compiler = Command::new("cc");
        compiler
            .args(["-O1", "-o"])
            .arg(place.workspace.join(SENDER_NAME));
        command::output(compiler.arg(file))?;
        Ok(Self {
            place,
            sockets: home.join(".local/state/atoll/control"),
            recorder: Recorder::start()?,
        })
    }

    /// Stops one run; returns the milliseconds from the start of `atoll stop` until nothing was
    /// left.
    fn turn(&self, way: Way) -> Result<f64> {
        self.recorder.forget();
        let mut run = Started(self.start(way)?);
        let ms = self.stop(way, &mut run);
        let said = fs::read_to_string(self.place.directory.join("said")).unwrap_or_default();
        ms.with_context(|| format!("{}: {}", way.name(), said.trim()))
    }

    fn start(&self, way: Way) -> Result<Child> {
        let to = format!("{HOST}:{}", self.recorder.port);
        let said = || File::create(self.place.directory.join("said"));
        let mut run = Command::new(&self.place.program);
        run.args(["run", "--discard", "--allow", &to]);
        run.args(way.options());
        run.args(["--", &format!("./{SENDER_NAME}"), HOST]);
        run.arg(self.recorder.port.to_string());
        run.current_dir(&self.place.workspace);
        let run = run.stdin(Stdio::null()).stdout(said()?).stderr(said()?);
        Ok(run.spawn()?)
    }

    fn stop(&self, way: Way, run: &mut Started) -> Result<f64> {
        let number = run.0.id();
        let id = until("it sends and can be spoken to", PAUSE, || {
            let is_sending = self.recorder.senders() >= SENDERS;
            is_sending.then(|| spoken_to(&self.sockets)).flatten()
        })?;
        // The control: they are found while they are there.
        let before = inside(number)?;
        ensure!(before > SENDERS, "{before} processes were found inside");
        let since = Instant::now();
        let mut stop = Command::new(&self.place.program);
        let mut stop = stop
            .arg("stop")
            .args(way.words(&id))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut gone = None;
        until("nothing is left", LOOK_PAUSE, || {
            match (inside(number), gone) {
                (Ok(0), None) => {
                    gone = Some(Instant::now());
                    None
                }
                (Ok(0), Some(at)) => (at.elapsed() >= AFTERWARDS).then_some(()),
                (Ok(_) | Err(_), _) => {
                    gone = None;
                    None
                }
            }
        })?;
        ensure!(stop.wait()?.success(), "atoll stop failed");
        let status = run.0.wait()?;
        ensure!(
            status.code() == Some(KILLED),
            "the run ended by itself: {status}"
        );
        let gone = gone.context("they were never gone")?;
        Ok(gone
            .max(self.recorder.last())
            .duration_since(since)
            .as_secs_f64()
            * 1e3)
    }
}

/// A run, killed on drop: it does not outlive its turn.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the run that can be controlled, if there is exactly one.
fn spoken_to(sockets: &Path) -> Option<String> {
    let entries = fs::read_dir(sockets).ok()?;
    let mut runs = entries.filter_map(|entry| {
        let name = entry.ok()?.file_name();
        Some(name.to_str()?.strip_suffix(".sock")?.to_owned())
    });
    runs.next().filter(|_| runs.next().is_none())
}

fn until<T>(what: &str, pause: Duration, mut is_so: impl FnMut() -> Option<T>) -> Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = is_so() {
            return Ok(found);
        }
        if Instant::now() >= end {
            bail!("it never came that {what}");
        }
        thread::sleep(pause);
    }
}

/// A process, as `/proc` shows it.
struct Process {
    pid: u32,
    parent: u32,
    name: String,
}

/// Returns all processes that have not ended.
fn processes() -> Result<Vec<Process>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        all.extend(pid.and_then(process));
    }
    Ok(all)
}

fn process(pid: u32) -> Option<Process> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name stands in parentheses and may hold any of its own (proc_pid_stat(5)).
    let (start, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X");
    (!has_ended).then_some(Process {
        pid,
        parent: fields.next()?.parse().ok()?,
        name: start.split_once('(')?.1.to_owned(),
    })
}

/// Counts the processes in the sandbox of a run: those beneath it in a process namespace of their
/// own, and any that has the name of the program that it started.
fn inside(run: u32) -> Result<usize> {
    let all = processes()?;
    let own = namespaces(std::process::id()).context("/proc has to be mounted")?;
    let mut beneath = vec![run];
    let mut at = 0;
    while let Some(parent) = beneath.get(at).copied() {
        let children = all.iter().filter(|one| one.parent == parent);
        beneath.extend(children.map(|one| one.pid));
        at += 1;
    }
    let is_inside = |one: &&Process| {
        one.name == SENDER_NAME
            || beneath.contains(&one.pid) && namespaces(one.pid).is_some_and(|deep| deep > own)
    };
    Ok(all.iter().filter(is_inside).count())
}

/// Returns the number of process namespaces in which a process has an id (proc_pid_status(5)).
fn namespaces(pid: u32) -> Option<usize> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("NSpid:"))?;
    Some(line.split_ascii_whitespace().count())
}

/// The receiver of what leaves the sandbox, on this host's loopback.
struct Recorder {
    port: u16,
    begun: Instant,
    /// The time of the last byte, microseconds since `begun`.
    last_us: Arc<AtomicU64>,
    senders: Arc<AtomicUsize>,
}

impl Recorder {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let recorder = Self {
            port: listener.local_addr()?.port(),
            begun: Instant::now(),
            last_us: Arc::default(),
            senders: Arc::default(),
        };
        let (begun, last) = (recorder.begun, Arc::clone(&recorder.last_us));
        let senders = Arc::clone(&recorder.senders);
        thread::spawn(move || {
            for line in listener.incoming().flatten() {
                let (last, senders) = (Arc::clone(&last), Arc::clone(&senders));
                thread::spawn(move || record(line, begun, &last, &senders));
            }
        });
        Ok(recorder)
    }

    fn forget(&self) {
        self.senders.store(0, Ordering::SeqCst);
    }

    /// Returns the number of new connections with a byte since the last `forget`.
    fn senders(&self) -> usize {
        self.senders.load(Ordering::SeqCst)
    }

    fn last(&self) -> Instant {
        self.begun + Duration::from_micros(self.last_us.load(Ordering::SeqCst))
    }
}

fn record(mut line: TcpStream, begun: Instant, last: &AtomicU64, senders: &AtomicUsize) {
    let mut block = vec![0; 1 << 16];
    let mut is_counted = false;
    while line.read(&mut block).is_ok_and(|got| got > 0) {
        let now = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        last.fetch_max(now, Ordering::SeqCst);
        if !is_counted {
            is_counted = true;
            senders.fetch_add(1, Ordering::SeqCst);
        }
    }
}
