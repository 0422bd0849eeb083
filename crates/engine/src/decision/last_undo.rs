//! The record of the last undo, written before it begins, so that the undo can be reverted itself,
//! also where it was interrupted.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use atoll_layer::{JournalState, journal_state};
use atoll_ledger::FileFault;
use atoll_model::WorkspaceMode;
use atoll_store::RunState;
use serde::{Deserialize, Serialize};

use crate::failure::{Doing, Failure};
use crate::undo_report::UndoReport;

/// The record's file, beside the journals.
const LAST_UNDO: &str = "last-undo.json";
const UNTOLD: &str = "the undo cannot be noted";

/// The record of an undo.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastUndo {
    /// The names of the journals, in the order in which they were undone.
    pub journals: Vec<String>,
    /// The state of the run before.
    pub state: Option<RunState>,
    /// The report of the undo, to be listed.
    #[serde(default)]
    pub met: UndoReport,
}

impl LastUndo {
    /// Creates the record of an undo of these journals. If it continues one that was interrupted
    /// between two journals, the journals undone by that are included.
    ///
    /// # Errors
    /// When the record of the one before, or a journal, cannot be read.
    pub fn following(
        directory: &Path,
        journals: &[PathBuf],
        state: Option<RunState>,
    ) -> Result<Self, Failure> {
        let fresh = Self {
            journals: names(journals),
            state,
            met: UndoReport::default(),
        };
        let Some(mut before) = Self::read(directory)? else {
            return Ok(fresh);
        };
        let is_of_it = fresh.journals.iter().all(|name| before.names_it(name));
        if !is_of_it || !before.is_cut_short(directory)? {
            return Ok(fresh);
        }
        let all = std::mem::take(&mut before.journals);
        let (rest, mut undone): (Vec<String>, Vec<String>) = all
            .into_iter()
            .partition(|name| fresh.journals.contains(name));
        undone.extend(rest);
        Ok(Self {
            journals: undone,
            ..before
        })
    }

    /// Creates the record of an undo of a live run, which is an apply with a journal of its own.
    ///
    /// # Errors
    /// As [`LastUndo::following`].
    pub fn of_live(directory: &Path, journal: &Path, state: RunState) -> Result<Self, Failure> {
        let before = Self::read(directory)?;
        let mut last = Self {
            journals: Vec::new(),
            state: Some(state),
            met: UndoReport::default(),
        };
        if let Some(before) = before {
            let in_effect = Self::state_in_effect(WorkspaceMode::Live);
            last.journals = names(&before.of_state(directory, in_effect)?);
            if !last.journals.is_empty() {
                last.state = before.state;
                last.met = before.met;
            }
        }
        last.journals.extend(names(&[journal.to_owned()]));
        Ok(last)
    }

    /// Returns the state of a journal whose undo is done. The journal is that of the apply that was
    /// undone, or, for a live run, that of the undo itself.
    pub fn state_in_effect(mode: WorkspaceMode) -> JournalState {
        match mode {
            WorkspaceMode::Live => JournalState::Done,
            WorkspaceMode::CopyOnWrite | WorkspaceMode::ReadOnly => JournalState::Undone,
        }
    }

    /// Adds the report of the undo's remainder.
    pub fn meeting(mut self, met: &UndoReport) -> Self {
        self.met = self.met.and(met.clone());
        self
    }

    /// Adds the paths restored without their owner or group, which are known only after the undo, and
    /// writes the record again.
    pub fn with_owners(mut self, met: &UndoReport, directory: &Path) -> Result<(), Failure> {
        if met.owners.is_empty() {
            return Ok(());
        }
        self.met.owners.clone_from(&met.owners);
        self.write(directory)
    }

    /// Writes the record to a directory of journals, before anything is undone. It is synced, since
    /// what happens next outlives a loss of power.
    pub fn write(&self, directory: &Path) -> Result<(), Failure> {
        let path = directory.join(LAST_UNDO);
        let new = path.with_extension("new");
        let text = serde_json::to_vec(self).doing(UNTOLD)?;
        let write = || -> io::Result<()> {
            fs::create_dir_all(directory)?;
            let mut file = File::create(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(directory)?.sync_all()
        };
        write()
            .map_err(FileFault::on("write", &path))
            .map_err(|fault| Failure::of_file(UNTOLD, &fault))
    }

    /// Reads the record in a directory of journals; none where nothing was undone there.
    pub fn read(directory: &Path) -> Result<Option<Self>, Failure> {
        let unread = "what was taken back last cannot be read";
        match fs::read(directory.join(LAST_UNDO)) {
            Ok(text) => serde_json::from_slice(&text).doing(unread).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).doing(unread),
        }
    }

    /// Returns whether some of its journals are undone and some are not: the undo, or its reversal,
    /// was interrupted between two journals. The journals decide this, not the run's record.
    pub fn is_cut_short(&self, directory: &Path) -> Result<bool, Failure> {
        let done = self.of_state(directory, JournalState::Done)?;
        let undone = self.of_state(directory, JournalState::Undone)?;
        Ok(!done.is_empty() && !undone.is_empty())
    }

    /// Returns its journals that are in this state now, in the order in which they were undone.
    pub fn of_state(&self, directory: &Path, state: JournalState) -> Result<Vec<PathBuf>, Failure> {
        let mut found = Vec::new();
        for name in &self.journals {
            let journal = directory.join(name);
            if journal_state(&journal).doing("the journal cannot be read")? == state {
                found.push(journal);
            }
        }
        Ok(found)
    }

    /// Returns whether all of these journals are its own.
    pub fn names_all(&self, journals: &[PathBuf]) -> bool {
        names(journals).iter().all(|name| self.names_it(name))
    }

    fn names_it(&self, name: &String) -> bool {
        self.journals.contains(name)
    }
}

/// Returns whether an apply or an undo was interrupted in a directory of journals: the files that
/// it has set aside are nowhere else.
///
/// # Errors
/// When a journal cannot be read.
pub fn is_half_done(directory: &Path) -> Result<bool, Failure> {
    let unread = "the journals cannot be read";
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries.doing(unread)?,
    };
    for entry in entries {
        let path = entry.doing(unread)?.path();
        if path.is_dir() && journal_state(&path).doing(unread)? == JournalState::Interrupted {
            return Ok(true);
        }
    }
    match LastUndo::read(directory)? {
        Some(last) => last.is_cut_short(directory),
        None => Ok(false),
    }
}

/// Returns the file names of journals.
fn names(journals: &[PathBuf]) -> Vec<String> {
    let names = journals.iter().filter_map(|journal| journal.file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}
