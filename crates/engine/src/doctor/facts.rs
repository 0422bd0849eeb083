//! The facts read of a host, and the trials run on it. Nothing is decided here.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use atoll_model::{Enforcement, Mode};
use atoll_sandbox::{
    Held, Host, SandboxError, Starting, Trial, detect_groups, forecast, try_namespaces,
};

use super::known::Part;
use super::version::{Version, of_kernel};
use crate::configuration::Places;
use crate::delegation::{self, Step};
use crate::fallback::holds_layers;
use crate::prover::provers;

/// A host as far as it matters to a boundary.
#[derive(Debug)]
pub struct Facts {
    /// The kernel as it calls itself, and upstream's version in it.
    pub kernel: (String, Option<Version>),
    /// The host's means of isolation; the error if there is no Landlock.
    pub holding: Result<Holding, String>,
    /// The result of starting the launcher.
    pub launcher: Result<(), String>,
    /// Settings of the kernel.
    pub settings: Settings,
    /// The kernel's security modules in their order; `None` if not known.
    pub modules: Option<String>,
    /// Support for seccomp filters, and the actions they may return; `None` if the kernel does not
    /// list these.
    pub filters: (bool, Option<String>),
    /// The user.
    pub uid: u32,
    /// The running program; `None` where its file is gone.
    pub program: Option<PathBuf>,
    /// ID and ID_LIKE of os-release(5).
    pub distribution: Vec<String>,
    /// The programs that fixes use and this host has.
    pub programs: Vec<&'static str>,
    /// Runtimes that are there, with their versions.
    pub runtimes: Vec<(Part, &'static str, Version)>,
    /// The programs that prove properties of policies; the reason if there are none.
    pub provers: Result<String, String>,
}

/// The means of isolation.
#[derive(Debug)]
pub struct Holding {
    /// The version of Landlock's ABI.
    pub landlock: u32,
    /// True for root.
    pub is_root: bool,
    /// Set for root that can make no user namespace.
    pub unmapped: bool,
    /// The mode that `atoll run` chooses; the error if it refuses.
    pub mode: Result<Mode, String>,
    /// The result of the namespace probe; for root that can make no user namespaces, of all the
    /// others.
    pub trial: Trial,
    /// The control groups that can be used.
    pub groups: Held,
    /// The way in which each limit would be enforced.
    pub limits: Vec<Enforcement>,
    /// The ways to get control groups delegated.
    pub delegation: Vec<Step>,
    /// The directory of layers, its file system, and whether that supports them.
    pub state: (PathBuf, String, bool),
}

/// Settings of the kernel; `None` for those that it does not have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// `user.max_user_namespaces`.
    pub max_user_namespaces: Option<u64>,
    /// `kernel.unprivileged_userns_clone`.
    pub unprivileged_clone: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns`.
    pub apparmor_restricts: Option<u64>,
    /// `vm.memfd_noexec`.
    pub memory_programs: Option<u64>,
}

/// The programs that fixes use if present.
const PROGRAMS: [&str; 4] = ["sudo", "update-grub", "grubby", "modprobe"];

impl Facts {
    /// Reads and tries, with this launcher program.
    #[must_use]
    pub fn read(places: &Places, launcher: &'static [u8]) -> Self {
        let system = rustix::system::uname();
        let release = system.release().to_string_lossy().into_owned();
        let build = system.version().to_string_lossy();
        let signature = text("/proc/version_signature");
        let version = of_kernel(&release, &build, signature.as_deref());
        let setting = |path: &str| text(path)?.trim().parse().ok();
        // The launcher is started on a thread, which whoever divides does not have yet.
        let holding = Host::read().map(|host| Holding::of(&host, places));
        let launcher = Starting::begin(launcher).works();
        Self {
            kernel: (release, version),
            holding: holding.map_err(reason),
            launcher: launcher.map_err(|error| error.to_string()),
            settings: Settings {
                max_user_namespaces: setting("/proc/sys/user/max_user_namespaces"),
                unprivileged_clone: setting("/proc/sys/kernel/unprivileged_userns_clone"),
                apparmor_restricts: setting(
                    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
                ),
                memory_programs: setting("/proc/sys/vm/memfd_noexec"),
            },
            modules: text("/sys/kernel/security/lsm").filter(|list| !list.trim().is_empty()),
            filters: (
                text("/proc/self/status").is_some_and(|text| text.contains("\nSeccomp:")),
                text("/proc/sys/kernel/seccomp/actions_avail"),
            ),
            uid: rustix::process::geteuid().as_raw(),
            program: std::env::current_exe().ok().filter(|path| path.is_file()),
            distribution: distribution(&text("/etc/os-release").unwrap_or_default()),
            programs: PROGRAMS
                .into_iter()
                .filter(|name| find(name).is_some())
                .collect(),
            runtimes: runc().into_iter().collect(),
            provers: provers(),
        }
    }
}

impl Holding {
    fn of(host: &Host, places: &Places) -> Self {
        let groups = detect_groups(host);
        let on = host.mount_of(&places.state);
        let kind = on.map_or("unknown", |mount| mount.kind.as_str());
        let mode = host.mode();
        Self {
            landlock: host.landlock,
            is_root: host.uid == 0,
            unmapped: host.unmapped,
            trial: try_namespaces(host.unmapped),
            limits: forecast(
                &groups,
                *mode.as_ref().unwrap_or(&Mode::Full),
                host.unmapped,
            ),
            mode: mode.map_err(reason),
            groups,
            delegation: delegation::steps(host),
            state: (
                places.state.clone(),
                kind.to_owned(),
                holds_layers(host, &places.state),
            ),
        }
    }
}

/// Returns an error in words, without the advice to ask the doctor.
fn reason(error: SandboxError) -> String {
    match error {
        SandboxError::Kernel(why) => why,
        other => other.to_string(),
    }
}

fn text(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Returns the words of ID and ID_LIKE of os-release(5).
pub fn distribution(release: &str) -> Vec<String> {
    let value = |line: &str| {
        let (name, value) = line.split_once('=')?;
        matches!(name, "ID" | "ID_LIKE").then(|| value.trim_matches(['"', '\'']).to_owned())
    };
    let values = release.lines().filter_map(value);
    values
        .flat_map(|value| {
            let words: Vec<String> = value.split_whitespace().map(str::to_owned).collect();
            words
        })
        .collect()
}

/// Finds a program; those for administrators are not in everybody's `PATH`.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut all = own.into_iter().chain(system);
    all.find_map(|directory| Some(directory.join(name)).filter(|path| path.is_file()))
}

/// Returns the version of `runc`, from its output: `runc version 1.1.5+ds1`.
fn runc() -> Option<(Part, &'static str, Version)> {
    let program = find("runc").filter(|path| is_of_root(path))?;
    let mut ask = Command::new(program);
    ask.arg("--version").env_clear().stdin(Stdio::null());
    let told = ask.stderr(Stdio::null()).output().ok()?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let version = told.lines().find_map(|line| {
        let (_, version) = line.split_once("runc version ")?;
        Version::read(version.trim())
    })?;
    Some((Part::Runc, "runc", version))
}

/// Returns whether root alone can have written this program: no other is started to be asked.
fn is_of_root(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    path.metadata()
        .is_ok_and(|facts| facts.uid() == 0 && facts.mode() & 0o022 == 0)
}
