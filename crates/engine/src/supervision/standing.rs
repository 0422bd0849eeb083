//! The placeholder file of an agent's login file in a layer.
//!
//! The file is put into the upper directory before anything is mounted. So the host's file
//! below is never visible through the layer, whatever a program mounts there, and whatever
//! happens to that file meanwhile.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use atoll_model::PlaceholderState;
use atoll_sandbox::{PlacedLayer, SandboxError};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::PlaceholderFile;

/// The longest placeholder of a settings file, bytes.
const SETTINGS_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// Returns whether a program has changed the placeholder of a settings file at the top of a
/// layer's upper directory, or that is unknown.
#[must_use]
pub fn has_changed(upper: &Path, name: &OsStr, stood: &PlaceholderState) -> bool {
    digest_at(upper, name).is_none_or(|now| now != stood.digest)
}

/// Returns whether the host's settings file is neither the one from before the run nor the
/// program's version: it was changed since, or that is unknown. `host` is the person's
/// directory.
#[must_use]
pub fn is_written_outside(
    host: &Path,
    upper: &Path,
    name: &OsStr,
    stood: &PlaceholderState,
) -> bool {
    digest_at(host, name)
        .is_none_or(|now| now != stood.digest && Some(now) != digest_at(upper, name))
}

/// Returns the SHA-256 of a settings file's text, in hexadecimal digits.
#[must_use]
pub fn settings_digest(text: &[u8]) -> String {
    let digest = Sha256::digest(text);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the digest of a file's text, or `Some(None)` if there is no file; `None` if that is
/// unknown.
fn digest_at(directory: &Path, name: &OsStr) -> Option<Option<String>> {
    let now = || -> io::Result<Option<String>> {
        let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let path = directory.join(name);
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            // What overlayfs takes for a removal.
            Ok(facts) if facts.file_type().is_char_device() && facts.rdev() == 0 => {
                return Ok(None);
            }
            Ok(_) => {}
            Err(error) => return Err(error),
        }
        let file = File::from(rustix::fs::open(&path, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut text = Vec::new();
        file.take(SETTINGS_BYTES_MAX + 1).read_to_end(&mut text)?;
        Ok(Some(settings_digest(&text)))
    };
    now().ok()
}

/// Returns whether a directory in an upper directory hides the one below it. `base` is as in
/// [`furnish_login`].
fn is_opaque(path: &Path, base: Option<u32>) -> bool {
    let mark = match base {
        Some(_) => "trusted.overlay.opaque",
        None => "user.overlay.opaque",
    };
    let mut value = [0_u8; 2];
    rustix::fs::lgetxattr(path, mark, &mut value)
        .is_ok_and(|bytes| value.get(..bytes) == Some(b"y"))
}

/// Writes a placeholder file at the top of a layer; without a text, makes the layer show no
/// file there. `base` is the kernel's id of the id 0 in the sandbox, if that is not the
/// caller's. The layer must not be mounted.
///
/// # Errors
/// [`SandboxError::Host`].
pub fn furnish_login(
    layer: &PlacedLayer,
    name: &OsStr,
    stands: &PlaceholderFile,
    base: Option<u32>,
) -> Result<(), SandboxError> {
    let furnish = || -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let top = rustix::fs::open(&layer.upper, flags, Mode::empty())?;
        match rustix::fs::statat(&top, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(facts) if FileType::from_raw_mode(facts.st_mode) == FileType::Directory => {
                let path = layer.upper.join(name);
                if is_opaque(&path, base) {
                    // A former program has made it, and what is below does not show through.
                    return Ok(());
                }
                // It may hold what was below, and shows what is.
                std::fs::remove_dir_all(&path)?;
            }
            Ok(_) => rustix::fs::unlinkat(&top, name, AtFlags::empty())?,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let Some(text) = stands.text.as_deref() else {
            // What overlayfs takes for the removal of what is below.
            let kind = FileType::CharacterDevice;
            return Ok(rustix::fs::mknodat(&top, name, kind, Mode::empty(), 0)?);
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&top, name, flags, Mode::from_raw_mode(0o600))?;
        if let Some(base) = base {
            let (owner, group) = (Uid::from_raw(base), Gid::from_raw(base));
            rustix::fs::fchown(&file, Some(owner), Some(group))?;
        }
        if let Some(mode) = stands.mode {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
        }
        File::from(file).write_all(text)
    };
    furnish().map_err(SandboxError::host(
        "what stands for a login file could not be laid down",
    ))
}

#[cfg(test)]
mod tests;
