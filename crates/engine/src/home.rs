//! The home of a served sandbox: kept at the end of one, begun with by the next.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atoll_store::remove_directory;

use crate::slug::slug;

/// A home without a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptHome {
    /// Its directory; where layers lie beneath, that of its upper and work directories.
    pub path: PathBuf,
    /// Made by host root: the first of the ids that its files belong to.
    pub base: Option<u32>,
    /// The directories of the layers beneath, the topmost first, which no sandbox changes.
    pub layers: Vec<PathBuf>,
}

/// The name of the upper directory, in that of a home with layers beneath.
pub const UPPER: &str = "upper";

impl KeptHome {
    /// Returns the directory of the files that are its own.
    #[must_use]
    pub fn files(&self) -> PathBuf {
        match self.layers.is_empty() {
            true => self.path.clone(),
            false => self.path.join(UPPER),
        }
    }
}

/// The system of a served sandbox whose programs are root, as a template has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// The server's name for it.
    pub name: String,
    /// The directories of its layers, the topmost first: each has parts of the system, by the name
    /// that [`part_name`] gives their path.
    pub layers: Vec<PathBuf>,
    /// True if the host's system lies beneath them.
    pub over_host: bool,
    /// Names of further directories at its root.
    pub roots: Vec<String>,
    /// The changes of it that lie over these layers, the topmost first: each a directory as
    /// `begins` is, which no sandbox changes.
    pub changed: Vec<PathBuf>,
    /// The changes of it that the sandbox begins with, and goes on in where they lie.
    pub begins: Option<PathBuf>,
}

/// The part of a template's layer that holds all which is no layer over the host's system: the
/// directories at the root, by their names.
pub const WHOLE: &str = "root";
/// The list of the links at the root of a template that is no layer over the host's system: a name, a tab and the target in each line.
pub const LINKS: &str = "links";

/// Returns the name of a part of the system in a template's layer.
#[must_use]
pub fn part_name(path: &Path) -> String {
    slug(path)
}

/// The places where a home is made, and root's changes of the system, in place of the directory of
/// its run: both are there as they were if this process dies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeAt {
    /// The directory of the home.
    pub home: PathBuf,
    /// The directory of those changes.
    pub system: PathBuf,
}

/// The files of a served sandbox: the home that it begins with, and where that goes at its end; the
/// files of its template.
#[derive(Debug, Default)]
pub struct Home {
    /// The home that it begins with, and works in where it lies: it is there as it was if the
    /// sandbox never comes to be, or this process dies.
    begins: Option<KeptHome>,
    made_at: Option<MadeAt>,
    template: Option<PathBuf>,
    frozen: Option<PathBuf>,
    system: Option<System>,
    /// The directory to which its changes of the system are moved at the end.
    keep_system: Mutex<Option<PathBuf>>,
    /// The place to which it is moved at the end; without one it is gone.
    keep: Mutex<Option<PathBuf>>,
}

impl Home {
    pub(crate) fn new(
        begins: Option<KeptHome>,
        made_at: Option<MadeAt>,
        template: Option<PathBuf>,
        frozen: Option<PathBuf>,
        system: Option<System>,
    ) -> Arc<Self> {
        Arc::new(Self {
            begins,
            made_at,
            template,
            frozen,
            system,
            keep_system: Mutex::default(),
            keep: Mutex::default(),
        })
    }

    pub(crate) fn system(&self) -> Option<&System> {
        self.system.as_ref()
    }

    /// Sets the directory to which its changes of the system are moved at the end.
    pub(crate) fn keep_system(&self, to: PathBuf) {
        *self
            .keep_system
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(to);
    }

    /// Returns the directory of its changes of the system; `made` if it begins with none, and they are
    /// made nowhere else.
    pub(crate) fn system_path(&self, made: &Path) -> PathBuf {
        let system = self.system.as_ref();
        let begun = system.and_then(|system| system.begins.as_deref());
        let made_at = self.made_at.as_ref().map(|at| at.system.as_path());
        begun.or(made_at).unwrap_or(made).to_owned()
    }

