//! The form of the file, its changes from one version to the next, and backups.

use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use atoll_ledger::FileFault;
use atoll_ledger::lock::{LockFault, lock_now, open_lock, wait_for_lock};
use rusqlite::backup::{Backup, Progress, StepResult};
use rusqlite::{Connection, OpenFlags, TransactionBehavior, ffi, params};
use rustix::fs::{FlockOperation, Mode, OFlags};

use super::{
    FIRST_TENANT, SCHEMA, ServedError, ServedStore, now_s, paused, settle, signed, templates,
    volumes, webhooks,
};

/// The version of the file's form (PRAGMA `user_version`).
pub(super) const FORM: i64 = 4;

/// The changes that lead from each form to the next, the first of them from form 1.
const CHANGES: [&[&str]; 3] = [
    &[
        webhooks::TABLES,
        paused::TABLES,
        "ALTER TABLE keys ADD COLUMN scopes TEXT;",
    ],
    &[templates::TABLES, volumes::TABLES],
    &["ALTER TABLE snapshots ADD COLUMN layers TEXT NOT NULL DEFAULT '';"],
];

/// The end of the name of the file that a server locks, and the longest wait for one that ends.
const LOCK: &str = ".lock";
const LOCK_WAIT_MS: u64 = 5_000;

/// The pages of a backup that are copied at once: all, so that nobody else writes in between.
const ALL_PAGES: std::ffi::c_int = -1;
/// The most attempts to copy them while others write, and the time between two.
const COPIED_MAX: u32 = 50;
const COPIED_AGAIN: Duration = Duration::from_millis(100);

impl ServedStore {
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

    /// Replaces everything by what a backup holds, in one step; one of an earlier form is brought
    /// to this one.
    ///
    /// # Errors
    /// [`ServedError`]; nothing is changed then.
    pub fn restore(&self, from: &Path) -> Result<(), ServedError> {
        std::fs::File::open(from)?;
        let backup = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        match form_of(&backup)? {
            1..=FORM => {}
            ..=0 => return Err(ServedError::NoBackup),
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
        // In a file of its own until it is complete: a server that runs sees no half of it.
        let mut whole = Connection::open("")?;
        whole.restore("main", from, None::<fn(Progress)>)?;
        bring_up(&mut whole)?;
        let mut connection = self.connection();
        copy(&whole, &mut connection)?;
        settle(&connection)
    }

    /// Takes the store for one server alone, until it is dropped.
    ///
    /// # Errors
    /// [`ServedError::Taken`] if another server has it.
    pub fn take(&mut self) -> Result<(), ServedError> {
        let lock = self.lock_file()?;
        let alone = FlockOperation::NonBlockingLockExclusive;
        wait_for_lock(&lock, &self.path, alone, LOCK_WAIT_MS).map_err(|fault| match fault {
            LockFault::File(fault) => ServedError::Lock(fault),
            LockFault::TimedOut { .. } => ServedError::Taken,
        })?;
        self.lock = Some(lock);
        Ok(())
    }

    /// Returns whether a server has the store, without waiting for it.
    ///
    /// # Errors
    /// When its lock cannot be used.
    pub fn is_taken(&self) -> Result<bool, ServedError> {
        let lock = self.lock_file()?;
        let beside = FlockOperation::NonBlockingLockShared;
        Ok(!lock_now(&lock, &self.path, beside).map_err(ServedError::Lock)?)
    }

    fn lock_file(&self) -> Result<OwnedFd, ServedError> {
        let (directory, name) = (self.path.parent(), self.path.file_name());
        let (Some(directory), Some(name)) = (directory, name) else {
            return Err(ServedError::Taken);
        };
        let name = format!("{}{LOCK}", name.to_string_lossy());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(directory, flags, Mode::empty());
        let opened = opened.map_err(FileFault::on("open", directory))?;
        Ok(open_lock(&opened, directory, &name)?)
    }
}

/// Makes the tables of a new file, or brings those of an earlier form to this one.
pub(super) fn bring_up(connection: &mut Connection) -> Result<(), ServedError> {
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut form = form_of(&change)?;
    if form == 0 {
        change.execute_batch(SCHEMA)?;
        change.execute(
            "INSERT INTO tenants (id, created_s) VALUES (?1, ?2)",
            params![FIRST_TENANT, signed(now_s())],
        )?;
        form = 1;
    }
    if form > FORM {
        return Err(ServedError::Newer(form));
    }
    let done = usize::try_from(form - 1).unwrap_or(0);
    for statements in CHANGES.iter().skip(done).copied().flatten() {
        change.execute_batch(statements)?;
    }
    change.pragma_update(None, "user_version", FORM)?;
    Ok(change.commit()?)
}

/// Replaces everything in one by what the other holds.
fn copy(from: &Connection, to: &mut Connection) -> Result<(), ServedError> {
    let copy = Backup::new(from, to)?;
    for _ in 0..COPIED_MAX {
        if copy.step(ALL_PAGES)? == StepResult::Done {
            return Ok(());
        }
        std::thread::sleep(COPIED_AGAIN);
    }
    let busy = ffi::Error::new(ffi::SQLITE_BUSY);
    Err(rusqlite::Error::SqliteFailure(busy, None).into())
}

fn form_of(connection: &Connection) -> Result<i64, ServedError> {
    Ok(connection.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}
