//! The terms of one block of a token, in words and as Datalog.

use std::fmt::Write as _;

use atoll_model::SessionName;
use biscuit_auth::builder::BlockBuilder;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::calls::is_plain;
use crate::right::{InvalidRight, Right};

/// The most rights in a block.
pub const RIGHTS_MAX: usize = 64;
/// The words for a token that counts in one run alone.
const ONCE: &str = "in the first run that holds it";
/// The fact by which a run is the one that such a token is bound to.
pub(crate) const BOUND_TO_ONE: &str = "once";
/// The longest path of a workspace in a token, bytes.
const WORKSPACE_BYTES_MAX: usize = 1 << 10;

/// The rights that a block carries, or to which it narrows a token. The rights of the first block
/// are all that there are; with those of a further block, a right has to be among them as well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The rights. A further block without any leaves them as they are.
    pub rights: Vec<Right>,
    /// The start, in seconds since 1970. A token gives no right while the clock is set back before
    /// it.
    pub from_s: Option<u64>,
    /// The end, in seconds since 1970: at that second the token has ended.
    pub until_s: Option<u64>,
    /// The session whose runs alone may use it.
    pub session: Option<SessionName>,
    /// The workspace whose runs alone may use it: its real path.
    pub workspace: Option<String>,
    /// Set for one run alone: the first that holds it.
    pub once: bool,
}

/// The reason why terms cannot be those of a block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTerms {
    /// A right is invalid.
    #[error("{0:?} is no right: {1}")]
    Right(String, InvalidRight),
    /// There are too many rights.
    #[error("a block of a token names at most {RIGHTS_MAX} rights")]
    TooMany,
    /// The terms are empty.
    #[error("there is nothing in it")]
    Nothing,
    /// The workspace's path cannot be written in a token.
    #[error(
        "the path of the workspace is longer than {WORKSPACE_BYTES_MAX} bytes, or has a quote, a \
         backslash or something else in it that a token does not say"
    )]
    Workspace,
    /// The time is invalid.
    #[error("{0:?} is no time: write it as 2026-11-30T18:00:00Z, or as 10m from now")]
    Time(String),
    /// The line is not one of a block's.
    #[error("a line of it says something else than terms")]
    Line,
    /// Biscuit's error.
    #[error("it cannot be said in a token: {0}")]
    Datalog(String),
}

/// Reads a time (RFC 3339), in seconds since 1970.
///
/// # Errors
/// [`InvalidTerms::Time`].
pub fn read_time(text: &str) -> Result<u64, InvalidTerms> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok();
    let seconds = time.and_then(|time| u64::try_from(time.unix_timestamp()).ok());
    seconds.ok_or_else(|| InvalidTerms::Time(text.to_owned()))
}

/// Formats a time: RFC 3339, UTC, whole seconds. `None` for a year that this cannot express.
#[must_use]
pub fn told_time(seconds: u64) -> Option<String> {
    let time = i64::try_from(seconds).ok()?;
    let time = OffsetDateTime::from_unix_timestamp(time).ok()?;
    time.format(&Rfc3339).ok()
}

fn written_time(seconds: u64) -> Result<String, InvalidTerms> {
    told_time(seconds).ok_or_else(|| InvalidTerms::Time(seconds.to_string()))
}

impl Terms {
    /// Returns whether a block of these terms would be empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Formats the terms for people, one per line.
    ///
    /// # Errors
    /// [`InvalidTerms`].
    pub fn words(&self) -> Result<String, InvalidTerms> {
        let mut words = String::new();
        for right in &self.rights {
            let _ = writeln!(words, "allow {right}");
        }
        if let Some(from) = self.from_s {
            let _ = writeln!(words, "from {}", written_time(from)?);
        }
        if let Some(until) = self.until_s {
            let _ = writeln!(words, "until {}", written_time(until)?);
        }
        if let Some(session) = &self.session {
            let _ = writeln!(words, "session {}", session.as_str());
        }
        if let Some(workspace) = &self.workspace {
            let _ = writeln!(words, "workspace {workspace}");
        }
        if self.once {
            let _ = writeln!(words, "once {ONCE}");
        }
        Ok(words)
    }

    /// Parses the output of [`words`](Self::words).
    ///
    /// # Errors
    /// [`InvalidTerms`].
    pub fn parse(words: &str) -> Result<Self, InvalidTerms> {
        let mut terms = Self::default();
        for line in words.lines() {
            let (key, value) = line.split_once(' ').ok_or(InvalidTerms::Line)?;
            match key {
                "allow" => {
                    let right = value.parse();
                    let invalid = |error| InvalidTerms::Right(value.to_owned(), error);
                    terms.rights.push(right.map_err(invalid)?);
                }
                "from" => terms.from_s = Some(read_time(value)?),
                "until" => terms.until_s = Some(read_time(value)?),
                "session" => {
                    let name = SessionName::parse(value).map_err(|_| InvalidTerms::Line)?;
                    terms.session = Some(name);
                }
                "workspace" => terms.workspace = Some(value.to_owned()),
                "once" if value == ONCE => terms.once = true,
                _ => return Err(InvalidTerms::Line),
            }
        }
        Ok(terms)
    }

    /// Returns the first block of a token: rules for its rights, and checks for everything else.
    pub(crate) fn first_block(&self) -> Result<BlockBuilder, InvalidTerms> {
        if self.rights.is_empty() {
            return Err(InvalidTerms::Nothing);
        }
        let mut code = String::new();
        for body in self.bodies()? {
            let _ = writeln!(code, "carried(true) <- {body};");
        }
        self.block(code)
    }

    /// Returns a further block, of checks alone.
    pub(crate) fn further_block(&self) -> Result<BlockBuilder, InvalidTerms> {
        if self.is_empty() {
            return Err(InvalidTerms::Nothing);
        }
        let mut code = String::new();
        let bodies = self.bodies()?;
        if !bodies.is_empty() {
            let _ = writeln!(code, "check if {};", bodies.join(" or "));
        }
        self.block(code)
    }

    fn bodies(&self) -> Result<Vec<String>, InvalidTerms> {
        match self.rights.len() <= RIGHTS_MAX {
            true => Ok(self.rights.iter().flat_map(Right::bodies).collect()),
            false => Err(InvalidTerms::TooMany),
        }
    }

    fn block(&self, mut code: String) -> Result<BlockBuilder, InvalidTerms> {
        if let Some(from) = self.from_s {
            let _ = writeln!(
                code,
                "check if time($time), $time >= {};",
                written_time(from)?
            );
        }
        if let Some(until) = self.until_s {
            let _ = writeln!(
                code,
                "check if time($time), $time < {};",
                written_time(until)?
            );
        }
        if let Some(session) = &self.session {
            let _ = writeln!(code, "check if session(\"{}\");", session.as_str());
        }
        if let Some(workspace) = &self.workspace {
            if workspace.len() > WORKSPACE_BYTES_MAX || !is_plain(workspace) {
                return Err(InvalidTerms::Workspace);
            }
            let _ = writeln!(code, "check if workspace(\"{workspace}\");");
        }
        if self.once {
            let _ = writeln!(code, "check if {BOUND_TO_ONE}(true);");
        }
        let block = BlockBuilder::new().code(code);
        let block = block.map_err(|error| InvalidTerms::Datalog(error.to_string()))?;
        Ok(block.context(self.words()?))
    }
}
