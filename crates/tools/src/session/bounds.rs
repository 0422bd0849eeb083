//! The limits and breakers of a session's calls.

use std::time::Instant;

use atoll_engine::failure::Failure;
use atoll_model::{ToolEffect, ToolEnd, ToolKind};

use super::typed::Typed;
use super::{Session, failed, locked};
use crate::answer::{Answer, Refusal};
use crate::breaker::{Changed, Went};
use crate::guard::Admitted;
use crate::limits::{Bounds, Counted, Exceeded};
use crate::registry::Registry;
use crate::runner::Runner;
use crate::tool::Tool;

impl<R: Runner> Session<R> {
    /// Ends the session, its calls and its sandboxes, once it has lasted, or was idle, for as long as
    /// sessions may; returns why, from then on.
    pub fn expire(&self, registry: &Registry) -> Option<String> {
        let (limit, is_new) = {
            let mut under_way = locked(&self.under_way);
            let unused_since = under_way.calls.is_empty().then_some(under_way.used);
            let over = |bounds: &Bounds| {
                bounds
                    .limits
                    .over(under_way.began, unused_since, Instant::now())
            };
            let is_new = under_way.limit.is_none();
            let over = match is_new {
                true => registry.session.as_ref().and_then(over),
                false => None,
            };
            under_way.limit = over.or(under_way.limit.take());
            (under_way.limit.clone()?, is_new)
        };
        if is_new {
            self.end();
            self.runner.close();
        }
        Some(limit)
    }

    /// Counts a call, if every limit and breaker lets it pass.
    pub(super) fn admit<'a>(
        &'a self,
        registry: &'a Registry,
        tool: &'a Tool,
        number: u32,
    ) -> Result<Admitted<'a>, Refusal> {
        if let Some(why) = self.expire(registry) {
            let retry_after = None;
            return Err(self.limited(tool, number, Exceeded { why, retry_after }));
        }
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
            Err(exceeded) => Err(self.limited(tool, number, exceeded)),
        }
    }

    /// Makes a call within the budget: where that is used up, a person is asked.
    pub(super) fn within_budget(
        &self,
        registry: &Registry,
        mut typed: Typed<'_>,
        call: impl FnOnce(&Typed<'_>) -> Result<Answer, Refusal>,
    ) -> Result<Answer, Refusal> {
        let Some(bounds) = &registry.session else {
            return call(&typed);
        };
        let effect = typed.tool.effect;
        {
            // Counted as it begins: of several at once none passes a bound unseen.
            let mut spent = locked(&self.spent);
            typed.call.spent = spent.reached(&bounds.budget, effect);
            spent.begin(effect);
        }
        let called = call(&typed);
        match &called {
            Ok(answer) => locked(&self.spent).end(rows(typed.tool, answer)),
            Err(_) => locked(&self.spent).take_back(effect),
        }
        called
    }

    /// Lets the budget begin anew with a call that a person has agreed to although it was used up.
    pub(super) fn renew_budget(&self, typed: &Typed<'_>) {
        if !typed.call.spent.is_empty() {
            locked(&self.spent).renew(typed.tool.effect);
        }
    }

    /// Returns the bounds of the budget that a call would pass.
    pub(super) fn over_budget(&self, registry: &Registry, tool: &Tool) -> Vec<String> {
        let budget = registry.session.as_ref().map(|bounds| &bounds.budget);
        let reached = |budget| locked(&self.spent).reached(budget, tool.effect);
        budget.map(reached).unwrap_or_default()
    }

    /// Records that a limit is in the way of a call.
    fn limited(&self, tool: &Tool, number: u32, exceeded: Exceeded) -> Refusal {
        let why = [exceeded.why.clone()];
        match self.engine.reject_tool(&self.id, number, &tool.name, &why) {
            Ok(()) => Refusal::Limited(exceeded),
            Err(failure) => failed(failure),
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

/// Returns the number of rows that a call has changed; one whose end is unknown can have changed any.
fn rows(tool: &Tool, answer: &Answer) -> u64 {
    let is_statement = tool.kind() == ToolKind::Sql && tool.effect != ToolEffect::Read;
    match answer.end {
        ToolEnd::TimedOut | ToolEnd::Interrupted | ToolEnd::Unknown if is_statement => u64::MAX,
        ToolEnd::Done
        | ToolEnd::Failed
        | ToolEnd::TimedOut
        | ToolEnd::Interrupted
        | ToolEnd::Unknown => answer.rows.unwrap_or(0),
    }
}
