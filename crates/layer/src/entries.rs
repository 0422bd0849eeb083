//! Makes complete entries: of the host (to be kept, to be checked), of a checkpoint (to be
//! restored) and of a layer (to be applied).

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::access_list::{access, mode_without};
use crate::change::Source;
use crate::error::TreeError;
use crate::facts::{Facts, Kind, Xattrs, xattrs};
use crate::path::Bytes;
use crate::plan::{Content, Entry, Node};
use crate::read::{Found, Reader};
use crate::tree::{Tree, file_at, names_in};
use crate::unreadable::is_locked;
use crate::{Bounds, Change, PlanError, RelativePath};

/// Lists trees entry by entry and numbers the files to be kept.
pub(crate) struct Walker {
    bounds: Bounds,
    looked: u64,
    next: u64,
    /// The numbers of files with several names, by device and inode.
    linked: HashMap<(u64, u64), u64>,
}

impl Walker {
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            looked: 0,
            next: 0,
            linked: HashMap::new(),
        }
    }

    /// Returns the next free number for a kept file.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Lists all entries at a path of the host, to be kept in the journal.
    pub fn host(&mut self, tree: &Tree, top: &RelativePath) -> Result<Vec<Entry>, PlanError> {
        self.all(tree, top, |walker, path, facts| {
            let key = facts.identity();
            let known = walker.linked.get(&key).copied();
            let number = known.unwrap_or_else(|| walker.number());
            if facts.links > 1 {
                walker.linked.insert(key, number);
            }
            let from = path.clone();
            Content::Kept { number, from }
        })
    }

    /// Lists all entries at a path of a checkpoint, to be restored from there.
    pub fn checkpoint(&mut self, tree: &Tree, top: &RelativePath) -> Result<Vec<Entry>, PlanError> {
        self.all(tree, top, |_, path, _| Content::Layer(path.clone()))
    }

    fn all(
        &mut self,
        tree: &Tree,
        top: &RelativePath,
        mut content: impl FnMut(&mut Self, &RelativePath, &Facts) -> Content,
    ) -> Result<Vec<Entry>, PlanError> {
        let mut entries = Vec::new();
        let mut waiting = vec![(top.clone(), None)];
        while let Some((path, within)) = waiting.pop() {
            self.looked += 1;
            if self.looked > self.bounds.entries_max {
                let entries_max = self.bounds.entries_max;
                return Err(PlanError::TooManyEntries { entries_max });
            }
            let (opened, facts) = open(tree, &path, within)?;
            let content = match facts.kind {
                Kind::File => content(self, &path, &facts),
                _ => Content::Untouched,
            };
            let mut entry = self.describe(tree, &path, &opened, &facts, content)?;
            entry.beneath = path.beneath(top).unwrap_or_default();
            if entry.node == Node::Directory {
                let inside = paths_in(&opened, &path);
                let inside = inside.map_err(|error| tree.error("cannot read", &path, error))?;
                let within = Some(facts.identity());
                waiting.extend(inside.into_iter().rev().map(|inner| (inner, within)));
            }
            entries.push(entry);
        }
        entries.shrink_to_fit();
        Ok(entries)
    }

    /// Returns one entry of a directory, and the same one opened, for its content.
    pub fn opened(
        &mut self,
        tree: &Tree,
        path: &RelativePath,
        within: Option<(u64, u64)>,
    ) -> Result<(Entry, OwnedFd), TreeError> {
        let (opened, facts) = open(tree, path, within)?;
        let entry = self.describe(tree, path, &opened, &facts, Content::Untouched)?;
        Ok((entry, opened))
    }

    /// Returns one entry, without those beneath it.
    pub fn one(
        &mut self,
        tree: &Tree,
        path: &RelativePath,
        content: Content,
    ) -> Result<Entry, TreeError> {
        let (opened, facts) = open(tree, path, None)?;
        self.describe(tree, path, &opened, &facts, content)
    }

    /// Describes an entry from a single inode, by its descriptor: its mode and owner must never be
    /// given to something that took its place.
    fn describe(
        &self,
        tree: &Tree,
        path: &RelativePath,
        opened: &OwnedFd,
        facts: &Facts,
        content: Content,
    ) -> Result<Entry, TreeError> {
        let failed = |error| tree.error("cannot read", path, error);
        let bytes_max = self.bounds.xattr_bytes_max;
        let notes = match facts.kind {
            Kind::File | Kind::Directory => xattrs(opened, None, bytes_max).map_err(failed)?,
            // Symbolic links carry none of a user's.
            _ => Xattrs::default(),
        };
        let mut xattrs = notes.own;
        xattrs.extend(notes.lists);
        // The person's directory may itself be part of someone's overlay.
        xattrs.extend(notes.posing);
        if let Some(capability) = notes.capability {
            xattrs.push((Bytes(b"security.capability".to_vec()), capability));
        }
        let node = match facts.kind {
            Kind::File => Node::File {
                content,
                bytes: facts.bytes,
            },
            Kind::Directory => Node::Directory,
            Kind::Symlink => Node::Symlink {
                target: Bytes(target_of(opened).map_err(failed)?),
            },
            _ => Node::Special,
        };
        let several = facts.kind == Kind::File && facts.links > 1;
        Ok(Entry {
            beneath: RelativePath::root(),
            node,
            mode: facts.mode,
            listed_mode: None,
            uid: facts.uid,
            gid: facts.gid,
            modified: facts.modified,
            xattrs,
            link: several.then_some(facts.inode),
            stamp: Some(facts.stamp()),
        })
    }
}

