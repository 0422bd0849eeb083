//! Fences: permissions on the host's file tree, in place of a tree of their own.

use std::ffi::OsString;
use std::iter::once;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use atoll_frame::Permission;
use atoll_model::network::{
    SSH_AGENT, SSH_DIRECTORY, TRUST_DIRECTORY, database_trust_variable, trust_variables,
};
use atoll_model::{Boundary, ViewKind};

use atoll_sys::landlock::Rights;

use crate::tree::{PROCESSORS, permission};
use crate::{FencePlace, Placement, SandboxError, WorkspacePlace};

/// Devices that a program may open.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Files of /proc that describe the machine. Those of processes are excluded: other users' are
/// there too.
const MACHINE: [&str; 11] = [
    "cpuinfo",
    "filesystems",
    "loadavg",
    "meminfo",
    "stat",
    "uptime",
    "version",
    "sys/kernel/osrelease",
    "sys/kernel/pid_max",
    "sys/vm/overcommit_memory",
    "sys/fs/pipe-max-size",
];

/// Returns the program's permissions by path.
pub(crate) fn permissions(
    boundary: &Boundary,
    workspace: &Path,
    placement: &Placement,
    place: &FencePlace,
) -> Vec<Permission> {
    let execute = boundary.programs.is_empty();
    let mut permissions = Vec::new();
    let mut give = |path: &Path, execute: bool, change: bool, device: bool| {
        // What is not there needs no permission; Landlock looks at what links lead to.
        if let Ok(path) = path.canonicalize() {
            permissions.push(permission(
                path.as_os_str().as_bytes().to_vec(),
                [
                    (true, Rights::READ),
                    (execute, Rights::EXECUTE),
                    (change, Rights::CHANGE),
                    (device, Rights::DEVICE),
                ],
            ));
        }
    };
    for view in boundary.views.iter().filter(|view| placement.shows(view)) {
        give(&view.host, execute, false, false);
    }
    for name in DEVICES {
        give(&Path::new("/dev").join(name), false, false, true);
    }
    for name in MACHINE {
        give(&Path::new("/proc").join(name), false, false, false);
    }
    give(Path::new(PROCESSORS), false, false, false);
    if let Some(trust) = &placement.trust {
        give(trust, false, false, false);
    }
    let writable = !matches!(placement.workspace, WorkspacePlace::ReadOnly);
    give(workspace, execute, writable, false);
    for own in [&place.home, &place.tmp] {
        give(own, execute, true, false);
    }
    for program in &boundary.programs {
        give(program, true, false, false);
    }
    if let Some(ssh) = &placement.ssh {
        give(ssh, false, false, false);
        permissions.push(Permission {
            path: ssh.join(SSH_AGENT).as_os_str().as_bytes().to_vec(),
            connect: true,
            ..Permission::default()
        });
    }
    permissions
}

/// Returns the environment, with the fence's own paths in place of those of a full sandbox.
pub(crate) fn environment(
    boundary: &Boundary,
    placement: &Placement,
    place: &FencePlace,
) -> Vec<(OsString, OsString)> {
    let mut own = vec![
        (OsString::from("HOME"), place.home.clone().into_os_string()),
        (OsString::from("TMPDIR"), place.tmp.clone().into_os_string()),
    ];
    if let Some(trust) = placement.trust.as_deref().and_then(Path::to_str) {
        // Only what nobody has set to something else.
        let all = |at| trust_variables(at).chain(once(database_trust_variable(at)));
        let here = all(trust).zip(all(TRUST_DIRECTORY));
        own.extend(here.filter_map(|((name, here), (_, inside))| {
            let mut set = boundary.environment.iter();
            let is_set = set.any(|(one, value)| one == name && *value == *inside);
            is_set.then(|| (OsString::from(name), OsString::from(here)))
        }));
    }
    if let Some(ssh) = placement.ssh.as_deref().and_then(Path::to_str) {
        own.extend(boundary.environment.iter().filter_map(|(name, value)| {
            let text = value.to_str().filter(|_| tells_of_ssh(name))?;
            let here = text.replace(SSH_DIRECTORY, ssh);
            (here != text).then(|| (name.clone(), OsString::from(here)))
        }));
    }
    let is_own = |name: &OsString| own.iter().any(|(own, _)| name == own);
    let kept = boundary
        .environment
        .iter()
        .filter(|(name, _)| !is_own(name))
        .cloned()
        .collect::<Vec<_>>();
    kept.into_iter().chain(own).collect()
}

/// Returns whether a variable points ssh or git to Atoll's files.
fn tells_of_ssh(name: &OsString) -> bool {
    let name = name.as_bytes();
    [&b"SSH_AUTH_SOCK"[..], b"GIT_SSH_COMMAND"].contains(&name)
        || name.starts_with(b"GIT_CONFIG_VALUE_")
}

/// Creates, in the fence's home, links to the views of the person's home.
pub(crate) fn furnish(
    boundary: &Boundary,
    placement: &Placement,
    place: &FencePlace,
) -> Result<(), SandboxError> {
    let shown = boundary.views.iter().filter_map(|view| {
        let below = view.inside.strip_prefix(&boundary.home).ok()?;
        let is_linked = view.kind != ViewKind::System && placement.shows(view);
        (is_linked && view.host.exists()).then_some((view, below))
    });
    for (view, below) in shown {
        let link = place.home.join(below);
        let make = || -> std::io::Result<()> {
            if let Some(parent) = link.parent() {
                std::fs::create_dir_all(parent)?;
            }
            if link.symlink_metadata().is_err() {
                std::os::unix::fs::symlink(&view.host, &link)?;
            }
            Ok(())
        };
        make().map_err(SandboxError::host("the run's home could not be made"))?;
    }
    for (path, content) in &boundary.files {
        let below = path.strip_prefix(&boundary.home).unwrap_or(path);
        let write = std::fs::write(place.home.join(below), content);
        write.map_err(SandboxError::host("the run's home could not be made"))?;
    }
    Ok(())
}

/// Returns the number of processes and threads of this user: without a user namespace, the
/// kernel's limit counts all of them.
pub(crate) fn tasks_of(uid: u32) -> u64 {
    let tasks = |path: PathBuf| -> Option<u64> {
        let is_own = path.metadata().ok()?.uid() == uid;
        let tasks = std::fs::read_dir(path.join("task"))
            .ok()
            .filter(|_| is_own)?;
        Some(tasks.count() as u64)
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| tasks(entry.path())).sum()
}
