//! The launcher: one frozen description in, one sandbox out.
//!
//! The launcher is started from a sealed memfd with one control socket to the host side and nothing
//! else. Until it has a description it can stand by, and create launchers like itself, each with a
//! socket of its own: it never holds anything of any sandbox. One message brings the sealed
//! description, the control socket for `init` and the socket for the exec server. It creates the
//! namespaces, maps ids, lets its child go on as `init` without another exec, and waits. When the
//! host side is gone, it ends the sandbox and removes what the host side cannot remove any more.
//!
//! This crate must never know policy, HTTP or secrets. Start reading at [`main`].

mod ahead;
mod confine;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use atoll_frame::{Funnel, Identity, Report, SPEC_BYTES_MAX, SandboxSpec, Stage};
use atoll_init::{Failure, Inheritance, filter, report_failure};
use atoll_sys::descriptor;
use atoll_sys::funnel;
use atoll_sys::memory::{self, Erasing};
use atoll_sys::process::{self, Change, Child, Namespaces, Side};
use atoll_sys::{credentials, socket};

use ahead::{Ahead, Holder, own_network};
use rustix::process::{getegid, geteuid};

/// The allocator that erases freed memory: whoever takes this process or `init` over finds no
/// description of the sandbox.
#[global_allocator]
static ALLOCATOR: Erasing = Erasing;

const LINE: i32 = 3;
const FIRST_FOREIGN: u32 = 4;

/// The port at which outbound connections arrive: no program in the sandbox can have it.
const FUNNEL_PORT: u16 = 15001;

const SIGKILL: i32 = 9;
const SIGCHLD: i32 = 17;
const EIO: u8 = 5;
const CLONE_NEWUSER: i32 = 0x1000_0000;

fn main() {
    memory::set_erasing(true);
    // Without its line there is nobody to tell.
    let Ok(mut line) = descriptor::inherited(LINE) else {
        process::exit_now(1)
    };
    let launched = at(Stage::Description, descriptor::close_from(FIRST_FOREIGN))
        .and_then(|()| at(Stage::Description, process::set_name(c"atoll-jail")))
        .map(|()| filter::make_usual())
        .and_then(|()| at(Stage::Description, stand_by(&mut line)))
        .and_then(|described| launch(&line, described));
    if let Err(failure) = launched {
        report_failure(line.as_fd(), &failure);
        process::exit_now(1);
    }
}

fn at<T>(stage: Stage, result: io::Result<T>) -> Result<T, Failure> {
    result.map_err(|error| Failure {
        stage,
        error,
        detail: Vec::new(),
    })
}

fn launch(line: &OwnedFd, described: Described) -> Result<(), Failure> {
    let Some((spec, control, requests, mut ahead)) = described else {
        // The host side has changed its mind: nothing is kept.
        process::exit_now(0)
    };
    let directories = spec.cgroup_directories.clone();
    let (fenced, landlock, identity) = (spec.fenced, spec.landlock_version, spec.identity);
    if fenced {
        at(Stage::Landlock, confine::reach_only_below(landlock))?;
        // For when the first process is ended by someone else: what it leaves comes here.
        at(Stage::Start, atoll_init::become_reaper())?;
    }
    at(Stage::Ids, ahead.hold_ids_of(spec.identity, spec.nesting))?;
    if !is_told_to_go(line)? {
        // The host side is gone, perhaps in the middle of making these.
        remove_groups(&directories);
        process::exit_now(0)
    }
    let made = make(line, spec, ahead, control, requests).and_then(|(child, go)| {
        if let Err(failure) = confine::only_wait(&directories, landlock, fenced, identity) {
            end(&child);
            return Err(failure);
        }
        #[cfg(feature = "without_defences")]
        if let Some(detail) = atoll_sys::takeover::act("jail") {
            let report = Report::Failed {
                stage: Stage::Rights,
                error: 0,
                detail,
            };
            let _ = socket::send(line.as_fd(), &report.to_bytes(), &[]);
        }
        let report = Report::Started { pid: child.pid };
        // A host side that is gone is found so by the wait.
        let _ = socket::send(line.as_fd(), &report.to_bytes(), &[]);
        // Open until the end: by it `init` sees that this process is there.
        at(Stage::Start, wait(line, &child, fenced, go))
    });
    remove_groups(&directories);
    made
}

/// The host side's message: the description, the control socket of `init`, the socket of the exec
/// server; with what was prewarmed for them. `None` if the host side left without a description.
type Described = Option<(SandboxSpec, OwnedFd, OwnedFd, Ahead)>;

/// The message that asks to prewarm for root's sandboxes: for the launcher that gets the socket
/// which comes with it, or without one for this launcher.
const AHEAD: u8 = b'a';

