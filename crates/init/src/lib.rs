//! The first process of a sandbox.
//!
//! As a library of `jail`, it runs in the launcher's child, with nothing but its own
//! [`SandboxSpec`]. It builds the file tree, drops every right, starts the exec server behind
//! Landlock and the system call filter, then stays as process 1: it reaps, forwards signals, watches
//! the limits that no cgroup enforces, and ends everything when the host side ends, or a run's
//! program. The exec server, a process with a program's rights, starts programs on request.
//!
//! The crate must never know policy, and knows of the host only what its spec names. Start reading
//! at [`run`].

pub use atoll_fence::{become_reaper, end_descendants};
pub use namespaces::namespace_limits;

mod execs;
mod fenced;
pub mod filter;
mod gate;
mod memory;
mod namespaces;
mod server;
mod supervise;
mod tree;

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use atoll_frame::{Identity, Report, SandboxSpec, Stage};
use atoll_sys::{credentials, descriptor, mount, socket};

/// The reason that a sandbox could not be made.
#[derive(Debug)]
pub struct Failure {
    /// The stage that failed.
    pub stage: Stage,
    /// The kernel's error.
    pub error: io::Error,
    /// The path or value concerned.
    pub detail: Vec<u8>,
}

/// Attaches a stage to a kernel error.
pub(crate) trait At<T> {
    fn at(self, stage: Stage) -> Result<T, Failure>;
    fn at_path(self, stage: Stage, path: &[u8]) -> Result<T, Failure>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, stage: Stage) -> Result<T, Failure> {
        self.at_path(stage, b"")
    }

    fn at_path(self, stage: Stage, path: &[u8]) -> Result<T, Failure> {
        self.map_err(|error| Failure {
            stage,
            error,
            detail: path.to_vec(),
        })
    }
}

/// The launcher's handover to the first process.
#[derive(Debug)]
pub struct Inheritance {
    /// The sandbox to build.
    pub spec: SandboxSpec,
    /// The control socket to the host side.
    pub control: OwnedFd,
    /// The socket on which the host side asks the exec server.
    pub requests: OwnedFd,
    /// For a shifted identity: the user namespace to join last.
    pub ids: Option<OwnedFd>,
    /// The socket on which the launcher sends the network namespace.
    pub launcher: OwnedFd,
    /// In a fence: the socket that hands out outbound connections, if any are allowed.
    pub outward: Option<OwnedFd>,
}

/// Builds the sandbox around this process, and supervises it to its end. Never returns.
pub fn run(inheritance: Inheritance) -> ! {
    let Inheritance {
        mut spec,
        control,
        requests,
        ids,
        launcher,
        outward,
    } = inheritance;
    let fenced = spec.fenced;
    let built = if fenced {
        fenced::enclose(&spec).map(|()| Some(launcher))
    } else {
        build(&spec, ids, launcher).map(|()| None)
    };
    spec.forget_host();
    let status = built.and_then(|launcher| {
        let watched = launcher.as_ref().map(AsFd::as_fd);
        supervise::supervise(spec, &control, requests, watched, outward)
    });
    if fenced {
        end_descendants();
    }
    if let Err(failure) = status {
        report_failure(control.as_fd(), &failure);
    }
    atoll_sys::process::exit_now(0)
}

/// Reports to the host side why there is no sandbox.
pub fn report_failure(line: BorrowedFd<'_>, failure: &Failure) {
    let report = Report::Failed {
        stage: failure.stage,
        error: failure.error.raw_os_error().unwrap_or(ECANCELED),
        detail: failure.detail.clone(),
    };
    // Nobody is left to tell when this fails: the host side sees the line close.
    let _ = socket::send(line, &report.to_bytes(), &[]);
}

/// Builds everything before the program: from a process with rights over fresh namespaces to one
/// without any right.
fn build(spec: &SandboxSpec, ids: Option<OwnedFd>, launcher: OwnedFd) -> Result<(), Failure> {
    join_groups(spec)?;
    atoll_sys::process::set_name(c"atoll-init").at(Stage::Start)?;
    // Only now, so that the namespace's root is the group just joined.
    credentials::leave_namespaces(CLONE_NEWCGROUP).at(Stage::Namespaces)?;
    credentials::set_host_name(&spec.host_name).at(Stage::Namespaces)?;
    mount::make_all_private().at(Stage::Root)?;
    let root = tree::build(spec, ids.as_ref().map(AsFd::as_fd))?;
    mount::become_root(&root).at(Stage::Root)?;
    drop(root);
    join_network(&launcher).at(Stage::Network)?;
    if let Some(ids) = ids {
        credentials::join_namespace(ids.as_fd(), CLONE_NEWUSER).at(Stage::Ids)?;
    }
    match spec.identity {
        Identity::Shifted { uid, gid, .. } => credentials::become_user(uid, gid),
        Identity::Unmapped { uid, gid } => credentials::become_user_by_capabilities(uid, gid),
        Identity::Root { ranged: true, .. } => credentials::become_user(0, 0),
        // With one id mapped, groups cannot be left (user_namespaces(7)).
        Identity::Root { .. } | Identity::Own { .. } => Ok(()),
    }
    .at(Stage::Ids)?;
    credentials::drop_rights(spec.capabilities).at(Stage::Rights)?;
    // A change of ids resets both, so they come last.
    credentials::forbid_inspection().at(Stage::Rights)?;
    credentials::die_with_parent().at(Stage::Rights)?;
    is_launcher_there(&launcher).at(Stage::Start)
}

/// Joins the cgroups of version 1: joining costs a fraction of being moved. Without cgroups of
/// either version, lowers the sandbox's weight itself.
pub(crate) fn join_groups(spec: &SandboxSpec) -> Result<(), Failure> {
    if spec.cgroup_tasks.is_empty() && spec.cgroup_unified.is_none() {
        atoll_sys::process::yield_to_others();
    }
    for tasks in &spec.cgroup_tasks {
        std::fs::write(OsStr::from_bytes(tasks), "0").at_path(Stage::ControlGroups, tasks)?;
    }
    Ok(())
}

/// Checks that the launcher is still there: if it ended before its end would have ended this
/// process, its socket is closed.
fn is_launcher_there(launcher: &OwnedFd) -> io::Result<()> {
    match descriptor::wait_readable([Some(launcher.as_fd())], Some(0))? {
        [true] => Err(io::ErrorKind::BrokenPipe.into()),
        [false] => Ok(()),
    }
}

/// Leaves the host's network for the one that the launcher has made in the meantime. If the
/// launcher has failed, it has reported why, and its socket is closed.
fn join_network(launcher: &OwnedFd) -> io::Result<()> {
    let mut word = [0_u8; 1];
    let (_, mut descriptors) = socket::receive(launcher.as_fd(), &mut word)?;
    match descriptors.pop() {
        Some(network) => credentials::join_namespace(network.as_fd(), CLONE_NEWNET),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The error number for a failure without a kernel error: the other side is gone.
const ECANCELED: i32 = 125;
pub(crate) const SIGTTOU: i32 = 22;
pub(crate) const O_RDWR: i32 = 2;
pub(crate) const O_NOCTTY: i32 = 0o400;
const CLONE_NEWNET: i32 = 0x4000_0000;
const CLONE_NEWCGROUP: i32 = 0x0200_0000;
const CLONE_NEWUSER: i32 = 0x1000_0000;

/// Returns a C string; the frame has refused NUL bytes already.
pub(crate) fn text(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests;
