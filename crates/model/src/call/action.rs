//! The effects that a call can ask for.

use std::ffi::OsString;
use std::path::PathBuf;

use super::{CallTool, ServedExec};
use crate::network::{PublishedPort, Scope};

/// The effects that there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a sandbox, and run one program in it to its end.
    Run(Program),
    /// Make a sandbox that lives until it is ended, and begins without a program.
    CreateSandbox,
    /// Give a sandbox that was made ahead to a caller.
    AssignSandbox,
    /// Start one more program in a living sandbox.
    Exec(Box<Exec>),
    /// Put another network in the place of a living sandbox's own.
    ReplaceNetwork,
    /// Let programs of the host connect to a port of a living sandbox.
    PublishPort(PublishPort),
    /// Let a living sandbox reach what a rule of a person at its terminal says.
    AllowHost(AllowHost),
    /// Give a living sandbox more rights than its rules, for longer than once.
    Escalate(Escalate),
    /// Administer a living sandbox.
    Administer(Administer),
    /// Change the limits of a living sandbox.
    ChangeLimits(ChangeLimits),
    /// Write so many paths of a run's changes to the person's own files.
    Promote(u64),
    /// Undo what was written there, or an undo of it.
    Restore,
    /// Call a tool.
    CallTool(Box<CallTool>),
}

/// A program of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments; never empty.
    pub command: Vec<OsString>,
    /// The options by which its boundary was requested, to show them again. No decision depends on
    /// them, and they hold no value of a variable.
    pub options: Vec<OsString>,
    /// True if the program gets a terminal of its own.
    pub terminal: bool,
}

/// One more program of a living sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exec {
    /// The program and its arguments; never empty.
    pub command: Vec<OsString>,
    /// Its working directory at its start, absolute.
    pub directory: PathBuf,
    /// True if it gets a terminal of its own.
    pub terminal: bool,
    /// The names of the variables that it has besides the sandbox's own.
    pub variables: Vec<String>,
    /// The process that asked for it, as the kernel says: user and process id.
    pub by_uid: u32,
    /// See [`Exec::by_uid`].
    pub by_pid: u32,
    /// Set for one in a served sandbox.
    pub served: Option<ServedExec>,
}

/// The process that asks for something, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Its user id.
    pub uid: u32,
    /// Its process id.
    pub pid: u32,
}

/// A port of a living sandbox that programs of the host may connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishPort {
    /// The port.
    pub port: PublishedPort,
    /// The process that asks for it; under dual control of the second person, if the first is
    /// named.
    pub by: Asker,
    /// The process of the first of two persons.
    pub first: Option<Asker>,
    /// True if a second person has to ask for the same before it has an effect.
    pub waits_for_second: bool,
}

/// A host that a living sandbox may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowHost {
    /// The process of the person at its terminal.
    pub by: Asker,
    /// The rule, as of `--allow`.
    pub rule: String,
    /// The time for which it counts.
    pub scope: Scope,
}

/// Rights beyond the rules of a living sandbox, by an approval that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Escalate {
    /// The process of the person who approves.
    pub by: Asker,
    /// The number of the approval request.
    pub approval: u32,
    /// The number of seconds that it lasts; as long as the sandbox lives if `None`.
    pub seconds: Option<u32>,
}

/// An operation on a living sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Administer {
    /// Decide by policies as they are on disk now.
    ReloadPolicies {
        /// The process that asks for it.
        by: Asker,
    },
}

/// Limits in the place of those of a living sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeLimits {
    /// The memory, bytes; as it is if `None`.
    pub memory_bytes: Option<u64>,
    /// The processor time, thousandths of a processor; as it is if `None`.
    pub cpu_millis: Option<u64>,
}

impl Action {
    /// Returns the program that it starts, and its arguments; empty where none is.
    pub(super) fn command(&self) -> &[OsString] {
        match self {
            Self::Run(program) => &program.command,
            Self::Exec(exec) => &exec.command,
            Self::CreateSandbox
            | Self::AssignSandbox
            | Self::ReplaceNetwork
            | Self::PublishPort(_)
            | Self::AllowHost(_)
            | Self::Escalate(_)
            | Self::Administer(_)
            | Self::ChangeLimits(_)
            | Self::Promote(_)
            | Self::Restore
            | Self::CallTool(_) => &[],
        }
    }

    /// Returns whether the program that it starts gets a terminal of its own.
    pub(super) fn has_terminal(&self) -> bool {
        match self {
            Self::Run(program) => program.terminal,
            Self::Exec(exec) => exec.terminal,
            Self::CreateSandbox
            | Self::AssignSandbox
            | Self::ReplaceNetwork
            | Self::PublishPort(_)
            | Self::AllowHost(_)
            | Self::Escalate(_)
            | Self::Administer(_)
            | Self::ChangeLimits(_)
            | Self::Promote(_)
            | Self::Restore
            | Self::CallTool(_) => false,
        }
    }
}
