//! The solver: a program that reads SMT-LIB and answers, held to a time and a size.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use cedar_policy_symcc::SmtLibScript;
use cedar_policy_symcc::solver::{Decision, DecisionWithModel, Solver, SolverError};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tokio::io::AsyncWrite;

/// What the solver may take of memory, bytes.
const MEMORY_BYTES_MAX: u64 = 4 << 30;
/// The longest answer, bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// The longest line of an answer, bytes.
const LINE_BYTES_MAX: u64 = 4 << 20;
/// How many lines of an answer wait to be read.
const LINES_MAX: usize = 64;

/// A solver at work.
#[derive(Debug)]
pub(crate) struct Process {
    /// What is still to be sent.
    script: Vec<u8>,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Option<String>>,
    until: Instant,
}

impl Process {
    /// Starts one, which is killed at `until`, or when it is dropped.
    pub(crate) fn start(program: &Path, until: Instant) -> Result<Self, String> {
        let failed = |error: std::io::Error| {
            format!(
                "the solver {} cannot be started: {error}",
                program.display()
            )
        };
        // Nothing of what this process knows is the solver's business.
        let mut child = Command::new(program)
            .args(["--lang", "smt2", "--incremental"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let limited = limit(&child, until);
        let (lines, output) = match (limited, output) {
            (Ok(()), Some(output)) => {
                let (to, lines) = sync_channel(LINES_MAX);
                (lines, (to, output))
            }
            (limited, _) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(limited.err().unwrap_or_default());
            }
        };
        std::thread::spawn(move || {
            let (to, output) = output;
            forward(output, |line| to.send(line).is_ok());
        });
        Ok(Self {
            script: Vec::new(),
            child,
            input,
            lines,
            until,
        })
    }

    /// Sends what was written; a solver that does not read it is killed in time.
    fn send(&mut self) -> Result<(), SolverError> {
        let script = std::mem::take(&mut self.script);
        let mut input = self.input.take().ok_or(SolverError::SolverMarkedFailed)?;
        let (to, done) = sync_channel(1);
        std::thread::spawn(move || {
            let sent = input.write_all(&script).and_then(|()| input.flush());
            let _ = to.send(sent.map(|()| input));
        });
        match done.recv_timeout(self.left()) {
            Ok(Ok(input)) => {
                self.input = Some(input);
                Ok(())
            }
            Ok(Err(error)) => Err(self.failed(&error.to_string())),
            Err(_) => Err(self.failed(LATE)),
        }
    }

    fn line(&mut self) -> Result<String, SolverError> {
        match self.lines.recv_timeout(self.left()) {
            Ok(Some(line)) => Ok(line),
            Ok(None) => Err(self.failed("it has ended: perhaps it needs more memory than it gets")),
            Err(RecvTimeoutError::Timeout) => Err(self.failed(LATE)),
            Err(RecvTimeoutError::Disconnected) => Err(self.failed("it has ended")),
        }
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Nothing more is asked of one that failed.
    fn failed(&mut self, why: &str) -> SolverError {
        self.input = None;
        let _ = self.child.kill();
        SolverError::Solver(why.to_owned())
    }
}

/// That the time is over.
const LATE: &str = "it takes too long";

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn limit(child: &Child, until: Instant) -> Result<(), String> {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let id = id.ok_or("the solver has no number")?;
    let seconds = until.saturating_duration_since(Instant::now()).as_secs();
    for (what, most) in [
        (Resource::As, MEMORY_BYTES_MAX),
        (Resource::Cpu, seconds.saturating_add(1)),
        (Resource::Core, 0),
    ] {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        prlimit(Some(id), what, limit)
            .map_err(|error| format!("the solver cannot be limited: {error}"))?;
    }
    Ok(())
}

/// Hands each line on; nothing where there is no further one, or one is too long.
fn forward(output: ChildStdout, send: impl Fn(Option<String>) -> bool) {
    let mut output = BufReader::new(output);
    loop {
        let mut line = String::new();
        let read = (&mut output).take(LINE_BYTES_MAX).read_line(&mut line);
        let is_whole = read.is_ok() && line.ends_with('\n');
        if !send(is_whole.then_some(line)) || !is_whole {
            return;
        }
    }
}

impl Solver for Process {
    fn smtlib_input(&mut self) -> &mut (dyn AsyncWrite + Unpin + Send) {
        &mut self.script
    }

    async fn enable_models(&mut self) -> Result<(), SolverError> {
        let script = self.smtlib_input();
        Ok(script.set_option("produce-models", "true").await?)
    }

    async fn check_sat(&mut self) -> Result<Decision, SolverError> {
        self.smtlib_input().check_sat().await?;
        self.send()?;
        let line = self.line()?;
        match line.trim() {
            "sat" => Ok(Decision::Sat),
            "unsat" => Ok(Decision::Unsat),
            "unknown" => Ok(Decision::Unknown),
            // One that did not read all of a script would answer for something else.
            other => Err(self.failed(&format!("it says {other}"))),
        }
    }

    async fn check_sat_with_model(&mut self) -> Result<DecisionWithModel, SolverError> {
        match self.check_sat().await? {
            Decision::Unsat => return Ok(DecisionWithModel::Unsat),
            Decision::Unknown => return Ok(DecisionWithModel::Unknown),
            Decision::Sat => {}
        }
        self.smtlib_input().get_model().await?;
        self.send()?;
        let mut model = self.line()?;
        if model.trim() != "(" {
            return Err(self.failed(&format!("it says {}", model.trim())));
        }
        loop {
            let line = self.line()?;
            model.push_str(&line);
            if model.len() > ANSWER_BYTES_MAX {
                return Err(self.failed("its answer is too long"));
            }
            if line.trim() == ")" {
                return Ok(DecisionWithModel::Sat { model });
            }
        }
    }
}

/// What is written to the solver never waits for anything but in [`Process`], which blocks.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(found) => Ok(found),
        std::task::Poll::Pending => Err("what is proven waits for something else".to_owned()),
    }
}
