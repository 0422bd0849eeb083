//! Compares one entry before with one entry after, and refuses what a hostile program must not
//! bring into the host directory.

use crate::access_list::{access, mode_without};
use crate::change::Source;
use crate::control;
use crate::facts::{Facts, Kind, Xattrs};
use crate::overlay;
use crate::read::{Found, Reader, Shape, Visit, list_with_kinds, xattrs_at};
use crate::tree::Tree;
use crate::unreadable::is_locked;
use crate::{
    Change, ChangeKind, Class, EntryFacts, EntryKind, ReadError, Refusal, RelativePath, content,
};

/// The bits that give a file its owner's or group's rights.
const SET_ID: u32 = 0o6000;

impl Reader {
    pub fn compare(
        &mut self,
        visit: &Visit,
        path: RelativePath,
        before: Option<(Facts, RelativePath)>,
        mut after: Found,
        visits: &mut Vec<Visit>,
    ) -> Result<(), ReadError> {
        let notes = match self.xattrs_of(&path, &after) {
            Ok(notes) => notes,
            Err(error) => {
                self.refuse_unreadable(&path, &error);
                return Ok(());
            }
        };
        self.set_list_aside(&path, before.as_ref(), &mut after, &notes);
        if after.facts.kind == Kind::Directory {
            return self.compare_directory(visit, path, before, after, &notes, visits);
        }
        let kind = match &before {
            None => ChangeKind::Added,
            Some((facts, _)) if facts.kind != after.facts.kind => ChangeKind::Type,
            Some((facts, at)) => match self.difference(&path, facts, at, &after, &notes) {
                Some(kind) => kind,
                None => return Ok(()),
            },
        };
        self.record(path, kind, before, after, &notes)
    }

    /// Drops a layer's access control list: what the group has without it is what counts, unless
    /// the host's entry has a list, whose mask the mode then sets.
    fn set_list_aside(
        &mut self,
        path: &RelativePath,
        before: Option<&(Facts, RelativePath)>,
        after: &mut Found,
        notes: &Xattrs,
    ) {
        let Some(list) = access(&notes.lists) else {
            return;
        };
        if matches!(self.shape, Shape::Live(_)) {
            return;
        }
        let bytes_max = self.bounds.xattr_bytes_max;
        let old = before
            .and_then(|(facts, at)| xattrs_at(&self.before, at, facts.kind, None, bytes_max).ok());
        let old = old.unwrap_or_default().lists;
        if old != notes.lists {
            self.note(path, "its access control list is not taken over");
        }
        if access(&old).is_none() {
            after.facts.mode = mode_without(list, after.facts.mode);
        }
    }

    fn compare_directory(
        &mut self,
        visit: &Visit,
        path: RelativePath,
        before: Option<(Facts, RelativePath)>,
        after: Found,
        notes: &Xattrs,
        visits: &mut Vec<Visit>,
    ) -> Result<(), ReadError> {
        let lower = match self.lower_of(visit, &path, &after, notes) {
            Ok(lower) => lower,
            Err(why) => {
                self.refuse(&path, why);
                return Ok(());
            }
        };
        let was_directory = before
            .as_ref()
            .filter(|(facts, _)| facts.kind == Kind::Directory)
            .map(|(_, at)| at.clone());
        if before.is_none()
            && let Some(from) = &lower
            && self.is_pure_move(visit, &path, from, &after, notes)?
        {
            return self.record_move(path, from.clone(), after);
        }
        let upper = after.source == Source::After;
        visits.push(Visit {
            path: path.clone(),
            before: was_directory.clone(),
            upper,
            lower,
            in_place: self.is_in_place(&path, &after.facts),
        });
        let kind = match (&before, was_directory) {
            (None, _) => ChangeKind::Added,
            (Some(_), None) => ChangeKind::Type,
            (Some((facts, at)), Some(_)) => {
                match self.difference(&path, facts, at, &after, notes) {
                    Some(kind) => kind,
                    None => return Ok(()),
                }
            }
        };
        self.record(path, kind, before, after, notes)
    }

