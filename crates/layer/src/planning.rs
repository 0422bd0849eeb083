//! Makes a plan from the selected changes and the current state of the host.

use std::collections::{HashMap, HashSet};

use crate::change::Source;
use crate::entries::{SET_GROUP_ID, Walker, layer_entry};
use crate::facts::{Facts, Kind, Stamp};
use crate::plan::{Act, Content, Entry, Node};
use crate::read::Reader;
use crate::tree::is_absence;
use crate::{
    AfterTree, Bounds, Change, ChangeKind, ChangeSet, Conflict, EntryKind, LayerPaths, Plan,
    PlanError, ReadError, Refusal, RelativePath, Selection, Step,
};

mod facts;
mod logs;
mod moved;

/// Plans the selected changes to the host directory. Nothing is written.
///
/// # Errors
/// [`PlanError::WrongMode`] in live mode, where the changes are there already.
pub fn plan_apply(
    paths: &LayerPaths,
    changes: &ChangeSet,
    selection: &Selection,
) -> Result<Plan, PlanError> {
    if let AfterTree::Live { .. } = paths.after {
        return Err(PlanError::WrongMode(
            "in live mode the changes are in the directory already",
        ));
    }
    let mut planner = Planner::new(paths, changes, selection)?;
    let wanted = planner.choose(changes);
    let tops = planner.group(&wanted);
    for (path, group) in tops {
        if !planner.is_parted_from_logs(&wanted, &path) {
            planner.plan_one(&path, &group)?;
        }
    }
    planner.refuse_faults(changes)?;
    planner.keep_what_may_have_moved(changes);
    // Permissions that a file has under several names would be other ones than planned to
    // a later step for another of its names.
    planner.plan.steps.sort_by_key(Step::is_of_shared_facts);
    let conflicts = &mut planner.plan.conflicts;
    conflicts.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(planner.plan)
}

const REPLACED: &str = "something else took its place while it was looked at";

pub(crate) struct Planner<'a> {
    pub paths: &'a LayerPaths,
    pub selection: &'a Selection,
    pub reader: Reader,
    pub root: Facts,
    pub walker: Walker,
    pub plan: Plan,
    /// Paths that reading refused.
    pub refused: HashSet<&'a RelativePath>,
    /// Directories that the layer makes, with their change.
    pub made: HashMap<&'a RelativePath, &'a Change>,
    /// The named paths at which only caches and ignored files changed.
    pub named_bulk: Vec<RelativePath>,
    /// Changes within the selection that are not applied for their class.
    pub apart: Vec<&'a Change>,
}

/// The state of a step's path on the host.
enum Now {
    Nothing,
    There(Facts),
    Unreachable(String),
}

impl<'a> Planner<'a> {
    pub fn new(
        paths: &'a LayerPaths,
        changes: &'a ChangeSet,
        selection: &'a Selection,
    ) -> Result<Self, PlanError> {
        let bounds = Bounds::default();
        let reader = Reader::open(paths, &bounds).map_err(only_tree)?;
        let (host, content) = match &paths.after {
            AfterTree::Overlay { upper, .. } => (&paths.before, upper),
            AfterTree::Copy { path, .. } => (&paths.before, path),
            AfterTree::Live { path, .. } => (path, &paths.before),
        };
        let work = match &paths.after {
            AfterTree::Overlay { work, .. } => Some(work.clone()),
            AfterTree::Copy { .. } | AfterTree::Live { .. } => None,
        };
        let tree = match paths.after {
            AfterTree::Overlay { .. } | AfterTree::Copy { .. } => &reader.before,
            AfterTree::Live { .. } => &reader.after,
        };
        let top = RelativePath::root();
        let root = tree
            .facts(&top)
            .and_then(|facts| facts.ok_or_else(|| std::io::Error::other("it is gone")))
            .map_err(|error| tree.error("cannot read", &top, error))?;
        let made = changes
            .changes
            .iter()
            .filter(|change| makes_directory(change));
        let named_bulk = selection.named_bulk(changes);
        Ok(Self {
            paths,
            selection,
            root,
            walker: Walker::new(bounds),
            plan: Plan {
                repository: changes.repository.clone(),
                steps: Vec::new(),
                conflicts: Vec::new(),
                held_control: Vec::new(),
                refused: changes.refused.clone(),
                left_out: selection.of_unread(&changes.unread, &named_bulk),
                unremoved: Vec::new(),
                root: host.clone(),
                root_identity: (root.device, root.inode),
                content: content.clone(),
                work,
                put_back: paths.put_back.clone(),
            },
            named_bulk,
            refused: changes
                .refused
                .iter()
                .map(|refusal| &refusal.path)
                .collect(),
            made: made.map(|change| (&change.path, change)).collect(),
            apart: Vec::new(),
            reader,
        })
    }

