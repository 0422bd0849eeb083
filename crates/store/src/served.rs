//! The durable data of a server: tenants, the keys of their callers, the life of sandboxes. One
//! SQLite file.
//!
//! A key is shown once; only its digest is kept. Whoever looks one up asks the file each time, so
//! that a revoked key is refused from then on, whichever process revoked it.

mod form;
mod paused;
mod retained;
mod rights;
mod templates;
#[cfg(test)]
mod tests;
mod volumes;
mod webhooks;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use atoll_ledger::{FileFault, random};
use rusqlite::{Connection, OptionalExtension, Row, params};
use sha2::{Digest, Sha256};

use form::FORM;
pub use paused::{PausedSandbox, SandboxStore, Snapshot};
pub use retained::{KeptEvents, RetainedStore, home_name};
pub use rights::{ISSUER_MARK, Role, Scope, Scopes};
pub use templates::{StoredTemplate, TemplateStore};
pub use volumes::{Volume, VolumeStore};
pub use webhooks::{Delivery, NewWebhook, Queued, Webhook, WebhookChange, WebhookStore};

/// The random bytes of a key.
const KEY_BYTES: usize = 20;
/// The beginning of every key.
const KEY_PREFIX: &str = "e2b_";
/// The tenant that is there from the beginning.
pub const FIRST_TENANT: &str = "default";
/// The longest wait for another process that writes.
const PATIENCE_MS: u32 = 5_000;

