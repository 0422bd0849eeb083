//! The prover, a program of its own: found, started with the properties, and limited in time and
//! memory.
//!
//! Neither it nor the solver is taken from where another user can write, or from the project around
//! the current directory: a program that an agent has put there would answer "proven" to
//! everything.

mod complaint;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use atoll_cedar::{
    ANSWER_BYTES_MAX, ASKED_BYTES_MAX, Action, Case, Layer, PolicyFile, Property, Proving, Subject,
    Verdict,
};
use complaint::Complaint;
use rustix::process::{Pid, Resource, Rlimit, getuid, prlimit};

/// The prover's program.
const PROVER: &str = "atoll-prove";
/// The solver's program.
const SOLVER: &str = "cvc5";
/// The variable that names the solver's program; without it the solver is looked up as the prover
/// is.
const SOLVER_VARIABLE: &str = "CVC5";
/// The memory limit of the prover, and of the solver, bytes.
const MEMORY_BYTES_MAX: u64 = 4 << 30;
/// The time limit of the prover besides the solver for each property, seconds.
const BESIDE_SECONDS: u64 = 60;
/// The time limit of each part of a trial, seconds.
const TRIAL_SECONDS: u16 = 10;
/// The most answers queued for reading.
const LINES_MAX: usize = 16;
/// The entries that mark the top of a project.
const PROJECT_MARKS: [&str; 2] = [".git", "atoll.toml"];
/// Whoever else may write a file or a directory.
const OTHERS_WRITE: u32 = 0o022;
/// The sticky bit: in such a directory nobody renames another's files.
const STICKY: u32 = 0o1000;

/// The programs that make proofs.
#[derive(Debug)]
pub struct Programs {
    prover: PathBuf,
    /// The solver.
    pub solver: PathBuf,
}

impl Programs {
    /// Finds both.
    ///
    /// # Errors
    /// When one is missing, with how to get it.
    pub fn find() -> Result<Self, String> {
        let here = std::env::current_dir().map_err(|error| error.to_string())?;
        let own = std::env::current_exe().ok();
        let beside = own.as_deref().and_then(Path::parent).map(Path::to_owned);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places = places(beside, &path);
        let prover = program(PROVER, None, &places, &here).map_err(|why| {
            format!("{why}. `cargo xtask prover` builds it: put it beside atoll, or into PATH")
        })?;
        let named = std::env::var_os(SOLVER_VARIABLE).filter(|named| !named.is_empty());
        let solver = program(SOLVER, named.as_deref(), &places, &here).map_err(|why| {
            format!(
                "{why}. Install cvc5 1.3 or later from https://cvc5.github.io, and put it into \
                 PATH or name it by {SOLVER_VARIABLE}; `cargo xtask test --install` brings one"
            )
        })?;
        Ok(Self { prover, solver })
    }

    /// Describes both paths.
    pub fn told(&self) -> String {
        format!("{}, with {}", self.prover.display(), self.solver.display())
    }

    /// Tries both on trivial properties: one that holds, and one that does not.
    ///
    /// # Errors
    /// When the answers are others, with these.
    pub fn try_out(&self) -> Result<(), String> {
        let text = "permit(principal, action == Action::\"connect\", resource)\n\
                    when { context.port == 443 };\n";
        let file = PolicyFile {
            name: "trial.cedar".to_owned(),
            content: text.as_bytes().to_vec(),
        };
        let never = |port: u16| Property::NeverAllows {
            action: Action::Connect,
            condition: Some(format!("context.port == {port}")),
        };
        let asked = Proving {
            subject: Subject::new(&[(Layer::User, vec![file])])?,
            properties: vec![never(22), never(443)],
            seconds: TRIAL_SECONDS,
            solver: self.solver.clone(),
            usual: Case::default(),
        };
        let mut found = Vec::new();
        self.prove(&asked, |verdict| found.push(verdict));
        match found.as_slice() {
            [Verdict::Proven, Verdict::Refuted(_)] => Ok(()),
            [Verdict::Unknown(why), ..] | [_, Verdict::Unknown(why), ..] => Err(format!(
                "{} are there, and prove nothing: {why}",
                self.told()
            )),
            _ => Err(format!(
                "{} are there, and say of a trivial policy what is wrong: they are not to be \
                 believed",
                self.told()
            )),
        }
    }

    /// Has properties proven, and hands on each verdict as it comes. A property without an answer
    /// is unknown.
    pub fn prove(&self, asked: &Proving, mut tell: impl FnMut(Verdict)) {
        let mut left = asked.properties.len();
        let why = match AtWork::start(&self.prover, asked) {
            Ok(mut at_work) => loop {
                if left == 0 {
                    return;
                }
                match at_work.answer() {
                    Ok(verdict) => tell(verdict),
                    Err(why) => break why,
                }
                left -= 1;
            },
            Err(why) => why,
        };
        for _ in 0..left {
            tell(Verdict::Unknown(why.clone()));
        }
    }
}

/// Returns the directories to search for programs: beside this one, then `PATH`.
fn places(beside: Option<PathBuf>, path: &OsStr) -> Vec<PathBuf> {
    let absolute = std::env::split_paths(path).filter(|place| place.is_absolute());
    beside.into_iter().chain(absolute).collect()
}

