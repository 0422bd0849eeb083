//! The control socket of a running sandbox: in a directory of the person's own, which no
//! sandbox sees.
//!
//! A caller sends one request and gets one answer, each a line of JSON. The kernel says who
//! calls. Whatever is malformed, too long or too late is refused, and no caller can delay a
//! run.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};
use std::{fmt, fs};

use atoll_model::RunId;
use atoll_sandbox::{Lease, Pending, Size, Who};
use atoll_sys::socket;
use rustix::fs::{AtFlags, Mode};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred, connect, socket_with,
};
use serde::{Deserialize, Serialize};

mod exec;
mod others;
mod said;

use atoll_sandbox::{Declined, PortAgreed};
pub(super) use exec::frozen;
pub(crate) use exec::{ExecCaller, Staying, reply};
pub use exec::{ExecConnection, ExecDone, ExecRequest, Frozen, OutputFilter, exec_in, freeze};
pub(crate) use others::{Others, Standing};
pub use others::{Runs, ask_run, ask_until, runs_spoken_to};
pub use said::{Answer, Question, Reloaded, Versions};

/// The version of the protocol.
pub const CONTROL_VERSION: u32 = 1;
/// The longest request, bytes, with the end of its line.
const QUESTION_BYTES_MAX: usize = 4 << 10;
/// The most descriptors with a request: a description and three streams.
const DESCRIPTORS_MAX: usize = 4;
/// The longest answer, bytes; every list in an answer is limited to fit.
const ANSWER_BYTES_MAX: usize = 128 << 10;
/// The most bytes of an answer around its lists.
const ENVELOPE_BYTES: usize = 256;
/// The most callers at once; further ones wait.
const CALLERS_MAX: usize = 8;
/// The most callers at once that are not the run's own user: they take none of its places.
const OTHER_CALLERS_MAX: usize = 4;
/// The most ancestors of a process that are inspected; a process with more is refused.
const ANCESTORS_MAX: usize = 256;
/// The process name of launchers, and of the first process of a sandbox.
const LAUNCHER_NAME: &str = "atoll-jail";
/// The longest time for sending a request.
const QUESTION_PATIENCE: Duration = Duration::from_secs(5);
/// The longest time for an answer: a run answers between other work.
pub(crate) const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

/// A request or an answer as sent.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said<T> {
    v: u32,
    said: T,
}

/// The reason why a run could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens: the run has ended, or has not begun to listen.
    #[error("it cannot be spoken to: it has ended, or began less than a second ago")]
    Gone,
    /// The run did not answer.
    #[error("it did not answer: {0}")]
    Silent(io::Error),
    /// The run is another user's, who would get what is typed.
    #[error("it is a run of the user {0}")]
    Another(u32),
    /// The answer was malformed.
    #[error("what it answered is not understood; is it of another version of Atoll?")]
    Strange,
}

/// The control socket of one run.
pub(crate) struct Control {
    listener: UnixListener,
    /// The socket for persons other than the run's own user.
    others: Option<Others>,
    directory: OwnedFd,
    name: String,
    callers: Vec<Caller>,
}

impl fmt::Debug for Control {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Control").finish_non_exhaustive()
    }
}

/// A connection whose request is not complete.
struct Caller {
    stream: UnixStream,
    who: Who,
    standing: Standing,
    got: Vec<u8>,
    /// The descriptors that came with the request.
    descriptors: Vec<OwnedFd>,
    until: Instant,
}

