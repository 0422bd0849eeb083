//! Witness files: every signed checkpoint that a witness was given, in a file to which whoever can
//! rewrite the ledger cannot write. `verify` compares the ledger with it.

use std::ffi::OsString;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::lock::{LockFault, wait_for_lock};
use crate::private::PrivateDirectory;
use crate::state::LEDGER_KEY;
use crate::{
    Checkpoint, FileFault, LedgerError, PrivateFault, StateDir, WitnessKey, host_text,
    read_host_text,
};

/// The largest witness file that is read, bytes: some 250,000 checkpoints.
const WITNESS_BYTES_MAX: u64 = 64 << 20;
/// The longest time for which another process may be writing to it, milliseconds.
const LOCK_WAIT_MS_MAX: u64 = 5_000;

/// The file that names the witness, beside the key.
const KEPT: &str = "witness";
const KEPT_BYTES_MAX: u64 = 256 << 10;

/// The witness to which each checkpoint is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Witness {
    /// A file that it is added to.
    File(PathBuf),
    /// A command that gets it on its standard input, with its arguments.
    Command(Vec<OsString>),
    /// A witness of C2SP's protocol (tlog-witness), which signs each.
    Network {
        /// The URL to which checkpoints are sent: `https://…`, before `/add-checkpoint`.
        url: String,
        /// The key that verifies its cosignatures.
        key: WitnessKey,
    },
}

/// The witness as it is stored, in the form of [`crate::host_text()`].
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Kept {
    File(Value),
    Command(Vec<Value>),
    Network { url: String, key: String },
}

impl Witness {
    /// Reads the witness that is given a checkpoint at the end of each run; `None` if there is
    /// none.
    ///
    /// # Errors
    /// [`PrivateFault`], also where what is kept cannot be read.
    pub fn read(state: &StateDir) -> Result<Option<Self>, PrivateFault> {
        let Some(directory) = PrivateDirectory::of_state(state, LEDGER_KEY, false)? else {
            return Ok(None);
        };
        let Some(bytes) = directory.read(KEPT, KEPT_BYTES_MAX)? else {
            return Ok(None);
        };
        let read = serde_json::from_slice(&bytes)
            .ok()
            .and_then(|kept| match kept {
                Kept::File(file) => Some(Self::File(read_host_text(&file)?.into())),
                Kept::Command(words) => {
                    let words = words.iter().map(read_host_text);
                    Some(Self::Command(words.collect::<Option<_>>()?))
                }
                Kept::Network { url, key } => {
                    let key = WitnessKey::parse(&key).ok()?;
                    Some(Self::Network { url, key })
                }
            });
        read.map(Some).ok_or_else(|| PrivateFault::NoFile {
            path: directory.path().join(KEPT),
            bytes_max: KEPT_BYTES_MAX,
        })
    }

    /// Saves the witness, or that there is none any more.
    ///
    /// # Errors
    /// [`PrivateFault`].
    pub fn keep(state: &StateDir, witness: Option<&Self>) -> Result<(), PrivateFault> {
        let Some(directory) = PrivateDirectory::of_state(state, LEDGER_KEY, true)? else {
            return Ok(());
        };
        let _lock = directory.lock()?;
        match witness {
            None => directory.remove(KEPT).map(|_| ()),
            Some(witness) => {
                let kept = match witness {
                    Self::File(file) => Kept::File(host_text(file)),
                    Self::Command(words) => Kept::Command(words.iter().map(host_text).collect()),
                    Self::Network { url, key } => Kept::Network {
                        url: url.clone(),
                        key: key.to_string(),
                    },
                };
                let bytes = serde_json::to_vec(&kept).unwrap_or_default();
                directory.replace(KEPT, &bytes)
            }
        }
    }
}

/// A witness's checkpoints, oldest first, each followed by an empty line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessFile {
    /// The file's name in messages.
    pub name: String,
    /// The file's content.
    pub content: Vec<u8>,
}

impl WitnessFile {
    /// Reads a file.
    ///
    /// # Errors
    /// [`FileFault`], also where it is larger than 64 MiB.
    pub fn read(path: &Path) -> Result<Self, FileFault> {
        let read = || {
            let mut content = Vec::new();
            let mut limited = std::fs::File::open(path)?.take(WITNESS_BYTES_MAX + 1);
            limited.read_to_end(&mut content)?;
            match content.len() as u64 > WITNESS_BYTES_MAX {
                true => Err(std::io::Error::from(std::io::ErrorKind::FileTooLarge)),
                false => Ok(content),
            }
        };
        Ok(Self {
            name: path.display().to_string(),
            content: read().map_err(FileFault::on("read", path))?,
        })
    }

    /// Returns the signed notes in it, each with the number of its first line.
    pub(crate) fn notes(&self) -> Vec<(u64, Vec<u8>)> {
        let mut notes = Vec::new();
        let (mut note, mut begin, mut has_signature) = (Vec::new(), 1, false);
        for (number, line) in (1..).zip(self.content.split_inclusive(|byte| *byte == b'\n')) {
            // Within a checkpoint there is one empty line, before its signatures.
            if line == b"\n" && (has_signature || note.is_empty()) {
                if !note.is_empty() {
                    notes.push((begin, std::mem::take(&mut note)));
                }
                (begin, has_signature) = (number + 1, false);
                continue;
            }
            has_signature |= line.starts_with("\u{2014} ".as_bytes());
            note.extend_from_slice(line);
        }
        if !note.is_empty() {
            notes.push((begin, note));
        }
        notes
    }
}

/// Appends a checkpoint to a witness's file, on disk when it returns; the file is made if missing.
/// Does nothing if the file's last checkpoint is the same.
///
/// # Errors
/// [`LedgerError::File`] or [`LedgerError::Busy`].
pub fn add_to_witness(path: &Path, checkpoint: &Checkpoint) -> Result<(), LedgerError> {
    use std::os::unix::fs::OpenOptionsExt;
    let failed = |cause: std::io::Error| LedgerError::from(FileFault::on("write", path)(cause));
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let mut file = std::fs::OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)
        .map_err(failed)?;
    let operation = FlockOperation::NonBlockingLockExclusive;
    wait_for_lock(&file, path, operation, LOCK_WAIT_MS_MAX).map_err(|fault| match fault {
        LockFault::File(fault) => LedgerError::File(fault),
        LockFault::TimedOut { path, waited_ms } => LedgerError::Busy { path, waited_ms },
    })?;
    let record = format!("{}\n", checkpoint.text());
    let end = file.seek(SeekFrom::End(0)).map_err(failed)?;
    let begin = end.saturating_sub(record.len() as u64);
    file.seek(SeekFrom::Start(begin)).map_err(failed)?;
    let mut last = Vec::new();
    (&mut file)
        .take(record.len() as u64)
        .read_to_end(&mut last)
        .map_err(failed)?;
    if last == record.as_bytes() {
        return Ok(());
    }
    // What an earlier writer left unfinished is ended, so that this one stands for itself.
    let ended = end == 0 || last.ends_with(b"\n\n");
    let separator = if ended { "" } else { "\n\n" };
    file.write_all(format!("{separator}{record}").as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(failed)
}
