//! The records that overlayfs writes into an upper directory: whiteouts for removed entries,
//! extended attributes for directories that hide (`opaque`) or moved (`redirect`). The sandboxed
//! program cannot write these attributes: overlayfs escapes its attempts. They are still read as if
//! it could.

use std::io;
use std::os::fd::BorrowedFd;

use crate::RelativePath;
use crate::facts::{Facts, Kind, Xattrs, xattrs};
use crate::layer::XattrFlavour;
use crate::tree::{Tree, file_at};

/// A directory of the upper tree, as seen by overlayfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// Nothing of the tree before shows through.
    Opaque,
    /// The directory of the same name shows through.
    SameName,
    /// Another directory shows through: it was moved here.
    Moved(RelativePath),
}

/// Returns whether an upper entry is a whiteout.
pub(crate) fn is_whiteout(
    upper: BorrowedFd<'_>,
    name: &[u8],
    facts: &Facts,
    flavour: XattrFlavour,
    xattr_whiteouts: bool,
) -> io::Result<bool> {
    match facts.kind {
        Kind::CharacterDevice => Ok(facts.device_number == 0),
        Kind::File if xattr_whiteouts && facts.bytes == 0 => {
            let (file, _) = file_at(upper, name)?;
            let notes = xattrs(file, Some(flavour), 64 << 10)?;
            Ok(notes.overlay("whiteout").is_some())
        }
        _ => Ok(false),
    }
}

/// Reads a directory's overlayfs attributes. `lower` is the directory that shows through its
/// parent.
pub(crate) fn merge(notes: &Xattrs, lower: Option<&RelativePath>) -> Result<Merge, &'static str> {
    if notes.overlay("metacopy").is_some() {
        return Err("it is a metadata-only copy, which is never used here");
    }
    if notes.overlay("opaque") == Some(b"y") {
        return Ok(Merge::Opaque);
    }
    let Some(redirect) = notes.overlay("redirect") else {
        return Ok(Merge::SameName);
    };
    let invalid = "its overlayfs redirect leads nowhere";
    match redirect.strip_prefix(b"/") {
        Some(absolute) => RelativePath::new(absolute)
            .map(Merge::Moved)
            .map_err(|_| invalid),
        None => match lower {
            Some(lower) => lower.join(redirect).map(Merge::Moved).map_err(|_| invalid),
            None => Ok(Merge::Opaque),
        },
    }
}

/// Returns whether a directory of the tree before is gone in the merged view while all directories
/// above it are as they were: only then can its move be done as a move on the host too.
pub(crate) fn left_its_place(
    upper: &Tree,
    path: &RelativePath,
    flavour: XattrFlavour,
    xattr_bytes_max: usize,
) -> io::Result<bool> {
    let whiteout = upper
        .facts(path)?
        .is_some_and(|facts| facts.kind == Kind::CharacterDevice && facts.device_number == 0);
    if !whiteout {
        return Ok(false);
    }
    for above in path.ancestors() {
        let notes = xattrs(upper.directory(&above)?, Some(flavour), xattr_bytes_max)?;
        if notes.overlay("opaque").is_some() || notes.overlay("redirect").is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}
