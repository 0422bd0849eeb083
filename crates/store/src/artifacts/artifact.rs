//! The facts about an artifact.

use atoll_model::{OutputsRule, RunId};
use rusqlite::Row;

use super::error::ArtifactError;

/// The question for artifacts, whose rows [`artifact`] reads.
pub(super) const COLUMNS: &str =
    "SELECT id, name, bytes, blake3, sha256, media, at_byte, sealed_bytes, key,
    state, decided_ms, decided_by, why, run, tenant, sandbox, session, at_ms, interrupted, entry, rule
    FROM artifacts JOIN deposits ON deposits.number = artifacts.deposit";

/// The decision about an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArtifactState {
    /// Waiting.
    Held,
    /// To be used.
    Promoted,
    /// Not to be used.
    Rejected,
}

impl ArtifactState {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Held, Self::Promoted, Self::Rejected];

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Promoted => "promoted",
            Self::Rejected => "rejected",
        }
    }

    /// Returns the one of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// The sandbox that artifacts are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactOrigin {
    /// Its run.
    pub run: RunId,
    /// The tenant of a served sandbox.
    pub tenant: Option<String>,
    /// The name of a served sandbox.
    pub sandbox: Option<String>,
    /// Its session.
    pub session: Option<String>,
    /// True if it came to no end of its own: a file can be half of what was meant.
    pub interrupted: bool,
    /// The fate of what it has put out.
    pub rule: OutputsRule,
}

/// The decision about an artifact, once there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactDecision {
    /// Its time, milliseconds since 1970.
    pub at_ms: u64,
    /// The name of who made it.
    pub by: String,
    /// The reason that was given.
    pub why: Option<String>,
}

/// One artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Its id: hexadecimal digits.
    pub id: String,
    /// The name of the file, as the program chose it.
    pub name: Vec<u8>,
    /// Its size, bytes.
    pub bytes: u64,
    /// The BLAKE3 digest of its content, hexadecimal digits.
    pub blake3: String,
    /// The SHA-256 digest of its content, hexadecimal digits.
    pub sha256: String,
    /// Its media type, by its content.
    pub media: String,
    /// The decision, in a word.
    pub state: ArtifactState,
    /// The decision, once there is one.
    pub decision: Option<ArtifactDecision>,
    /// True if its content was destroyed.
    pub destroyed: bool,
    /// The sandbox that it is from.
    pub origin: ArtifactOrigin,
    /// The time at which it was put away, milliseconds since 1970.
    pub at_ms: u64,
    /// The number of the ledger's entry about it.
    pub entry: u64,
    pub(super) at_byte: u64,
    pub(super) sealed_bytes: u64,
    pub(super) key: Option<Vec<u8>>,
}

/// The word of a scanner on an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The scanner's name.
    pub scanner: String,
    /// The version of the scanners.
    pub version: u32,
    /// The time, milliseconds since 1970.
    pub at_ms: u64,
    /// The verdict, as JSON.
    pub verdict: String,
}

/// A choice of artifacts.
#[derive(Clone, Debug, Default)]
pub struct ArtifactFilter {
    /// Those of one tenant; those of none without one.
    pub tenant: Option<String>,
    /// Those of one run.
    pub run: Option<String>,
    /// Those of one served sandbox.
    pub sandbox: Option<String>,
    /// Those of one state.
    pub state: Option<ArtifactState>,
}

pub(super) fn artifact(row: &Row<'_>) -> Result<Artifact, ArtifactError> {
    let state: String = row.get(9)?;
    let run: String = row.get(13)?;
    let rule: String = row.get(20)?;
    let key: Option<Vec<u8>> = row.get(8)?;
    let damaged = |what: &str| ArtifactError::Damaged(format!("{what:?}"));
    let decided: Option<i64> = row.get(10)?;
    let by: Option<String> = row.get(11)?;
    let why = row.get(12)?;
    Ok(Artifact {
        id: row.get(0)?,
        name: row.get(1)?,
        bytes: unsigned(row.get(2)?),
        blake3: row.get(3)?,
        sha256: row.get(4)?,
        media: row.get(5)?,
        at_byte: unsigned(row.get(6)?),
        sealed_bytes: unsigned(row.get(7)?),
        destroyed: key.is_none(),
        key,
        state: ArtifactState::named(&state).ok_or_else(|| damaged(&state))?,
        decision: decided.zip(by).map(|(at_ms, by)| ArtifactDecision {
            at_ms: unsigned(at_ms),
            by,
            why,
        }),
        origin: ArtifactOrigin {
            run: RunId::parse(&run).map_err(|_| damaged(&run))?,
            tenant: row.get(14)?,
            sandbox: row.get(15)?,
            session: row.get(16)?,
            interrupted: row.get(18)?,
            rule: OutputsRule::named(&rule).ok_or_else(|| damaged(&rule))?,
        },
        at_ms: unsigned(row.get(17)?),
        entry: unsigned(row.get(19)?),
    })
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
