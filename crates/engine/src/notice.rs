//! The notices of a use case while it goes on: data, which a surface words and shows.

use std::path::PathBuf;

use atoll_model::{RunId, SessionName};

use crate::failure::Failure;
use crate::undo_report::UndoReport;

/// Something that is no error but should be known.
#[derive(Debug)]
pub enum Notice {
    /// A sentence.
    Text(String),
    /// A sentence that is less than a warning.
    Remark(String),
    /// Others than its owner can read a file that holds a secret.
    Open {
        /// The purpose of the secret.
        what: String,
        /// The file.
        path: PathBuf,
    },
    /// The command held the value of this credential, whose placeholder is in its place.
    Replaced(String),
    /// A run was stopped.
    Stopped {
        /// The run.
        run: RunId,
        /// The way in which it ended.
        how: StopEnd,
    },
    /// No run goes on.
    NoneGoesOn,
    /// No run of this session goes on.
    NoneOfSession(SessionName),
    /// No run of this profile goes on.
    NoneOfProfile {
        /// The profile.
        profile: String,
        /// The profiles whose runs do.
        others: Vec<String>,
    },
    /// One of several operations failed.
    Failed(Box<Failure>),
    /// There was nothing to apply.
    NothingToApply,
    /// An undo by force will overwrite the changed paths of this report.
    Overwriting {
        /// The report.
        report: Box<UndoReport>,
        /// The command that undoes.
        command: String,
    },
    /// An undo is done, with this report.
    Undone {
        /// The report.
        report: Box<UndoReport>,
        /// The command that undoes.
        command: String,
    },
}

/// The way in which a stopped run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopEnd {
    /// Ended as told.
    Told,
    /// Killed, since it did not listen yet.
    KilledDeaf,
    /// Killed, since it did not answer.
    KilledSilent,
    /// Ended by itself before.
    ByItself,
}

/// A surface that takes notices.
pub trait Notices {
    /// Takes a notice.
    fn notice(&self, notice: Notice);

    /// Takes a sentence.
    fn warn(&self, text: String) {
        self.notice(Notice::Text(text));
    }
}
