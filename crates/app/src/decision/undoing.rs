//! Taking back what was applied: what it would meet is told before, what stays and what is kept
//! aside after. An undo can be taken back itself.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_layer::{
    ApplyError, Conflict, JournalState, Outlook, RelativePath, Stays, Undone, journal_state, undo,
    undo_outlook,
};
use atoll_model::WorkspaceMode;
use atoll_store::{LayerHow, LayerKind, LayerRecord, RunRecord, RunState, host_text, lock_run};
use serde_json::json;

use super::Work;
use super::last_undo::LastUndo;
use super::others::Others;
use crate::changes;
use crate::escape::printable;
use crate::failure::{Doing, Failure};
use crate::output::Output;
use crate::render;

/// How many paths are named before the rest is counted.
const NAMED_MAX: usize = 10;

/// What undoing would meet in one directory after the other, in lines for people.
#[derive(Default)]
pub(crate) struct Foreseen {
    pub conflicts: Vec<String>,
    pub in_the_way: Vec<String>,
}

impl Foreseen {
    /// Adds what was found in one directory, whose paths are shown like this.
    pub fn add(&mut self, outlook: &Outlook, shown: &dyn Fn(&RelativePath) -> String) {
        self.add_conflicts(&outlook.conflicts, shown);
        let line = |one: &Conflict| format!("{}: {}", shown(&one.path), one.why);
        self.in_the_way.extend(outlook.in_the_way.iter().map(line));
    }

    /// Adds what only force takes back.
    pub fn add_conflicts(
        &mut self,
        conflicts: &[Conflict],
        shown: &dyn Fn(&RelativePath) -> String,
    ) {
        let line = |one: &Conflict| format!("{}: {}", shown(&one.path), one.why);
        self.conflicts.extend(conflicts.iter().map(line));
    }

    /// Refuses what cannot be done, or not without force; what force will overwrite is told.
    ///
    /// # Errors
    /// With the paths.
    pub fn settle(&self, command: &str, force: bool, output: &Output) -> Result<(), Failure> {
        let failure = || Failure::new("the changes could not be taken back; nothing was written");
        if !self.in_the_way.is_empty() {
            return Err(failure()
                .because(named(&self.in_the_way))
                .advise("move what is there elsewhere, then undo again"));
        }
        let kept = format!("what stands there is kept, and {command} --take-back brings it back");
        match (self.conflicts.as_slice(), force) {
            ([], _) => Ok(()),
            (lines, true) => {
                let count = render::counted(lines.len() as u64, "path", "paths");
                output.warn(&format!(
                    "{count} changed since, and will be as before; {kept}:\n{}",
                    named(lines)
                ));
                Ok(())
            }
            (lines, false) => Err(failure().because(named(lines)).advise(format!(
                "{command} --force takes them back all the same; {kept}"
            ))),
        }
    }

    /// Refuses to take an undo back over what changed since: nothing says to do that all the same.
    ///
    /// # Errors
    /// With the paths.
    pub fn settle_taking_back(&self, command: &str) -> Result<(), Failure> {
        let all = [self.conflicts.as_slice(), &self.in_the_way].concat();
        if all.is_empty() {
            return Ok(());
        }
        let failure = Failure::new("the undo could not be taken back; nothing was written");
        Err(failure.because(named(&all)).advise(format!(
            "move what is there elsewhere, then {command} --take-back again"
        )))
    }
}

/// The first lines, and how many more there are.
fn named<Line: AsRef<str>>(lines: &[Line]) -> String {
    let shown = lines.iter().take(NAMED_MAX).map(AsRef::as_ref);
    let mut text = shown.collect::<Vec<&str>>().join("\n");
    if let Some(more) = lines.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
        text.push_str(&format!("\nand {more} more"));
    }
    text
}

/// Tells what became of directories that hold others' files, and of what had changed.
pub(crate) fn tell_undone(
    command: &str,
    undone: Vec<Undone>,
    shown: &dyn Fn(&RelativePath) -> String,
    output: &Output,
) {
    let mut stays = Vec::new();
    let mut aside: Vec<RelativePath> = Vec::new();
    for one in undone {
        stays.extend(one.stays);
        aside.extend(one.aside);
    }
    for one in Stays::merged(stays) {
        let holds: Vec<String> = one.holds.iter().map(shown).collect();
        output.warn(&format!(
            "{} stays, because it holds what was not written by Atoll:\n{}",
            shown(&one.directory),
            named(&holds)
        ));
    }
    aside.sort();
    aside.dedup();
    if !aside.is_empty() {
        let names: Vec<String> = aside.iter().map(shown).collect();
        output.warn(&format!(
            "{} had changed since; {command} --take-back brings back what stood there:\n{}",
            render::counted(names.len() as u64, "path", "paths"),
            named(&names)
        ));
    }
}

/// A path of a layer as people know it.
pub(super) fn shown_in(layer: &LayerRecord, path: &RelativePath) -> String {
    if layer.kind == LayerKind::Workspace {
        return printable(path.as_bytes());
    }
    let whole = [layer.inside.as_os_str().as_bytes(), b"/", path.as_bytes()];
    printable(&whole.concat())
}

