//! A run's changes, layer by layer, at the places that its record names.

pub mod bulk;
pub mod commits;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use atoll_layer::{
    AfterTree, Bounds, ChangeKind, ChangeSet, Class, IdShift, InvalidPath, LayerPaths, ReadError,
    Refusal, RelativePath, XattrFlavour, has_written,
};
use atoll_ledger::{Durability, FileFault, StateDir};
use atoll_model::WorkspaceMode;
use atoll_policy::nearest;
use atoll_store::{
    ChangeCounts, LayerHow, LayerKind, LayerRecord, OverlayXattrs, RunRecord, RunState, update_run,
};
use sha2::{Digest, Sha256};

use self::commits::{Commit, is_in_git};
use crate::configuration;
use crate::failure::{Doing, Failure};
use crate::journals::numbered;
use crate::kept::NOT_WRITTEN;
use crate::supervision::{has_changed, is_written_outside};

/// The number of ids that are shifted in a run started by root.
const IDS: u32 = 65_536;
/// The directory of the journals of applies, below a run's directory.
const JOURNALS: &str = "journals";
/// The directory of the records of what was put back, in Atoll's state.
const PUT_BACK: &str = "put-back";
/// The reason why a settings file is not overwritten.
const WRITTEN_OUTSIDE: &str =
    "its text has been changed outside since it was read for the run, and may have keys in it now";
/// The most names that a summary shows of each group.
const NAMES_MAX: usize = 16;

/// A layer and the changes in it.
#[derive(Debug)]
pub struct LayerChanges {
    /// The layer.
    pub layer: LayerRecord,
    /// The layer's paths on the host.
    pub paths: LayerPaths,
    /// The differences.
    pub set: ChangeSet,
}

/// The changes of a run, in the groups that are applied separately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Ordinary files.
    pub workspace: Group,
    /// Files that make other programs run code.
    pub control: Group,
    /// Package and build caches.
    pub caches: Group,
    /// Files that git ignores.
    pub ignored: Group,
    /// The commits among them; none unless they were [read](commits::with_commits).
    pub commits: Vec<Commit>,
}

/// The changes of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The number of new files.
    pub added: u64,
    /// The number of changed files.
    pub changed: u64,
    /// The number of removed files.
    pub removed: u64,
    /// The number of those that are git's own: a commit is many of them.
    pub in_git: u64,
    /// The first of the others, by name as bytes; may be empty or incomplete.
    pub names: Vec<(Change, Vec<u8>)>,
}

impl Group {
    /// Returns the number of files in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.added
            .saturating_add(self.changed)
            .saturating_add(self.removed)
    }
}

impl Changes {
    /// Returns the number of files in all groups.
    #[must_use]
    pub fn total(&self) -> u64 {
        [&self.workspace, &self.control, &self.caches, &self.ignored]
            .into_iter()
            .fold(0, |sum, group| sum.saturating_add(group.total()))
    }
}

/// The change of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The file is new.
    Added,
    /// The file differs.
    Changed,
    /// The file is gone.
    Removed,
}

/// Returns the paths of a layer on the host.
pub fn paths(state: &StateDir, record: &RunRecord, layer: &LayerRecord) -> LayerPaths {
    let kept = layer.upper_path(state, &record.run);
    let (seconds, nanoseconds) = layer.since;
    let since = SystemTime::UNIX_EPOCH
        + Duration::new(u64::try_from(seconds).unwrap_or_default(), nanoseconds);
    let shifted = record
        .base
        .map_or(IdShift::None, |base| IdShift::Base { base, count: IDS });
    let (before, after, ids) = match layer.how {
        LayerHow::Overlay { xattrs } => (
            layer.host.clone(),
            AfterTree::Overlay {
                // The sandbox makes them side by side.
                work: kept.with_file_name("work"),
                upper: kept,
                xattrs: flavour(xattrs),
            },
            shifted,
        ),
        LayerHow::Copy => (
            layer.host.clone(),
            AfterTree::Copy {
                path: kept,
                finished: since,
            },
            shifted,
        ),
        LayerHow::Live => (
            kept,
            AfterTree::Live {
                path: layer.host.clone(),
                finished: since,
            },
            IdShift::None,
        ),
    };
    LayerPaths {
        // Whether a branch goes on from the one outside is told by times alone.
        put_back: (layer.kind != LayerKind::Repository).then(|| put_back_file(state, &layer.host)),
        before,
        after,
        since,
        ids,
    }
}

