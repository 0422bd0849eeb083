//! The host's end of a sandbox's exec server: starting execs and file servers.
//!
//! The host makes the pipes and passes their other ends in. What comes out is a terminal's master,
//! checked here: everything else that the server says is output of the sandbox.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use atoll_frame::{
    ExecId, ExecSpec, ExecTerminal, Report, Request, SPEC_BYTES_MAX, Terminal, User,
};
use atoll_model::{RESIDENT, check_words};
use atoll_sys::{descriptor, socket};
use rustix::fs::{FileType, fstat, fstatfs};

use crate::attachment::{ExecCommand, Size};
use crate::reports::{discard, hear, making};
use crate::{IDS, SandboxError};

/// The device number of every terminal's master (pty(7)).
const MASTER: (u32, u32) = (5, 2);
/// The file system of terminals.
const DEVPTS: i64 = 0x1cd1;

/// The host's end of the exec server.
#[derive(Debug)]
pub(crate) struct ExecServer {
    requests: OwnedFd,
    /// The program's user and group in the kernel, if these are not the caller's.
    owner: Option<(u32, u32)>,
    /// True in a fence, which has no terminals of its own.
    fenced: bool,
    /// True where programs are root, and can become other users.
    has_users: bool,
    /// The environment of every exec.
    environment: Vec<Vec<u8>>,
}

/// The host's ends of an exec's streams.
#[derive(Debug)]
pub(crate) struct ExecEnds {
    pub(crate) id: ExecId,
    /// The socket of the answers; closed by the server's side once the program is executed.
    pub(crate) status: OwnedFd,
    pub(crate) input: Option<OwnedFd>,
    /// The other end of that, as the program has it: what is still in it can be counted.
    pub(crate) input_inside: Option<OwnedFd>,
    pub(crate) output: Option<OwnedFd>,
    pub(crate) error: Option<OwnedFd>,
    pub(crate) terminal: Option<OwnedFd>,
    /// True if a terminal comes from inside.
    pub(crate) wants_terminal: bool,
}

/// An exec whose request is not sent yet.
#[derive(Debug)]
pub(crate) struct PreparedExec {
    ends: ExecEnds,
    /// The descriptors of the request: the status socket, the description, the streams.
    sent: Vec<OwnedFd>,
}

/// The mask of mode bits of programs that are started over HTTP, which has none.
const SERVED_MODE_MASK: u32 = 0o022;

