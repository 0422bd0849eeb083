//! The files of notes by which calls of tools are taken back, one for each session: what they hold is
//! for whoever makes the calls. They go with the session's sealed content.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_ledger::private::PrivateDirectory;
use atoll_ledger::{Seals, StateDir};
use atoll_model::RunId;

use crate::failure::{Doing, Failure};

/// Their directory, in the state directory.
pub const UNDO: &str = "undo";
const END: &str = ".jsonl";
const UNREAD: &str = "the notes for undoing sessions cannot be read";

/// The notes of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoNotes {
    /// The session of tools.
    pub session: RunId,
    /// Their size, bytes.
    pub bytes: u64,
    /// The time of the last one.
    pub changed: SystemTime,
}

/// Returns the file of a session's notes.
#[must_use]
pub fn path(state: &Path, session: &RunId) -> PathBuf {
    state.join(UNDO).join(format!("{session}{END}"))
}

/// Returns the notes of all sessions.
///
/// # Errors
/// When they cannot be read.
pub fn list(state: &StateDir) -> Result<Vec<UndoNotes>, Failure> {
    let entries = match fs::read_dir(state.path().join(UNDO)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.doing(UNREAD)?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry.doing(UNREAD)?;
        let name = entry.file_name();
        let session = name.to_str().and_then(|name| name.strip_suffix(END));
        let Some(session) = session.and_then(|session| RunId::parse(session).ok()) else {
            continue;
        };
        // Of the entry itself: no link is followed.
        let facts = entry.metadata().doing(UNREAD)?;
        all.push(UndoNotes {
            session,
            bytes: facts.len(),
            changed: facts.modified().doing(UNREAD)?,
        });
    }
    all.sort_by(|one, other| one.session.as_str().cmp(other.session.as_str()));
    Ok(all)
}

/// Removes the notes of a session: its calls cannot be taken back any more. No undo is under way
/// meanwhile.
///
/// # Errors
/// When one is, or they cannot be removed.
pub fn remove(state: &StateDir, session: &RunId) -> Result<(), Failure> {
    let failed = format!("the notes for undoing session {session} cannot be removed");
    let Some(place) = PrivateDirectory::of_state(state, UNDO, false).doing(&failed)? else {
        return Ok(());
    };
    let _alone = place.lock().doing(&failed)?;
    place.remove(&format!("{session}{END}")).doing(&failed)?;
    Ok(())
}

/// Removes the notes of sessions whose sealed content was shredded; returns the number of them.
pub(crate) fn remove_shredded(state: &StateDir, seals: &Seals) -> Result<u64, Failure> {
    let mut count = 0;
    for one in list(state)? {
        if seals.is_shredded(&one.session) {
            remove(state, &one.session)?;
            count += 1;
        }
    }
    Ok(count)
}