/// Finds a program by its name, or by the path that names it.
fn program(
    name: &str,
    named: Option<&OsStr>,
    places: &[PathBuf],
    here: &Path,
) -> Result<PathBuf, String> {
    let candidates: Vec<PathBuf> = match named {
        Some(named) => vec![PathBuf::from(named)],
        None => places.iter().map(|place| place.join(name)).collect(),
    };
    let mut refused = None;
    for candidate in &candidates {
        match believed(candidate, here) {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(why) => refused = refused.or(Some(why)),
        }
    }
    Err(refused.unwrap_or_else(|| match named {
        Some(named) => {
            let named = Path::new(named).display();
            format!("{SOLVER_VARIABLE} names {named}, and no program is there")
        }
        None => format!("{name} is neither beside atoll nor in PATH"),
    }))
}

/// Returns the directories around the current one, itself first, that agents may write in: no home,
/// nor its parents, and farther out those that are marked as a project or are not root's.
fn around(here: &Path) -> impl Iterator<Item = &Path> {
    let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
    here.ancestors().filter(move |place| {
        let is_above_home = home.as_ref().is_some_and(|home| home.starts_with(place));
        if is_above_home || *place == Path::new("/") {
            return false;
        }
        let is_marked = PROJECT_MARKS.iter().any(|mark| place.join(mark).exists());
        let is_of_root = || place.metadata().is_ok_and(|found| found.uid() == 0);
        *place == here || is_marked || !is_of_root()
    })
}

/// Returns the program behind a path, if one is there; an error if another user may have written
/// it.
fn believed(path: &Path, here: &Path) -> Result<Option<PathBuf>, String> {
    let Ok(real) = path.canonicalize() else {
        return Ok(None);
    };
    let Ok(file) = real.metadata() else {
        return Ok(None);
    };
    if !file.is_file() || file.mode() & 0o111 == 0 {
        return Ok(None);
    }
    let refused = |why: &str| Err(format!("{} is not used: {why}", real.display()));
    if let Some(project) = around(here).find(|project| real.starts_with(project)) {
        return refused(&match project == here {
            true => "it lies in the present directory".to_owned(),
            false => format!("it lies in {}, as the present directory", project.display()),
        });
    }
    for (at, place) in real.ancestors().enumerate() {
        let Ok(found) = place.symlink_metadata() else {
            return refused("where it lies cannot be seen");
        };
        let is_own = [0, getuid().as_raw()].contains(&found.uid());
        let is_closed = found.mode() & OTHERS_WRITE == 0;
        let is_sticky = at > 0 && found.mode() & STICKY != 0;
        if !is_own || !(is_closed || is_sticky) {
            return refused(&format!("others can change {}", place.display()));
        }
    }
    Ok(Some(real))
}

/// A running prover; killed when dropped.
struct AtWork {
    child: Child,
    lines: Receiver<Option<String>>,
    complaint: Complaint,
    answers_within: Duration,
}

impl AtWork {
    fn start(program: &Path, asked: &Proving) -> Result<Self, String> {
        let asked_text = serde_json::to_vec(asked).map_err(|error| error.to_string())?;
        if asked_text.len() > ASKED_BYTES_MAX {
            return Err(format!("policies are longer than {ASKED_BYTES_MAX} bytes"));
        }
        let name = program.display();
        let failed = |error: std::io::Error| format!("{name} cannot be started: {error}");
        // It is told what it is asked, and nothing of what this process knows.
        let mut child = Command::new(program)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let complaint = Complaint::of(child.stderr.take());
        let each = u64::from(asked.seconds).saturating_add(BESIDE_SECONDS);
        let (to, lines) = sync_channel(LINES_MAX);
        let at_work = Self {
            child,
            lines,
            complaint,
            answers_within: Duration::from_secs(each),
        };
        let count = u64::try_from(asked.properties.len()).unwrap_or(u64::MAX);
        limit(&at_work.child, each.saturating_mul(count))?;
        let (Some(mut input), Some(output)) = (input, output) else {
            return Err(format!("{name} cannot be asked"));
        };
        // Either thread ends with the prover.
        std::thread::spawn(move || input.write_all(&asked_text));
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let mut line = String::new();
                let most = u64::try_from(ANSWER_BYTES_MAX).unwrap_or(u64::MAX);
                let read = (&mut output).take(most).read_line(&mut line);
                let is_whole = read.is_ok() && line.ends_with('\n');
                if to.send(is_whole.then_some(line)).is_err() || !is_whole {
                    return;
                }
            }
        });
        Ok(at_work)
    }

    fn answer(&mut self) -> Result<Verdict, String> {
        match self.lines.recv_timeout(self.answers_within) {
            Ok(Some(line)) => serde_json::from_str(&line).map_err(|_| {
                "the prover says nothing that this version of Atoll understands".to_owned()
            }),
            Err(RecvTimeoutError::Timeout) => Err("it takes too long".to_owned()),
            Ok(None) | Err(RecvTimeoutError::Disconnected) => Err(match self.complaint.told() {
                Some(told) => format!("the prover has ended, and says: {told}"),
                None => "the prover has ended: it is of another version of Atoll, or needs more \
                         memory than it gets"
                    .to_owned(),
            }),
        }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn limit(child: &Child, seconds: u64) -> Result<(), String> {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let id = id.ok_or("the prover has no number")?;
    for (what, most) in [
        (Resource::As, MEMORY_BYTES_MAX),
        (Resource::Cpu, seconds),
        (Resource::Core, 0),
    ] {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        prlimit(Some(id), what, limit)
            .map_err(|error| format!("the prover cannot be limited: {error}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

/// Describes the programs that prove properties of policies, after a trial proof.
///
/// # Errors
/// When one is missing, with how to get it, or does not work.
pub fn provers() -> Result<String, String> {
    let found = Programs::find()?;
    found.try_out()?;
    Ok(format!("{}: a trivial proof was found", found.told()))
}
