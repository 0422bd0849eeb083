//! The properties of this host, read once at each start.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use atoll_model::Mode;
use atoll_sys::process::{self, Namespaces};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::mountinfo::parse_mounts;
use crate::owners::some_ids;
use crate::trial::{Trial, can_copy, is_in_first_user_namespace, try_namespaces};
use crate::{MountPoint, SandboxError};

/// The facts that a boundary is built on.
#[derive(Clone, Debug)]
pub struct Host {
    /// All mounts that this process sees.
    pub mounts: Vec<MountPoint>,
    /// The control groups of this process: controllers and path; version 2 names no controllers
    /// here.
    pub groups: Vec<(String, PathBuf)>,
    /// The version of Landlock.
    pub landlock: u32,
    /// True if this process is the host's root, rather than user id 0 of a user namespace that
    /// maps little else.
    pub is_root: bool,
    /// True if the host's root cannot map ids because no user namespace can be made: programs
    /// run as Atoll's own users, by the kernel's ids.
    pub unmapped: bool,
    /// The effective user id.
    pub uid: u32,
    /// The effective group id.
    pub gid: u32,
}

impl Host {
    /// Reads the facts.
    ///
    /// # Errors
    /// [`SandboxError::Kernel`] without Landlock or /proc.
    pub fn read() -> Result<Self, SandboxError> {
        let landlock = atoll_sys::landlock::version().map_err(|error| {
            SandboxError::Kernel(format!(
                "Landlock is not available ({error}); it needs Linux 5.13 and \"landlock\" among \
                 the kernel's lsm= modules"
            ))
        })?;
        let read = |path: &str| {
            std::fs::read(path)
                .map_err(|error| SandboxError::Kernel(format!("{path} cannot be read: {error}")))
        };
        let is_root = rustix::process::geteuid().is_root()
            && match std::fs::read_to_string("/proc/self/uid_map") {
                Ok(map) => maps_everything(&map),
                // A kernel without user namespaces has only the first.
                Err(error) => error.kind() == std::io::ErrorKind::NotFound,
            };
        Ok(Self {
            mounts: parse_mounts(&read("/proc/self/mountinfo")?),
            groups: parse_groups(&read("/proc/self/cgroup")?),
            landlock,
            is_root,
            unmapped: is_root && !root_maps_ids(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        })
    }

    /// Returns the isolation that is possible here.
    ///
    /// # Errors
    /// [`SandboxError::Kernel`] if only a fence is possible, and this kernel's Landlock cannot
    /// enforce one.
    pub fn mode(&self) -> Result<Mode, SandboxError> {
        if self.unmapped {
            return match try_namespaces(true) {
                Trial::Works => Ok(Mode::Full),
                failed => Err(SandboxError::Kernel(format!(
                    "no user namespaces can be made here, and other namespaces are of no use to \
                     this root either: {failed}"
                ))),
            };
        }
        if self.is_root {
            return Ok(Mode::Full);
        }
        match what_forbids_namespaces(&self.mounts) {
            None => return Ok(Mode::Full),
            Some(Trial::NoNamespaces(_)) if !can_copy() => {
                return Err(SandboxError::Kernel(
                    "the call clone3 is refused, by which even the processes of a fence are made"
                        .to_owned(),
                ));
            }
            Some(_) => {}
        }
        if is_root_to_the_kernel(self.uid) {
            return Err(SandboxError::Kernel(
                "no user namespaces can be made here, and a fence does not hold this user, who \
                 is root to the kernel, in a user namespace with few ids"
                    .to_owned(),
            ));
        }
        if self.landlock < FENCE_LANDLOCK {
            return Err(SandboxError::Kernel(format!(
                "this user may not make user namespaces, and without them Landlock has to be of \
                 version {FENCE_LANDLOCK} (Linux 6.7); here it is {}",
                self.landlock
            )));
        }
        Ok(Mode::Fence)
    }

    /// The mounts strictly within a directory.
    pub fn mounts_within<'a>(&'a self, outer: &'a Path) -> impl Iterator<Item = &'a MountPoint> {
        self.mounts
            .iter()
            .filter(move |mount| mount.path != outer && mount.path.starts_with(outer))
    }

    /// Returns the mount that a path lies on.
    #[must_use]
    pub fn mount_of(&self, path: &Path) -> Option<&MountPoint> {
        // Of several at one place the last one hides the others.
        let longest = |mount: &&MountPoint| mount.path.as_os_str().len();
        self.mounts
            .iter()
            .filter(|mount| path.starts_with(&mount.path))
            .max_by_key(longest)
    }
}

/// The version of Landlock that a fence needs: the first that restricts ports.
pub const FENCE_LANDLOCK: u32 = 4;

/// Returns what keeps an ordinary user from making and using user namespaces. A setting that
/// forbids them is trusted; a probe, which takes too long for every start, runs only if
/// something else may forbid them.
fn what_forbids_namespaces(mounts: &[MountPoint]) -> Option<Trial> {
    let says = |path: &str, value: &str| {
        std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
    };
    let is_doubtful = says(
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
    ) || covers_processes(mounts)
        || is_confined()
        // The limits of the namespaces that this one lies in count too, and are not told.
        || !is_in_first_user_namespace();
    let is_forbidden = says("/proc/sys/user/max_user_namespaces", "0")
        || says("/proc/sys/kernel/unprivileged_userns_clone", "0");
    match (is_doubtful, is_forbidden) {
        (false, false) => None,
        (false, true) => Some(Trial::NoRights),
        (true, _) => match try_namespaces(false) {
            Trial::Works | Trial::NoOverlay if is_forbidden => Some(Trial::NoRights),
            Trial::Works | Trial::NoOverlay => None,
            failed => Some(failed),
        },
    }
}

/// Returns whether the host's root can make user namespaces in which ids are mapped. A setting
/// that forbids them is trusted; a probe runs only if something else may forbid them.
fn root_maps_ids() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/user/max_user_namespaces");
    let is_forbidden = setting.is_ok_and(|text| text.trim() == "0");
    let is_known = Path::new("/proc/self/ns/user").exists();
    is_known
        && !is_forbidden
        && match (is_confined(), is_in_another_root()) {
            (false, false) => true,
            // In another root none can be made at all, otherwise it is as everywhere.
            (false, true) => process::can_divide(Namespaces::USER),
            (true, _) => some_ids().is_ok(),
        }
}

