use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::{RunId, SessionId, VolumeMount};

/// The caller: taken from the kernel (the process's user id), never from a name that it sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The user id of the calling process.
    pub uid: u32,
    /// The group id of the calling process.
    pub gid: u32,
    /// The name of that user in the host's user database, for people to read.
    pub name: String,
}

/// A typed request to execute a program in a boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The run that this call starts.
    pub run: RunId,
    /// The session that the run belongs to, if any.
    pub session: Option<SessionId>,
    /// The caller.
    pub principal: Principal,
    /// The program and its arguments; never empty, but for a sandbox that lives.
    pub command: Vec<OsString>,
    /// The options by which its boundary was requested, to show them again. No decision depends on
    /// them, and they hold no value of a variable.
    pub options: Vec<OsString>,
    /// The directory that the program works on, absolute, free of symbolic links.
    pub workspace: PathBuf,
    /// The program's working directory at its start, absolute, within the workspace.
    pub directory: PathBuf,
    /// True if the program gets a terminal of its own.
    pub terminal: bool,
    /// True for a sandbox that lives until it is ended, and begins without a program: the command
    /// is empty then.
    pub lives: bool,
    /// Set for a sandbox that is served to a caller of the server: its workspace is a home of its
    /// own in the sandbox, and no directory of the host.
    pub served: Option<Served>,
}

/// The caller and the kind of a served sandbox, as the server's worker has found them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// The name of the sandbox to its callers.
    pub sandbox: String,
    /// The tenant whose sandbox it is.
    pub tenant: String,
    /// The caller's name in the tenant; `None` for who holds the sandbox's own token.
    pub caller: Option<String>,
    /// The template that it is made from.
    pub template: String,
    /// The caller's notes about it.
    pub metadata: BTreeMap<String, String>,
    /// The volumes that are mounted in it.
    pub volumes: Vec<VolumeMount>,
    /// The session that it is a part of, by the tenant's name for it.
    pub session: Option<String>,
    /// The trace id of the request for it.
    pub trace: Option<String>,
    /// Set where the request for it had a name.
    pub once: Option<Box<Once>>,
}

impl Served {
    /// Returns the same sandbox as another request acts on it.
    #[must_use]
    pub fn by(self, request: &ServedExec) -> Self {
        Self {
            caller: request.caller.clone(),
            trace: request.trace.clone(),
            once: None,
            ..self
        }
    }
}

/// The request for an exec in a served sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedExec {
    /// The caller's name in the tenant; `None` for who holds the sandbox's own token.
    pub caller: Option<String>,
    /// The trace id of the request.
    pub trace: Option<String>,
    /// The user and group id that the program gets, where the sandbox's programs can be root;
    /// root's own otherwise.
    pub user: Option<(u32, u32)>,
    /// Set where the request had a name.
    pub once: Option<Box<Once>>,
}

/// The name of a request that is carried out once, however often it comes (`Idempotency-Key`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Once {
    /// The tenant in which it is the only one.
    pub tenant: String,
    /// The sandbox in which it is the only one, or that it made.
    pub sandbox: String,
    /// The name.
    pub key: String,
    /// The SHA-256 of the request, hexadecimal.
    pub digest: String,
}

/// The user that programs are in a served sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
    /// The name of both.
    pub name: &'static str,
    /// The home directory.
    pub home: &'static str,
}

/// The user of every served sandbox.
pub const RESIDENT: Resident = Resident {
    uid: 1000,
    gid: 1000,
    name: "user",
    home: "/home/user",
};
