//! What a person is asked about before it goes out, and what they say.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{CredentialName, FlowKind, FlowLogin, Scheme};

/// How long a call waits for a person.
pub const ASKING_PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);

/// How many calls of one run can wait for a person at once; further ones are denied.
pub const ASKING_MAX: usize = 64;

/// How much of a path, of a query and of a body is shown, bytes each.
pub const ASKED_TEXT_BYTES_MAX: usize = 512;

/// How many headers of a request are shown.
pub const ASKED_HEADERS_MAX: usize = 16;

/// How much of each text is shown in a list, bytes: sixteen questions fit into one answer.
pub const ASKED_SHORT_BYTES_MAX: usize = 128;

/// The longest lease, seconds: a day.
pub const LEASE_SECONDS_MAX: u32 = 24 * 60 * 60;

/// SHA-256 of what a person is asked about, in the form in which both sides write it: what
/// they say yes to is what runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CallDigest([u8; 32]);

/// It is not 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 hexadecimal digits, lower-case")]
pub struct InvalidDigest;

impl CallDigest {
    /// That of these bytes' hash.
    #[must_use]
    pub const fn new(hash: [u8; 32]) -> Self {
        Self(hash)
    }
}

impl fmt::Display for CallDigest {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(to, "{byte:02x}"))
    }
}

impl fmt::Debug for CallDigest {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "CallDigest({self})")
    }
}

impl FromStr for CallDigest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 64 || !text.bytes().all(is_digit) {
            return Err(InvalidDigest);
        }
        let mut hash = [0; 32];
        for (byte, at) in hash.iter_mut().zip((0..).step_by(2)) {
            let digits = text.get(at..at + 2).ok_or(InvalidDigest)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| InvalidDigest)?;
        }
        Ok(Self(hash))
    }
}

impl TryFrom<String> for CallDigest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<CallDigest> for String {
    fn from(digest: CallDigest) -> Self {
        digest.to_string()
    }
}

/// What is to go out, once a person says so. The program has chosen each text in it but the
/// rule's and the credentials' names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedCall {
    /// A request, or a connection whose bytes are carried as they are.
    pub kind: FlowKind,
    /// The host, as the program named it.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The request, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<AskedRequest>,
    /// As whom a database is signed in to, where Atoll does that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<FlowLogin>,
    /// What a key of SSH signs for whom, where it is that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signs: Option<CallDigest>,
    /// The credentials that are put into it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialName>,
    /// The rule that asks, and where it is written.
    pub rule: String,
    /// Which of the run's policies ask: 0 those that it began with.
    #[serde(default, skip_serializing_if = "is_first")]
    pub policies: u32,
}

impl AskedCall {
    /// Whether it goes on once it was let go: nobody is asked again about what a connection
    /// carries that was opened, whereas a request is over with its answer.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        let is_over = |request: &AskedRequest| !request.is_web_socket;
        let is_signature = self.kind == FlowKind::CommitSignature;
        let is_over = is_signature || self.request.as_ref().is_some_and(is_over);
        self.login.is_some() || !is_over
    }
}

/// Whether policies are those that a run began with.
pub(super) fn is_first(policies: &u32) -> bool {
    *policies == 0
}

/// A request that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedRequest {
    /// How it is sent.
    pub scheme: Scheme,
    /// Its method.
    pub method: String,
    /// Its path in normal form; of a long one the beginning.
    pub path: String,
    /// Its query, as it is written; of a long one the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Of the whole path in normal form.
    pub path_digest: CallDigest,
    /// Of path and query as they are written.
    pub target_digest: CallDigest,
    /// How sure the agent has said it is, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<u8>,
    /// Whether what follows is a WebSocket, whose messages nobody is asked about.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_web_socket: bool,
    /// Of all headers that are sent on, with placeholders where credentials are put in.
    pub headers_digest: CallDigest,
    /// Of those that can mean something besides: what every request has alike, or each one
    /// differently without a meaning, is not among them.
    pub telling_headers_digest: CallDigest,
    /// The first of those.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub telling_headers: Vec<AskedHeader>,
    /// How many of them there are besides.
    #[serde(default, skip_serializing_if = "is_none")]
    pub further_headers: u32,
    /// What is sent with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<AskedBody>,
}

