//! Many sandboxes from one process, whose launcher stays: each is made, runs a
//! program and is taken away by the main path, with its record in the ledger.
//!
//! `spawner STATE PROGRAM WHAT NUMBER [PROFILE]` keeps everything beneath the directory
//! STATE. PROGRAM is a static program, PROFILE a profile's file. WHAT is one of
//! - `rounds`: so often in turn with a plain start of the program;
//! - `sustained`: two at a time, for so many seconds;
//! - `idle`: so many at once. PROGRAM writes something and reads until the end;
//! - `hold`: the same until a line is read from standard input, then one more;
//! - `execs`: so many starts of the program in one sandbox, by as many loops as PROFILE says. Of an
//!   exec without an end within [`PATIENCE`], the number is among the `lost`.
//!
//! It writes JSON: times in microseconds, memory in bytes.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use atoll_engine::roles;
use atoll_engine::sandboxes::{CreateSandbox, Engine, PriorAnswer, Sandbox, Workspace};
use atoll_engine::supervision::{DualControlRule, ExecRequest};
use atoll_engine::{ChangeRetention, Request, RequestBase, call};
use atoll_layer::GitEnvironment;
use atoll_ledger::{Ledger, StateDir};
use atoll_model::{Action, Call, Ending, Mode, Principal, Program, RunId};
use atoll_policy::{
    Facts, HostFacts, NoProfiles, PolicySources, Requested, RequestedProfile, Rules, SourceFile,
    Sources, TrustList, compile,
};
use atoll_sandbox::{Attachment, Host, Reaction, Spawner, Starting, Stream};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::PipeFlags;
use serde_json::{Value, json};

/// The longest time that many sandboxes may take to start.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(status) = roles::take(&arguments) {
        std::process::exit(status.into());
    }
    let given: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = given.iter().map(String::as_str).collect();
    let [state, program, what, number, profile @ ..] = words.as_slice() else {
        bail!(
            "usage: spawner STATE PROGRAM rounds|sustained|idle|hold|execs NUMBER [PROFILE|LOOPS]"
        );
    };
    let number: u64 = number.parse().context("NUMBER")?;
    if *what == "execs" {
        let loops: u32 = profile.first().context("LOOPS")?.parse()?;
        println!("{}", execs(Path::new(program), number, loops)?);
        return Ok(());
    }
    let many = Many::new(Path::new(state), Path::new(program), profile.first())?;
    let figures = match *what {
        "rounds" => many.rounds(number)?,
        "sustained" => many.sustained(Duration::from_secs(number))?,
        "idle" => many.idle(number, || Ok(()))?,
        "hold" => {
            let ended = many.idle(number, || {
                println!("ready");
                io::stdin().read_line(&mut String::new()).map(drop)
            })?;
            // One launcher may have been made beforehand.
            let mut further = (0..2).map(|_| many.contained(None));
            let failure = further
                .find_map(Result::err)
                .map(|error| format!("{error:#}"));
            json!({ "ended": ended, "further": failure })
        }
        _ => bail!("rounds, sustained, idle or hold?"),
    };
    println!("{figures}");
    Ok(())
}

/// Starts the program so often in one sandbox, by so many loops.
fn execs(program: &Path, number: u64, loops: u32) -> Result<Value> {
    let program = program.canonicalize()?;
    let workspace = program.parent().context("PROGRAM")?.to_owned();
    let sandbox = Engine::open(atoll_cli::LAUNCHER)?.create(&CreateSandbox {
        workspace: Workspace::Directory(workspace),
        requested: Requested::default(),
        discard: true,
        is_attended: false,
        made_at: None,
        home: None,
        template: None,
        frozen: None,
        system: None,
        answer: PriorAnswer::Nobody,
        parent: None,
        begins_with: None,
    })?;
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let lost = Mutex::new(Vec::new());
    std::thread::scope(|scope| -> Result<()> {
        let work = || -> Result<()> {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= number {
                    return Ok(());
                }
                match exec(&sandbox, &program)? {
                    Some(Ending::Exited { status: 0 }) => {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    other => {
                        let mut lost = lost.lock().map_err(|_| io::Error::other("a loop"))?;
                        lost.push(json!({ "exec": at, "ending": format!("{other:?}") }));
                    }
                }
            }
        };
        let threads: Vec<_> = (0..loops).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("a loop"))??;
        }
        Ok(())
    })?;
    sandbox.kill()?;
    let lost = lost.into_inner().map_err(|_| io::Error::other("a loop"))?;
    Ok(json!({ "done": done.into_inner(), "lost": lost }))
}