/// The state of a caller's request.
enum Heard {
    Some,
    Nothing,
    All,
    Wrong(&'static str),
}

impl Control {
    /// Opens the control socket of this run.
    pub(crate) fn open(directory: OwnedFd, run: &RunId) -> io::Result<Self> {
        let name = socket_name(run);
        let listener = listener(&directory, &name)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            others: None,
            directory,
            name,
            callers: Vec::new(),
        })
    }

    /// Also listens for persons other than the run's own user.
    pub(crate) fn hearing(mut self, others: Option<Others>) -> Self {
        self.others = others;
        self
    }

    /// Returns the descriptors that become readable when there is something to do.
    pub(crate) fn waits_on(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let has_room = self.room(Standing::Own) > 0;
        let listener = has_room.then(|| self.listener.as_fd());
        let others = self.others.as_ref();
        let others = others.filter(|_| self.room(Standing::Other) > 0);
        let others = others.map(|others| others.listener.as_fd());
        let callers = self.callers.iter().map(|one| one.stream.as_fd());
        listener.into_iter().chain(others).chain(callers)
    }

    /// Returns the latest time at which there is something to do.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.callers.iter().map(|one| one.until).min()
    }

    /// Returns how many more callers of this standing there can be at once.
    fn room(&self, standing: Standing) -> usize {
        let most = match standing {
            Standing::Own => CALLERS_MAX,
            Standing::Other => OTHER_CALLERS_MAX,
        };
        let callers = self.callers.iter().filter(|one| one.standing == standing);
        most.saturating_sub(callers.count())
    }

    /// Answers complete requests. Returns the callers whose connections stay.
    pub(crate) fn attend(
        &mut self,
        answer: &mut dyn FnMut((Who, Standing), Question) -> Answer,
    ) -> Vec<Staying> {
        while self.room(Standing::Own) > 0 {
            let Ok((stream, _)) = self.listener.accept() else {
                break;
            };
            self.callers.extend(admitted(stream));
        }
        if let Some(others) = &self.others {
            let come = others.come(self.room(Standing::Other));
            self.callers.extend(come);
        }
        let now = Instant::now();
        let mut staying = Vec::new();
        for mut caller in std::mem::take(&mut self.callers) {
            let said = match caller.hear(now) {
                Heard::Some => {
                    self.callers.push(caller);
                    continue;
                }
                Heard::Nothing => continue,
                Heard::All => match read::<Question>(&caller.got) {
                    Some(Question::Exec { rows, columns }) if caller.standing == Standing::Own => {
                        let size = rows.zip(columns);
                        let size = size.map(|(rows, columns)| Size { rows, columns });
                        let Caller {
                            stream,
                            who,
                            descriptors,
                            ..
                        } = caller;
                        match ExecCaller::of(stream, who, size, descriptors) {
                            Ok(exec) => staying.push(Staying::Exec(Box::new(exec))),
                            Err((stream, why)) => reply(&stream, &declined(why)),
                        }
                        continue;
                    }
                    Some(Question::Freeze {}) if caller.standing == Standing::Own => {
                        staying.push(Staying::Freeze(caller.stream));
                        continue;
                    }
                    Some(question) => answer((caller.who, caller.standing), question),
                    None => declined("it is not understood; is it of another version of Atoll?"),
                },
                Heard::Wrong(why) => declined(why),
            };
            reply(&caller.stream, &said);
        }
        staying
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = rustix::fs::unlinkat(&self.directory, self.name.as_str(), AtFlags::empty());
    }
}

fn declined(why: &str) -> Answer {
    Answer::Refused(Declined {
        why: why.to_owned(),
        advice: "ask with the atoll that started the run".to_owned(),
    })
}

impl Caller {
    fn hear(&mut self, now: Instant) -> Heard {
        let mut block = [0; QUESTION_BYTES_MAX];
        loop {
            match socket::receive(self.stream.as_fd(), &mut block) {
                Ok((0, _)) => return Heard::Nothing,
                Ok((got, descriptors)) => {
                    self.got
                        .extend_from_slice(block.get(..got).unwrap_or_default());
                    self.descriptors.extend(descriptors);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return match now >= self.until {
                        true => Heard::Wrong("it came too slowly"),
                        false => Heard::Some,
                    };
                }
                Err(_) => return Heard::Nothing,
            }
            if self.got.len() > QUESTION_BYTES_MAX || self.descriptors.len() > DESCRIPTORS_MAX {
                return Heard::Wrong("it is too long");
            }
            if self.got.ends_with(b"\n") {
                return Heard::All;
            }
        }
    }
}

