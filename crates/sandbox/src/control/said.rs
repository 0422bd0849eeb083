//! What is asked of a run that goes on, and what it answers.

use atoll_model::network::{
    CallDigest, GivenUp, GivenUps, GivingUp, Listener, Published, PublishedPort,
};
use serde::{Deserialize, Serialize};

use super::is_none;
use crate::approvals::{Decision, Lease, Pending, Second, Who};

/// What a run can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Question {
    /// What listens inside, and what is published.
    Ports {},
    /// That a port is published.
    Publish(PublishedPort),
    /// What waits for a person, with short texts, and what they have granted for longer.
    Approvals {},
    /// One question with all that is shown of it.
    Approval {
        /// Its number.
        approval: u32,
    },
    /// A person's answer to a question.
    Decide {
        /// Its number.
        approval: u32,
        /// Of what they were shown.
        digest: CallDigest,
        /// What they say.
        decision: Decision,
    },
    /// That a lease ends.
    Revoke {
        /// By the number of the question that it answered.
        approval: u32,
    },
    /// That the run gives rights up for good.
    Restrict(GivingUp),
    /// What would be others if the run read its policies anew: nothing comes of it.
    Compare {
        /// From this byte of the text on; from the first on they are read.
        at: usize,
    },
    /// That the run reads its policies anew.
    Reload {
        /// Only from this version to this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        only: Option<Versions>,
    },
    /// That the run ends now.
    Stop {},
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answer {
    /// To [`Question::Ports`].
    Ports {
        /// What listens inside.
        listening: Vec<Listener>,
        /// What is published, in order.
        published: Vec<Published>,
    },
    /// The port is published now.
    Published(Published),
    /// To [`Question::Approvals`].
    Approvals {
        /// What waits, the oldest first.
        pending: Vec<Pending>,
        /// What was granted for longer, the oldest first; of many those granted last.
        leases: Vec<Lease>,
        /// How many leases there are besides.
        #[serde(default, skip_serializing_if = "is_none")]
        further: u32,
        /// The port that waits for the second of two persons.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<PortAgreed>,
    },
    /// To [`Question::Approval`].
    Approval(Box<Pending>),
    /// To [`Question::Compare`].
    Compared {
        /// Which version is in force, and which they would be.
        versions: Versions,
        /// A part of what a prover is told of both.
        text: String,
        /// How long all of it is, bytes.
        bytes: usize,
    },
    /// To [`Question::Reload`]: these are in force.
    Reloaded(Reloaded),
    /// To [`Question::Restrict`]: it counts and is recorded.
    GivenUp {
        /// What is given up now.
        new: Vec<GivenUp>,
        /// All that the run has given up by now, those of its session before it too.
        all: GivenUps,
    },
    /// It is done and recorded.
    Done {},
    /// It is noted and recorded, and nothing is done before another person says the same: one of
    /// these.
    Agreed(Second),
    /// It is not done.
    Refused(Declined),
}

/// A port to which the first of two persons has said yes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortAgreed {
    /// Which.
    pub port: PublishedPort,
    /// Who.
    pub by: Who,
    /// Who can say the yes that is wanting.
    pub second: Second,
    /// After how long that counts for nothing, seconds.
    pub left_seconds: u64,
}

/// Why something asked for is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declined {
    /// Why.
    pub why: String,
    /// What to do instead.
    pub advice: String,
}

/// Policies in force and those in their place, by the digests of all that decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Versions {
    /// What is in force.
    pub from: String,
    /// What is to be.
    pub to: String,
}

/// Which policies are in force, by the digests of all that decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reloaded {
    /// What was in force.
    pub from: String,
    /// What is now; the same where nothing is different.
    pub to: String,
    /// What the person is to be told: what goes on that they deny, and what is ignored.
    pub told: Vec<String>,
}
