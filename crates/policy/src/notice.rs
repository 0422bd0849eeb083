//! Notices to the person who compiles rules.

use std::fmt;

use crate::origin::Origin;

/// A notice to the person about how the rules were compiled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notice {
    /// The sentence.
    pub text: String,
    /// The line or option that it is about.
    pub origin: Origin,
}

impl fmt::Display for Notice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", self.text, self.origin)
    }
}
