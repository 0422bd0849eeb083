//! The layers in which checks begin: copies of the run's, with nothing in them but what would be
//! applied, and with the files that decide as they are on the host.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use atoll_layer::{
    AfterTree, Change, ChangeKind, Class, EntryKind, RelativePath, Selection, restore_modes,
};
use atoll_ledger::StateDir;
use atoll_store::{LayerHow, LayerKind, LayerRecord, RunRecord, remove_directory};

use super::judge::{Judge, Touched};
use super::upper::Upper;
use crate::changes::{self, LayerChanges};
use crate::failure::{Doing, Failure};
use crate::promotion::Planned;
use crate::sandboxes::home::copy;

/// The directory of the copies, in the run's.
const COPIES: &str = "checks";
const UNMADE: &str = "the files for the checks cannot be made";

/// Layers to begin in, which are removed when this is dropped.
pub(super) struct Staged {
    pub(super) directory: PathBuf,
    /// The deciding files that the run has changed, absolute.
    pub(super) judge: Vec<PathBuf>,
}

impl Drop for Staged {
    fn drop(&mut self) {
        // The next checks remove what is left here, and so does a discard.
        let _ = remove_directory(&self.directory);
    }
}

/// Returns the directory of the copies.
pub(super) fn place(state: &StateDir, record: &RunRecord) -> PathBuf {
    state.run_dir(&record.run).join(COPIES)
}

/// Copies the layers whose changes would be applied.
///
/// # Errors
/// When the result cannot be made exactly: nothing is checked then.
pub(super) fn stage(
    state: &StateDir,
    record: &RunRecord,
    plans: &[Planned<'_>],
    selection: &Selection,
    judge: &Judge,
) -> Result<Staged, Failure> {
    let directory = place(state, record);
    remove_directory(&directory).doing(UNMADE)?;
    let made = DirBuilder::new().mode(0o700).create(&directory);
    made.doing(UNMADE)?;
    let mut staged = Staged {
        directory,
        judge: Vec::new(),
    };
    for one in plans.iter().map(|planned| planned.changes) {
        if one.set.changes.is_empty() && one.set.refused.is_empty() {
            continue;
        }
        let layer = copied(one, record, &staged.directory)?;
        // Of a repository's own directory nothing is run.
        let judge = (one.layer.kind != LayerKind::Repository).then_some(judge);
        let changed = settle(&layer, one, selection, judge)?;
        let absolute = changed.into_iter();
        let absolute = absolute.map(|path| one.layer.host.join(path.as_os_str()));
        staged.judge.extend(absolute);
    }
    Ok(staged)
}

/// A copied layer.
struct CopiedLayer<'a> {
    record: &'a RunRecord,
    upper: PathBuf,
    layer: LayerRecord,
}

/// Copies a layer, with the note of the modes that were opened up to read it.
fn copied<'a>(
    one: &LayerChanges,
    record: &'a RunRecord,
    to: &Path,
) -> Result<CopiedLayer<'a>, Failure> {
    let upper = match (&one.paths.after, one.layer.shared) {
        (AfterTree::Overlay { upper, .. }, false) => upper,
        (AfterTree::Overlay { .. } | AfterTree::Copy { .. } | AfterTree::Live { .. }, _) => {
            let why = "the run has no copy-on-write layer of its own over it";
            let directory = one.layer.host.display();
            return Err(Failure::new(UNMADE)
                .because(format!("{directory}: {why}"))
                .advise("look at the changes, and apply them without --checks"));
        }
    };
    let directory = to.join(&one.layer.name);
    let made = DirBuilder::new().mode(0o700).create(&directory);
    made.doing(UNMADE)?;
    let to = directory.join("upper");
    copy(upper, &to)?;
    let modes = |upper: &Path| upper.with_file_name("upper.modes");
    if modes(upper).exists() {
        fs::copy(modes(upper), modes(&to)).doing(UNMADE)?;
    }
    Ok(CopiedLayer {
        record,
        upper: to,
        layer: one.layer.clone(),
    })
}

/// The copied changes that were taken back.
#[derive(Default)]
struct TakenBack {
    /// The deciding files that the run has changed.
    judge: Vec<RelativePath>,
    /// Directories that the run removed, and in which deciding files are there again.
    partly: Vec<RelativePath>,
    /// Every path that is as on the host again.
    paths: Vec<RelativePath>,
}

/// Takes everything back in a copy that would not be applied, and what decides. Returns the deciding
/// files that were changed.
fn settle(
    copied: &CopiedLayer<'_>,
    one: &LayerChanges,
    selection: &Selection,
    judge: Option<&Judge>,
) -> Result<Vec<RelativePath>, Failure> {
    let LayerHow::Overlay { xattrs } = copied.layer.how else {
        return Err(Failure::new(UNMADE));
    };
    let upper = Upper {
        path: &copied.upper,
        host: &copied.layer.host,
        xattrs,
        base: copied.record.base,
        is_apart: copied.layer.kind != LayerKind::Workspace,
    };
    let mut back = TakenBack::default();
    let refused = one.set.refused.iter().chain(&one.set.withheld);
    for path in refused.map(|refusal| &refusal.path) {
        upper.reveal(path).map_err(|error| unlike(path, &error))?;
        back.paths.push(path.clone());
    }
    for change in &one.set.changes {
        take_back(change, &upper, selection, judge, &mut back)?;
    }
    verify(copied, one, &back, judge)?;
    restore_modes(&copied.upper).doing(UNMADE)?;
    Ok(back.judge)
}