fn is_none(number: &u32) -> bool {
    *number == 0
}

/// A header of a request, as the program has written it; of a long one the beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedHeader {
    /// Its name, lower-case.
    pub name: String,
    /// Its value; what is no text stands as U+FFFD.
    pub value: String,
}

/// The body of a request, all of which has been read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedBody {
    /// How long it is, bytes.
    pub bytes: u64,
    /// Of all of it.
    pub digest: CallDigest,
    /// How it begins, as text; what is none stands as U+FFFD.
    pub beginning: String,
}

/// What is said of a call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Consent {
    /// It may go out, by the approval of this number.
    Granted {
        /// Which.
        approval: u32,
    },
    /// It may not.
    Denied {
        /// Why not.
        why: NoConsent,
    },
}

/// Why something does not go out that a person would have had to allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoConsent {
    /// A person said no.
    Person,
    /// A person said no to the same a moment ago.
    Cooling,
    /// Nobody answered in time.
    Late,
    /// One person said yes, and no second one where it takes two.
    Unseconded,
    /// So much waits, or was asked within a minute, that nobody is asked.
    TooMany,
    /// Who asked did not wait.
    Left,
    /// The run ends.
    Ended,
    /// The answer was for something else.
    Mismatch,
    /// Nobody is there to be asked.
    Unattended,
}

impl NoConsent {
    /// The word for it in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Cooling => "cooling",
            Self::Late => "late",
            Self::Unseconded => "unseconded",
            Self::TooMany => "too-many",
            Self::Left => "left",
            Self::Ended => "ended",
            Self::Mismatch => "mismatch",
            Self::Unattended => "unattended",
        }
    }

    /// In words, also for programs.
    #[must_use]
    pub fn why(self) -> &'static str {
        match self {
            Self::Person => "a person was asked, and said no",
            Self::Cooling => {
                "a person said no to the same a short while ago, and is not asked again yet"
            }
            Self::Late => "a person was asked, and nobody answered in time",
            Self::Unseconded => "one person said yes, and no second one in time",
            Self::TooMany => "a person has too many questions already, and was not asked",
            Self::Left => "a person was asked, and who wanted it did not wait",
            Self::Ended => "a person was asked, and the run ended",
            Self::Mismatch => "the answer was about something else",
            Self::Unattended => "a person would be asked, and the run was started with --no-ask",
        }
    }

    /// What a program can do about it.
    #[must_use]
    pub fn how_to_ask(self) -> &'static str {
        match self {
            Self::Person | Self::Cooling => {
                "Do something else: the person who started this run decided. Trying again asks \
                 nobody for a while."
            }
            Self::Late | Self::Unseconded => {
                "Tell the person who started this run that it waits for an answer: there, \
                 `atoll approvals list` shows the question while the program waits; then try again."
            }
            Self::Unattended => "Do without it, or have it started without --no-ask.",
            Self::TooMany => "Wait a minute, ask for less at once, then try again.",
            Self::Left | Self::Ended | Self::Mismatch => {
                "The person who started this run is asked each time: `atoll approvals list` shows it there."
            }
        }
    }
}

/// For how long a person says yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Scope {
    /// For what was shown, and once.
    Once,
    /// Until the run ends.
    Run,
    /// For so long.
    Seconds {
        /// How many, up to [`LEASE_SECONDS_MAX`].
        seconds: u32,
    },
}

/// For what, beyond what was shown: where it is for more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Breadth {
    /// For the same host, port, scheme, method, path and telling headers, with whatever query
    /// and body.
    #[default]
    Same,
    /// For whatever the same rule asks about.
    Rule,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_in_one_way() {
        let digest = CallDigest::new([0xab; 32]);
        let text = "ab".repeat(32);
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse(), Ok(digest));
        let wrong = [
            "",
            "ab",
            &text.to_uppercase(),
            &"zz".repeat(32),
            &"é".repeat(32),
        ];
        for wrong in wrong {
            assert_eq!(wrong.parse::<CallDigest>(), Err(InvalidDigest), "{wrong}");
        }
    }
}
