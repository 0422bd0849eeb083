//! Artifacts: the files that sandboxes have put out, which wait until somebody decides. Each is
//! encrypted under a key of its own; those of one sandbox lie in one file, a pack.
//!
//! The content of an artifact never changes. The decision about it is in a SQLite file beside the packs,
//! with its wrapped key: without that nobody reads the content any more, and its digests stay.

mod artifact;
mod deposit;
mod error;
mod keeping;
mod sealing;

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atoll_ledger::private::PrivateDirectory;
use atoll_ledger::{FileFault, StateDir, hex};
use atoll_model::RunId;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

pub use artifact::{
    Artifact, ArtifactDecision, ArtifactFilter, ArtifactOrigin, ArtifactState, Evidence,
};
use artifact::{COLUMNS, artifact};
use deposit::id_of;
pub use deposit::{Deposit, Deposited, media as media_type};
pub use error::ArtifactError;
use error::FORM;
pub use keeping::KeptArtifacts;
use sealing::{BUFFER_BYTES, Key};

/// The directory of everything here, in the state directory.
const ARTIFACTS: &str = "artifacts";
const STORE: &str = "artifacts.sqlite";
/// Locked by the process that attends to them.
const ATTENDING: &str = "attending";
/// The longest wait for another process that writes.
const PATIENCE: Duration = Duration::from_secs(5);

const TABLES: &str = "
    CREATE TABLE deposits (
        number INTEGER PRIMARY KEY,
        run TEXT NOT NULL UNIQUE,
        tenant TEXT,
        sandbox TEXT,
        session TEXT,
        at_ms INTEGER NOT NULL,
        interrupted INTEGER NOT NULL,
        entry INTEGER NOT NULL,
        statement TEXT NOT NULL
    ) STRICT;
    CREATE TABLE artifacts (
        id TEXT PRIMARY KEY,
        deposit INTEGER NOT NULL REFERENCES deposits (number),
        name BLOB NOT NULL,
        bytes INTEGER NOT NULL,
        blake3 TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        media TEXT NOT NULL,
        at_byte INTEGER NOT NULL,
        sealed_bytes INTEGER NOT NULL,
        key BLOB,
        state TEXT NOT NULL,
        decided_ms INTEGER,
        decided_by TEXT,
        why TEXT
    ) STRICT;
    CREATE TABLE evidence (
        artifact TEXT NOT NULL REFERENCES artifacts (id),
        scanner TEXT NOT NULL,
        version INTEGER NOT NULL,
        at_ms INTEGER NOT NULL,
        verdict TEXT NOT NULL,
        PRIMARY KEY (artifact, scanner)
    ) STRICT;
    CREATE INDEX artifacts_of_deposit ON artifacts (deposit);
    CREATE INDEX artifacts_by_digest ON artifacts (blake3);
";
/// The second form: outputs have a fate, and an artifact is attended to once it has met its.
const WITH_RULES: &str = "
    ALTER TABLE deposits ADD COLUMN rule TEXT NOT NULL DEFAULT 'hold';
    ALTER TABLE artifacts ADD COLUMN attended INTEGER NOT NULL DEFAULT 0;
";

/// The artifacts of a state directory.
pub struct Artifacts {
    connection: Connection,
    directory: PrivateDirectory,
}

