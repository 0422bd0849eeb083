//! Kept layers: layers over parts of the home that the next run of a profile continues. One
//! directory each, `kept/NAME`, with a record, the changes of runs (`upper`), and those that the
//! next run does not see (`aside/upper`).

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use atoll_ledger::lock::lock_now;
use atoll_ledger::state::KEPT;
use atoll_ledger::{Durability, FileFault, KeptUse, StateDir, host_text};
use atoll_model::RunId;
use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::record_file::{self, RECORD, RecordFault, replace};
use crate::tree::{delete_tree, is_dots};
use crate::usage::measure;
use crate::{DiskUsage, OverlayXattrs, RunError, SettingsRecord};

/// The version of the format of a kept layer's `record.json`.
pub const KEPT_VERSION: u32 = 1;
/// The largest record, bytes.
const RECORD_BYTES_MAX: u64 = 1 << 20;
/// The longest name, bytes.
const NAME_BYTES_MAX: usize = 100;
/// The prefix of a layer's directory while it is being deleted.
const REMOVED: &str = ".removed-";
const UPPER: &str = "upper";
const NEW_UPPER: &str = "upper.new";
const WORK: &str = "work";
const ASIDE: &str = "aside";
const JOURNALS: &str = "journals";
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW);

/// An operation on a kept layer failed.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// The kernel refused a file operation.
    #[error(transparent)]
    File(#[from] FileFault),
    /// Files that a program made could not be removed.
    #[error(transparent)]
    Removal(#[from] RunError),
    /// There is no kept layer of that name.
    #[error("nothing is kept as {0}")]
    Missing(KeptName),
    /// A run, or another command, works in it.
    #[error("{0} is in use by a run; wait for its end")]
    InUse(KeptName),
    /// The file is not a record.
    #[error("the record of {name} cannot be read: {why}")]
    Unreadable {
        /// The layer.
        name: KeptName,
        /// The fault that was found.
        why: String,
    },
}

/// The name of a kept layer: letters, digits and `-`, safe as a file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptName(String);

impl KeptName {
    /// Reads a name; `None` for what cannot be one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let fits = !text.is_empty() && text.len() <= NAME_BYTES_MAX;
        (fits && text.bytes().all(is_plain)).then(|| Self(text.to_owned()))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for KeptName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

/// The record of a kept layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptRecord {
    /// [`KEPT_VERSION`].
    pub v: u32,
    /// The profile whose runs share the layer.
    pub profile: String,
    /// The host's directory below.
    #[serde(with = "host_text::path")]
    pub host: PathBuf,
    /// The path at which the sandbox sees it.
    #[serde(with = "host_text::path")]
    pub inside: PathBuf,
    /// The extended attributes that hold overlayfs's marks.
    pub xattrs: OverlayXattrs,
    /// The first kernel user id of the range that its files belong to, if the sandbox was made by
    /// host root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<u32>,
    /// Changes on the host after this moment are conflicts: seconds and nanoseconds since
    /// 1970, by the host's file system.
    pub since: (i64, u32),
    /// The files at its top in whose place something else stood: login files of agents.
    #[serde(
        default,
        with = "host_text::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub logins: Vec<OsString>,
    /// The settings files among them, with the state of their placeholders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingsRecord>,
    /// The names of the purposes that narrowed runs which have used it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub purposes: Vec<String>,
    /// The labels of runs which have used it: for the last run, those that it had when this was
    /// written.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<String>,
    /// True if there are no other labels. Otherwise only the ledger has them all, as when the last
    /// run was cut short, or an earlier release has written this record.
    #[serde(default)]
    pub has_all_labels: bool,
    /// The run that found it empty: its content is of that run, and of later ones. `None` in
    /// records of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<RunId>,
    /// The run that used it last.
    pub run: RunId,
    /// The time of the last use, milliseconds since 1970.
    pub used_at_ms: u64,
}

impl KeptRecord {
    /// Returns which runs have used the layer.
    #[must_use]
    pub fn used(&self) -> KeptUse {
        KeptUse {
            profile: self.profile.clone(),
            first: self.first.clone(),
            last: self.run.clone(),
            labels: self.labels.clone(),
            has_all_labels: self.has_all_labels,
        }
    }
}

/// A kept layer, for one process at a time; let go when dropped.
#[derive(Debug)]
pub struct KeptLayer {
    name: KeptName,
    path: PathBuf,
    directory: OwnedFd,
}

impl KeptLayer {
    /// Locks a layer, and makes it if there is none.
    ///
    /// # Errors
    /// [`KeptError::InUse`] at once where another process has it, [`KeptError::File`].
    pub fn make(state: &StateDir, name: &KeptName) -> Result<Self, KeptError> {
        let kept = state.subdirectory(KEPT, true)?;
        let path = state.kept_dir().join(name.as_str());
        match rustix::fs::mkdirat(&kept, name.as_str(), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(FileFault::on("create", &path)(errno).into()),
        }
        Self::open(state, name)
    }

    /// Locks a layer that exists.
    ///
    /// # Errors
    /// [`KeptError::Missing`], [`KeptError::InUse`] at once where another process has it,
    /// [`KeptError::File`].
    pub fn open(state: &StateDir, name: &KeptName) -> Result<Self, KeptError> {
        let missing = || KeptError::Missing(name.clone());
        let path = state.kept_dir().join(name.as_str());
        let directory = match rustix::fs::open(&path, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => return Err(missing()),
            opened => opened.map_err(FileFault::on("open", &path))?,
        };
        if !lock_now(&directory, &path, FlockOperation::NonBlockingLockExclusive)? {
            return Err(KeptError::InUse(name.clone()));
        }
        // Someone may have removed it between the opening and the locking.
        let facts = rustix::fs::fstat(&directory).map_err(FileFault::on("examine", &path))?;
        match path.symlink_metadata() {
            Ok(now) if now.ino() == facts.st_ino => {}
            Ok(_) | Err(_) => return Err(missing()),
        }
        let name = name.clone();
        Ok(Self {
            name,
            path,
            directory,
        })
    }

    /// Returns the layer's name.
    #[must_use]
    pub fn name(&self) -> &KeptName {
        &self.name
    }

    /// Returns the layer's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the upper that the next run sees.
    #[must_use]
    pub fn upper(&self) -> PathBuf {
        self.path.join(UPPER)
    }

    /// Returns the upper with changes pending review, which the next run does not see until they
    /// are applied.
    #[must_use]
    pub fn aside(&self) -> PathBuf {
        self.path.join(ASIDE).join(UPPER)
    }

    /// Returns the directory of the journals of its applies.
    #[must_use]
    pub fn journals(&self) -> PathBuf {
        self.path.join(JOURNALS)
    }

    /// Reads the layer's record; `None` for a layer that no run has used yet.
    ///
    /// # Errors
    /// [`KeptError::Unreadable`] or [`KeptError::File`].
    pub fn record(&self) -> Result<Option<KeptRecord>, KeptError> {
        read(&self.name, &self.path)
    }

    /// Replaces the record in one step.
    ///
    /// # Errors
    /// [`KeptError::File`].
    pub fn write(&self, record: &KeptRecord, durability: Durability) -> Result<(), KeptError> {
        let path = self.path.join(RECORD);
        let replaced = replace(self.directory.as_fd(), &path, record, durability);
        replaced.map_err(|fault| of_record(&self.name, fault))
    }

    /// Makes the missing directories for changes pending review, and an upper.
    ///
    /// # Errors
    /// [`KeptError::File`].
    pub fn furnish(&self) -> Result<(), KeptError> {
        let [aside, aside_upper, aside_work] =
            ["aside", "aside/upper", "aside/work"].map(|name| self.path.join(name));
        for path in [&aside, &aside_upper, &aside_work, &self.upper()] {
            match rustix::fs::mkdir(path, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(FileFault::on("create", path)(errno).into()),
            }
        }
        Ok(())
    }

    /// Moves the next run's upper into a new directory, and removes overlayfs's working directory,
    /// so that the leftovers of an interrupted run, and the mark of the lower directory, are gone.
    /// If it is interrupted, it can be run again.
    ///
    /// # Errors
    /// [`KeptError::File`] or [`KeptError::Removal`].
    pub fn freshen(&self) -> Result<(), KeptError> {
        self.delete(WORK)?;
        let (upper, new) = (self.upper(), self.path.join(NEW_UPPER));
        let made = |result: Result<(), Errno>| match result {
            Err(Errno::EXIST) => Ok(()),
            other => other,
        };
        made(rustix::fs::mkdirat(&self.directory, NEW_UPPER, Mode::RWXU))
            .map_err(FileFault::on("create", &new))?;
        match rustix::fs::openat(&self.directory, UPPER, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => {}
            opened => {
                let from = opened.map_err(FileFault::on("open", &upper))?;
                let into = rustix::fs::openat(&self.directory, NEW_UPPER, DIRECTORY, Mode::empty())
                    .map_err(FileFault::on("open", &new))?;
                for name in names(&from).map_err(FileFault::on("list", &upper))? {
                    rustix::fs::renameat(&from, &name, &into, &name)
                        .map_err(FileFault::on("move what is in", &upper))?;
                }
                rustix::fs::unlinkat(&self.directory, UPPER, AtFlags::REMOVEDIR)
                    .map_err(FileFault::on("remove", &upper))?;
            }
        }
        rustix::fs::renameat(&self.directory, NEW_UPPER, &self.directory, UPPER)
            .map_err(FileFault::on("replace", &upper))?;
        Ok(())
    }

    /// Returns whether the layer is empty: nothing for the next run, and nothing pending review.
    ///
    /// # Errors
    /// [`KeptError::File`].
    pub fn is_empty(&self) -> Result<bool, KeptError> {
        for path in [self.upper(), self.aside()] {
            let directory = match rustix::fs::open(&path, DIRECTORY, Mode::empty()) {
                Err(Errno::NOENT) => continue,
                opened => opened.map_err(FileFault::on("open", &path))?,
            };
            if !names(&directory)
                .map_err(FileFault::on("list", &path))?
                .is_empty()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Measures the disk usage of the changes that are pending review.
    ///
    /// # Errors
    /// [`KeptError::File`].
    pub fn aside_usage(&self) -> Result<DiskUsage, KeptError> {
        usage(&self.aside())
    }

    /// Deletes the layer, with all its content. It disappears from lists at once, also if the
    /// deletion is interrupted.
    ///
    /// # Errors
    /// [`KeptError::File`] or [`KeptError::Removal`].
    pub fn remove(self, state: &StateDir) -> Result<(), KeptError> {
        let kept = state.subdirectory(KEPT, false)?;
        let removed = format!("{REMOVED}{}", self.name);
        let rename = || {
            let flags = RenameFlags::NOREPLACE;
            rustix::fs::renameat_with(&kept, self.name.as_str(), &kept, &*removed, flags)
        };
        let delete = || match CString::new(removed.as_str()) {
            Ok(name) => delete_tree(&kept, &name, &state.kept_dir().join(&removed)),
            Err(_) => Ok(()),
        };
        let renamed = match rename() {
            Err(Errno::EXIST | Errno::NOTEMPTY) => {
                delete()?;
                rename()
            }
            other => other,
        };
        renamed.map_err(FileFault::on("remove", &self.path))?;
        Ok(delete()?)
    }

    fn delete(&self, name: &str) -> Result<(), KeptError> {
        let Ok(text) = CString::new(name) else {
            return Ok(());
        };
        match delete_tree(&self.directory, &text, &self.path.join(name)) {
            Err(RunError::File(fault)) if fault.is_not_found() => Ok(()),
            other => Ok(other?),
        }
    }
}

/// Lists all kept layers that a run has used, by name, with their records and disk usage; a record
/// that cannot be read comes as the error.
///
/// # Errors
/// [`KeptError::File`] when they cannot be listed.
#[allow(clippy::type_complexity)]
pub fn list_kept(
    state: &StateDir,
) -> Result<Vec<(KeptName, Result<(KeptRecord, DiskUsage), KeptError>)>, KeptError> {
    let mut all = Vec::new();
    for name in kept_names(state)? {
        let path = state.kept_dir().join(name.as_str());
        let known = read(&name, &path).and_then(|record| match record {
            None => Ok(None),
            Some(record) => Ok(Some((record, usage(&path)?))),
        });
        match known {
            Ok(None) => {}
            Ok(Some(known)) => all.push((name, Ok(known))),
            Err(error) => all.push((name, Err(error))),
        }
    }
    Ok(all)
}

/// Lists the names of all kept layers, in order.
///
/// # Errors
/// [`KeptError::File`] when they cannot be listed.
pub fn kept_names(state: &StateDir) -> Result<Vec<KeptName>, KeptError> {
    let directory = match state.subdirectory(KEPT, false) {
        Err(fault) if fault.is_not_found() => return Ok(Vec::new()),
        other => other?,
    };
    let names = names(&directory).map_err(FileFault::on("list", state.kept_dir()))?;
    let texts = names.iter().filter_map(|name| name.to_str().ok());
    let mut all: Vec<KeptName> = texts.filter_map(KeptName::parse).collect();
    all.sort();
    Ok(all)
}

fn usage(path: &Path) -> Result<DiskUsage, KeptError> {
    let top =
        rustix::fs::open(path, DIRECTORY, Mode::empty()).map_err(FileFault::on("open", path))?;
    Ok(measure(top).map_err(FileFault::on("measure", path))?)
}

fn names(directory: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !is_dots(entry.file_name()) {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

fn of_record(name: &KeptName, fault: RecordFault) -> KeptError {
    match fault {
        RecordFault::File(fault) => fault.into(),
        RecordFault::Unreadable(why) => KeptError::Unreadable {
            name: name.clone(),
            why,
        },
    }
}

fn read(name: &KeptName, path: &Path) -> Result<Option<KeptRecord>, KeptError> {
    let unreadable = |why: String| of_record(name, RecordFault::Unreadable(why));
    let path = path.join(RECORD);
    let read = record_file::read(CWD, &path, (&path, RECORD_BYTES_MAX));
    let Some(value) = read.map_err(|fault| of_record(name, fault))? else {
        return Ok(None);
    };
    let record: KeptRecord =
        serde_json::from_value(value).map_err(|error| unreadable(error.to_string()))?;
    if record.v > KEPT_VERSION {
        let why = format!(
            "it has version {}, and this Atoll reads {KEPT_VERSION}",
            record.v
        );
        return Err(unreadable(why));
    }
    Ok(Some(record))
}
