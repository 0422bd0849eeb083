//! The file of a record: read whole up to a size, and replaced in one step.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use atoll_ledger::{Durability, FileFault};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;
use serde::Serialize;
use serde_json::Value;

/// The name of a record's file.
pub(crate) const RECORD: &str = "record.json";
/// The name of the next record's file, until it is whole.
pub(crate) const NEW_RECORD: &str = "record.json.new";

/// An error of reading or writing a record.
pub(crate) enum RecordFault {
    /// The kernel refused.
    File(FileFault),
    /// The file is not a record, for this reason.
    Unreadable(String),
}

impl From<FileFault> for RecordFault {
    fn from(fault: FileFault) -> Self {
        Self::File(fault)
    }
}

/// Reads a record; `None` if there is none. `path` is for messages.
pub(crate) fn read(
    directory: impl AsFd,
    name: impl Arg,
    (path, bytes_max): (&Path, u64),
) -> Result<Option<Value>, RecordFault> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened.map_err(FileFault::on("open", path))?,
    };
    let mut bytes = Vec::new();
    File::from(file)
        .take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(FileFault::on("read", path))?;
    if bytes.len() as u64 > bytes_max {
        let why = format!("larger than {bytes_max} bytes");
        return Err(RecordFault::Unreadable(why));
    }
    let read = serde_json::from_slice(&bytes);
    read.map(Some)
        .map_err(|error| RecordFault::Unreadable(error.to_string()))
}

/// Replaces a record, so that a reader sees the old one or the new one. The caller holds the lock.
/// `Durable` waits until it is on disk.
pub(crate) fn replace(
    directory: BorrowedFd<'_>,
    path: &Path,
    record: &impl Serialize,
    durability: Durability,
) -> Result<(), RecordFault> {
    let bytes = serde_json::to_vec_pretty(record);
    let mut bytes = bytes.map_err(|error| RecordFault::Unreadable(error.to_string()))?;
    bytes.push(b'\n');
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(directory, NEW_RECORD, flags, Mode::RUSR | Mode::WUSR)
        .map_err(FileFault::on("write", path))?;
    let mut file = File::from(file);
    file.write_all(&bytes)
        .map_err(FileFault::on("write", path))?;
    if durability == Durability::Durable {
        file.sync_all().map_err(FileFault::on("write", path))?;
    }
    rustix::fs::renameat(directory, NEW_RECORD, directory, RECORD)
        .map_err(FileFault::on("replace", path))?;
    if durability == Durability::Durable {
        rustix::fs::fsync(directory).map_err(FileFault::on("write", path))?;
    }
    Ok(())
}
