//! The native backend: namespaces, copy-on-write, Landlock, seccomp, control groups.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Instant;

use atoll_frame::{Identity, ResourceLimit, Room, SPEC_BYTES_MAX, Spec, Terminal, Watch};
use atoll_model::{Boundary, Call, Enforcement, Limits, WorkspaceMode};
use atoll_policy::Grant;
use atoll_sys::{descriptor, socket};

use crate::disk::DiskWatch;
use crate::groups::{Groups, Held};
use crate::launcher::{Launcher, Starting};
use crate::placement::IDS;
use crate::session::{Assembled, Lines};
use crate::{Host, Placement, Running, SandboxError, Size, WorkspacePlace, tree};

/// What the native backend needs besides the grant.
#[derive(Debug)]
pub struct Native<'a> {
    /// The host's facts.
    pub host: &'a Host,
    /// Where control groups can be made.
    pub held: &'a Held,
    /// Where the changeable parts are kept.
    pub placement: &'a Placement,
    /// The terminal's size, if the program gets one.
    pub terminal: Option<Size>,
}

const RLIMIT_CORE: u32 = 4;
const RLIMIT_NPROC: u32 = 6;
const RLIMIT_NOFILE: u32 = 7;
const RLIMIT_DATA: u32 = 2;

/// The host's name as every program inside sees it.
const HOST_NAME: &[u8] = b"atoll";

