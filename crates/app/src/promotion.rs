//! Whether policies let a run's changes be taken over.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use atoll_layer::{Class, Selection, plan_apply};
use atoll_policy::{Promoted, Promoter, PromotionError, promote};
use atoll_store::LayerKind;

use crate::advice;
use crate::changes::LayerChanges;
use crate::configuration::{self, Places, PolicyFiles};
use crate::failure::{Doing, Failure, STATUS_DENIED};
use crate::output::Output;

/// Refuses what policies refuse, before anything is written. The version of the policies that
/// have allowed it; none where there are none.
///
/// # Errors
/// With every reason; also where a file of policies has mistakes.
pub fn allowed(
    workspace: Option<&Path>,
    profile: &str,
    all: &[LayerChanges],
    selection: &Selection,
    output: &Output,
) -> Result<Option<String>, Failure> {
    let files = PolicyFiles::read(&Places::read()?, workspace)?;
    if files.policies().next().is_none() {
        return Ok(None);
    }
    let written = written(all, selection)?;
    let changes: Vec<Promoted<'_>> = written
        .iter()
        .map(|(path, (control, is_moved))| Promoted {
            path,
            control: *control,
            is_moved: *is_moved,
        })
        .collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let promoter = Promoter {
        user: configuration::principal().uid,
        time: now.map_or(0, |time| time.as_secs()),
        profile,
    };
    let promotion = promote(&files.sources(), &promoter, &changes).map_err(refused)?;
    for notice in promotion.notices {
        output.warn(&notice.to_string());
    }
    Ok(promotion.policy_digest)
}

/// Every path that would be written, with whether other programs run it, and whether it is a
/// directory that moves.
fn written(
    all: &[LayerChanges],
    selection: &Selection,
) -> Result<BTreeMap<PathBuf, (bool, bool)>, Failure> {
    let mut written = BTreeMap::new();
    let meant = |one: &&LayerChanges| selection.caches || one.layer.kind != LayerKind::Cache;
    for one in all.iter().filter(meant) {
        let plan =
            plan_apply(&one.paths, &one.set, selection).doing("the changes cannot be applied")?;
        for (path, is_moved) in plan.writes() {
            let changes = one.set.changes.iter();
            let is_control = changes
                .filter(|change| change.class == Class::Control)
                .any(|change| change.path == path);
            let place = one
                .layer
                .host
                .join(std::ffi::OsStr::from_bytes(path.as_bytes()));
            let entry = written.entry(place).or_insert((false, false));
            entry.0 |= is_control;
            entry.1 |= is_moved;
        }
    }
    Ok(written)
}

fn refused(error: PromotionError) -> Failure {
    match error {
        PromotionError::Broken(error) => {
            Failure::new("the policies have mistakes, so nothing is applied")
                .because(&error)
                .advise(advice::profile(&error))
        }
        PromotionError::Refused(reasons) => {
            let lines = reasons
                .iter()
                .map(|one| format!("{}: {}", one.what, one.why));
            let lines: Vec<String> = lines.collect();
            Failure::new("policies refuse to take these changes over; nothing was applied")
                .because(lines.join("\n"))
                .advise("atoll apply RUN PATH takes over what they allow")
                .with_status(STATUS_DENIED)
        }
    }
}
