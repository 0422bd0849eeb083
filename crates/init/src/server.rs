//! The exec server: a process with the sandbox's own rights that starts programs and file servers
//! when the host side asks.
//!
//! It is forked from `init` before that confines itself. The first server becomes the first exec,
//! while a sibling goes on as the server. A further program's process is forked ahead of its
//! request, as a child of `init` (`CLONE_PARENT`), which reaps it and reports its true end; so one
//! process is there even when a program has used up all others. It waits in the server's domain,
//! out of reach of programs, which are in domains beneath. Whatever the server says is output of
//! the sandbox: its word about which process an exec is counts only for a child of `init`.

mod exec;
mod successor;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use atoll_frame::{
    ExecId, KILL, Nesting, REQUEST_BYTES_MAX, Report, Request, ResourceLimit, SandboxSpec, Stage,
    User,
};
use atoll_sys::landlock::{Holds, Rights, Ruleset};
use atoll_sys::seccomp::Instruction;
use atoll_sys::{credentials, descriptor, process, seccomp, socket};

use crate::filter::{Denials, Process};
use crate::{At, Failure, filter, text};

/// The needs of the exec server and of `init`'s own confinement, prepared before the fork.
pub(crate) struct Prepared {
    /// The program's rights; `None` if no rule of this kernel's Landlock is compatible with nesting.
    rules: Option<Ruleset>,
    /// The domain of the server, and of each exec beneath it, where rules about files need not be
    /// said again: signals and inspection alone.
    scope: Option<Ruleset>,
    filter: Vec<Instruction>,
    /// The confinement of `init` itself from then on; with rules of its own if it needs more than
    /// the program.
    own_rules: Option<Ruleset>,
    own_filter: Vec<Instruction>,
    /// The one of root's powers that it needs: to signal processes of other users.
    own_capabilities: u64,
    limits: Vec<ResourceLimit>,
    /// True if all execs are in one domain, so that they can signal and inspect each other, as
    /// in a sandbox that lives.
    shares_domain: bool,
    /// True if some of its calls are judged.
    fenced: bool,
    /// True if any of its calls come to `init`.
    heard: bool,
}

impl Prepared {
    /// Grants programs this terminal, in addition to the places of their spec.
    pub(crate) fn allow_terminal(&self, side: BorrowedFd<'_>) -> io::Result<()> {
        let mut rules = self.own_rules.iter().chain(&self.rules);
        rules.try_for_each(|rules| rules.allow(side, Rights::DEVICE, false))
    }

    /// Returns the rules that the server enters.
    fn rules_of_server(&self) -> Option<&Ruleset> {
        match self.own_rules {
            // `init` has more rights than the program.
            Some(_) => self.rules.as_ref(),
            None => self.scope.as_ref().or(self.rules.as_ref()),
        }
    }

    /// Returns the rules that each exec enters, for a domain of its own.
    fn rules_of_exec(&self) -> Option<&Ruleset> {
        self.scope.as_ref().or(self.rules.as_ref())
    }
}

/// The version of Landlock that first confines signals and abstract sockets.
const SCOPES_SINCE: u32 = 6;

/// Prepares the exec server of a sandbox.
pub(crate) fn prepare(spec: &SandboxSpec) -> Result<Prepared, Failure> {
    let (process, holds) = match spec.watch.memory_bytes {
        _ if spec.fenced && spec.funnel.is_some() => (Process::Router, Holds::All),
        _ if spec.fenced => (Process::Judge, Holds::All),
        0 => (Process::Init, Holds::AllButPorts),
        1.. => (Process::Counting, Holds::AllButPorts),
    };
    let rules = match spec.nesting {
        Nesting::Refused => Some(rules(spec, holds)?),
        // Under rules about files nothing can be mounted (landlock(7)): the tree of
        // mounts, which are locked in every namespace beneath, holds alone.
        Nesting::ButGroups | Nesting::All => None,
    };
    let scope = (spec.landlock_version >= SCOPES_SINCE)
        .then(|| scope(spec.landlock_version, rules.is_some()))
        .transpose();
    Ok(Prepared {
        rules,
        scope: scope.at(Stage::Landlock)?,
        filter: filter::program(Denials::of(spec)),
        own_rules: spec.fenced.then(|| judging_rules(spec)).transpose()?,
        own_filter: filter::own(process),
        own_capabilities: spec.capabilities & KILL,
        limits: spec.resource_limits.clone(),
        shares_domain: !spec.one_exec,
        fenced: spec.fenced,
        heard: Denials::of(spec).are_heard(),
    })
}

/// Returns a domain of signals and inspection alone, which denies nothing else.
fn scope(version: u32, beneath_rules: bool) -> io::Result<Ruleset> {
    if !beneath_rules {
        return Ruleset::new(version, Holds::Signals);
    }
    let scope = Ruleset::new(version, Holds::SignalsBeneath)?;
    scope.allow_path(c"/", Rights::MOVE).map(|()| scope)
}