    /// Returns whether a directory only moved: nothing in it changed, nothing took its old place,
    /// and no control file moved with it.
    fn is_pure_move(
        &mut self,
        visit: &Visit,
        path: &RelativePath,
        from: &RelativePath,
        after: &Found,
        notes: &Xattrs,
    ) -> Result<bool, ReadError> {
        let Shape::Overlay(flavour) = self.shape else {
            return Ok(false);
        };
        let known = visit.lower.is_some()
            && visit.lower == visit.before
            && visit.before.as_ref() == Some(&visit.path);
        if after.source != Source::After || !known || self.moved.contains(from) {
            return Ok(false);
        }
        let bytes_max = self.bounds.xattr_bytes_max;
        let left = overlay::left_its_place(&self.after, from, flavour, bytes_max);
        let Ok(Some(facts)) = self.before.facts(from) else {
            return Ok(false);
        };
        // Whatever remains in the upper directory is a change, a second move or a
        // refusal: then each entry is looked at on its own.
        let untouched = self.after.names(path).is_ok_and(|names| names.is_empty());
        if !left.unwrap_or(false) || !untouched {
            return Ok(false);
        }
        if self.difference(path, &facts, from, after, notes).is_some()
            || self.is_in_git(path)
            || self.is_in_git(from)
        {
            return Ok(false);
        }
        self.moves_as_it_was(path, from)
    }

    /// Returns whether a path lies in a git directory, whatever that is called: entries that move
    /// there or away from there are compared one by one.
    fn is_in_git(&self, path: &RelativePath) -> bool {
        let trees = [&self.before, &self.after];
        path.ancestors()
            .chain([RelativePath::root()])
            .any(|directory| {
                control::is_git_directory(|name| {
                    let part = directory.join(name).unwrap_or_default();
                    trees.iter().any(|tree| tree.may_have(&part))
                })
            })
    }

    fn moves_as_it_was(
        &mut self,
        path: &RelativePath,
        from: &RelativePath,
    ) -> Result<bool, ReadError> {
        let mut directories = vec![(from.clone(), true)];
        while let Some((directory, is_top)) = directories.pop() {
            if is_top
                && (control::reason(path, true, false).is_some()
                    || control::reason(from, true, false).is_some())
            {
                return Ok(false);
            }
            let Ok(entries) = list_with_kinds(&self.before, &directory) else {
                return Ok(false);
            };
            self.look(entries.len() as u64)?;
            for (entry, kind) in entries {
                let is_directory = kind == Kind::Directory;
                let rest = entry.beneath(from).unwrap_or_default();
                let control = control::reason(&entry, is_directory, false)
                    .or_else(|| control::reason(&path.concat(&rest), is_directory, false));
                if control.is_some() || (kind == Kind::File && self.may_be_indexed(&entry)) {
                    return Ok(false);
                }
                if is_directory {
                    directories.push((entry, false));
                }
            }
        }
        Ok(true)
    }

    fn record_move(
        &mut self,
        path: RelativePath,
        from: RelativePath,
        after: Found,
    ) -> Result<(), ReadError> {
        let before = self.before.facts(&from).ok().flatten();
        let within = match &before {
            Some(facts) => self.count_within(&path, facts, &from)?,
            None => 0,
        };
        self.moved.insert(from.clone());
        let described = before.and_then(|facts| self.describe(&self.before, &from, &facts));
        self.set.changes.push(Change {
            kind: ChangeKind::Renamed { from },
            class: Class::Ordinary,
            reason: None,
            before: described.clone(),
            after: described,
            within,
            source: after.source,
            is_older: false,
            path,
        });
        Ok(())
    }

