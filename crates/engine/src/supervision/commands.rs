//! Credential commands: run on the host as the owner of the credential when a request needs it.
//!
//! Their output goes through a pipe to the egress process only: this process, which starts
//! them, never has it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use atoll_model::network::{CommandEnd, CredentialName};
use atoll_sys::{descriptor, process};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::supervision::errand::{
    Writers, WrittenInside, argument_inside, environment_outside, program_outside,
};

/// The shortest time between two starts of the same credential's command. The egress process
/// waits longer than that anyway.
const PAUSE: Duration = Duration::from_millis(200);

/// The longest wait for killed commands at the end, all together. A command that cannot be
/// killed (it has become another user) is left alone.
const FAREWELL: Duration = Duration::from_millis(500);
const FAREWELL_PAUSE: Duration = Duration::from_millis(2);

const SIGKILL: i32 = 9;

/// The description of the caller for credential plugins of Kubernetes clients
/// (client.authentication.k8s.io/v1, `ExecCredential`).
const EXEC_INFO: (&str, &str) = (
    "KUBERNETES_EXEC_INFO",
    r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}"#,
);

/// A command that prints a credential.
#[derive(Clone, Debug)]
pub struct CredentialCommand {
    /// The program: an absolute path without symbolic links.
    pub program: PathBuf,
    /// Its name as called (argv 0): one program can be many, by their names.
    pub name: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The longest time it may take.
    pub patience: Duration,
    /// The paths that no code may come from, as they were when the run began.
    pub written: WrittenInside,
    /// The source of the paths written since then.
    pub writers: Writers,
}

impl CredentialCommand {
    /// Checks the program again, and returns it with the paths written by now: other runs may
    /// have begun since the first check. To be called right before it is executed, as a script
    /// is found by its path.
    fn fit(&self) -> io::Result<(PathBuf, WrittenInside)> {
        let unfit = || io::Error::from(Errno::ACCESS);
        let written = self.writers.written().map_err(|_| unfit())?;
        let written = written.and(&self.written);
        let program = program_outside(&self.program, &written).map_err(|_| unfit())?;
        let home = std::env::var_os("HOME").unwrap_or_default();
        let arguments = self.arguments.iter().map(OsStr::new);
        match argument_inside(arguments, &written, Path::new(&home)) {
            None => Ok((program, written)),
            Some(_) => Err(unfit()),
        }
    }
}

/// The commands that run.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    running: Vec<Running>,
    begun: Vec<(CredentialName, Instant)>,
}

#[derive(Debug)]
struct Running {
    id: u64,
    credential: CredentialName,
    child: Child,
    /// A pidfd, readable when the command has ended.
    ends: OwnedFd,
    until: Instant,
    /// True if it was reported as late, before it ended.
    is_late: bool,
}

impl Running {
    /// Kills it and its process group; it may have left that itself.
    fn kill(&self) {
        // It is not waited for yet, so that its number is nobody else's.
        let _ = process::signal_group(self.child.id(), SIGKILL);
        let _ = process::signal(self.ends.as_fd(), SIGKILL);
    }

    fn is_gone(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        self.running.retain_mut(|one| !one.is_gone());
        self.running.iter().for_each(Running::kill);
        let until = Instant::now() + FAREWELL;
        loop {
            self.running.retain_mut(|one| !one.is_gone());
            if self.running.is_empty() || Instant::now() >= until {
                return;
            }
            std::thread::sleep(FAREWELL_PAUSE);
        }
    }
}

impl Commands {
    /// Starts a command. Returns the read ends of its output and its error output.
    pub(crate) fn begin(
        &mut self,
        id: u64,
        credential: &CredentialName,
        command: &CredentialCommand,
    ) -> Result<[OwnedFd; 2], CommandEnd> {
        let now = Instant::now();
        self.running
            .retain_mut(|one| one.credential != *credential || !one.is_gone());
        if let Some(one) = self
            .running
            .iter()
            .find(|one| one.credential == *credential)
        {
            // Nobody waits for what it prints any more; another one starts after it.
            one.kill();
            return Err(unstarted(&Errno::ALREADY.into()));
        }
        self.begun.retain(|(_, at)| now < *at + PAUSE);
        if self.begun.iter().any(|(name, _)| name == credential) {
            return Err(unstarted(&io::ErrorKind::WouldBlock.into()));
        }
        self.begun.push((credential.clone(), now));
        let (child, ends, outputs) = start(command).map_err(|error| unstarted(&error))?;
        self.running.push(Running {
            id,
            credential: credential.clone(),
            child,
            ends,
            until: now + command.patience,
            is_late: false,
        });
        Ok(outputs)
    }

    /// Returns the descriptors that become readable when there is something to do.
    pub(crate) fn waits_on(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.running.iter().map(|one| one.ends.as_fd())
    }