/// Returns the rights of `init` itself while it judges. The program's domain lies within its own,
/// here as elsewhere, so those are the processes that it may inspect and signal, and no others.
fn judging_rules(spec: &SandboxSpec) -> Result<Ruleset, Failure> {
    let rules = rules(spec, Holds::AllButPorts)?;
    let processes = rules.allow_path(c"/proc", Rights::READ);
    processes.at(Stage::Landlock).map(|()| rules)
}

/// Returns the permissions as a set of Landlock rules, complete or not at all.
fn rules(spec: &SandboxSpec, holds: Holds) -> Result<Ruleset, Failure> {
    let rules = Ruleset::new(spec.landlock_version, holds).at(Stage::Landlock)?;
    for permission in &spec.permissions {
        let path = text(&permission.path).at(Stage::Landlock)?;
        rules
            .allow_path(&path, Rights::of_bits(permission.rights))
            .at_path(Stage::Landlock, &permission.path)?;
    }
    Ok(rules)
}

/// The ends of the exec server that `init` holds.
pub(crate) struct Started {
    /// The socket on which the server says which process an exec is: [`spawned`].
    pub(crate) line: OwnedFd,
    /// The listener of the program filter, if calls are heard.
    pub(crate) listener: Option<OwnedFd>,
}

/// Starts the exec server, which takes requests from this socket, then confines this process
/// itself. `side` is the terminal of this session.
pub(crate) fn start(
    prepared: &Prepared,
    requests: &OwnedFd,
    side: Option<&OwnedFd>,
) -> Result<Started, Failure> {
    let (line, far) = socket::pair().at(Stage::Start)?;
    let around = prepared.own_rules.as_ref().or(prepared.rules.as_ref());
    let around = around.or(prepared.scope.as_ref());
    around.map_or(Ok(()), Ruleset::enter).at(Stage::Landlock)?;
    process::fork(|| {
        let server = Server {
            prepared,
            requests,
            line: &far,
            side,
        };
        server.begin().unwrap_or_else(|failure| {
            let _ = socket::send(far.as_fd(), &failed(&failure), &[]);
            1
        })
    })
    .at(Stage::Start)?;
    drop(far);
    // Not before the fork: the program would have inherited them.
    credentials::keep_capabilities(prepared.own_capabilities).at(Stage::Rights)?;
    seccomp::install(&prepared.own_filter, "init-filter").at(Stage::Filter)?;
    let listener = listener(&line, prepared.heard)?;
    Ok(Started { line, listener })
}

/// The message that the server is ready, with the listener if there is one.
const READY: &[u8] = b"l";

/// Waits until the server is ready; returns the listener.
fn listener(line: &OwnedFd, heard: bool) -> Result<Option<OwnedFd>, Failure> {
    let lost = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let mut message = [0_u8; atoll_frame::MESSAGE_BYTES_MAX];
    let (got, mut carried) = socket::receive(line.as_fd(), &mut message).at(Stage::Start)?;
    let message = message.get(..got).unwrap_or_default();
    let listener = carried.pop();
    match Report::from_bytes(message) {
        _ if message == READY && listener.is_some() == heard => Ok(listener),
        Ok(Report::Failed { stage, error, .. }) => {
            Err(io::Error::from_raw_os_error(error)).at(stage)
        }
        _ => Err(lost()).at(Stage::Filter),
    }
}

/// Encodes a failure for the other side.
fn failed(failure: &Failure) -> Vec<u8> {
    let report = Report::Failed {
        stage: failure.stage,
        error: failure.error.raw_os_error().unwrap_or(EINVAL),
        detail: failure.detail.clone(),
    };
    report.to_bytes()
}

const EINVAL: i32 = 22;
const EAGAIN: i32 = 11;

/// Writes which process an exec is, for `init`.
fn spawning(exec: ExecId, pid: u32) -> [u8; 8] {
    let mut message = [0; 8];
    let (first, second) = message.split_at_mut(4);
    first.copy_from_slice(&exec.0.to_le_bytes());
    second.copy_from_slice(&pid.to_le_bytes());
    message
}

/// Reads which process the server says an exec is.
pub(crate) fn spawned(message: &[u8]) -> Option<(ExecId, u32)> {
    let (exec, pid) = message.split_first_chunk::<4>()?;
    let pid = <[u8; 4]>::try_from(pid).ok()?;
    let pid = u32::from_le_bytes(pid);
    // Others mean groups of processes, or every one (kill(2), wait4(2)).
    let is_one = pid > 1 && i32::try_from(pid).is_ok();
    is_one.then_some((ExecId(u32::from_le_bytes(*exec)), pid))
}