/// Waits for a description. In the meantime every socket that arrives gets a launcher of its own,
/// which goes on from here with that socket; the sender gets its pid.
fn stand_by(line: &mut OwnedFd) -> io::Result<Described> {
    let mut ahead = Ahead::default();
    // Told of the ends of launchers, as soon as there is one.
    let mut ends: Option<OwnedFd> = None;
    loop {
        if let Some(ends) = &ends {
            let on = [Some(line.as_fd()), Some(ends.as_fd())];
            let [asked, ended] = descriptor::wait_readable(on, None)?;
            if ended {
                while process::next_signal(ends.as_fd())?.is_some() {}
                while process::wait(None, false).is_ok_and(|waited| waited.is_some()) {}
            }
            if !asked {
                continue;
            }
        }
        let mut word = [0_u8; 1];
        let (got, mut descriptors) = socket::receive(line.as_fd(), &mut word)?;
        if got == 0 {
            return Ok(None);
        }
        if descriptors.len() > 1 {
            return described(descriptors, ahead);
        }
        if descriptors.is_empty() && word == [AHEAD] {
            ahead = Ahead::make();
            continue;
        }
        let further = descriptors.pop().ok_or(io::ErrorKind::InvalidData)?;
        if ahead.holder.is_some() {
            // Others would have what is for this one's sandbox.
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if ends.is_none() {
            ends = Some(process::signals_as_descriptor(&[SIGCHLD])?);
        }
        let report = match process::divide(Namespaces::NONE, None) {
            Ok(Side::Child) => {
                (*line, ends) = (further, None);
                if word == [AHEAD] {
                    ahead = Ahead::make();
                }
                continue;
            }
            Ok(Side::Parent(child)) => Report::Started { pid: child.pid },
            Err(error) => Report::Failed {
                stage: Stage::Start,
                error: error.raw_os_error().unwrap_or(EIO.into()),
                detail: Vec::new(),
            },
        };
        socket::send(line.as_fd(), &report.to_bytes(), &[])?;
    }
}

/// Reads the host side's message.
fn described(descriptors: Vec<OwnedFd>, ahead: Ahead) -> io::Result<Described> {
    let Ok([description, control, requests]) = <[OwnedFd; 3]>::try_from(descriptors) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    if !descriptor::is_sealed(description.as_fd())? {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let bytes = descriptor::read_from_start(description.as_fd(), SPEC_BYTES_MAX)?;
    let spec = SandboxSpec::from_bytes(&bytes).map_err(io::Error::other)?;
    if spec.fenced && ahead.network.is_some() {
        // A fence's program has the network of its caller, which this process has left.
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(Some((spec, control, requests, ahead)))
}

/// Returns whether the host side has created the cgroups, which it does in the meantime. They are
/// named in the description, so that some process is left to remove them whatever happens to the
/// host side.
fn is_told_to_go(line: &OwnedFd) -> Result<bool, Failure> {
    let mut word = [0_u8; 1];
    let (got, _) = at(
        Stage::ControlGroups,
        socket::receive(line.as_fd(), &mut word),
    )?;
    Ok(got > 0)
}

/// Creates the sandbox's first process, which goes on in `init`.
fn make(
    line: &OwnedFd,
    spec: SandboxSpec,
    ahead: Ahead,
    control: OwnedFd,
    requests: OwnedFd,
) -> Result<(Child, OwnedFd), Failure> {
    let namespaces = match spec.identity {
        _ if spec.fenced => Namespaces::NONE,
        Identity::Shifted { .. } | Identity::Unmapped { .. } => Namespaces::ALL_BUT_USER,
        Identity::Own { .. } | Identity::Root { .. } => Namespaces::ALL,
    };
    let cgroup = match &spec.cgroup_unified {
        None => None,
        Some(path) => Some(at(Stage::ControlGroups, open_path(path))?),
    };
    let (ready, go) = at(Stage::Start, socket::pair())?;
    let (identity, fenced) = (spec.identity, spec.fenced);
    let (funnel, inward) = (spec.funnel, spec.inward);
    // In a fence the first process itself hands out what is meant for the outside.
    let outward = (fenced && funnel.is_some()).then(socket::pair).transpose();
    let (outward, far) = at(Stage::Network, outward)?.unzip();
    let divided = process::divide(namespaces, cgroup.as_ref().map(AsFd::as_fd));
    match at(Stage::Namespaces, divided)? {
        Side::Child => {
            drop((go, cgroup, ahead, far));
            let inside = |ids, launcher| Inheritance {
                spec,
                control,
                requests,
                ids,
                launcher,
                outward,
            };
            begin(line, ready, fenced, inside)
        }
        Side::Parent(child) => {
            // The child's ends: held here, they would never show their end.
            drop((ready, control, requests, outward));
            let equipped = if fenced {
                release(line, &go, far)
            } else {
                equip(line, &child, identity, ahead, &go, (funnel, inward))
            };
            match equipped {
                Ok(()) => Ok((child, go)),
                Err(failure) => {
                    end(&child);
                    Err(failure)
                }
            }
        }
    }
}

fn end(child: &Child) {
    let _ = process::signal(child.descriptor.as_fd(), SIGKILL);
    let _ = process::wait(Some(child.pid), true);
}

/// Lets a first process begin that needs nothing from the launcher. The host side gets the other
/// end of the socket for outbound connections.
fn release(line: &OwnedFd, go: &OwnedFd, far: Option<OwnedFd>) -> Result<(), Failure> {
    at(Stage::Rights, credentials::forbid_inspection())?;
    if let Some(far) = far {
        let report = Report::Network.to_bytes();
        let told = socket::send(line.as_fd(), &report, &[far.as_fd()]);
        at(Stage::Network, told)?;
    }
    // That it is gone is no failure of this side's.
    let _ = socket::send(go.as_fd(), b"g", &[]);
    Ok(())
}

/// Gives the first process its ids and its network. If that process is gone, it is no failure of
/// this side: it has reported why.
fn equip(
    line: &OwnedFd,
    child: &Child,
    identity: Identity,
    ahead: Ahead,
    go: &OwnedFd,
    leads: Leads,
) -> Result<(), Failure> {
    // The user namespace that the network is to belong to, if not this one.
    let mut owner = None;
    let mapped = match identity {
        Identity::Own { uid, gid } => {
            // To the kernel they are this process's own, which alone it may map.
            let own = (geteuid().as_raw(), getegid().as_raw());
            Some(map_own_ids(child.pid, [uid, own.0], [gid, own.1]))
        }
        Identity::Root { uid, gid, ranged } if !ranged => {
            Some(map_own_ids(child.pid, [0, uid], [0, gid]))
        }
        Identity::Root { .. } => Some(let_map_ids(line, child.pid)),
        Identity::Shifted { .. } | Identity::Unmapped { .. } => None,
    };
    if let Some(mapped) = mapped {
        at(Stage::Ids, mapped)?;
        let path = format!("/proc/{}/ns/user", child.pid);
        owner = Some(at(Stage::Namespaces, open_path(path.as_bytes()))?);
    }
    let ids = at(Stage::Ids, ahead.holder.map(Holder::finish).transpose())?;
    // Not earlier: the id map of a process that cannot be inspected is
    // written by nobody but root. Nothing hostile runs yet.
    at(Stage::Rights, credentials::forbid_inspection())?;
    let with: Vec<BorrowedFd<'_>> = ids.iter().map(AsFd::as_fd).collect();
    let _ = socket::send(go.as_fd(), b"g", &with);
    at(
        Stage::Namespaces,
        match (owner, ahead.network) {
            (Some(owner), _) => make_network(line, &owner, go, leads),
            // The rest of this process's work needs no network.
            (None, made) => made
                .map_or_else(own_network, Ok)
                .and_then(|network| lead(line, leads).map(|()| network))
                .and_then(|network| give_network(&network, go)),
        },
    )
}

/// Does the child's first steps: it must not outlive the launcher, and waits until its ids are
/// mapped or arrive as a namespace. A launcher that died in the meantime has closed its socket.
fn begin(
    line: &OwnedFd,
    ready: OwnedFd,
    fenced: bool,
    inside: impl FnOnce(Option<OwnedFd>, OwnedFd) -> Inheritance,
) -> ! {
    let started = || -> io::Result<Option<OwnedFd>> {
        // In a fence it ends others first, and notices by the line.
        if !fenced {
            credentials::die_with_parent()?;
        }
        let mut word = [0_u8; 1];
        let (got, mut ids) = socket::receive(ready.as_fd(), &mut word)?;
        match got {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => descriptor::close(line.as_fd()).map(|()| ids.pop()),
        }
    };
    match at(Stage::Start, started()) {
        Ok(ids) => atoll_init::run(inside(ids, ready)),
        Err(failure) => {
            report_failure(inside(None, ready).control.as_fd(), &failure);
            process::exit_now(1)
        }
    }
}

/// The outbound funnel of a network, and the number of inbound sockets of each family.
type Leads = (Option<Funnel>, u8);

/// Makes the network of this process lead to listeners, creates sockets in it, and hands all of
/// them to the host side. No process in the sandbox has them, or the right to change the funnel.
fn lead(line: &OwnedFd, (outward, inward): Leads) -> io::Result<()> {
    let mut sockets = funnel::inward(inward.into())?;
    if let Some(outward) = outward {
        let made = funnel::Funnel {
            port: FUNNEL_PORT,
            connections_max: outward.connections_max,
            host_ports: outward.host_ports,
        };
        funnel::make(made)?;
        sockets.extend(funnel::listeners(made)?);
    }
    if sockets.is_empty() {
        return Ok(());
    }
    let with: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    socket::send(line.as_fd(), &Report::Network.to_bytes(), &with)
}

/// Sends the network to the first process. If that is gone, it is no failure of this side: it has
/// reported why.
fn give_network(network: &OwnedFd, go: &OwnedFd) -> io::Result<()> {
    let _ = socket::send(go.as_fd(), b"n", &[network.as_fd()]);
    Ok(())
}

/// Creates the sandbox's network while the first process builds the tree. A process that ends right
/// after does it: it has to join the network's owner, and a launcher must not have rights there.
fn make_network(line: &OwnedFd, owner: &OwnedFd, go: &OwnedFd, leads: Leads) -> io::Result<()> {
    let make = || -> io::Result<()> {
        credentials::join_namespace(owner.as_fd(), CLONE_NEWUSER)?;
        let network = own_network()?;
        lead(line, leads)?;
        give_network(&network, go)
    };
    let child = match process::divide(Namespaces::NONE, None)? {
        Side::Parent(child) => child,
        Side::Child => {
            let number = |error: io::Error| error.raw_os_error().and_then(|n| u8::try_from(n).ok());
            process::exit_now(make().map_or_else(|error| number(error).unwrap_or(EIO), |()| 0))
        }
    };
    match process::wait(Some(child.pid), true)?.map(|waited| waited.change) {
        Some(Change::Exited(0)) => Ok(()),
        Some(Change::Exited(number)) => Err(io::Error::from_raw_os_error(number.into())),
        _ => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Maps the caller's own ids and nothing else (user_namespaces(7)), each as its number in the
/// sandbox and on the host.
fn map_own_ids(pid: u32, uid: [u32; 2], gid: [u32; 2]) -> io::Result<()> {
    let map = |[inside, outside]: [u32; 2]| format!("{inside} {outside} 1");
    fs::write(format!("/proc/{pid}/uid_map"), map(uid))?;
    fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
    fs::write(format!("/proc/{pid}/gid_map"), map(gid))
}

/// Has the host side map ids: it executes the programs that may map ids other than one's own. A
/// descriptor that comes with the answer is kept open until this process ends, after the sandbox:
/// it locks the sandbox's files against cleaning up.
fn let_map_ids(line: &OwnedFd, pid: u32) -> io::Result<()> {
    socket::send(line.as_fd(), &Report::Started { pid }.to_bytes(), &[])?;
    match socket::receive(line.as_fd(), &mut [0_u8; 1])? {
        (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
        (_, lock) => {
            std::mem::forget(lock);
            Ok(())
        }
    }
}

fn open_path(path: &[u8]) -> io::Result<OwnedFd> {
    File::open(OsStr::from_bytes(path)).map(OwnedFd::from)
}

/// Waits for the end of the sandbox; ends it when the host side is gone.
fn wait(line: &OwnedFd, child: &Child, fenced: bool, go: OwnedFd) -> io::Result<()> {
    let host_is_there = wait_for_either(line.as_fd(), child.descriptor.as_fd())?;
    if !host_is_there && process::signal(child.descriptor.as_fd(), SIGKILL).is_err() {
        // It has not become the user yet that this process is: it ends by the line.
        drop(go);
    }
    let waited = process::wait(Some(child.pid), true)?;
    if fenced {
        atoll_init::end_descendants();
    }
    if host_is_there && let Some(waited) = waited {
        let (cpu_us, memory_peak_bytes) = (waited.cpu_us, waited.memory_peak_bytes);
        let report = Report::Gone {
            cpu_us,
            memory_peak_bytes,
        };
        // The host side may be gone since; then the groups are ours.
        if socket::send(line.as_fd(), &report.to_bytes(), &[]).is_ok() {
            let mut rest = [0_u8; 1];
            let _ = socket::receive(line.as_fd(), &mut rest);
        }
    }
    Ok(())
}

/// Waits for the sandbox or the host side; returns whether the sandbox ended first.
fn wait_for_either(line: BorrowedFd<'_>, child: BorrowedFd<'_>) -> io::Result<bool> {
    loop {
        match descriptor::wait_readable([Some(child), Some(line)], None)? {
            [true, _] => return Ok(true),
            [false, true] => return Ok(false),
            [false, false] => {}
        }
    }
}

/// Removes remaining cgroups. The host side does so itself after it has read their figures; this is
/// for when it could not.
fn remove_groups(directories: &[Vec<u8>]) {
    const TRIES: u32 = 1_000;
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(2);
    for directory in directories {
        let path = OsStr::from_bytes(directory);
        for _ in 0..TRIES {
            match fs::remove_dir(path) {
                // A group whose last process has just gone is busy for a moment.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(PAUSE);
                }
                _ => break,
            }
        }
    }
}