/// Starts the program once; `None` if its end does not come.
fn exec(sandbox: &Sandbox, program: &Path) -> Result<Option<Ending>> {
    let (nothing, _) = io::pipe()?;
    let ((_out, first), (_errors, second)) = (io::pipe()?, io::pipe()?);
    let request = ExecRequest {
        command: vec![program.into()],
        directory: None,
        environment: Vec::new(),
        served: None,
        answer: PriorAnswer::Nobody,
        parent: None,
    };
    let streams = [nothing.into(), first.into(), second.into()];
    let mut exec = sandbox.start(request, streams, None)?;
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let more = rustix::event::Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        let news = exec.descriptor();
        let mut set = [PollFd::from_borrowed_fd(news, PollFlags::IN)];
        let _ = poll(&mut set, Some(&more))?;
        if let Some(ending) = exec.ended()? {
            return Ok(Some(ending));
        }
    }
    Ok(None)
}

/// The state that stays between two sandboxes.
struct Many {
    program: PathBuf,
    workspace: PathBuf,
    host: Host,
    facts: HostFacts,
    rules: Rules,
    state: StateDir,
    ledger: Ledger,
    spawner: Spawner,
    made: AtomicU32,
}

impl Many {
    fn new(directory: &Path, program: &Path, profile: Option<&&str>) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let directory = directory.canonicalize()?;
        let program = program.canonicalize()?;
        let workspace = directory.join("workspace");
        std::fs::create_dir_all(&workspace)?;
        // What is executed has to be seen inside.
        let inside = workspace.join("program");
        std::fs::copy(program, &inside)?;
        let state = StateDir::open(&directory.join("state"))?;
        let facts = HostFacts {
            memory_bytes: 8 << 30,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            home: directory.join("home"),
            state_dir: directory.join("state"),
            config_dir: directory.join("configuration"),
        };
        let sources = Sources {
            organisation: None,
            user_config: None,
            user_profiles: &NoProfiles,
            project: None,
            trust: &TrustList::default(),
            policies: PolicySources::default(),
        };
        let profile = profile.map(|path| -> Result<RequestedProfile> {
            let file = SourceFile::new((*path).to_owned(), std::fs::read(path)?);
            Ok(RequestedProfile::File(file))
        });
        let requested = Requested {
            profile: profile.transpose()?,
            ..Requested::default()
        };
        let rules = compile(&sources, &requested, inside.as_os_str(), &facts)?;
        let host = Host::read()?;
        Ok(Self {
            program: inside,
            workspace,
            facts,
            rules,
            ledger: atoll_store::open_ledger(&state, SystemTime::now)?,
            state,
            spawner: Spawner::start(atoll_cli::LAUNCHER, &host)?,
            host,
            // Twenty bits are used: so others of this second have other names, and control groups.
            made: AtomicU32::new(std::process::id() << 10),
        })
    }

    /// Runs the program in a sandbox, from its making to its end.
    fn contained(&self, held: Option<Held<'_>>) -> Result<()> {
        let now = SystemTime::now();
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let asked = Call::new(
            RunId::new(seconds, number),
            Principal {
                uid: self.facts.uid,
                gid: self.facts.gid,
                name: "many".to_owned(),
            },
            atoll_model::Place::Directory {
                workspace: self.workspace.clone(),
                directory: self.workspace.clone(),
            },
            Action::Run(Program {
                command: vec![self.program.clone().into_os_string()],
                ..Program::default()
            }),
        );
        let git = GitEnvironment::default();
        let request = Request::new(RequestBase {
            call: &asked,
            host: &self.host,
            rules: &self.rules,
            facts: Facts {
                host: &self.facts,
                mode: Mode::Full,
                environment: &[],
                now,
                placeholders: &[],
                labels: None,
                living: None,
                changes: None,
            },
            git: &git,
            state: &self.state,
            ledger: &self.ledger,
            fate: ChangeRetention::Scratch,
            widening: &DualControlRule::OnePerson,
        });
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        let attach = |_: &_| Silent { nothing, held };
        let called = call(&request, Starting::by(&self.spawner), attach)?;
        ensure!(
            called.outcome.ending == Ending::Exited { status: 0 },
            "{:?}",
            called.outcome.ending
        );
        Ok(())
    }

    /// Runs the same program without a sandbox.
    fn plain(&self) -> Result<()> {
        let status = Command::new(&self.program)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success(), "{status}");
        Ok(())
    }

    /// Measures runs without and with a sandbox, in turn.
    fn rounds(&self, rounds: u64) -> Result<Value> {
        let (mut plain, mut contained) = (Vec::new(), Vec::new());
        for round in 0..rounds + 20 {
            let first = time(|| self.plain())?;
            let second = time(|| self.contained(None))?;
            if round >= 20 {
                plain.push(first);
                contained.push(second);
            }
        }
        Ok(json!({ "plain_us": plain, "contained_us": contained }))
    }

    /// Runs sandboxes two at a time, for this long.
    fn sustained(&self, length: Duration) -> Result<Value> {
        const AT_ONCE: usize = 2;
        const WINDOW: Duration = Duration::from_secs(5);
        self.contained(None)?;
        let before = held_now()?;
        let began = Instant::now();
        let done = AtomicU64::new(0);
        let mut windows = Vec::new();
        std::thread::scope(|scope| -> Result<()> {
            let worker = || -> Result<()> {
                while began.elapsed() < length {
                    self.contained(None)?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            };
            let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(worker)).collect();
            let mut counted = 0;
            while began.elapsed() < length {
                std::thread::sleep(WINDOW.min(length));
                let now = done.load(Ordering::Relaxed);
                windows.push(now - counted);
                counted = now;
            }
            for worker in workers {
                worker.join().map_err(|_| io::Error::other("a worker"))??;
            }
            Ok(())
        })?;
        let seconds = began.elapsed().as_secs_f64();
        let after = held_now()?;
        Ok(json!({
            "done": done.load(Ordering::Relaxed),
            "seconds": seconds,
            "windows": windows,
            "before": before,
            "after": after,
        }))
    }

    /// Keeps this many sandboxes alive that do nothing: the program writes something, then reads
    /// until the end.
    fn idle(&self, sandboxes: u64, meanwhile: impl FnOnce() -> io::Result<()>) -> Result<Value> {
        let before = available()?;
        let began = Instant::now();
        let (input, release) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let started = AtomicU64::new(0);
        let held = Held {
            input: &input,
            started: &started,
        };
        let mut least = 0;
        std::thread::scope(|scope| -> Result<()> {
            let threads: Vec<_> = (0..sandboxes)
                .map(|_| {
                    std::thread::Builder::new()
                        .stack_size(256 << 10)
                        .spawn_scoped(scope, || self.contained(Some(held)))
                })
                .collect::<io::Result<_>>()?;
            while started.load(Ordering::Relaxed) < sandboxes {
                ensure!(began.elapsed() < PATIENCE, "not all of them start");
                std::thread::sleep(PAUSE);
            }
            std::thread::sleep(PAUSE);
            least = available()?;
            meanwhile()?;
            drop(release);
            for thread in threads {
                thread.join().map_err(|_| io::Error::other("a sandbox"))??;
            }
            Ok(())
        })?;
        Ok(json!({
            "sandboxes": sandboxes,
            "seconds": began.elapsed().as_secs_f64(),
            "available_before_bytes": before,
            "available_then_bytes": least,
            "each_bytes": before.saturating_sub(least) / sandboxes.max(1),
        }))
    }
}

