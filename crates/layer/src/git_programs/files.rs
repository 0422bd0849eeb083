//! The files of git's configuration, and the directories in which its commands run.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::control::is_git_directory;
use crate::git_config::{CONFIGURATION_BYTES_MAX, Setting, settings};
use crate::repository::{gitdir, only_line, resolved};
use crate::tree::{is_absence, os};

/// The deepest nesting of included files that git follows.
const INCLUDES_MAX: usize = 10;
/// The most files that are read for one repository.
const FILES_MAX: usize = 1_000;
/// The most linked worktrees of a repository.
const WORKTREES_MAX: usize = 1_000;

/// Settings of several files, with those that they include.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub all: Vec<Setting>,
    /// The files, existing or not.
    pub files: Vec<PathBuf>,
    /// The first file that could not be read.
    pub unread: Option<PathBuf>,
}

impl Settings {
    /// Reads a file. Like git, skips `own` files that the user may not read.
    pub fn read(&mut self, file: &Path, home: Option<&Path>, is_own: bool) {
        let mut waiting = vec![(file.to_path_buf(), 0)];
        while let Some((file, depth)) = waiting.pop() {
            if depth > INCLUDES_MAX || self.files.len() >= FILES_MAX {
                self.unread.get_or_insert(file);
                return;
            }
            let found = match text(&file) {
                Ok(found) => Some(found.unwrap_or_default()),
                Err(error) if is_own && error.kind() == io::ErrorKind::PermissionDenied => {
                    Some(Vec::new())
                }
                Err(_) => None,
            };
            let found = found.and_then(|text| settings(&text).ok());
            for setting in found.iter().flatten() {
                if is_include(setting) {
                    let included = included(&file, &setting.value, home);
                    if included.is_empty() {
                        self.unread.get_or_insert_with(|| file.clone());
                    }
                    waiting.extend(included.into_iter().map(|file| (file, depth + 1)));
                }
            }
            match found {
                Some(found) => self.all.extend(found),
                None => {
                    self.unread.get_or_insert_with(|| file.clone());
                }
            }
            self.files.push(file);
        }
    }
}

fn is_include(setting: &Setting) -> bool {
    let is_section = [&b"include"[..], b"includeif"].contains(&setting.section.as_slice());
    is_section && setting.key == b"path"
}

/// Returns the files that a value includes; none where that is unclear.
fn included(file: &Path, value: &[u8], home: Option<&Path>) -> Vec<PathBuf> {
    let value = value.strip_prefix(b":(optional)").unwrap_or(value);
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    if let Some(rest) = value.strip_prefix(b"~/") {
        return home.map(|home| home.join(path(rest))).into_iter().collect();
    }
    if value.starts_with(b"~") || value.starts_with(b"%(prefix)") || value.is_empty() {
        return Vec::new();
    }
    // Whether a link to the file is followed first is left open.
    let places = [Some(file.to_path_buf()), file.canonicalize().ok()];
    let places = places.iter().flatten().filter_map(|file| file.parent());
    let mut included: Vec<PathBuf> = places.map(|place| place.join(path(value))).collect();
    included.dedup();
    included
}

/// Returns a file's content; `None` where there is no file, or a device in its place as
/// `/dev/null`.
fn text(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match path.metadata() {
        Ok(facts) if facts.is_file() => {}
        Ok(facts) if facts.file_type().is_char_device() => return Ok(None),
        Ok(_) => return Err(io::Error::other("not a regular file")),
        Err(error) if is_absence(&error) => return Ok(None),
        Err(error) => return Err(error),
    }
    // What takes its place meanwhile does not block.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let mut options = File::options();
    let file = options.read(true).custom_flags(flags.cast_signed());
    let mut bytes = Vec::new();
    let file = file.open(path)?;
    file.take(CONFIGURATION_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    match bytes.len() as u64 > CONFIGURATION_BYTES_MAX {
        true => Err(io::Error::other("it is too large")),
        false => Ok(Some(bytes)),
    }
}

/// A repository, as it is found where git is used.
#[derive(Debug, Default)]
pub(super) struct GitDirectories {
    /// The tops of its working trees: commands run there.
    pub roots: Vec<PathBuf>,
    /// Its git directories: hooks can run there.
    pub directories: Vec<PathBuf>,
    pub configurations: Vec<PathBuf>,
    /// The directory of hooks unless another is configured.
    pub hooks: Option<PathBuf>,
}

impl GitDirectories {
    /// Finds the repository of a working tree, or a bare one.
    pub fn of(root: &Path) -> Self {
        let name = root.join(".git");
        let git = match name.metadata() {
            Ok(facts) if facts.is_file() => {
                let text = text(&name).ok().flatten();
                let named = text.and_then(|text| gitdir(&text));
                named.map(|named| resolved(root, &named))
            }
            Ok(_) => Some(name.canonicalize().unwrap_or(name)),
            Err(_) => None,
        };
        let has = |name: &[u8]| root.join(os(name)).symlink_metadata().is_ok();
        let git = git.or_else(|| is_git_directory(has).then(|| root.to_path_buf()));
        let mut found = Self {
            roots: vec![root.to_path_buf()],
            ..Self::default()
        };
        let Some(git) = git else {
            return found;
        };
        let common = line(&git.join("commondir"));
        let common = common.map_or_else(|| git.clone(), |at| resolved(&git, &at));
        for (place, name) in [
            (&common, "config"),
            (&common, "config.worktree"),
            (&git, "config"),
            (&git, "config.worktree"),
        ] {
            found.configurations.push(place.join(name));
        }
        let worktrees = std::fs::read_dir(common.join("worktrees"));
        let worktrees = worktrees.into_iter().flatten().flatten();
        for worktree in worktrees.take(WORKTREES_MAX) {
            let place = worktree.path();
            let git = line(&place.join("gitdir")).map(|named| resolved(&place, &named));
            found.roots.extend(
                git.iter()
                    .filter_map(|git| Some(git.parent()?.to_path_buf())),
            );
            found.configurations.push(place.join("config.worktree"));
        }
        found.hooks = Some(common.join("hooks"));
        found.directories = vec![git, common];
        found.tidy();
        found
    }

    /// Adds the working trees that the repository's own settings name.
    pub fn add_roots(&mut self, settings: &[Setting]) {
        let is_root = |setting: &&Setting| setting.section == b"core" && setting.key == b"worktree";
        for setting in settings.iter().filter(is_root) {
            let named = OsStr::from_bytes(&setting.value);
            let places = self.directories.iter().map(|git| resolved(git, named));
            self.roots.extend(places);
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        for paths in [
            &mut self.roots,
            &mut self.directories,
            &mut self.configurations,
        ] {
            paths.sort();
            paths.dedup();
        }
    }
}

/// Returns the path in a file whose only line it is.
fn line(path: &Path) -> Option<OsString> {
    let text = text(path).ok()??;
    only_line(&text).map(|line| OsStr::from_bytes(line).to_os_string())
}
