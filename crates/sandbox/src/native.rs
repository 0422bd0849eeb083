//! The native backend: namespaces, copy-on-write, Landlock, seccomp, control groups.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use atoll_frame::{
    ExecId, ExecSpec, ExecTerminal, Funnel, INWARD_MAX, Identity, MESSAGE_BYTES_MAX, NEST_AS_ROOT,
    Nesting, Operation, Permission, ROOT_CAPABILITIES, Report, ResourceLimit, Room, SPEC_BYTES_MAX,
    SandboxSpec, Terminal, Watch,
};
use atoll_model::network::{CONNECTIONS_MAX, SANDBOX_NAME};
use atoll_model::{Boundary, Call, LimitKey, Limits, RESIDENT, WorkspaceMode};
use atoll_policy::Grant;
use atoll_sys::{descriptor, socket};

use crate::disk::DiskWatch;
use crate::enforcement::{Swap, enforcement};
use crate::exec::{ExecServer, PreparedExec, mode_mask};
use crate::groups::{Groups, SERVER_PROCESSES};
use crate::held::Held;
use crate::host_ports::host_ports;
use crate::launcher::{Launcher, Starting};
use crate::placement::IDS;
use crate::reports::last_words;
use crate::session::Assembled;
use crate::{
    FurtherIds, Host, Placement, Running, SandboxError, Size, WorkspacePlace, fence, tree,
};

/// The inputs of the native backend besides the grant.
#[derive(Debug)]
pub struct Native<'a> {
    /// The properties of the host.
    pub host: &'a Host,
    /// The support for control groups.
    pub held: &'a Held,
    /// The places of the writable parts.
    pub placement: &'a Placement,
    /// The terminal's size, if the program gets one.
    pub terminal: Option<Size>,
    /// The limits that were explicitly asked for: these are enforced, or nothing starts.
    /// Atoll's own defaults are enforced as far as the host can, and recorded accordingly.
    pub asked_for: &'a [LimitKey],
}

const RLIMIT_CORE: u32 = 4;
const RLIMIT_NPROC: u32 = 6;
const RLIMIT_NOFILE: u32 = 7;

/// The number of sockets for inward connections of a run that publishes nothing at the start.
const INWARD_FOR_LATER: u8 = 16;

/// The host name in every sandbox.
const HOST_NAME: &[u8] = SANDBOX_NAME.as_bytes();

/// Starts to build the sandbox of a call within its grant: all but its program, which starts
/// with [`Assembled::start`]. Returns while it is being built; errors of that are reported by
/// [`Running::attend`].
///
/// # Errors
/// [`SandboxError`]; nothing is left behind.
pub fn assemble(
    native: &Native<'_>,
    starting: Starting,
    grant: &Grant,
    call: &Call,
) -> Result<Assembled, SandboxError> {
    let boundary = grant.boundary();
    let limits = &boundary.limits;
    let groups = Groups::plan(native.held, call.run());
    match launch(native, starting, boundary, call, groups.as_ref()) {
        Ok(Launched {
            launcher,
            control,
            server,
            first,
        }) => {
            let sandbox = Running {
                disk: disk_watch(native.placement, call.workspace(), limits)
                    .and_volumes(&boundary.volumes)
                    .and_processes_of(launcher.pid, groups.as_ref().map(Groups::directory)),
                launcher,
                control,
                server,
                prepared: first,
                lives: call.lives(),
                first: None,
                enforcement: enforcement(groups.as_ref(), native),
                groups,
                limits: limits.clone(),
            };
            Ok(Assembled::new(call.clone(), boundary.clone(), sandbox))
        }
        Err(error) => {
            if let Some(groups) = groups {
                groups.remove();
            }
            Err(error)
        }
    }
}

/// A launcher at work, with the host's ends.
struct Launched {
    launcher: Launcher,
    control: OwnedFd,
    server: ExecServer,
    /// The first exec, unless the sandbox begins without one.
    first: Option<PreparedExec>,
}

