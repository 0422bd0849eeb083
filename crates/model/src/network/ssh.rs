//! What of a person's SSH keys a boundary gives: signatures for logging in to one host as one
//! user, and perhaps for commits. The keys themselves are never inside.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{CredentialName, HostPart};

/// The directory inside that holds what ssh and git read.
pub const SSH_DIRECTORY: &str = "/run/atoll/ssh";

/// The socket in it, at which an agent answers (draft-ietf-sshm-ssh-agent).
pub const SSH_AGENT: &str = "agent";

/// The configuration in it, for `ssh -F`.
pub const SSH_CONFIGURATION: &str = "config";

/// The most grants of one boundary.
pub const SSH_GRANTS_MAX: usize = 16;

/// The most keys, and the most keys of hosts, of one grant.
pub const SSH_KEYS_MAX: usize = 16;

/// The longest public key, bytes as they are sent: one of RSA with 16,384 bits has 2.1 KiB.
pub const SSH_KEY_BYTES_MAX: usize = 4 << 10;

/// The longest message between who judges and who signs, bytes.
pub const SIGNING_BYTES_MAX: usize = 32 << 10;

/// Logging in to one host as one user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshGrant {
    /// Its name in the profile.
    pub name: CredentialName,
    /// The host, as it is named in `known_hosts`.
    pub host: HostPart,
    /// Its port.
    pub port: u16,
    /// The user there.
    pub user: String,
    /// Whether its keys sign commits and tags too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub signs_commits: bool,
    /// Where it is written.
    pub origin: String,
}

impl fmt::Display for SshGrant {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}@{}", self.user, self.host)?;
        match self.port {
            22 => Ok(()),
            port => write!(to, ":{port}"),
        }
    }
}

/// A public key, as it is sent (RFC 4253, section 6.6), in base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshKey {
    /// Its kind, which the key begins with.
    pub kind: String,
    /// The key.
    pub key: String,
    /// What it is called inside.
    pub comment: String,
}

/// The keys of one grant, which are all public.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshKeys {
    /// The grant.
    pub name: CredentialName,
    /// Those that sign.
    pub keys: Vec<SshKey>,
    /// Those of the host: whoever answers with another one is another host.
    pub host_keys: Vec<SshKey>,
}

/// What who judges asks of who signs. What is signed is put together there, of nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Signing {
    /// For which grant.
    pub name: CredentialName,
    /// With which of its keys, counted from 0.
    pub key: usize,
    /// By which algorithm.
    pub algorithm: SshAlgorithm,
    /// What for.
    pub purpose: SigningPurpose,
}

/// What a signature is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum SigningPurpose {
    /// Logging in (RFC 4252, section 7).
    Login {
        /// The session that it counts for, in base64.
        session: String,
        /// The host's key that it names too (`publickey-hostbound-v00@openssh.com`), in base64.
        bound_to: Option<String>,
    },
    /// A commit or a tag (OpenSSH's PROTOCOL.sshsig, namespace `git`).
    Commit {
        /// The digest's algorithm.
        hash: SshHash,
        /// The digest, in base64.
        digest: String,
    },
}

/// How a signature is made: RSA keys have two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SshAlgorithm {
    /// As the key's kind says.
    OfKey,
    /// `rsa-sha2-256` (RFC 8332).
    RsaSha256,
    /// `rsa-sha2-512`.
    RsaSha512,
}

/// The digest of what is signed for git.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SshHash {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl SshHash {
    /// Its name (PROTOCOL.sshsig).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// The length of a digest, bytes.
    #[must_use]
    pub fn digest_bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }
}

/// What who signs answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Signed {
    /// The signature as it is sent, in base64.
    Signature(String),
    /// There is none, for this reason.
    Nothing(String),
}

/// What who signs begins with. What comes with this: the line to who judges, the
/// connection to the person's agent if a key is there, a socket with keys out of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signer {
    /// What may be signed.
    pub grants: Vec<SshGrant>,
    /// With which keys.
    pub keys: Vec<SshKeys>,
    /// Whether the person's agent signs for some.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_agent: bool,
    /// The grants whose key is out of a file, in the order in which these come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<CredentialName>,
}
