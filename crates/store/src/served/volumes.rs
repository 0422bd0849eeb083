//! Volumes: what is known of them, besides their files.

use rusqlite::{OptionalExtension, Row, params};

use super::{ServedError, ServedStore, settle, signed};

pub(super) const TABLES: &str = "
    CREATE TABLE volumes (
        id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL REFERENCES tenants (id),
        name TEXT NOT NULL,
        token TEXT NOT NULL,
        bytes_max INTEGER NOT NULL,
        is_read_only INTEGER NOT NULL,
        origin TEXT,
        created_ms INTEGER NOT NULL,
        is_whole INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX volumes_of_tenant ON volumes (tenant, created_ms);
";

/// A volume.
#[derive(Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its id.
    pub id: String,
    /// The tenant.
    pub tenant: String,
    /// The name that a caller gave it, which no other volume of the tenant has.
    pub name: String,
    /// The token by which its files are reached. It is told again, so it is kept as it is.
    pub token: String,
    /// The most that it may take of the disk, bytes.
    pub bytes_max: u64,
    /// True if nothing may change its files: it is a snapshot.
    pub is_read_only: bool,
    /// The id of the volume that it began as a copy of.
    pub origin: Option<String>,
    /// The time at which it was made, milliseconds since 1970.
    pub created_ms: u64,
    /// False until its directory is there, and once it is being removed.
    pub is_whole: bool,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Volume({:?})", self.id)
    }
}

/// The volumes.
pub trait VolumeStore {
    /// Writes down a volume, whole or not: on disk once this returns.
    ///
    /// # Errors
    /// [`ServedError`].
    fn keep_volume(&self, one: &Volume) -> Result<(), ServedError>;

    /// Removes what is written of a volume.
    ///
    /// # Errors
    /// [`ServedError`].
    fn remove_volume(&self, id: &str) -> Result<(), ServedError>;

    /// Returns all volumes, or those of one tenant, the oldest first.
    ///
    /// # Errors
    /// [`ServedError`].
    fn volumes(&self, tenant: Option<&str>) -> Result<Vec<Volume>, ServedError>;

    /// Returns the volume of this id.
    ///
    /// # Errors
    /// [`ServedError`].
    fn volume(&self, id: &str) -> Result<Option<Volume>, ServedError>;
}

impl VolumeStore for ServedStore {
    fn keep_volume(&self, one: &Volume) -> Result<(), ServedError> {
        let connection = self.connection();
        connection.execute(
            "INSERT OR REPLACE INTO volumes
             (id, tenant, name, token, bytes_max, is_read_only, origin, created_ms, is_whole)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                one.id,
                one.tenant,
                one.name,
                one.token,
                signed(one.bytes_max),
                one.is_read_only,
                one.origin,
                signed(one.created_ms),
                one.is_whole,
            ],
        )?;
        settle(&connection)
    }

    fn remove_volume(&self, id: &str) -> Result<(), ServedError> {
        let connection = self.connection();
        connection.execute("DELETE FROM volumes WHERE id = ?1", params![id])?;
        Ok(())
    }

    fn volumes(&self, tenant: Option<&str>) -> Result<Vec<Volume>, ServedError> {
        let connection = self.connection();
        let mut find = connection.prepare_cached(
            "SELECT id, tenant, name, token, bytes_max, is_read_only, origin, created_ms, is_whole
             FROM volumes WHERE ?1 IS NULL OR tenant = ?1 ORDER BY created_ms, id",
        )?;
        let found = find.query_map(params![tenant], volume)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    fn volume(&self, id: &str) -> Result<Option<Volume>, ServedError> {
        let connection = self.connection();
        let mut find = connection.prepare_cached(
            "SELECT id, tenant, name, token, bytes_max, is_read_only, origin, created_ms, is_whole
             FROM volumes WHERE id = ?1",
        )?;
        Ok(find.query_row(params![id], volume).optional()?)
    }
}

fn volume(row: &Row<'_>) -> rusqlite::Result<Volume> {
    Ok(Volume {
        id: row.get(0)?,
        tenant: row.get(1)?,
        name: row.get(2)?,
        token: row.get(3)?,
        bytes_max: row.get::<_, i64>(4)?.cast_unsigned(),
        is_read_only: row.get(5)?,
        origin: row.get(6)?,
        created_ms: row.get::<_, i64>(7)?.cast_unsigned(),
        is_whole: row.get(8)?,
    })
}