fn launch(
    native: &Native<'_>,
    starting: Starting,
    boundary: &Boundary,
    call: &Call,
    groups: Option<&Groups>,
) -> Result<Launched, SandboxError> {
    let (spec, first) = describe(native, boundary, call, groups)?;
    #[cfg(feature = "without_defences")]
    let spec = crate::without::leave_out(spec);
    let bytes = spec.to_bytes();
    if bytes.len() > SPEC_BYTES_MAX {
        return Err(SandboxError::TooLarge(bytes.len()));
    }
    let launcher = match native.placement.fence {
        Some(_) => starting.ready_for_fence()?,
        None => starting.ready()?,
    };
    // Before the launcher has children of a sandbox, who would stay behind.
    let unusable = SandboxError::host("the delegated control group cannot be used");
    let left = groups.map_or(Ok(()), |groups| groups.leave(launcher.processes()));
    let left = left.map_err(unusable);
    let send = || -> std::io::Result<(OwnedFd, OwnedFd)> {
        let description = descriptor::sealed_memory(c"atoll-spec", &bytes)?;
        let (control, control_inside) = socket::pair()?;
        let (requests, requests_inside) = socket::pair()?;
        let sent = [&description, &control_inside, &requests_inside];
        socket::send(launcher.line.as_fd(), b"s", &sent.map(AsFd::as_fd))?;
        Ok((control, requests))
    };
    let sent = left
        .and_then(|()| send().map_err(SandboxError::host("the sandbox's lines could not be made")));
    let sent = sent.and_then(|(control, requests)| {
        let owner = other_user(spec.identity);
        let has_users = boundary.root && has_users(spec.identity);
        let server = ExecServer::new(requests, owner, spec.fenced, has_users, &first);
        let first = match call.lives() {
            true => None,
            false => Some(server.prepare_spec(ExecId::FIRST, &first, native.terminal, None)?),
        };
        Ok((control, server, first))
    });
    // Only now that the launcher knows of them: when this process dies in
    // between, the launcher removes what there is.
    let begun = sent.and_then(|ends| {
        if let Some(groups) = groups {
            groups
                .make(&boundary.limits)
                .map_err(SandboxError::host("the control group could not be made"))?;
        }
        refuse_unheld_swap(native, &boundary.limits, groups)?;
        socket::send(launcher.line.as_fd(), b"g", &[])
            .map_err(SandboxError::host("the launcher is gone"))?;
        if let Some(further) = &native.placement.further {
            map_ids(&launcher, further)?;
        }
        Ok(ends)
    });
    match begun {
        Ok((control, server, first)) => Ok(Launched {
            launcher,
            control,
            server,
            first,
        }),
        Err(error) => {
            // That nobody listens any more is told by what was said before that.
            let told = last_words(&launcher.line);
            drop(launcher.let_go());
            Err(told.unwrap_or(error))
        }
    }
}

/// Returns the program's user and group in the kernel, if these are not the caller's.
fn other_user(identity: Identity) -> Option<(u32, u32)> {
    match identity {
        Identity::Own { .. } | Identity::Root { .. } => None,
        Identity::Shifted { uid, gid, base, .. } => Some((base + uid, base + gid)),
        Identity::Unmapped { uid, gid } => Some((uid, gid)),
    }
}

/// Maps a user's subordinate ids, once the launcher has made the process for them, and passes
/// on the mark that it holds until the sandbox is gone.
fn map_ids(launcher: &Launcher, further: &FurtherIds) -> Result<(), SandboxError> {
    let map = || -> std::io::Result<()> {
        let mut buffer = [0_u8; MESSAGE_BYTES_MAX];
        let (got, _) = socket::receive(launcher.line.as_fd(), &mut buffer)?;
        let message = buffer.get(..got).unwrap_or_default();
        match Report::from_bytes(message) {
            Ok(Report::Started { pid }) => further.subordinate.map(pid)?,
            _ => return Err(std::io::Error::other("the launcher has made no process")),
        }
        socket::send(launcher.line.as_fd(), b"m", &[further.mark.as_fd()])
    };
    map().map_err(SandboxError::host("further ids cannot be mapped"))
}

/// The parts of the host that a program sees.
struct Seen {
    host_name: Vec<u8>,
    operations: Vec<Operation>,
    permissions: Vec<Permission>,
    environment: Vec<(OsString, OsString)>,
}

fn seen(native: &Native<'_>, boundary: &Boundary, call: &Call) -> Result<Seen, SandboxError> {
    let (placement, workspace) = (native.placement, call.workspace());
    if let Some(place) = &placement.fence {
        if !matches!(placement.workspace, WorkspacePlace::ReadOnly) {
            // The checkpoint, to which undo goes back, does not reach into mounts.
            tree::refuse_mounts_within(workspace, native.host)?;
        }
        fence::furnish(boundary, native.placement, place)?;
        return Ok(Seen {
            host_name: Vec::new(),
            operations: Vec::new(),
            permissions: fence::permissions(boundary, workspace, placement, place),
            environment: fence::environment(boundary, placement, place),
        });
    }
    let plan = tree::plan(boundary, workspace, placement, native.host)?;
    Ok(Seen {
        host_name: HOST_NAME.to_vec(),
        operations: plan.operations,
        permissions: plan.permissions,
        environment: boundary.environment.clone(),
    })
}

