//! The record of one apply: the steps, the originals of what they replace, and the progress.
//! Everything needed to roll forward or back is durable before the first change.

use std::collections::HashSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, RenameFlags, StatxFlags};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::TreeError;
use crate::facts::{Facts, Stamp, Time};
use crate::host::{Swap, rename_to_free, swap};
use crate::path::Bytes;
use crate::tree::{facts_at, file_at, names_in, os, path_bytes};
use crate::{ApplyError, RelativePath, content};

/// The memory for what is being written.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;
/// The name of the directory with the originals.
const KEPT: &str = "kept";

/// The stage that a journal's work has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Originals are being copied into the journal.
    Keeping,
    /// New content is being written under temporary names.
    Preparing,
    /// Names are being changed.
    Committing,
    /// All is done.
    Done,
    /// The finished steps are being rolled back, by the nested journal `back`.
    TakingBack,
    /// Everything has been rolled back.
    TakenBack,
    /// All is being undone, by the nested journal `undo`.
    Undoing,
    /// All is undone.
    Undone,
    /// The undo is being rolled back, by the journal `undo` within the nested one.
    PuttingBack,
}

const STAGES: [(Stage, &str); 9] = [
    (Stage::Keeping, "keeping"),
    (Stage::Preparing, "preparing"),
    (Stage::Committing, "committing"),
    (Stage::Done, "done"),
    (Stage::TakingBack, "taking-back"),
    (Stage::TakenBack, "taken-back"),
    (Stage::Undoing, "undoing"),
    (Stage::Undone, "undone"),
    (Stage::PuttingBack, "putting-back"),
];

impl Stage {
    pub fn name(self) -> &'static str {
        let row = STAGES.iter().find(|(stage, _)| *stage == self);
        row.map_or("unknown", |(_, name)| name)
    }
}

/// The work to do, as recorded in the journal before its steps.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Work {
    /// The host directory.
    pub root: Bytes,
    /// Its device and inode.
    pub root_identity: (u64, u64),
    /// The directory with the content of the layer (or checkpoint).
    pub content: Bytes,
    /// The layer's work directory, which holds some of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Bytes>,
    /// The time at which it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Time>,
    /// The record of what is put back in the host directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put_back: Option<Bytes>,
    /// For a git repository's common directory: the worktree's own directory within it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<RelativePath>,
    /// Part of every temporary name.
    pub tag: String,
    /// Continue whatever the host looks like: only for rolling back.
    pub loose: bool,
}

/// The state of the host directory after each step.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    /// As slices, which are read into no more memory than they need.
    pub steps: Vec<Box<[(RelativePath, Stamp)]>>,
}

/// An open, locked journal.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    directory: File,
    /// The directory with the originals.
    originals: File,
    lock: File,
}

/// Unlocks before closing. A child process that is being started elsewhere in this process holds a
/// copy of every descriptor for a moment: closing alone would leave the lock with it.
impl Drop for Journal {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Journal {
    /// Opens and locks a journal; makes its directory when `create` says so.
    pub fn open(path: &Path, create: bool) -> Result<Self, ApplyError> {
        if create {
            make_directory(path)?;
            make_directory(&path.join(KEPT))?;
        }
        let directory = File::open(path).map_err(|error| failed("cannot open", path, error))?;
        let kept = path.join(KEPT);
        let originals = File::open(&kept).map_err(|error| failed("cannot open", &kept, error))?;
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_path)
            .map_err(|error| failed("cannot open", &lock_path, error))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(ApplyError::Locked(path.to_owned())),
            Err(error) => return Err(failed("cannot lock", &lock_path, error.into())),
        }
        Ok(Self {
            path: path.to_owned(),
            directory,
            originals,
            lock,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a nested journal, for rolling back or undoing.
    pub fn within(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Removes a nested journal that was never begun.
    pub fn discard_within(&self, name: &str) -> Result<(), ApplyError> {
        let path = self.within(name);
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("cannot remove", &path, error))
            }
            _ => Ok(()),
        }
    }

    pub fn stage(&self) -> Result<Option<Stage>, ApplyError> {
        stage_of(&self.path)
    }

    /// Moves on to the next stage, durably.
    pub fn set_stage(&self, stage: Stage) -> Result<(), ApplyError> {
        self.write("stage", |file| file.write_all(stage.name().as_bytes()))
    }

    pub fn write_json<T: Serialize>(&self, name: &str, value: &T) -> Result<(), ApplyError> {
        self.write(name, |file| {
            let mut buffered = BufWriter::with_capacity(BUFFER_BYTES, file);
            serde_json::to_writer(&mut buffered, value)?;
            buffered.flush()
        })
    }

    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<T, ApplyError> {
        read_json(&self.path.join(name))
    }

