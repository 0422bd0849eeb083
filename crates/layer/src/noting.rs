//! A record of what a live run left in the host directory at its end: only that is the run's to
//! undo, and only while it is as the run left it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::facts::Stamp;
use crate::parting::part;
use crate::path::Bytes;
use crate::plan::{Act, Entry, Node};
use crate::{ChangeSet, Conflict, Opened, Outlook, Plan, RelativePath, Stays, Step};

/// The steps that [`crate::plan_restore`] would have made at the end of the run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndNote {
    steps: BTreeMap<RelativePath, Left>,
    /// Paths that could not be undone then either.
    refused: BTreeSet<RelativePath>,
    /// Entries that could not be read for their permissions, with their state.
    #[serde(default)]
    locked: BTreeMap<RelativePath, Stamp>,
    /// The time of the record, in seconds and nanoseconds.
    #[serde(default)]
    at: (i64, u32),
}

/// The remainder of a plan, with its preview.
#[derive(Default)]
struct Narrowed {
    steps: Vec<Step>,
    changed: BTreeSet<RelativePath>,
    in_the_way: Vec<Conflict>,
    stays: Vec<Stays>,
}

/// An entry that a run left at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Left {
    /// Set when only permissions, owner and the like differ from the checkpoint.
    facts_only: bool,
    /// Empty where the run removed what was there.
    entries: Vec<LeftEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeftEntry {
    beneath: RelativePath,
    stamp: Option<Stamp>,
    uid: u32,
    gid: u32,
    xattrs: Vec<(Bytes, Bytes)>,
}

impl EndNote {
    /// Records the entries that the plan back from the end of the run finds, and those for which no
    /// plan could be made; `at` is the current time.
    #[must_use]
    pub fn of(plan: &Plan, set: &ChangeSet, at: SystemTime) -> Self {
        let at = at
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let steps = plan.steps.iter();
        Self {
            steps: steps
                .filter_map(|step| Some((step.path.clone(), Left::of(step)?)))
                .collect(),
            refused: plan.refused.iter().map(|it| it.path.clone()).collect(),
            locked: set.locked.clone(),
            at: (
                i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
                at.subsec_nanos(),
            ),
        }
    }

    pub(crate) fn locked(&self) -> &BTreeMap<RelativePath, Stamp> {
        &self.locked
    }

    /// Narrows a plan that leads back from now to undoing the run's own changes, including those
    /// that had to be `opened` up to be read. A directory that is no longer as the run left it is a
    /// conflict. Files that others have put into directories that the run made stay, and are
    /// returned with these and with those in the way: the caller refuses then.
    #[must_use]
    pub fn narrow(&self, mut plan: Plan, opened: &Opened) -> (Plan, Outlook) {
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
                    self.narrow_one(&step.path, (old, new), &met, &mut narrowed);
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
        let outlook = Outlook {
            in_the_way: narrowed.in_the_way,
            stays: narrowed.stays,
            ..Outlook::default()
        };
        (plan, outlook)
    }

    /// Narrows a step that touches what the run left to that, and to what was there before.
    fn narrow_one(
        &self,
        path: &RelativePath,
        (old, new): (&[Entry], &[Entry]),
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
            narrowed.stays.push(Stays {
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

impl Left {
    fn of(step: &Step) -> Option<Self> {
        match &step.act {
            Act::Replace { old, .. } => Some(Self {
                facts_only: false,
                entries: old.iter().map(LeftEntry::of).collect(),
            }),
            Act::Facts { old, .. } => Some(Self {
                facts_only: true,
                entries: vec![LeftEntry::of(old)],
            }),
            Act::Rename { .. } => None,
        }
    }
}

impl LeftEntry {
    /// Returns whether an entry at the same path is what was left there.
    fn is_still(&self, now: &Entry) -> bool {
        let now = Self::of(now);
        let facts = |one: &Self| (one.stamp, one.uid, one.gid);
        facts(self) == facts(&now) && self.xattrs == now.xattrs
    }

    fn of(entry: &Entry) -> Self {
        let mut stamp = entry.stamp;
        // The size and times of a directory tell of its entries, which are looked at
        // themselves where they are the run's.
        if let Some(stamp) = stamp.as_mut().filter(|stamp| stamp.is_directory()) {
            (stamp.bytes, stamp.links) = (0, 0);
            (stamp.modified, stamp.changed) = ((0, 0), (0, 0));
        }
        Self {
            beneath: entry.beneath.clone(),
            stamp,
            uid: entry.uid,
            gid: entry.gid,
            xattrs: entry.xattrs.clone(),
        }
    }
}
