//! The keys of a session's calls, and its mark in the state.

use atoll_engine::failure::Failure;
use atoll_engine::tools::ToolRequest;
use atoll_model::ToolName;

use super::{Session, failed, locked};
use crate::answer::{Answer, Refusal};
use crate::keys::{Again, Taken, UNDO_KEY};
use crate::runner::Runner;

/// Refuses a key by which an undo would take a call for its own.
pub(super) fn refuse_undo(key: Option<&str>) -> Result<(), Refusal> {
    match key.is_some_and(|key| key.starts_with(UNDO_KEY)) {
        false => Ok(()),
        true => {
            let why = format!("its key begins with {UNDO_KEY:?}, as those of an undo do");
            Err(Refusal::Invalid(vec![why]))
        }
    }
}

impl<R: Runner> Session<R> {
    /// Marks the session as this process's, before its first call.
    pub(super) fn open_calls(&self) -> Result<(), Failure> {
        let mut open = locked(&self.open);
        if open.is_none() {
            *open = Some(self.engine.open_calls(&self.id)?);
        }
        Ok(())
    }

    pub(super) fn take_key(
        &self,
        key: &str,
        request: &ToolRequest<'_>,
    ) -> Result<Taken<'_>, Again> {
        let keys = self.tools.keys();
        keys.take(&self.engine, &request.caller(), key, request.digest())
    }

    /// Answers a call that its key has made before.
    pub(super) fn again(
        &self,
        again: Again,
        number: u32,
        tool: &ToolName,
    ) -> Result<Answer, Refusal> {
        let (why, answered) = match again {
            Again::Failed(failure) => return Err(failed(failure)),
            Again::Refused(why) => (why.clone(), Err(Refusal::Invalid(vec![why]))),
            Again::Answered(mut answer) => {
                let why = format!(
                    "This is the answer of call {}, which had this key.",
                    answer.number
                );
                answer.notes.push(why.clone());
                (why, Ok(*answer))
            }
        };
        let recorded = self.engine.reject_tool(&self.id, number, tool, &[why]);
        recorded.map_err(failed)?;
        answered
    }
}
