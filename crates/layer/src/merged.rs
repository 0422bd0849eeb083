//! The merged view: the entry that the program saw under a name, and the place of its content.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::change::Source;
use crate::facts::{Facts, Kind, Xattrs};
use crate::overlay::Merge;
use crate::read::{Found, Open, Reader, Shape, Visit};
use crate::tree::{Tree, facts_at};
use crate::{RelativePath, overlay};

const MOVED_FROM_NOWHERE: &str =
    "the directory that it was renamed from is gone outside, so what is in it is not known";

impl Reader {
    pub fn facts_in(&self, directory: &Option<OwnedFd>, name: &[u8]) -> io::Result<Option<Facts>> {
        match directory {
            Some(directory) => facts_at(directory.as_fd(), name),
            None => Ok(None),
        }
    }

    /// Returns the entry that the program saw under this name.
    pub fn merged(&self, visit: &Visit, open: &Open, name: &[u8]) -> io::Result<Option<Found>> {
        if let Some(upper) = &open.upper
            && open
                .upper_names
                .binary_search_by(|known| known.as_slice().cmp(name))
                .is_ok()
        {
            let Some(facts) = facts_at(upper.as_fd(), name)? else {
                return Ok(None);
            };
            if let Shape::Overlay(flavour) = self.shape
                && overlay::is_whiteout(upper.as_fd(), name, &facts, flavour, open.xattr_whiteouts)?
            {
                return Ok(None);
            }
            let source = Source::After;
            let facts = self.after.corrected(facts);
            return Ok(Some(Found { facts, source }));
        }
        let through = visit.lower.as_ref().and_then(|lower| lower.join(name).ok());
        let facts = self.facts_in(&open.lower, name)?;
        let Some((facts, at)) = facts.zip(through) else {
            return Ok(None);
        };
        let indexed = match (&self.index, &open.lower, facts.kind) {
            (Some(index), Some(lower), Kind::File) => index.copy_of(lower.as_fd(), name)?,
            _ => None,
        };
        Ok(Some(match indexed {
            Some((at, facts)) => Found {
                facts,
                source: Source::Indexed(at),
            },
            None => Found {
                facts,
                source: Source::Before(at),
            },
        }))
    }

    /// Returns the tree and the path that hold the content of an entry of the merged view.
    pub fn place_of<'a>(
        &'a self,
        path: &'a RelativePath,
        source: &'a Source,
    ) -> io::Result<(&'a Tree, &'a RelativePath)> {
        match source {
            Source::After => Ok((&self.after, path)),
            Source::Indexed(at) => match &self.index {
                Some(index) => Ok((index.tree(), at)),
                None => Err(io::Error::other("overlayfs' copy of it is gone")),
            },
            Source::Before(at) => Ok((&self.before, at)),
        }
    }
}

impl Reader {
    /// Returns the directory of the tree before that shows through an entry of the merged view.
    pub fn lower_of(
        &self,
        visit: &Visit,
        path: &RelativePath,
        after: &Found,
        notes: &Xattrs,
    ) -> Result<Option<RelativePath>, &'static str> {
        let Shape::Overlay(_) = self.shape else {
            return Ok(None);
        };
        if let Source::Before(at) = &after.source {
            return Ok(Some(at.clone()));
        }
        let through = visit.lower.as_ref();
        let lower = match overlay::merge(notes, through)? {
            Merge::Opaque => None,
            Merge::SameName => through.and_then(|lower| lower.join(path.name()).ok()),
            // It was moved outside too, by an earlier apply: what shows through is there now.
            Merge::Moved(from) => match self.was_directory(&from) {
                true => Some(from),
                false => Some(path.clone()).filter(|path| self.was_directory(path)),
            },
        };
        match lower.filter(|lower| self.was_directory(lower)) {
            None if notes.overlay("redirect").is_some() => Err(MOVED_FROM_NOWHERE),
            lower => Ok(lower),
        }
    }

    fn was_directory(&self, path: &RelativePath) -> bool {
        let facts = self.before.facts(path).ok().flatten();
        facts.is_some_and(|facts| facts.kind == Kind::Directory)
    }
}
