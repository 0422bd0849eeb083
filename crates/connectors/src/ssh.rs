//! SSH keys that sign outside: programs ask an agent in the sandbox, which lists the granted keys
//! alone and signs nothing but a login to their host as their user, once that host has proven its
//! key (`session-bind@openssh.com`, OpenSSH's PROTOCOL.agent), and commits where that is granted.
//!
//! A program's requests are parsed and decided on in the egress process ([`agent`]); a separate
//! process signs ([`signer`]), which is given the purpose and itself builds the data that is
//! signed. So an attacker who takes over the egress process has no key, and no signature for
//! anything else.

mod agent;
mod filter;
mod key;
mod known_hosts;
mod own_agent;
mod signer;
mod signer_filter;
mod wire;

pub use agent::SshAgent;
pub use key::{OwnKey, OwnKeyError, PUBLIC_KEY_BYTES_MAX, fingerprint};
pub use known_hosts::{KNOWN_HOSTS_BYTES_MAX, host_keys};
pub use own_agent::{Identity, OwnAgent, OwnAgentError};
pub use signer::program as signer_program;

use atoll_model::network::SshKey;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Encodes bytes in Base64, for messages between processes and for files.
#[must_use]
pub fn encoded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Returns a public key in the form for messages; `None` if the bytes are no such key.
#[must_use]
pub fn public_key(key: &[u8], comment: &str) -> Option<SshKey> {
    let kind = wire::Reader::new(key).string()?;
    let kind = std::str::from_utf8(kind).ok()?;
    let is_kind = |byte: u8| byte.is_ascii_alphanumeric() || b"-@.".contains(&byte);
    (key.len() <= PUBLIC_KEY_BYTES_MAX && kind.bytes().all(is_kind)).then(|| SshKey {
        kind: kind.to_owned(),
        key: encoded(key),
        comment: comment.to_owned(),
    })
}

/// Decodes [`encoded`] bytes.
#[must_use]
pub fn decoded(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}
