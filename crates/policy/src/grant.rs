use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_model::network::{NetworkRule, Published};
use atoll_model::{Boundary, CallTool, Shadow};

use crate::notice::Notice;
use crate::rules::Rules;

/// The exact rights of one sandbox. Only [`decide`](crate::decide) creates one, so a holder knows that
/// policy has allowed what it grants.
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    boundary: Boundary,
    policy_digest: String,
    notices: Vec<Notice>,
    policies: Option<Vec<u8>>,
    wall_clock_by: Option<String>,
    labels: BTreeSet<String>,
}

impl Grant {
    pub(crate) fn new(
        boundary: Boundary,
        policy_digest: String,
        notices: Vec<Notice>,
        policies: Option<Vec<u8>>,
        wall_clock_by: Option<String>,
        labels: BTreeSet<String>,
    ) -> Self {
        Self {
            boundary,
            policy_digest,
            notices,
            policies,
            wall_clock_by,
            labels,
        }
    }

    /// Returns the labels of the data that the run has touched when it begins: anything shown
    /// counts as read.
    #[must_use]
    pub fn labels(&self) -> &BTreeSet<String> {
        &self.labels
    }

    /// Returns the serialised policies on connections, for the egress process to ask besides the
    /// boundary's rules; `None` if no policy is about connections.
    #[must_use]
    pub fn policies(&self) -> Option<&[u8]> {
        self.policies.as_deref()
    }

    /// Returns the policies that set the run's time limit, if some did.
    #[must_use]
    pub fn wall_clock_by(&self) -> Option<&str> {
        self.wall_clock_by.as_deref()
    }

    /// Returns the boundary: what may be seen, changed and used.
    #[must_use]
    pub fn boundary(&self) -> &Boundary {
        &self.boundary
    }

    /// Returns the version of the policy that decided: `sha256:` and the digest of every file and
    /// option that it was compiled from.
    #[must_use]
    pub fn policy_digest(&self) -> &str {
        &self.policy_digest
    }

    /// Returns the notices for the person: ignored files, rights that a higher layer took away,
    /// secrets that are passed.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }
}

/// The exact rights of one exec in a sandbox that was granted before. Only
/// [`decide`](crate::decide) creates one.
#[derive(Debug, PartialEq, Eq)]
pub struct ExecGrant {
    pub(crate) command: Vec<OsString>,
    pub(crate) directory: PathBuf,
    pub(crate) terminal: bool,
    pub(crate) wall_clock: Option<Duration>,
    pub(crate) wall_clock_by: Option<String>,
    pub(crate) policy_digest: String,
    pub(crate) notices: Vec<Notice>,
}

impl ExecGrant {
    /// Returns the program and its arguments.
    #[must_use]
    pub fn command(&self) -> &[OsString] {
        &self.command
    }

    /// Returns the working directory at its start.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns whether the program gets a terminal of its own.
    #[must_use]
    pub fn terminal(&self) -> bool {
        self.terminal
    }

    /// Returns the time after which policies end the exec; the sandbox's own limit counts besides.
    #[must_use]
    pub fn wall_clock(&self) -> Option<Duration> {
        self.wall_clock
    }

    /// Returns the policies that set the time limit, if some did.
    #[must_use]
    pub fn wall_clock_by(&self) -> Option<&str> {
        self.wall_clock_by.as_deref()
    }

    /// Returns the version of the policy that decided, as [`Grant::policy_digest`].
    #[must_use]
    pub fn policy_digest(&self) -> &str {
        &self.policy_digest
    }

    /// Returns the notices for the person.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }
}

/// The right to publish one port of a living sandbox. Only [`decide`](crate::decide) creates one.
#[derive(Debug, PartialEq, Eq)]
pub struct PortGrant(pub(crate) Published);

impl PortGrant {
    /// Returns the port, with its origin.
    #[must_use]
    pub fn published(&self) -> &Published {
        &self.0
    }
}

