//! The key that signs tokens, and the one that verifies them.

use biscuit_auth::builder::Algorithm;
use biscuit_auth::{KeyPair, PrivateKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The size of a key, bytes (RFC 8032, Ed25519).
const KEY_BYTES: usize = 32;

/// The error for a text that is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no key of {KEY_BYTES} bytes in hexadecimal digits")]
pub struct InvalidKey;

/// An Ed25519 key that signs tokens. Its owner can issue any token of this deployment.
pub struct IssuingKey(pub(crate) KeyPair);

impl IssuingKey {
    /// Generates a key from the kernel's random numbers.
    #[must_use]
    pub fn generate() -> Self {
        Self(KeyPair::new())
    }

    /// Parses the output of [`to_hex`](Self::to_hex).
    ///
    /// # Errors
    /// [`InvalidKey`].
    pub fn from_hex(text: &str) -> Result<Self, InvalidKey> {
        if text.len() != KEY_BYTES * 2 {
            return Err(InvalidKey);
        }
        let key = PrivateKey::from_bytes_hex(text, Algorithm::Ed25519).map_err(|_| InvalidKey)?;
        Ok(Self(KeyPair::from(&key)))
    }

    /// Returns the key in hexadecimal digits: a secret.
    #[must_use]
    pub fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(self.0.private().to_bytes_hex())
    }

    /// Returns the public key that verifies its tokens.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.public())
    }
}

impl std::fmt::Debug for IssuingKey {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_tuple("IssuingKey").field(&self.public()).finish()
    }
}

/// The public key that verifies tokens: no secret.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey(pub(crate) biscuit_auth::PublicKey);

impl PublicKey {
    /// Parses the output of [`to_hex`](Self::to_hex).
    ///
    /// # Errors
    /// [`InvalidKey`].
    pub fn from_hex(text: &str) -> Result<Self, InvalidKey> {
        if text.len() != KEY_BYTES * 2 {
            return Err(InvalidKey);
        }
        let key = biscuit_auth::PublicKey::from_bytes_hex(text, Algorithm::Ed25519);
        key.map(Self).map_err(|_| InvalidKey)
    }

    /// Returns the key in hexadecimal digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        self.0.to_bytes_hex()
    }
}

impl TryFrom<String> for PublicKey {
    type Error = InvalidKey;

    fn try_from(text: String) -> Result<Self, InvalidKey> {
        Self::from_hex(&text)
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_hex()
    }
}
