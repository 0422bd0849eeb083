//! The limits and breakers of a session's calls.

use atoll_engine::failure::Failure;
use atoll_model::ToolEnd;

use super::{Session, failed};
use crate::answer::{Answer, Refusal};
use crate::breaker::{Changed, Went};
use crate::guard::Admitted;
use crate::limits::Counted;
use crate::registry::Registry;
use crate::runner::Runner;
use crate::tool::Tool;

impl<R: Runner> Session<R> {
    /// Counts a call, if every limit and breaker lets it pass.
    pub(super) fn admit<'a>(
        &'a self,
        registry: &'a Registry,
        tool: &'a Tool,
        number: u32,
    ) -> Result<Admitted<'a>, Refusal> {
        let (key, caller) = (tool.counted(), self.caller_key());
        let mut limits = vec![(Counted::Tool(key.clone()), &tool.bounds.limits)];
        let mut breakers = vec![(key, tool.bounds.breaker.as_ref())];
        if let Some(bounds) = &registry.session {
            limits.push((Counted::Session(self.id.to_string()), &bounds.limits));
        }
        if let Some(bounds) = &registry.caller {
            limits.push((Counted::Caller(caller.clone()), &bounds.limits));
            if let Some(breaker) = &bounds.breaker {
                breakers.push((format!("caller {caller}"), Some(breaker)));
            }
        }
        match self.tools.guard().admit(limits, breakers) {
            Ok((admitted, changed)) => {
                self.record(&changed).map_err(failed)?;
                Ok(admitted)
            }
            Err(exceeded) => {
                let why = [exceeded.why.clone()];
                let recorded = self.engine.reject_tool(&self.id, number, &tool.name, &why);
                recorded.map_err(failed)?;
                Err(Refusal::Limited(exceeded))
            }
        }
    }

    /// Returns the name of the caller, in all of its sessions.
    fn caller_key(&self) -> String {
        let names = self.caller.as_ref().and_then(|names| names.first());
        names.map_or_else(|| "local".to_owned(), Clone::clone)
    }

    pub(super) fn record(&self, changed: &[Changed]) -> Result<(), Failure> {
        changed.iter().try_for_each(|one| {
            let session = Some(&self.id);
            self.engine
                .record_breaker(session, &one.of, one.state.name(), None)
        })
    }
}

/// Returns the way that a call went for the breaker of its tool, and for that of its caller.
pub(super) fn went(called: &Result<Answer, Refusal>, is_fault: bool) -> [Option<Went>; 2] {
    let answer = match called {
        Ok(answer) => answer,
        Err(Refusal::Denied(_)) => return [None, Some(Went::Fault)],
        Err(_) => return [None, None],
    };
    let of_tool = match answer.end {
        ToolEnd::Done => Some(Went::Well),
        ToolEnd::Failed if !is_fault => Some(Went::Error),
        ToolEnd::Failed | ToolEnd::TimedOut | ToolEnd::Unknown => Some(Went::Fault),
        ToolEnd::Interrupted => None,
    };
    [of_tool, Some(Went::Well)]
}
