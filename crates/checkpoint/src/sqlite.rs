//! Checkpoints of SQLite databases, by SQLite's own backup: what is in the write-ahead log counts,
//! and others may have the database open.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use serde::{Deserialize, Serialize};

use crate::compare::{Compared, compare};
use crate::{Change, Error, How, Job, Kept, Left, Limits, Made, Restored};

const COPY: &str = "database.sqlite";
const DIGESTS: &str = "digests.json";
/// There once a restore may have taken effect.
const BEGUN: &str = "begun.json";
const TEMPORARY: &str = "now.sqlite";
const PAUSE: Duration = Duration::from_millis(5);
const BLOCK_BYTES: usize = 1 << 16;
/// The bytes of the header that say how a file was written, not what is in it: the journal mode, the
/// change counter, and the version that it is valid for.
const HEADER_VARIES: [std::ops::Range<usize>; 3] = [18..20, 24..28, 92..100];

#[derive(Serialize, Deserialize)]
struct Digests {
    before: String,
    after: Option<String>,
}

pub(crate) fn take(path: &Path, into: &Path, limits: &Limits) -> Result<Made, Error> {
    let from = open(path, limits.wait)?;
    let pages = |pragma: &str| from.query_row(pragma, [], |row| row.get::<_, i64>(0));
    let bytes = pages("PRAGMA page_count")
        .and_then(|count| Ok(count.saturating_mul(pages("PRAGMA page_size")?)))
        .map_err(on("read", path))?;
    let bytes = u64::try_from(bytes).unwrap_or(0);
    limits.check(path.display(), bytes)?;
    let before = copy(&from, path, &into.join(COPY), limits.wait)?;
    let digests = Digests {
        before,
        after: None,
    };
    crate::write_json(&digests, &into.join(DIGESTS))?;
    Ok(made(bytes))
}

fn made(bytes: u64) -> Made {
    Made {
        how: How::Backup,
        bytes,
        entries: 1,
    }
}

pub(crate) fn settle(path: &Path, dir: &Path) -> Result<(), Error> {
    let mut digests: Digests = crate::read_json(&dir.join(DIGESTS))?;
    digests.after = Some(now(path, dir)?.unwrap_or_default());
    crate::write_json(&digests, &dir.join(DIGESTS))
}

pub(crate) fn changes(path: &Path, dir: &Path) -> Result<Vec<Change>, Error> {
    let now = now(path, dir)?;
    let compared = compared(dir, now.as_deref())?;
    Ok(compared.iter().map(|one| one.change(name(path))).collect())
}

/// Compares the digests; an empty one stands for no database.
fn compared(dir: &Path, now: Option<&str>) -> Result<Option<Compared<()>>, Error> {
    let digests: Digests = crate::read_json(&dir.join(DIGESTS))?;
    let state = |digest: &str| {
        let present = Some(digest.to_owned()).filter(|digest| !digest.is_empty());
        present.map(|digest| ((), digest)).into_iter().collect()
    };
    let after: Option<BTreeMap<(), String>> = digests.after.as_deref().map(state);
    let now = state(now.unwrap_or_default());
    Ok(compare(&state(&digests.before), after.as_ref(), &now).pop())
}

pub(crate) fn restore(path: &Path, job: &Job<'_>) -> Result<Restored, Error> {
    if fs::symlink_metadata(path).is_err() {
        return create(path, job);
    }
    let wait = job.limits.wait;
    // Held until all connections are closed: closing it would release their locks.
    let header = File::open(path).map_err(Error::on("open", path))?;
    let reader = open(path, wait)?;
    // The read makes it begin: a backup alone would leave the state it has read.
    let begin = "BEGIN; SELECT 1 FROM sqlite_schema LIMIT 1";
    reader.execute_batch(begin).map_err(on("read", path))?;
    let kept = copy(&reader, path, &job.kept.join(COPY), wait)?;
    let version = Version::of(&reader, &header).map_err(on("read", path))?;
    reader.execute_batch("COMMIT").map_err(on("read", path))?;
    let Some(compared) = compared(job.dir, Some(&kept))? else {
        return Ok(Restored::nothing(Vec::new()));
    };
    let left = Left::touched(compared.change(name(path)));
    if !compared.is_restored(job.overwrite) {
        return Ok(Restored::nothing(vec![left]));
    }
    record_kept(job, kept)?;
    let source = job.dir.join(COPY);
    let from = open(&source, wait)?;
    let mut to = open(path, wait)?;
    let backup = Backup::new(&from, &mut to).map_err(on("restore", path))?;
    // This locks the database, and writes nothing yet.
    step(&backup, 0, path, wait)?;
    let is_same = Version::of(&reader, &header).is_ok_and(|now| now == version);
    if !is_same {
        let why = "it changed just now";
        return Ok(Restored::nothing(vec![Left::failed(name(path), why)]));
    }
    crate::write_json(&true, &job.kept.join(BEGUN))?;
    step(&backup, -1, path, wait)?;
    drop(backup);
    restored(path, job)
}

/// Makes a database again that has been removed.
fn create(path: &Path, job: &Job<'_>) -> Result<Restored, Error> {
    match compared(job.dir, None)? {
        Some(one) if one.is_restored(job.overwrite) => {}
        other => {
            let left = other.map(|one| Left::touched(one.change(name(path))));
            return Ok(Restored::nothing(left.into_iter().collect()));
        }
    }
    for end in ["-wal", "-journal"] {
        let log = format!("{}{end}", path.display());
        if fs::symlink_metadata(&log).is_ok() {
            let why = format!("{log} of the removed database would be applied to it");
            return Ok(Restored::nothing(vec![Left::failed(name(path), &why)]));
        }
    }
    let new = path.with_extension(format!("atoll-{}", job.kept_id()?));
    let source = job.dir.join(COPY);
    copy(
        &open(&source, job.limits.wait)?,
        &source,
        &new,
        job.limits.wait,
    )?;
    let flags = rustix::fs::RenameFlags::NOREPLACE;
    let renamed = rustix::fs::renameat_with(rustix::fs::CWD, &new, rustix::fs::CWD, path, flags);
    if renamed.is_err() {
        // It is ours, and of no use.
        let _ = fs::remove_file(&new);
    }
    renamed.map_err(Error::on("restore", path))?;
    Ok(Restored {
        kept: None,
        restored: vec![name(path)],
        left: Vec::new(),
    })
}

