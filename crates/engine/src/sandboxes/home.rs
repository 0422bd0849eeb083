//! Homes of served sandboxes that outlive them: kept at the end of one, begun with by the next.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atoll_layer::{IdShift, checkpoint};
use atoll_sandbox::identity_base;
use atoll_store::remove_directory;
use rustix::fs::{Mode, OFlags, open, syncfs};

use super::{Engine, Sandbox};
use crate::control::stand_still;
use crate::failure::{Doing, Failure};

/// The end of the name of the file that a copy has beside it.
const BESIDE: &str = ".directories";

/// A home without a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptHome {
    /// Its directory.
    pub path: PathBuf,
    /// Made by host root: the first of the ids that its files belong to.
    pub base: Option<u32>,
}

/// The home of a served sandbox: what it begins with, and where it goes at its end.
#[derive(Debug, Default)]
pub struct Home {
    begins: Option<KeptHome>,
    /// The place to which it is moved at the end; without one it is gone.
    keep: Mutex<Option<PathBuf>>,
}

impl Home {
    /// Takes the home to begin with: it goes back to where it was unless a sandbox comes to be.
    pub(crate) fn new(begins: Option<KeptHome>) -> Arc<Self> {
        let back = begins.as_ref().map(|home| home.path.clone());
        Arc::new(Self {
            begins,
            keep: Mutex::new(back),
        })
    }

    pub(crate) fn begins(&self) -> Option<&KeptHome> {
        self.begins.as_ref()
    }

    /// Sets the place to which it is moved at the end.
    pub(crate) fn keep(&self, to: Option<PathBuf>) {
        *self.kept() = to;
    }

    /// Moves it there, if it is to be kept; where no sandbox came to be, back to where it was.
    pub(crate) fn end(&self, home: &Path, has_failed: bool) -> std::io::Result<()> {
        let back = self.begins.as_ref().filter(|_| has_failed);
        let to = self.kept().take();
        match to.or_else(|| back.map(|home| home.path.clone())) {
            // One that was never moved here is where it was.
            Some(to) if home.exists() => fs::rename(home, to),
            Some(_) | None => Ok(()),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.keep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
        })
    }
}

/// Removes what a copy has beside it, which only a comparison with its origin would need.
fn remove_beside(path: &Path) {
    let mut beside = path.as_os_str().to_owned();
    beside.push(BESIDE);
    // Where there is none, there is none.
    let _ = fs::remove_file(beside);
}

/// Removes a home that is kept, and what is beside it.
///
/// # Errors
/// When that is not possible.
pub fn remove_home(path: &Path) -> Result<(), Failure> {
    remove_beside(path);
    remove_directory(path).doing("the home cannot be removed")
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let copied = checkpoint(from, to, IdShift::None, &mut |_| {});
    remove_beside(to);
    if copied.is_err() {
        let _ = remove_home(to);
    }
    copied.map(drop).doing("the home cannot be copied")
}

impl Sandbox {
    /// Ends it, and keeps its home in this new directory, on disk before this returns.
    ///
    /// # Errors
    /// When it had ended before, or its home cannot be kept; the home is gone then.
    pub fn kill_keeping_home(&self, to: &Path) -> Result<KeptHome, Failure> {
        self.home.keep(Some(to.to_owned()));
        self.kill()?;
        let base = self.home_base();
        let unkept = "its home is not kept";
        let directory = open(to, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        syncfs(directory.doing(unkept)?).doing(unkept)?;
        Ok(KeptHome {
            path: to.to_owned(),
            base,
        })
    }

    /// Copies its home, at one moment: it stands still meanwhile.
    ///
    /// # Errors
    /// When it cannot stand still, or its home cannot be copied.
    pub fn copy_home(&self, to: &Path) -> Result<KeptHome, Failure> {
        let frozen = stand_still(&self.shared.state, &self.run)?;
        let upper = self.shared.state.scratch_dir(&self.run).join("upper");
        copy(&upper, to)?;
        if !frozen.is_none_or(|frozen| frozen.has_held()) {
            let _ = remove_home(to);
            return Err(Failure::new("it went on while its home was copied"));
        }
        Ok(KeptHome {
            path: to.to_owned(),
            base: self.home_base(),
        })
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
