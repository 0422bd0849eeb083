//! The report of an undo: shown before anything is written and after it, and recorded, so that it
//! can be listed in full later.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use atoll_layer::{Conflict, Refusal, RelativePath, RetainedDirectory, UndoPreview, Undone};
use atoll_ledger::{host_text, read_host_text};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::printable::printable;

/// The most paths that are named; the rest are counted.
const NAMED_MAX: usize = 10;

/// A function that returns a path of a directory as people know it.
pub type Shown<'a> = &'a dyn Fn(&RelativePath) -> PathBuf;

/// The report of an undo, over one directory after the other.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct UndoReport {
    /// The paths changed since the apply: only force overwrites or removes them, and then they are
    /// kept aside.
    pub changed: Vec<At>,
    /// The paths that not even force restores: nothing is written then.
    pub in_the_way: Vec<At>,
    /// The paths that stay as they are, even with force.
    pub skipped: Vec<At>,
    /// The directories that stay, with the files that others have put there.
    pub stays: Vec<Stay>,
    /// The paths restored without their owner or group.
    pub owners: Vec<At>,
}

/// A path with a reason, the path as [`host_text`] writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct At {
    /// The path.
    pub path: Value,
    /// The reason.
    pub why: String,
}

/// A directory that stays, with the files in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stay {
    /// The directory.
    pub directory: Value,
    /// The files in it.
    pub holds: Vec<Value>,
}

/// Returns a path of the report as one line.
#[must_use]
pub fn line_of(path: &Value) -> String {
    let path = read_host_text(path).unwrap_or_default();
    printable(path.as_bytes())
}

impl At {
    fn line(&self) -> String {
        format!("{}: {}", line_of(&self.path), self.why)
    }

    fn all(conflicts: &[Conflict], shown: Shown<'_>) -> Vec<Self> {
        let each = conflicts.iter().map(|one| Self {
            path: host_text(shown(&one.path)),
            why: one.why.clone(),
        });
        each.collect()
    }
}

/// Returns a line for each of these paths.
#[must_use]
pub fn lines(all: &[At]) -> Vec<String> {
    all.iter().map(At::line).collect()
}

/// Returns a line for each path that was restored without its owner or group.
#[must_use]
pub fn owner_lines(all: &[At]) -> Vec<String> {
    let line = |one: &At| format!("{} {}", line_of(&one.path), one.why);
    all.iter().map(line).collect()
}

impl UndoReport {
    /// Adds the preview of an undo in one directory.
    pub fn foresee(&mut self, preview: &UndoPreview, shown: Shown<'_>) {
        let is_skipped = |one: &&Conflict| preview.skipped.iter().any(|it| it.path == one.path);
        let changed = preview.conflicts.iter().filter(|one| !is_skipped(one));
        let changed: Vec<Conflict> = changed.cloned().collect();
        self.add_changed(&changed, shown);
        self.in_the_way.extend(At::all(&preview.in_the_way, shown));
        self.skipped.extend(At::all(&preview.skipped, shown));
        self.add_stays(&preview.stays, shown);
    }

    /// Adds the result of an undo in one directory.
    pub fn add(&mut self, undone: Vec<Undone>, shown: Shown<'_>) {
        let mut all = (Vec::new(), Vec::new(), Vec::new());
        let mut owners = Vec::new();
        for one in undone {
            owners.extend(one.owners);
            all.0.extend(one.aside);
            all.1.extend(one.skipped);
            all.2.extend(one.stays);
        }
        let (mut aside, mut skipped, stays) = all;
        for conflicts in [&mut aside, &mut skipped, &mut owners] {
            conflicts.sort_by(|left, right| left.path.cmp(&right.path));
            conflicts.dedup_by(|left, right| left.path == right.path);
        }
        self.add_changed(&aside, shown);
        self.skipped.extend(At::all(&skipped, shown));
        self.add_owners(&owners, shown);
        self.add_stays(&RetainedDirectory::merged(stays), shown);
    }