/// The exec server, in its own process.
struct Server<'a> {
    prepared: &'a Prepared,
    requests: &'a OwnedFd,
    line: &'a OwnedFd,
    side: Option<&'a OwnedFd>,
}

/// The process that execs of one domain are forked from.
#[derive(Default)]
struct Source {
    line: Option<OwnedFd>,
}

/// The longest time for it to fork, milliseconds.
const FORKED_WITHIN_MS: u32 = 1_000;

/// Has a process forked that waits on this socket; returns its number.
fn forked(source: &OwnedFd, far: &OwnedFd) -> io::Result<u32> {
    socket::send(source.as_fd(), BEGIN, &[far.as_fd()])?;
    let [true] = descriptor::wait_readable([Some(source.as_fd())], Some(FORKED_WITHIN_MS))? else {
        return Err(io::ErrorKind::TimedOut.into());
    };
    let mut pid = [0; 4];
    match socket::receive(source.as_fd(), &mut pid)? {
        (4, _) => Ok(u32::from_le_bytes(pid)),
        _ => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// A process that waits to become an exec.
struct Spare {
    pid: u32,
    line: OwnedFd,
}

impl Spare {
    /// Returns whether it was not ended meanwhile, by a program of its domain.
    fn is_there(&self) -> bool {
        let gone = descriptor::wait_readable([Some(self.line.as_fd())], Some(0));
        matches!(gone, Ok([false]))
    }
}

impl Server<'_> {
    /// Confines this process and serves requests. Returns the exit status.
    fn begin(&self) -> Result<u8, Failure> {
        let prepared = self.prepared;
        self.settle(None)?;
        process::set_name(c"atoll-exec").at(Stage::Start)?;
        if let Some(rules) = prepared.rules_of_server() {
            rules.enter().at(Stage::Landlock)?;
            // Programs are in domains beneath, and cannot look into it: but who counts what
            // processes hold has to.
            credentials::allow_inspection().at(Stage::Rights)?;
        }
        // A judge makes calls itself, and none of them twice.
        let filter = &prepared.filter;
        let listener = match prepared.heard {
            true => seccomp::install_with_listener(filter, prepared.fenced, "seccomp").map(Some),
            false => seccomp::install(filter, "seccomp").map(|()| None),
        };
        let listener = listener.at(Stage::Filter)?;
        let carried = listener.as_ref().map(AsFd::as_fd);
        socket::send(self.line.as_fd(), READY, carried.as_slice()).at(Stage::Filter)?;
        drop(listener);
        let mut source = Source::default();
        if prepared.shares_domain {
            let spare = self.spare(&mut source).ok();
            return self.serve(spare, source, None);
        }
        let successor = self.make_successor().at(Stage::Start)?;
        self.serve(None, source, Some(successor))
    }

    /// Keeps what the server needs, and nothing of any exec.
    fn settle(&self, before: Option<&OwnedFd>) -> Result<(), Failure> {
        let before = before.map(AsFd::as_fd);
        let kept = [Some(self.requests.as_fd()), Some(self.line.as_fd()), before];
        self.close_others(kept).at(Stage::Start)?;
        match self.prepared.fenced {
            true => credentials::die_with_parent().at(Stage::Rights),
            false => Ok(()),
        }
    }

    /// Serves requests until the host side is gone. A server with a successor becomes the first exec
    /// itself, which so waits for no other.
    fn serve(
        &self,
        mut spare: Option<Spare>,
        mut source: Source,
        successor: Option<OwnedFd>,
    ) -> Result<u8, Failure> {
        loop {
            let mut message = [0_u8; REQUEST_BYTES_MAX];
            let received = socket::receive(self.requests.as_fd(), &mut message);
            let (got, descriptors) = received.at(Stage::Start)?;
            let message = message.get(..got).unwrap_or_default();
            if message.is_empty() {
                return Ok(0);
            }
            let mut descriptors = descriptors.into_iter();
            let Some(status) = descriptors.next() else {
                continue;
            };
            let answer = match Request::from_bytes(message) {
                Ok(Request::Exec(id)) => match &successor {
                    Some(successor) => match self.hand_over(id, successor) {
                        Ok(()) => return Ok(self.execute(&status, descriptors.collect())),
                        Err(error) => Err(error),
                    },
                    None => {
                        let descriptors = descriptors.collect();
                        self.start(id, &status, descriptors, &mut spare, &mut source)
                    }
                },
                Ok(Request::Files(user)) => self.serve_files(&status, user),
                Err(_) => Err(io::ErrorKind::InvalidInput.into()),
            };
            // Who asks finds a closed socket at the latest.
            if let Err(failure) = answer.at(Stage::Start) {
                let _ = socket::send(status.as_fd(), &failed(&failure), &[]);
            }
        }
    }

    /// Closes everything but these and what every exec needs.
    fn close_others<const N: usize>(&self, kept: [Option<BorrowedFd<'_>>; N]) -> io::Result<()> {
        let rules = [
            self.prepared.rules_of_server(),
            self.prepared.rules_of_exec(),
        ];
        let rules = rules.into_iter().flatten().map(AsFd::as_fd);
        let side = self.side.map(AsFd::as_fd);
        let kept: Vec<_> = kept
            .into_iter()
            .flatten()
            .chain(side)
            .chain(rules)
            .collect();
        descriptor::close_all_but(&kept)
    }

    /// Makes a process that waits to become an exec.
    fn spare(&self, source: &mut Source) -> io::Result<Spare> {
        let (line, far) = socket::pair()?;
        if !self.prepared.shares_domain {
            let pid = process::fork_sibling(|| self.wait(&far))?;
            return Ok(Spare { pid, line });
        }
        // Programs reach the source, which is in their domain; one that was ended or stopped is
        // made anew, and what it forks from then on is in another domain.
        for _ in 0..2 {
            let near = match source.line.take() {
                Some(near) => near,
                None => self.begin_source()?,
            };
            if let Ok(pid) = forked(&near, &far) {
                source.line = Some(near);
                return Ok(Spare { pid, line });
            }
        }
        Err(io::Error::from_raw_os_error(EAGAIN))
    }

    /// Starts the process that all execs are forked from, in their domain.
    fn begin_source(&self) -> io::Result<OwnedFd> {
        let (near, far) = socket::pair()?;
        let serve = || self.fork_on_request(&far).map_or(1, |()| 0);
        process::fork_sibling(serve).map(|_| near)
    }

    fn fork_on_request(&self, line: &OwnedFd) -> io::Result<()> {
        self.close_others([Some(line.as_fd())])?;
        process::set_name(c"atoll-source")?;
        if self.prepared.fenced {
            credentials::die_with_parent()?;
        }
        let rules = self.prepared.rules_of_exec();
        rules.map_or(Ok(()), Ruleset::enter)?;
        while let (1.., descriptors) = socket::receive(line.as_fd(), &mut [0; 1])? {
            let [far] = descriptors.as_slice() else {
                continue;
            };
            let pid = process::fork_sibling(|| self.wait(far))?;
            socket::send(line.as_fd(), &pid.to_le_bytes(), &[])?;
        }
        Ok(())
    }

    /// Has a waiting process become this exec. `init` knows of it before it can end, and reports
    /// its end from then on: an exec is never given to a second process.
    fn start(
        &self,
        id: ExecId,
        status: &OwnedFd,
        descriptors: Vec<OwnedFd>,
        spare: &mut Option<Spare>,
        source: &mut Source,
    ) -> io::Result<()> {
        let ready = match spare.take().filter(Spare::is_there) {
            Some(ready) => ready,
            None => self.spare(source)?,
        };
        socket::send(self.line.as_fd(), &spawning(id, ready.pid), &[])?;
        let with = std::iter::once(status).chain(&descriptors);
        let with: Vec<BorrowedFd<'_>> = with.map(AsFd::as_fd).collect();
        // One that was ended just now has ended as this exec.
        let _ = socket::send(ready.line.as_fd(), BEGIN, &with);
        // Another for the next one, before what was just started can use up all processes.
        *spare = self.spare(source).ok();
        Ok(())
    }

    /// Starts a file server on this socket, with the rights of an exec.
    fn serve_files(&self, requests: &OwnedFd, user: Option<User>) -> io::Result<()> {
        let begin = || -> io::Result<()> {
            self.close_others([Some(requests.as_fd())])?;
            process::set_name(c"atoll-files")?;
            if self.prepared.fenced {
                credentials::die_with_parent()?;
            }
            if let Some(User { uid, gid }) = user {
                credentials::make_files_for(uid, gid)?;
            }
            self.prepared.rules_of_exec().map_or(Ok(()), Ruleset::enter)
        };
        let serve = || begin().map_or(1, |()| atoll_guest::serve(requests));
        process::fork_sibling(serve).map(drop)
    }

    /// Waits to become an exec, and becomes it; returns only where that fails.
    fn wait(&self, line: &OwnedFd) -> u8 {
        let ready = self.close_others([Some(line.as_fd())]);
        let ready = ready.and_then(|()| match self.prepared.fenced {
            // No namespace ends it with `init`, should someone else end that.
            true => credentials::die_with_parent(),
            false => Ok(()),
        });
        if ready.is_err() {
            return 127;
        }
        let Ok((1.., mut descriptors)) = socket::receive(line.as_fd(), &mut [0; 1]) else {
            return 0;
        };
        if descriptors.is_empty() {
            return 127;
        }
        let status = descriptors.remove(0);
        self.execute(&status, descriptors)
    }
}

/// The message with which a waiting process gets its exec.
const BEGIN: &[u8] = b"e";
