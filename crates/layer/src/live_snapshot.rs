//! A record of what a live run left in the host directory at its end: only that is the run's to
//! undo, and only while it is as the run left it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::facts::{Stamp, Time};
use crate::path::Bytes;
use crate::plan::{Act, Entry};
use crate::{ChangeSet, Plan, RelativePath, Step};

/// The steps that [`crate::plan_restore`] would have made at the end of the run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveSnapshot {
    pub(crate) steps: BTreeMap<RelativePath, Left>,
    /// Paths that could not be undone then either.
    pub(crate) refused: BTreeSet<RelativePath>,
    /// Entries that could not be read for their permissions, with their state.
    #[serde(default)]
    locked: BTreeMap<RelativePath, Stamp>,
    /// The time of the record.
    #[serde(default)]
    pub(crate) at: Time,
}

/// An entry that a run left at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Left {
    /// Set when only permissions, owner and the like differ from the checkpoint.
    pub facts_only: bool,
    /// Empty where the run removed what was there.
    pub entries: Vec<LeftEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeftEntry {
    pub beneath: RelativePath,
    stamp: Option<Stamp>,
    uid: u32,
    gid: u32,
    xattrs: Vec<(Bytes, Bytes)>,
}

impl LiveSnapshot {
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
            at: Time {
                seconds: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
                nanoseconds: at.subsec_nanos(),
            },
        }
    }

    pub(crate) fn locked(&self) -> &BTreeMap<RelativePath, Stamp> {
        &self.locked
    }
}

impl Left {
    pub fn of(step: &Step) -> Option<Self> {
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
    pub fn is_still(&self, now: &Entry) -> bool {
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
            (stamp.modified, stamp.changed) = (Time::default(), Time::default());
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
