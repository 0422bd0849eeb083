use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::canary::Canaries;
use crate::processes::{end, kill};
use crate::waiting::{BOUND, wait_until};
use crate::{Outcome, Terminal};

/// A program to start, with an environment of which every variable is known.
#[derive(Debug, Clone)]
#[must_use]
pub struct Invocation {
    command: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    directory: PathBuf,
    input: Option<Vec<u8>>,
    bound: Duration,
    canaries: Option<Canaries>,
}

/// The words in front of a program of root that must not make user namespaces.
pub(crate) const IN_A_CHANGED_ROOT: [&str; 8] = [
    "unshare",
    "--mount",
    "--propagation",
    "private",
    "sh",
    "-c",
    "mount --rbind / /mnt && exec /usr/sbin/chroot /mnt \
     sh -c 'cd \"$0\" && exec \"$@\"' \"$PWD\" \"$@\"",
    "sh",
];

impl Invocation {
    pub(crate) fn new(
        command: Vec<OsString>,
        environment: Vec<(OsString, OsString)>,
        directory: PathBuf,
        canaries: Canaries,
    ) -> Self {
        Self {
            command,
            environment,
            directory,
            input: None,
            bound: BOUND,
            canaries: Some(canaries),
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.command
            .extend(arguments.into_iter().map(|one| one.as_ref().to_owned()));
        self
    }

    /// Sets a variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self = self.without_env(name.as_ref());
        self.environment
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Removes a variable.
    pub fn without_env(mut self, name: impl AsRef<OsStr>) -> Self {
        self.environment.retain(|(known, _)| known != name.as_ref());
        self
    }

    /// Sets the working directory; the workspace by default.
    pub fn dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = directory.as_ref().to_path_buf();
        self
    }

    /// Sets the standard input; empty by default.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// Sets the longest time that it may take; the harness's bound by default.
    pub fn within(mut self, bound: Duration) -> Self {
        self.bound = bound.max(BOUND);
        self
    }

    /// Allows canaries in its output: it is the control.
    pub fn control(mut self) -> Self {
        self.canaries = None;
        self
    }

    /// Puts other programs in front, as `["setsid", "-c"]`.
    pub fn under<S: AsRef<OsStr>>(mut self, front: impl IntoIterator<Item = S>) -> Self {
        let mut command: Vec<OsString> = front
            .into_iter()
            .map(|one| one.as_ref().to_owned())
            .collect();
        command.append(&mut self.command);
        self.command = command;
        self
    }

    /// Forbids it user namespaces, as hardened hosts do: it runs in a namespace whose own limit is
    /// 0. For ordinary users; the host's settings stay as they are.
    pub fn without_namespaces(self) -> Self {
        let forbid = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv \
                      --inh-caps=-all --ambient-caps=-all --bounding-set=-all \"$@\"";
        let own = ["unshare", "--user", "--map-current-user", "--keep-caps"];
        self.under(own.into_iter().chain(["sh", "-c", forbid, "sh"]))
    }

    /// Forbids root user namespaces: in a changed root directory the kernel makes none,
    /// and gives everything else. The host's settings stay as they are.
    pub fn without_user_namespaces(self) -> Self {
        self.under(IN_A_CHANGED_ROOT)
    }

    /// Starts it and waits for its end.
    ///
    /// # Panics
    /// When it cannot be started, or does not end within its bound.
    pub fn run(self) -> Outcome {
        let close = self.input.is_none();
        let mut running = self.start();
        if close {
            running.close_stdin();
        }
        running.wait()
    }

    /// Starts it. Input given before is written and closed; otherwise [`Running::send`] writes.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(self) -> Running {
        let mut command = self.as_command();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|why| panic!("{:?}: {why}", self.command));
        let stdout = Stream::read(child.stdout.take().unwrap());
        let stderr = Stream::read(child.stderr.take().unwrap());
        let mut input = child.stdin.take();
        if let Some(bytes) = self.input {
            let mut to = input.take().unwrap();
            thread::spawn(move || {
                // The program need not read all of it.
                let _ = to.write_all(&bytes);
            });
        }
        Running {
            child,
            input,
            stdout,
            stderr,
            bound: self.bound,
            canaries: self.canaries,
        }
    }

    /// Starts it on a terminal of its own, which controls it.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn on_terminal(self, rows: u16, columns: u16) -> Terminal {
        let (bound, canaries) = (self.bound, self.canaries.clone());
        Terminal::start(
            self.under(["setsid", "--ctty"]).as_command(),
            rows,
            columns,
            bound,
            canaries,
        )
    }

    fn as_command(&self) -> Command {
        let (program, arguments) = self.command.split_first().unwrap();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.directory);
        command
    }
}

