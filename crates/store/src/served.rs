//! The durable data of a server: tenants, the keys of their callers, the life of sandboxes. One
//! SQLite file.
//!
//! A key is shown once; only its digest is kept. Whoever looks one up asks the file each time, so
//! that a revoked key is refused from then on, whichever process revoked it.

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use atoll_ledger::random;
use rusqlite::{Connection, OptionalExtension, Row, params};
use sha2::{Digest, Sha256};

/// The version of the file's form (PRAGMA user_version).
const FORM: i64 = 1;
/// The random bytes of a key.
const KEY_BYTES: usize = 20;
/// The beginning of every key.
const KEY_PREFIX: &str = "e2b_";
/// The tenant that is there from the beginning.
pub const FIRST_TENANT: &str = "default";
/// The longest wait for another process that writes.
const PATIENCE_MS: u32 = 5_000;

const SCHEMA: &str = "
    CREATE TABLE tenants (
        id TEXT PRIMARY KEY,
        created_s INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE keys (
        id TEXT PRIMARY KEY,
        digest BLOB NOT NULL UNIQUE,
        tenant TEXT NOT NULL REFERENCES tenants (id),
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        created_s INTEGER NOT NULL,
        expires_s INTEGER,
        revoked_s INTEGER
    ) STRICT;
    CREATE TABLE lifecycle_events (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        tenant TEXT NOT NULL,
        sandbox TEXT NOT NULL,
        kind TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        facts TEXT NOT NULL
    ) STRICT;
    CREATE INDEX events_of_tenant ON lifecycle_events (tenant, number);
    CREATE INDEX events_of_sandbox ON lifecycle_events (tenant, sandbox, number);
";

/// An error of the server's store.
#[derive(Debug, thiserror::Error)]
pub enum ServedError {
    /// SQLite's.
    #[error("the server's store failed: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The kernel gives no random bytes.
    #[error("no key can be made: the kernel gives no random bytes")]
    NoRandom,
    /// A newer Atoll has written it.
    #[error("the server's store is of form {0}, and this Atoll knows form {FORM}")]
    Newer(i64),
    /// There is no such key.
    #[error("there is no key {0}")]
    NoKey(String),
    /// A file of a backup cannot be made, or read.
    #[error("the file of the backup: {0}")]
    File(#[from] std::io::Error),
    /// A file that is no backup, or a damaged one.
    #[error("it is no backup of a server's store, or a damaged one")]
    NoBackup,
}

/// The rights of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Everything, in every tenant: keys, tenants, all sandboxes.
    Administrator,
    /// Look at and end every sandbox.
    Operator,
    /// Answer approval requests.
    Approver,
    /// Read the ledger.
    Auditor,
    /// Make and use sandboxes of the own tenant.
    User,
}

impl Role {
    /// All roles, in the order in which they are shown.
    pub const ALL: [Self; 5] = [
        Self::Administrator,
        Self::Operator,
        Self::Approver,
        Self::Auditor,
        Self::User,
    ];

    /// Returns the name as written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Administrator => "administrator",
            Self::Operator => "operator",
            Self::Approver => "approver",
            Self::Auditor => "auditor",
            Self::User => "user",
        }
    }

    /// Returns the role of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// A key, without what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its id.
    pub id: String,
    /// The tenant.
    pub tenant: String,
    /// The caller's name.
    pub name: String,
    /// The role.
    pub role: Role,
    /// The time at which it was made, seconds since 1970.
    pub created_s: u64,
    /// The time from which it is refused, seconds since 1970.
    pub expires_s: Option<u64>,
    /// The time at which it was revoked, seconds since 1970.
    pub revoked_s: Option<u64>,
}

/// A key to make.
#[derive(Clone, Debug)]
pub struct NewKey<'a> {
    /// The tenant, which is made with its first key.
    pub tenant: &'a str,
    /// The caller's name.
    pub name: &'a str,
    /// The role.
    pub role: Role,
    /// The time from which it is refused, seconds since 1970.
    pub expires_s: Option<u64>,
}

/// Something that happened to a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LifecycleEvent {
    /// Its id.
    pub id: String,
    /// The sandbox.
    pub sandbox: String,
    /// The kind, as `created` or `killed`.
    pub kind: String,
    /// The time, milliseconds since 1970.
    pub at_ms: u64,
    /// Further facts: a JSON object.
    pub facts: String,
}

/// The server's store.
#[derive(Debug)]
pub struct ServedStore {
    connection: Mutex<Connection>,
}