/// Admits the run's own user and root, from outside any sandbox.
fn admitted(stream: UnixStream) -> Option<Caller> {
    let peer = socket_peercred(&stream).ok()?;
    let is_own = peer.uid == rustix::process::geteuid() || peer.uid.is_root();
    // This very process asks of what it serves.
    let is_this = peer.pid == rustix::process::getpid();
    match is_own && (is_this || is_outside(&peer)) {
        true => caller(stream, &peer, Standing::Own),
        false => None,
    }
}

fn caller(stream: UnixStream, peer: &UCred, standing: Standing) -> Option<Caller> {
    stream.set_nonblocking(true).ok()?;
    let who = Who {
        uid: peer.uid.as_raw(),
        pid: u32::try_from(peer.pid.as_raw_nonzero().get()).ok()?,
    };
    Some(Caller {
        stream,
        who,
        standing,
        got: Vec::new(),
        descriptors: Vec::new(),
        until: Instant::now() + QUESTION_PATIENCE,
    })
}

/// Returns whether a process is outside this user's sandboxes, in which the ids are the same: a
/// process in a PID namespace below this one has one more number (proc_pid_status(5)).
fn is_outside(peer: &UCred) -> bool {
    let numbers = |pid: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("NSpid:"))?;
        Some(line.split_ascii_whitespace().count())
    };
    let theirs = numbers(&peer.pid.as_raw_nonzero().to_string());
    theirs.is_some() && theirs == numbers("self") && is_nobodys(peer.pid.as_raw_nonzero().get())
}

/// Returns whether a process is a descendant neither of this process nor of another sandbox's
/// launcher: a sandbox without namespaces has the same ids. No process can choose its
/// ancestors.
fn is_nobodys(mut pid: i32) -> bool {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    for above in 0..ANCESTORS_MAX {
        if pid == own && above > 0 {
            return false;
        }
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            return false;
        };
        // The name can hold anything: it ends with the last bracket (proc_pid_stat(5)).
        let Some((before, after)) = stat.rsplit_once(')') else {
            return false;
        };
        let is_launcher = before
            .split_once('(')
            .is_none_or(|(_, name)| name == LAUNCHER_NAME);
        let above = after.split_ascii_whitespace().nth(1);
        if is_launcher {
            return false;
        }
        match above.and_then(|above| above.parse().ok()) {
            None => return false,
            Some(0) => return true,
            Some(above) => pid = above,
        }
    }
    false
}

/// Creates a socket that already listens when it gets its name: a caller refused there would
/// take it for the leftover of a dead run, and remove it.
fn listener(directory: &OwnedFd, name: &str) -> io::Result<UnixListener> {
    let unnamed = format!("{name}.new");
    let _ = rustix::fs::unlinkat(directory, unnamed.as_str(), AtFlags::empty());
    let listener = UnixListener::bind(place(directory, &unnamed))?;
    // The directory keeps others out as well.
    let mode = Mode::RUSR | Mode::WUSR;
    let named = rustix::fs::chmodat(directory, unnamed.as_str(), mode, AtFlags::empty())
        .and_then(|()| rustix::fs::renameat(directory, unnamed.as_str(), directory, name));
    if let Err(error) = named {
        let _ = rustix::fs::unlinkat(directory, unnamed.as_str(), AtFlags::empty());
        return Err(error.into());
    }
    Ok(listener)
}

/// Returns a path to the socket by way of the open directory: the full path may be longer than
/// an address.
fn place(directory: &OwnedFd, name: &str) -> String {
    format!("/proc/self/fd/{}/{name}", directory.as_raw_fd())
}

fn socket_name(run: &RunId) -> String {
    format!("{run}.sock")
}

fn is_none(number: &u32) -> bool {
    *number == 0
}

fn json_bytes(one: &impl Serialize) -> usize {
    serde_json::to_vec(one).map_or(usize::MAX, |text| text.len())
}

