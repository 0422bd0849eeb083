//! The program's process: from a fork of `init` to exec behind all walls.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use atoll_frame::{KILL, Nesting, Permission, ResourceLimit, Spec, Stage};
use atoll_sys::landlock::{Holds, Rights, Ruleset};
use atoll_sys::seccomp::Instruction;
use atoll_sys::{credentials, descriptor, process, seccomp, socket, terminal};

use crate::filter::{Denials, Process};
use crate::{At, Failure, filter, text};

/// The needs of the program's process, prepared before the fork.
pub(crate) struct Prepared {
    program: process::Program,
    /// `None` if no rule of this kernel's Landlock is compatible with nesting.
    rules: Option<Ruleset>,
    filter: Vec<Instruction>,
    /// The confinement of `init` itself from then on; with rules of its own if it needs more than
    /// the program.
    own_rules: Option<Ruleset>,
    own_filter: Vec<Instruction>,
    /// The one of root's powers that it needs: to signal processes of other users.
    own_capabilities: u64,
    directory: CString,
    limits: Vec<ResourceLimit>,
    /// True if some of its calls are judged.
    fenced: bool,
    /// True if any of its calls come to `init`.
    heard: bool,
}

impl Prepared {
    /// Grants the program this terminal, in addition to the places of its spec.
    pub(crate) fn allow_terminal(&self, side: BorrowedFd<'_>) -> io::Result<()> {
        let mut rules = self.own_rules.iter().chain(&self.rules);
        rules.try_for_each(|rules| rules.allow(side, Rights::DEVICE, false))
    }
}

/// The version of Landlock that first confines signals and abstract sockets.
const SCOPES_SINCE: u32 = 6;

/// The result of starting the program.
pub(crate) enum Started {
    /// The program runs, with this pid; waiting calls come to this listener, if there is one.
    Running(u32, Option<OwnedFd>),
    /// The kernel did not execute the program, with this error.
    NotExecuted(i32),
}

/// Prepares the program of a spec.
pub(crate) fn prepare(spec: &Spec) -> Result<Prepared, Failure> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let texts = |list: &[Vec<u8>]| list.iter().map(|one| text(one)).collect();
    let arguments: io::Result<Vec<CString>> = texts(&spec.arguments);
    let environment: io::Result<Vec<CString>> = texts(&spec.environment);
    let search = spec
        .environment
        .iter()
        .find_map(|variable| variable.strip_prefix(b"PATH="))
        .unwrap_or(b"/usr/local/bin:/usr/bin:/bin");
    let program = process::Program::new(
        arguments.at(Stage::Start)?,
        environment.at(Stage::Start)?,
        search,
    );
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
        Nesting::ButGroups | Nesting::All if spec.landlock_version < SCOPES_SINCE => None,
        Nesting::ButGroups | Nesting::All => Some(rules(spec, Holds::Signals)?),
    };
    Ok(Prepared {
        program: program.ok_or_else(invalid).at(Stage::Start)?,
        rules,
        filter: filter::program(Denials::of(spec)),
        own_rules: spec.fenced.then(|| judging_rules(spec)).transpose()?,
        own_filter: filter::own(process),
        own_capabilities: spec.capabilities & KILL,
        limits: spec.resource_limits.clone(),
        fenced: spec.fenced,
        heard: Denials::of(spec).are_heard(),
        directory: text(&spec.directory).at(Stage::Directory)?,
    })
}

/// Returns the rights of `init` itself while it judges. The program's domain lies within its own,
/// here as elsewhere, so those are the processes that it may inspect and signal, and no others.
fn judging_rules(spec: &Spec) -> Result<Ruleset, Failure> {
    let rules = rules(spec, Holds::AllButPorts)?;
    let processes = rules.allow_path(c"/proc", Rights::READ);
    processes.at(Stage::Landlock).map(|()| rules)
}

/// Returns the permissions as a set of Landlock rules, complete or not at all.
fn rules(spec: &Spec, holds: Holds) -> Result<Ruleset, Failure> {
    let rules = Ruleset::new(spec.landlock_version, holds).at(Stage::Landlock)?;
    for permission in &spec.permissions {
        let path = text(&permission.path).at(Stage::Landlock)?;
        for rights in rights(permission) {
            rules
                .allow_path(&path, rights)
                .at_path(Stage::Landlock, &permission.path)?;
        }
    }
    Ok(rules)
}

fn rights(permission: &Permission) -> impl Iterator<Item = Rights> {
    [
        (permission.read, Rights::READ),
        (permission.execute, Rights::EXECUTE),
        (permission.change, Rights::CHANGE),
        (permission.device, Rights::DEVICE),
    ]
    .into_iter()
    .filter_map(|(given, rights)| given.then_some(rights))
}

