//! Narrows the plan that leads back to a checkpoint to what a live run left.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::live_snapshot::{Left, LeftEntry, LiveSnapshot};
use crate::parting::part;
use crate::plan::{Act, Entry, Node};
use crate::{Conflict, Opened, Plan, RelativePath, RetainedDirectory, Step, UndoPreview};

/// The remainder of a plan, with its preview.
#[derive(Default)]
struct Narrowed {
    steps: Vec<Step>,
    changed: BTreeSet<RelativePath>,
    in_the_way: Vec<Conflict>,
    stays: Vec<RetainedDirectory>,
}

impl LiveSnapshot {
    /// Narrows a plan that leads back from now to undoing the run's own changes, including those
    /// that had to be `opened` up to be read. A directory that is no longer as the run left it is a
    /// conflict. Files that others have put into directories that the run made stay, and are
    /// returned with these and with those in the way: the caller refuses then.
    #[must_use]
    pub fn narrow(&self, mut plan: Plan, opened: &Opened) -> (Plan, UndoPreview) {
        let mut narrowed = Narrowed::default();
        for step in std::mem::take(&mut plan.steps) {
            let Some(now) = Left::of(&step) else {
                continue;
            };
            if self.steps.get(&step.path) == Some(&now) {
                narrowed.steps.push(step);
                continue;
            }
            let met = self.met_by(&step);
            match (met.is_empty(), &step.act) {
                (true, _) if opened.meets(&step.path) => {
                    let mut found = step.found_entries().iter();
                    if found.any(|entry| opened.changed_after(entry, self.at)) {
                        narrowed.changed.insert(step.path.clone());
                    }
                    narrowed.steps.push(step);
                }
                (true, _) => {}
                (false, Act::Replace { old, new }) => {
                    self.narrow_one(&step.path, old, new, &met, &mut narrowed);
                }
                (false, Act::Facts { .. } | Act::Rename { .. }) => {
                    narrowed.changed.extend(met.into_iter().cloned());
                    narrowed.steps.push(step);
                }
            }
        }
        plan.steps = narrowed.steps;
        plan.conflicts
            .extend(narrowed.changed.into_iter().map(|path| Conflict {
                path,
                why: "it changed since the run ended".into(),
            }));
        plan.refused.retain(|refusal| {
            self.refused.contains(&refusal.path) || self.steps.contains_key(&refusal.path)
        });
        let preview = UndoPreview {
            in_the_way: narrowed.in_the_way,
            stays: narrowed.stays,
            ..UndoPreview::default()
        };
        (plan, preview)
    }

    /// Narrows a step that touches what the run left to that, and to what was there before.
    fn narrow_one(
        &self,
        path: &RelativePath,
        old: &[Entry],
        new: &[Entry],
        met: &BTreeSet<&RelativePath>,
        narrowed: &mut Narrowed,
    ) {
        let left = met
            .iter()
            .filter_map(|path| self.steps.get_key_value(*path));
        let left = left.flat_map(|(path, left)| {
            let entries = left.entries.iter();
            entries.map(|entry| (path.concat(&entry.beneath), entry))
        });
        let left: BTreeMap<RelativePath, &LeftEntry> = left.collect();
        let before: BTreeSet<RelativePath> = new
            .iter()
            .map(|entry| path.concat(&entry.beneath))
            .collect();
        let mut there = BTreeSet::new();
        for entry in old {
            let at = path.concat(&entry.beneath);
            let is_changed = match left.get(&at) {
                Some(left) => !left.is_still(entry),
                None => before.contains(&at),
            };
            if is_changed {
                narrowed.changed.insert(at.clone());
            }
            there.insert(at);
        }
        let gone = left.keys().filter(|at| !there.contains(*at));
        let gone = gone.filter(|at| before.contains(*at)).cloned();
        narrowed.changed.extend(gone);
        // Where the run has left something above, or nothing, there is a directory now.
        let above = met
            .iter()
            .filter(|at| ***at != *path && path.starts_with(at));
        narrowed.changed.extend(above.map(|at| (*at).clone()));
        if !old.is_empty() && !left.contains_key(path) && !before.contains(path) {
            narrowed.stays.push(RetainedDirectory {
                directory: path.parent().unwrap_or_default(),
                holds: vec![path.clone()],
            });
            return;
        }
        let is_known = |at: &RelativePath| left.contains_key(at) || before.contains(at);
        let mut special = old.iter().filter(|entry| entry.node == Node::Special);
        if let Some(special) = special.find(|entry| is_known(&path.concat(&entry.beneath))) {
            narrowed.in_the_way.push(Conflict {
                path: path.concat(&special.beneath),
                why: "a socket, FIFO or device is there now, which could not be brought back"
                    .into(),
            });
            return;
        }
        let both = left.keys().chain(&before);
        let known: Vec<RelativePath> = both.filter_map(|at| at.beneath(path)).collect();
        let known: HashSet<&RelativePath> = known.iter().collect();
        match part(path, old.to_vec(), new.to_vec(), &known) {
            Ok(parted) => {
                narrowed.steps.extend(parted.steps);
                narrowed.stays.extend(parted.stays);
            }
            Err(path) => narrowed.in_the_way.push(Conflict {
                path,
                why: "a directory that holds what the run has not made is there now".into(),
            }),
        }
    }

    /// Returns the paths left by the run that a step would write to: at its own path, beneath it,
    /// or above it where the run changed everything there.
    fn met_by(&self, step: &Step) -> BTreeSet<&RelativePath> {
        if let Act::Facts { .. } = step.act {
            let above = self.whole_above(&step.path);
            let own = self.steps.get_key_value(&step.path);
            return own.map(|(path, _)| path).into_iter().chain(above).collect();
        }
        let beneath = self
            .steps
            .keys()
            .filter(|path| path.starts_with(&step.path));
        beneath.chain(self.whole_above(&step.path)).collect()
    }

    fn whole_above(&self, path: &RelativePath) -> Option<&RelativePath> {
        path.ancestors().find_map(|above| {
            let (noted, left) = self.steps.get_key_value(&above)?;
            (!left.facts_only).then_some(noted)
        })
    }
}
