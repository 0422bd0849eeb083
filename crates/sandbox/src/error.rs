use std::path::PathBuf;

use atoll_frame::Stage;
use atoll_model::WordTooLong;
use atoll_model::network::Registry;

/// An error of making or running a sandbox; nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The launcher could not be started.
    #[error("the launcher could not be started: {0}")]
    Launcher(std::io::Error),
    /// A step of making the sandbox failed.
    #[error("{what}: {error}{hint}", what = describe(*stage, detail), hint = explain(*stage, error))]
    Making {
        /// The step.
        stage: Stage,
        /// The kernel's error.
        error: std::io::Error,
        /// The path concerned.
        detail: String,
    },
    /// A path that must exist does not.
    #[error("{} cannot be shown inside: {error}", path.display())]
    Source {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// A mount lies where a layer would hide it.
    #[error(
        "{} is a mount of its own inside {}; a copy-on-write layer would show it as an empty \
         directory. Unmount it, or choose a workspace that does not contain it",
        inner.display(), outer.display()
    )]
    MountInside {
        /// The workspace or view.
        outer: PathBuf,
        /// The mount within.
        inner: PathBuf,
    },
    /// This host cannot enforce a limit.
    #[error("this host cannot enforce the limit {limit}: {why}")]
    Unenforceable {
        /// The limit.
        limit: &'static str,
        /// The reason.
        why: String,
    },
    /// This kernel lacks a feature that the boundary needs.
    #[error("this kernel cannot hold the boundary: {0}. `atoll doctor` tells more")]
    Kernel(String),
    /// The description is larger than the launcher takes.
    #[error("the command and its environment are too large: {0} bytes, at most {max}", max = atoll_frame::SPEC_BYTES_MAX)]
    TooLarge(usize),
    /// The kernel gives no program a word as long as one of these.
    #[error("{0}")]
    Word(#[from] WordTooLong),
    /// The kernel gives no program as much as these together.
    #[error(
        "the command and its variables are too large together for Linux (a quarter of the limit of the stack, ulimit -s)"
    )]
    Words,
    /// No further program can be started in the sandbox.
    #[error("no further program can be started in this sandbox: its exec server has ended ({0})")]
    NoExec(std::io::Error),
    /// As many execs run as can.
    #[error("{0} programs run in this sandbox beside its first; wait for one to end")]
    TooManyExecs(usize),
    /// The sandbox is frozen.
    #[error("the sandbox is frozen while its changes are read; try again")]
    Frozen,
    /// The sandbox's processes stopped answering before they reported its end.
    #[error("the sandbox ended without telling why; the kernel's log may (dmesg)")]
    Vanished,
    /// A sandbox was to be started with the right for another call.
    #[error("the right to start is another call's; nothing was started")]
    AnotherCall,
    /// Certificates cannot be trusted.
    #[error("the certificates in {} (upstream-roots) cannot be trusted: {error}", path.display())]
    Roots {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// The packages of a lock file are unknown.
    #[error("the lock file {} of a rule for {registry} names nothing: {why}", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// The registry of the rule.
        registry: Registry,
        /// The reason.
        why: String,
    },
    /// A port cannot be published.
    #[error("port {port} of this host cannot be published: {why}")]
    Publish {
        /// The host's port.
        port: u16,
        /// The sandbox's port.
        inside: u16,
        /// The reason.
        why: String,
    },
    /// A system call on the host side failed.
    #[error("{what}: {error}")]
    Host {
        /// The attempted operation.
        what: &'static str,
        /// The kernel's error.
        error: std::io::Error,
    },
}

impl SandboxError {
    /// Returns the conversion of a kernel's error on the host, with the attempted operation.
    pub fn host<E: Into<std::io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Host {
            what,
            error: error.into(),
        }
    }
}

fn describe(stage: Stage, detail: &str) -> String {
    let step = match stage {
        Stage::Description => "reading the sandbox's description",
        Stage::Namespaces => "making the sandbox's namespaces",
        Stage::Ids => "mapping user ids",
        Stage::ControlGroups => "joining the control group",
        Stage::Network => "switching the sandbox's loopback on",
        Stage::Tree => "building the sandbox's file tree",
        Stage::Root => "changing the sandbox's root",
        Stage::Limits => "setting limits",
        Stage::Rights => "giving rights up",
        Stage::Terminal => "opening the sandbox's terminal",
        Stage::Landlock => "setting Landlock rules",
        Stage::Filter => "installing the system call filter",
        Stage::Start => "starting the program",
        Stage::Directory => "entering the working directory",
    };
    if detail.is_empty() {
        step.to_owned()
    } else {
        format!("{step}, at /{}", detail.trim_start_matches('/'))
    }
}

const EPERM: i32 = 1;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const ESTALE: i32 = 116;

/// Explains the usual cause of a failed step, and a remedy.
#[must_use]
pub fn explain(stage: Stage, error: &std::io::Error) -> &'static str {
    match (stage, error.raw_os_error()) {
        (Stage::Namespaces | Stage::Ids, Some(EPERM)) => {
            ". This host forbids user namespaces to ordinary users: `atoll doctor` names the setting"
        }
        (Stage::Namespaces | Stage::Ids, Some(ENOSPC)) => {
            ". The limit of user namespaces is reached (user.max_user_namespaces), or Atoll runs \
             inside a sandbox that forbids nested ones"
        }
        (Stage::Tree, Some(ESTALE)) => ". The path was exchanged while the sandbox was being made",
        (Stage::Tree, Some(EINVAL)) => ". The file system there cannot be a layer of an overlay",
        _ => "",
    }
}