fn describe(
    native: &Native<'_>,
    boundary: &Boundary,
    call: &Call,
    groups: Option<&Groups>,
) -> Result<(SandboxSpec, ExecSpec), SandboxError> {
    let seen = seen(native, boundary, call)?;
    let path_bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
    let identity = identity(native, call, boundary)?;
    let mut capabilities = if boundary.root { ROOT_CAPABILITIES } else { 0 };
    if boundary.nesting && is_zero(identity) {
        capabilities |= NEST_AS_ROOT;
    }
    let sandbox = SandboxSpec {
        identity,
        capabilities,
        fenced: native.placement.fence.is_some(),
        nesting: nesting(native, boundary),
        host_name: seen.host_name,
        cgroup_tasks: groups
            .map(|groups| groups.tasks().iter().map(path_bytes).collect())
            .unwrap_or_default(),
        cgroup_unified: groups
            .and_then(Groups::unified)
            .map(|path| path.as_os_str().as_bytes().to_vec()),
        cgroup_directories: groups
            .map(|groups| groups.directories().iter().map(path_bytes).collect())
            .unwrap_or_default(),
        memory: room(&boundary.limits),
        operations: seen.operations,
        // Under rules about files nothing could be mounted.
        permissions: match boundary.nesting {
            true => Vec::new(),
            false => seen.permissions,
        },
        landlock_version: native.host.landlock,
        resource_limits: resource_limits(native, &boundary.limits, groups)?,
        watch: Watch {
            memory_bytes: if groups.is_some() {
                0
            } else {
                boundary.limits.memory_bytes
            },
            wall_clock_ms: boundary.limits.wall_clock.map_or(0, |limit| {
                u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)
            }),
        },
        deny_debugging: boundary.syscalls.deny_debugging,
        deny_sockets: boundary.syscalls.deny_sockets,
        // Where its files keep their owners on the host.
        deny_set_id: boundary.workspace == WorkspaceMode::Live || changes_volumes(boundary),
        deny_memory_programs: !boundary.programs.is_empty(),
        funnel: (!boundary.network.is_empty()).then_some(Funnel {
            connections_max: CONNECTIONS_MAX,
            host_ports: host_ports(&boundary.network),
        }),
        inward: inward(native, call, boundary),
        terminal: native.terminal.map(|size| Terminal {
            rows: size.rows,
            columns: size.columns,
        }),
        one_exec: !call.lives(),
    };
    let first = first_exec(native, call, &seen.environment);
    Ok((sandbox, first))
}

fn changes_volumes(boundary: &Boundary) -> bool {
    boundary.volumes.iter().any(|mount| !mount.read_only)
}

