//! Databases and the logs beside them, which belong together: written without a log that has
//! changed on the host, or beside it, a database would be destroyed.

use std::collections::BTreeMap;

use super::{Now, Planner};
use crate::databases::{companions, database_of};
use crate::{Change, ChangeKind, RelativePath};

impl Planner<'_> {
    /// Records a conflict where a companion file of a changed database was written on the host
    /// since the run began, and the run has not changed that file too (then it is checked itself).
    /// Returns whether to drop the step.
    pub(super) fn is_parted_from_logs(
        &mut self,
        wanted: &BTreeMap<&RelativePath, &Change>,
        path: &RelativePath,
    ) -> bool {
        let kind = wanted.get(path).map(|change| &change.kind);
        match kind {
            Some(
                ChangeKind::Added | ChangeKind::Modified | ChangeKind::Removed | ChangeKind::Type,
            ) => {}
            Some(ChangeKind::Mode | ChangeKind::Renamed { .. }) | None => return false,
        }
        let name = path.name();
        let Some(main) = database_of(name).map(<[u8]>::to_vec) else {
            return false;
        };
        let beside = companions(&main).chain([main.clone()]);
        let others: Vec<Vec<u8>> = beside.filter(|other| other != name).collect();
        let directory = path.parent().unwrap_or_default();
        for other in others {
            let Ok(other) = directory.join(&other) else {
                continue;
            };
            let is_newer = match self.now(&other) {
                Now::Nothing => false,
                Now::There(facts) => self.is_changed(&other, &facts),
                Now::Unreachable(_) => true,
            };
            let why = format!("{other}, which belongs to it, changed outside meanwhile");
            if is_newer && !wanted.contains_key(&other) && self.conflict(path, &why) {
                return true;
            }
        }
        false
    }
}