/// Takes a change back, if it would not be applied or is one of what decides.
fn take_back(
    change: &Change,
    upper: &Upper<'_>,
    selection: &Selection,
    judge: Option<&Judge>,
    back: &mut TakenBack,
) -> Result<(), Failure> {
    let path = &change.path;
    let touched = match (is_selected(change, selection), judge) {
        // A home, a cache and what other programs run can hold what runs the checks.
        (true, Some(_)) if upper.is_apart || change.class != Class::Ordinary => Touched::Itself,
        (true, Some(judge)) => judge.touched(change)?,
        (true, None) => Touched::Nothing,
        (false, _) => {
            upper.reveal(path).map_err(|error| unlike(path, &error))?;
            back.paths.push(path.clone());
            return Ok(());
        }
    };
    match (touched, judge) {
        (Touched::Nothing, _) | (_, None) => {}
        (Touched::Itself, _) => {
            upper.reveal(path).map_err(|error| unlike(path, &error))?;
            // Of a directory that decides, it alone is named.
            if !back.judge.iter().any(|one| path.starts_with(one)) {
                back.judge.push(path.clone());
            }
            back.paths.push(path.clone());
        }
        (Touched::Within(files), Some(judge)) if change.kind == ChangeKind::Removed => {
            let has = |path: &RelativePath| judge.within(path).is_ok_and(|found| !found.is_empty());
            let revealed = upper.reveal_within(path, &|path| judge.decides(path), &has);
            revealed.map_err(|error| unlike(path, &error))?;
            back.judge.extend(files);
            back.partly.push(path.clone());
        }
        (Touched::Within(files), Some(_)) => {
            let first = files.first().map(ToString::to_string).unwrap_or_default();
            let why = format!("something else took the place of {path}, above {first}");
            return Err(unlike(path, &why));
        }
    }
    Ok(())
}

/// Returns whether an apply takes a change.
fn is_selected(change: &Change, selection: &Selection) -> bool {
    match change.class {
        Class::Ordinary => true,
        Class::Control => selection.control,
        Class::Cache => selection.caches,
        Class::Ignored => selection.ignored,
    }
}

/// Reads a copy anew: it must differ from the host in what would be applied, without what decides,
/// and in nothing else.
fn verify(
    copied: &CopiedLayer<'_>,
    one: &LayerChanges,
    back: &TakenBack,
    judge: Option<&Judge>,
) -> Result<(), Failure> {
    let mut paths = one.paths.clone();
    if let AfterTree::Overlay { upper, work, .. } = &mut paths.after {
        upper.clone_from(&copied.upper);
        *work = copied.upper.with_file_name("work");
    }
    let found = changes::read_at_rest(copied.layer.clone(), paths)?.set;
    if let Some(refusal) = found.refused.first() {
        return Err(unlike(&refusal.path, &refusal.why));
    }
    let lies_in =
        |path: &RelativePath, all: &[RelativePath]| all.iter().any(|one| path.starts_with(one));
    let wanted = one.set.changes.iter();
    let wanted = wanted.filter(|one| !lies_in(&one.path, &back.paths));
    let wanted = wanted.filter(|one| !back.partly.contains(&one.path));
    let mut wanted: BTreeMap<&RelativePath, &Change> =
        wanted.map(|change| (&change.path, change)).collect();
    for change in &found.changes {
        let path = &change.path;
        if let Some(judge) = judge
            && judge.touched(change)? != Touched::Nothing
        {
            return Err(unlike(
                path,
                &"it decides, and is not as it was before the run",
            ));
        }
        let is_rest = change.kind == ChangeKind::Removed && lies_in(path, &back.partly);
        let is_wanted = wanted.remove(path).is_some_and(|one| is_same(one, change));
        if !is_rest && !is_wanted {
            return Err(unlike(path, &"its copy differs from it"));
        }
    }
    match wanted.into_keys().next() {
        Some(path) => Err(unlike(path, &"its copy has not changed")),
        None => Ok(()),
    }
}

/// Returns whether two changes of one path are the same. A directory's size and times are not.
fn is_same(one: &Change, other: &Change) -> bool {
    let facts = |change: &Change| {
        change.after.as_ref().map(|after| {
            let bytes = (after.kind == EntryKind::File).then_some(after.bytes);
            (after.kind.clone(), after.mode, bytes)
        })
    };
    one.kind == other.kind && facts(one) == facts(other)
}

/// Returns the failure to make exactly the result.
fn unlike(path: &RelativePath, why: &dyn std::fmt::Display) -> Failure {
    Failure::new("the checks cannot run: the files that they need cannot be made")
        .because(format!("{path}: {why}"))
        .advise("look at the changes, and apply them without --checks")
}
