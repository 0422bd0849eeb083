//! Files as they were read.

use std::borrow::Cow;

/// A file that was read for policy: its name in messages, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile<'a> {
    /// The file's absolute path, for messages and, for a project's file, for looking it up in the
    /// [`TrustList`](crate::TrustList).
    pub name: Cow<'a, str>,
    /// The content as read.
    pub content: Cow<'a, [u8]>,
}

impl<'a> SourceFile<'a> {
    /// Creates a file from its path and content, borrowed or owned.
    pub fn new(name: impl Into<Cow<'a, str>>, content: impl Into<Cow<'a, [u8]>>) -> Self {
        Self {
            name: name.into(),
            content: content.into(),
        }
    }
}