/// The journals of one layer, in the order in which they are undone.
type Done = (LayerRecord, Vec<PathBuf>);

impl Work<'_> {
    /// Takes back what was applied, or what a live run wrote.
    ///
    /// # Errors
    /// Conflicts with later changes on the host; nothing was applied.
    pub fn undo(&self, record: &mut RunRecord, force: bool) -> Result<(), Failure> {
        let _lock = lock_run(self.state, &record.run).doing("the run is in use")?;
        self.settle_undo(record)?;
        let others = Others::of(changes::read(self.state, record));
        if record.mode == WorkspaceMode::Live {
            self.restore(record, force)?;
        } else {
            self.undo_applied(record, force)?;
        }
        self.update_since(record, RunState::Undone, &others)
    }

    /// What was written by this is no change that somebody else made: the run can be applied
    /// again. Where others' changes stand beside it, it is told from them no more, and `--force`
    /// has to say so.
    pub(super) fn update_since(
        &self,
        record: &mut RunRecord,
        state: RunState,
        others: &Others,
    ) -> Result<(), Failure> {
        if others.stand() {
            return self.update(record, |kept| kept.state = state);
        }
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let stamp = (
            i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
            now.subsec_nanos(),
        );
        self.update(record, |kept| {
            kept.state = state;
            for layer in &mut kept.layers {
                if !matches!(layer.how, LayerHow::Live) {
                    layer.since = stamp;
                }
            }
        })
    }

    fn undo_applied(&self, record: &RunRecord, force: bool) -> Result<(), Failure> {
        self.refuse_interrupted(record)?;
        let done = self.done(record)?;
        if done.is_empty() {
            return Err(
                Failure::new(format!("nothing of run {} was applied", record.run))
                    .because("there is nothing to take back")
                    .advise(format!("atoll why {} tells what became of it", record.run)),
            );
        }
        let command = format!("atoll undo {}", record.run);
        let mut foreseen = Foreseen::default();
        // All is looked at before anything is taken back: a refusal halfway would leave the
        // directory in a state that never was.
        for (layer, journals) in &done {
            let outlook = undo_outlook(journals).map_err(|error| not_undone(record, error))?;
            foreseen.add(&outlook, &|path| shown_in(layer, path));
        }
        foreseen.settle(&command, force, self.output)?;
        let all: Vec<PathBuf> = (done.iter().flat_map(|(_, journals)| journals.clone())).collect();
        let directory = changes::journals_of(self.state, record);
        LastUndo::following(&directory, &all, Some(record.state))?.write(&directory)?;
        let mut before: Vec<(&LayerRecord, &PathBuf)> = Vec::new();
        let mut told = Vec::new();
        for (layer, journals) in &done {
            let mut of_layer = Vec::new();
            for journal in journals {
                match self.undo_one(record, layer, journal, force) {
                    Ok(undone) => of_layer.push(undone),
                    Err(failure) => {
                        self.put_back(record, &before);
                        return Err(failure);
                    }
                }
                before.push((layer, journal));
            }
            told.push((layer, of_layer));
        }
        for (layer, undone) in told {
            let shown = |path: &RelativePath| shown_in(layer, path);
            tell_undone(&command, undone, &shown, self.output);
        }
        Ok(())
    }

    /// What is applied of each layer; of each the newest journal first, since a later apply may
    /// have written over an earlier one.
    fn done(&self, record: &RunRecord) -> Result<Vec<Done>, Failure> {
        let mut done: Vec<Done> = Vec::new();
        for layer in record.layers.iter().rev() {
            let mut of_layer = Vec::new();
            for journal in changes::journals(self.state, record, layer)
                .into_iter()
                .rev()
            {
                match journal_state(&journal).doing("the journal cannot be read")? {
                    JournalState::None | JournalState::Undone | JournalState::Interrupted => {}
                    JournalState::Done => of_layer.push(journal),
                }
            }
            if !of_layer.is_empty() {
                done.push((layer.clone(), of_layer));
            }
        }
        Ok(done)
    }

    fn undo_one(
        &self,
        record: &RunRecord,
        layer: &LayerRecord,
        journal: &Path,
        force: bool,
    ) -> Result<Undone, Failure> {
        let what = json!({ "layer": layer.name, "directory": host_text(&layer.host) });
        self.record(record, "undo.started", what)?;
        let undone = undo(journal, force).map_err(|error| not_undone(record, error))?;
        let what = json!({ "layer": layer.name, "entries": undone.applied.entries });
        self.record(record, "undo.finished", what)?;
        Ok(undone)
    }
}

fn not_undone(record: &RunRecord, error: ApplyError) -> Failure {
    let force = format!(
        "atoll undo {} --force takes them back all the same",
        record.run
    );
    let failure = Failure::new("the changes could not be taken back").because(&error);
    match error {
        ApplyError::Conflicts(_) => failure.advise(force),
        _ => failure,
    }
}