/// The tables of form 1; [`form`] has the changes since.
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
    /// There is no such webhook.
    #[error("there is no webhook {0}")]
    NoWebhook(String),
    /// The tenant has as many webhooks as it may.
    #[error("a tenant has {0} webhooks at most")]
    ManyWebhooks(u64),
    /// Another server has it.
    #[error("another server runs on this store")]
    Taken,
    /// The store cannot be locked.
    #[error("it cannot be locked: {0}")]
    Lock(#[from] FileFault),
    /// A file of a backup cannot be made, or read.
    #[error("the file of the backup: {0}")]
    File(#[from] std::io::Error),
    /// A file that is no backup, or a damaged one.
    #[error("it is no backup of a server's store, or a damaged one")]
    NoBackup,
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
    /// The scopes within that.
    pub scopes: Scopes,
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
    /// The scopes within that.
    pub scopes: Scopes,
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
    /// Those of the event by which the sandbox began; not looked at when one is noted.
    pub first_facts: Option<String>,
}

/// All that a server keeps between its starts, wherever that is.
pub trait Store:
    KeyStore + RetainedStore + SandboxStore + TemplateStore + VolumeStore + WebhookStore + Send + Sync
{
}

impl Store for ServedStore {}

/// The store of one server: a SQLite file.
#[derive(Debug)]
pub struct ServedStore {
    path: PathBuf,
    connection: Mutex<Connection>,
    /// The lock of a server that has it alone.
    lock: Option<OwnedFd>,
}

impl ServedStore {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// [`ServedError`].
    pub fn open(path: &Path) -> Result<Self, ServedError> {
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(std::time::Duration::from_millis(PATIENCE_MS.into()))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // What happened may be lost with the power, never damaged; keys are put on disk at once.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        form::bring_up(&mut connection)?;
        Ok(Self {
            path: path.to_owned(),
            connection: Mutex::new(connection),
            lock: None,
        })
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keys of callers, and the events of sandboxes' lives.
pub trait KeyStore {
    /// Makes a key; returns it, the only time that it is seen, with its record.
    ///
    /// # Errors
    /// [`ServedError`].
    fn make_key(&self, wanted: &NewKey<'_>) -> Result<(String, KeyRecord), ServedError>;

    /// Returns the record of a key that is valid now.
    ///
    /// # Errors
    /// [`ServedError`].
    fn key(&self, key: &str, now: SystemTime) -> Result<Option<KeyRecord>, ServedError>;

    /// Returns the records of all keys, the oldest first.
    ///
    /// # Errors
    /// [`ServedError`].
    fn keys(&self) -> Result<Vec<KeyRecord>, ServedError>;

    /// Revokes a key by its id.
    ///
    /// # Errors
    /// [`ServedError::NoKey`]: there is none of this id that is not revoked.
    fn revoke_key(&self, id: &str) -> Result<(), ServedError>;

    /// Notes what happened to a sandbox, and queues it for the webhooks that want it.
    ///
    /// # Errors
    /// [`ServedError`].
    fn note(&self, tenant: &str, event: &LifecycleEvent) -> Result<Queued, ServedError>;

    /// Returns the sandboxes that were made and never ended, each with its tenant; none to whoever
    /// has not taken the store, since another server can keep them.
    ///
    /// # Errors
    /// [`ServedError`].
    fn unended(&self) -> Result<Vec<(String, String)>, ServedError>;

    /// Returns what happened to a tenant's sandboxes, or to one of them.
    ///
    /// # Errors
    /// [`ServedError`].
    fn lifecycle_events(
        &self,
        tenant: &str,
        sandbox: Option<&str>,
        page: &Page,
    ) -> Result<Vec<LifecycleEvent>, ServedError>;
}

impl KeyStore for ServedStore {
    fn make_key(&self, wanted: &NewKey<'_>) -> Result<(String, KeyRecord), ServedError> {
        let key = format!("{KEY_PREFIX}{}", random_hex(KEY_BYTES)?);
        let record = KeyRecord {
            id: random_hex(4)?,
            tenant: wanted.tenant.to_owned(),
            name: wanted.name.to_owned(),
            role: wanted.role,
            scopes: wanted.scopes.clone(),
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
            "INSERT INTO keys (id, digest, tenant, name, role, created_s, expires_s, scopes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                record.id,
                digest(&key),
                record.tenant,
                record.name,
                record.role.name(),
                signed(record.created_s),
                record.expires_s.map(signed),
                record.scopes.text(),
            ],
        )?;
        change.commit()?;
        settle(&connection)?;
        Ok((key, record))
    }

    fn key(&self, key: &str, now: SystemTime) -> Result<Option<KeyRecord>, ServedError> {
        let connection = self.connection();
        let mut find = connection.prepare_cached(
            "SELECT id, tenant, name, role, created_s, expires_s, revoked_s, scopes
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

    fn keys(&self) -> Result<Vec<KeyRecord>, ServedError> {
        let connection = self.connection();
        let mut find = connection.prepare_cached(
            "SELECT id, tenant, name, role, created_s, expires_s, revoked_s, scopes
             FROM keys ORDER BY created_s, id",
        )?;
        let records = find.query_map([], key_record)?;
        Ok(records.collect::<Result<_, _>>()?)
    }

    fn revoke_key(&self, id: &str) -> Result<(), ServedError> {
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

    fn note(&self, tenant: &str, event: &LifecycleEvent) -> Result<Queued, ServedError> {
        let mut connection = self.connection();
        let change = connection.transaction()?;
        let mut insert = change.prepare_cached(
            "INSERT INTO lifecycle_events (id, tenant, sandbox, kind, at_ms, facts)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        let number = insert.insert(params![
            event.id,
            tenant,
            event.sandbox,
            event.kind,
            signed(event.at_ms),
            event.facts,
        ])?;
        drop(insert);
        let queued = webhooks::queue(&change, tenant, number, event)?;
        change.commit()?;
        Ok(queued)
    }

    fn unended(&self) -> Result<Vec<(String, String)>, ServedError> {
        if self.lock.is_none() {
            return Ok(Vec::new());
        }
        let connection = self.connection();
        let mut find = connection.prepare(
            "SELECT tenant, sandbox FROM lifecycle_events AS own WHERE kind = 'created'
             AND NOT EXISTS (SELECT 1 FROM lifecycle_events AS last
                 WHERE last.tenant = own.tenant AND last.sandbox = own.sandbox
                 AND last.kind = 'killed')
             ORDER BY number",
        )?;
        let found = find.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    fn lifecycle_events(
        &self,
        tenant: &str,
        sandbox: Option<&str>,
        page: &Page,
    ) -> Result<Vec<LifecycleEvent>, ServedError> {
        let order = if page.oldest_first { "ASC" } else { "DESC" };
        let connection = self.connection();
        let mut find = connection.prepare_cached(&format!(
            "SELECT id, sandbox, kind, at_ms, facts, (SELECT facts FROM lifecycle_events AS first
                 WHERE first.tenant = own.tenant AND first.sandbox = own.sandbox
                 AND first.kind = 'created' ORDER BY first.number LIMIT 1)
             FROM lifecycle_events AS own WHERE tenant = ?1 AND (?2 IS NULL OR sandbox = ?2)
             ORDER BY number {order} LIMIT ?3 OFFSET ?4",
        ))?;
        let found = find.query_map(
            params![tenant, sandbox, signed(page.limit), signed(page.offset)],
            |row| event_at(row, 0),
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
    let scopes: Option<String> = row.get(7)?;
    let time = |value: Option<i64>| value.map(i64::cast_unsigned);
    Ok(KeyRecord {
        id: row.get(0)?,
        tenant: row.get(1)?,
        name: row.get(2)?,
        // One that is not known has the fewest rights.
        role: Role::parse(&role).unwrap_or(Role::Auditor),
        scopes: Scopes::parse(scopes.as_deref()),
        created_s: row.get::<_, i64>(4)?.cast_unsigned(),
        expires_s: time(row.get(5)?),
        revoked_s: time(row.get(6)?),
    })
}

/// Reads an event whose first column is this one.
fn event_at(row: &Row<'_>, first: usize) -> rusqlite::Result<LifecycleEvent> {
    Ok(LifecycleEvent {
        id: row.get(first)?,
        sandbox: row.get(first + 1)?,
        kind: row.get(first + 2)?,
        at_ms: row.get::<_, i64>(first + 3)?.cast_unsigned(),
        facts: row.get(first + 4)?,
        first_facts: row.get(first + 5)?,
    })
}

fn digest(key: &str) -> Vec<u8> {
    Sha256::digest(key.as_bytes()).to_vec()
}

/// Makes a random text of so many bytes.
fn random_hex(bytes: usize) -> Result<String, ServedError> {
    let mut bytes = vec![0; bytes];
    random::fill(&mut bytes).map_err(|_| ServedError::NoRandom)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
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
