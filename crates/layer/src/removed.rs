//! Entries that are gone in the tree after, or were changed before.

use std::time::SystemTime;

use crate::change::Source;
use crate::facts::{Facts, Kind, Stamp};
use crate::read::{Reader, Shape, list_with_kinds};
use crate::{Change, ChangeKind, Class, ReadError, RelativePath};

impl Reader {
    /// Records a removal. `said` is set when a whiteout records it.
    pub fn removed(
        &mut self,
        path: RelativePath,
        facts: &Facts,
        at: &RelativePath,
        said: bool,
    ) -> Result<(), ReadError> {
        // A whiteout says that the program removed it. Where it is only missing, it
        // can have come to the host later, and then it is none of the program's.
        let start = match self.shape {
            Shape::Overlay(_) if said => None,
            Shape::Overlay(_) => Some(self.since),
            Shape::Copy(finished) => Some(finished),
            Shape::Live(_) => None,
        };
        let changed = self.changed(at, &facts.stamp(), &path);
        if let Some(start) = start.filter(|start| changed > *start)
            && self.before.born(at).is_ok_and(|born| born.system() > start)
        {
            self.note(&path, "it came into being outside meanwhile, and stays");
            return Ok(());
        }
        let within = self.count_within(&path, facts, at)?;
        let before = self.describe(&self.before, at, facts);
        self.set.changes.push(Change {
            path,
            kind: ChangeKind::Removed,
            class: Class::Ordinary,
            reason: None,
            before,
            after: None,
            within,
            source: Source::After,
            is_older: false,
        });
        Ok(())
    }

    /// Returns the last change of an entry before by anybody but Atoll, to a change of this layer
    /// `at` a path: what Atoll has put back is the same only to what was based on it before.
    pub fn changed(&self, path: &RelativePath, now: &Stamp, at: &RelativePath) -> SystemTime {
        let based = match self.shape {
            Shape::Copy(finished) => Some(finished),
            // The tree below shows through until the program writes or removes something.
            Shape::Overlay(_) => {
                let entry = self.after.facts(at).ok().flatten();
                entry.map(|entry| entry.changed.system())
            }
            Shape::Live(_) => None,
        };
        self.put_back.changed(path, now, based).system()
    }

    /// Counts the entries beneath a directory before, and looks for control files.
    pub fn count_within(
        &mut self,
        path: &RelativePath,
        facts: &Facts,
        at: &RelativePath,
    ) -> Result<u64, ReadError> {
        let mut within = 0;
        if facts.kind != Kind::Directory {
            return Ok(0);
        }
        let mut directories = vec![at.clone()];
        while let Some(directory) = directories.pop() {
            let entries = match list_with_kinds(&self.before, &directory) {
                Ok(entries) => entries,
                Err(error) => {
                    let why = format!("{directory} in it cannot be read: {error}");
                    self.refuse(path, &why);
                    continue;
                }
            };
            self.look(entries.len() as u64)?;
            within += entries.len() as u64;
            for (entry, kind) in entries {
                let is_directory = kind == Kind::Directory;
                let rest = entry.beneath(at).unwrap_or_default();
                if let Some(reason) =
                    crate::control::reason(&path.concat(&rest), is_directory, false)
                {
                    self.control_within.entry(path.clone()).or_insert(reason);
                }
                if is_directory {
                    directories.push(entry);
                }
            }
        }
        Ok(within)
    }
}