    /// Plans the step for one path that stands on its own.
    fn plan_one(&mut self, path: &RelativePath, group: &[&Change]) -> Result<(), PlanError> {
        let Some(top) = group.iter().find(|change| change.path == *path) else {
            return Ok(());
        };
        let now = match self.now(path) {
            Now::Unreachable(why) => {
                self.refuse(path, &why);
                return Ok(());
            }
            Now::Nothing => None,
            Now::There(facts) => Some(facts),
        };
        match &top.kind {
            ChangeKind::Added => self.plan_added(top, group, now),
            ChangeKind::Modified | ChangeKind::Type => self.plan_replaced(top, group, now),
            ChangeKind::Removed => self.plan_removed(top, now),
            ChangeKind::Mode
                if now
                    .as_ref()
                    .is_some_and(|now| self.reader.is_parted(top, now)) =>
            {
                self.plan_replaced(top, group, now)
            }
            ChangeKind::Mode => self.plan_facts(top, now),
            ChangeKind::Renamed { from } => self.plan_move(top, from, now),
        }
    }

    fn now(&self, path: &RelativePath) -> Now {
        let place = match self.reader.before.place_of(path) {
            Ok(place) => place,
            Err(error) if is_absence(&error) => {
                let why = "its directory is gone outside, or something else took its place";
                return Now::Unreachable(why.into());
            }
            Err(error) => {
                return Now::Unreachable(format!("its directory cannot be opened: {error}"));
            }
        };
        match crate::tree::facts_at(std::os::fd::AsFd::as_fd(&place), path.name()) {
            Ok(None) => Now::Nothing,
            Ok(Some(facts)) => Now::There(facts),
            Err(error) => Now::Unreachable(format!("it cannot be read: {error}")),
        }
    }

    fn plan_added(
        &mut self,
        top: &Change,
        group: &[&Change],
        now: Option<Facts>,
    ) -> Result<(), PlanError> {
        let new = self.new_entries(top, group, None);
        let Some(facts) = now else {
            // Moved here by the program, or removed outside? Where the directory on
            // the host did not change, it was the program.
            let above = top.path.parent().unwrap_or_default();
            let place = self.reader.before.facts(&above).ok().flatten();
            let touched = place.is_some_and(|place| place.changed_after(self.paths.since));
            let gone = top.is_older && touched;
            if !gone || !self.conflict(&top.path, "it seems to have been removed outside") {
                self.push(
                    &top.path,
                    Act::Replace {
                        old: Vec::new(),
                        new,
                    },
                );
            }
            return Ok(());
        };
        let is_directory = facts.kind == Kind::Directory;
        if is_directory && makes_directory(top) {
            return Ok(());
        }
        if self.is_identical(top, &facts) {
            return Ok(());
        }
        if self.conflict(&top.path, "it has come into being outside too") {
            return Ok(());
        }
        self.push_replacement(top, group, &facts)
    }

    fn plan_replaced(
        &mut self,
        top: &Change,
        group: &[&Change],
        now: Option<Facts>,
    ) -> Result<(), PlanError> {
        let Some(facts) = now else {
            if !self.conflict(&top.path, "it is gone outside") {
                let new = self.new_entries(top, group, None);
                self.push(
                    &top.path,
                    Act::Replace {
                        old: Vec::new(),
                        new,
                    },
                );
            }
            return Ok(());
        };
        let other_type = top.before.as_ref().is_some_and(|before| {
            matches!(before.kind, EntryKind::Directory) != (facts.kind == Kind::Directory)
        });
        if other_type && self.conflict(&top.path, "it is of another type outside now") {
            return Ok(());
        }
        if facts.kind != Kind::Directory
            && self.is_changed(&top.path, &facts)
            && self.conflict(&top.path, "it changed outside meanwhile")
        {
            return Ok(());
        }
        self.push_replacement(top, group, &facts)
    }

