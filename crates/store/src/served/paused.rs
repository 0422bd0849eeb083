//! Sandboxes that are paused, and snapshots: what they are made again from, besides their homes.

use rusqlite::{Connection, Row, params};

use super::{ServedError, ServedStore, settle, signed};

pub(super) const TABLES: &str = "
    CREATE TABLE paused (
        id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL REFERENCES tenants (id),
        record TEXT NOT NULL
    ) STRICT;
    CREATE TABLE snapshots (
        id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL REFERENCES tenants (id),
        name TEXT,
        sandbox TEXT NOT NULL,
        shipped TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        base INTEGER,
        bytes INTEGER NOT NULL,
        is_whole INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX snapshots_of_tenant ON snapshots (tenant, created_ms);
";

/// A paused sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PausedSandbox {
    /// Its id.
    pub id: String,
    /// The tenant.
    pub tenant: String,
    /// All that it is made again by: JSON.
    pub record: String,
}

/// A snapshot of a sandbox's home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its id.
    pub id: String,
    /// The tenant.
    pub tenant: String,
    /// The name that a caller gave it.
    pub name: Option<String>,
    /// The sandbox.
    pub sandbox: String,
    /// The shipped template that it stood on.
    pub shipped: String,
    /// The time at which it was made, milliseconds since 1970.
    pub created_ms: u64,
    /// Made by host root: the first of the ids that its files belong to.
    pub base: Option<u32>,
    /// The disk that it takes, bytes.
    pub bytes: u64,
    /// False until all of it is copied.
    pub is_whole: bool,
    /// The layers that it is made of: JSON.
    pub layers: String,
}

/// The sandboxes that are paused, and the snapshots of sandboxes.
pub trait SandboxStore {
    /// Writes down a sandbox that is to be paused: on disk once this returns.
    ///
    /// # Errors
    /// [`ServedError`].
    fn pause(&self, one: &PausedSandbox) -> Result<(), ServedError>;

    /// Writes down a sandbox that is paused as [`Self::pause`] does, but does not wait for the disk:
    /// [`Self::settle_paused`] does.
    ///
    /// # Errors
    /// [`ServedError`].
    fn pause_at_once(&self, one: &PausedSandbox) -> Result<(), ServedError>;

    /// Waits until all that is written of paused sandboxes is on disk.
    ///
    /// # Errors
    /// [`ServedError`].
    fn settle_paused(&self) -> Result<(), ServedError>;

    /// Removes what is written of a paused sandbox.
    ///
    /// # Errors
    /// [`ServedError`].
    fn unpause(&self, id: &str) -> Result<(), ServedError>;

    /// Returns all paused sandboxes.
    ///
    /// # Errors
    /// [`ServedError`].
    fn paused(&self) -> Result<Vec<PausedSandbox>, ServedError>;

    /// Writes down a snapshot, whole or not yet.
    ///
    /// # Errors
    /// [`ServedError`].
    fn keep_snapshot(&self, one: &Snapshot) -> Result<(), ServedError>;

    /// Removes a snapshot; returns whether there was one.
    ///
    /// # Errors
    /// [`ServedError`].
    fn remove_snapshot(&self, id: &str) -> Result<bool, ServedError>;

    /// Returns all snapshots, the latest first.
    ///
    /// # Errors
    /// [`ServedError`].
    fn snapshots(&self) -> Result<Vec<Snapshot>, ServedError>;
}

impl SandboxStore for ServedStore {
    fn pause(&self, one: &PausedSandbox) -> Result<(), ServedError> {
        let connection = self.connection();
        write_paused(&connection, one)?;
        settle(&connection)
    }

    fn pause_at_once(&self, one: &PausedSandbox) -> Result<(), ServedError> {
        write_paused(&self.connection(), one)
    }

    fn settle_paused(&self) -> Result<(), ServedError> {
        settle(&self.connection())
    }

    fn unpause(&self, id: &str) -> Result<(), ServedError> {
        let connection = self.connection();
        connection.execute("DELETE FROM paused WHERE id = ?1", params![id])?;
        Ok(())
    }

    fn paused(&self) -> Result<Vec<PausedSandbox>, ServedError> {
        let connection = self.connection();
        let mut find = connection.prepare("SELECT id, tenant, record FROM paused ORDER BY id")?;
        let read = |row: &Row<'_>| {
            Ok(PausedSandbox {
                id: row.get(0)?,
                tenant: row.get(1)?,
                record: row.get(2)?,
            })
        };
        let found = find.query_map([], read)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    fn keep_snapshot(&self, one: &Snapshot) -> Result<(), ServedError> {
        let connection = self.connection();
        connection.execute(
            "INSERT OR REPLACE INTO snapshots
             (id, tenant, name, sandbox, created_ms, base, is_whole, shipped, bytes, layers)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                one.id,
                one.tenant,
                one.name,
                one.sandbox,
                signed(one.created_ms),
                one.base,
                one.is_whole,
                one.shipped,
                signed(one.bytes),
                one.layers,
            ],
        )?;
        settle(&connection)
    }

    fn remove_snapshot(&self, id: &str) -> Result<bool, ServedError> {
        let connection = self.connection();
        let removed = connection.execute("DELETE FROM snapshots WHERE id = ?1", params![id])?;
        Ok(removed > 0)
    }

    fn snapshots(&self) -> Result<Vec<Snapshot>, ServedError> {
        let connection = self.connection();
        let mut find = connection.prepare_cached(
            "SELECT id, tenant, name, sandbox, created_ms, base, is_whole, shipped, bytes, layers
             FROM snapshots
             ORDER BY created_ms DESC, id",
        )?;
        let read = |row: &Row<'_>| {
            Ok(Snapshot {
                id: row.get(0)?,
                tenant: row.get(1)?,
                name: row.get(2)?,
                sandbox: row.get(3)?,
                created_ms: row.get::<_, i64>(4)?.cast_unsigned(),
                base: row.get(5)?,
                is_whole: row.get(6)?,
                shipped: row.get(7)?,
                bytes: row.get::<_, i64>(8)?.cast_unsigned(),
                layers: row.get(9)?,
            })
        };
        let found = find.query_map([], read)?;
        Ok(found.collect::<Result<_, _>>()?)
    }
}

fn write_paused(connection: &Connection, one: &PausedSandbox) -> Result<(), ServedError> {
    connection.execute(
        "INSERT OR REPLACE INTO paused (id, tenant, record) VALUES (?1, ?2, ?3)",
        params![one.id, one.tenant, one.record],
    )?;
    Ok(())
}