    /// Returns the latest time at which there is something to do.
    pub(crate) fn due(&self) -> Option<Instant> {
        let waited = self.running.iter().filter(|one| !one.is_late);
        waited.map(|one| one.until).min()
    }

    /// Kills commands that take too long, and returns those that have ended, with how: one that
    /// takes too long at once, whether or not it can be killed.
    pub(crate) fn ended(&mut self) -> Vec<(u64, CommandEnd)> {
        let now = Instant::now();
        let mut ended = Vec::new();
        self.running.retain_mut(|one| {
            let end = match one.child.try_wait() {
                Ok(None) if !one.is_late && one.until <= now => {
                    one.is_late = true;
                    one.kill();
                    ended.push((one.id, CommandEnd::Late));
                    return true;
                }
                Ok(None) => return true,
                Ok(Some(status)) => end_of(status),
                Err(error) => unstarted(&error),
            };
            if !one.is_late {
                ended.push((one.id, end));
            }
            false
        });
        ended
    }
}

fn unstarted(error: &io::Error) -> CommandEnd {
    CommandEnd::Unstarted(error.raw_os_error().unwrap_or_default())
}

fn end_of(status: ExitStatus) -> CommandEnd {
    let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    match (status.code(), status.signal()) {
        (Some(code), _) => CommandEnd::Exited(byte(code)),
        (None, signal) => CommandEnd::Signalled(byte(signal.unwrap_or_default())),
    }
}

