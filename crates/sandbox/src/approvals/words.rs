//! The words in which a person is asked, answers, and is recorded.

use atoll_model::network::{AskedCall, Breadth, CallDigest, NoConsent, Scope};
use serde::{Deserialize, Serialize};

use super::{Agreed, Second};

/// Who has said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Who {
    /// The user's number.
    pub uid: u32,
    /// The process's.
    pub pid: u32,
}

impl Who {
    /// This process: it speaks for whoever started it.
    pub(crate) fn own() -> Self {
        Self {
            uid: rustix::process::getuid().as_raw(),
            pid: std::process::id(),
        }
    }
}

/// Who has ended a run, and how they said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stopped {
    /// Who.
    #[serde(flatten)]
    pub by: Who,
    /// The question to which it was the answer, if it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<u32>,
}

/// What a person says to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Decision {
    /// Yes.
    Grant {
        /// For how long.
        scope: Scope,
        /// For what.
        breadth: Breadth,
    },
    /// No.
    Deny {},
    /// No, and the run ends.
    Stop {},
}

/// A question that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pending {
    /// Its number, the run's own.
    pub approval: u32,
    /// Of what it asks about.
    pub digest: CallDigest,
    /// What that is.
    pub call: AskedCall,
    /// How many equal calls wait for it.
    pub waiting: u32,
    /// How long ago it was asked first, seconds.
    pub age_seconds: u64,
    /// After how long it is denied, seconds.
    pub left_seconds: u64,
    /// One of two persons has said yes; without the other it is denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed: Option<Agreed>,
    /// Whether a yes to what lasts takes two persons.
    #[serde(default, skip_serializing_if = "is_one")]
    pub takes_two: bool,
    /// Who can say the yes that is wanting, where it takes two and they are heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second: Option<Second>,
}

fn is_one(takes_two: &bool) -> bool {
    !takes_two
}

/// What was granted for longer than once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// The number of the question that it answers.
    pub approval: u32,
    /// What was shown then.
    pub call: AskedCall,
    /// For what it is.
    pub breadth: Breadth,
    /// After how long it ends, seconds; without that with the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<u64>,
    /// How often it was used.
    pub uses: u64,
    /// Who granted it.
    pub by: Who,
}

/// What is to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalNews {
    /// A person is asked.
    Asked {
        /// The question's number.
        approval: u32,
        /// Of what it asks about.
        digest: CallDigest,
        /// What that is.
        call: Box<AskedCall>,
    },
    /// The first of two persons said yes.
    Agreed {
        /// To which question.
        approval: u32,
        /// Of what it asked about.
        digest: CallDigest,
        /// To what.
        said: Agreed,
    },
    /// Somebody said yes.
    Granted {
        /// To which question.
        approval: u32,
        /// Of what it asked about.
        digest: CallDigest,
        /// For how long.
        scope: Scope,
        /// For what.
        breadth: Breadth,
        /// Who.
        by: Who,
    },
    /// It does not go out.
    Denied {
        /// Which question.
        approval: u32,
        /// Of what it asked about.
        digest: CallDigest,
        /// Why.
        why: NoConsent,
        /// Who said so, where it was a person.
        by: Option<Who>,
    },
    /// What was granted for longer is not any more.
    LeaseEnded {
        /// By which question.
        approval: u32,
        /// How often it was used.
        uses: u64,
        /// Who took it back; nobody where its time was over.
        by: Option<Who>,
    },
}
