use std::fmt;

use crate::{LedgerError, TreeHash};

/// A ledger that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The number of events.
    pub events: u64,
    /// The root of the Merkle tree over them (RFC 6962).
    pub root: TreeHash,
    /// The hash of the last event; zero if there is none.
    pub leaf: TreeHash,
    /// The number of segments that hold them.
    pub segments: u64,
    /// The size of all events' lines, bytes.
    pub bytes: u64,
    /// The number of torn lines that were set aside, each of them unacknowledged and recorded.
    pub torn: u64,
    /// The number of bytes at the end that are not a complete line: an append that is going on, or
    /// one whose process died; the next append sets them aside.
    pub unfinished_bytes: u64,
    /// The number of events that the newest checkpoint covers, whose signature and root hold;
    /// `None` if there is no checkpoint.
    pub checkpoint: Option<u64>,
    /// The number of witnesses' checkpoints that it was compared with.
    pub witnessed: u64,
    /// The events that record the loss of the key: signatures before them count no more.
    pub keys_lost: Vec<u64>,
}

/// The ledger is not whole, or could not be read.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The ledger is not whole.
    #[error(transparent)]
    Damaged(VerifyReport),
    /// The ledger could not be read.
    #[error(transparent)]
    Unreadable(#[from] LedgerError),
}

/// A report of all damage of a ledger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct VerifyReport {
    /// The damage, in the order of the ledger; at most 100 pieces.
    pub damage: Vec<Damage>,
    /// The number of pieces of damage that are not described.
    pub more: u64,
    /// The number of sound events that were read.
    pub events: u64,
}

/// One piece of damage of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The place of the damage.
    pub place: Place,
    /// The damage, in words.
    pub what: String,
    /// The severity of the damage.
    pub severity: Severity,
}

/// A place in the ledger's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: String,
    /// The line in it, from 1.
    pub line: Option<u64>,
    /// The byte in it at which the line begins.
    pub byte: Option<u64>,
}

/// The severity of a piece of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Recorded content is no longer there.
    Lost,
    /// Recorded content was altered.
    Altered,
    /// The completeness of the ledger's end can no longer be proven.
    Unprovable,
    /// The signature is by another key than the one that it is checked with: the key was lost or
    /// replaced, or this is a ledger that somebody else has made.
    Foreign,
    /// An append found damage earlier, recorded it and went on.
    Recorded,
}

impl Place {
    pub(crate) fn file(file: String) -> Self {
        Self {
            file,
            line: None,
            byte: None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(out, " line {line}")?;
        }
        match self.byte {
            Some(byte) => write!(out, " (byte {byte})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Lost => "lost",
            Self::Altered => "altered",
            Self::Unprovable => "unprovable",
            Self::Foreign => "signed by another key",
            Self::Recorded => "recorded",
        })
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}: {}", self.place, self.severity, self.what)
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the ledger is damaged")?;
        for damage in &self.damage {
            write!(out, "\n  {damage}")?;
        }
        if self.more > 0 {
            write!(out, "\n  and {} more", self.more)?;
        }
        Ok(())
    }
}