/// Returns the record of what Atoll has put back in a directory, so that its own writes are no
/// conflict.
pub fn put_back_file(state: &StateDir, host: &Path) -> PathBuf {
    let name = Sha256::digest(host.as_os_str().as_bytes());
    let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    state.path().join(PUT_BACK).join(name)
}

/// Converts the kind of extended attributes that hold an overlay's marks to the layer reader's
/// type.
pub fn flavour(xattrs: OverlayXattrs) -> XattrFlavour {
    match xattrs {
        OverlayXattrs::User => XattrFlavour::User,
        OverlayXattrs::Trusted => XattrFlavour::Trusted,
    }
}

/// Reads the changes of a layer that is not in use.
///
/// # Errors
/// When it cannot be read.
pub fn read_at_rest(layer: LayerRecord, paths: LayerPaths) -> Result<LayerChanges, Failure> {
    let set = atoll_layer::changes_at_rest(&paths, &Bounds::default());
    sorted(layer, paths, set)
}

/// Returns the changes read from a layer, without login files, and with its control files
/// classified.
fn sorted(
    layer: LayerRecord,
    paths: LayerPaths,
    set: Result<ChangeSet, ReadError>,
) -> Result<LayerChanges, Failure> {
    let mut set = set.doing(&format!(
        "the changes below {} cannot be read",
        layer.host.display()
    ))?;
    leave_out_settings(&mut set, &layer, &paths);
    if layer.kind == LayerKind::Home
        && let Ok(directory) = within_root(&layer.inside)
    {
        set.classify_within(&directory, &paths);
    }
    if matches!(layer.kind, LayerKind::Workspace | LayerKind::Home) {
        set.classify_configured(&layer.host, &configuration::git_environment());
    }
    if layer.kind == LayerKind::Repository {
        set.classify_repository(layer.worktree.as_deref(), &paths);
    }
    Ok(LayerChanges { layer, paths, set })
}

/// Reads the changes of all layers of a run.
///
/// # Errors
/// When a layer cannot be read.
pub fn read(state: &StateDir, record: &RunRecord) -> Result<Vec<LayerChanges>, Failure> {
    record
        .layers
        .iter()
        .map(|layer| {
            let paths = paths(state, record, layer);
            // A layer that is in use, or may be by another run, is read as it is.
            let read = match record.state == RunState::Running || layer.shared {
                true => atoll_layer::changes,
                false => atoll_layer::changes_at_rest,
            };
            let set = read(&paths, &Bounds::default());
            sorted(layer.clone(), paths, set)
        })
        .collect()
}

/// Returns an absolute path without its leading slash.
fn within_root(path: &Path) -> Result<RelativePath, InvalidPath> {
    let bytes = path.as_os_str().as_bytes();
    RelativePath::new(bytes.strip_prefix(b"/").unwrap_or(bytes))
}

/// Leaves out the files that are replaced by placeholders or masked copies in a layer. A program's
/// write to settings without keys is a change like any other; a write to settings with keys is
/// reported.
fn leave_out_settings(set: &mut ChangeSet, layer: &LayerRecord, paths: &LayerPaths) {
    let upper = match &paths.after {
        AfterTree::Overlay { upper, .. } => Some(upper),
        AfterTree::Copy { .. } | AfterTree::Live { .. } => None,
    };
    let mut withheld = Vec::new();
    let mut left = Vec::new();
    for name in &layer.logins {
        let Ok(path) = RelativePath::new(name.as_bytes()) else {
            continue;
        };
        let mut settings = layer.settings.iter();
        let settings = settings.find(|one| one.name.as_os_str() == name);
        let changed = settings
            .zip(upper)
            .filter(|(one, upper)| has_changed(upper, name, &one.stood));
        match changed {
            Some((one, upper)) if !one.stood.has_secrets => {
                if !is_written_outside(&layer.host, upper, name, &one.stood) {
                    continue;
                }
                withheld.push(Refusal {
                    path: path.clone(),
                    why: WRITTEN_OUTSIDE.to_owned(),
                });
            }
            Some(_) => withheld.push(Refusal {
                path: path.clone(),
                why: NOT_WRITTEN.to_owned(),
            }),
            None => {}
        }
        left.push(path);
    }
    set.leave_out(&left);
    set.withheld.extend(withheld);
}

