//! Checkpoints of named things outside of sandboxes: file trees, SQLite and PostgreSQL databases, and
//! the refs of git repositories.
//!
//! [`take`] one before a call with an effect, and [`settle`] it right after, which notes the state
//! that the effect has left. [`changes`] then compares three states: before, after the effect, now.
//! [`restore`] takes back only what the effect has changed and nobody has touched since, and keeps
//! the present state of that as a checkpoint of its own. [`discard`] frees one.
//!
//! A checkpoint belongs in a directory that programs in sandboxes cannot write to.

mod compare;
mod error;
mod files;
mod git;
mod postgres;
mod program;
mod sqlite;
mod target;

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

pub use compare::{Change, Difference, Origin};
pub use error::Error;
pub use postgres::shadow::{
    RowChange, RowChanges, RowOperation, Statement, apply as apply_rows, shadow as shadow_statement,
};
pub use target::{Database, Target};

const RECORD: &str = "checkpoint.json";
/// The start of the part of an id that names a restore.
const KEPT: &str = "-k-";
const ID_CHARS_MAX: usize = 24;

/// The bounds of an operation.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest size of a target; a larger one fails before anything is copied.
    pub bytes_max: Option<u64>,
    /// The longest wait for a lock that another program holds.
    pub wait: Duration,
    /// Allows ending other connections to a PostgreSQL database.
    pub end_connections: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes_max: None,
            wait: Duration::from_secs(10),
            end_connections: false,
        }
    }
}

impl Limits {
    fn check(&self, target: impl Display, bytes: u64) -> Result<(), Error> {
        match self.bytes_max {
            Some(max) if bytes > max => Err(Error::TooLarge {
                target: target.to_string(),
                bytes,
                max,
            }),
            _ => Ok(()),
        }
    }
}

/// The way in which a checkpoint holds its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// Files that share their blocks with the target; small ones are copied.
    Reflink,
    /// Copies of files.
    Copy,
    /// A SQLite database.
    Backup,
    /// Refs in the repository itself.
    Refs,
    /// A PostgreSQL database on the same server.
    Template,
    /// A PostgreSQL archive.
    Dump,
}

/// A checkpoint that was taken. Its directory holds the same record, see [`load`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taken {
    /// The id.
    pub id: String,
    /// The target, its path made absolute.
    pub target: Target,
    /// The way in which it is held.
    pub how: How,
    /// The size of the target, bytes.
    pub bytes: u64,
    /// The number of paths, refs or databases.
    pub entries: u64,
    /// The time, milliseconds since 1970.
    pub at_ms: u64,
    /// The time when it was settled.
    pub settled_ms: Option<u64>,
}

/// Something that a restore has left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// The path, ref or database, as in [`Change`].
    pub name: String,
    /// The origin of its present state; `None` where the restore of it has failed.
    pub origin: Option<Origin>,
    /// The reason.
    pub why: String,
}

impl Left {
    fn touched(change: Change) -> Self {
        let why = match change.origin {
            Origin::Effect => "it was not chosen",
            Origin::Since => "it was changed since, and not by the effect",
            Origin::Both => "it was changed by the effect, and again since",
            Origin::Unknown => "it is not known what has changed it",
        };
        Self {
            name: change.name,
            origin: Some(change.origin),
            why: why.to_owned(),
        }
    }

    fn failed(name: String, why: &str) -> Self {
        Self {
            name,
            origin: None,
            why: why.to_owned(),
        }
    }
}

/// The outcome of a restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// The checkpoint of the state that was replaced, which undoes the restore; `None` if nothing was.
    pub kept: Option<Taken>,
    /// The names of all that was restored, as in [`Change`].
    pub restored: Vec<String>,
    /// Conflicts, and other things that were left alone.
    pub left: Vec<Left>,
}

impl Restored {
    fn nothing(left: Vec<Left>) -> Self {
        Self {
            kept: None,
            restored: Vec::new(),
            left,
        }
    }
}

