//! The actions that policies permit or forbid.

use serde::{Deserialize, Serialize};

/// An action that a policy permits or forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Action {
    /// Starting a program in a sandbox.
    Run,
    /// Starting a program in a sandbox that is there.
    Exec,
    /// Showing files to a program.
    Read,
    /// Changing files from a program.
    Write,
    /// Opening a connection.
    Connect,
    /// Sending a request.
    Request,
    /// Resolving a name.
    Resolve,
    /// Calling a tool.
    Call,
    /// Giving a credential to a run.
    UseCredential,
    /// Applying a change to the person's own files.
    Promote,
    /// Undoing what was written to the person's own files.
    Restore,
    /// Making a port of the sandbox reachable from the host.
    Publish,
    /// Widening a sandbox for a while.
    Escalate,
    /// Administering rules and runs.
    Administer,
}

impl Action {
    /// All actions, each at its own index.
    pub const ALL: [Self; 14] = [
        Self::Run,
        Self::Exec,
        Self::Read,
        Self::Write,
        Self::Connect,
        Self::Request,
        Self::Resolve,
        Self::Call,
        Self::UseCredential,
        Self::Promote,
        Self::Restore,
        Self::Publish,
        Self::Escalate,
        Self::Administer,
    ];

    /// Returns the action's name in the schema.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Exec => "exec",
            Self::Read => "read",
            Self::Write => "write",
            Self::Connect => "connect",
            Self::Request => "request",
            Self::Resolve => "resolve",
            Self::Call => "call",
            Self::UseCredential => "use_credential",
            Self::Promote => "promote",
            Self::Restore => "restore",
            Self::Publish => "publish",
            Self::Escalate => "escalate",
            Self::Administer => "administer",
        }
    }

    /// Returns the action of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// The actions of network flows, decided on while a run is going on.
    pub const OF_FLOWS: [Self; 3] = [Self::Resolve, Self::Connect, Self::Request];

    /// Returns the entity type of the principal in every question about this action.
    #[must_use]
    pub fn principal(self) -> &'static str {
        match self {
            // Before there is a session, and after it.
            Self::Run | Self::Promote | Self::Restore => "Person",
            // Who answers, and who administers.
            Self::Escalate | Self::Administer => "Person",
            Self::Read | Self::Write | Self::Connect | Self::Request | Self::Resolve => "Session",
            Self::Exec | Self::UseCredential | Self::Publish | Self::Call => "Session",
        }
    }

    /// Returns the entity type of the resource in every question about this action.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Self::Run | Self::Exec => "Program",
            Self::Read | Self::Write | Self::Promote => "Path",
            Self::Connect | Self::Request | Self::Resolve => "Host",
            Self::UseCredential => "Credential",
            Self::Publish => "Port",
            Self::Restore | Self::Escalate | Self::Administer => "Run",
            Self::Call => "Tool",
        }
    }

    pub(crate) fn number(self) -> usize {
        self as usize
    }
}

impl TryFrom<String> for Action {
    type Error = String;

    /// Parses an action's name in the schema.
    fn try_from(name: String) -> Result<Self, String> {
        Self::named(&name).ok_or_else(|| format!("{name:?} is nothing that is done"))
    }
}

impl From<Action> for String {
    fn from(action: Action) -> Self {
        action.name().to_owned()
    }
}
