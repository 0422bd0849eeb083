//! Errors in policy files.

use std::fmt;

/// One error, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
    /// The column in characters, counted from 1.
    pub column: u32,
    /// The message.
    pub what: String,
    /// A hint on how to correct it.
    pub hint: Option<String>,
}

impl Fault {
    /// Creates a fault at a byte offset of a text.
    pub(crate) fn at(file: &str, text: &str, offset: usize, what: impl Into<String>) -> Self {
        let (line, column) = place(text, offset);
        Self {
            file: file.to_owned(),
            line,
            column,
            what: what.into(),
            hint: None,
        }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

/// Returns the line and column of a byte offset, counted from 1.
pub(crate) fn place(text: &str, offset: usize) -> (u32, u32) {
    let bytes = text.as_bytes();
    let before = bytes.get(..offset.min(bytes.len())).unwrap_or_default();
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let begin = before.iter().rposition(|byte| *byte == b'\n');
    let of_line = before
        .get(begin.map_or(0, |at| at + 1)..)
        .unwrap_or_default();
    let column = String::from_utf8_lossy(of_line).chars().count() + 1;
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    (number(line), number(column))
}

impl fmt::Display for Fault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            column,
            what,
            hint,
        } = self;
        write!(to, "{file}:{line}:{column}: {what}")?;
        match hint {
            Some(hint) => write!(to, "\n  {hint}"),
            None => Ok(()),
        }
    }
}
