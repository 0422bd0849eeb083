//! Names of secrets.

use serde::{Deserialize, Serialize};

/// The longest name, bytes.
pub const SECRET_NAME_BYTES_MAX: usize = 64;

/// The name of a secret in the vault: ASCII letters, digits and `-`, `_`, `.`, the first a letter
/// or digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretName(String);

/// The error for a text that is not a secret's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a secret's name is of letters, digits and - _ ., a letter or digit first, and of at most \
     {SECRET_NAME_BYTES_MAX}"
)]
pub struct InvalidSecretName;

impl SecretName {
    /// Returns the name as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SecretName {
    type Error = InvalidSecretName;

    fn try_from(text: String) -> Result<Self, InvalidSecretName> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let begins = text
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric());
        match begins && text.len() <= SECRET_NAME_BYTES_MAX && text.bytes().all(is_plain) {
            true => Ok(Self(text)),
            false => Err(InvalidSecretName),
        }
    }
}

impl std::str::FromStr for SecretName {
    type Err = InvalidSecretName;

    fn from_str(text: &str) -> Result<Self, InvalidSecretName> {
        Self::try_from(text.to_owned())
    }
}

impl From<SecretName> for String {
    fn from(name: SecretName) -> Self {
        name.0
    }
}

impl std::fmt::Display for SecretName {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.0)
    }
}
