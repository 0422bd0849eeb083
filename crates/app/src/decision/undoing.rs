//! Taking back what was applied: what it would meet is told before, what stays and what is kept
//! aside after. An undo can be taken back itself.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_layer::{
    ApplyError, Conflict, JournalState, Outlook, RelativePath, Stays, Undone, journal_state,
    take_undo_back, undo, undo_outlook,
};
use atoll_model::WorkspaceMode;
use atoll_store::{LayerHow, LayerKind, LayerRecord, RunRecord, RunState, host_text, lock_run};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Work;
use super::others::Others;
use crate::changes;
use crate::escape::printable;
use crate::failure::{Doing, Failure};
use crate::output::Output;
use crate::render;

/// How many paths are named before the rest is counted.
const NAMED_MAX: usize = 10;
/// What the last undo of a run took back, beside the journals.
const LAST_UNDO: &str = "last-undo.json";
const UNTOLD: &str = "the undo cannot be noted";

/// What an undo took back.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LastUndo {
    /// The names of the journals, in the order in which they were taken back.
    pub journals: Vec<String>,
    /// What the run was before.
    pub state: Option<RunState>,
}

impl LastUndo {
    /// Notes it in a directory of journals, before anything is taken back.
    pub fn write(&self, directory: &Path) -> Result<(), Failure> {
        let path = directory.join(LAST_UNDO);
        let new = path.with_extension("new");
        let text = serde_json::to_vec(self).doing(UNTOLD)?;
        fs::write(&new, text).doing(UNTOLD)?;
        fs::rename(&new, &path).doing(UNTOLD)
    }

    /// The one of a directory of journals; none where nothing was taken back there.
    pub fn read(directory: &Path) -> Result<Option<Self>, Failure> {
        let unread = "what was taken back last cannot be read";
        match fs::read(directory.join(LAST_UNDO)) {
            Ok(text) => serde_json::from_slice(&text).doing(unread).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).doing(unread),
        }
    }

    fn names_it(&self, journal: &Path) -> bool {
        let mut names = self.journals.iter();
        names.any(|name| journal.file_name().is_some_and(|own| own == name.as_str()))
    }

    /// The names of journals.
    pub fn names<'a>(journals: impl IntoIterator<Item = &'a PathBuf>) -> Vec<String> {
        let names = journals
            .into_iter()
            .filter_map(|journal| journal.file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    }
}

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
fn shown_in(layer: &LayerRecord, path: &RelativePath) -> String {
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
        let others = Others::of(changes::read(self.state, record));
        if record.mode == WorkspaceMode::Live {
            self.undo_live(record, force)?;
        } else {
            self.undo_applied(record, force)?;
        }
        self.update_since(record, RunState::Undone, &others)
    }

    /// Puts the checkpoint of a live run back, which is an apply of its own.
    fn undo_live(&self, record: &RunRecord, force: bool) -> Result<(), Failure> {
        let known = self.journals(record);
        self.restore(record, force)?;
        let is_new = |one: &(LayerRecord, PathBuf)| !known.contains(one);
        let new = self.journals(record).into_iter().filter(is_new);
        let new: Vec<PathBuf> = new.map(|(_, journal)| journal).collect();
        let last = LastUndo {
            journals: LastUndo::names(&new),
            state: Some(record.state),
        };
        match new.is_empty() {
            true => Ok(()),
            false => last.write(&changes::journals_of(self.state, record)),
        }
    }

    /// What was written by this is no change that somebody else made: the run can be applied
    /// again. Where others' changes stand beside it, it is told from them no more, and `--force`
    /// has to say so.
    fn update_since(
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
        let all = done.iter().flat_map(|(_, journals)| journals);
        let last = LastUndo {
            journals: LastUndo::names(all),
            state: Some(record.state),
        };
        last.write(&changes::journals_of(self.state, record))?;
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

    /// Something changed between the look at all and the last of it: what was taken back
    /// already is put back, so that nothing is half done.
    fn put_back(&self, record: &RunRecord, before: &[(&LayerRecord, &PathBuf)]) {
        for (layer, journal) in before.iter().rev() {
            if let Err(failure) = self.take_one_back(record, layer, journal) {
                let why = failure.why.unwrap_or(failure.what);
                self.output.warn(&format!(
                    "what was taken back already could not be put back: {why}"
                ));
            }
        }
    }

    fn take_one_back(
        &self,
        record: &RunRecord,
        layer: &LayerRecord,
        journal: &Path,
    ) -> Result<(), Failure> {
        // Of a live run the undo itself was an apply, that of its checkpoint.
        let applied = match record.mode {
            WorkspaceMode::Live => undo(journal, false).map(|undone| undone.applied),
            WorkspaceMode::CopyOnWrite | WorkspaceMode::ReadOnly => take_undo_back(journal),
        };
        let applied = applied
            .map_err(|error| Failure::new("the undo could not be taken back").because(&error))?;
        let what = json!({ "layer": layer.name, "entries": applied.entries });
        self.record(record, "undo.taken-back", what)
    }

    /// Takes the last undo of a run back, with all that stood there before it.
    ///
    /// # Errors
    /// Where nothing was taken back, or something changed or was applied since.
    pub fn take_undo_back(&self, record: &mut RunRecord) -> Result<(), Failure> {
        let _lock = lock_run(self.state, &record.run).doing("the run is in use")?;
        self.refuse_interrupted(record)?;
        let run = &record.run;
        let last = LastUndo::read(&changes::journals_of(self.state, record))?;
        let last = last.filter(|last| self.is_taken_back(record, last));
        let Some(last) = last else {
            return Err(Failure::new(format!("nothing of run {run} is taken back"))
                .because("there is no undo to take back")
                .advise(format!("atoll why {run} tells what became of it")));
        };
        let others = Others::of(changes::read(self.state, record));
        for (layer, journal) in self.undone_of(record, &last) {
            self.take_one_back(record, &layer, &journal)?;
        }
        self.update_since(record, last.state.unwrap_or(RunState::Applied), &others)
    }

    /// Whether there is an undo to take back. An undo that was killed may have come to its end
    /// without a word in the record: of runs with layers its journals tell, while nothing else is
    /// applied.
    fn is_taken_back(&self, record: &RunRecord, last: &LastUndo) -> bool {
        let is_applied = |(_, journal): &(LayerRecord, PathBuf)| {
            !last.names_it(journal) && matches!(journal_state(journal), Ok(JournalState::Done))
        };
        record.state == RunState::Undone
            || record.mode != WorkspaceMode::Live
                && !self.undone_of(record, last).is_empty()
                && !self.journals(record).iter().any(is_applied)
    }

    /// The journals that the last undo has taken back, the last one first. Those that were put
    /// back already, before one that could not be, are not among them.
    fn undone_of(&self, record: &RunRecord, last: &LastUndo) -> Vec<(LayerRecord, PathBuf)> {
        let all = self.journals(record);
        let named = |name: &String| {
            let mut all = all.iter();
            all.find(|(_, journal)| journal.file_name().is_some_and(|own| own == name.as_str()))
        };
        let is_undone = |one: &&(LayerRecord, PathBuf)| {
            record.mode == WorkspaceMode::Live
                || matches!(journal_state(&one.1), Ok(JournalState::Undone))
        };
        let names = last.journals.iter().rev();
        names.filter_map(named).filter(is_undone).cloned().collect()
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