    /// Moves its changes of the system there if they are to be kept, and removes them otherwise;
    /// where no sandbox came to be, those that it begins with stay.
    pub(crate) fn end_system(&self, made: &Path, has_failed: bool) -> io::Result<()> {
        let to = self.keep_system.lock();
        let to = to.unwrap_or_else(PoisonError::into_inner).take();
        let changes = self.system_path(made);
        match to {
            Some(to) => {
                forget_work(&changes)?;
                match to == changes {
                    true => Ok(()),
                    false => fs::rename(&changes, &to),
                }
            }
            None if changes != made && !(has_failed && self.begins_with(&changes)) => {
                remove_directory(&changes).map_err(io::Error::other)
            }
            None => Ok(()),
        }
    }

    fn begins_with(&self, changes: &Path) -> bool {
        let system = self.system.as_ref();
        system.and_then(|system| system.begins.as_deref()) == Some(changes)
    }

    pub(crate) fn template(&self) -> Option<PathBuf> {
        self.template.clone()
    }

    pub(crate) fn frozen(&self) -> Option<PathBuf> {
        // Without it the interpreter begins by itself.
        self.frozen.clone().filter(|file| file.is_file())
    }

    pub(crate) fn begins(&self) -> Option<&KeptHome> {
        self.begins.as_ref()
    }

    /// Returns the directory of the home; `made` if it begins with none, and is made nowhere else.
    pub(crate) fn path(&self, made: &Path) -> PathBuf {
        let begun = self.begins.as_ref().map(KeptHome::files);
        let made_at = || self.made_at.as_ref().map(|at| at.home.clone());
        begun.or_else(made_at).unwrap_or_else(|| made.to_owned())
    }

    /// Sets the place to which it is moved at the end.
    pub(crate) fn keep(&self, to: PathBuf) {
        *self.kept() = Some(to);
    }

    /// Has it stay where it lies at the end, with its changes of the system; returns whether both lie
    /// at places that stay.
    pub(crate) fn stay(&self) -> bool {
        let begun = self.begins.as_ref().map(|home| home.path.clone());
        let home = begun.or_else(|| self.made_at.as_ref().map(|at| at.home.clone()));
        let Some(home) = home else {
            return false;
        };
        if self.system.is_some() {
            let system = self.system_path(Path::new(""));
            if system.as_os_str().is_empty() {
                return false;
            }
            self.keep_system(system);
        }
        self.keep(home);
        true
    }

    /// Has it be gone at the end.
    pub(crate) fn stay_no_more(&self) {
        *self.kept() = None;
        *self
            .keep_system
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Moves it there if it is to be kept, and removes it otherwise; where no sandbox came to be, one
    /// that it begins with stays.
    pub(crate) fn end(&self, made: &Path, has_failed: bool) -> io::Result<()> {
        let home = self.path(made);
        let begun = self.begins.as_ref().map(|home| &home.path);
        let remove = |path: &Path| remove_directory(path).map_err(io::Error::other);
        match (self.kept().take(), begun) {
            (Some(to), Some(begun)) if to == *begun && home == to => Ok(()),
            (Some(to), Some(begun)) if to == *begun => remove(&begun.join("work")),
            (Some(to), Some(begun)) if home != *begun => {
                move_home(&home, &to)?;
                remove(begun)
            }
            (Some(to), _) if to == home => Ok(()),
            (Some(to), _) => move_home(&home, &to),
            (None, Some(begun)) if !has_failed => remove(begun),
            (None, None) if home != made => remove(&home),
            (None, _) => Ok(()),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.keep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the directories that the file system works in: one that was mounted without waiting for
/// the disk is refused from then on (Documentation/filesystems/overlayfs.rst, "Volatile mount").
pub(crate) fn forget_work(changes: &Path) -> io::Result<()> {
    for part in fs::read_dir(changes)? {
        remove_directory(&part?.path().join("work")).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Moves a home, whatever permissions its programs have left it.
fn move_home(home: &Path, to: &Path) -> io::Result<()> {
    // Its parent is another one then, which takes the right to write to it (rename(2)).
    let mode = fs::symlink_metadata(home)?.permissions().mode();
    fs::set_permissions(home, Permissions::from_mode(mode | 0o700))?;
    fs::rename(home, to)?;
    fs::set_permissions(to, Permissions::from_mode(mode))
}
