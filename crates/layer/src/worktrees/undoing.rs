//! What of an apply to a repository is not taken back, or not without being told to.
//!
//! Objects are named by what they are: to leave them changes nothing, and others may have come to
//! need them. A branch that another worktree has checked out since is that worktree's.

use super::branches::Elsewhere;
use crate::git_objects::{Format, Id, Loose};
use crate::plan::{Act, Entry, Node};
use crate::tree::Tree;
use crate::{RelativePath, Step};

/// What becomes of a step that is to be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It is taken back.
    No,
    /// What it made stays.
    Yes,
    /// It is taken back only where somebody says so.
    Told(&'static str),
}

/// The most that is read of one object here, bytes.
const BYTES_MAX: u64 = 4 << 30;

/// What becomes of a step in the repository at `host`, whose own worktree has this directory.
pub(crate) fn left(step: &Step, host: &Tree, own: &RelativePath) -> Left {
    let names: Vec<&[u8]> = step.path.components().collect();
    let Act::Replace { old, new } = &step.act else {
        return Left::No;
    };
    match names.as_slice() {
        [b"objects"] | [b"objects", ..] if names.get(1) != Some(&&b"info"[..]) => {
            match old.is_empty() {
                true if are_objects(step, new, host) => Left::Yes,
                true => Left::Told("branches may need these objects since"),
                false => Left::No,
            }
        }
        [b"refs", ..] => {
            let elsewhere = Elsewhere::look(host, own);
            let is_elsewhere = |entry: &Entry| {
                let path = step.path.concat(&entry.beneath);
                let name = path.as_bytes().strip_prefix(b"refs/heads/");
                let is_directory = matches!(entry.node, Node::Directory);
                name.is_some_and(|name| {
                    let touches = |known: &Elsewhere| known.touches(name, is_directory);
                    !is_directory && elsewhere.as_ref().is_none_or(touches)
                })
            };
            match new.iter().any(is_elsewhere) {
                true => Left::Told("another worktree has this branch checked out since"),
                false => Left::No,
            }
        }
        _ => Left::No,
    }
}

/// Whether all that a step made are loose objects, each of which is what its name says.
fn are_objects(step: &Step, new: &[Entry], host: &Tree) -> bool {
    let Some(format) = Format::of_repository(host) else {
        return false;
    };
    let is_object = |entry: &Entry| {
        let path = step.path.concat(&entry.beneath);
        let read = || {
            let id = Id::at(&path, format)?;
            let (file, _) = host.file(&path).ok()?;
            let mut bytes_left = BYTES_MAX;
            Loose::read(file, &id, format, &mut bytes_left)
        };
        match entry.node {
            Node::Directory => true,
            Node::File { .. } => read().is_some(),
            Node::Symlink { .. } | Node::Special => false,
        }
    };
    new.iter().all(is_object)
}