/// Starts the program on these descriptors. With `controlling`, they are the session's terminal and
/// the program becomes its foreground. This process is confined itself before the program's first
/// instruction.
pub(crate) fn start(
    prepared: &Prepared,
    standard: [BorrowedFd<'_>; 3],
    controlling: bool,
) -> Result<Started, Failure> {
    let (told, tell) = socket::pair().at(Stage::Start)?;
    let around = prepared.own_rules.as_ref().or(prepared.rules.as_ref());
    around.map_or(Ok(()), Ruleset::enter).at(Stage::Landlock)?;
    let pid = process::fork(|| {
        let (stage, error) = become_program(prepared, &tell, standard, controlling);
        let [one, two, three, four] = error.raw_os_error().unwrap_or(0).to_le_bytes();
        let _ = socket::send(tell.as_fd(), &[stage as u8, one, two, three, four], &[]);
        127
    })
    .at(Stage::Start)?;
    drop(tell);
    // Not before the fork: the program would have inherited them.
    credentials::keep_capabilities(prepared.own_capabilities).at(Stage::Rights)?;
    seccomp::install(&prepared.own_filter, "init-filter").at(Stage::Filter)?;
    // A child that has failed already tells why.
    let _ = socket::send(told.as_fd(), GO, &[]);
    wait_for_exec(&told, pid, prepared.heard)
}

/// Runs everything between fork and exec in the program's process. Returns only on failure. The
/// prepared memory is only read.
fn become_program(
    prepared: &Prepared,
    tell: &OwnedFd,
    standard: [BorrowedFd<'_>; 3],
    controlling: bool,
) -> (Stage, io::Error) {
    let before_exec = || -> Result<(), (Stage, io::Error)> {
        let at = |stage: Stage| move |error: io::Error| (stage, error);
        process::lead_group(0).map_err(at(Stage::Start))?;
        let [input, _, _] = standard;
        if controlling {
            process::ignore_signal(SIGTTOU);
            let group = std::process::id();
            terminal::set_foreground(input, group).map_err(at(Stage::Terminal))?;
        }
        for (number, fd) in standard.into_iter().enumerate() {
            descriptor::place_at(fd, number as i32).map_err(at(Stage::Start))?;
        }
        descriptor::close_on_exec_from(3).map_err(at(Stage::Start))?;
        process::change_directory(&prepared.directory).map_err(at(Stage::Directory))?;
        process::reset_signals().map_err(at(Stage::Start))?;
        // Here and not before the fork: what the program runs out of, `init` has.
        for limit in &prepared.limits {
            credentials::limit_resource(limit.resource, limit.value).map_err(at(Stage::Limits))?;
        }
        let rules = prepared.rules.as_ref();
        let entered = rules.map_or(Ok(()), Ruleset::enter);
        entered.map_err(at(Stage::Landlock))?;
        if prepared.fenced {
            // No namespace ends it with `init`, should someone else end that.
            credentials::die_with_parent().map_err(at(Stage::Rights))?;
        }
        // A judge makes calls itself, and none of them twice.
        let filter = &prepared.filter;
        let listener = match prepared.heard {
            true => seccomp::install_with_listener(filter, prepared.fenced, "seccomp").map(Some),
            false => seccomp::install(filter, "seccomp").map(|()| None),
        };
        let listener = listener.map_err(at(Stage::Filter))?;
        let carried = listener.as_ref().map(AsFd::as_fd);
        let sent = socket::send(tell.as_fd(), LISTENER, carried.as_slice());
        sent.map_err(at(Stage::Filter))?;
        match socket::receive(tell.as_fd(), &mut [0; 1]).map_err(at(Stage::Start))? {
            (0, _) => Err(at(Stage::Start)(io::ErrorKind::UnexpectedEof.into())),
            _ => Ok(()),
        }
    };
    match before_exec() {
        Err(failed) => failed,
        Ok(()) => (EXEC, prepared.program.execute()),
    }
}

/// The stage of the execution itself: everything before it has succeeded.
const EXEC: Stage = Stage::Start;

/// The message that lets the program begin.
const GO: &[u8] = b"g";

/// The message that carries the listener, if there is one.
const LISTENER: &[u8] = b"l";

const SIGTTOU: i32 = 22;

/// Reads the messages of the program's process, which end once it is executed.
fn wait_for_exec(told: &OwnedFd, pid: u32, heard: bool) -> Result<Started, Failure> {
    let mut message = [0_u8; 5];
    let mut listener = None;
    let mut receive = || socket::receive(told.as_fd(), &mut message).at(Stage::Start);
    let (mut got, mut carried) = receive()?;
    if got == LISTENER.len() {
        listener = carried.pop();
        (got, _) = receive()?;
    }
    if got == 0 {
        let lost = || io::Error::from(io::ErrorKind::UnexpectedEof);
        if listener.is_some() != heard {
            return Err(lost()).at(Stage::Filter);
        }
        return Ok(Started::Running(pid, listener));
    }
    let [stage, number @ ..] = message;
    let error = i32::from_le_bytes(number);
    if stage == EXEC as u8 {
        return Ok(Started::NotExecuted(error));
    }
    let stage = Stage::from_number(stage).unwrap_or(Stage::Start);
    Err(io::Error::from_raw_os_error(error)).at(stage)
}