/// The choice about conflicts: things that were changed by the effect, and touched since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// They are left alone.
    No,
    /// They are restored too. Their present state is kept, as for all that is restored.
    Yes,
}

/// The content of a checkpoint, when it has been made.
struct Made {
    how: How,
    bytes: u64,
    entries: u64,
}

/// A restore.
struct Job<'a> {
    taken: &'a Taken,
    dir: &'a Path,
    kept: &'a Path,
    overwrite: bool,
    limits: &'a Limits,
}

impl Job<'_> {
    /// Returns the id of the checkpoint of the present state, which its directory is marked with.
    fn kept_id(&self) -> Result<String, Error> {
        let path = self.kept.join("id");
        fs::read_to_string(&path).map_err(Error::on("read", &path))
    }
}

/// The checkpoint of the state that a restore replaces.
struct Kept;

impl Kept {
    /// Writes its record, settled: the restore itself is the effect.
    fn write(job: &Job<'_>, made: Made) -> Result<(), Error> {
        let target = job.taken.target.clone();
        let mut taken = Taken::new(&job.kept_id()?, target, made);
        taken.settled_ms = Some(taken.at_ms);
        write_json(&taken, &job.kept.join(RECORD))
    }
}

impl Taken {
    fn new(id: &str, target: Target, made: Made) -> Self {
        Self {
            id: id.to_owned(),
            target,
            how: made.how,
            bytes: made.bytes,
            entries: made.entries,
            at_ms: now_ms(),
            settled_ms: None,
        }
    }
}

/// Returns whether a text can be a part of names.
fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= ID_CHARS_MAX
        && text.bytes().next().is_some_and(plain)
        && text.bytes().all(|byte| plain(byte) || byte == b'-')
}

/// Takes a checkpoint into a new directory. The id must be of this checkpoint alone: it becomes part
/// of the names of refs and databases.
///
/// # Errors
/// [`Error`]; nothing of the checkpoint is left then.
pub fn take(target: &Target, id: &str, into: &Path, limits: &Limits) -> Result<Taken, Error> {
    let is_id = is_id(id) && !id.contains(KEPT) && id != git::KEPT_REFS;
    if !is_id {
        return Err(Error::Id(id.to_owned()));
    }
    let target = target.resolved()?;
    empty_directory(into)?;
    let made = match &target {
        Target::Files { path } => files::take(path, into, limits),
        Target::Sqlite { path } => sqlite::take(path, into, limits),
        Target::Git { path } => git::take(path, id, into),
        Target::Postgres(database) => postgres::take(database, id, into, limits),
    };
    let recorded = made.and_then(|made| {
        let taken = Taken::new(id, target, made);
        write_json(&taken, &into.join(RECORD))?;
        Ok(taken)
    });
    if recorded.is_err() {
        // The first error counts.
        let _ = fs::remove_dir_all(into);
    }
    recorded
}

/// Notes the state that the effect has left. Until then a restore cannot tell whose a change is.
///
/// # Errors
/// [`Error`]; then it is not settled.
pub fn settle(taken: &mut Taken, dir: &Path) -> Result<(), Error> {
    match &taken.target {
        Target::Files { path } => files::settle(path, dir)?,
        Target::Sqlite { path } => sqlite::settle(path, dir)?,
        Target::Git { path } => git::settle(path, dir)?,
        Target::Postgres(database) => postgres::settle(database, dir)?,
    }
    taken.settled_ms = Some(now_ms());
    write_json(taken, &dir.join(RECORD))
}

/// Returns all that differs from the checkpoint now, and the origin of each difference.
///
/// # Errors
/// [`Error`].
pub fn changes(taken: &Taken, dir: &Path) -> Result<Vec<Change>, Error> {
    match &taken.target {
        Target::Files { path } => files::changes(path, dir),
        Target::Sqlite { path } => sqlite::changes(path, dir),
        Target::Git { path } => git::changes(path, dir),
        Target::Postgres(database) => postgres::changes(database, dir),
    }
}