/// Builds the answer about requests and leases. Of the leases, the most recent ones that fit.
pub(crate) fn approvals(
    pending: Vec<Pending>,
    mut leases: Vec<Lease>,
    port: Option<PortAgreed>,
) -> Answer {
    // With what is around them: the version and the names.
    let mut left = ANSWER_BYTES_MAX
        .saturating_sub(ENVELOPE_BYTES)
        .saturating_sub(json_bytes(&pending));
    let fits = |lease: &&Lease| {
        let taken = json_bytes(lease).saturating_add(1);
        let rest = left.checked_sub(taken);
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    let fitting = leases.iter().rev().take_while(fits).count();
    let further = leases.len().saturating_sub(fitting);
    leases.drain(..further);
    Answer::Approvals {
        pending,
        leases,
        further: u32::try_from(further).unwrap_or(u32::MAX),
        port,
    }
}

fn written(said: &impl Serialize) -> Option<Vec<u8>> {
    let v = CONTROL_VERSION;
    let mut line = serde_json::to_vec(&Said { v, said }).ok()?;
    line.push(b'\n');
    Some(line)
}

fn read<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Option<T> {
    let said: Said<T> = serde_json::from_slice(line).ok()?;
    (said.v == CONTROL_VERSION).then_some(said.said)
}

/// Asks a running sandbox. The directory is that of all control sockets.
///
/// # Errors
/// [`ControlError`]: there was no answer. The socket of a run that is gone is removed.
pub(crate) fn ask(
    directory: &OwnedFd,
    run: &RunId,
    question: &Question,
    until: Instant,
) -> Result<Answer, ControlError> {
    exchange(connected_to(directory, run)?, question, until)
}

/// Connects to a running sandbox. The socket of a run that is gone is removed.
pub(crate) fn connected_to(directory: &OwnedFd, run: &RunId) -> Result<UnixStream, ControlError> {
    let name = socket_name(run);
    connected(&place(directory, &name)).map_err(|error| {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            let _ = rustix::fs::unlinkat(directory, name.as_str(), AtFlags::empty());
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => ControlError::Gone,
            _ => ControlError::Silent(error),
        }
    })
}

/// Connects without waiting: a run that takes no more callers, being suspended for example, is
/// not waited for.
fn connected(place: &str) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(place)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn exchange(
    mut stream: UnixStream,
    question: &Question,
    until: Instant,
) -> Result<Answer, ControlError> {
    let left = || {
        let left = until.checked_duration_since(Instant::now());
        left.filter(|left| !left.is_zero())
            .ok_or(io::ErrorKind::TimedOut)
    };
    let mut exchange = || -> io::Result<Vec<u8>> {
        stream.set_write_timeout(Some(left()?))?;
        let question = written(question).ok_or(io::ErrorKind::InvalidInput)?;
        stream.write_all(&question)?;
        let mut answer = Vec::new();
        let mut block = [0; QUESTION_BYTES_MAX];
        while answer.len() < ANSWER_BYTES_MAX {
            stream.set_read_timeout(Some(left()?))?;
            match stream.read(&mut block) {
                Ok(0) => break,
                Ok(got) => answer.extend_from_slice(block.get(..got).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(answer)
    };
    let answer = exchange().map_err(ControlError::Silent)?;
    if answer.is_empty() {
        return Err(ControlError::Gone);
    }
    read(&answer).ok_or(ControlError::Strange)
}

/// Returns the runs that have a socket there, including those that are gone by now; the newest
/// first.
///
/// # Errors
/// If the directory cannot be read.
pub(crate) fn spoken_to(directory: &OwnedFd) -> io::Result<Vec<RunId>> {
    let mut runs = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_str().ok();
        let run = name.and_then(|name| name.strip_suffix(".sock"));
        runs.extend(run.and_then(|run| RunId::parse(run).ok()));
    }
    runs.sort_unstable_by(|left: &RunId, right| right.cmp(left));
    Ok(runs)
}

#[cfg(test)]
mod tests;
