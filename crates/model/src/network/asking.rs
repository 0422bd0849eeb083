//! Calls that need a person's approval before they are sent, and the decisions on them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{CredentialName, FlowKind, FlowLogin, Scheme};

/// The time that a call waits for an approval.
pub const ASKING_PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);

/// The most calls of one run that wait for approvals at once; further ones are denied.
pub const ASKING_MAX: usize = 64;

/// The longest shown part of a path, of a query and of a body, bytes each.
pub const ASKED_TEXT_BYTES_MAX: usize = 512;

/// The most headers of a request that are shown.
pub const ASKED_HEADERS_MAX: usize = 16;

/// The longest shown part of each text in a list, bytes: sixteen calls fit into one answer.
pub const ASKED_SHORT_BYTES_MAX: usize = 128;

/// The longest lease, seconds: a day.
pub const LEASE_SECONDS_MAX: u32 = 24 * 60 * 60;

/// The SHA-256 of what a person is asked about, in the form in which both sides write it: only what
/// they approve is sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CallDigest([u8; 32]);

/// The error for a text that is not 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 hexadecimal digits, lower-case")]
pub struct InvalidDigest;

impl CallDigest {
    /// Returns the digest with this hash.
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

/// A call that is sent only with a person's approval. The program has chosen every text in it,
/// except the rule's and the credentials' names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedCall {
    /// The kind: a request, or a tunnel.
    pub kind: FlowKind,
    /// The host, as the program named it.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The request, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<AskedRequest>,
    /// The user and database of a login that Atoll makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<FlowLogin>,
    /// The digest of what an SSH key signs, and for whom, if it is a signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signs: Option<CallDigest>,
    /// The credentials that are injected into it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialName>,
    /// The rule that asks, with the place where it is written.
    pub rule: String,
    /// The generation of the run's policies that ask: 0 for those that it began with.
    #[serde(default, skip_serializing_if = "is_first")]
    pub policies: u32,
}

impl AskedCall {
    /// Returns whether it continues after the approval: the content of an open connection needs no
    /// further approval, whereas a request is over with its answer.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        let is_over = |request: &AskedRequest| !request.is_web_socket;
        let is_signature = self.kind == FlowKind::CommitSignature;
        let is_over = is_signature || self.request.as_ref().is_some_and(is_over);
        self.login.is_some() || !is_over
    }
}

/// Returns whether policies are those that a run began with.
pub(super) fn is_first(policies: &u32) -> bool {
    *policies == 0
}

/// A request to be approved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedRequest {
    /// The scheme by which it is sent.
    pub scheme: Scheme,
    /// The method.
    pub method: String,
    /// The path in normal form, cut if long.
    pub path: String,
    /// The query as written, cut if long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The digest of the whole path in normal form.
    pub path_digest: CallDigest,
    /// The digest of path and query as written.
    pub target_digest: CallDigest,
    /// The agent's stated confidence, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<u8>,
    /// Set when a WebSocket follows, whose messages need no approval.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_web_socket: bool,
    /// The digest of all headers that are sent, with placeholders where credentials are injected.
    pub headers_digest: CallDigest,
    /// The digest of those headers that can change the request's meaning: headers that every
    /// request has alike, or that vary without a meaning, are left out.
    pub telling_headers_digest: CallDigest,
    /// The first of those headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub telling_headers: Vec<AskedHeader>,
    /// The number of those headers that are not shown.
    #[serde(default, skip_serializing_if = "is_none")]
    pub further_headers: u32,
    /// The body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<AskedBody>,
}

fn is_none(number: &u32) -> bool {
    *number == 0
}

/// A header of a request, as the program wrote it, cut if long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedHeader {
    /// The name, lower-case.
    pub name: String,
    /// The value; bytes that are not UTF-8 are shown as U+FFFD.
    pub value: String,
}

/// The body of a request, after all of it has been read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedBody {
    /// The length, bytes.
    pub bytes: u64,
    /// The digest of all of it.
    pub digest: CallDigest,
    /// The beginning, as text; bytes that are not UTF-8 are shown as U+FFFD.
    pub beginning: String,
}

/// The decision on a waiting call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Consent {
    /// The call may be sent, under this approval.
    Granted {
        /// The approval's number.
        approval: u32,
    },
    /// The call may not be sent.
    Denied {
        /// The reason.
        why: NoConsent,
    },
}

/// The reason that a call is not approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoConsent {
    /// A person denied it.
    Person,
    /// A person denied the same call a moment ago.
    Cooling,
    /// No decision came in time.
    Late,
    /// One person approved it, and no second one where dual control needs two.
    Unseconded,
    /// Too many calls wait, or were asked within a minute, so nobody is asked.
    TooMany,
    /// The program did not wait for the decision.
    Left,
    /// The run ended.
    Ended,
    /// The decision was for another call.
    Mismatch,
    /// No approver is available.
    Unattended,
}

impl NoConsent {
    /// Returns its name in records.
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

    /// Returns the reason in words, also shown to programs.
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

    /// Returns advice to a program on what to do next.
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

/// The duration of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Scope {
    /// Once, for exactly the call that was shown.
    Once,
    /// Until the run ends.
    Run,
    /// A lease for this time.
    Seconds {
        /// The number of seconds, up to [`LEASE_SECONDS_MAX`].
        seconds: u32,
    },
}

impl Scope {
    /// Returns the number of seconds that it lasts, `None` for as long as the run; nothing for a
    /// single call.
    #[must_use]
    pub fn lasts(self) -> Option<Option<u32>> {
        match self {
            Self::Once => None,
            Self::Run => Some(None),
            Self::Seconds { seconds } => Some(Some(seconds)),
        }
    }
}

/// The calls that a lasting approval covers beyond the one that was shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalScope {
    /// Calls with the same host, port, scheme, method, path and meaningful headers, with any query
    /// and body.
    #[default]
    Same,
    /// Every call that the same rule asks about.
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
