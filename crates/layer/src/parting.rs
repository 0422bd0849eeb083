//! Separates entries to be undone from those that others have put into the same directories
//! meanwhile: the latter are never removed, and the directories around them stay.

use std::collections::{BTreeMap, HashSet};

use crate::plan::{Act, Entry, Node};
use crate::{RelativePath, Step};

/// A directory that would be removed, but holds entries that no apply made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedDirectory {
    /// The topmost directory that stays.
    pub directory: RelativePath,
    /// The entries for which it stays, the topmost of each; full paths, so beneath `directory`.
    pub holds: Vec<RelativePath>,
}

impl RetainedDirectory {
    /// Merges the lists of several applies, the newest first: what stays of a later one is no
    /// reason that an earlier one knows of.
    #[must_use]
    pub fn merged(all: Vec<Self>) -> Vec<Self> {
        let mut merged: Vec<Self> = Vec::new();
        for mut one in all {
            let inner: Vec<Self> = merged
                .extract_if(.., |known| known.directory.starts_with(&one.directory))
                .collect();
            for known in inner {
                one.holds.retain(|path| *path != known.directory);
                one.holds.extend(known.holds);
            }
            one.holds.sort();
            one.holds.dedup();
            merged.push(one);
        }
        merged
    }
}

/// The remaining steps of one step, and the directories that stay.
pub(crate) struct Parted {
    pub steps: Vec<Step>,
    pub stays: Option<RetainedDirectory>,
}

/// Makes `back` of `now` at a path, both with parents first, except for entries that are not
/// `known`. Beneath a directory that has to stay each entry is a step of its own.
///
/// # Errors
/// The path where no directory was, but one has to stay.
pub(crate) fn part(
    path: &RelativePath,
    now: Vec<Entry>,
    back: Vec<Entry>,
    known: &HashSet<&RelativePath>,
) -> Result<Parted, RelativePath> {
    let mut holds = Vec::new();
    let mut foreign: HashSet<RelativePath> = HashSet::new();
    let mut staying: HashSet<RelativePath> = HashSet::new();
    for entry in &now {
        let at = &entry.beneath;
        if at.is_root() || known.contains(at) {
            continue;
        }
        if !foreign.contains(&at.parent().unwrap_or_default()) {
            holds.push(path.concat(at));
            staying.insert(RelativePath::root());
            staying.extend(at.ancestors());
        }
        foreign.insert(at.clone());
    }
    let in_the_way = |entry: &&Entry| {
        let is_directory = entry.node == Node::Directory;
        !is_directory && staying.contains(&entry.beneath)
    };
    if let Some(entry) = back.iter().find(in_the_way) {
        return Err(path.concat(&entry.beneath));
    }
    let top_of = |at: &RelativePath| {
        let whole = std::iter::once(at.clone()).chain(at.ancestors());
        let whole = whole.chain([RelativePath::root()]);
        whole.filter(|above| !staying.contains(above)).last()
    };
    let mut parts: BTreeMap<RelativePath, (Vec<Entry>, Vec<Entry>)> = BTreeMap::new();
    let own = now
        .into_iter()
        .filter(|entry| !foreign.contains(&entry.beneath));
    let both = own.map(|entry| (entry, true));
    for (mut entry, is_now) in both.chain(back.into_iter().map(|entry| (entry, false))) {
        if staying.contains(&entry.beneath) {
            continue;
        }
        let top = top_of(&entry.beneath).unwrap_or_default();
        entry.beneath = entry.beneath.beneath(&top).unwrap_or_default();
        let part = parts.entry(top).or_default();
        match is_now {
            true => part.0.push(entry),
            false => part.1.push(entry),
        }
    }
    let steps = parts.into_iter().map(|(top, (old, new))| Step {
        path: path.concat(&top),
        act: Act::Replace { old, new },
    });
    let steps = steps.collect();
    let directory = path.clone();
    let stays = (!holds.is_empty()).then_some(RetainedDirectory { directory, holds });
    Ok(Parted { steps, stays })
}