impl ServedStore {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// [`ServedError`].
    pub fn open(path: &Path) -> Result<Self, ServedError> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(std::time::Duration::from_millis(PATIENCE_MS.into()))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // What happened may be lost with the power, never damaged; keys are put on disk at once.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        let store = Self {
            connection: Mutex::new(connection),
        };
        store.form()?;
        Ok(store)
    }

    /// Writes everything to a new file, while servers go on.
    ///
    /// # Errors
    /// [`ServedError`]; `AlreadyExists` if there is a file.
    pub fn back_up(&self, to: &Path) -> Result<(), ServedError> {
        // Made first, so that nobody else reads it: SQLite takes one that is empty.
        let mut new = std::fs::File::options();
        new.write(true).create_new(true).mode(0o600).open(to)?;
        let done = self
            .connection()
            .execute("VACUUM INTO ?1", params![to.to_string_lossy()]);
        if done.is_err() {
            let _ = std::fs::remove_file(to);
        }
        Ok(done.map(drop)?)
    }

    /// Replaces everything by what a backup holds, in one step.
    ///
    /// # Errors
    /// [`ServedError`]; nothing is changed then.
    pub fn restore(&self, from: &Path) -> Result<(), ServedError> {
        std::fs::File::open(from)?;
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let backup = Connection::open_with_flags(from, flags)?;
        let form: i64 = backup.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        match form {
            FORM => {}
            0 => return Err(ServedError::NoBackup),
            other => return Err(ServedError::Newer(other)),
        }
        let state: String = backup.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
        let tables: i64 = backup.query_row(
            "SELECT count(*) FROM sqlite_master WHERE type = 'table'
             AND name IN ('keys', 'lifecycle_events', 'tenants')",
            [],
            |row| row.get(0),
        )?;
        if state != "ok" || tables != 3 {
            return Err(ServedError::NoBackup);
        }
        let mut connection = self.connection();
        connection.restore("main", from, None::<fn(rusqlite::backup::Progress)>)?;
        settle(&connection)
    }

    fn form(&self) -> Result<(), ServedError> {
        let mut connection = self.connection();
        let change =
            connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let form: i64 = change.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        match form {
            FORM => {}
            0 => {
                change.execute_batch(SCHEMA)?;
                change.execute(
                    "INSERT INTO tenants (id, created_s) VALUES (?1, ?2)",
                    params![FIRST_TENANT, signed(now_s())],
                )?;
                change.pragma_update(None, "user_version", FORM)?;
            }
            other => return Err(ServedError::Newer(other)),
        }
        Ok(change.commit()?)
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a key; returns it, the only time that it is seen, with its record.
    ///
    /// # Errors
    /// [`ServedError`].
    pub fn make_key(&self, wanted: &NewKey<'_>) -> Result<(String, KeyRecord), ServedError> {
        let mut bytes = [0; KEY_BYTES];
        random::fill(&mut bytes).map_err(|_| ServedError::NoRandom)?;
        let key = format!("{KEY_PREFIX}{}", hexadecimal(&bytes));
        let mut name = [0; 4];
        random::fill(&mut name).map_err(|_| ServedError::NoRandom)?;
        let record = KeyRecord {
            id: hexadecimal(&name),
            tenant: wanted.tenant.to_owned(),
            name: wanted.name.to_owned(),
            role: wanted.role,
            created_s: now_s(),
            expires_s: wanted.expires_s,
            revoked_s: None,
        };
        let mut connection = self.connection();
        let change = connection.transaction()?;
        change.execute(
            "INSERT OR IGNORE INTO tenants (id, created_s) VALUES (?1, ?2)",
            params![record.tenant, signed(record.created_s)],
        )?;
        change.execute(
            "INSERT INTO keys (id, digest, tenant, name, role, created_s, expires_s)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                record.id,
                digest(&key),
                record.tenant,
                record.name,
                record.role.name(),
                signed(record.created_s),
                record.expires_s.map(signed),
            ],
        )?;
        change.commit()?;
        settle(&connection)?;
        Ok((key, record))
    }

    /// Returns the record of a key that is valid now.
    ///
    /// # Errors
    /// [`ServedError`].
    pub fn key(&self, key: &str, now: SystemTime) -> Result<Option<KeyRecord>, ServedError> {
        let connection = self.connection();
        let mut find = connection.prepare_cached(
            "SELECT id, tenant, name, role, created_s, expires_s, revoked_s
             FROM keys WHERE digest = ?1",
        )?;
        let record = find
            .query_row(params![digest(key)], key_record)
            .optional()?;
        let now_s = seconds(now);
        let is_valid = |record: &KeyRecord| {
            record.revoked_s.is_none() && record.expires_s.is_none_or(|at| at > now_s)
        };
        Ok(record.filter(is_valid))
    }

    /// Returns the records of all keys, the oldest first.
    ///
    /// # Errors
    /// [`ServedError`].
    pub fn keys(&self) -> Result<Vec<KeyRecord>, ServedError> {
        let connection = self.connection();
        let mut find = connection.prepare_cached(
            "SELECT id, tenant, name, role, created_s, expires_s, revoked_s
             FROM keys ORDER BY created_s, id",
        )?;
        let records = find.query_map([], key_record)?;
        Ok(records.collect::<Result<_, _>>()?)
    }

    /// Revokes a key by its id.
    ///
    /// # Errors
    /// [`ServedError::NoKey`]: there is none of this id that is not revoked.
    pub fn revoke_key(&self, id: &str) -> Result<(), ServedError> {
        let connection = self.connection();
        let changed = connection.execute(
            "UPDATE keys SET revoked_s = ?2 WHERE id = ?1 AND revoked_s IS NULL",
            params![id, signed(now_s())],
        )?;
        match changed {
            0 => Err(ServedError::NoKey(id.to_owned())),
            _ => settle(&connection),
        }
    }

    /// Notes what happened to a sandbox.
    ///
    /// # Errors
    /// [`ServedError`].
    pub fn note(&self, tenant: &str, event: &LifecycleEvent) -> Result<(), ServedError> {
        let connection = self.connection();
        let mut insert = connection.prepare_cached(
            "INSERT INTO lifecycle_events (id, tenant, sandbox, kind, at_ms, facts)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        insert.execute(params![
            event.id,
            tenant,
            event.sandbox,
            event.kind,
            signed(event.at_ms),
            event.facts,
        ])?;
        Ok(())
    }

    /// Returns what happened to a tenant's sandboxes, or to one of them.
    ///
    /// # Errors
    /// [`ServedError`].
    pub fn lifecycle_events(
        &self,
        tenant: &str,
        sandbox: Option<&str>,
        page: &Page,
    ) -> Result<Vec<LifecycleEvent>, ServedError> {
        let order = if page.oldest_first { "ASC" } else { "DESC" };
        let connection = self.connection();
        let mut find = connection.prepare_cached(&format!(
            "SELECT id, sandbox, kind, at_ms, facts FROM lifecycle_events
             WHERE tenant = ?1 AND (?2 IS NULL OR sandbox = ?2)
             ORDER BY number {order} LIMIT ?3 OFFSET ?4",
        ))?;
        let read = |row: &Row<'_>| {
            Ok(LifecycleEvent {
                id: row.get(0)?,
                sandbox: row.get(1)?,
                kind: row.get(2)?,
                at_ms: row.get::<_, i64>(3)?.cast_unsigned(),
                facts: row.get(4)?,
            })
        };
        let found = find.query_map(
            params![tenant, sandbox, signed(page.limit), signed(page.offset)],
            read,
        )?;
        Ok(found.collect::<Result<_, _>>()?)
    }
}

/// A part of a list.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// The number of those left out at its beginning.
    pub offset: u64,
    /// The most that are returned.
    pub limit: u64,
    /// True to begin with the oldest.
    pub oldest_first: bool,
}

/// Puts everything that was written on disk.
fn settle(connection: &Connection) -> Result<(), ServedError> {
    let written = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    Ok(written?)
}

fn key_record(row: &Row<'_>) -> rusqlite::Result<KeyRecord> {
    let role: String = row.get(3)?;
    let time = |value: Option<i64>| value.map(i64::cast_unsigned);
    Ok(KeyRecord {
        id: row.get(0)?,
        tenant: row.get(1)?,
        name: row.get(2)?,
        // One that is not known has the fewest rights.
        role: Role::parse(&role).unwrap_or(Role::Auditor),
        created_s: row.get::<_, i64>(4)?.cast_unsigned(),
        expires_s: time(row.get(5)?),
        revoked_s: time(row.get(6)?),
    })
}

fn digest(key: &str) -> Vec<u8> {
    Sha256::digest(key.as_bytes()).to_vec()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

fn now_s() -> u64 {
    seconds(SystemTime::now())
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
