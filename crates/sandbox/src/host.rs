//! What this host is like, read once at each start.

use std::path::{Path, PathBuf};

use atoll_model::Mode;
use atoll_sys::process::{self, Namespaces, Side};

use crate::SandboxError;

/// One mount of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    /// Where it is mounted.
    pub path: PathBuf,
    /// The kind of file system.
    pub kind: String,
    /// The options of the file system itself.
    pub options: String,
}

/// The facts that a boundary is built on.
#[derive(Clone, Debug)]
pub struct Host {
    /// All mounts that this process sees.
    pub mounts: Vec<MountPoint>,
    /// The control groups that this process is in: controllers and path; version
    /// 2 has no controllers here.
    pub groups: Vec<(String, PathBuf)>,
    /// The version of Landlock.
    pub landlock: u32,
    /// Whether this process is the host's root, rather than user id 0 of a user
    /// namespace that maps little else.
    pub is_root: bool,
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
        let text = |path: &str| {
            std::fs::read(path)
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .map_err(|error| SandboxError::Kernel(format!("{path} cannot be read: {error}")))
        };
        Ok(Self {
            mounts: parse_mounts(&text("/proc/self/mountinfo")?),
            groups: parse_groups(&text("/proc/self/cgroup")?),
            landlock,
            is_root: rustix::process::geteuid().is_root()
                && maps_everything(&text("/proc/self/uid_map")?),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        })
    }

    /// What a program can be held with here.
    ///
    /// # Errors
    /// [`SandboxError::Kernel`] where a fence is all that is left, and this kernel's
    /// Landlock does not hold one.
    pub fn mode(&self) -> Result<Mode, SandboxError> {
        if self.uid == 0 || may_make_namespaces() {
            return Ok(Mode::Full);
        }
        if self.landlock < FENCE_LANDLOCK {
            return Err(SandboxError::Kernel(format!(
                "this user may not make user namespaces, and without them Landlock has to be of \
                 version {FENCE_LANDLOCK} (Linux 6.12); here it is {}",
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

    /// The mount that a path lies on.
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

/// Signals to other processes and abstract sockets are held from this version on.
const FENCE_LANDLOCK: u32 = 6;

/// Whether an ordinary user may make user namespaces and have rights in them. What a
/// setting forbids is believed; where it depends on the program, it is tried.
fn may_make_namespaces() -> bool {
    let says = |path: &str, value: &str| {
        std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
    };
    if says("/proc/sys/user/max_user_namespaces", "0")
        || says("/proc/sys/kernel/unprivileged_userns_clone", "0")
    {
        return false;
    }
    !says(
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
    ) || try_namespaces()
}

/// Makes namespaces in a process that ends at once, and uses a right there.
fn try_namespaces() -> bool {
    match process::divide(Namespaces::ALL, None) {
        Err(_) => false,
        Ok(Side::Child) => {
            let named = atoll_sys::credentials::set_host_name(b"atoll");
            process::exit_now(u8::from(named.is_err()))
        }
        Ok(Side::Parent(child)) => {
            let ended = process::wait(Some(child.pid), true);
            let change = ended.ok().flatten().map(|waited| waited.change);
            change == Some(process::Change::Exited(0))
        }
    }
}

/// Whether a map of ids (user_namespaces(7)) is that of the first namespace, or
/// of one like it: ids can be shifted to wherever Atoll wants them.
pub(crate) fn maps_everything(map: &str) -> bool {
    map.lines().any(|line| {
        let numbers: Vec<u64> = line
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        numbers.first() == Some(&0) && numbers.get(2).is_some_and(|count| *count >= 1 << 31)
    })
}

/// Reads mountinfo (proc_pid_mountinfo(5)).
pub(crate) fn parse_mounts(text: &str) -> Vec<MountPoint> {
    let parse = |line: &str| -> Option<MountPoint> {
        let (before, after) = line.split_once(" - ")?;
        let path = before.split(' ').nth(4)?;
        let mut after = after.split(' ');
        let kind = after.next()?.to_owned();
        let options = after.nth(1).unwrap_or_default().to_owned();
        Some(MountPoint {
            path: unescape(path),
            kind,
            options,
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Undoes the octal escapes of mountinfo: space, tab, newline, backslash.
fn unescape(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| {
                let digits = std::str::from_utf8(digits).ok()?;
                u8::from_str_radix(digits, 8).ok()
            });
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// Reads /proc/self/cgroup (cgroups(7)).
pub(crate) fn parse_groups(text: &str) -> Vec<(String, PathBuf)> {
    let parse = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?.to_owned(), PathBuf::from(fields.next()?)))
    };
    text.lines().filter_map(parse).collect()
}