/// Returns the mask of mode bits for a program: its caller's (`Umask` of proc_pid_status(5)), or that
/// of served ones, also where the caller is gone.
pub(crate) fn mode_mask(is_served: bool, caller: u32) -> u32 {
    if is_served {
        return SERVED_MODE_MASK;
    }
    let status = std::fs::read_to_string(format!("/proc/{caller}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok());
    mask.unwrap_or(SERVED_MODE_MASK)
}

impl ExecServer {
    pub(crate) fn new(
        requests: OwnedFd,
        owner: Option<(u32, u32)>,
        fenced: bool,
        has_users: bool,
        first: &ExecSpec,
    ) -> Self {
        Self {
            requests,
            owner,
            fenced,
            has_users,
            environment: first.environment.clone(),
        }
    }

    /// Returns the user of these ids that a program becomes; `None` if it stays who the sandbox's
    /// programs are.
    fn user(&self, ids: Option<(u32, u32)>) -> Option<User> {
        let (uid, gid) = ids.filter(|(uid, gid)| self.has_users && *uid < IDS && *gid < IDS)?;
        Some(User { uid, gid })
    }

    /// Returns whether the sandbox is a fence.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Prepares a further exec.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub(crate) fn prepare(&self, exec: &mut ExecCommand) -> Result<PreparedExec, SandboxError> {
        let streams = exec.streams.take();
        let grant = exec.armed.grant();
        let Some((number, call)) = exec.armed.call().exec() else {
            return Err(SandboxError::AnotherCall);
        };
        let name = |variable: &[u8]| {
            let end = variable.iter().position(|byte| *byte == b'=');
            variable
                .get(..end.unwrap_or(variable.len()))
                .map(<[u8]>::to_vec)
        };
        let set: Vec<&[u8]> = exec.environment.iter().map(|one| one.as_bytes()).collect();
        let is_set = |variable: &[u8]| set.iter().any(|one| name(one) == name(variable));
        let own = self.environment.iter().filter(|one| !is_set(one)).cloned();
        let spec = ExecSpec {
            terminal: match exec.terminal {
                None => ExecTerminal::None,
                Some(_) if self.fenced => ExecTerminal::Given,
                Some(Size { rows, columns }) => ExecTerminal::Own(Terminal { rows, columns }),
            },
            arguments: grant
                .command()
                .iter()
                .map(|one| one.as_bytes().to_vec())
                .collect(),
            environment: own.chain(set.iter().map(|one| one.to_vec())).collect(),
            directory: grant.directory().as_os_str().as_bytes().to_vec(),
            mode_mask: mode_mask(call.served.is_some(), call.by_pid),
            user: call.served.as_ref().and_then(|by| self.user(by.user)),
        };
        self.prepare_spec(ExecId(number), &spec, exec.terminal, streams)
    }

    /// Prepares an exec by its description; `size` is that of a terminal that the host has to make,
    /// `streams` are pipes that are there already.
    pub(crate) fn prepare_spec(
        &self,
        id: ExecId,
        spec: &ExecSpec,
        size: Option<Size>,
        streams: Option<[OwnedFd; 3]>,
    ) -> Result<PreparedExec, SandboxError> {
        check_words(
            spec.arguments.iter().map(Vec::as_slice),
            spec.environment.iter().map(Vec::as_slice),
        )?;
        let bytes = spec.to_bytes();
        if bytes.len() > SPEC_BYTES_MAX {
            return Err(SandboxError::TooLarge(bytes.len()));
        }
        let prepared = self.lines(id, &bytes, spec, size, streams);
        prepared.map_err(SandboxError::host("the exec's lines could not be made"))
    }

    fn lines(
        &self,
        id: ExecId,
        spec: &[u8],
        described: &ExecSpec,
        size: Option<Size>,
        streams: Option<[OwnedFd; 3]>,
    ) -> io::Result<PreparedExec> {
        let (terminal, user) = (described.terminal, described.user);
        let (status, far) = socket::pair()?;
        let mut ends = ExecEnds {
            id,
            status,
            input: None,
            input_inside: None,
            output: None,
            error: None,
            terminal: None,
            wants_terminal: matches!(terminal, ExecTerminal::Own(_)),
        };
        let mut sent = vec![far, descriptor::sealed_memory(c"atoll-exec", spec)?];
        match (terminal, streams) {
            (ExecTerminal::None, Some(inside)) => {
                // Anything else could be a file of the host's.
                for end in &inside {
                    if FileType::from_raw_mode(fstat(end)?.st_mode) != FileType::Fifo {
                        return Err(io::Error::other("a stream of it is no pipe"));
                    }
                }
                self.give(&inside, user)?;
                sent.extend(inside);
            }
            (ExecTerminal::None, None) => {
                let (input_inside, input) = descriptor::pipe()?;
                let (output, output_inside) = descriptor::pipe()?;
                let (error, error_inside) = descriptor::pipe()?;
                let inside = [input_inside, output_inside, error_inside];
                self.give(&inside, user)?;
                let [own, ..] = &inside;
                ends.input_inside = Some(own.try_clone()?);
                // A program can open its own end anew and take what was seen to be there.
                for end in [&input, &output, &error] {
                    descriptor::never_block(end.as_fd())?;
                }
                sent.extend(inside);
                (ends.input, ends.output, ends.error) = (Some(input), Some(output), Some(error));
            }
            (ExecTerminal::Given, _) => {
                let (master, side) = atoll_sys::terminal::open_own(size.unwrap_or_default())?;
                sent.extend([side.try_clone()?, side.try_clone()?, side]);
                descriptor::never_block(master.as_fd())?;
                ends.terminal = Some(master);
            }
            // It comes from inside.
            (ExecTerminal::Session | ExecTerminal::Own(_), _) => {}
        }
        Ok(PreparedExec { ends, sent })
    }

    /// Makes pipes the program's: it may open /dev/stdout anew, which asks for the pipe's owner.
    fn give(&self, inside: &[OwnedFd; 3], user: Option<User>) -> io::Result<()> {
        let Some((uid, gid)) = self.owner else {
            return Ok(());
        };
        // Root's ids are the first of the sandbox's range.
        let (uid, gid) = user.map_or((uid, gid), |user| (uid + user.uid, gid + user.gid));
        for end in inside {
            descriptor::change_owner(end.as_fd(), uid, gid)?;
        }
        Ok(())
    }

    /// Sends the request: the exec starts.
    ///
    /// # Errors
    /// [`SandboxError::NoExec`]: the exec server is gone.
    pub(crate) fn start(&self, prepared: PreparedExec) -> Result<ExecEnds, SandboxError> {
        let PreparedExec { ends, sent } = prepared;
        let with: Vec<BorrowedFd<'_>> = sent.iter().map(AsFd::as_fd).collect();
        let request = Request::Exec(ends.id).to_bytes();
        let started = socket::send(self.requests.as_fd(), &request, &with);
        started.map(|()| ends).map_err(SandboxError::NoExec)
    }

    /// Has a file server started; returns the socket of its requests.
    ///
    /// # Errors
    /// [`SandboxError::NoExec`]: the exec server is gone.
    pub(crate) fn serve_files(&self) -> Result<OwnedFd, SandboxError> {
        let start = || -> io::Result<OwnedFd> {
            let (near, far) = socket::pair()?;
            let request = Request::Files(self.user(Some((RESIDENT.uid, RESIDENT.gid)))).to_bytes();
            socket::send(self.requests.as_fd(), &request, &[far.as_fd()]).map(|()| near)
        };
        start().map_err(SandboxError::NoExec)
    }
}

/// Checks that a descriptor from inside is a terminal's master, and keeps its use from blocking.
pub(crate) fn checked_master(terminal: OwnedFd) -> Result<OwnedFd, SandboxError> {
    let check = || -> io::Result<OwnedFd> {
        let facts = fstat(&terminal)?;
        let is_device = FileType::from_raw_mode(facts.st_mode) == FileType::CharacterDevice;
        let number = (
            rustix::fs::major(facts.st_rdev),
            rustix::fs::minor(facts.st_rdev),
        );
        #[allow(clippy::unnecessary_cast)]
        let system = fstatfs(&terminal)?.f_type as i64;
        // In a fence it is the host's own, whose node may lie in /dev itself.
        let is_in_place = system == DEVPTS || rustix::pty::ptsname(&terminal, Vec::new()).is_ok();
        if !is_device || number != MASTER || !is_in_place {
            return Err(io::Error::other("the sandbox handed out another file"));
        }
        descriptor::never_block(terminal.as_fd())?;
        Ok(terminal)
    };
    check().map_err(SandboxError::host(
        "the program's terminal cannot be watched",
    ))
}

/// An answer on an exec's status socket.
#[derive(Debug)]
pub(crate) enum Status {
    /// The terminal of its own.
    Terminal(OwnedFd),
    /// The program is about to be executed, by the process of this number in the sandbox.
    Executing(u32),
    /// The program could not be executed, for this reason (errno(3)).
    NotExecuted(i32),
    /// The exec could not be started.
    Failed(SandboxError),
    /// Nothing more comes.
    Closed,
}

/// Reads the next answer.
pub(crate) fn status(socket: &OwnedFd) -> Result<Status, SandboxError> {
    let (report, mut descriptors) = match hear(socket)? {
        None => return Ok(Status::Closed),
        Some(heard) => heard,
    };
    let terminal = match report {
        Report::Terminal => descriptors.pop(),
        _ => None,
    };
    discard(descriptors);
    Ok(match (report, terminal) {
        (Report::Terminal, Some(terminal)) => Status::Terminal(checked_master(terminal)?),
        (Report::Executing { pid }, _) => Status::Executing(pid),
        (Report::NotExecuted { error }, _) => Status::NotExecuted(error),
        (
            Report::Failed {
                stage,
                error,
                detail,
            },
            _,
        ) => Status::Failed(making(stage, error, &detail)),
        // An answer that is none comes from who has taken the server over.
        _ => Status::Closed,
    })
}