    /// Returns the difference between two entries of the same type, if any.
    fn difference(
        &mut self,
        path: &RelativePath,
        before: &Facts,
        at: &RelativePath,
        after: &Found,
        notes: &Xattrs,
    ) -> Option<ChangeKind> {
        let content_differs = match after.facts.kind {
            Kind::Directory => false,
            Kind::Symlink => {
                let new = self
                    .place_of(path, &after.source)
                    .and_then(|(tree, after_path)| tree.link_target(after_path))
                    .ok();
                new.is_none() || self.before.link_target(at).ok() != new
            }
            Kind::File => self.file_differs(path, before, at, after),
            // Special files: the same kind is still refused, unless it is the very
            // same one, which only a tree that shows through can offer.
            _ => {
                return (after.source != Source::Before(at.clone()))
                    .then_some(ChangeKind::Modified);
            }
        };
        if content_differs {
            return Some(ChangeKind::Modified);
        }
        let bytes_max = self.bounds.xattr_bytes_max;
        let facts_differ = match after.facts.kind {
            // A link's own permissions mean nothing.
            Kind::Symlink => false,
            _ => {
                let old = xattrs_at(&self.before, at, before.kind, None, bytes_max);
                let (mut old, mut new) = (old.unwrap_or_default(), notes.clone());
                old.own.sort_by(|left, right| left.0.0.cmp(&right.0.0));
                new.own.sort_by(|left, right| left.0.0.cmp(&right.0.0));
                // In live mode a list that the program gave is in force already.
                let lists_differ = matches!(self.shape, Shape::Live(_)) && old.lists != new.lists;
                before.mode != after.facts.mode || old.own != new.own || lists_differ
            }
        };
        let owner_differs = self.owners_tell() && self.host_owner(after) != Some(before.uid);
        (facts_differ || owner_differs).then_some(ChangeKind::Mode)
    }

    fn file_differs(
        &self,
        path: &RelativePath,
        before: &Facts,
        at: &RelativePath,
        after: &Found,
    ) -> bool {
        if before.bytes != after.facts.bytes {
            return true;
        }
        let compared = self.before.file(at).and_then(|(old, _)| {
            let (tree, after_path) = self.place_of(path, &after.source)?;
            let (new, _) = tree.file(after_path)?;
            content::equal(&old, &new, before.bytes)
        });
        // What cannot be compared counts as changed: a person sees it then.
        !compared.unwrap_or(false)
    }

    /// Returns whether another owner is a change. An ordinary user's copies are all the user's own,
    /// whosever the originals are; and nobody but root gives files away.
    fn owners_tell(&self) -> bool {
        match self.shape {
            Shape::Overlay(_) => true,
            Shape::Copy(_) | Shape::Live(_) => rustix::process::geteuid().is_root(),
        }
    }

    /// Returns the entry's owner on the host; entries of the tree before are not shifted.
    pub fn host_owner(&self, found: &Found) -> Option<u32> {
        match found.source {
            Source::After | Source::Indexed(_) => self.ids.to_host(found.facts.uid),
            Source::Before(_) => Some(found.facts.uid),
        }
    }

    /// Returns the reason why an entry must not be applied, if any.
    pub fn objection(
        &self,
        found: &Found,
        before: Option<&Facts>,
        notes: &Xattrs,
    ) -> Option<String> {
        let facts = &found.facts;
        match facts.kind {
            Kind::File | Kind::Directory | Kind::Symlink => {}
            _ => return Some(format!("it is a {}", facts.kind_name())),
        }
        if facts.kind == Kind::File && facts.mode & SET_ID != 0 {
            return Some("it would run with its owner's or group's rights (setuid, setgid)".into());
        }
        if notes.capability.is_some() {
            return Some("it carries file capabilities".into());
        }
        if !notes.foreign.is_empty() {
            return Some("it carries privileged extended attributes".into());
        }
        if notes.overlay("metacopy").is_some() {
            return Some("it is a metadata-only copy, which is never used here".into());
        }
        let owner = self.host_owner(found);
        let known = owner == Some(self.owner) || owner == before.map(|facts| facts.uid);
        if owner.is_none() || !known {
            return Some("foreign owner: neither the workspace's nor the replaced file's".into());
        }
        None
    }