    fn push_replacement(
        &mut self,
        top: &Change,
        group: &[&Change],
        facts: &Facts,
    ) -> Result<(), PlanError> {
        if let Some(old) = self.old_entries(&top.path)? {
            if !old.first().is_some_and(|old| old.is_of(facts)) {
                self.refuse(&top.path, REPLACED);
                return Ok(());
            }
            let new = self.new_entries(top, group, Some((facts, &old)));
            // What is there goes only for a replacement that can be read as a whole.
            if new.len() == group.len() {
                self.push(&top.path, Act::Replace { old, new });
            } else if !self.plan.left_out.contains(&top.path) {
                self.refuse(&top.path, "something in it is left out");
            }
        }
        Ok(())
    }

    fn plan_removed(&mut self, top: &Change, now: Option<Facts>) -> Result<(), PlanError> {
        if now.is_none() {
            return Ok(());
        }
        if let Some(old) = self.old_entries(&top.path)? {
            self.push(
                &top.path,
                Act::Replace {
                    old,
                    new: Vec::new(),
                },
            );
        }
        Ok(())
    }

    /// Returns the entries that would be replaced or removed, after checking that all of them are
    /// as they were when the run began and can be kept.
    fn old_entries(&mut self, path: &RelativePath) -> Result<Option<Vec<Entry>>, PlanError> {
        let old = match self.walker.host(&self.reader.before, path) {
            Ok(old) => old,
            Err(PlanError::Tree(error)) => {
                self.refuse(path, &format!("it cannot be kept for undoing: {error}"));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let newer = old.iter().find(|entry| {
            let at = path.concat(&entry.beneath);
            let changed = |stamp: Stamp| self.reader.changed(&at, &stamp, path);
            entry.stamp.map(changed) > Some(self.paths.since)
        });
        if let Some(entry) = newer {
            let why = match entry.beneath.is_root() {
                true => "it changed outside meanwhile".to_owned(),
                false => format!("{} in it changed outside meanwhile", entry.beneath),
            };
            if self.conflict(path, &why) {
                return Ok(None);
            }
        }
        if let Some(special) = old.iter().find(|entry| entry.node == Node::Special) {
            let why = format!(
                "{} is a socket, FIFO or device, which could not be brought back",
                path.concat(&special.beneath)
            );
            if self.conflict(path, &why) {
                return Ok(None);
            }
        }
        Ok(Some(old))
    }

    fn plan_move(
        &mut self,
        top: &Change,
        from: &RelativePath,
        now: Option<Facts>,
    ) -> Result<(), PlanError> {
        if now.is_some() {
            self.refuse(
                &top.path,
                "something is there outside now, the directory cannot move",
            );
            return Ok(());
        }
        match self.reader.before.facts(from) {
            Ok(Some(facts)) if facts.kind == Kind::Directory => {
                let from = from.clone();
                let directory = facts.stamp();
                self.push(&top.path, Act::Rename { from, directory });
            }
            _ => self.refuse(&top.path, "the directory to move is gone outside"),
        }
        Ok(())
    }

    /// Returns the complete new content of a step, parents first.
    fn new_entries(
        &mut self,
        top: &Change,
        group: &[&Change],
        replaced: Option<(&Facts, &[Entry])>,
    ) -> Vec<Entry> {
        let place = top.path.parent().unwrap_or_default();
        let above = self.reader.before.facts(&place).ok().flatten();
        let passes_on = |facts: &Facts| facts.mode & SET_GROUP_ID != 0;
        let inherited = above.filter(passes_on).map(|facts| facts.gid);
        let mut sorted: Vec<&&Change> = group.iter().collect();
        sorted.sort_by(|left, right| left.path.cmp(&right.path));
        let mut entries: Vec<Entry> = Vec::with_capacity(sorted.len());
        let mut left_out: HashSet<RelativePath> = HashSet::new();
        for change in sorted {
            let is_top = change.path == top.path;
            let old = replaced.filter(|_| is_top);
            let facts = old.map(|(facts, _)| facts);
            let missing = !left_out.is_empty()
                && change.path.ancestors().any(|path| left_out.contains(&path));
            let made = match missing {
                true => Err("a directory above it is refused".to_owned()),
                false => layer_entry(
                    &self.reader,
                    &self.root,
                    change,
                    &top.path,
                    facts,
                    inherited,
                ),
            };
            match made {
                Ok(mut entry) => {
                    self.name_set_group_id(change, &entry);
                    self.keep_access_list(&mut entry, old.and_then(|(_, old)| old.first()));
                    if let Source::Before(from) = &change.source
                        && let Node::File { content, .. } = &mut entry.node
                    {
                        let (number, from) = (self.walker.number(), from.clone());
                        *content = Content::Kept { number, from };
                    }
                    entries.push(entry);
                }
                Err(why) => {
                    left_out.insert(change.path.clone());
                    self.refuse(&change.path, &why);
                }
            }
        }
        entries
    }

    /// Names a directory whose set-group-ID bit, which the program gave, is not applied.
    fn name_set_group_id(&mut self, change: &Change, entry: &Entry) {
        let given = change.after.as_ref().map(|after| after.mode);
        let is_given = given.is_some_and(|mode| mode & SET_GROUP_ID != 0);
        if is_given && entry.node == Node::Directory && entry.mode & SET_GROUP_ID == 0 {
            self.plan.refused.push(Refusal {
                path: change.path.clone(),
                why: "its set-group-ID bit would give later files its group".to_owned(),
            });
        }
    }

    /// Keeps the host's access control list of a replaced file; a layer's is never applied.
    fn keep_access_list(&self, entry: &mut Entry, old: Option<&Entry>) {
        if let (Some(old), Node::File { .. }) = (old, &entry.node) {
            let lists = old.xattrs.iter().filter(|(name, _)| is_list(&name.0));
            entry.xattrs.extend(lists.cloned());
        }
    }

    /// Returns whether anybody but Atoll has changed an entry since the run began.
    fn is_changed(&self, path: &RelativePath, now: &Facts) -> bool {
        self.reader.changed(path, &now.stamp(), path) > self.paths.since
    }

    /// Records a conflict, unless everything is to be overwritten. Returns whether to drop the
    /// step.
    fn conflict(&mut self, path: &RelativePath, why: &str) -> bool {
        if !self.selection.force {
            self.plan.conflicts.push(Conflict {
                path: path.clone(),
                why: why.to_owned(),
            });
        }
        !self.selection.force
    }

    pub fn refuse(&mut self, path: &RelativePath, why: &str) {
        self.plan.left_out.insert(path.clone());
        self.plan.refused.push(Refusal {
            path: path.clone(),
            why: why.to_owned(),
        });
    }

    pub fn push(&mut self, path: &RelativePath, act: Act) {
        let nothing = matches!(&act, Act::Replace { old, new } if old.is_empty() && new.is_empty());
        if !nothing {
            self.plan.steps.push(Step {
                path: path.clone(),
                act,
            });
        }
    }
}

fn is_list(name: &[u8]) -> bool {
    name.starts_with(b"system.posix_acl_")
}

pub(crate) fn makes_directory(change: &Change) -> bool {
    let directory = change
        .after
        .as_ref()
        .is_some_and(|facts| facts.kind == EntryKind::Directory);
    directory && matches!(change.kind, ChangeKind::Added | ChangeKind::Type)
}

pub(crate) fn only_tree(error: ReadError) -> PlanError {
    match error {
        ReadError::Tree(error) => PlanError::Tree(error),
        ReadError::TooManyEntries { entries_max } => PlanError::TooManyEntries { entries_max },
        ReadError::Output(error) => {
            PlanError::Tree(crate::TreeError::new("cannot write", "", error))
        }
    }
}