/// Returns the directory of the journals of a run's applies.
pub fn journals_of(state: &StateDir, record: &RunRecord) -> PathBuf {
    state.run_dir(&record.run).join(JOURNALS)
}

/// Returns the journals of a layer's applies, oldest first.
///
/// # Errors
/// As [`numbered`].
pub fn journals(
    state: &StateDir,
    record: &RunRecord,
    layer: &LayerRecord,
) -> Result<Vec<PathBuf>, Failure> {
    numbered(&journals_of(state, record), &format!("{}-", layer.name))
}

/// Returns the path of the journal for a layer's next apply.
///
/// # Errors
/// When the directory of journals cannot be made.
pub fn next_journal(
    state: &StateDir,
    record: &RunRecord,
    layer: &LayerRecord,
) -> Result<PathBuf, Failure> {
    let directory = journals_of(state, record);
    let made = std::fs::create_dir_all(&directory);
    made.map_err(FileFault::on("make", &directory))
        .map_err(|fault| Failure::of_file("the journal cannot be made", &fault))?;
    let number = journals(state, record, layer)?.len();
    Ok(directory.join(format!("{}-{number}", layer.name)))
}

/// Groups the changes as people decide about them.
pub fn grouped(all: &[LayerChanges]) -> Changes {
    let mut groups = Changes::default();
    for one in all {
        for change in &one.set.changes {
            let group = match (one.layer.kind, change.class) {
                (LayerKind::Cache, _) | (_, Class::Cache) => &mut groups.caches,
                (_, Class::Control) => &mut groups.control,
                (_, Class::Ignored) => &mut groups.ignored,
                (
                    LayerKind::Workspace | LayerKind::Home | LayerKind::Repository,
                    Class::Ordinary,
                ) => &mut groups.workspace,
            };
            let kind = match change.kind {
                ChangeKind::Added => {
                    group.added += 1;
                    Change::Added
                }
                ChangeKind::Removed => {
                    group.removed += 1 + change.within;
                    Change::Removed
                }
                ChangeKind::Modified
                | ChangeKind::Mode
                | ChangeKind::Type
                | ChangeKind::Renamed { .. } => {
                    group.changed += 1;
                    Change::Changed
                }
            };
            if is_in_git(one, change) {
                group.in_git += 1 + change.within;
            } else if group.names.len() < NAMES_MAX {
                group
                    .names
                    .push((kind, shown_path(one, change.path.as_bytes())));
            }
        }
    }
    groups
}

/// Returns every change that no selection applies, with the reason.
pub fn refusals(all: &[LayerChanges]) -> impl Iterator<Item = (Vec<u8>, &str)> {
    all.iter().flat_map(|one| {
        let both = one.set.refused.iter().chain(&one.set.withheld);
        both.map(|refusal| {
            let path = shown_path(one, refusal.path.as_bytes());
            (path, refusal.why.as_str())
        })
    })
}

/// Returns the prefix of a layer's paths in a diff; empty for the workspace.
pub fn place_of(one: &LayerChanges) -> Vec<u8> {
    match one.layer.kind {
        LayerKind::Workspace => Vec::new(),
        LayerKind::Home | LayerKind::Cache | LayerKind::Repository => shown_path(one, b""),
    }
}

/// Returns a path as people know it: relative to the workspace within it, absolute elsewhere.
pub fn shown_path(one: &LayerChanges, path: &[u8]) -> Vec<u8> {
    match one.layer.kind {
        LayerKind::Workspace if path.is_empty() => b".".to_vec(),
        LayerKind::Workspace => path.to_vec(),
        LayerKind::Home | LayerKind::Cache | LayerKind::Repository => {
            [one.layer.inside.as_os_str().as_bytes(), b"/", path].concat()
        }
    }
}

