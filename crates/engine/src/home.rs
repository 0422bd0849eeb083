//! The home of a served sandbox: kept at the end of one, begun with by the next.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atoll_store::remove_directory;

/// A home without a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptHome {
    /// Its directory.
    pub path: PathBuf,
    /// Made by host root: the first of the ids that its files belong to.
    pub base: Option<u32>,
}

/// The files of a served sandbox: the home that it begins with, and where that goes at its end; the
/// files of its template.
#[derive(Debug, Default)]
pub struct Home {
    /// The home that it begins with, and works in where it lies: it is there as it was if the
    /// sandbox never comes to be, or this process dies.
    begins: Option<KeptHome>,
    template: Option<PathBuf>,
    /// The place to which it is moved at the end; without one it is gone.
    keep: Mutex<Option<PathBuf>>,
}

impl Home {
    pub(crate) fn new(begins: Option<KeptHome>, template: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            begins,
            template,
            keep: Mutex::default(),
        })
    }

    pub(crate) fn template(&self) -> Option<PathBuf> {
        self.template.clone()
    }

    pub(crate) fn begins(&self) -> Option<&KeptHome> {
        self.begins.as_ref()
    }

    /// Returns the directory of the home; `made` if it begins with none.
    pub(crate) fn path(&self, made: &Path) -> PathBuf {
        let begun = self.begins.as_ref().map(|home| home.path.as_path());
        begun.unwrap_or(made).to_owned()
    }

    /// Sets the place to which it is moved at the end.
    pub(crate) fn keep(&self, to: PathBuf) {
        *self.kept() = Some(to);
    }

    /// Moves it there if it is to be kept, and removes it otherwise; where no sandbox came to be, one
    /// that it begins with stays.
    pub(crate) fn end(&self, made: &Path, has_failed: bool) -> io::Result<()> {
        let home = self.path(made);
        match self.kept().take() {
            Some(to) if to == home => Ok(()),
            Some(to) => move_home(&home, &to),
            None if self.begins.is_some() && !has_failed => {
                remove_directory(&home).map_err(io::Error::other)
            }
            None => Ok(()),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.keep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Moves a home, whatever permissions its programs have left it.
fn move_home(home: &Path, to: &Path) -> io::Result<()> {
    // Its parent is another one then, which takes the right to write to it (rename(2)).
    let mode = fs::symlink_metadata(home)?.permissions().mode();
    fs::set_permissions(home, Permissions::from_mode(mode | 0o700))?;
    fs::rename(home, to)?;
    fs::set_permissions(to, Permissions::from_mode(mode))
}
