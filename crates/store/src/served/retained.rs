//! The room that a server's records take, by sandbox, and their end.

use atoll_model::RunId;
use rusqlite::params;
use sha2::{Digest, Sha256};

use super::{ServedError, ServedStore};

/// The events of one sandbox's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptEvents {
    /// The tenant.
    pub tenant: String,
    /// The sandbox.
    pub sandbox: String,
    /// Its runs: one for each time that it began or went on.
    pub runs: Vec<RunId>,
    /// Their number.
    pub count: u64,
    /// The deliveries to webhooks among them that wait.
    pub deliveries: u64,
    /// The size of their facts, bytes.
    pub bytes: u64,
    /// The time of the last one, milliseconds since 1970.
    pub last_ms: u64,
    /// True once the sandbox has ended for good.
    pub is_ended: bool,
}

/// The records of sandboxes that have ended.
pub trait RetainedStore {
    /// Returns the tenants.
    ///
    /// # Errors
    /// [`ServedError`].
    fn tenants(&self) -> Result<Vec<String>, ServedError>;

    /// Returns all events, by sandbox.
    ///
    /// # Errors
    /// [`ServedError`].
    fn kept_events(&self) -> Result<Vec<KeptEvents>, ServedError>;

    /// Removes the events of a sandbox that has ended, with the deliveries of them that wait.
    ///
    /// # Errors
    /// [`ServedError`].
    fn forget_events(&self, tenant: &str, sandbox: &str) -> Result<(), ServedError>;
}

impl RetainedStore for ServedStore {
    fn tenants(&self) -> Result<Vec<String>, ServedError> {
        let connection = self.connection();
        let mut find = connection.prepare("SELECT id FROM tenants ORDER BY id")?;
        let found = find.query_map([], |row| row.get(0))?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    fn kept_events(&self) -> Result<Vec<KeptEvents>, ServedError> {
        let connection = self.connection();
        let mut find = connection.prepare(
            "SELECT tenant, sandbox, group_concat(DISTINCT json_extract(facts, '$.run')), count(*),
                 (SELECT count(*) FROM deliveries
                  JOIN lifecycle_events AS one ON one.number = deliveries.event
                  WHERE one.tenant = own.tenant AND one.sandbox = own.sandbox),
                 sum(length(facts)), max(at_ms), max(kind = 'killed')
             FROM lifecycle_events AS own GROUP BY tenant, sandbox",
        )?;
        let found = find.query_map([], |row| {
            let runs: Option<String> = row.get(2)?;
            let runs = runs.unwrap_or_default();
            let runs = runs.split(',').filter_map(|run| RunId::parse(run).ok());
            Ok(KeptEvents {
                tenant: row.get(0)?,
                sandbox: row.get(1)?,
                runs: runs.collect(),
                count: row.get::<_, i64>(3)?.cast_unsigned(),
                deliveries: row.get::<_, i64>(4)?.cast_unsigned(),
                bytes: row.get::<_, i64>(5)?.cast_unsigned(),
                last_ms: row.get::<_, i64>(6)?.cast_unsigned(),
                is_ended: row.get(7)?,
            })
        })?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    fn forget_events(&self, tenant: &str, sandbox: &str) -> Result<(), ServedError> {
        let connection = self.connection();
        // What is removed is overwritten.
        connection.pragma_update(None, "secure_delete", true)?;
        connection.execute(
            "DELETE FROM lifecycle_events WHERE tenant = ?1 AND sandbox = ?2
             AND EXISTS (SELECT 1 FROM lifecycle_events AS last WHERE last.tenant = ?1
                 AND last.sandbox = ?2 AND last.kind = 'killed')",
            params![tenant, sandbox],
        )?;
        Ok(())
    }
}

/// Returns the name of the directory of a sandbox's home. Every user of the host sees it among the
/// mounts of its programs (proc(5)), and no id of a sandbox can be told from it.
#[must_use]
pub fn home_name(id: &str) -> String {
    let digest = Sha256::digest(format!("home\0{id}"));
    digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
