//! The types of requests for approval, decisions and their records.

use std::fmt;

use atoll_model::Asker;
use atoll_model::network::{ApprovalScope, AskedCall, CallDigest, NoConsent, PublishedPort, Scope};
use serde::{Deserialize, Serialize};

/// The process of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Who {
    /// The user id.
    pub uid: u32,
    /// The process id.
    pub pid: u32,
}

impl Who {
    /// Returns this process: it acts for the user who started it.
    #[must_use]
    pub fn own() -> Self {
        Self {
            uid: rustix::process::getuid().as_raw(),
            pid: std::process::id(),
        }
    }
}

impl From<Who> for Asker {
    fn from(Who { uid, pid }: Who) -> Self {
        Self { uid, pid }
    }
}

/// The person who stopped a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stopped {
    /// The person.
    #[serde(flatten)]
    pub by: Who,
    /// The request to which it was the answer, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<u32>,
}

/// A person's decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Decision {
    /// Approve.
    Grant {
        /// The time for which it is granted.
        scope: Scope,
        /// The calls for which it is granted.
        breadth: ApprovalScope,
    },
    /// Deny.
    Deny {},
    /// Deny, and stop the run.
    Stop {},
}

/// An open approval request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pending {
    /// Its number within the run.
    pub approval: u32,
    /// The digest of the call.
    pub digest: CallDigest,
    /// The call.
    pub call: AskedCall,
    /// The number of equal calls that wait.
    pub waiting: u32,
    /// Its age, seconds.
    pub age_seconds: u64,
    /// The time until it is denied, seconds.
    pub left_seconds: u64,
    /// The first of two approvals; without the second it is denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed: Option<Agreed>,
    /// True if lasting rights need two approvals.
    #[serde(default, skip_serializing_if = "is_one")]
    pub takes_two: bool,
    /// The persons who can give the missing approval, under dual control, if they can be heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second: Option<Second>,
}

fn is_one(takes_two: &bool) -> bool {
    !takes_two
}

/// A granted approval that lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// The number of the request.
    pub approval: u32,
    /// The call that was shown then.
    pub call: AskedCall,
    /// The calls that it covers.
    pub breadth: ApprovalScope,
    /// The time until it ends, seconds; `None` if it ends with the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<u64>,
    /// The number of uses.
    pub uses: u64,
    /// The approver.
    pub by: Who,
}

/// A change of an approval, to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalNews {
    /// A request was opened.
    Asked {
        /// The request's number.
        approval: u32,
        /// The digest of the call.
        digest: CallDigest,
        /// The call.
        call: Box<AskedCall>,
    },
    /// The first of two persons approved.
    Agreed {
        /// The request's number.
        approval: u32,
        /// The digest of the call.
        digest: CallDigest,
        /// The approval.
        said: Agreed,
    },
    /// A request was granted.
    Granted {
        /// The request's number.
        approval: u32,
        /// The digest of the call.
        digest: CallDigest,
        /// The time for which it is granted.
        scope: Scope,
        /// The calls for which it is granted.
        breadth: ApprovalScope,
        /// The approver; under dual control the second.
        by: Who,
    },
    /// A request was denied.
    Denied {
        /// The request's number.
        approval: u32,
        /// The digest of the call.
        digest: CallDigest,
        /// The reason.
        why: NoConsent,
        /// The person who denied it, if it was one.
        by: Option<Who>,
    },
    /// A lease has ended.
    LeaseEnded {
        /// The number of its request.
        approval: u32,
        /// The number of uses.
        uses: u64,
        /// The person who revoked it; `None` if it expired.
        by: Option<Who>,
    },
}

/// The persons who can give the second approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Second {
    /// The user who owns the run.
    pub owner: u32,
    /// The users whose approval counts, the owner first if among them.
    pub persons: Vec<u32>,
}

/// The first of two approvals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agreed {
    /// The time for which it was given.
    pub scope: Scope,
    /// The calls for which it was given.
    pub breadth: ApprovalScope,
    /// The approver.
    pub by: Who,
}

impl fmt::Display for Agreed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            Scope::Once => to.write_str("once")?,
            Scope::Run => to.write_str("until the run ends")?,
            Scope::Seconds { seconds } => write!(to, "for {seconds} s")?,
        }
        match self.breadth {
            ApprovalScope::Same => Ok(()),
            ApprovalScope::Rule => to.write_str(", for whatever the rule asks about"),
        }
    }
}

/// A port with the first of two approvals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortAgreed {
    /// The port.
    pub port: PublishedPort,
    /// The first approver.
    pub by: Who,
    /// The persons who can give the missing approval.
    pub second: Second,
    /// The time until the first approval is void, seconds.
    pub left_seconds: u64,
}

/// The refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declined {
    /// The reason.
    pub why: String,
    /// An alternative for the person.
    pub advice: String,
}
