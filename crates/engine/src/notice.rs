//! The notices of a use case while it goes on: data, which a surface words and shows.

use std::path::PathBuf;

use crate::undo_report::UndoReport;

/// Something that is no error but should be known.
#[derive(Clone, Debug)]
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

/// A surface that takes notices.
pub trait Notices {
    /// Takes a notice.
    fn notice(&self, notice: Notice);

    /// Takes a sentence.
    fn warn(&self, text: String) {
        self.notice(Notice::Text(text));
    }
}
