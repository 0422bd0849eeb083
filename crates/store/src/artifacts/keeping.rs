//! The room that artifacts take, by the run that they are from.

use atoll_model::RunId;
use rusqlite::Connection;

use super::error::ArtifactError;

/// The artifacts of one run that have their content still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptArtifacts {
    /// The run.
    pub run: RunId,
    /// The tenant of a served sandbox.
    pub tenant: Option<String>,
    /// Their number.
    pub count: u64,
    /// Their size, bytes.
    pub bytes: u64,
    /// The last time at which they were put away or decided about, milliseconds since 1970.
    pub since_ms: u64,
}

pub(super) fn kept(connection: &Connection) -> Result<Vec<KeptArtifacts>, ArtifactError> {
    let mut statement = connection.prepare(
        "SELECT run, tenant, count(*), total(bytes), max(coalesce(decided_ms, at_ms))
             FROM artifacts JOIN deposits ON deposits.number = artifacts.deposit
             WHERE key IS NOT NULL GROUP BY run ORDER BY 5",
    )?;
    let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
    let rows = statement.query_map([], |row| {
        let run: String = row.get(0)?;
        let bytes: f64 = row.get(3)?;
        Ok(RunId::parse(&run)
            .map_err(|_| ArtifactError::Damaged(format!("{run:?}")))
            .and_then(|run| {
                Ok(KeptArtifacts {
                    run,
                    tenant: row.get(1)?,
                    count: unsigned(row.get(2)?),
                    // Exact up to 2^53, far beyond any bound.
                    bytes: bytes as u64,
                    since_ms: unsigned(row.get(4)?),
                })
            }))
    })?;
    rows.map(|row| row?).collect()
}
