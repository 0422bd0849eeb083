//! The verdicts on calls that are not made.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use atoll_engine::sandboxes::{CreateSandbox, PriorAnswer, Workspace};
use atoll_engine::tools::{ToolRequest, ToolRules};
use atoll_model::{CallTool, Verdict};

use super::typed::{Typed, call_of};
use super::{May, Session, failed, unknown};
use crate::answer::Refusal;
use crate::registry::Problem;
use crate::runner::Runner;
use crate::scope::Place;
use crate::tool::Tool;

impl<R: Runner> Session<R> {
    /// Returns the verdict on a call, without its effect and without a record.
    ///
    /// # Errors
    /// [`Refusal`], where there is no such tool, or the arguments are none of it.
    pub fn may(&self, name: &str, arguments: &str) -> Result<May, Refusal> {
        let registry = self.registry();
        let tool = registry.tool(name).ok_or_else(|| unknown(name))?;
        let boundary = self.runner.boundary(tool);
        let rules = self.engine.tool_rules(&boundary).map_err(failed)?;
        if !self.offers(tool, &boundary, &rules) {
            return Err(unknown(name));
        }
        let place = || self.place(tool, &boundary);
        let typed = Typed::read(tool, arguments, None, None, place);
        let mut typed = typed.map_err(Refusal::Invalid)?;
        typed.call.spent = self.over_budget(&registry, tool);
        Ok(match rules.preview(&self.preview(&boundary, &typed.call)) {
            Verdict::Allow(_) => May::Yes,
            Verdict::Ask(reasons) => May::Ask(reasons),
            Verdict::Deny(reasons) => May::No(reasons),
        })
    }

    /// Returns what is wrong with the boundaries of tools.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let registry = self.registry();
        let refused = |tool: &Arc<Tool>| {
            let failure = self.engine.tool_rules(&self.runner.boundary(tool)).err()?;
            Some(Problem {
                file: tool.file.clone(),
                table: Some(format!("tool.{}", tool.name)),
                why: match failure.why {
                    Some(why) => format!("{}: {why}", failure.what),
                    None => failure.what,
                },
            })
        };
        registry.tools().filter_map(refused).collect()
    }

    /// Returns where a tool would see its files now.
    pub(super) fn place(&self, tool: &Tool, boundary: &CreateSandbox) -> Place {
        match (self.runner.sandbox_of(tool), &boundary.workspace) {
            (Some(sandbox), workspace) => Place::Inside(sandbox, workspace.directory().to_owned()),
            (None, Workspace::Directory(directory)) => Place::Host(directory.clone()),
            (None, Workspace::Own(_)) => Place::Empty,
        }
    }

    /// Returns whether the caller is shown a tool; one that it is not shown is not there.
    pub(super) fn offers(
        &self,
        tool: &Tool,
        boundary: &CreateSandbox,
        rules: &ToolRules<'_>,
    ) -> bool {
        let is_for = match (&tool.callers, &self.caller) {
            (None, _) | (_, None) => true,
            (Some(callers), Some(names)) => names.iter().any(|name| callers.contains(name)),
        };
        let call = call_of(tool, String::new(), Vec::new(), None);
        tool.enabled && is_for && rules.offers(&self.preview(boundary, &call))
    }

    pub(super) fn preview<'a>(
        &'a self,
        sandbox: &'a CreateSandbox,
        call: &'a CallTool,
    ) -> ToolRequest<'a> {
        ToolRequest {
            session: &self.id,
            number: self.calls.load(Ordering::Relaxed) + 1,
            sandbox,
            call,
            answer: &PriorAnswer::Nobody,
            tokens: self.tokens.as_ref(),
        }
    }
}