    /// Adds the changes that only force undoes.
    pub fn add_changed(&mut self, conflicts: &[Conflict], shown: Shown<'_>) {
        self.changed.extend(At::all(conflicts, shown));
    }

    /// Adds the changes that are not undone.
    pub fn add_refused(&mut self, refused: &[Refusal], shown: Shown<'_>) {
        self.skipped.extend(refused.iter().map(|one| At {
            path: host_text(shown(&one.path)),
            why: one.why.clone(),
        }));
    }

    /// Adds the paths restored without their owner or group.
    pub fn add_owners(&mut self, owners: &[Conflict], shown: Shown<'_>) {
        self.owners.extend(At::all(owners, shown));
    }

    /// Adds directories that stay.
    pub fn add_stays(&mut self, stays: &[RetainedDirectory], shown: Shown<'_>) {
        self.stays.extend(stays.iter().map(|one| {
            Stay {
                directory: host_text(shown(&one.directory)),
                holds: one
                    .holds
                    .iter()
                    .map(|path| host_text(shown(path)))
                    .collect(),
            }
        }));
    }

    /// Merges the reports of two parts of one undo, with each path once.
    pub fn and(mut self, other: Self) -> Self {
        for (all, more) in [
            (&mut self.changed, other.changed),
            (&mut self.in_the_way, other.in_the_way),
            (&mut self.skipped, other.skipped),
            (&mut self.owners, other.owners),
        ] {
            all.extend(more);
            let mut known = BTreeSet::new();
            all.retain(|one| known.insert(one.path.to_string()));
        }
        self.stays.extend(other.stays);
        let mut known = BTreeSet::new();
        let is_new = |one: &Stay| known.insert(one.directory.to_string());
        self.stays.retain(is_new);
        self
    }

    /// Refuses an undo that cannot be done, or not without force.
    ///
    /// # Errors
    /// With the paths.
    pub fn settle(&self, command: &str, force: bool) -> Result<(), Failure> {
        let failure = || Failure::new("the changes could not be taken back; nothing was written");
        let named = |lines: &[String]| named(lines, command);
        if !self.in_the_way.is_empty() {
            return Err(failure()
                .because(named(&lines(&self.in_the_way)))
                .advise("move what is there elsewhere, then undo again"));
        }
        if !force {
            let all = [lines(&self.changed), lines(&self.skipped)].concat();
            return match all.is_empty() {
                true => Ok(()),
                false => Err(failure().because(named(&all)).advise(format!(
                    "{command} --force takes them back all the same; {}",
                    kept(command)
                ))),
            };
        }
        Ok(())
    }

    /// Refuses to revert an undo over later changes: no option forces that.
    ///
    /// # Errors
    /// With the paths.
    pub fn settle_taking_back(&self, command: &str) -> Result<(), Failure> {
        let all = [&self.changed, &self.skipped, &self.in_the_way].map(|all| lines(all));
        let all = all.concat();
        if all.is_empty() {
            return Ok(());
        }
        let failure = Failure::new("the undo could not be taken back; nothing was written");
        let named = all.join("\n");
        Err(failure.because(named).advise(format!(
            "move what is there elsewhere, then {command} --take-back again"
        )))
    }

    /// Returns the full report as JSON, with further members.
    pub fn json(&self, of: Value) -> Value {
        let mut all = json!(self);
        if let (Some(all), Value::Object(of)) = (all.as_object_mut(), of) {
            all.extend(of);
        }
        all
    }
}

/// Tells where the content is that an undo overwrites.
#[must_use]
pub fn kept(command: &str) -> String {
    format!("what stands there is kept, and {command} --take-back brings it back")
}

/// Returns the first lines, the number of further ones, and the command that lists them.
#[must_use]
pub fn named(lines: &[String], command: &str) -> String {
    let shown = lines.iter().take(NAMED_MAX).map(String::as_str);
    let mut text = shown.collect::<Vec<&str>>().join("\n");
    if let Some(more) = lines.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
        text.push_str(&format!("\nand {more} more: {command} --list names all"));
    }
    text
}
