use std::fmt;

use crate::{LedgerError, TreeHash};

/// A ledger that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// How many events there are.
    pub events: u64,
    /// The root of the Merkle tree over them (RFC 6962).
    pub root: TreeHash,
    /// The hash of the last event; zero when there is none.
    pub leaf: TreeHash,
    /// How many segments hold them.
    pub segments: u64,
    /// The size of all events' lines, bytes.
    pub bytes: u64,
    /// How many torn lines were set aside, each of them unacknowledged and recorded.
    pub torn: u64,
    /// Bytes at the end that are not a complete line: an append that is going on,
    /// or one whose process died; the next append sets them aside.
    pub unfinished_bytes: u64,
    /// How many events the newest checkpoint covers, whose signature and root hold; nothing
    /// where there is none.
    pub checkpoint: Option<u64>,
    /// How many checkpoints of witnesses it was held against.
    pub witnessed: u64,
    /// The events that say that the key was lost: what was signed before them counts no more.
    pub keys_lost: Vec<u64>,
}

/// The ledger is not whole, or could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// It is not whole.
    #[error(transparent)]
    Damaged(VerifyReport),
    /// It could not be looked at.
    #[error(transparent)]
    Unreadable(#[from] LedgerError),
}

/// All that is wrong with a ledger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct VerifyReport {
    /// What is wrong, in the order of the ledger; at most 100.
    pub damage: Vec<Damage>,
    /// How much more damage there is than described.
    pub more: u64,
    /// How many sound events were read.
    pub events: u64,
}

/// One thing that is wrong with a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where.
    pub place: Place,
    /// What.
    pub what: String,
    /// How bad.
    pub severity: Severity,
}

/// Where in the ledger's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: String,
    /// The line in it, from 1.
    pub line: Option<u64>,
    /// The byte in it at which the line begins.
    pub byte: Option<u64>,
}

/// How bad a piece of damage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Something that was written is no longer there.
    Lost,
    /// Something that was written is no longer what it was.
    Altered,
    /// It cannot be said any more whether something is missing at the end.
    Unprovable,
    /// What was signed was signed by a key that is not the one that it is checked with: that
    /// one was lost or replaced, or this is a ledger that somebody else has made.
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
