//! What the last undo took back: noted before it begins, so that it can be taken back itself, also
//! where it was cut short.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use atoll_layer::{JournalState, journal_state};
use atoll_model::WorkspaceMode;
use atoll_store::RunState;
use serde::{Deserialize, Serialize};

use super::met::Met;
use crate::failure::{Doing, Failure};

/// The note, beside the journals.
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
    /// What it met, to be listed.
    #[serde(default)]
    pub met: Met,
}

impl LastUndo {
    /// The note of an undo of these journals. Where it goes on with one that was cut short between
    /// two journals, what that has taken back is part of it.
    ///
    /// # Errors
    /// When the note of the one before, or a journal, cannot be read.
    pub fn following(
        directory: &Path,
        journals: &[PathBuf],
        state: Option<RunState>,
    ) -> Result<Self, Failure> {
        let fresh = Self {
            journals: names(journals),
            state,
            met: Met::default(),
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

    /// The note of an undo of a live run, which is an apply with a journal of its own.
    ///
    /// # Errors
    /// As [`LastUndo::following`].
    pub fn of_live(directory: &Path, journal: &Path, state: RunState) -> Result<Self, Failure> {
        let before = Self::read(directory)?;
        let mut last = Self {
            journals: Vec::new(),
            state: Some(state),
            met: Met::default(),
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

    /// How a journal stands of which an undo is done: that of the apply that was taken back, or of
    /// a live run that of the undo itself.
    pub fn state_in_effect(mode: WorkspaceMode) -> JournalState {
        match mode {
            WorkspaceMode::Live => JournalState::Done,
            WorkspaceMode::CopyOnWrite | WorkspaceMode::ReadOnly => JournalState::Undone,
        }
    }

    /// The same, with what the rest of it meets.
    pub fn meeting(mut self, met: &Met) -> Self {
        self.met = self.met.and(met.clone());
        self
    }

    /// Notes it in a directory of journals, before anything is taken back: what happens then
    /// outlives a loss of power, and so has the note to.
    pub fn write(&self, directory: &Path) -> Result<(), Failure> {
        let path = directory.join(LAST_UNDO);
        let new = path.with_extension("new");
        let text = serde_json::to_vec(self).doing(UNTOLD)?;
        fs::create_dir_all(directory).doing(UNTOLD)?;
        let mut file = File::create(&new).doing(UNTOLD)?;
        file.write_all(&text).doing(UNTOLD)?;
        file.sync_all().doing(UNTOLD)?;
        fs::rename(&new, &path).doing(UNTOLD)?;
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.doing(UNTOLD)
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

    /// Whether a part of it is taken back, and a part is not: it, or the taking back of it, was
    /// cut short between two journals. What the journals say counts, not what a record does.
    pub fn is_cut_short(&self, directory: &Path) -> Result<bool, Failure> {
        let done = self.of_state(directory, JournalState::Done)?;
        let undone = self.of_state(directory, JournalState::Undone)?;
        Ok(!done.is_empty() && !undone.is_empty())
    }

    /// Its journals that are in a state now, in the order in which they were taken back.
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

    /// Whether all of these are its own.
    pub fn names_all(&self, journals: &[PathBuf]) -> bool {
        names(journals).iter().all(|name| self.names_it(name))
    }

    fn names_it(&self, name: &String) -> bool {
        self.journals.contains(name)
    }
}

/// Whether an apply or an undo was cut short in a directory of journals: what it has set aside is
/// nowhere else.
///
/// # Errors
/// When a journal cannot be read.
pub(crate) fn is_half_done(directory: &Path) -> Result<bool, Failure> {
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

/// The names of journals.
fn names(journals: &[PathBuf]) -> Vec<String> {
    let names = journals.iter().filter_map(|journal| journal.file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}
