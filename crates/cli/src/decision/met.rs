//! The report of an undo: shown before anything is written and after it, and recorded, so that it
//! can be listed in full later.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use atoll_engine::failure::Failure;
use atoll_engine::printable::printable;
use atoll_layer::{Conflict, Outlook, Refusal, RelativePath, Stays, Undone};
use atoll_ledger::{host_text, read_host_text};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::output::Output;
use crate::render;

/// The most paths that are named; the rest are counted.
const NAMED_MAX: usize = 10;

/// A function that returns a path of a directory as people know it.
pub(crate) type Shown<'a> = &'a dyn Fn(&RelativePath) -> PathBuf;

/// The report of an undo, over one directory after the other.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct Met {
    /// The paths changed since the apply: only force overwrites or removes them, and then they are
    /// kept aside.
    pub changed: Vec<At>,
    /// The paths that not even force restores: nothing is written then.
    pub in_the_way: Vec<At>,
    /// The paths that stay as they are, even with force.
    pub skipped: Vec<At>,
    /// The directories that stay, with the files that others have put there.
    pub stays: Vec<Stay>,
}

/// A path with a reason, the path as [`host_text`] writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct At {
    path: Value,
    why: String,
}

/// A directory that stays, with the files in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stay {
    directory: Value,
    holds: Vec<Value>,
}

fn line_of(path: &Value) -> String {
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

fn lines(all: &[At]) -> Vec<String> {
    all.iter().map(At::line).collect()
}

impl Met {
    /// Adds the preview of an undo in one directory.
    pub fn foresee(&mut self, outlook: &Outlook, shown: Shown<'_>) {
        let is_skipped = |one: &&Conflict| outlook.skipped.iter().any(|it| it.path == one.path);
        let changed = outlook.conflicts.iter().filter(|one| !is_skipped(one));
        let changed: Vec<Conflict> = changed.cloned().collect();
        self.add_changed(&changed, shown);
        self.in_the_way.extend(At::all(&outlook.in_the_way, shown));
        self.skipped.extend(At::all(&outlook.skipped, shown));
        self.add_stays(&outlook.stays, shown);
    }

    /// Adds the result of an undo in one directory.
    pub fn add(&mut self, undone: Vec<Undone>, shown: Shown<'_>) {
        let mut all = (Vec::new(), Vec::new(), Vec::new());
        for one in undone {
            all.0.extend(one.aside);
            all.1.extend(one.skipped);
            all.2.extend(one.stays);
        }
        let (mut aside, mut skipped, stays) = all;
        for conflicts in [&mut aside, &mut skipped] {
            conflicts.sort_by(|left, right| left.path.cmp(&right.path));
            conflicts.dedup_by(|left, right| left.path == right.path);
        }
        self.add_changed(&aside, shown);
        self.skipped.extend(At::all(&skipped, shown));
        self.add_stays(&Stays::merged(stays), shown);
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

    /// Adds directories that stay.
    pub fn add_stays(&mut self, stays: &[Stays], shown: Shown<'_>) {
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

    /// Refuses an undo that cannot be done, or not without force; warns of the paths that force
    /// will overwrite.
    ///
    /// # Errors
    /// With the paths.
    pub fn settle(&self, command: &str, force: bool, output: &Output) -> Result<(), Failure> {
        let failure = || Failure::new("the changes could not be taken back; nothing was written");
        let named = |lines: &[String]| named(lines, command);
        if !self.in_the_way.is_empty() {
            return Err(failure()
                .because(named(&lines(&self.in_the_way)))
                .advise("move what is there elsewhere, then undo again"));
        }
        let kept = format!("what stands there is kept, and {command} --take-back brings it back");
        if !force {
            let all = [lines(&self.changed), lines(&self.skipped)].concat();
            return match all.is_empty() {
                true => Ok(()),
                false => Err(failure().because(named(&all)).advise(format!(
                    "{command} --force takes them back all the same; {kept}"
                ))),
            };
        }
        if !self.changed.is_empty() {
            let count = render::counted(self.changed.len() as u64, "path", "paths");
            output.warn(&format!(
                "{count} changed since, and will be as before; {kept}:\n{}",
                named(&lines(&self.changed))
            ));
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

    /// Warns of directories that stay since they hold others' files, of later changes that were
    /// overwritten, and of changes that were not undone.
    pub fn tell(&self, command: &str, output: &Output) {
        for one in &self.stays {
            let holds: Vec<String> = one.holds.iter().map(line_of).collect();
            output.warn(&format!(
                "{} stays, because it holds what was not written by Atoll:\n{}",
                line_of(&one.directory),
                named(&holds, command)
            ));
        }
        let counted = |all: &[At]| render::counted(all.len() as u64, "path", "paths");
        if !self.changed.is_empty() {
            let paths: Vec<String> = self.changed.iter().map(|one| line_of(&one.path)).collect();
            output.warn(&format!(
                "{} had changed since; {command} --take-back brings back what stood there:\n{}",
                counted(&self.changed),
                named(&paths, command)
            ));
        }
        match lines(&self.skipped).as_slice() {
            [] => {}
            [one] => output.warn(&format!("not taken back: {one}")),
            all => output.warn(&format!(
                "{} not taken back:\n{}",
                counted(&self.skipped),
                named(all, command)
            )),
        }
    }

    /// Prints the full report, as text or as JSON with further members.
    pub fn show(&self, is_json: bool, of: Value, output: &Output) {
        match (is_json, self.list()) {
            (true, _) => output.json(&self.json(of)),
            (false, text) if text.is_empty() => {
                output.say("Nothing changed since, and nothing is in the way.\n");
            }
            (false, text) => output.result(&text),
        }
    }

    fn list(&self) -> String {
        let mut text = String::new();
        for (what, all) in [
            (
                "changed since; only --force takes it back, and keeps it",
                &self.changed,
            ),
            ("in the way, with --force too", &self.in_the_way),
            ("not taken back, with --force neither", &self.skipped),
        ] {
            if !all.is_empty() {
                text.push_str(&format!("{what}:\n  {}\n", lines(all).join("\n  ")));
            }
        }
        for one in &self.stays {
            let holds: Vec<String> = one.holds.iter().map(line_of).collect();
            let directory = line_of(&one.directory);
            text.push_str(&format!(
                "{directory} stays, because it holds:\n  {}\n",
                holds.join("\n  ")
            ));
        }
        text
    }

    /// Returns the full report as JSON, with further members.
    pub fn json(&self, of: Value) -> Value {
        let mut all = json!(self);
        if let (Some(all), Value::Object(of)) = (all.as_object_mut(), of) {
            all.extend(of);
        }
        all
    }

    /// Returns the words that follow "taken back".
    pub fn but_for(&self) -> String {
        match self.skipped.len() as u64 {
            0 => String::new(),
            count => format!(", but for {}", render::counted(count, "path", "paths")),
        }
    }
}

/// Returns the first lines, the number of further ones, and the command that lists them.
fn named(lines: &[String], command: &str) -> String {
    let shown = lines.iter().take(NAMED_MAX).map(String::as_str);
    let mut text = shown.collect::<Vec<&str>>().join("\n");
    if let Some(more) = lines.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
        text.push_str(&format!("\nand {more} more: {command} --list names all"));
    }
    text
}