/// The right to let a living sandbox reach one more host. Only [`decide`](crate::decide) creates
/// one.
#[derive(Debug)]
pub struct HostGrant {
    pub(crate) rules: Rules,
    pub(crate) rule: NetworkRule,
}

impl HostGrant {
    /// Returns the rules of the sandbox with that of the host.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the rule of the host as it counts: a tunnel where the sandbox's programs trust no
    /// authority of Atoll's.
    #[must_use]
    pub fn rule(&self) -> &NetworkRule {
        &self.rule
    }
}

/// The permission for an action that needs no further right. Only [`decide`](crate::decide) creates
/// one.
#[derive(Debug, PartialEq, Eq)]
pub struct Permission(pub(crate) ());

/// The right to write changes to the person's own files, or to undo them there. Only
/// [`decide`](crate::decide) creates one.
#[derive(Debug, PartialEq, Eq)]
pub struct ChangeGrant {
    pub(crate) policy_digest: Option<String>,
    pub(crate) has_checkpoint: bool,
    pub(crate) notices: Vec<Notice>,
}

impl ChangeGrant {
    /// Returns the version of the policies that decided; `None` if there are none.
    #[must_use]
    pub fn policy_digest(&self) -> Option<&str> {
        self.policy_digest.as_deref()
    }

    /// Returns whether policies require a state to roll back to.
    #[must_use]
    pub fn has_checkpoint(&self) -> bool {
        self.has_checkpoint
    }

    /// Returns the notices for the person.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }
}

/// The exact rights of one call of a tool. Only [`decide`](crate::decide) creates one.
#[derive(Debug, PartialEq, Eq)]
pub struct ToolGrant {
    pub(crate) call: CallTool,
    pub(crate) wall_clock: Option<Duration>,
    pub(crate) shadow: Option<Shadow>,
    pub(crate) policy_digest: String,
    pub(crate) notices: Vec<Notice>,
}

impl ToolGrant {
    /// Returns the call, as it was judged.
    #[must_use]
    pub fn call(&self) -> &CallTool {
        &self.call
    }

    /// Returns the time after which policies end the call; the tool's own limit counts besides.
    #[must_use]
    pub fn wall_clock(&self) -> Option<Duration> {
        self.wall_clock
    }

    /// Returns the runs on a copy that policies have come first.
    #[must_use]
    pub fn shadow(&self) -> Option<Shadow> {
        self.shadow
    }

    /// Returns the version of the policy that decided.
    #[must_use]
    pub fn policy_digest(&self) -> &str {
        &self.policy_digest
    }

    /// Returns the notices for the person.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }
}

/// The rights of one call, by what it asks for. Only [`decide`](crate::decide) creates one.
#[derive(Debug)]
pub enum Granted {
    /// Those of a sandbox.
    Sandbox(Box<Grant>),
    /// Those of an exec.
    Exec(ExecGrant),
    /// A port of a living sandbox.
    Port(PortGrant),
    /// A host that a living sandbox may reach.
    Host(Box<HostGrant>),
    /// Changes to the person's own files.
    Change(ChangeGrant),
    /// A call of a tool.
    Tool(Box<ToolGrant>),
    /// An action that needs no further right.
    Permission(Permission),
}

macro_rules! right_of {
    ($right:ty, $granted:pat => $own:expr) => {
        impl TryFrom<Granted> for $right {
            type Error = Granted;

            fn try_from(granted: Granted) -> Result<Self, Granted> {
                match granted {
                    $granted => Ok($own),
                    other => Err(other),
                }
            }
        }
    };
}

right_of!(Grant, Granted::Sandbox(grant) => *grant);
right_of!(ExecGrant, Granted::Exec(grant) => grant);
right_of!(PortGrant, Granted::Port(grant) => grant);
right_of!(HostGrant, Granted::Host(grant) => *grant);
right_of!(ChangeGrant, Granted::Change(grant) => grant);
right_of!(ToolGrant, Granted::Tool(grant) => *grant);
right_of!(Permission, Granted::Permission(grant) => grant);
