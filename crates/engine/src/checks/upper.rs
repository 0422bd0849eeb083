//! A copied upper directory, in which the host's files are made to show through again. Nothing is
//! mounted on it, and no program of a run can write to it; what it holds was written by one.

use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use atoll_layer::RelativePath;
use atoll_sandbox::IDS;
use atoll_store::{OverlayXattrs, remove_directory};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, lgetxattr, lremovexattr, lsetxattr, mknodat};
use rustix::io::Errno;

/// An upper directory over one of the host.
pub(super) struct Upper<'a> {
    pub(super) path: &'a Path,
    pub(super) host: &'a Path,
    pub(super) xattrs: OverlayXattrs,
    pub(super) base: Option<u32>,
    /// True of any but the workspace.
    pub(super) is_apart: bool,
}

impl Upper<'_> {
    /// Removes what the run has made of an entry, so that the host's shows through, or none does.
    pub(super) fn reveal(&self, path: &RelativePath) -> io::Result<()> {
        if !self.merges_above(path)? {
            return Ok(());
        }
        let place = self.place(path);
        match there(&place)? {
            Some(facts) if facts.is_dir() => remove_directory(&place).map_err(io::Error::other),
            Some(_) => fs::remove_file(&place),
            None => Ok(()),
        }
    }

    /// Of a directory that the run removed, has those entries show through for which `is_kept` is
    /// true. It is asked about each, and about those in directories for which `has_kept` is true.
    pub(super) fn reveal_within(
        &self,
        directory: &RelativePath,
        is_kept: &dyn Fn(&RelativePath) -> bool,
        has_kept: &dyn Fn(&RelativePath) -> bool,
    ) -> io::Result<()> {
        self.reveal(directory)?;
        let mut waiting = vec![directory.clone()];
        while let Some(directory) = waiting.pop() {
            let original = self.host.join(directory.as_os_str());
            let (facts, place) = (original.symlink_metadata()?, self.place(&directory));
            DirBuilder::new().mode(0o700).create(&place)?;
            if let Some(base) = self.base {
                let shifted = |id: u32| Some(base + id % IDS);
                chown(&place, shifted(facts.uid()), shifted(facts.gid()))?;
            }
            fs::set_permissions(&place, fs::Permissions::from_mode(facts.mode() & 0o7777))?;
            for entry in fs::read_dir(&original)? {
                let entry = entry?;
                let path = directory.join(entry.file_name().as_bytes());
                let path = path.map_err(io::Error::other)?;
                if is_kept(&path) {
                    continue;
                }
                match entry.file_type()?.is_dir() && has_kept(&path) {
                    true => waiting.push(path),
                    false => whiteout(&self.place(&path))?,
                }
            }
        }
        Ok(())
    }

    /// Has the directories above an entry be merged with those of the host. Returns whether the upper
    /// directory has all of them.
    fn merges_above(&self, path: &RelativePath) -> io::Result<bool> {
        let mut above: Vec<RelativePath> = path.ancestors().collect();
        above.retain(|one| !one.is_root() && one != path);
        above.sort();
        for directory in &above {
            let place = self.place(directory);
            match there(&place)? {
                None => return Ok(false),
                Some(facts) if facts.is_dir() => {}
                Some(_) => {
                    return Err(io::Error::other(format!("{directory} is no directory now")));
                }
            }
            if self.mark(&place, "redirect")?.is_some() {
                return Err(io::Error::other(format!("{directory} was moved")));
            }
            if self.mark(&place, "opaque")?.as_deref() == Some(b"y") {
                self.merge(directory)?;
            }
        }
        Ok(true)
    }

    /// Merges a directory that hides the host's with it, and hides each of the entries by itself.
    fn merge(&self, directory: &RelativePath) -> io::Result<()> {
        let (place, original) = (self.place(directory), self.host.join(directory.as_os_str()));
        if there(&original)?.is_some_and(|facts| facts.is_dir()) {
            for entry in fs::read_dir(&original)? {
                let entry = entry?;
                let own = place.join(entry.file_name());
                match there(&own)? {
                    None => whiteout(&own)?,
                    Some(facts) if facts.is_dir() && entry.file_type()?.is_dir() => {
                        lsetxattr(&own, self.name("opaque"), b"y", XattrFlags::empty())?;
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(lremovexattr(&place, self.name("opaque"))?)
    }

    fn place(&self, path: &RelativePath) -> PathBuf {
        self.path.join(path.as_os_str())
    }

    /// Reads a mark of overlayfs.
    fn mark(&self, place: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut value = vec![0; 4096];
        match lgetxattr(place, self.name(name), &mut value) {
            Ok(length) => {
                value.truncate(length);
                Ok(Some(value))
            }
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn name(&self, mark: &str) -> String {
        let space = match self.xattrs {
            OverlayXattrs::User => "user",
            OverlayXattrs::Trusted => "trusted",
        };
        format!("{space}.overlay.{mark}")
    }
}

/// Returns what is at a path, links not followed.
fn there(place: &Path) -> io::Result<Option<Metadata>> {
    match place.symlink_metadata() {
        Ok(facts) => Ok(Some(facts)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Hides the host's entry of this name.
fn whiteout(place: &Path) -> io::Result<()> {
    // Without a right to devices, too: this one stands for nothing.
    Ok(mknodat(
        CWD,
        place,
        FileType::CharacterDevice,
        Mode::empty(),
        0,
    )?)
}
