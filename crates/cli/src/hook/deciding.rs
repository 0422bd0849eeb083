//! The decision on a call of an agent's own tool: on the one way of all calls of tools.

use atoll_engine::NeedsApproval;
use atoll_engine::failure::{Failure, Kind};
use atoll_engine::printable::printable;
use atoll_engine::sandboxes::{CreateSandbox, Engine, PriorAnswer, Requested};
use atoll_engine::tools::{Called, NotCalled, ToolRequest, new_tool_session};
use atoll_launcher::LAUNCHER;
use atoll_model::{Reason, RunId, ToolEnd, Verdict};
use atoll_policy::ToolGrant;
use atoll_tools::over;
use serde_json::json;

use super::event::Event;
use crate::arguments::HookAgent;

/// The verdict on a call.
pub(super) enum Decision {
    /// Allowed, and recorded; the agent carries it out.
    Passed,
    /// A command that is allowed in the sandbox, once the agent's person has approved it if that is
    /// asked for.
    Contained(Option<NeedsApproval>),
    /// Denied, and recorded.
    Denied(Vec<Reason>),
}

/// A call that is decided on, by the rules of the sandbox of its session.
pub(super) struct Asked<'a> {
    pub(super) engine: Engine,
    /// The session of this one call, as the ledger has it.
    session: RunId,
    sandbox: CreateSandbox,
    event: &'a Event,
}

impl<'a> Asked<'a> {
    pub(super) fn new(event: &'a Event) -> Result<Self, Failure> {
        Ok(Self {
            engine: Engine::open(LAUNCHER)?,
            session: new_tool_session(),
            sandbox: over(&event.directory, Requested::default(), false),
            event,
        })
    }

    /// Decides on the call before the agent makes it. What Atoll carries out itself is recorded
    /// when it does.
    pub(super) fn decide(&self, agent: HookAgent) -> Result<Decision, Failure> {
        let nobody = PriorAnswer::Nobody;
        let rules = self.engine.tool_rules(&self.sandbox)?;
        let verdict = rules.preview(&self.request(&nobody));
        if let Verdict::Allow(grant) = &verdict
            && let Some(failure) = unheld(grant)
        {
            return Err(failure);
        }
        match verdict {
            Verdict::Allow(_) if self.event.command.is_some() => {
                return Ok(Decision::Contained(None));
            }
            Verdict::Allow(_) | Verdict::Ask(_) | Verdict::Deny(_) => {}
        }
        match (self.passed(&nobody), &self.event.command, agent) {
            // Of the questions of agents Claude Code's alone is known to be a person's, and what it
            // comes to is seen of commands alone.
            (Err(NotCalled::NeedsApproval(needs)), Some(_), HookAgent::Claude) => {
                Ok(Decision::Contained(Some(needs)))
            }
            (Err(NotCalled::NeedsApproval(_)), _, _) => {
                let nobody = PriorAnswer::Denied("nobody can be asked here");
                decided(self.passed(&nobody))
            }
            (passed, _, _) => decided(passed),
        }
    }

    /// Has a call recorded that the agent carries out: nobody here sees its end.
    fn passed(&self, answer: &PriorAnswer) -> Result<(), NotCalled> {
        self.call(answer, |_| Called {
            answer: (),
            end: ToolEnd::Unknown,
            details: json!({ "agent": self.event.session }),
        })
    }

    /// Calls it: decided and recorded before `effect`, whose result is recorded after it.
    ///
    /// # Errors
    /// [`NotCalled`].
    pub(super) fn call<T>(
        &self,
        answer: &PriorAnswer,
        effect: impl FnOnce(&ToolGrant) -> Called<T>,
    ) -> Result<T, NotCalled> {
        let rules = self.engine.tool_rules(&self.sandbox);
        let open = self.engine.open_calls(&self.session);
        let _open = open.map_err(NotCalled::Failed)?;
        rules
            .map_err(NotCalled::Failed)?
            .call(&self.request(answer), effect)
    }

    fn request(&'a self, answer: &'a PriorAnswer) -> ToolRequest<'a> {
        ToolRequest {
            session: &self.session,
            number: 1,
            sandbox: &self.sandbox,
            call: &self.event.call,
            answer,
            tokens: None,
        }
    }

    /// Words a denial for the agent.
    pub(super) fn denial(&self, reasons: &[Reason]) -> String {
        let how = reasons
            .first()
            .map(|reason| format!(". {}", reason.how_to_ask));
        format!(
            "{}{}. atoll why {}",
            told(reasons),
            how.unwrap_or_default(),
            self.session
        )
    }
}

fn decided(passed: Result<(), NotCalled>) -> Result<Decision, Failure> {
    passed.map_or_else(
        |not| denied(not).map(Decision::Denied),
        |()| Ok(Decision::Passed),
    )
}

/// Returns the reasons of a denial.
///
/// # Errors
/// When there was no decision.
pub(super) fn denied(not: NotCalled) -> Result<Vec<Reason>, Failure> {
    match not {
        NotCalled::NeedsApproval(needs) => Ok(needs.reasons),
        NotCalled::Denied(reasons) => Ok(reasons),
        NotCalled::Failed(failure) => Err(failure),
    }
}

/// Words reasons.
pub(super) fn told(reasons: &[Reason]) -> String {
    let told = reasons.iter().map(|one| {
        let text = format!("{}: {} ({})", one.what, one.why, one.rule);
        printable(text.as_bytes())
    });
    told.collect::<Vec<_>>().join("; ")
}

/// Returns the failure for a call of which policies ask what no hook can hold, if they do.
pub(super) fn unheld(grant: &ToolGrant) -> Option<Failure> {
    let denied = |why: &str| {
        Failure::new("the call is denied")
            .because(why)
            .of_kind(Kind::Denied)
    };
    match (grant.wall_clock(), grant.shadow()) {
        (Some(_), _) => {
            let why = "policies give it a time (@timeout), which no hook can hold";
            Some(denied(why).advise("set @timeout on `exec`"))
        }
        (None, Some(_)) => {
            let why = "policies have it run on a copy first (@shadow), which no hook can do";
            Some(denied(why).advise("leave out @shadow for the agent's own tools"))
        }
        (None, None) => None,
    }
}
