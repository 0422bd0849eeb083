//! Remarks on policies.

use crate::reading::Meta;

/// A remark on a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The file.
    pub file: String,
    /// The line of the policy, counted from 1.
    pub line: u32,
    /// The message.
    pub what: String,
    /// The severity.
    pub standing: Standing,
}

/// The severity of a remark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The policy works as written.
    Note,
    /// The policy can never decide.
    Idle,
    /// The policy cannot work as written; a check refuses it.
    Refused,
}

pub(crate) fn remark(meta: &Meta, what: String, standing: Standing) -> Remark {
    Remark {
        file: meta.deciding.file.to_string(),
        line: meta.deciding.line,
        what,
        standing,
    }
}
