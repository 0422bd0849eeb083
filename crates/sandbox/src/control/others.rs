//! Persons other than a run's own: where two have to say yes, those who are named for that.
//!
//! Nothing that lies in a file leads them to a run of somebody else's, whose directories are
//! closed to them. They come by a name in the abstract namespace of sockets (unix(7)), which
//! belongs to the network of this host: no sandbox with a network of its own has it. Anybody can
//! take such a name, and nobody believes it: each side asks the kernel who the other one is.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use atoll_model::RunId;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::{
    ANSWER_PATIENCE, Answer, CALLERS_MAX, Caller, ControlError, Question, caller, is_outside,
};

/// How the names begin; the user's number and the run follow.
const NAME: &str = "atoll/second";
/// Where the kernel lists sockets (proc_pid_net(5)).
const TABLE: &str = "/proc/net/unix";
/// How long all names together are looked at: anybody can take as many as they like.
const LOOKING_PATIENCE: Duration = Duration::from_secs(5);

/// As whom somebody speaks to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its own user, or root.
    Own,
    /// One of those who are named to say yes beside its own.
    Other,
}

/// Where the others speak to a run.
#[derive(Debug)]
pub(crate) struct Others {
    pub(super) listener: UnixListener,
    uids: Vec<u32>,
}

impl Others {
    /// Takes the name of a run, before its program is there to do so.
    ///
    /// # Errors
    /// Somebody else has the name: then nobody hears these users.
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

    /// Those who came and are named. Whoever else comes is let go; so many at a time that
    /// strangers cannot hold the run up.
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

/// The name of a run of this user, or how the names of all their runs begin.
fn name(uid: u32, run: Option<&RunId>) -> String {
    format!("{NAME}/{uid}/{}", run.map_or("", RunId::as_str))
}

/// The run of this user that has such a name. Whoever does not take more callers is not waited
/// for, and who has the name and is another user, or in a sandbox, is not believed.
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

/// The runs of one user that can be spoken to.
#[derive(Debug)]
pub enum Runs {
    /// Those of this user, by the directory of their sockets.
    Own(OwnedFd),
    /// Those of another, which listen to persons that are named for it.
    Of(u32),
}

/// Asks a run that goes on.
///
/// # Errors
/// [`ControlError`]: there was no answer. What a run that is gone has left is removed.
pub fn ask_run(runs: &Runs, run: &RunId, question: &Question) -> Result<Answer, ControlError> {
    ask_until(runs, run, question, Instant::now() + ANSWER_PATIENCE)
}

/// The same, with an end to the wait for all of the answer.
///
/// # Errors
/// The same.
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

/// The runs that have a socket, also such as are gone by now; the newest first. Of another user
/// those that are theirs: the same name can be anybody's.
///
/// # Errors
/// When they cannot be listed.
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