impl Artifacts {
    /// Opens those of a state directory; `None` if there are none yet, and `create` is not set.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn open(state: &StateDir, create: bool) -> Result<Option<Self>, ArtifactError> {
        let Some(directory) = PrivateDirectory::of_state(state, ARTIFACTS, create)? else {
            return Ok(None);
        };
        let mut connection = Connection::open(directory.path().join(STORE))?;
        connection.busy_timeout(PATIENCE)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        // A key that is removed is overwritten.
        connection.pragma_update(None, "secure_delete", true)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        bring_up(&mut connection)?;
        Ok(Some(Self {
            connection,
            directory,
        }))
    }

    /// Begins a deposit. Of a sandbox whose artifacts are kept already nothing more is taken.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn begin(&self, origin: ArtifactOrigin) -> Result<Deposit, ArtifactError> {
        let path = self.pack(&origin.run);
        Deposit::begin(origin, path)
    }

    /// Returns whether those of a run are kept.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn has(&self, run: &RunId) -> Result<bool, ArtifactError> {
        let sql = "SELECT 1 FROM deposits WHERE run = ?1";
        let found = self
            .connection
            .query_row(sql, params![run.as_str()], |_| Ok(()));
        Ok(found.optional()?.is_some())
    }

    /// Keeps a deposit whose content is on the disk, with the ledger's entry and the statement about
    /// it; all of it or nothing. Returns their number.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn keep(
        &mut self,
        mut deposit: Deposit,
        entry: u64,
        statement: &str,
        now: SystemTime,
    ) -> Result<u64, ArtifactError> {
        let origin = &deposit.origin;
        let tenant = self.tenant_key(origin.tenant.as_deref(), true)?;
        rustix::fs::fsync(self.directory.descriptor())
            .map_err(FileFault::on("write", self.directory.path()))?;
        let change = self.connection.transaction()?;
        change.execute(
            "INSERT INTO deposits
             (run, tenant, sandbox, session, at_ms, interrupted, entry, statement, rule)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                origin.run.as_str(),
                origin.tenant,
                origin.sandbox,
                origin.session,
                signed(milliseconds(now)),
                origin.interrupted,
                signed(entry),
                statement,
                origin.rule.name()
            ],
        )?;
        let number = change.last_insert_rowid();
        {
            let mut insert = change.prepare(
                "INSERT INTO artifacts (id, deposit, name, bytes, blake3, sha256, media, at_byte,
                 sealed_bytes, key, state) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 'held')",
            )?;
            for (index, one) in deposit.packed.iter().enumerate() {
                let id = id_of(&origin.run, index);
                let key = tenant.wrap(&one.key, &id);
                let key = key.map_err(|error| ArtifactError::Pack {
                    path: deposit.path.clone(),
                    error,
                })?;
                insert.execute(params![
                    id,
                    number,
                    one.name,
                    signed(one.bytes),
                    one.blake3,
                    one.sha256,
                    one.media,
                    signed(one.at_byte),
                    signed(one.sealed_bytes),
                    key
                ])?;
            }
        }
        // Before it is known: one that is kept for all that is not to lose its content.
        deposit.is_kept = true;
        change.commit()?;
        Ok(deposit.packed.len() as u64)
    }

    /// Returns those that pass the filter, the newest deposit first.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn list(&self, filter: &ArtifactFilter) -> Result<Vec<Artifact>, ArtifactError> {
        let sql = format!(
            "{COLUMNS} WHERE tenant IS ?1 AND (?2 IS NULL OR run = ?2)
             AND (?3 IS NULL OR sandbox = ?3) AND (?4 IS NULL OR state = ?4)
             ORDER BY deposits.number DESC, at_byte"
        );
        let values = params![
            filter.tenant,
            filter.run,
            filter.sandbox,
            filter.state.map(ArtifactState::name)
        ];
        self.all(&sql, values)
    }

    /// Returns those of a tenant, or of none, whose id begins with these digits.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn find(&self, id: &str, tenant: Option<&str>) -> Result<Vec<Artifact>, ArtifactError> {
        let sql = format!("{COLUMNS} WHERE substr(id, 1, ?3) = ?1 AND tenant IS ?2");
        self.all(&sql, params![id, tenant, signed(id.len() as u64)])
    }

    /// Returns those whose sandbox's rule does more than to hold them, and that wait for it; the oldest
    /// first.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn unattended(&self) -> Result<Vec<Artifact>, ArtifactError> {
        let sql = format!(
            "{COLUMNS} WHERE rule <> 'hold' AND attended = 0 AND state = 'held' AND key IS NOT NULL
             ORDER BY deposits.number, at_byte"
        );
        self.all(&sql, [])
    }

    /// Notes that an artifact has met its rule.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn attended(&self, artifact: &Artifact) -> Result<(), ArtifactError> {
        let sql = "UPDATE artifacts SET attended = 1 WHERE id = ?1";
        self.connection.execute(sql, params![artifact.id])?;
        Ok(())
    }

    /// Takes the work on those that are unattended for this process alone; `None` where another has it.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn attend_alone(&self) -> Result<Option<File>, ArtifactError> {
        let path = self.directory.path().join(ATTENDING);
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let opened = options.open(&path).map_err(FileFault::on("open", &path))?;
        match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(opened)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(FileFault::on("lock", &path)(error).into()),
        }
    }

    fn all(
        &self,
        sql: &str,
        values: impl rusqlite::Params,
    ) -> Result<Vec<Artifact>, ArtifactError> {
        let mut statement = self.connection.prepare(sql)?;
        let rows = statement.query_map(values, |row| Ok(artifact(row)))?;
        rows.map(|row| row?).collect()
    }

    /// Returns the signed statement about all that came with an artifact: a DSSE envelope.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn statement(&self, artifact: &Artifact) -> Result<String, ArtifactError> {
        let sql = "SELECT statement FROM deposits WHERE run = ?1";
        let run = params![artifact.origin.run.as_str()];
        Ok(self.connection.query_row(sql, run, |row| row.get(0))?)
    }

    /// Writes the content of an artifact, checked against its digest. Where that fails, what was
    /// written is not to be used.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn read(&self, artifact: &Artifact, to: &mut dyn Write) -> Result<(), ArtifactError> {
        let Some(wrapped) = &artifact.key else {
            return Err(ArtifactError::Destroyed(artifact.id.clone()));
        };
        let tenant = self.tenant_key(artifact.origin.tenant.as_deref(), false)?;
        let path = self.pack(&artifact.origin.run);
        let mut read = || {
            let key = tenant.unwrap(wrapped, &artifact.id)?;
            let mut pack = File::open(&path)?;
            pack.seek(SeekFrom::Start(artifact.at_byte))?;
            let mut sealed =
                BufReader::with_capacity(BUFFER_BYTES, pack.take(artifact.sealed_bytes));
            let mut checked = Checked {
                to,
                digest: blake3::Hasher::new(),
            };
            key.open(&mut sealed, &mut checked)?;
            match checked.digest.finalize().to_hex().as_str() == artifact.blake3 {
                true => Ok(()),
                false => Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "it is not what its digest says",
                )),
            }
        };
        read().map_err(|error| ArtifactError::Pack {
            path: path.clone(),
            error,
        })
    }

    /// Decides about an artifact that waits; returns whether it still did.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn decide(
        &self,
        artifact: &Artifact,
        state: ArtifactState,
        decision: &ArtifactDecision,
    ) -> Result<bool, ArtifactError> {
        let changed = self.connection.execute(
            "UPDATE artifacts SET state = ?2, decided_ms = ?3, decided_by = ?4, why = ?5
             WHERE id = ?1 AND state = 'held'",
            params![
                artifact.id,
                state.name(),
                signed(decision.at_ms),
                decision.by,
                decision.why
            ],
        )?;
        Ok(changed == 1)
    }

    /// Keeps what a scanner says of an artifact, in place of what it has said before.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn note(&self, artifact: &Artifact, evidence: &Evidence) -> Result<(), ArtifactError> {
        self.connection.execute(
            "INSERT OR REPLACE INTO evidence (artifact, scanner, version, at_ms, verdict)
             VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                artifact.id,
                evidence.scanner,
                evidence.version,
                signed(evidence.at_ms),
                evidence.verdict
            ],
        )?;
        Ok(())
    }

    /// Returns what scanners have said of an artifact.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn evidence(&self, artifact: &Artifact) -> Result<Vec<Evidence>, ArtifactError> {
        let mut statement = self.connection.prepare(
            "SELECT scanner, version, at_ms, verdict FROM evidence
             WHERE artifact = ?1 ORDER BY scanner",
        )?;
        let rows = statement.query_map(params![artifact.id], |row| {
            Ok(Evidence {
                scanner: row.get(0)?,
                version: row.get(1)?,
                at_ms: u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0),
                verdict: row.get(3)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Returns those that have their content still, by run, the oldest first.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn kept(&self) -> Result<Vec<KeptArtifacts>, ArtifactError> {
        keeping::kept(&self.connection)
    }

    /// Returns the bytes of a tenant's artifacts that have their content still.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn bytes_of(&self, tenant: &str) -> Result<u64, ArtifactError> {
        let sql = "SELECT total(bytes) FROM artifacts
             JOIN deposits ON deposits.number = artifacts.deposit
             WHERE tenant = ?1 AND key IS NOT NULL";
        let total: f64 = self
            .connection
            .query_row(sql, params![tenant], |row| row.get(0))?;
        // Exact up to 2^53, far beyond any bound.
        Ok(total as u64)
    }

    /// Returns the runs whose artifacts have their content still.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn runs(&self) -> Result<Vec<RunId>, ArtifactError> {
        let mut statement = self.connection.prepare(
            "SELECT DISTINCT run FROM artifacts
             JOIN deposits ON deposits.number = artifacts.deposit WHERE key IS NOT NULL",
        )?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        let runs = rows.map(|row| {
            let run = row?;
            RunId::parse(&run).map_err(|_| ArtifactError::Damaged(format!("{run:?}")))
        });
        runs.collect()
    }

    /// Destroys the content of all artifacts of a run: their keys are overwritten, and the disk has
    /// the space back. Their digests and decisions stay.
    ///
    /// # Errors
    /// [`ArtifactError`]; what is left of it is destroyed by doing it again.
    pub fn destroy(&self, run: &RunId) -> Result<(), ArtifactError> {
        let path = self.pack(run);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(ArtifactError::Pack { path, error });
            }
            Ok(()) | Err(_) => {}
        }
        self.connection.execute(
            "UPDATE artifacts SET key = NULL
             WHERE deposit = (SELECT number FROM deposits WHERE run = ?1)",
            params![run.as_str()],
        )?;
        // Not only in the file, but in the journal that has led to it.
        let emptied = self
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        Ok(emptied?)
    }

    fn pack(&self, run: &RunId) -> PathBuf {
        self.directory.path().join(format!("{run}.pack"))
    }

    /// Returns the key that wraps those of a tenant's artifacts, or of nobody's tenant.
    fn tenant_key(&self, tenant: Option<&str>, create: bool) -> Result<Key, ArtifactError> {
        let name = tenant.map_or("key".to_owned(), |tenant| {
            format!("key-{}", hex(tenant.as_bytes()))
        });
        let damaged = || ArtifactError::Damaged(format!("{name} is no key"));
        let _lock = create.then(|| self.directory.lock()).transpose()?;
        match self.directory.read(&name, sealing::KEY_BYTES as u64 + 1)? {
            Some(bytes) => {
                let bytes = zeroize::Zeroizing::new(bytes);
                Key::from_bytes(&bytes).ok_or_else(damaged)
            }
            None if create => {
                let key = Key::generate().map_err(|error| ArtifactError::Pack {
                    path: self.directory.path().join(&name),
                    error,
                })?;
                self.directory.replace(&name, key.expose())?;
                Ok(key)
            }
            None => Err(damaged()),
        }
    }
}

/// Makes the tables of a new file. Others are only read: who opens one waits for nobody that writes.
fn bring_up(connection: &mut Connection) -> Result<(), ArtifactError> {
    let form = |of: &Connection| of.query_row("PRAGMA user_version", [], |row| row.get(0));
    if form(connection)? == FORM {
        return Ok(());
    }
    // Locked first: what was read before a lock may not be so any more.
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    match form(&change)? {
        0 => {
            change.execute_batch(TABLES)?;
            change.execute_batch(WITH_RULES)?;
        }
        1 => change.execute_batch(WITH_RULES)?,
        FORM => return Ok(()),
        other => return Err(ArtifactError::Newer(other)),
    }
    change.pragma_update(None, "user_version", FORM)?;
    Ok(change.commit()?)
}

/// Passes bytes on, and takes their digest.
struct Checked<'a> {
    to: &'a mut dyn Write,
    digest: blake3::Hasher,
}

impl Write for Checked<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write_all(bytes)?;
        self.digest.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