/// Restores what the effect has changed, after keeping the present state of that in `kept`, a new
/// directory. If it is cut short, [`resume`] it.
///
/// # Errors
/// [`Error`].
pub fn restore(
    taken: &Taken,
    dir: &Path,
    kept: &Path,
    overwrite: Overwrite,
    limits: &Limits,
) -> Result<Restored, Error> {
    empty_directory(kept)?;
    let first = taken.id.split(KEPT).next().unwrap_or_default();
    // Of these digits no two restores of a checkpoint have the same for seven weeks.
    let id = format!("{first}{KEPT}{:08x}", now_ms() & 0xffff_ffff);
    let path = kept.join("id");
    fs::write(&path, id).map_err(Error::on("write", &path))?;
    let job = Job {
        taken,
        dir,
        kept,
        overwrite: overwrite == Overwrite::Yes,
        limits,
    };
    let restored = match &taken.target {
        Target::Files { path } => files::restore(path, &job),
        Target::Sqlite { path } => sqlite::restore(path, &job),
        Target::Git { path } => git::restore(path, &job),
        Target::Postgres(database) => postgres::restore(database, &job),
    }?;
    if restored.kept.is_none() {
        fs::remove_dir_all(kept).map_err(Error::on("remove", kept))?;
    }
    Ok(restored)
}

/// Completes a restore that was cut short. Returns `None`, and frees `kept`, if nothing had been
/// restored yet: then restore again.
///
/// # Errors
/// [`Error`].
pub fn resume(
    taken: &Taken,
    dir: &Path,
    kept: &Path,
    limits: &Limits,
) -> Result<Option<Restored>, Error> {
    let job = Job {
        taken,
        dir,
        kept,
        overwrite: false,
        limits,
    };
    if !kept.join("id").exists() {
        return Ok(None);
    }
    let restored = match &taken.target {
        Target::Files { path } => files::resume(path, &job),
        Target::Sqlite { path } => sqlite::resume(path, &job),
        Target::Git { path } => git::resume(path, &job),
        Target::Postgres(database) => postgres::resume(database, &job),
    }?;
    if restored.is_none() {
        fs::remove_dir_all(kept).map_err(Error::on("remove", kept))?;
    }
    Ok(restored)
}

/// Frees a checkpoint: its directory, and its refs or database.
///
/// # Errors
/// [`Error`]; what is left of it is freed by doing it again.
pub fn discard(taken: &Taken, dir: &Path) -> Result<(), Error> {
    match &taken.target {
        Target::Files { .. } | Target::Sqlite { .. } => {}
        Target::Git { path } => git::discard(path, dir)?,
        Target::Postgres(database) => postgres::discard(database, dir)?,
    }
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(Error::on("remove", dir)),
    }
}

/// Reads the record of a checkpoint from its directory.
///
/// # Errors
/// [`Error`].
pub fn load(dir: &Path) -> Result<Taken, Error> {
    read_json(&dir.join(RECORD))
}

fn empty_directory(path: &Path) -> Result<(), Error> {
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700).recursive(true);
    builder.create(path).map_err(Error::on("create", path))?;
    let mut entries = fs::read_dir(path).map_err(Error::on("read", path))?;
    match entries.next() {
        Some(_) => Err(Error::NotEmpty(path.to_owned())),
        None => Ok(()),
    }
}

fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, Error> {
    let text = fs::read(path).map_err(Error::on("read", path))?;
    serde_json::from_slice(&text).map_err(|why| Error::damaged(path, why))
}

/// Replaces a file, or makes it, so that after a power loss there is the old or the new.
fn write_json(value: &impl Serialize, path: &Path) -> Result<(), Error> {
    let written = || {
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(value)?)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        match path.parent() {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    };
    written().map_err(Error::on("write", path))
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
