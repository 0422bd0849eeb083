//! Where a run can be spoken to while it goes on: a socket in a directory of the person's own,
//! which no sandbox is shown.
//!
//! A caller sends one question and gets one answer, each a line of JSON. Who calls is told by
//! the kernel. Whatever is not understood, too long or too late is refused, and nobody who
//! calls can hold a run up.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use atoll_model::RunId;
use rustix::fs::{AtFlags, Mode};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred, connect, socket_with,
};
use serde::{Deserialize, Serialize};

use crate::approvals::{Lease, Pending, Who};

mod others;
mod said;

pub(crate) use others::{Others, Standing};
pub use others::{Runs, ask_run, ask_until, runs_spoken_to};
pub use said::{Answer, Declined, PortAgreed, Question, Reloaded, Versions};

/// The version of what is said.
pub const CONTROL_VERSION: u32 = 1;
/// The longest question, bytes, with the end of its line.
const QUESTION_BYTES_MAX: usize = 4 << 10;
/// The longest answer, bytes: what is told of has an end, and this is beyond it.
const ANSWER_BYTES_MAX: usize = 128 << 10;
/// What an answer has around what it tells, bytes at most.
const ENVELOPE_BYTES: usize = 256;
/// How many call at once; further ones wait.
const CALLERS_MAX: usize = 8;
/// The same of persons other than the run's own: they take none of its places.
const OTHER_CALLERS_MAX: usize = 4;
/// How many processes are above one at most: more are looked at by nobody.
const ANCESTORS_MAX: usize = 256;
/// What a launcher, and the first process of a sandbox, is called.
const LAUNCHER_NAME: &str = "atoll-jail";
/// How long a caller may take over its question.
const QUESTION_PATIENCE: Duration = Duration::from_secs(5);
/// How long a run may take over its answer: it answers between other things.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

/// Either of them as it is sent.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said<T> {
    v: u32,
    said: T,
}

/// Why a run could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody is there: it has ended, or has not begun to listen.
    #[error("it cannot be spoken to: it has ended, or began less than a second ago")]
    Gone,
    /// It did not answer.
    #[error("it did not answer: {0}")]
    Silent(io::Error),
    /// It said something else than an answer.
    #[error("what it answered is not understood; is it of another version of Atoll?")]
    Strange,
}

/// The socket of one run.
pub(crate) struct Control {
    listener: UnixListener,
    /// For persons other than the run's own.
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

/// Somebody who has not asked all of a question yet.
struct Caller {
    stream: UnixStream,
    who: Who,
    standing: Standing,
    got: Vec<u8>,
    until: Instant,
}

/// What becomes of a caller.
enum Heard {
    Some,
    Nothing,
    All,
    Wrong(&'static str),
}

impl Control {
    /// Listens for who speaks to this run.
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

    /// Listens also for others besides the run's own user.
    pub(crate) fn hearing(mut self, others: Option<Others>) -> Self {
        self.others = others;
        self
    }

    /// What becomes readable when there is something to do.
    pub(crate) fn waits_on(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let has_room = self.room(Standing::Own) > 0;
        let listener = has_room.then(|| self.listener.as_fd());
        let others = self.others.as_ref();
        let others = others.filter(|_| self.room(Standing::Other) > 0);
        let others = others.map(|others| others.listener.as_fd());
        let callers = self.callers.iter().map(|one| one.stream.as_fd());
        listener.into_iter().chain(others).chain(callers)
    }

    /// When there is something to do at the latest.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.callers.iter().map(|one| one.until).min()
    }

    /// How many more can call as these at once.
    fn room(&self, standing: Standing) -> usize {
        let most = match standing {
            Standing::Own => CALLERS_MAX,
            Standing::Other => OTHER_CALLERS_MAX,
        };
        let callers = self.callers.iter().filter(|one| one.standing == standing);
        most.saturating_sub(callers.count())
    }

    /// Answers who has asked.
    pub(crate) fn attend(&mut self, answer: &mut dyn FnMut((Who, Standing), Question) -> Answer) {
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
        self.callers.retain_mut(|caller| {
            let said = match caller.hear(now) {
                Heard::Some => return true,
                Heard::Nothing => return false,
                Heard::All => match read::<Question>(&caller.got) {
                    Some(question) => answer((caller.who, caller.standing), question),
                    None => declined("it is not understood; is it of another version of Atoll?"),
                },
                Heard::Wrong(why) => declined(why),
            };
            caller.answer(&said);
            false
        });
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
            match self.stream.read(&mut block) {
                Ok(0) => return Heard::Nothing,
                Ok(got) => self
                    .got
                    .extend_from_slice(block.get(..got).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return match now >= self.until {
                        true => Heard::Wrong("it came too slowly"),
                        false => Heard::Some,
                    };
                }
                Err(_) => return Heard::Nothing,
            }
            if self.got.len() > QUESTION_BYTES_MAX {
                return Heard::Wrong("it is too long");
            }
            if self.got.ends_with(b"\n") {
                return Heard::All;
            }
        }
    }

    /// An answer that fits goes into what the kernel holds of a socket; who does not take it has none.
    fn answer(&mut self, answer: &Answer) {
        if let Some(line) = written(answer).filter(|line| line.len() <= ANSWER_BYTES_MAX) {
            let _ = self.stream.write_all(&line);
        }
    }
}

/// Whoever may speak to the run: its own user, and root, from outside of sandboxes.
fn admitted(stream: UnixStream) -> Option<Caller> {
    let peer = socket_peercred(&stream).ok()?;
    let is_own = peer.uid == rustix::process::geteuid() || peer.uid.is_root();
    match is_own && is_outside(&peer) {
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
        until: Instant::now() + QUESTION_PATIENCE,
    })
}

/// Whether a process is in none of the sandboxes of this user, whose ids are the same there:
/// in another process namespace below this one it has a further number (proc_pid_status(5)).
fn is_outside(peer: &UCred) -> bool {
    let numbers = |pid: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("NSpid:"))?;
        Some(line.split_ascii_whitespace().count())
    };
    let theirs = numbers(&peer.pid.as_raw_nonzero().to_string());
    theirs.is_some() && theirs == numbers("self") && is_nobodys(peer.pid.as_raw_nonzero().get())
}

/// Whether a process is beneath none of Atoll's own here, nor beneath the launcher of another
/// sandbox: one without namespaces has the same ids. Nobody can choose what is above them.
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

/// A socket that already listens when it gets its name: whoever was refused there would take it
/// for one that a dead run has left, and remove it.
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

/// Sockets are found through the open directory: a path to it may be longer than an address.
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

/// What waits and what was granted, in an answer that is sent: of the leases those granted last
/// that there is room for.
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

/// Asks a run that goes on. The directory is that of the sockets of all runs.
///
/// # Errors
/// [`ControlError`]: there was no answer. What a run that is gone has left is removed.
pub(crate) fn ask(
    directory: &OwnedFd,
    run: &RunId,
    question: &Question,
    until: Instant,
) -> Result<Answer, ControlError> {
    let name = socket_name(run);
    let stream = connected(&place(directory, &name)).map_err(|error| {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            let _ = rustix::fs::unlinkat(directory, name.as_str(), AtFlags::empty());
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => ControlError::Gone,
            _ => ControlError::Silent(error),
        }
    })?;
    exchange(stream, question, until)
}

/// Whoever takes no more callers, as one that is suspended and was asked often, is not waited for.
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

/// The runs that have a socket there, also such as are gone by now; the newest first.
///
/// # Errors
/// When the directory cannot be read.
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
