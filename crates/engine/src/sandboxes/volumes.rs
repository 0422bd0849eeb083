//! Volumes: directories that outlive the sandboxes they are mounted in. Here they are made, copied
//! and removed; [`VolumeFiles`] reads and writes one without a sandbox.

mod files;
mod paths;

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use atoll_ledger::Durability;
use atoll_model::RESIDENT;
use serde_json::Value;

use super::Engine;
use super::home::copy;
use crate::failure::{Doing, Failure};

pub use atoll_sandbox::volume_usage;
pub use files::{Staged, VolumeEntry, VolumeFiles, VolumeWrite};

/// The beginning of the types of events about volumes.
pub(super) const VOLUME: &str = "volume.";

/// Returns the directory of a volume's files, in the volume's own: what is mounted.
#[must_use]
pub fn volume_files(volume: &Path) -> PathBuf {
    volume.join("files")
}

/// Returns the directory of what is not yet, or no longer, part of a volume's files.
fn staging(volume: &Path) -> PathBuf {
    volume.join("staging")
}

impl Engine {
    /// Records what is about to be done with a volume, on disk when it returns. `body` has the
    /// tenant as `tenant`.
    ///
    /// # Errors
    /// When it is not recorded.
    pub fn record_volume(&self, what: &str, body: Value) -> Result<(), Failure> {
        let ledger = &self.shared.ledger;
        let kind = format!("{VOLUME}{what}");
        let recorded = ledger.record(None, &kind, body, Durability::Durable);
        recorded.map(drop).doing("the volume is not recorded")
    }

    /// Makes the directory of a volume: with the files of another one, to which nothing writes
    /// meanwhile, or empty.
    ///
    /// # Errors
    /// When it cannot be made; nothing is left then.
    pub fn make_volume(&self, volume: &Path, from: Option<&Path>) -> Result<(), Failure> {
        let made = self.made(volume, from);
        if made.is_err() {
            let _ = super::remove_home(volume);
        }
        made
    }

    fn made(&self, volume: &Path, from: Option<&Path>) -> Result<(), Failure> {
        let unmade = "the volume cannot be made";
        let files = volume_files(volume);
        let mut builder = DirBuilder::new();
        // Nobody else of this host finds a file in it, whoever it belongs to.
        builder.mode(0o700).recursive(true);
        builder.create(staging(volume)).doing(unmade)?;
        match from {
            Some(from) => copy(&volume_files(from), &files)?,
            None => make_empty(&files, self.shared.machine.is_root).doing(unmade)?,
        }
        settle(volume).doing(unmade)
    }

    /// Opens the files of a volume.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_volume(&self, volume: &Path) -> io::Result<VolumeFiles> {
        VolumeFiles::open(
            &volume_files(volume),
            &staging(volume),
            self.shared.machine.is_root,
        )
    }
}

/// Removes what was being written to a volume when its server ended.
///
/// # Errors
/// The kernel's.
pub fn clear_staging(volume: &Path) -> io::Result<()> {
    let staging = staging(volume);
    for entry in fs::read_dir(&staging)? {
        let path = entry?.path();
        if fs::remove_file(&path).is_err() {
            super::remove_home(&path).map_err(io::Error::other)?;
        }
    }
    Ok(())
}

/// Makes the directory of files. For host root they belong on the disk to the ids that programs see,
/// and each sandbox shows them by its own.
fn make_empty(files: &Path, is_root: bool) -> io::Result<()> {
    fs::create_dir(files)?;
    fs::set_permissions(files, Permissions::from_mode(0o755))?;
    match is_root {
        true => chown(files, Some(RESIDENT.uid), Some(RESIDENT.gid)),
        false => Ok(()),
    }
}

/// Has the kernel write all of it to disk, with all else on that file system.
fn settle(volume: &Path) -> io::Result<()> {
    let directory = fs::File::open(volume.parent().unwrap_or(volume))?;
    Ok(rustix::fs::syncfs(directory)?)
}
