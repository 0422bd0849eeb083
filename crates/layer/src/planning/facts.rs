//! Permissions, owners and attributes that change alone.

use super::{Planner, REPLACED, is_list};
use crate::entries::{SET_GROUP_ID, layer_entry};
use crate::facts::{Facts, Kind, Time, is_note};
use crate::plan::{Act, Content};
use crate::{Change, PlanError};

impl Planner<'_> {
    pub(super) fn plan_facts(&mut self, top: &Change, now: Option<Facts>) -> Result<(), PlanError> {
        let Some(facts) = now else {
            self.conflict(&top.path, "it is gone outside");
            return Ok(());
        };
        let before = top.before.as_ref();
        if before.is_some_and(|before| !before.kind.is(facts.kind)) {
            self.refuse(&top.path, "it is of another type outside now");
            return Ok(());
        }
        let born = self.reader.before.born_and_changed(&top.path);
        let born = born.ok().and_then(|(born, _)| born).map(Time::system);
        if facts.kind == Kind::Directory && born.is_some_and(|born| born > self.paths.since) {
            // Made outside too, with permissions of its own.
            return Ok(());
        }
        // A directory's time of change moves on with its entries, too. What its permissions were
        // when the run began is noted nowhere: where somebody may have changed them, that stands.
        let why = match facts.kind {
            Kind::Directory => "its permissions, or what is in it, changed outside meanwhile",
            _ => "it changed outside meanwhile",
        };
        if self.is_changed(&top.path, &facts) && self.conflict(&top.path, why) {
            return Ok(());
        }
        let old = match self
            .walker
            .one(&self.reader.before, &top.path, Content::Untouched)
        {
            Ok(old) => old,
            Err(error) => {
                self.refuse(&top.path, &error.to_string());
                return Ok(());
            }
        };
        // The second look may have met something else than the first.
        if !old.is_of(&facts) {
            self.refuse(&top.path, REPLACED);
            return Ok(());
        }
        match layer_entry(&self.reader, &self.root, top, &top.path, Some(&facts), None) {
            Ok(new) if !new.is_of_the_kind_of(&old) => self.refuse(&top.path, REPLACED),
            Ok(mut new) => {
                new.node = old.node.clone();
                let kept = match facts.kind {
                    // It loses the bit where the program took it away, and gets none.
                    Kind::Directory => {
                        let given = top.after.as_ref().map(|after| after.mode);
                        facts.mode & (given.unwrap_or(SET_GROUP_ID) & SET_GROUP_ID | 0o4000)
                    }
                    _ => facts.mode & 0o7000,
                };
                new.mode |= kept;
                new.listed_mode = new.listed_mode.map(|mode| mode | kept);
                self.name_set_group_id(top, &new);
                let lists = old.xattrs.iter().filter(|(name, _)| is_list(&name.0));
                new.xattrs.extend(lists.cloned());
                new.modified = old.modified;
                // Overlayfs hides these from the program, so it has not removed them.
                let notes = old.xattrs.iter().filter(|(name, _)| is_note(&name.0));
                new.xattrs.extend(notes.cloned());
                let (old, new) = (Box::new(old), Box::new(new));
                self.push(&top.path, Act::Facts { old, new });
            }
            Err(why) => self.refuse(&top.path, &why),
        }
        Ok(())
    }
}
