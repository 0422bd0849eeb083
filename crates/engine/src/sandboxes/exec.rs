//! A running exec of a sandbox.

use std::os::fd::BorrowedFd;

use atoll_model::{Ending, RunId};

use super::{NeedsApproval, Size};
use crate::control::{refused, unanswered};
use crate::failure::Failure;
use crate::run::refused::denied;
use crate::supervision::{Answer, ControlError, ExecConnection};

/// A running exec.
pub struct Exec {
    pub(super) run: RunId,
    pub(super) connection: ExecConnection,
    /// Set where it was refused for want of an approver's answer.
    pub(super) asked: Option<NeedsApproval>,
}

impl Exec {
    /// Returns what an approver is to be asked first, if it was refused for want of that alone;
    /// nothing was recorded then.
    #[must_use]
    pub fn needs_approval(&mut self) -> Option<NeedsApproval> {
        self.asked.take()
    }

    /// Returns the descriptor that becomes readable when there is news: its start, or its end.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.connection.descriptor()
    }

    /// Returns the number of its process in the sandbox, once it is executed, as that says.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.connection.pid()
    }

    /// Sends its process group a signal.
    pub fn signal(&self, number: u8) {
        self.connection.signal(number);
    }

    /// Sets the size of its terminal.
    pub fn resize(&self, size: Size) {
        self.connection.resize(size);
    }

    /// Takes the news that are there; returns the end once that has come.
    ///
    /// # Errors
    /// When it was refused, or its sandbox is gone.
    pub fn ended(&mut self) -> Result<Option<Ending>, Failure> {
        let answer = self.connection.answer();
        let answer = answer.map_err(|error| unanswered(&self.run, &error))?;
        answer.map(|answer| self.ending(answer)).transpose()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it was refused, or its sandbox is gone.
    pub fn wait(&mut self) -> Result<Ending, Failure> {
        let answer = self.connection.wait();
        let answer = answer.map_err(|error| unanswered(&self.run, &error))?;
        self.ending(answer)
    }

    fn ending(&mut self, answer: Answer) -> Result<Ending, Failure> {
        match answer {
            Answer::Exec(done) => Ok(done.ending),
            Answer::NeedsApproval { agreement, reasons } => {
                let failure = denied("policies ask about it", &reasons);
                self.asked = Some(NeedsApproval { agreement, reasons });
                Err(failure)
            }
            Answer::Denied(reasons) => Err(denied("policies deny it", &reasons)),
            Answer::Refused(declined) => Err(refused(&self.run, declined)),
            _ => Err(unanswered(&self.run, &ControlError::Strange)),
        }
    }
}
