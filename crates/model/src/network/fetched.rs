//! Credentials that are fetched outside the sandbox, once a request that needs them has been
//! allowed and recorded.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    CREDENTIAL_BYTES_MAX, CredentialName, Endpoint, Ingredient, RenewalRequest, TokenRequest,
};

/// The default time that a command may take.
pub const COMMAND_PATIENCE: Duration = Duration::from_secs(30);
/// The longest time that a command may be given.
pub const COMMAND_PATIENCE_MAX: Duration = Duration::from_secs(300);
/// The longest output of a command that is read, bytes, of stdout and stderr each.
pub const COMMAND_OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// The character of a shape that stands for a random letter or digit.
pub const SHAPE_HOLE: char = '*';
/// The least number of [`SHAPE_HOLE`]s in a shape: 71 bits.
const HOLES_MIN: usize = 12;
/// The shortest shape, bytes, as of any credential.
const SHAPE_BYTES_MIN: usize = 16;

/// A credential whose value is not yet known when a run starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fetched {
    /// The credential.
    pub name: CredentialName,
    /// The way to fetch its value.
    pub by: Fetch,
}

/// The way to fetch a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fetch {
    /// By a command of the person's, which the supervisor runs.
    Command {
        /// The time that it may take, seconds.
        patience_s: u64,
    },
    /// By a request of Atoll's own for a token.
    Token(Box<TokenRequest>),
    /// The value is handed over as it is, and renewed by a request of Atoll's own once it is not
    /// valid any more.
    Login {
        /// The renewal request.
        request: Box<RenewalRequest>,
        /// The refresh token that the request uses, kept in the login's file.
        by: CredentialName,
        /// The expiry of the value handed over, if known: seconds since 1970.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ends_s: Option<u64>,
        /// The scope as in the login's file, for a program that asks for another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<String>,
    },
}

impl Fetch {
    /// Returns the secrets that it needs, in the order in which they are handed over.
    #[must_use]
    pub fn ingredients(&self) -> Vec<Ingredient> {
        match self {
            Self::Command { .. } | Self::Login { .. } => Vec::new(),
            Self::Token(request) => request.ingredients(),
        }
    }

    /// Returns the endpoints that Atoll itself asks.
    #[must_use]
    pub fn endpoints(&self) -> Vec<&Endpoint> {
        match self {
            Self::Command { .. } => Vec::new(),
            Self::Token(request) => request.endpoints(),
            Self::Login { request, .. } => vec![&request.token],
        }
    }

    /// Returns whether its value is revoked at the end.
    #[must_use]
    pub fn is_taken_back(&self) -> bool {
        match self {
            Self::Command { .. } | Self::Login { .. } => false,
            Self::Token(request) => request.is_taken_back(),
        }
    }
}

/// The way that a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum CommandEnd {
    /// The command exited with this status.
    Exited(u8),
    /// This signal ended the command.
    Signalled(u8),
    /// The command exceeded its time, and was ended.
    Late,
    /// The command could not be started, because of this kernel error; 0 if there is none.
    Unstarted(i32),
}

/// The form of a placeholder for a value that is not known yet, as `ghp_************`: printable
/// ASCII in which [`SHAPE_HOLE`] is a random letter or digit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A text with holes.
    Text(String),
    /// A JSON Web Token (RFC 7519), which programs parse.
    WebToken,
}

/// The error for a text that is no shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a shape is \"jwt\", or 16 bytes or more of letters, digits and `-._~:` with * twelve times or more, where letters and digits are random"
)]
pub struct InvalidShape;

impl Shape {
    /// Returns the shape of an installation token of a GitHub App.
    #[must_use]
    pub fn of_installation() -> Self {
        Self::Text(format!("ghs_{}", "*".repeat(36)))
    }

    /// Returns the shape of a value in an unknown form.
    #[must_use]
    pub fn opaque() -> Self {
        Self::Text("*".repeat(40))
    }
}

impl std::str::FromStr for Shape {
    type Err = InvalidShape;

    fn from_str(text: &str) -> Result<Self, InvalidShape> {
        if text == "jwt" {
            return Ok(Self::WebToken);
        }
        let is_of_shape =
            |letter: char| letter.is_ascii_alphanumeric() || "-._~:*".contains(letter);
        let is_shape = (SHAPE_BYTES_MIN..=CREDENTIAL_BYTES_MAX).contains(&text.len())
            && text.chars().all(is_of_shape)
            && text.matches(SHAPE_HOLE).count() >= HOLES_MIN;
        is_shape
            .then(|| Self::Text(text.to_owned()))
            .ok_or(InvalidShape)
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => to.write_str(text),
            Self::WebToken => to.write_str("jwt"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_has_room_for_what_nobody_can_guess() {
        for (text, is_shape) in [
            ("jwt", true),
            ("ghs_************", true),
            ("ghs_***********-", false),
            ("************", false),
            ("sk-ant-oat01-********-********", true),
            ("ghs_\"************", false),
            ("ghs_ ************", false),
            ("", false),
        ] {
            let shape = text.parse::<Shape>();
            assert_eq!(shape.is_ok(), is_shape, "{text}");
            assert!(shape.is_err() || shape.unwrap().to_string() == text);
        }
        for shape in [Shape::opaque(), Shape::of_installation()] {
            assert_eq!(shape.to_string().parse(), Ok(shape));
        }
        assert!("*".repeat(9000).parse::<Shape>().is_err());
    }
}
