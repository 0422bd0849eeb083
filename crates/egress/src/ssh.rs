//! Keys of SSH that sign outside: who uses them asks an agent inside, which lists the granted
//! ones alone and signs nothing but a login to their host as their user, once that host has
//! shown its key (`session-bind@openssh.com`, OpenSSH's PROTOCOL.agent), and commits where
//! that is granted.
//!
//! What a program asks is read and judged in the process that carries connections
//! ([`agent`]); a process of its own signs ([`signer`]), which is told what for and puts
//! together itself what is signed. So whoever takes the first one over has no key, and no
//! signature for anything else.

pub(crate) mod agent;
mod filter;
mod key;
mod known_hosts;
mod own_agent;
mod signer;
mod wire;

pub use key::{OwnKey, OwnKeyError, PUBLIC_KEY_BYTES_MAX, fingerprint};
pub use known_hosts::{KNOWN_HOSTS_BYTES_MAX, host_keys};
pub use own_agent::{Identity, OwnAgent, OwnAgentError};
pub use signer::program as signer_program;

use atoll_model::network::SshKey;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Bytes as they are told between processes, and written in files.
#[must_use]
pub fn encoded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// A public key, as it is told: none of other bytes.
#[must_use]
pub fn told(key: &[u8], comment: &str) -> Option<SshKey> {
    let kind = wire::Reader::new(key).string()?;
    let kind = std::str::from_utf8(kind).ok()?;
    let is_kind = |byte: u8| byte.is_ascii_alphanumeric() || b"-@.".contains(&byte);
    (key.len() <= PUBLIC_KEY_BYTES_MAX && kind.bytes().all(is_kind)).then(|| SshKey {
        kind: kind.to_owned(),
        key: encoded(key),
        comment: comment.to_owned(),
    })
}

/// The same back.
#[must_use]
pub fn decoded(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}
