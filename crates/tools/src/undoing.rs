//! The way back of a call, noted before its effect and completed by its result.

use atoll_engine::artifacts::kept_by;
use atoll_engine::checkpoints::{Checkpoints, Taking};
use atoll_engine::failure::Failure;
use atoll_engine::sandboxes::Engine;
use atoll_engine::tools::Called;
use atoll_model::{RunId, ToolEnd, ToolUndo};
use serde_json::Value;

use crate::answer::Answer;
use crate::shadow::ShadowEnd;
use crate::tool::Tool;
use crate::way_back::{Noted, append};

/// A call of which the way back is noted.
pub(crate) struct Going<'a> {
    engine: &'a Engine,
    session: &'a RunId,
    tool: &'a Tool,
    noted: Noted,
}

/// Notes the way back of a call before its effect; `None` where it has none to note.
pub(crate) fn before<'a>(
    engine: &'a Engine,
    session: &'a RunId,
    tool: &'a Tool,
    call: u32,
) -> Result<Option<Going<'a>>, Failure> {
    match tool.way_back.kind(tool.effect) {
        ToolUndo::Nothing | ToolUndo::None => return Ok(None),
        ToolUndo::Restore | ToolUndo::Inverse => {}
    }
    let (state, ledger) = kept_by(engine);
    let taken = match tool.way_back.checkpoint.as_slice() {
        [] => None,
        targets => Some(Checkpoints { state, ledger }.take(Taking {
            targets,
            why: format!("tool {}", tool.name),
            run: Some(session),
            call: Some(call),
        })?),
    };
    let going = Going {
        engine,
        session,
        tool,
        noted: Noted {
            call,
            is_done: false,
            checkpoint: taken.map(|taken| taken.id),
            inverse: None,
            why: None,
            is_undone: false,
            is_begun: false,
        },
    };
    append(state.path(), session, &going.noted)?;
    Ok(Some(going))
}

impl Going<'_> {
    /// Notes what takes the effect back, now that its result is known.
    pub(crate) fn after(
        mut self,
        arguments: &Value,
        called: &Called<Answer>,
    ) -> Result<(), Failure> {
        let (state, ledger) = kept_by(self.engine);
        self.noted.is_done = called.end == ToolEnd::Done;
        let shadow = called.answer.shadow.as_ref();
        let is_unchanged = shadow.is_some_and(|one| matches!(one.end, ShadowEnd::Unchanged));
        if is_unchanged {
            self.noted.why = Some("it has changed nothing".to_owned());
        } else if let (Some(inverse), true) = (&self.tool.way_back.inverse, self.noted.is_done) {
            let answer = &called.answer;
            let text = || serde_json::from_str(&answer.text()).unwrap_or(Value::Null);
            let result = answer.structured.clone().unwrap_or_else(text);
            match inverse.of(arguments, &result) {
                Ok(call) => self.noted.inverse = Some(call),
                Err(why) => self.noted.why = Some(why),
            }
        }
        append(state.path(), self.session, &self.noted)?;
        let checkpoints = Checkpoints { state, ledger };
        match &self.noted.checkpoint {
            Some(id) => checkpoints.settle(&checkpoints.named(id)?),
            None => Ok(()),
        }
    }
}
