//! Homes of served sandboxes that outlive them: kept at the end of one, begun with by the next.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use atoll_sandbox::{identity_base, merged, shown_path};
use atoll_store::remove_directory;
use rustix::fs::{Mode, OFlags, open, syncfs};

use super::{Engine, Sandbox};
use crate::control::stand_still;
use crate::failure::{Doing, Failure};
use crate::home::KeptHome;

/// The longest time that a copy takes, seconds.
const COPIED_WITHIN_S: &str = "120";
/// The status of what took longer (timeout(1)).
const LATE: i32 = 124;

impl Engine {
    /// Copies a home, whose sandbox is gone, to a new directory.
    ///
    /// # Errors
    /// When it cannot be read or written; nothing is left then.
    pub fn copy_home(&self, home: &KeptHome, to: &Path) -> Result<KeptHome, Failure> {
        copy(&home.path, to)?;
        Ok(KeptHome {
            path: to.to_owned(),
            base: home.base,
            layers: Vec::new(),
        })
    }

    /// Copies the home that these layers make together, the topmost first, to a new directory, on
    /// disk before this returns.
    ///
    /// # Errors
    /// When they cannot be read, or it cannot be written; nothing is left then.
    pub fn flatten_home(&self, layers: &[PathBuf], to: &Path) -> Result<(), Failure> {
        let failed = "the layers cannot be made one";
        let merged = merged(layers).doing(failed)?;
        copy(&shown_path(&merged), to)?;
        settle(to)
    }
}

/// Removes a home that is kept.
///
/// # Errors
/// When that is not possible.
pub fn remove_home(path: &Path) -> Result<(), Failure> {
    remove_directory(path).doing("the home cannot be removed")
}

/// Copies a directory that nothing writes to, all of it or none; blocks are shared where the file system
/// can. A path that is longer than the kernel takes ends it: so does no depth.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let copied = Command::new("timeout")
        .args([COPIED_WITHIN_S, "cp", "--archive", "--reflink=auto", "-T"])
        .args([from, to])
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let why = match copied {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) if status.code() == Some(LATE) => "it takes longer than two minutes".to_owned(),
        Ok(_) => "not all of it can be read, or its paths are too long".to_owned(),
        Err(error) => error.to_string(),
    };
    let _ = remove_home(to);
    Err(Failure::new("the files cannot be copied").because(why))
}

/// Has the kernel write a home to disk, and all else on that file system.
pub(super) fn settle(home: &Path) -> Result<(), Failure> {
    let unkept = "its home is not kept";
    fs::symlink_metadata(home).doing(unkept)?;
    // Its own directory may be one that nobody can open.
    let parent = home.parent().unwrap_or(home);
    let directory = open(parent, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
    syncfs(directory.doing(unkept)?).doing(unkept)
}

impl Sandbox {
    /// Ends it, and keeps its home in this new directory, on disk before this returns.
    ///
    /// # Errors
    /// When it had ended before, or its home cannot be kept; the home is gone then.
    pub fn kill_keeping_home(&self, to: &Path) -> Result<KeptHome, Failure> {
        self.home.keep(to.to_owned());
        let kept = self.kill().and_then(|()| settle(to));
        if kept.is_err() {
            let _ = remove_home(to);
        }
        kept.map(|()| self.kept_at(to))
    }

    /// Ends it, and leaves its home, and root's changes of the system, at these new places, for
    /// whoever removes them.
    ///
    /// # Errors
    /// When it did not come to its end as it should have.
    pub fn kill_leaving(&self, home: &Path, system: &Path) -> Result<(), Failure> {
        self.home.keep(home.to_owned());
        if self.home.system().is_some() {
            self.home.keep_system(system.to_owned());
        }
        self.kill()
    }

    /// Returns its home, at the place where it is kept.
    pub(super) fn kept_at(&self, path: &Path) -> KeptHome {
        let begun = self.home.begins().filter(|home| home.path == path);
        KeptHome {
            path: path.to_owned(),
            base: self.home_base(),
            layers: begun.map_or_else(Vec::new, |home| home.layers.clone()),
        }
    }

    /// Copies its home, at one moment: it stands still meanwhile. Of one with layers beneath it is
    /// what lies over these.
    ///
    /// # Errors
    /// When it cannot stand still, or its home cannot be copied.
    pub fn copy_home(&self, to: &Path) -> Result<KeptHome, Failure> {
        self.copied(&[(&self.home_path(), to)])?;
        Ok(self.kept_at(to))
    }

    /// Copies these directories, each to a new one, while it stands still.
    pub(super) fn copied(&self, all: &[(&Path, &Path)]) -> Result<(), Failure> {
        let frozen = stand_still(&self.shared.state, &self.run)?;
        let copied = all.iter().try_for_each(|(from, to)| copy(from, to));
        // One that had ended before did not stand still.
        let copied = copied.and_then(|()| match frozen.is_some_and(|frozen| frozen.has_held()) {
            true => Ok(()),
            false => Err(Failure::new("it went on, or ended, while it was copied")),
        });
        // On disk before anybody is told that it is kept.
        let copied = copied.and_then(|()| all.iter().try_for_each(|(_, to)| settle(to)));
        if copied.is_err() {
            for (_, to) in all {
                let _ = remove_home(to);
            }
        }
        copied
    }

    pub(super) fn home_path(&self) -> PathBuf {
        let made = self.shared.state.scratch_dir(&self.run).join("upper");
        self.home.path(&made)
    }

    /// Returns the first of the ids that the files of its home belong to, if host root has made it.
    #[must_use]
    pub fn home_base(&self) -> Option<u32> {
        let begun = self.home.begins().map(|home| home.base);
        let own = || {
            let is_root = self.shared.machine.is_root;
            is_root.then(|| identity_base(self.run.as_str()))
        };
        begun.unwrap_or_else(own)
    }
}