fn record_kept(job: &Job<'_>, kept: String) -> Result<(), Error> {
    let digests: Digests = crate::read_json(&job.dir.join(DIGESTS))?;
    let of_kept = Digests {
        before: kept,
        after: Some(digests.before),
    };
    crate::write_json(&of_kept, &job.kept.join(DIGESTS))?;
    let path = job.kept.join(COPY);
    let file = File::open(&path).map_err(Error::on("read", &path))?;
    file.sync_all().map_err(Error::on("write", &path))?;
    let bytes = file.metadata().map_or(0, |facts| facts.len());
    Kept::write(job, made(bytes))
}

fn restored(path: &Path, job: &Job<'_>) -> Result<Restored, Error> {
    Ok(Restored {
        kept: Some(crate::load(job.kept)?),
        restored: vec![name(path)],
        left: Vec::new(),
    })
}

/// A restore is one transaction: it was done, or nothing of it.
pub(crate) fn resume(path: &Path, job: &Job<'_>) -> Result<Option<Restored>, Error> {
    let digests: Digests = crate::read_json(&job.dir.join(DIGESTS))?;
    let Ok(kept) = crate::load(job.kept) else {
        return Ok(None);
    };
    if now(path, job.dir)? == Some(digests.before) {
        return restored(path, job).map(Some);
    }
    if !job.kept.join(BEGUN).exists() {
        return Ok(None);
    }
    // It may have been done and changed again: what was replaced stays.
    let why = "it is not known whether it was restored before it was cut short";
    Ok(Some(Restored {
        kept: Some(kept),
        restored: Vec::new(),
        left: vec![Left::failed(name(path), why)],
    }))
}

/// Returns the digest of the present state; `None` if there is no database.
fn now(path: &Path, dir: &Path) -> Result<Option<String>, Error> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(None);
    }
    let wait = Limits::default().wait;
    let temporary = dir.join(TEMPORARY);
    // One may be left of a sudden end.
    let _ = fs::remove_file(&temporary);
    let digest = copy(&open(path, wait)?, path, &temporary, wait);
    let _ = fs::remove_file(&temporary);
    digest.map(Some)
}

fn open(path: &Path, wait: Duration) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags).map_err(on("open", path))?;
    connection.busy_timeout(wait).map_err(on("open", path))?;
    Ok(connection)
}

/// Copies a database into a new file; returns the digest of its pages.
fn copy(from: &Connection, path: &Path, into: &Path, wait: Duration) -> Result<String, Error> {
    let mut to = Connection::open(into).map_err(on("create", into))?;
    let backup = Backup::new(from, &mut to).map_err(on("back up", path))?;
    step(&backup, -1, path, wait)?;
    drop(backup);
    to.close().map_err(|(_, error)| on("write", into)(error))?;
    digest(into).map_err(Error::on("read", into))
}

fn step(backup: &Backup<'_, '_>, pages: i32, path: &Path, wait: Duration) -> Result<(), Error> {
    let until = Instant::now() + wait;
    loop {
        match backup.step(pages).map_err(on("copy", path))? {
            StepResult::Done => return Ok(()),
            StepResult::More if pages == 0 => return Ok(()),
            StepResult::Busy | StepResult::Locked if Instant::now() >= until => {
                return Err(Error::Busy(path.to_owned()));
            }
            _ => sleep(PAUSE),
        }
    }
}

fn digest(path: &Path) -> std::io::Result<String> {
    let file = File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut block = vec![0; BLOCK_BYTES];
    let mut at = 0;
    loop {
        let read = file.read_at(&mut block, at)?;
        let Some(content) = block.get_mut(..read).filter(|content| !content.is_empty()) else {
            return Ok(hasher.finalize().to_hex().to_string());
        };
        for range in HEADER_VARIES.into_iter().filter(|_| at == 0) {
            if let Some(bytes) = content.get_mut(range) {
                bytes.fill(0);
            }
        }
        hasher.update(content);
        at += read as u64;
    }
}

/// The version of a database, by which a write of another connection is noticed: SQLite's own where
/// readers and a writer may go on together, else the counter in the header of the file.
#[derive(PartialEq)]
enum Version {
    Wal(i64),
    Counter([u8; 4]),
}

impl Version {
    fn of(reader: &Connection, header: &File) -> rusqlite::Result<Self> {
        let mut modes = [0; 2];
        let mut counter = [0; 4];
        let read = header.read_exact_at(&mut modes, 18);
        read.and_then(|()| header.read_exact_at(&mut counter, 24))
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        match modes {
            [2, 2] => reader
                .query_row("PRAGMA data_version", [], |row| row.get(0))
                .map(Self::Wal),
            _ => Ok(Self::Counter(counter)),
        }
    }
}

fn name(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn on(doing: &'static str, path: &Path) -> impl FnOnce(rusqlite::Error) -> Error {
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Busy(path.to_owned()),
        _ => Error::Sqlite {
            doing,
            path: path.to_owned(),
            error,
        },
    }
}

#[cfg(test)]
mod tests;
