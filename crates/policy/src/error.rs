use std::fmt;

use crate::origin::Origin;

/// One problem in a file, for the person who wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file's name.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
    /// The column in characters, counted from 1.
    pub column: u32,
    /// The message.
    pub what: String,
    /// A suggestion of what was meant, or a correction.
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            column,
            what,
            hint,
        } = self;
        write!(out, "{file}:{line}:{column}: {what}")?;
        match hint {
            Some(hint) => write!(out, "\n  {hint}"),
            None => Ok(()),
        }
    }
}

/// The error of compiling rules. Nothing may run then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// A file has problems; never empty.
    #[error("{}", lines(.0))]
    Invalid(Vec<Problem>),
    /// There is no profile of this name.
    #[error("there is no profile {name:?} ({asked_by}){suggestion}; the profiles are {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The origin that asks for it: a file and line, or an option.
        asked_by: String,
        /// `; did you mean …?`, or empty.
        suggestion: String,
        /// All names, separated by commas.
        known: String,
    },
    /// Profiles extend each other in a circle.
    #[error("profiles extend each other in a circle: {chain} ({asked_by})")]
    Circle {
        /// The names in order, separated by arrows.
        chain: String,
        /// The line that closes the circle.
        asked_by: String,
    },
    /// A profile extends too many others.
    #[error("profile {name:?} extends more than {most} others")]
    TooMany {
        /// The profile asked for.
        name: String,
        /// The limit.
        most: usize,
    },
    /// A file that exists could not be read.
    #[error("profile {name:?} cannot be read: {why}")]
    Unreadable {
        /// The profile, or the directory of profiles.
        name: String,
        /// The reason.
        why: String,
    },
    /// An option of the command line has an unusable value.
    #[error("{option}: {why}")]
    Request {
        /// The option, as `--limit`.
        option: &'static str,
        /// The problem.
        why: String,
    },
}

fn lines(problems: &[Problem]) -> String {
    let texts: Vec<String> = problems.iter().map(Problem::to_string).collect();
    texts.join("\n")
}

/// Creates the problem of a value that is wrong only on this host.
pub(crate) fn problem_at(origin: &Origin, what: String) -> Problem {
    let file = match origin {
        Origin::File { name, .. } => name.to_string(),
        Origin::BuiltIn | Origin::CommandLine(_) => origin.to_string(),
    };
    Problem {
        file,
        line: origin.line(),
        column: 1,
        what,
        hint: None,
    }
}

pub(crate) fn invalid(origin: &Origin, what: String) -> ProfileError {
    ProfileError::Invalid(vec![problem_at(origin, what)])
}
