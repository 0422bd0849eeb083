//! Files with several names (hard links). With overlayfs' index, a change through one name of a
//! file shows under its other names too, though the upper directory names only the one that was
//! used, if that; without an index that name is separated from the others.

use crate::change::Source;
use crate::facts::{Facts, Kind};
use crate::index::Indexed;
use crate::layer::XattrFlavour;
use crate::read::{Reader, Shape, xattrs_at};
use crate::{AfterTree, Change, ReadError, RelativePath};

impl Reader {
    /// Finds the files that changed under all of their names. Where there is one, the whole merged
    /// view is walked, since nothing else says where its names are.
    pub fn read_index(&mut self, after: &AfterTree) -> Result<(), ReadError> {
        let AfterTree::Overlay {
            work,
            xattrs: XattrFlavour::Trusted,
            ..
        } = after
        else {
            // Overlayfs keeps no index where its notes are the user's own.
            return Ok(());
        };
        match Indexed::read(work, &self.before, self.bounds.entries_max)? {
            Indexed::Nothing => {}
            Indexed::Some(index) => self.index = Some(*index),
            Indexed::Unknown(error) => self.note(
                &RelativePath::root(),
                &format!(
                    "whether files with several names changed under names that were not used \
                     cannot be told: {error}"
                ),
            ),
        }
        Ok(())
    }

    /// Returns whether a file of the tree before changed under all of its names, or may have.
    pub fn may_be_indexed(&self, path: &RelativePath) -> bool {
        let index = self.index.as_ref();
        index.is_some_and(|index| index.has_copy_of(&self.before, path).unwrap_or(true))
    }

    /// Returns whether a change separated a file from its further names: without an index overlayfs
    /// copies it for the one name that was used, and a change in place would give the new
    /// permissions to all of them.
    pub fn is_parted(&self, change: &Change, before: &Facts) -> bool {
        let (Shape::Overlay(flavour), Kind::File, 2..) = (self.shape, before.kind, before.links)
        else {
            return false;
        };
        let at = match &change.source {
            Source::After => &change.path,
            // The index has it for all of its names.
            Source::Indexed(_) | Source::Before(_) => return false,
        };
        let bytes_max = self.bounds.xattr_bytes_max;
        let notes = xattrs_at(&self.after, at, Kind::File, Some(flavour), bytes_max);
        notes.is_ok_and(|notes| notes.overlay("nlink").is_none())
    }
}