/// The input that idle programs read, and the number of programs that have begun.
#[derive(Clone, Copy)]
struct Held<'a> {
    input: &'a OwnedFd,
    started: &'a AtomicU64,
}

/// The streams of a program whose output is discarded.
struct Silent<'a> {
    nothing: File,
    held: Option<Held<'a>>,
}

impl Attachment for Silent<'_> {
    fn input(&self) -> Option<BorrowedFd<'_>> {
        self.held.map(|held| held.input.as_fd())
    }

    fn sink(&self, _: Stream) -> BorrowedFd<'_> {
        self.nothing.as_fd()
    }

    fn signals(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn next_signal(&mut self) -> Option<Reaction> {
        None
    }

    fn transform(&mut self, _: Stream, written: &[u8], _: &mut Vec<u8>) {
        if let Some(held) = self.held.filter(|_| !written.is_empty()) {
            held.started.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn suspended(&mut self) {}
}

/// Returns the time that something takes, microseconds.
fn time(what: impl FnOnce() -> Result<()>) -> Result<u64> {
    let began = Instant::now();
    what()?;
    Ok(u64::try_from(began.elapsed().as_micros())?)
}

/// Returns the memory that the host can still give, bytes (proc_meminfo(5)).
fn available() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next());
    Ok(kib.context("MemAvailable")?.parse::<u64>()? * 1024)
}

/// Counts what could leak. A launcher is reaped a moment after its sandbox is gone.
fn held_now() -> Result<Value> {
    let count = |path: &str| Ok::<_, io::Error>(std::fs::read_dir(path)?.count());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?
        .lines()
        .count();
    let mut children = descendants(Path::new("/proc/self"))?;
    for _ in 0..100 {
        if children <= 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        children = descendants(Path::new("/proc/self"))?;
    }
    Ok(json!({
        "children": children,
        "mounts": mounts,
        "descriptors": count("/proc/self/fd")?,
        "available_bytes": available()?,
    }))
}

fn descendants(of: &Path) -> Result<usize> {
    let mut count = 0;
    for task in std::fs::read_dir(of.join("task"))? {
        let list = std::fs::read_to_string(task?.path().join("children"))?;
        for pid in list.split_whitespace() {
            count += 1 + descendants(&Path::new("/proc").join(pid))?;
        }
    }
    Ok(count)
}
