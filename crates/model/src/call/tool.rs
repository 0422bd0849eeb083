//! Calls of tools.

use std::fmt;

/// The longest name of a tool, bytes: what clients of MCP take.
pub const TOOL_NAME_BYTES_MAX: usize = 64;

/// The name of a tool: letters, digits, `_` and `-`; of an upstream's tool the upstream's name and
/// `__` before its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolName(String);

/// The error for a text that is no name of a tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name of a tool: letters, digits, `_` and `-`, at most {TOOL_NAME_BYTES_MAX}")]
pub struct InvalidToolName(String);

impl ToolName {
    /// Reads a name.
    ///
    /// # Errors
    /// [`InvalidToolName`].
    pub fn parse(text: &str) -> Result<Self, InvalidToolName> {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        match (1..=TOOL_NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_of_name) {
            true => Ok(Self(text.to_owned())),
            false => Err(InvalidToolName(text.to_owned())),
        }
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The worst that a tool does to the world outside its sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToolEffect {
    /// Reading.
    Read,
    /// Changes of data that their owner can put back.
    Write,
    /// A message to somebody.
    Send,
    /// Changes of what others build on.
    Merge,
    /// Changes of what runs for others.
    Deploy,
}

impl ToolEffect {
    /// All effects, the mildest first.
    pub const ALL: [Self; 5] = [
        Self::Read,
        Self::Write,
        Self::Send,
        Self::Merge,
        Self::Deploy,
    ];

    /// Returns its name, as registries and policies have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Send => "send",
            Self::Merge => "merge",
            Self::Deploy => "deploy",
        }
    }

    /// Returns the effect of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// The way in which the effect of a call is taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToolUndo {
    /// No effect.
    Nothing,
    /// A checkpoint, taken before it, is restored.
    Restore,
    /// Another tool is called, which makes up for it.
    Inverse,
    /// None: its effect stays.
    #[default]
    None,
}

impl ToolUndo {
    /// All ways.
    pub const ALL: [Self; 4] = [Self::Nothing, Self::Restore, Self::Inverse, Self::None];

    /// Returns its name, as policies and the ledger have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Restore => "restore",
            Self::Inverse => "inverse",
            Self::None => "none",
        }
    }

    /// Returns the way of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// The number of times that a call runs on a copy before its effect; of two the stricter is the
/// greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shadow {
    /// Once.
    Once,
    /// Twice, each on a copy of its own: both have to change the same.
    Twice,
}

impl Shadow {
    /// Returns the number.
    #[must_use]
    pub fn times(self) -> usize {
        match self {
            Self::Once => 1,
            Self::Twice => 2,
        }
    }
}

/// The kinds of tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToolKind {
    /// A program with arguments from a template.
    Command,
    /// A text of the caller's in a language, which is run.
    Snippet,
    /// A program that comes with Atoll.
    Builtin,
    /// A tool of an upstream MCP server.
    Mcp,
    /// An operation of a service over HTTP, by its document of OpenAPI.
    OpenApi,
    /// A statement on a database.
    Sql,
}

impl ToolKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Command,
        Self::Snippet,
        Self::Builtin,
        Self::Mcp,
        Self::OpenApi,
        Self::Sql,
    ];

    /// Returns its name, as registries and policies have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Snippet => "snippet",
            Self::Builtin => "builtin",
            Self::Mcp => "mcp",
            Self::OpenApi => "openapi",
            Self::Sql => "sql",
        }
    }

    /// Returns the kind of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// A call of a tool, as parsed and checked against the tool's schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTool {
    /// The tool.
    pub tool: ToolName,
    /// Its kind.
    pub kind: ToolKind,
    /// The worst that it does.
    pub effect: ToolEffect,
    /// True if calling it twice does no more than calling it once.
    pub idempotent: bool,
    /// The way in which it is taken back.
    pub undo: ToolUndo,
    /// The arguments as JSON text: exactly what is judged, recorded and sent.
    pub text: String,
    /// The arguments as policies see them.
    pub arguments: Vec<Argument>,
    /// The caller's name for the call, by which it is carried out once.
    pub key: Option<String>,
    /// The bounds of the session's budget that are used up, so that a person is asked.
    pub spent: Vec<String>,
}

/// One argument: a scalar, or a list of scalars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The names that lead to it, with `.` between; a `.` or `\` in a name has a `\` before it.
    pub path: String,
    /// Its value.
    pub value: ArgumentValue,
}

/// The value of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgumentValue {
    /// A text; also a number that is not whole, as it is written.
    Text(String),
    /// A whole number.
    Number(i64),
    /// A truth value.
    Flag(bool),
    /// The texts and numbers of a list, as text.
    List(Vec<String>),
}

/// The ways in which a call of a tool ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolEnd {
    /// The tool has answered.
    Done,
    /// The tool says that it failed, or could not be reached.
    Failed,
    /// Its time was over; it may have had an effect.
    TimedOut,
    /// Its caller or a person ended it; it may have had an effect.
    Interrupted,
    /// The tool went away before it answered; it may have had an effect.
    Unknown,
}

impl ToolEnd {
    /// Returns its name, as the ledger has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::TimedOut => "timed-out",
            Self::Interrupted => "interrupted",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_clients_of_mcp_take() {
        for good in ["a", "git__status", "read-file", &"x".repeat(64)] {
            assert_eq!(ToolName::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a.b", "ä", "a/b", "а", &"x".repeat(65)] {
            assert!(ToolName::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn effects_are_found_by_name() {
        for one in ToolEffect::ALL {
            assert_eq!(ToolEffect::named(one.name()), Some(one));
        }
        assert_eq!(ToolEffect::named("erase"), None);
    }
}