/// A running program, with its output so far.
#[derive(Debug)]
pub struct Running {
    child: Child,
    input: Option<ChildStdin>,
    stdout: Stream,
    stderr: Stream,
    bound: Duration,
    canaries: Option<Canaries>,
}

impl Running {
    /// Returns its process id on the host.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes to its standard input.
    ///
    /// # Panics
    /// When that was closed.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let input = self.input.as_mut().expect("standard input is closed");
        input.write_all(bytes.as_ref()).unwrap();
        input.flush().unwrap();
    }

    /// Returns whether it has read everything written to its standard input.
    ///
    /// # Panics
    /// When that was closed.
    #[must_use]
    pub fn has_taken_all(&self) -> bool {
        let input = self.input.as_ref().expect("standard input is closed");
        rustix::io::ioctl_fionread(input).unwrap() == 0
    }

    /// Closes its standard input.
    pub fn close_stdin(&mut self) {
        self.input = None;
    }

    /// Waits until standard output holds a text; returns all of it so far.
    ///
    /// # Panics
    /// When it does not within the bound.
    pub fn until_stdout(&self, text: &str) -> String {
        self.stdout.until(text, self.bound, &self.stderr)
    }

    /// Waits until standard error holds a text; returns all of it so far.
    ///
    /// # Panics
    /// When it does not within the bound.
    pub fn until_stderr(&self, text: &str) -> String {
        self.stderr.until(text, self.bound, &self.stdout)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        kill(self.pid(), signal);
    }

    /// Returns its status, if it has ended.
    ///
    /// # Panics
    /// When the kernel does not tell.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end and that of everything that holds its output.
    ///
    /// # Panics
    /// When that takes longer than the bound.
    #[must_use]
    pub fn wait(mut self) -> Outcome {
        let end = Instant::now() + self.bound;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() >= end {
                let seen = (self.stdout.text(), self.stderr.text());
                panic!(
                    "did not end within {:?}\n{}\n---\n{}",
                    self.bound, seen.0, seen.1
                );
            }
            thread::sleep(Duration::from_millis(2));
        };
        wait_until("the end of its output", self.bound, || {
            (self.stdout.has_ended() && self.stderr.has_ended()).then_some(())
        });
        Outcome {
            status,
            stdout: self.stdout.bytes(),
            stderr: self.stderr.bytes(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        end(&mut self.child);
        if let Some(canaries) = &self.canaries {
            canaries.wrote("standard output", &self.stdout.bytes());
            canaries.wrote("standard error", &self.stderr.bytes());
        }
    }
}

/// The bytes read from a pipe so far, filled by a thread.
#[derive(Debug, Clone)]
struct Stream {
    shared: Arc<(Mutex<Collected>, Condvar)>,
}

#[derive(Debug, Default)]
struct Collected {
    bytes: Vec<u8>,
    ended: bool,
}

impl Stream {
    fn read(mut from: impl Read + Send + 'static) -> Self {
        let shared = Arc::new((Mutex::new(Collected::default()), Condvar::new()));
        let stream = Self {
            shared: Arc::clone(&shared),
        };
        thread::spawn(move || {
            let mut part = [0; 64 * 1024];
            loop {
                let count = from.read(&mut part).unwrap_or(0);
                let mut collected = shared.0.lock().unwrap();
                collected.bytes.extend_from_slice(&part[..count]);
                collected.ended = count == 0;
                shared.1.notify_all();
                if count == 0 {
                    return;
                }
            }
        });
        stream
    }

    fn until(&self, text: &str, bound: Duration, other: &Self) -> String {
        let end = Instant::now() + bound;
        let mut collected = self.shared.0.lock().unwrap();
        loop {
            let seen = String::from_utf8_lossy(&collected.bytes).into_owned();
            if seen.contains(text) {
                return seen;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || collected.ended {
                drop(collected);
                panic!("waited for {text:?}, saw:\n{seen}\n---\n{}", other.text());
            }
            collected = self.shared.1.wait_timeout(collected, left).unwrap().0;
        }
    }

    fn has_ended(&self) -> bool {
        self.shared.0.lock().unwrap().ended
    }

    fn bytes(&self) -> Vec<u8> {
        self.shared.0.lock().unwrap().bytes.clone()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}
