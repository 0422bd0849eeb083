//! Reads what a directory has, and the attributes of what is in it; notes what cannot be read.

use std::io;
use std::os::fd::AsFd;

use crate::error::TreeError;
use crate::facts::{Kind, Xattrs, xattrs};
use crate::layer::XattrFlavour;
use crate::read::{Reader, is_permission};
use crate::tree::{Tree, facts_at, names_in};
use crate::{AfterTree, Class, LayerPaths, Refusal, RelativePath};

/// Opens the tree before.
pub(super) fn open_before(paths: &LayerPaths) -> Result<Tree, TreeError> {
    let before = Tree::open(&paths.before)?;
    Ok(match paths.after {
        AfterTree::Overlay { .. } | AfterTree::Copy { .. } => before.remembering(),
        AfterTree::Live { .. } => before,
    })
}

/// Returns the attributes of a file or directory; symbolic links carry none of a user's.
pub(crate) fn xattrs_at(
    tree: &Tree,
    path: &RelativePath,
    kind: Kind,
    flavour: Option<XattrFlavour>,
    bytes_max: usize,
) -> io::Result<Xattrs> {
    match kind {
        Kind::File => tree.noting(path, xattrs(tree.file(path)?.0, flavour, bytes_max)),
        Kind::Directory => tree.noting(path, xattrs(tree.directory(path)?, flavour, bytes_max)),
        _ => Ok(Xattrs::default()),
    }
}

/// Returns the entries of a directory with their types.
pub(crate) fn list_with_kinds(
    tree: &Tree,
    directory: &RelativePath,
) -> Result<Vec<(RelativePath, Kind)>, TreeError> {
    let failed = |error| tree.error("cannot read", directory, error);
    let opened = tree.directory(directory).map_err(failed)?;
    let mut entries = Vec::new();
    for name in names_in(opened.as_fd()).map_err(failed)? {
        let facts = facts_at(opened.as_fd(), &name).map_err(failed)?;
        if let (Some(facts), Ok(path)) = (facts, directory.join(&name)) {
            entries.push((path, facts.kind));
        }
    }
    Ok(entries)
}

impl Reader {
    pub fn refuse(&mut self, path: &RelativePath, why: &str) {
        self.set.refused.push(Refusal {
            path: path.clone(),
            why: why.to_owned(),
        });
    }

    pub fn refuse_unreadable(&mut self, path: &RelativePath, error: &io::Error) {
        if is_permission(error) {
            self.set.is_locked = true;
            let facts = self.after.facts(path).ok().flatten();
            let stamp = facts.map(|facts| (path.clone(), facts.stamp()));
            self.set.locked.extend(stamp);
        }
        self.set.unread.insert(path.clone(), Class::Ordinary);
        self.refuse(
            path,
            &format!("it cannot be read, so what is in it is not known: {error}"),
        );
    }

    pub fn note(&mut self, path: &RelativePath, why: &str) {
        self.set.notes.push(Refusal {
            path: path.clone(),
            why: why.to_owned(),
        });
    }
}
