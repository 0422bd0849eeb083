//! Copies that agents, editors and people leave beside a login file, with all its content.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::SandboxError;

/// Returns the entries beside a file that are named as copies of it, temporary files of writing
/// it included: `NAME.bak`, `NAME.tmp.1`, `NAME~`, `NAME-old`, `.NAME.swp`, `#NAME#`. None if
/// there is no directory.
///
/// # Errors
/// [`SandboxError::Host`]: the directory cannot be read.
pub fn copies_beside(file: &Path) -> Result<Vec<PathBuf>, SandboxError> {
    read(file).map_err(SandboxError::host(
        "what is beside a login file is not known",
    ))
}

fn read(file: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(directory), Some(name)) = (file.parent(), file.file_name()) else {
        return Ok(Vec::new());
    };
    let entries = match directory.read_dir() {
        Ok(entries) => entries,
        Err(error) if is_absence(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut copies = Vec::new();
    for entry in entries {
        let entry = entry?.file_name();
        if is_copy(&entry, name) {
            copies.push(directory.join(entry));
        }
    }
    copies.sort();
    Ok(copies)
}

fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn is_copy(entry: &OsStr, name: &OsStr) -> bool {
    let is_named = |entry: &[u8]| {
        let rest = entry.strip_prefix(name.as_bytes());
        let next = rest.and_then(<[u8]>::first);
        next.is_some_and(|next| !next.is_ascii_alphanumeric())
    };
    let entry = entry.as_bytes();
    let within = entry
        .strip_prefix(b".#")
        .or_else(|| entry.strip_prefix(b".~"))
        .or_else(|| entry.strip_prefix(b"."))
        .or_else(|| entry.strip_prefix(b"#"));
    is_named(entry)
        || within.is_some_and(|within| {
            is_named(within) || entry.starts_with(b".#") && within == name.as_bytes()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_a_file_are_known_by_their_names() {
        for (name, entry, is_it) in [
            ("openclaw.json", "openclaw.json.last-good", true),
            (
                "openclaw.json",
                "openclaw.json.clobbered.2026-01-02T03",
                true,
            ),
            ("openclaw.json", "openclaw.json.rejected.1", true),
            ("settings.json", "settings.json.orig", true),
            ("settings.json", "settings.json~", true),
            ("settings.json", "settings.json.tmp.12.34", true),
            ("settings.json", "settings.json-old", true),
            ("settings.json", ".settings.json.swp", true),
            ("settings.json", "#settings.json#", true),
            ("settings.json", ".#settings.json", true),
            (".claude.json", ".claude.json.swp", true),
            (".claude.json", ".claude.json.backup", true),
            ("settings.json", "settings.json", false),
            ("opencode.json", "opencode.jsonc", false),
            ("settings.json", "settings.local.json", false),
            ("settings.json", "other.json", false),
        ] {
            assert_eq!(
                is_copy(OsStr::new(entry), OsStr::new(name)),
                is_it,
                "{entry}"
            );
        }
        assert!(
            copies_beside(Path::new("/nowhere/settings.json"))
                .unwrap()
                .is_empty()
        );
    }
}