    /// Replaces a file as a whole: readers and a crash see the old or the new one.
    fn write(
        &self,
        name: &str,
        content: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), ApplyError> {
        let path = self.path.join(name);
        let fresh = self.path.join(format!("{name}.new"));
        let write = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            let mut file = options
                .create(true)
                .truncate(true)
                .write(true)
                .mode(0o600)
                .open(&fresh)?;
            content(&mut file)?;
            file.sync_all()?;
            self.replace(&fresh, &path)
        };
        write().map_err(|error| failed("cannot write", &path, error))
    }

    /// Gives a durable file of the journal the name of another, durably.
    pub fn replace(&self, fresh: &Path, path: &Path) -> io::Result<()> {
        std::fs::rename(fresh, path)?;
        self.directory.sync_all()
    }

    /// Returns the indexes of the steps that are recorded as done.
    pub fn logged(&self) -> Result<HashSet<usize>, ApplyError> {
        let path = self.path.join("log");
        let mut text = String::new();
        match File::open(&path).and_then(|mut file| file.read_to_string(&mut text)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("cannot read", &path, error))
            }
            // Only lines that end were written in full.
            _ => Ok(text
                .split_inclusive('\n')
                .filter_map(|line| line.strip_suffix('\n')?.parse().ok())
                .collect()),
        }
    }

    /// Opens the log of finished steps.
    pub fn log(&self) -> Result<File, ApplyError> {
        let path = self.path.join("log");
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| failed("cannot open", &path, error))
    }

    /// Creates a file to keep an original in.
    pub fn keep(&self, number: u64) -> Result<File, ApplyError> {
        let path = self.path.join(KEPT).join(number.to_string());
        OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| failed("cannot write", &path, error))
    }

    /// Returns the directory with the originals.
    pub fn originals(&self) -> BorrowedFd<'_> {
        self.originals.as_fd()
    }

    /// Returns whether files of the tree with this root can be moved into the journal, once they
    /// have been exchanged for others: then no copies of them need to be made before. Not where
    /// a process was killed while it made copies.
    pub fn takes_from(&self, root: BorrowedFd<'_>) -> bool {
        let mount = |directory| {
            let facts = rustix::fs::statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
            let facts = facts.ok()?;
            let known = StatxFlags::from_bits_retain(facts.stx_mask).contains(StatxFlags::MNT_ID);
            known.then_some(facts.stx_mnt_id)
        };
        mount(root).is_some_and(|root| Some(root) == mount(self.originals()))
            && names_in(self.originals()).is_ok_and(|names| names.is_empty())
            && self.exchanges().unwrap_or(false)
    }

    /// Returns whether the file system can exchange two files.
    fn exchanges(&self) -> io::Result<bool> {
        let names: [&str; 2] = ["one", "other"];
        for name in names {
            File::create(self.path.join(name))?;
        }
        let [one, other] = names.map(str::as_bytes);
        let swapped = swap(self.directory.as_fd(), one, other, || true)?;
        for name in names {
            let _ = std::fs::remove_file(self.path.join(name));
        }
        Ok(swapped == Swap::Exchanged)
    }

    /// Moves a file into the journal; what was kept under the number is never replaced.
    pub fn take(&self, place: BorrowedFd<'_>, name: &[u8], number: u64) -> Result<(), Errno> {
        let (to, kept) = (self.originals(), number.to_string());
        rustix::fs::renameat_with(place, os(name), to, kept, RenameFlags::NOREPLACE)
    }

    /// Returns what is kept under a number.
    pub fn facts_of(&self, number: u64) -> io::Result<Option<Facts>> {
        facts_at(self.originals(), number.to_string().as_bytes())
    }

    /// Moves a file out of the journal again.
    pub fn give(&self, number: u64, place: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        let kept = number.to_string();
        rename_to_free(self.originals(), kept.as_bytes(), place, name)
    }

    /// Keeps a copy of a file, durably and as a whole.
    pub fn keep_whole(&self, number: u64, from: &File) -> io::Result<()> {
        let directory = self.path.join(KEPT);
        let (fresh, kept) = (directory.join("new"), directory.join(number.to_string()));
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(true).write(true).mode(0o600);
        let copy = options.open(&fresh)?;
        content::copy(from, &copy, from.metadata()?.len())?;
        copy.sync_all()?;
        std::fs::rename(&fresh, &kept)?;
        self.originals.sync_all()
    }

    /// Opens a kept original.
    pub fn kept(&self, number: u64) -> Result<File, ApplyError> {
        open_kept(&self.path, number)
    }

    /// Opens a kept original of the enclosing journal.
    pub fn kept_outside(&self, number: u64) -> Result<File, ApplyError> {
        open_kept(self.path.parent().unwrap_or(&self.path), number)
    }

    /// Makes everything that was kept durable.
    pub fn sync(&self) -> Result<(), ApplyError> {
        rustix::fs::syncfs(&self.directory)
            .map_err(|error| failed("cannot sync", &self.path, error.into()))
    }
}

/// Reads a file of a journal without opening it.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, ApplyError> {
    let file = File::open(path).map_err(|error| failed("cannot read", path, error))?;
    let buffered = BufReader::with_capacity(BUFFER_BYTES, file);
    serde_json::from_reader(buffered).map_err(|error| match error.is_io() {
        true => failed("cannot read", path, error.into()),
        false => ApplyError::Damaged {
            path: path.to_owned(),
            why: error.to_string(),
        },
    })
}

/// Reads the stage of a journal without opening it; `None` where nothing was begun.
pub(crate) fn stage_of(path: &Path) -> Result<Option<Stage>, ApplyError> {
    let file = path.join("stage");
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("cannot read", &file, error)),
    };
    match STAGES.iter().find(|(_, name)| *name == text) {
        Some((stage, _)) => Ok(Some(*stage)),
        None => Err(ApplyError::Damaged {
            path: file,
            why: "no such stage".into(),
        }),
    }
}

fn open_kept(journal: &Path, number: u64) -> Result<File, ApplyError> {
    let path = journal.join(KEPT).join(number.to_string());
    let opened = file_at(CWD, &path_bytes(&path));
    opened.map_or_else(
        |error| Err(failed("cannot read", &path, error)),
        |(file, _)| Ok(file),
    )
}

fn make_directory(path: &Path) -> Result<(), ApplyError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| failed("cannot make", path, error))
}

pub(crate) fn failed(doing: &'static str, path: &Path, error: io::Error) -> ApplyError {
    ApplyError::from_tree(TreeError::new(doing, path.display(), error))
}

impl ApplyError {
    /// Distinguishes a full disk from other failures.
    pub(crate) fn from_tree(error: TreeError) -> Self {
        if error.is_no_space() {
            Self::NoSpace(error)
        } else {
            Self::Tree(error)
        }
    }
}
