//! Checks whether the directory still is as an apply left it, or is already as one would leave it.
//! Entries that another run changed and an undo put back have other times and inodes, but the
//! content is the same.

use std::fs::File;

use rustix::process::geteuid;

use crate::access_list::{access, mode_without};
use crate::content;
use crate::engine::Engine;
use crate::facts::{Facts, Kind, Stamp};
use crate::host::in_another_group;
use crate::plan::{Content, Entry, Node};
use crate::planning::Planner;
use crate::tree::Tree;
use crate::{Change, RelativePath, Step, git_index};

/// The reason for a conflict with an entry that is not as an apply left it.
pub(crate) const CHANGED: &str = "it changed since it was applied";

/// Returns whether an entry that a step wrote is as it was after that: by its stamp then, or by its
/// content.
pub(crate) fn is_entry_unchanged(
    engine: &Engine,
    step: &Step,
    now: &Entry,
    written: &Entry,
    then: &Stamp,
) -> bool {
    let same = now.stamp.is_some_and(|now| then.holds(&now));
    same || is_as_written(engine, step, now, written, then)
}

/// Returns whether the metadata that a step gave an entry is as it was after that. A rollback of an
/// undo has moved the change time on.
pub(crate) fn are_facts_unchanged(
    now: &Entry,
    given: &Entry,
    planned: &[(RelativePath, Stamp)],
) -> bool {
    let Some(((_, then), stamp)) = planned.first().zip(now.stamp) else {
        return false;
    };
    let are_given = is_owned_as(now, given) && now.xattrs == given.xattrs;
    then.holds(&stamp) || (then.holds_after_rename(&stamp) && are_given)
}

/// Returns whether an entry has the owner and group that it was given, or is the ordinary user's own,
/// who can give it no others.
fn is_owned_as(now: &Entry, given: &Entry) -> bool {
    let user = geteuid();
    let is_own = !user.is_root() && now.uid == user.as_raw();
    is_own || (now.uid, now.gid) == (given.uid, given.gid)
}

/// Returns whether permissions are those that a step has found or those that it sets: others were
/// set by somebody since. Special bits are left out, of which the kernel may take some away.
pub(crate) fn are_permissions_of(now: &Facts, found: &Entry, given: &Entry) -> bool {
    let without = access(&given.xattrs).map(|list| mode_without(list, given.mode));
    let all = [
        Some(found.mode),
        Some(given.mode),
        given.listed_mode,
        (now.gid != given.gid).then(|| in_another_group(given.mode)),
        without,
    ];
    let mut all = all.into_iter().flatten();
    all.any(|mode| mode & 0o777 == now.mode & 0o777)
}

/// Returns whether an entry is, in all but times and inode, what the step wrote. False for entries
/// that cannot be compared.
fn is_as_written(engine: &Engine, step: &Step, now: &Entry, written: &Entry, then: &Stamp) -> bool {
    let facts = now.stamp.is_some_and(|stamp| stamp.mode == then.mode)
        && is_owned_as(now, written)
        && now.xattrs == written.xattrs;
    facts
        && match (&now.node, &written.node) {
            (Node::Directory, Node::Directory) => true,
            (Node::Symlink { target: now }, Node::Symlink { target: then }) => now == then,
            // What will be there only when a later apply is undone cannot be compared.
            (Node::File { content, .. }, Node::File { .. }) if *content == Content::Untouched => {
                false
            }
            (Node::File { bytes, .. }, Node::File { content, .. }) => {
                let path = step.path.concat(&now.beneath);
                let written = written_content(engine, content);
                let there = engine.tree.file(&path).ok().map(|(there, _)| there);
                let is_equal = |(there, written): (File, File)| match path.name() {
                    b"index" => git_index::are_alike(&there, &written),
                    _ => *bytes == then.bytes && holds_content(&there, &written, *bytes),
                };
                there.zip(written).is_some_and(is_equal)
            }
            _ => false,
        }
}

/// Opens what a step wrote, where it was taken from.
fn written_content(engine: &Engine, content: &Content) -> Option<File> {
    let from = |source: &Option<Tree>, at| source.as_ref()?.file(at).map(|(file, _)| file).ok();
    match content {
        Content::Layer(at) => from(&engine.source, at),
        Content::Indexed(at) => from(&engine.indexed, at),
        Content::Kept { number, .. } => engine.journal.kept(*number).ok(),
        Content::Outer { number } => engine.journal.kept_outside(*number).ok(),
        Content::Untouched => None,
    }
}

fn holds_content(there: &File, written: &File, bytes: u64) -> bool {
    let as_long = written.metadata().is_ok_and(|facts| facts.len() == bytes);
    as_long && content::equal(there, written, bytes).unwrap_or(false)
}

impl Planner<'_> {
    /// Returns whether the host's entry is already identical to the layer's.
    pub fn is_identical(&self, change: &Change, facts: &Facts) -> bool {
        let Ok((tree, at)) = self.reader.place_of(&change.path, &change.source) else {
            return false;
        };
        let Ok(Some(after)) = tree.facts(at) else {
            return false;
        };
        if after.kind != facts.kind || after.mode != facts.mode {
            return false;
        }
        match facts.kind {
            Kind::File => {
                let both = self.reader.before.file(&change.path).and_then(|(host, _)| {
                    let (layer, _) = tree.file(at)?;
                    Ok(after.bytes == facts.bytes && content::equal(&host, &layer, facts.bytes)?)
                });
                both.unwrap_or(false)
            }
            Kind::Symlink => {
                let host = self.reader.before.link_target(&change.path).ok();
                host.is_some() && host == tree.link_target(at).ok()
            }
            _ => false,
        }
    }
}
