mod action;
mod tool;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::{RunId, SessionId, VolumeMount};
pub use action::{
    Action, Administer, AllowHost, Asker, ChangeLimits, Escalate, Exec, Program, PublishPort,
};
pub use tool::{
    Argument, ArgumentValue, CallTool, InvalidToolName, Shadow, TOOL_NAME_BYTES_MAX, ToolEffect,
    ToolEnd, ToolKind, ToolName, ToolUndo,
};

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

/// The id of a call: the sandbox or session of tools that it is about, by its run, and the exec or
/// the call of a tool there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallId {
    /// The run.
    pub run: RunId,
    /// The exec's number in the sandbox, whose first is 0; `None` for a call about the sandbox.
    pub exec: Option<u32>,
    /// The number of a tool's call in its session, from 1; `None` for any other call.
    pub tool: Option<u32>,
}

/// A typed request for one effect: what every surface asks for, policy decides and the ledger
/// records before it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its id, by which the ledger has it.
    pub id: CallId,
    /// The session that the run belongs to, if any.
    pub session: Option<SessionId>,
    /// The call that it is a part of, if any: that of the tool whose sandbox or program it is about.
    pub parent: Option<Box<CallId>>,
    /// The caller.
    pub principal: Principal,
    /// The files that the sandbox's programs work on.
    pub place: Place,
    /// The effect that is asked for.
    pub action: Action,
}

/// The files that the programs of a sandbox work on, and where they start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A directory of the host.
    Directory {
        /// The workspace, absolute, free of symbolic links.
        workspace: PathBuf,
        /// The program's working directory at its start, absolute, within the workspace.
        directory: PathBuf,
    },
    /// A home of a served sandbox's own, that of [`RESIDENT`], and no directory of the host.
    Served(Box<Served>),
}

impl CallId {
    /// Creates the id of a call about a sandbox.
    #[must_use]
    pub fn of_run(run: RunId) -> Self {
        Self {
            run,
            exec: None,
            tool: None,
        }
    }
}

impl Call {
    /// Creates a call about a sandbox, of no session.
    #[must_use]
    pub fn new(run: RunId, principal: Principal, place: Place, action: Action) -> Self {
        Self {
            id: CallId::of_run(run),
            session: None,
            parent: None,
            principal,
            place,
            action,
        }
    }

    /// Returns the run that it is about.
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.id.run
    }

    /// Returns the workspace, absolute: of a served sandbox its own home.
    #[must_use]
    pub fn workspace(&self) -> &Path {
        match &self.place {
            Place::Directory { workspace, .. } => workspace,
            Place::Served(_) => Path::new(RESIDENT.home),
        }
    }

    /// Returns the directory where a program starts, or would.
    #[must_use]
    pub fn directory(&self) -> &Path {
        match (&self.action, &self.place) {
            (Action::Exec(exec), _) => &exec.directory,
            (_, Place::Directory { directory, .. }) => directory,
            (_, Place::Served(_)) => Path::new(RESIDENT.home),
        }
    }

    /// Returns the caller and the kind of a served sandbox.
    #[must_use]
    pub fn served(&self) -> Option<&Served> {
        match &self.place {
            Place::Directory { .. } => None,
            Place::Served(served) => Some(served),
        }
    }

    /// Returns the program that is started, and its arguments; empty where none is.
    #[must_use]
    pub fn command(&self) -> &[OsString] {
        self.action.command()
    }

    /// Returns the exec that is asked for, if it is one, with its number.
    #[must_use]
    pub fn exec(&self) -> Option<(u32, &Exec)> {
        match (&self.action, self.id.exec) {
            (Action::Exec(exec), Some(number)) => Some((number, exec)),
            _ => None,
        }
    }

    /// Returns whether the program that is started gets a terminal of its own.
    #[must_use]
    pub fn has_terminal(&self) -> bool {
        self.action.has_terminal()
    }

    /// Returns whether its sandbox lives until it is ended, and is not that of one program.
    #[must_use]
    pub fn lives(&self) -> bool {
        !matches!(self.action, Action::Run(_))
    }

    /// Returns a call for another action on the same sandbox.
    #[must_use]
    pub fn with(&self, action: Action) -> Self {
        Self {
            action,
            ..self.clone()
        }
    }
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
    /// The call of the tool that it is a part of.
    pub parent: Option<Box<CallId>>,
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