    fn record(
        &mut self,
        path: RelativePath,
        kind: ChangeKind,
        before: Option<(Facts, RelativePath)>,
        after: Found,
        notes: &Xattrs,
    ) -> Result<(), ReadError> {
        let old = before.as_ref().map(|(facts, _)| *facts);
        if let Some(why) = self.objection(&after, old.as_ref(), notes) {
            self.refuse(&path, &why);
            // In live mode it is in the directory already: restoring removes it.
            if !matches!(self.shape, Shape::Live(_)) {
                return Ok(());
            }
        }
        let is_live = matches!(self.shape, Shape::Live(_));
        if !is_live && is_locked(after.facts.kind, after.facts.mode) {
            self.set.withheld.push(Refusal {
                path: path.clone(),
                why: unreadable(after.facts.mode),
            });
        }
        if !notes.posing.is_empty() {
            self.note(
                &path,
                "extended attributes that pose as overlayfs' own are left out",
            );
        }
        let described = self
            .place_of(&path, &after.source)
            .ok()
            .and_then(|(tree, at)| self.describe(tree, at, &after.facts));
        if let Some(EntryFacts {
            kind: EntryKind::Symlink { target },
            ..
        }) = &described
            && leads_out(&path, target)
        {
            self.note(&path, "the symbolic link leads out of the directory");
        }
        let within = match &before {
            Some((facts, at)) if kind == ChangeKind::Type => self.count_within(&path, facts, at)?,
            _ => 0,
        };
        let is_older = self.is_older(&path, &after, notes);
        self.set.changes.push(Change {
            is_older,
            kind,
            class: Class::Ordinary,
            reason: None,
            before: before.and_then(|(facts, at)| self.describe(&self.before, &at, &facts)),
            after: described,
            within,
            source: after.source,
            path,
        });
        Ok(())
    }

    /// Returns whether an apparent addition was there when the run began: then the program moved it
    /// here, or somebody removed it on the host. For a directory it is known which.
    fn is_older(&self, path: &RelativePath, after: &Found, notes: &Xattrs) -> bool {
        let is_directory = after.facts.kind == Kind::Directory;
        match self.shape {
            Shape::Overlay(_) => {
                after.source == Source::After
                    && notes.overlay("origin").is_some()
                    && notes.overlay("redirect").is_none()
            }
            Shape::Copy(_) | Shape::Live(_) if is_directory => self.is_in_place(path, &after.facts),
            Shape::Copy(finished) | Shape::Live(finished) => {
                let born = self.after.born(path);
                born.is_ok_and(|born| born.system() <= finished)
            }
        }
    }

    pub fn describe(&self, tree: &Tree, at: &RelativePath, facts: &Facts) -> Option<EntryFacts> {
        let kind = match facts.kind {
            Kind::Directory => EntryKind::Directory,
            Kind::Symlink => EntryKind::Symlink {
                target: tree.link_target(at).ok()?,
            },
            Kind::File => EntryKind::File,
            _ => EntryKind::Special,
        };
        Some(EntryFacts {
            kind,
            mode: facts.mode,
            bytes: facts.bytes,
            modified: facts.modified.system(),
        })
    }
}

/// Returns the reason why an entry of this mode is not applied for an ordinary user: once it is on
/// the host, it could be neither kept for undoing nor checked.
pub(crate) fn unreadable(mode: u32) -> String {
    format!(
        "its permissions ({mode:04o}) keep its owner from reading it, so it could not be undone"
    )
}

/// Returns whether a link's target, read as text, ends outside of the tree.
fn leads_out(path: &RelativePath, target: &[u8]) -> bool {
    if target.starts_with(b"/") {
        return true;
    }
    let mut depth = path.depth() as i64 - 1;
    for name in target.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => depth -= 1,
            _ => depth += 1,
        }
        if depth < 0 {
            return true;
        }
    }
    false
}
