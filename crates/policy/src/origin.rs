use std::fmt;
use std::sync::Arc;

/// The place where a value was set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Nowhere: Atoll's own default, or one of its fixed rules.
    BuiltIn,
    /// An option of the command line, as `--limit`.
    CommandLine(&'static str),
    /// A line of a file; `shipped/NAME.toml` for the profiles that ship with Atoll.
    File {
        /// The file's name as given in its [`SourceFile`](crate::SourceFile).
        name: Arc<str>,
        /// The line, counted from 1.
        line: u32,
    },
}

impl Origin {
    /// Returns whether it is built in or in a file that ships with Atoll.
    pub(crate) fn is_shipped(&self) -> bool {
        match self {
            Self::File { name, .. } => name.starts_with("shipped/"),
            Self::BuiltIn => true,
            Self::CommandLine(_) => false,
        }
    }

    /// Returns the line in a file; 1 for other origins.
    pub(crate) fn line(&self) -> u32 {
        match self {
            Self::File { line, .. } => *line,
            Self::BuiltIn | Self::CommandLine(_) => 1,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => out.write_str("built in"),
            Self::CommandLine(option) => out.write_str(option),
            Self::File { name, line } => write!(out, "{name}:{line}"),
        }
    }
}

/// A value with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sourced<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

impl<T> Sourced<T> {
    pub(crate) fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }

    pub(crate) fn built_in(value: T) -> Self {
        Self::new(value, Origin::BuiltIn)
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Sourced<U> {
        Sourced::new(change(self.value), self.origin)
    }
}
