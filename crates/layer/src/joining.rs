//! Two plans for one directory, made from the same state of it, joined such that the second can be
//! applied once the first is: both are known before anything is written.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::{Act, Entry, Node};
use crate::{Conflict, Plan, RelativePath, Step};

const TWICE: &str = "it would be written twice, as something else each time";

/// Makes the second plan one that holds after the first. A directory that both make is the first's,
/// and so are permissions that both change. Where both put something in one place, the second wins
/// with `force`. Anything else that both would write is a conflict of the second.
pub fn join(first: &mut Plan, second: &mut Plan, force: bool) {
    let mut steps = Vec::with_capacity(second.steps.len());
    for step in std::mem::take(&mut second.steps) {
        let overlapping = first.steps.iter().find(|one| overlap(one, &step));
        let Some(other) = overlapping else {
            steps.push(step);
            continue;
        };
        match (&other.act, &step.act) {
            (Act::Facts { .. }, Act::Facts { .. }) => {}
            (Act::Replace { old, new: made }, Act::Replace { old: found, new })
                if old.is_empty()
                    && found.is_empty()
                    && other.path == step.path
                    && are_apart(made, new) =>
            {
                steps.extend(split(made, &step.path, new));
            }
            (Act::Replace { .. }, Act::Replace { .. }) if force && other.path == step.path => {
                first.steps.retain(|one| one.path != step.path);
                steps.push(step);
            }
            (
                Act::Replace { .. } | Act::Facts { .. } | Act::Rename { .. },
                Act::Replace { .. } | Act::Facts { .. } | Act::Rename { .. },
            ) => second.conflicts.push(Conflict {
                path: step.path,
                why: TWICE.to_owned(),
            }),
        }
    }
    second.steps = steps;
}

/// Returns whether one of two steps writes what the other does, or something above it.
fn overlap(one: &Step, other: &Step) -> bool {
    places(one).iter().any(|place| {
        places(other).iter().any(|of| {
            let (is_beneath, is_above) = (place.starts_with(of), of.starts_with(place));
            match (is_beneath, is_above) {
                (true, true) => true,
                // Permissions of a directory are nothing to what lies in it.
                (true, false) => !matches!(other.act, Act::Facts { .. }),
                (false, true) => !matches!(one.act, Act::Facts { .. }),
                (false, false) => false,
            }
        })
    })
}

fn places(step: &Step) -> Vec<&RelativePath> {
    match &step.act {
        Act::Rename { from, .. } => vec![&step.path, from],
        Act::Replace { .. } | Act::Facts { .. } => vec![&step.path],
    }
}

/// Returns whether the paths that both make are all directories.
fn are_apart(one: &[Entry], other: &[Entry]) -> bool {
    let nodes: BTreeMap<&[u8], &Node> = one
        .iter()
        .map(|entry| (entry.beneath.as_bytes(), &entry.node))
        .collect();
    other.iter().all(|entry| {
        let node = nodes.get(entry.beneath.as_bytes());
        node.is_none_or(|node| **node == Node::Directory && entry.node == Node::Directory)
    })
}

/// Splits new entries in a directory that is made already into a step for each, with the entries
/// beneath it. Parents come first.
fn split(made: &[Entry], path: &RelativePath, new: &[Entry]) -> Vec<Step> {
    let made: BTreeSet<&[u8]> = made.iter().map(|one| one.beneath.as_bytes()).collect();
    let mut steps: BTreeMap<RelativePath, Vec<Entry>> = BTreeMap::new();
    for entry in new {
        let is_made = |at: &RelativePath| made.contains(at.as_bytes());
        if is_made(&entry.beneath) {
            continue;
        }
        let above = entry.beneath.ancestors().filter(|at| !is_made(at)).last();
        let top = above.unwrap_or_else(|| entry.beneath.clone());
        let beneath = entry.beneath.beneath(&top).unwrap_or_default();
        let entry = Entry {
            beneath,
            ..entry.clone()
        };
        steps.entry(top).or_default().push(entry);
    }
    let step = |(top, new): (RelativePath, Vec<Entry>)| Step {
        path: path.concat(&top),
        act: Act::Replace {
            old: Vec::new(),
            new,
        },
    };
    steps.into_iter().map(step).collect()
}
