//! What a run that wrote to the person's directory itself has left there at its end:
//! only that is the run's to take back, and only while it is as it was left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::path::Bytes;
use crate::plan::{Act, Entry, Stamp};
use crate::{ChangeSet, Conflict, Opened, Plan, RelativePath, Step};

/// What [`crate::plan_restore`] would have put back at the end of the run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndNote {
    steps: BTreeMap<RelativePath, Left>,
    /// What could not be taken back then either.
    refused: BTreeSet<RelativePath>,
    /// What could not be read for its permissions, as it was.
    #[serde(default)]
    locked: BTreeMap<RelativePath, Stamp>,
    /// When it was noted, in seconds and nanoseconds.
    #[serde(default)]
    at: (i64, u32),
}

/// What a run left at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Left {
    /// Whether only permissions, owner and the like differ from the checkpoint.
    facts_only: bool,
    /// Nothing where the run removed what was there.
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
    /// Takes down what the plan that leads back from the end of the run finds there, and
    /// what was found of which it could not be planned; `at` is now.
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

    /// Leaves of a plan that leads back from now what takes back the run's own
    /// changes, those among them that had to be `opened` up to be read. Where the directory
    /// is no more as the run left it is a conflict.
    #[must_use]
    pub fn narrow(&self, mut plan: Plan, opened: &Opened) -> Plan {
        let mut changed = BTreeSet::new();
        plan.steps.retain(|step| {
            let Some(now) = Left::of(step) else {
                return false;
            };
            if self.steps.get(&step.path) == Some(&now) {
                return true;
            }
            let met = self.met_by(step);
            changed.extend(met.iter().map(|path| (*path).clone()));
            if met.is_empty() && opened.meets(&step.path) {
                let mut found = step.found_entries().iter();
                if found.any(|entry| opened.changed_after(entry, self.at)) {
                    changed.insert(step.path.clone());
                }
                return true;
            }
            !met.is_empty()
        });
        plan.conflicts
            .extend(changed.into_iter().map(|path| Conflict {
                path,
                why: "it changed since the run ended".into(),
            }));
        plan.refused.retain(|refusal| {
            self.refused.contains(&refusal.path) || self.steps.contains_key(&refusal.path)
        });
        plan
    }

    /// The paths left by the run that a step would write to: at its own path,
    /// beneath it, or above it where the run changed all that is there.
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