fn open(
    tree: &Tree,
    path: &RelativePath,
    within: Option<(u64, u64)>,
) -> Result<(OwnedFd, Facts), TreeError> {
    let opened = tree.entry(path, within);
    opened.map_err(|error| tree.error("cannot read", path, error))
}

/// Returns the paths of the entries of an open directory, sorted.
pub(crate) fn paths_in(opened: &OwnedFd, path: &RelativePath) -> io::Result<Vec<RelativePath>> {
    let names = names_in(opened.as_fd())?;
    Ok(names
        .iter()
        .filter_map(|name| path.join(name).ok())
        .collect())
}

fn target_of(link: &OwnedFd) -> io::Result<Vec<u8>> {
    Ok(rustix::fs::readlinkat(link, "", Vec::new())?.into_bytes())
}

fn present(tree: &Tree, path: &RelativePath) -> Result<Facts, TreeError> {
    let gone = || std::io::Error::from(std::io::ErrorKind::NotFound);
    tree.facts(path)
        .and_then(|facts| facts.ok_or_else(gone))
        .map_err(|error| tree.error("cannot read", path, error))
}

/// The set-group-ID bit of a directory, whose entries have its group (inode(7)).
pub(crate) const SET_GROUP_ID: u32 = 0o2000;
/// The sticky bit of a directory, from which only owners remove entries (inode(7)).
const STICKY: u32 = 0o1000;

/// Returns one entry of the layer as it is to be on the host: of special bits only those that give
/// no rights, with the program's own attributes only, and with an owner that is permitted here.
/// `inherited` is the group of the directory above `top`, if that has the set-group-ID bit.
pub(crate) fn layer_entry(
    reader: &Reader,
    root: &Facts,
    change: &Change,
    top: &RelativePath,
    replaced: Option<&Facts>,
    inherited: Option<u32>,
) -> Result<Entry, String> {
    let unreadable = |error: std::io::Error| format!("it cannot be read: {error}");
    let place = reader.place_of(&change.path, &change.source);
    let (tree, at) = place.map_err(unreadable)?;
    let facts = present(tree, at).map_err(|error| error.to_string())?;
    let found = Found {
        facts,
        source: change.source.clone(),
    };
    let notes = reader.xattrs_of(&change.path, &found).map_err(unreadable)?;
    // The layer has been at rest since it was read, but reading is cheap and
    // trusting is not.
    if let Some(why) = reader.objection(&found, replaced, &notes) {
        return Err(why);
    }
    if is_locked(facts.kind, facts.mode) {
        return Err(crate::compare::unreadable(facts.mode));
    }
    let node = match facts.kind {
        Kind::File => {
            let place = tree.place_of(at).map_err(unreadable)?;
            file_at(place.as_fd(), at.name()).map_err(unreadable)?;
            Node::File {
                content: match change.source {
                    Source::Indexed(_) => Content::Indexed(at.clone()),
                    Source::After | Source::Before(_) => Content::Layer(at.clone()),
                },
                bytes: facts.bytes,
            }
        }
        Kind::Directory => Node::Directory,
        Kind::Symlink => Node::Symlink {
            target: Bytes(tree.link_target(at).map_err(unreadable)?),
        },
        _ => return Err(format!("it is a {}", facts.kind_name())),
    };
    // Of a directory the sticky bit, which takes rights away, and the set-group-ID bit where the one
    // above it has that too.
    let special = match facts.kind {
        Kind::Directory => facts.mode & (STICKY | inherited.map_or(0, |_| SET_GROUP_ID)),
        _ => 0,
    };
    let several = match change.source {
        Source::After => facts.kind == Kind::File && facts.links > 1,
        // One file for all the names that are left, though the index may be its only one.
        Source::Indexed(_) => true,
        Source::Before(_) => false,
    };
    let raw = facts.mode & 0o777;
    let list = access(&notes.lists);
    Ok(Entry {
        beneath: change.path.beneath(top).unwrap_or_default(),
        node,
        mode: list.map_or(raw, |list| mode_without(list, raw)) | special,
        listed_mode: list.map(|_| raw | special),
        uid: reader.host_owner(&found).unwrap_or(root.uid),
        gid: group(reader, root, &found, replaced, inherited),
        modified: facts.modified,
        xattrs: notes.own,
        link: several.then_some(facts.inode),
        stamp: None,
    })
}

/// Returns the group of a new entry. A replaced file keeps its group. A new one has the group that
/// the program gave it where that is the workspace's, or where the kernel will judge; root, whom
/// the kernel does not stop, gives the workspace's group. `inherited` is the group of the directory
/// above, if that passes it on (its set-group-ID bit).
fn group(
    reader: &Reader,
    root: &Facts,
    found: &Found,
    replaced: Option<&Facts>,
    inherited: Option<u32>,
) -> u32 {
    if let Some(replaced) = replaced {
        return replaced.gid;
    }
    if let Some(group) = inherited {
        return group;
    }
    if rustix::process::geteuid().is_root() {
        return root.gid;
    }
    match found.source {
        Source::After | Source::Indexed(_) => {
            reader.ids.to_host(found.facts.gid).unwrap_or(root.gid)
        }
        Source::Before(_) => found.facts.gid,
    }
}
