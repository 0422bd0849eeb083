//! The sandbox of an agent's session: it lives while a command runs in it. The next one begins with
//! what the last has changed, and sees the workspace as it is by then.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use atoll_engine::configuration::Places;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable_lines;
use atoll_engine::sandboxes::Engine;
use atoll_ledger::StateDir;
use atoll_model::{RunId, WorkspaceMode};
use atoll_store::{RunRecord, RunState, settle_run};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, fcntl_setfl, flock, mkfifoat, open};

use crate::arguments::{ExecArguments, HookAgent};
use crate::exec::exec;
use crate::output::Output;
use crate::own;

/// The time in which a sandbox without commands ends.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// The time between two looks at one that ends.
const PAUSE: Duration = Duration::from_millis(10);
/// The most that is read of what a sandbox says when it begins, bytes.
const SAID_BYTES_MAX: u64 = 4 << 10;
/// The program of a sandbox: it says which run it is, and goes on until the last command has ended.
const PROGRAM: &str = "echo \"$ATOLL_RUN\"; exec cat";
const UNUSED: &str = "the session's sandbox cannot be used";

/// The sandbox of a session.
pub(super) struct Living {
    state: StateDir,
    /// The directory of its files: `lock`, held while a command begins or ends; `users`, shared by the
    /// commands that run; `run`, the run; `pipe`, its standard input; `said`, what it said.
    place: PathBuf,
    name: String,
}

/// A command that has ended.
pub(super) struct Ran {
    pub(super) run: RunId,
    pub(super) status: u8,
}

/// A place in the sandbox.
struct Seat {
    run: RunId,
    /// Locked while it is taken.
    users: File,
    /// While anyone has it open, the sandbox goes on.
    pipe: File,
}

impl Living {
    pub(super) fn of(engine: &Engine, agent: HookAgent, session: &str) -> Result<Self, Failure> {
        let name = format!("{}-{session}", agent.name());
        let place = engine.state().join("hooks").join(&name);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&place);
        made.doing(UNUSED)?;
        let state = Places::read()?.open_state()?;
        Ok(Self { state, place, name })
    }

    /// Runs a command, on this process's streams, to its end.
    pub(super) fn run(
        &self,
        workspace: &Path,
        directory: &Path,
        command: &str,
        output: &Output,
    ) -> Result<Ran, Failure> {
        let shell = match Path::new("/bin/bash").exists() {
            true => "bash",
            false => "sh",
        };
        let seat = self.enter(workspace, output)?;
        let arguments = ExecArguments {
            run: seat.run.to_string(),
            directory: Some(directory.into()),
            no_tty: true,
            command: [shell, "-c", command].map(OsString::from).to_vec(),
            ..ExecArguments::default()
        };
        let status = exec(&arguments, output);
        let run = self.leave(seat)?;
        status.map(|status| Ran { run, status })
    }

    /// Takes a place in the sandbox; begins one if none goes on.
    fn enter(&self, workspace: &Path, output: &Output) -> Result<Seat, Failure> {
        let _alone = self.locked("lock", FlockOperation::LockExclusive)?;
        let users = self.locked("users", FlockOperation::LockShared)?;
        let noted = self.place.join("run");
        let earlier = fs::read_to_string(&noted).ok();
        let earlier = earlier.and_then(|run| RunId::parse(&run).ok());
        let earlier = earlier.and_then(|run| settle_run(&self.state, &run).ok());
        if let Some(earlier) = &earlier
            && earlier.state == RunState::Running
        {
            let pipe = self.opened(OFlags::WRONLY | OFlags::NONBLOCK)?;
            let run = earlier.run.clone();
            return Ok(Seat { run, users, pipe });
        }
        let goes_on = |one: &RunRecord| {
            let is_kept = matches!(one.state, RunState::Kept | RunState::Interrupted);
            is_kept && one.mode == WorkspaceMode::CopyOnWrite
        };
        let earlier = earlier.filter(goes_on).map(|one| one.run);
        let (run, pipe) = self.begun(workspace, earlier.as_ref())?;
        fs::write(&noted, run.as_str()).doing(UNUSED)?;
        if earlier.is_none() {
            output.say(&format!(
                "Commands run in a sandbox. Review their changes with `atoll diff {run}`.\n"
            ));
        }
        Ok(Seat { run, users, pipe })
    }

    /// Gives a place up. The last one waits for the end of the sandbox.
    fn leave(&self, seat: Seat) -> Result<RunId, Failure> {
        let _alone = self.locked("lock", FlockOperation::LockExclusive)?;
        drop(seat.pipe);
        let is_last = flock(&seat.users, FlockOperation::NonBlockingLockExclusive).is_ok();
        let until = Instant::now() + ENDS_WITHIN;
        let goes_on = |record: RunRecord| record.state == RunState::Running;
        while is_last
            && Instant::now() < until
            && settle_run(&self.state, &seat.run).is_ok_and(goes_on)
        {
            thread::sleep(PAUSE);
        }
        Ok(seat.run)
    }

    /// Begins a sandbox, with the changes of an earlier one; returns its run, and its input.
    fn begun(&self, workspace: &Path, earlier: Option<&RunId>) -> Result<(RunId, File), Failure> {
        let pipe = self.place.join("pipe");
        let _ = fs::remove_file(&pipe);
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).doing(UNUSED)?;
        let input = self.opened(OFlags::RDONLY | OFlags::NONBLOCK)?;
        let held = self.opened(OFlags::WRONLY)?;
        fcntl_setfl(&input, OFlags::empty()).doing(UNUSED)?;
        let said = self.place.join("said");
        let mut command = Command::new(own::path()?);
        command.args([
            "run",
            "--keep",
            "--quiet",
            "--no-tty",
            "--session",
            &self.name,
        ]);
        match earlier {
            Some(run) => command.args(["--resume", run.as_str()]),
            None => command.arg("--workspace").arg(workspace),
        };
        let command = command
            .args(["--", "sh", "-c", PROGRAM])
            .current_dir(workspace)
            // A signal for the command's group is not for the sandbox.
            .process_group(0)
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(File::create(&said).doing(UNUSED)?);
        let mut child = command.spawn().doing(UNUSED)?;
        let mut line = String::new();
        if let Some(from) = child.stdout.take() {
            let read = BufReader::new(from.take(SAID_BYTES_MAX)).read_line(&mut line);
            read.doing(UNUSED)?;
        }
        RunId::parse(line.trim())
            .map(|run| (run, held))
            .map_err(|_| {
                let _ = child.wait();
                let said = fs::read(&said).unwrap_or_default();
                Failure::new(UNUSED).because(printable_lines(&said).trim())
            })
    }

    fn opened(&self, flags: OFlags) -> Result<File, Failure> {
        let opened = open(
            self.place.join("pipe"),
            flags | OFlags::CLOEXEC,
            Mode::empty(),
        );
        opened.map(File::from).doing(UNUSED)
    }

    fn locked(&self, name: &str, how: FlockOperation) -> Result<File, Failure> {
        let file = File::create(self.place.join(name)).doing(UNUSED)?;
        flock(&file, how).doing(UNUSED)?;
        Ok(file)
    }
}
