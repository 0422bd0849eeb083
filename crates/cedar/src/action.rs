//! What can be done, as policies name it.

use serde::{Deserialize, Serialize};

/// What a policy permits or forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Action {
    /// A program is started in a boundary.
    Run,
    /// A file is executed.
    Exec,
    /// Files are shown to a program.
    Read,
    /// Files are changed by a program.
    Write,
    /// A connection is made.
    Connect,
    /// A request is sent.
    Request,
    /// A name is asked for.
    Resolve,
    /// A tool is called.
    Call,
    /// A credential is given to a run.
    UseCredential,
    /// A change is written to the person's own files.
    Promote,
    /// A port inside can be visited.
    Publish,
    /// A boundary is widened for a while.
    Escalate,
    /// Rules and runs are administered.
    Administer,
}

impl Action {
    /// All of them, each at its own number.
    pub const ALL: [Self; 13] = [
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
        Self::Publish,
        Self::Escalate,
        Self::Administer,
    ];

    /// Its name in the schema.
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
            Self::Publish => "publish",
            Self::Escalate => "escalate",
            Self::Administer => "administer",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Those of a run's connections, which are asked for while it runs.
    pub const OF_FLOWS: [Self; 3] = [Self::Resolve, Self::Connect, Self::Request];

    /// Whether this build asks policies for it: those about others decide nothing.
    #[must_use]
    pub fn is_asked(self) -> bool {
        self.principal().is_some()
    }

    /// The type of who acts, in every question that a run puts about it.
    #[must_use]
    pub fn principal(self) -> Option<&'static str> {
        match self {
            // Before there is a session, and after it.
            Self::Run | Self::Promote => Some("Person"),
            Self::Read | Self::Write | Self::Connect | Self::Request | Self::Resolve => {
                Some("Session")
            }
            Self::UseCredential | Self::Publish => Some("Session"),
            Self::Exec | Self::Call | Self::Escalate | Self::Administer => None,
        }
    }

    /// The type of what is acted on, the same way.
    #[must_use]
    pub fn resource(self) -> Option<&'static str> {
        match self {
            Self::Run => Some("Program"),
            Self::Read | Self::Write | Self::Promote => Some("Path"),
            Self::Connect | Self::Request | Self::Resolve => Some("Host"),
            Self::UseCredential => Some("Credential"),
            Self::Publish => Some("Port"),
            Self::Exec | Self::Call | Self::Escalate | Self::Administer => None,
        }
    }

    pub(crate) fn number(self) -> usize {
        self as usize
    }
}

impl TryFrom<String> for Action {
    type Error = String;

    /// Its name in the schema.
    fn try_from(name: String) -> Result<Self, String> {
        Self::named(&name).ok_or_else(|| format!("{name:?} is nothing that is done"))
    }
}

impl From<Action> for String {
    fn from(action: Action) -> Self {
        action.name().to_owned()
    }
}
