//! Use of a person's SSH keys: signatures for logging in to one host as one user, and optionally
//! for commits. The keys themselves never enter the sandbox.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{CredentialName, HostPart};

/// The directory in the sandbox that has the files for ssh and git.
pub const SSH_DIRECTORY: &str = "/run/atoll/ssh";

/// The name of the SSH agent's socket in it (draft-ietf-sshm-ssh-agent).
pub const SSH_AGENT: &str = "agent";

/// The name of the configuration in it, for `ssh -F`.
pub const SSH_CONFIGURATION: &str = "config";

/// The most grants of one boundary.
pub const SSH_GRANTS_MAX: usize = 16;

/// The most keys, and the most host keys, of one grant.
pub const SSH_KEYS_MAX: usize = 16;

/// The longest public key, bytes as sent: an RSA key of 16,384 bits has 2.1 KiB.
pub const SSH_KEY_BYTES_MAX: usize = 4 << 10;

/// The longest message between the egress process and the signer, bytes.
pub const SIGNING_BYTES_MAX: usize = 32 << 10;

/// A grant to log in to one host as one user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshGrant {
    /// Its name in the profile.
    pub name: CredentialName,
    /// The host, as it is named in `known_hosts`.
    pub host: HostPart,
    /// The port.
    pub port: u16,
    /// The user there.
    pub user: String,
    /// True if its keys sign commits and tags too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub signs_commits: bool,
    /// The place where it is written.
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

/// A public key, as sent (RFC 4253, section 6.6), in base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshKey {
    /// Its type, also the beginning of the key.
    pub kind: String,
    /// The key.
    pub key: String,
    /// The comment that the sandbox sees.
    pub comment: String,
}

/// The public keys of one grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshKeys {
    /// The grant.
    pub name: CredentialName,
    /// The keys that sign.
    pub keys: Vec<SshKey>,
    /// The host's keys: a server with another key is another host.
    pub host_keys: Vec<SshKey>,
}

/// A request of the egress process to the signer, which composes the signed data itself, of nothing
/// else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Signing {
    /// The grant.
    pub name: CredentialName,
    /// The index of its key, counted from 0.
    pub key: usize,
    /// The algorithm.
    pub algorithm: SshAlgorithm,
    /// The purpose.
    pub purpose: SigningPurpose,
}

/// The purpose of a signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum SigningPurpose {
    /// A login (RFC 4252, section 7).
    Login {
        /// The identifier of the SSH session, in base64.
        session: String,
        /// The host key that the signature binds (`publickey-hostbound-v00@openssh.com`), in
        /// base64.
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

/// A signature algorithm: RSA keys have two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SshAlgorithm {
    /// The only one of the key's type.
    OfKey,
    /// `rsa-sha2-256` (RFC 8332).
    RsaSha256,
    /// `rsa-sha2-512`.
    RsaSha512,
}

/// The digest of data signed for git.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SshHash {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl SshHash {
    /// Returns its name (PROTOCOL.sshsig).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// Returns the length of a digest, bytes.
    #[must_use]
    pub fn digest_bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }
}

/// The signer's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Signed {
    /// The signature as sent, in base64.
    Signature(String),
    /// No signature, for this reason.
    Nothing(String),
}

/// The configuration that a signer starts with. With it come the channel to the egress process, the
/// connection to the person's SSH agent if that has a key, and a socket with keys from files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signer {
    /// The grants.
    pub grants: Vec<SshGrant>,
    /// The keys of each grant.
    pub keys: Vec<SshKeys>,
    /// True if the person's SSH agent signs for some grants.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_agent: bool,
    /// The grants with a key from a file, in the order in which the keys come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<CredentialName>,
}