/// Starts a command in a process group of its own, in `/`, with nothing of a sandbox or a
/// workspace. Its environment is the person's, without credentials, which were removed before,
/// and without variables that lead into the workspace.
fn start(command: &CredentialCommand) -> io::Result<(Child, OwnedFd, [OwnedFd; 2])> {
    let (output, to_output) = pipe_with(PipeFlags::CLOEXEC)?;
    let (errors, to_errors) = pipe_with(PipeFlags::CLOEXEC)?;
    for read in [&output, &errors] {
        descriptor::never_block(read.as_fd())?;
    }
    let (program, written) = command.fit()?;
    let mut child = std::process::Command::new(program)
        .arg0(&command.name)
        .args(&command.arguments)
        .env_clear()
        .envs(environment_outside(&written))
        .env(EXEC_INFO.0, EXEC_INFO.1)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(to_output)
        .stderr(to_errors)
        .process_group(0)
        .spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let opened = pid
        .ok_or(io::ErrorKind::NotFound.into())
        .and_then(|pid| Ok(pidfd_open(pid, PidfdFlags::empty())?));
    match opened {
        Ok(ends) => Ok((child, ends, [output, errors])),
        Err(error) => {
            let _ = process::signal_group(child.id(), SIGKILL);
            let _ = child.wait();
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn none(_state: &Path) -> Result<Vec<PathBuf>, String> {
        Ok(Vec::new())
    }

    /// Lists the paths in a directory's file `list`, as records would.
    fn listed(state: &Path) -> Result<Vec<PathBuf>, String> {
        let list = std::fs::read_to_string(state.join("list")).map_err(|error| error.to_string());
        Ok(list?.lines().map(PathBuf::from).collect())
    }

    fn shell(script: &str, patience: Duration) -> CredentialCommand {
        CredentialCommand {
            program: "/bin/sh".into(),
            name: "sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            patience,
            written: WrittenInside::default(),
            writers: Writers::new(None, Path::new("/nowhere/state"), none),
        }
    }

    fn name() -> CredentialName {
        "one".parse().unwrap()
    }

    /// Waits for the end of a command.
    fn ended(commands: &mut Commands) -> (u64, CommandEnd) {
        for _ in 0..3000 {
            if let Some(ended) = commands.ended().pop() {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not end");
    }

    /// Reads all the output, to its end.
    fn all(from: &OwnedFd) -> String {
        let mut file = std::fs::File::from(from.try_clone().unwrap());
        let (mut text, mut block) = (Vec::new(), [0; 4096]);
        loop {
            match file.read(&mut block) {
                Ok(0) => return String::from_utf8(text).unwrap(),
                Ok(got) => text.extend_from_slice(&block[..got]),
                // What is ended takes a moment to be gone.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn a_command_runs_alone_where_nothing_is_its_callers() {
        let script = "pwd; readlink /proc/self/fd/0; ls /proc/self/fd | tr '\\n' ' '; \
                      echo $KUBERNETES_EXEC_INFO; echo said >&2; exit 7";
        let mut commands = Commands::default();
        let command = shell(script, Duration::from_secs(60));
        let [output, errors] = commands.begin(3, &name(), &command).unwrap();
        assert_eq!(ended(&mut commands), (3, CommandEnd::Exited(7)));
        let said = all(&output);
        assert!(said.starts_with("/\n/dev/null\n0 1 "), "{said}");
        assert!(said.contains("ExecCredential"), "{said}");
        assert_eq!(all(&errors), "said\n");
        assert!(commands.due().is_none() && commands.waits_on().next().is_none());
    }

    #[test]
    fn what_another_run_has_come_to_write_meanwhile_does_not_run() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let tools = top.join("tools");
        std::fs::create_dir(&tools).unwrap();
        let program = tools.join("tool");
        std::fs::write(&program, "#!/bin/sh\necho ran\n").unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let mut commands = Commands::default();
        // Each has a command of its own: one is not begun again at once.
        let state = top.join("state");
        std::fs::create_dir(&state).unwrap();
        let mut begin = |name: &str, program: &Path, argument: &str| {
            let command = CredentialCommand {
                program: program.to_owned(),
                name: program.to_owned(),
                arguments: vec![argument.to_owned()],
                writers: Writers::new(None, &state, listed),
                ..shell("", Duration::from_secs(60))
            };
            commands
                .begin(1, &name.parse().unwrap(), &command)
                .map(drop)
        };
        let refused = Err(CommandEnd::Unstarted(Errno::ACCESS.raw_os_error()));
        let (sh, script) = (Path::new("/bin/sh"), program.to_str().unwrap());
        // The control, where nobody inside writes.
        let list = state.join("list");
        std::fs::write(&list, "/elsewhere\n").unwrap();
        assert_eq!(begin("a", &program, "x"), Ok(()));
        assert_eq!(begin("b", sh, script), Ok(()));
        std::fs::write(&list, format!("/elsewhere\n{}\n", tools.display())).unwrap();
        assert_eq!(begin("c", &program, "x"), refused);
        assert_eq!(begin("d", sh, script), refused);
        // Where nobody knows which runs there are, either.
        std::fs::remove_file(&list).unwrap();
        assert_eq!(begin("e", &program, "x"), refused);
    }

    #[test]
    fn one_that_takes_too_long_ends_with_all_that_it_has_started() {
        let mut commands = Commands::default();
        let command = shell("sleep 600 & echo $!; sleep 600", Duration::from_millis(300));
        let [output, _errors] = commands.begin(1, &name(), &command).unwrap();
        assert!(commands.due().is_some());
        assert_eq!(ended(&mut commands), (1, CommandEnd::Late));
        // The pipe has no other end any more.
        let started = all(&output);
        assert!(started.trim().parse::<u32>().is_ok(), "{started}");
        let missing = CredentialCommand {
            program: "/nowhere/at-all".into(),
            ..command
        };
        gone(&mut commands);
        std::thread::sleep(PAUSE);
        let end = commands.begin(2, &name(), &missing).unwrap_err();
        assert_eq!(end, CommandEnd::Unstarted(2));
        // Nor is it started again at once, whoever asks.
        let end = commands.begin(3, &name(), &missing).unwrap_err();
        assert_eq!(end, CommandEnd::Unstarted(0));
    }

    /// Waits until no command is left, late ones included.
    fn gone(commands: &mut Commands) {
        for _ in 0..3000 {
            assert_eq!(commands.ended(), []);
            if commands.running.is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("one is left");
    }

    /// A script that leaves its process group, as a shell's child, with python3.
    const LEAVES: &str = "exec python3 -c 'import os, time\n\
                          os.setpgid(0, os.getpgid(os.getppid()))\n\
                          print(\"left\", flush=True)\ntime.sleep(600)'";

    #[test]
    fn one_that_has_left_its_group_is_ended_too_and_not_started_twice() {
        let mut commands = Commands::default();
        let command = shell(LEAVES, Duration::from_secs(600));
        let [output, _errors] = commands.begin(1, &name(), &command).unwrap();
        let mut said = [0; 5];
        for _ in 0..3000 {
            if rustix::io::read(&output, &mut said).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(said, *b"left\n");
        // It is refused beside the one that runs, which is ended.
        let end = commands.begin(2, &name(), &command).unwrap_err();
        assert_eq!(end, unstarted(&Errno::ALREADY.into()));
        assert_eq!(ended(&mut commands), (1, CommandEnd::Signalled(9)));
        std::thread::sleep(PAUSE);
        // Whoever ends everything does not wait for its ten minutes.
        let [output, _errors] = commands.begin(3, &name(), &command).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        drop(commands);
        assert!(["", "left\n"].contains(&all(&output).as_str()));
    }

    #[test]
    fn what_still_runs_ends_with_the_run() {
        let mut commands = Commands::default();
        let command = shell("sleep 600", Duration::from_secs(600));
        let [output, _errors] = commands.begin(1, &name(), &command).unwrap();
        drop(commands);
        assert_eq!(all(&output), "");
    }
}
