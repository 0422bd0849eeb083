//! The requests to a running sandbox, and its answers.

use atoll_model::Reason;
use atoll_model::network::{
    CallDigest, GivenUp, GivenUps, GivingUp, Listener, Published, PublishedPort,
};
use atoll_sandbox::{Decision, Declined, Lease, Pending, PortAgreed, Second};
use serde::{Deserialize, Serialize};

use super::{ExecDone, is_none};

/// A request to a running sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Question {
    /// List the listeners in the sandbox, and the published ports.
    Ports {},
    /// Publish a port.
    Publish(PublishedPort),
    /// Let callers of a server reach a port of its served sandbox: decided and recorded once.
    Reach {
        /// The port.
        port: u16,
    },
    /// List the open approval requests, with short texts, and the leases.
    Approvals {},
    /// Show one approval request in full.
    Approval {
        /// The request's number.
        approval: u32,
    },
    /// Decide an approval request.
    Decide {
        /// The request's number.
        approval: u32,
        /// The digest of the call that was shown.
        digest: CallDigest,
        /// The decision.
        decision: Decision,
    },
    /// Revoke a lease.
    Revoke {
        /// The number of the request that it was the answer to.
        approval: u32,
    },
    /// Drop rights for good.
    Restrict(GivingUp),
    /// Compare the policies in force with those on disk; nothing changes.
    Compare {
        /// The offset in the text of the part to return, bytes; at 0 the policies are read
        /// again.
        at: usize,
    },
    /// Reload the policies.
    Reload {
        /// Only from the one version to the other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        only: Option<Versions>,
    },
    /// Stop the run.
    Stop {},
    /// Stop all processes, until the connection is closed, or for a minute.
    Freeze {},
    /// Start a program, with a terminal of this size if one is given. A sealed
    /// [`ExecRequest`](super::ExecRequest) and the caller's standard input, output and error come
    /// with it; the connection stays until the answer, at the program's end.
    Exec {
        /// Lines of the terminal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rows: Option<u16>,
        /// Characters of a line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        columns: Option<u16>,
    },
}

/// The answer of a running sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answer {
    /// The answer to [`Question::Ports`].
    Ports {
        /// The listeners in the sandbox.
        listening: Vec<Listener>,
        /// The published ports, in order.
        published: Vec<Published>,
    },
    /// The port is published.
    Published(Published),
    /// The answer to [`Question::Approvals`].
    Approvals {
        /// The open requests, the oldest first.
        pending: Vec<Pending>,
        /// The leases, the oldest first; the most recent ones if there are many.
        leases: Vec<Lease>,
        /// The number of further leases.
        #[serde(default, skip_serializing_if = "is_none")]
        further: u32,
        /// The port that waits for a second approval.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<PortAgreed>,
    },
    /// The answer to [`Question::Approval`].
    Approval(Box<Pending>),
    /// The answer to [`Question::Compare`].
    Compared {
        /// The version in force, and that on disk.
        versions: Versions,
        /// A part of the text that a prover compares.
        text: String,
        /// The length of the whole text, bytes.
        bytes: usize,
    },
    /// The answer to [`Question::Reload`]: the policies in force.
    Reloaded(Reloaded),
    /// The answer to [`Question::Restrict`]: the rights are dropped, and that is recorded.
    GivenUp {
        /// The rights dropped now.
        new: Vec<GivenUp>,
        /// All rights dropped by now, including those dropped earlier in the run's session.
        all: GivenUps,
    },
    /// Done and recorded.
    Done {},
    /// Noted and recorded; takes effect once another person agrees: one of these.
    Agreed(Second),
    /// The program of [`Question::Exec`] is executed; the answer about its end follows.
    Executing {
        /// The number of its process in the sandbox, as that says.
        pid: u32,
    },
    /// The program of [`Question::Exec`] has ended.
    Exec(ExecDone),
    /// An approver is asked about the exec of a server's own caller first.
    NeedsApproval {
        /// The digest of what would be approved.
        agreement: String,
        /// The reasons to ask.
        reasons: Vec<Reason>,
    },
    /// Refused by policies, for these reasons: the answer to a server's own caller.
    Denied(Vec<Reason>),
    /// Refused.
    Refused(Declined),
}

/// The version in force and its replacement, each the digest of all that decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Versions {
    /// The version in force.
    pub from: String,
    /// The replacement.
    pub to: String,
}

/// The result of a reload, with each version the digest of all that decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reloaded {
    /// The version that was in force.
    pub from: String,
    /// The version in force now; the same if nothing differs.
    pub to: String,
    /// Notices for the person: what goes on although it is denied now, and what is ignored.
    pub told: Vec<String>,
}