/// Returns the description of the first exec.
fn first_exec(native: &Native<'_>, call: &Call, environment: &[(OsString, OsString)]) -> ExecSpec {
    let variable =
        |(name, value): &(OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
    ExecSpec {
        terminal: match native.terminal {
            Some(_) => ExecTerminal::Session,
            None => ExecTerminal::None,
        },
        arguments: call
            .command()
            .iter()
            .map(|text| text.as_bytes().to_vec())
            .collect(),
        environment: environment.iter().map(variable).collect(),
        directory: call.directory().as_os_str().as_bytes().to_vec(),
        mode_mask: mode_mask(call.served().is_some(), std::process::id()),
        user: None,
    }
}

/// Returns the number of sockets that lead into the sandbox's network, of each family. None can
/// be made there once it runs, so ports that are published later need them too.
fn inward(native: &Native<'_>, call: &Call, boundary: &Boundary) -> u8 {
    // Into a served sandbox its file server connects.
    let is_served = call.served().is_some();
    if native.placement.fence.is_some() || boundary.syscalls.deny_sockets || is_served {
        return 0;
    }
    match boundary.network.publish.is_empty() {
        true => INWARD_FOR_LATER,
        false => INWARD_MAX,
    }
}

/// Returns the namespaces that the program may make.
fn nesting(native: &Native<'_>, boundary: &Boundary) -> Nesting {
    match boundary.nesting {
        false => Nesting::Refused,
        // What root starts has no control group that is its own: their owner is no id inside.
        true if native.placement.base.is_some() => Nesting::All,
        // A user's own may lie, or appear, anywhere beneath the group that it is in.
        true => Nesting::ButGroups,
    }
}

/// Returns the program's identity in the kernel.
fn identity(
    native: &Native<'_>,
    call: &Call,
    boundary: &Boundary,
) -> Result<Identity, SandboxError> {
    let root = boundary.root;
    let fits = |id: u32| native.placement.base.is_none() || id < IDS;
    let (uid, gid) = match call.served() {
        Some(_) if root && native.placement.base.is_some() => (0, 0),
        Some(_) if !root => (RESIDENT.uid, RESIDENT.gid),
        _ => (call.principal.uid, call.principal.gid),
    };
    if !fits(uid) || !fits(gid) {
        return Err(SandboxError::Kernel(format!(
            "ids above {IDS} cannot be shifted, and this call's are {uid} and {gid}"
        )));
    }
    Ok(match native.placement.base {
        Some(_) if native.host.unmapped && (root || boundary.nesting) => {
            return Err(SandboxError::Kernel(
                "root inside and nested sandboxes need user namespaces, and none can be made"
                    .to_owned(),
            ));
        }
        Some(base) if native.host.unmapped => Identity::Unmapped {
            uid: base + uid,
            gid: base + gid,
        },
        None if root => Identity::Root {
            uid,
            gid,
            ranged: native.placement.further.is_some(),
        },
        None => Identity::Own { uid, gid },
        Some(base) => Identity::Shifted {
            uid,
            gid,
            base,
            count: IDS,
        },
    })
}

/// Returns whether root in the sandbox can become another user.
fn has_users(identity: Identity) -> bool {
    match identity {
        Identity::Shifted { uid, .. } => uid == 0,
        Identity::Root { ranged, .. } => ranged,
        Identity::Own { .. } | Identity::Unmapped { .. } => false,
    }
}

/// Returns whether the program has the user id 0 in the sandbox.
fn is_zero(identity: Identity) -> bool {
    match identity {
        Identity::Root { .. } => true,
        Identity::Own { uid, .. } | Identity::Shifted { uid, .. } => uid == 0,
        Identity::Unmapped { .. } => false,
    }
}

fn resource_limits(
    native: &Native<'_>,
    limits: &Limits,
    groups: Option<&Groups>,
) -> Result<Vec<ResourceLimit>, SandboxError> {
    let limit = |resource: u32, value: u64| ResourceLimit { resource, value };
    let mut list = vec![
        limit(RLIMIT_CORE, 0),
        limit(RLIMIT_NOFILE, limits.open_files),
    ];
    if groups.is_none() {
        let others = match native.placement.fence {
            Some(_) => fence::tasks_of(native.host.uid),
            None => 0,
        };
        let others = others.saturating_add(SERVER_PROCESSES);
        let processes = limits.processes.saturating_add(others);
        list.push(limit(RLIMIT_NPROC, processes));
    }
    match native.held.no_cpu() {
        Some(why) if limits.cpu_millis.is_some() && !limits.dangerous_unenforced_limits => {
            Err(SandboxError::Unenforceable { limit: "cpu", why })
        }
        Some(_) | None => Ok(list),
    }
}

/// Refuses to start if a swap limit was asked for and cannot be enforced.
fn refuse_unheld_swap(
    native: &Native<'_>,
    limits: &Limits,
    groups: Option<&Groups>,
) -> Result<(), SandboxError> {
    let is_asked_for = native.asked_for.contains(&LimitKey::Swap);
    if !is_asked_for || limits.dangerous_unenforced_limits || Swap::of(groups) != Swap::NotHeld {
        return Ok(());
    }
    let why = match native.held {
        Held::Nowhere(why) => why.clone(),
        Held::Unified(_) | Held::Separate { .. } => {
            "the kernel does not count swap for control groups".to_owned()
        }
    };
    Err(SandboxError::Unenforceable { limit: "swap", why })
}

/// Returns the limits of files in memory, shared by all writable directories there.
fn room(limits: &Limits) -> Room {
    let bytes = limits.tmp_bytes;
    Room {
        bytes,
        inodes: (bytes >> 20).max(16).saturating_mul(tree::INODES_PER_MIB),
    }
}

fn disk_watch(placement: &Placement, workspace: &Path, limits: &Limits) -> DiskWatch {
    let mut written: Vec<PathBuf> = placement
        .layers
        .iter()
        .map(|layer| layer.upper.clone())
        .collect();
    match &placement.workspace {
        WorkspacePlace::Layer(layer) => written.push(layer.upper.clone()),
        WorkspacePlace::Copy(_) | WorkspacePlace::Live { .. } | WorkspacePlace::ReadOnly => {}
    }
    let outputs = placement.outputs.iter();
    written.extend(outputs.map(|place| place.directory.clone()));
    let own = placement.fence.iter();
    written.extend(own.flat_map(|place| [place.home.clone(), place.tmp.clone()]));
    let watch = DiskWatch::new(written, limits.disk_bytes, limits.inodes, Instant::now());
    match &placement.workspace {
        WorkspacePlace::Copy(copy) => watch.and_grown(copy.clone()),
        WorkspacePlace::Live { .. } => watch.and_grown(workspace.to_path_buf()),
        WorkspacePlace::Layer(_) | WorkspacePlace::ReadOnly => watch,
    }
}