/// Returns whether a user of this namespace is the kernel's user 0, who owns kernel files that
/// require no capability. A sysctl file always belongs to that user, by the id of this
/// namespace.
fn is_root_to_the_kernel(uid: u32) -> bool {
    match std::fs::metadata("/proc/sys/kernel/core_pattern") {
        Ok(facts) => facts.uid() == uid,
        // Where it cannot be told, somebody called root may be.
        Err(_) => uid == 0,
    }
}

/// Returns whether this process may be in a chroot, where the kernel makes no user namespaces:
/// its root differs from that of process 1.
fn is_in_another_root() -> bool {
    let mount = |path: &str| {
        let facts = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
        let place = (facts.stx_dev_major, facts.stx_dev_minor, facts.stx_ino);
        Some((facts.stx_mnt_id, place))
    };
    mount("/").is_none_or(|own| mount("/proc/1/root/") != Some(own))
}

/// Returns whether this process is confined by a seccomp filter or the rules of a security
/// module already, as in containers.
fn is_confined() -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let is_filtered = read("/proc/self/status")
        .lines()
        .filter_map(|line| line.strip_prefix("Seccomp:"))
        .any(|mode| mode.trim() != "0");
    let rules = read("/proc/self/attr/current");
    let rules = rules.trim_matches(['\0', '\n', ' ']);
    is_filtered || !(rules.is_empty() || rules.starts_with("unconfined"))
}

/// Returns whether a mount covers a part of /proc. Those that are always there are on
/// directories that are known to be empty.
pub(crate) fn covers_processes(mounts: &[MountPoint]) -> bool {
    const EMPTY: [&str; 2] = ["/proc/sys/fs/binfmt_misc", "/proc/fs/nfsd"];
    let covers = |path: &Path| path != Path::new("/proc") && path.starts_with("/proc");
    let mut mounts = mounts.iter().map(|mount| mount.path.as_path());
    mounts.any(|path| covers(path) && !EMPTY.iter().any(|empty| path.starts_with(empty)))
}

/// Returns whether an id map (user_namespaces(7)) is that of the initial namespace, or
/// equivalent: ids can be shifted as needed.
pub(crate) fn maps_everything(map: &str) -> bool {
    map.lines().any(|line| {
        let numbers: Vec<u64> = line
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        numbers.first() == Some(&0) && numbers.get(2).is_some_and(|count| *count >= 1 << 31)
    })
}

/// Reads /proc/self/cgroup (cgroups(7)). A name in it may hold any byte but a newline.
pub(crate) fn parse_groups(list: &[u8]) -> Vec<(String, PathBuf)> {
    let parse = |line: &[u8]| {
        let mut fields = line.splitn(3, |byte| *byte == b':').skip(1);
        let controllers = String::from_utf8_lossy(fields.next()?).into_owned();
        Some((
            controllers,
            PathBuf::from(OsStr::from_bytes(fields.next()?)),
        ))
    };
    let lines = list.split(|byte| *byte == b'\n');
    lines.filter_map(parse).collect()
}