/// Returns a run's record with its counts. Where the run's end was not observed, they are read from
/// its layers and written to the record. They stay unknown for a run that has not ended, and for
/// one that wrote straight to its workspace.
pub fn with_counts(state: &StateDir, record: &RunRecord) -> RunRecord {
    let mut record = record.clone();
    let is_apart = record.mode != WorkspaceMode::Live;
    let has_ended = matches!(record.state, RunState::Interrupted | RunState::Failed);
    if record.changes.is_none()
        && has_ended
        && is_apart
        && let Ok(all) = read(state, &record)
    {
        record.changes = Some(counts(&grouped(&all)));
        let counts = record.changes;
        // Where that is impossible, they are read again the next time.
        let _ = update_run(state, &record.run, Durability::Buffered, |kept| {
            kept.changes = kept.changes.or(counts);
        });
    }
    record
}

/// Returns the counts of a workspace's changes, for the run's record.
pub fn counts(groups: &Changes) -> ChangeCounts {
    let all = [&groups.workspace, &groups.control, &groups.ignored];
    let sum = |field: fn(&Group) -> u64| all.iter().map(|group| field(group)).sum();
    ChangeCounts {
        added: sum(|group| group.added),
        changed: sum(|group| group.changed),
        removed: sum(|group| group.removed),
    }
}

/// Converts typed paths to paths relative to the workspace.
///
/// # Errors
/// For a path that is not within the workspace.
pub fn selected_paths(record: &RunRecord, paths: &[PathBuf]) -> Result<Vec<RelativePath>, Failure> {
    let current = std::env::current_dir().doing("the current directory cannot be used")?;
    paths
        .iter()
        .map(|typed| {
            // Inside the workspace a path is meant from here, elsewhere from its top.
            let from_here = std::path::absolute(current.join(typed)).unwrap_or_default();
            let relative = match from_here.strip_prefix(&record.workspace) {
                Ok(relative) => relative.to_path_buf(),
                Err(_) if typed.is_relative() => typed.clone(),
                Err(_) => {
                    return Err(Failure::new(format!(
                        "{} is not within the workspace {}",
                        typed.display(),
                        record.workspace.display()
                    )));
                }
            };
            let plain: PathBuf = relative
                .components()
                .filter(|part| !matches!(part, std::path::Component::CurDir))
                .collect();
            RelativePath::new(plain.as_os_str().as_bytes()).doing("the path is not usable")
        })
        .collect()
}

/// Refuses paths at which a run has changed nothing, since the person probably meant others.
///
/// # Errors
/// With the first of them, and the change that was probably meant.
pub fn refuse_unchanged(
    state: &StateDir,
    record: &RunRecord,
    all: &[LayerChanges],
    paths: &[RelativePath],
) -> Result<(), Failure> {
    let mut all_journals = Vec::new();
    for layer in &record.layers {
        all_journals.extend(journals(state, record, layer)?);
    }
    let written = |path: &RelativePath| all_journals.iter().any(|one| has_written(one, path));
    let changed = || {
        all.iter().flat_map(|one| {
            let refused = one.set.refused.iter().chain(&one.set.withheld);
            let changes = one.set.changes.iter().map(|change| &change.path);
            changes.chain(refused.map(|refusal| &refusal.path))
        })
    };
    let is_change = |path: &RelativePath| changed().any(|change| change.starts_with(path));
    let mut unchanged = paths
        .iter()
        .filter(|path| !is_change(path) && !written(path));
    let Some(path) = unchanged.next() else {
        return Ok(());
    };
    let run = &record.run;
    let names: Vec<String> = changed().map(ToString::to_string).collect();
    let near = nearest(&path.to_string(), names.iter().map(String::as_str));
    let above = || changed().find(|change| path.starts_with(change));
    let near = near.map(str::to_owned);
    let near = near.or_else(|| above().map(ToString::to_string));
    let failure = Failure::new(format!("run {run} changed nothing at {path}"))
        .because("nothing was applied, of the other paths neither");
    let failure = match near {
        Some(near) => failure.advise(format!("atoll apply {run} {near}, if that was meant")),
        None => failure,
    };
    Err(failure.advise(format!("atoll diff {run} --stat lists the changes")))
}