/// Begins to build the sandbox of a call within its grant: all but its program,
/// which starts with [`Assembled::start`]. Returns while it is being built; what
/// goes wrong there is told by [`Running::attend`].
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
    let groups = Groups::plan(native.held, &call.run, limits);
    match launch(native, starting, boundary, call, groups.as_ref()) {
        Ok((launcher, lines)) => {
            let sandbox = Running {
                launcher,
                lines,
                enforcement: enforcement(groups.as_ref()),
                disk: disk_watch(native.placement, limits),
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

fn launch(
    native: &Native<'_>,
    starting: Starting,
    boundary: &Boundary,
    call: &Call,
    groups: Option<&Groups>,
) -> Result<(Launcher, Lines), SandboxError> {
    let spec = describe(native, boundary, call, groups)?;
    #[cfg(feature = "without_defences")]
    let spec = crate::without::leave_out(spec);
    let bytes = spec.to_bytes();
    if bytes.len() > SPEC_BYTES_MAX {
        return Err(SandboxError::TooLarge(bytes.len()));
    }
    let launcher = starting.ready()?;
    let send = || -> std::io::Result<Lines> {
        let description = descriptor::sealed_memory(c"atoll-spec", &bytes)?;
        let (control, control_inside) = socket::pair()?;
        let (input_inside, input) = descriptor::pipe()?;
        let (output, output_inside) = descriptor::pipe()?;
        let (error, error_inside) = descriptor::pipe()?;
        if let Identity::Shifted { uid, gid, base, .. } = spec.identity {
            // Programs open /dev/stdout anew, which asks for the pipe's owner.
            for end in [&input_inside, &output_inside, &error_inside] {
                descriptor::change_owner(end.as_fd(), base + uid, base + gid)?;
            }
        }
        let sent: [&OwnedFd; 5] = [
            &description,
            &control_inside,
            &input_inside,
            &output_inside,
            &error_inside,
        ];
        socket::send(launcher.line.as_fd(), b"s", &sent.map(AsFd::as_fd))?;
        Ok(Lines {
            control,
            input: Some(input),
            output: Some(output),
            error: Some(error),
        })
    };
    let sent = send().map_err(SandboxError::host("the sandbox's lines could not be made"));
    // Only now that the launcher knows of them: when this process dies in
    // between, the launcher removes what there is.
    let begun = sent.and_then(|lines| {
        if let Some(groups) = groups {
            groups
                .make(&boundary.limits)
                .map_err(SandboxError::host("the control group could not be made"))?;
        }
        socket::send(launcher.line.as_fd(), b"g", &[])
            .map_err(SandboxError::host("the launcher is gone"))?;
        Ok(lines)
    });
    match begun {
        Ok(lines) => Ok((launcher, lines)),
        Err(error) => {
            drop(launcher.let_go());
            Err(error)
        }
    }
}

fn describe(
    native: &Native<'_>,
    boundary: &Boundary,
    call: &Call,
    groups: Option<&Groups>,
) -> Result<Spec, SandboxError> {
    let plan = tree::plan(boundary, &call.workspace, native.placement, native.host)?;
    let path_bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
    let text = |text: &OsString| text.as_bytes().to_vec();
    let identity = identity(native, call)?;
    Ok(Spec {
        identity,
        host_name: HOST_NAME.to_vec(),
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
        operations: plan.operations,
        permissions: plan.permissions,
        landlock_version: native.host.landlock,
        resource_limits: resource_limits(&boundary.limits, groups, native.held)?,
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
        deny_set_id: boundary.workspace == WorkspaceMode::Live,
        deny_memory_programs: !boundary.programs.is_empty(),
        terminal: native.terminal.map(|size| Terminal {
            rows: size.rows,
            columns: size.columns,
        }),
        arguments: call.command.iter().map(text).collect(),
        environment: boundary
            .environment
            .iter()
            .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
            .collect(),
        directory: call.directory.as_os_str().as_bytes().to_vec(),
    })
}

/// Who the program is to the kernel.
fn identity(native: &Native<'_>, call: &Call) -> Result<Identity, SandboxError> {
    let fits = |id: u32| native.placement.base.is_none() || id < IDS;
    if !fits(call.principal.uid) || !fits(call.principal.gid) {
        return Err(SandboxError::Kernel(format!(
            "ids above {IDS} cannot be shifted, and this call's are {} and {}",
            call.principal.uid, call.principal.gid
        )));
    }
    Ok(match native.placement.base {
        None => Identity::Own {
            uid: call.principal.uid,
            gid: call.principal.gid,
        },
        Some(base) => Identity::Shifted {
            uid: call.principal.uid,
            gid: call.principal.gid,
            base,
            count: IDS,
        },
    })
}

fn resource_limits(
    limits: &Limits,
    groups: Option<&Groups>,
    held: &Held,
) -> Result<Vec<ResourceLimit>, SandboxError> {
    let limit = |resource: u32, value: u64| ResourceLimit { resource, value };
    let mut list = vec![
        limit(RLIMIT_CORE, 0),
        limit(RLIMIT_NOFILE, limits.open_files),
    ];
    if groups.is_none() {
        list.push(limit(RLIMIT_NPROC, limits.processes));
        list.push(limit(RLIMIT_DATA, limits.memory_bytes));
        if let (Some(_), Held::Nowhere(why), false) =
            (limits.cpu_millis, held, limits.dangerous_unenforced_limits)
        {
            return Err(SandboxError::Unenforceable {
                limit: "cpu",
                why: why.clone(),
            });
        }
    }
    Ok(list)
}

/// Room in memory: one limit for all that is written there.
fn room(limits: &Limits) -> Room {
    let bytes = limits.tmp_bytes;
    Room {
        bytes,
        inodes: (bytes >> 20).max(16).saturating_mul(tree::INODES_PER_MIB),
    }
}

/// Who holds which limit, for the record.
fn enforcement(groups: Option<&Groups>) -> Vec<Enforcement> {
    let by_groups = groups.map(Groups::name);
    let one = |limit: &str, by: &str| Enforcement {
        limit: limit.to_owned(),
        by: by.to_owned(),
    };
    vec![
        one("memory", by_groups.unwrap_or("supervisor, in part")),
        one("swap", by_groups.unwrap_or("none")),
        one("processes", by_groups.unwrap_or("rlimit")),
        one("cpu", by_groups.unwrap_or("none")),
        one("open-files", "rlimit"),
        one("tmp", "tmpfs"),
        one("disk", "supervisor, in part"),
        one("inodes", "supervisor"),
        one("wall-clock", "supervisor"),
        one("idle", "supervisor"),
    ]
}

fn disk_watch(placement: &Placement, limits: &Limits) -> DiskWatch {
    let mut written: Vec<PathBuf> = placement
        .layers
        .iter()
        .map(|layer| layer.upper.clone())
        .collect();
    match &placement.workspace {
        WorkspacePlace::Layer(layer) => written.push(layer.upper.clone()),
        WorkspacePlace::Copy(_) | WorkspacePlace::Live { .. } | WorkspacePlace::ReadOnly => {}
    }
    let watch = DiskWatch::new(written, limits.disk_bytes, limits.inodes, Instant::now());
    match &placement.workspace {
        WorkspacePlace::Copy(copy) => watch.and_copy(copy.clone()),
        WorkspacePlace::Layer(_) | WorkspacePlace::Live { .. } | WorkspacePlace::ReadOnly => watch,
    }
}
