//! Approvers other than a run's own user, who are named for dual control.
//!
//! The directories of another user's run are closed to them, so no file leads them to it. They
//! connect to a name in the abstract socket namespace (unix(7)), which belongs to the network
//! namespace of the host: no sandbox with a network of its own has it. Any user can take such a
//! name, so neither side trusts it: each asks the kernel who the other one is.

use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};
use std::{fs, io};

use atoll_model::RunId;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::{
    ANSWER_PATIENCE, Answer, CALLERS_MAX, Caller, ControlError, Question, caller, is_outside,
};

/// The prefix of the names; the user's number and the run follow.
const NAME: &str = "atoll/second";
/// The kernel's table of Unix sockets (proc_pid_net(5)).
const TABLE: &str = "/proc/net/unix";
/// The longest time for checking all names: any user can take as many as they like.
const LOOKING_PATIENCE: Duration = Duration::from_secs(5);

/// The standing of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The run's own user, or root.
    Own,
    /// A person named as an approver besides the run's own user.
    Other,
}

/// The socket at which other approvers reach a run.
#[derive(Debug)]
pub(crate) struct Others {
    pub(super) listener: UnixListener,
    uids: Vec<u32>,
}

impl Others {
    /// Takes the name of a run, before its program could.
    ///
    /// # Errors
    /// Another process has the name: these users cannot be heard then.
    pub(crate) fn open(run: &RunId, uids: &[u32]) -> io::Result<Self> {
        let own = rustix::process::geteuid().as_raw();
        let address = SocketAddr::from_abstract_name(name(own, Some(run)))?;
        let listener = UnixListener::bind_addr(&address)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            uids: uids.to_vec(),
        })
    }

    /// Accepts callers who are named approvers, and drops all others; so few at a time that
    /// strangers cannot delay the run.
    pub(super) fn come(&self, room: usize) -> Vec<Caller> {
        let mut come = Vec::new();
        for _ in 0..CALLERS_MAX {
            if come.len() >= room {
                break;
            }
            let Ok((stream, _)) = self.listener.accept() else {
                break;
            };
            come.extend(self.admitted(stream));
        }
        come
    }

    fn admitted(&self, stream: UnixStream) -> Option<Caller> {
        let peer = socket_peercred(&stream).ok()?;
        let is_named = self.uids.contains(&peer.uid.as_raw());
        match is_named && is_outside(&peer) {
            true => caller(stream, &peer, Standing::Other),
            false => None,
        }
    }
}

/// Returns the name of a run of this user, or the prefix of all their runs' names.
fn name(uid: u32, run: Option<&RunId>) -> String {
    format!("{NAME}/{uid}/{}", run.map_or("", RunId::as_str))
}

/// Connects to a run of this user. A run that takes no more callers is not waited for, and a
/// holder of the name who is another user, or in a sandbox, is not trusted.
fn reached(uid: u32, run: &RunId) -> Result<UnixStream, ControlError> {
    let silent = |error: Errno| ControlError::Silent(error.into());
    let address = SocketAddrUnix::new_abstract_name(name(uid, Some(run)).as_bytes());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let socket = socket.map_err(silent)?;
    connect(&socket, &address.map_err(silent)?).map_err(|error| match error {
        Errno::CONNREFUSED | Errno::NOENT | Errno::AGAIN => ControlError::Gone,
        error => silent(error),
    })?;
    let peer = socket_peercred(&socket).map_err(silent)?;
    if peer.uid.as_raw() != uid || !is_outside(&peer) {
        return Err(ControlError::Gone);
    }
    let stream = UnixStream::from(socket);
    stream
        .set_nonblocking(false)
        .map_err(ControlError::Silent)?;
    Ok(stream)
}

/// The reachable runs of one user.
#[derive(Debug)]
pub enum Runs {
    /// Those of this user, by the directory of their sockets.
    Own(OwnedFd),
    /// Those of another user, in which this one is a named approver.
    Of(u32),
}

/// Asks a running sandbox.
///
/// # Errors
/// [`ControlError`]: there was no answer. The socket of a run that is gone is removed.
pub fn ask_run(runs: &Runs, run: &RunId, question: &Question) -> Result<Answer, ControlError> {
    ask_until(runs, run, question, Instant::now() + ANSWER_PATIENCE)
}

/// Asks a running sandbox, until a deadline for the whole answer.
///
/// # Errors
/// As of [`ask_run`].
pub fn ask_until(
    runs: &Runs,
    run: &RunId,
    question: &Question,
    until: Instant,
) -> Result<Answer, ControlError> {
    let uid = match runs {
        Runs::Own(directory) => return super::ask(directory, run, question, until),
        Runs::Of(uid) => *uid,
    };
    let is_shut = |error: &io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
        )
    };
    match super::exchange(reached(uid, run)?, question, until) {
        // It hears only those whom it names.
        Err(ControlError::Silent(error)) if is_shut(&error) => Err(ControlError::Gone),
        answered => answered,
    }
}

/// Returns the runs that have a socket, including those that are gone by now; the newest first.
/// Of another user only those that are really theirs: any user can take the name.
///
/// # Errors
/// If they cannot be listed.
pub fn runs_spoken_to(runs: &Runs) -> io::Result<Vec<RunId>> {
    let uid = match runs {
        Runs::Own(directory) => return super::spoken_to(directory),
        Runs::Of(uid) => *uid,
    };
    let name = format!("@{}", name(uid, None));
    let table = fs::read_to_string(TABLE)?;
    let names = table
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().next_back());
    let found = names.filter_map(|one| RunId::parse(one.strip_prefix(&name)?).ok());
    let mut runs: Vec<RunId> = found.collect();
    runs.sort_unstable_by(|left: &RunId, right| right.cmp(left));
    // Each connection that a socket has is a row of its own.
    runs.dedup();
    let until = Instant::now() + LOOKING_PATIENCE;
    runs.retain(|run| Instant::now() < until && reached(uid, run).is_ok());
    Ok(runs)
}
