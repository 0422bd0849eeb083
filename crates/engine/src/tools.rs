//! Calls of tools: decided by the rules of the sandbox that the tool runs in, recorded, and carried
//! out by whoever has the tool.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

pub use atoll_ledger::OpenCalls;
use atoll_ledger::{Armed, Durability, Event, Filter, Ledger, LedgerError, Refused, format_time};
use atoll_model::network::Network;
use atoll_model::{Action, Call, CallId, CallTool, Reason, RunId, ToolEnd, ToolName, Verdict};
use atoll_policy::{Facts, HostFacts, PriorAnswer, Rules, ToolGrant, agreement, offers_tool};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::call::{Effect, Gate, NeedsApproval, carry_out, preview};
use crate::configuration;
use crate::failure::{Doing, Failure};
use crate::request::Tokens as _;
use crate::run::{facts, new_run_id};
use crate::sandboxes::{CreateSandbox, Engine, Workspace};
use crate::tokens::given;
pub use crate::tokens::given::Given as ToolTokens;

/// The time for which a key is known.
const KEYS_KEPT: Duration = Duration::from_secs(24 * 3_600);

/// A request for a call of a tool.
pub struct ToolRequest<'a> {
    /// The session of the caller's tools.
    pub session: &'a RunId,
    /// The number of the call in the session, from 1.
    pub number: u32,
    /// The sandbox that the tool runs in, by whose rules the call is decided.
    pub sandbox: &'a CreateSandbox,
    /// The call.
    pub call: &'a CallTool,
    /// The answer of an approver, if one was asked.
    pub answer: &'a PriorAnswer,
    /// The tokens that have to carry it, too.
    pub tokens: Option<&'a ToolTokens>,
}

/// The result of a call that was carried out.
pub struct Called<T> {
    /// The answer for the caller.
    pub answer: T,
    /// The way that it ended.
    pub end: ToolEnd,
    /// The record of its end.
    pub details: Value,
}

/// The reason why a tool was not called, or why its end is unknown.
pub enum NotCalled {
    /// Policies ask an approver, and nobody was asked; nothing is recorded.
    NeedsApproval(NeedsApproval),
    /// Refused, and recorded.
    Denied(Vec<Reason>),
    /// No decision, or no record of it, could be made.
    Failed(Failure),
}

impl From<LedgerError> for NotCalled {
    fn from(error: LedgerError) -> Self {
        let failure = Failure::new("the call cannot be recorded").because(error);
        Self::Failed(failure.advise("atoll ledger verify"))
    }
}

impl From<Refused> for NotCalled {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Denied(refusal) | Refused::NeedsApproval(refusal) => {
                Self::Denied(refusal.reasons)
            }
            Refused::Ledger(error) => error.into(),
            refused @ Refused::Contradiction(_) => {
                Self::Failed(Failure::new("the call was not carried out").because(refused))
            }
        }
    }
}

/// Returns the id of a new session of tools.
#[must_use]
pub fn new_tool_session() -> RunId {
    new_run_id(SystemTime::now())
}

impl ToolRequest<'_> {
    /// Returns the id of the call, for the sandboxes and programs that are parts of it.
    #[must_use]
    pub fn id(&self) -> CallId {
        CallId {
            run: self.session.clone(),
            exec: None,
            tool: Some(self.number),
        }
    }

    /// Returns its caller, as a key is one of theirs.
    #[must_use]
    pub fn caller(&self) -> String {
        match &self.sandbox.workspace {
            Workspace::Own(served) => {
                let caller = served.caller.as_deref().unwrap_or_default();
                format!("{}/{caller}", served.tenant)
            }
            Workspace::Directory(_) => "local".to_owned(),
        }
    }

    /// Returns the tool and the digest of the arguments, as they are recorded.
    #[must_use]
    pub fn digest(&self) -> String {
        let digest = Sha256::digest(self.call.text.as_bytes());
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{} sha256:{digest}", self.call.tool)
    }

    /// Returns why its tokens do not carry it, if they do not.
    fn not_carried(&self) -> Option<Vec<Reason>> {
        let why = self.tokens?.calls(self.call).err()?;
        let tool = &self.call.tool;
        Some(vec![Reason {
            what: format!("tool {tool}"),
            why,
            rule: "token".to_owned(),
            how_to_ask: format!("ask who issued the token for one that carries 'call {tool}'"),
        }])
    }

    fn call(&self) -> Call {
        let action = Action::CallTool(Box::new(self.call.clone()));
        let place = self.sandbox.workspace.place();
        let run = self.session.clone();
        Call {
            id: self.id(),
            ..Call::new(run, configuration::principal(), place, action)
        }
    }
}

/// A call with a key, as the ledger has it.
#[derive(Clone, Debug)]
pub struct KeyedCall {
    /// The caller.
    pub caller: String,
    /// The key.
    pub key: String,
    /// The tool, and the digest of the arguments.
    pub call: String,
    /// The end, in words.
    pub end: String,
}

/// Carrying out a call.
struct Calling<'a, F> {
    rules: &'a Rules,
    request: &'a ToolRequest<'a>,
    call: &'a Call,
    ledger: &'a Ledger,
    effect: F,
}

impl<T, F: FnOnce(&ToolGrant) -> Called<T>> Effect for Calling<'_, F> {
    type Grant = ToolGrant;
    type Done = T;
    type Error = NotCalled;

    fn consider(&mut self, verdict: &Verdict<ToolGrant>) -> Result<(), NotCalled> {
        let is_unasked = *self.request.answer == PriorAnswer::Nobody;
        match verdict {
            // It comes again with an approver's answer: nothing is decided before.
            Verdict::Ask(reasons) if is_unasked => Err(NotCalled::NeedsApproval(NeedsApproval {
                agreement: agreement(self.rules, self.call, reasons),
                reasons: reasons.clone(),
            })),
            Verdict::Allow(_) | Verdict::Ask(_) | Verdict::Deny(_) => Ok(()),
        }
    }

    fn forbidden(&self) -> Option<Vec<Reason>> {
        self.request.not_carried()
    }

    fn told(&self, verdict: &Verdict<ToolGrant>) -> Value {
        let mut decision = json!({
            "policy": self.rules.digest(),
            "profile": self.rules.profile(),
        });
        let Some(members) = decision.as_object_mut() else {
            return decision;
        };
        if let Some(tokens) = self.request.tokens {
            members.insert("tokens".to_owned(), tokens.told());
        }
        match (verdict, self.request.answer) {
            (Verdict::Allow(grant), answer) => {
                if let PriorAnswer::Agreed(agreement) = answer {
                    members.insert("agreed".to_owned(), json!(agreement));
                }
                let told: Vec<String> = grant.notices().iter().map(ToString::to_string).collect();
                if !told.is_empty() {
                    members.insert("told".to_owned(), json!(told));
                }
            }
            (Verdict::Ask(reasons) | Verdict::Deny(reasons), _) => {
                let rules: Vec<&str> = reasons.iter().map(|one| &*one.rule).collect();
                members.insert("rules".to_owned(), json!(rules));
            }
        }
        decision
    }

    fn carry_out(self, armed: Armed<ToolGrant>) -> Result<T, NotCalled> {
        let began = Instant::now();
        let Called {
            answer,
            end,
            details,
        } = (self.effect)(armed.grant());
        let closed = self
            .ledger
            .close_tool(armed, end, began.elapsed(), details)?;
        // Handed to the kernel: nothing happens because of it that has to be on the disk first.
        drop(closed);
        Ok(answer)
    }
}

/// The rules of the sandbox that a tool runs in, by which its calls are decided.
pub struct ToolRules<'a> {
    engine: &'a Engine,
    rules: Rules,
    host: HostFacts,
}

impl ToolRules<'_> {
    /// Returns whether the caller is shown the tool: whether some call of it may be allowed.
    #[must_use]
    pub fn offers(&self, request: &ToolRequest<'_>) -> bool {
        let tool = &request.call.tool;
        let may = request.tokens.is_none_or(|tokens| tokens.may_call(tool));
        may && offers_tool(&self.rules, &request.call(), &self.facts(), request.call)
    }

    /// Returns the verdict on a call of the tool, without its effect and without a record.
    #[must_use]
    pub fn preview(&self, request: &ToolRequest<'_>) -> Verdict<ToolGrant> {
        match request.not_carried() {
            Some(reasons) => Verdict::Deny(reasons),
            None => preview(&self.rules, &request.call(), &self.facts()),
        }
    }

    /// Calls the tool: decided and recorded before `effect`, whose result is recorded after it.
    ///
    /// # Errors
    /// [`NotCalled`].
    pub fn call<T>(
        mut self,
        request: &ToolRequest<'_>,
        effect: impl FnOnce(&ToolGrant) -> Called<T>,
    ) -> Result<T, NotCalled> {
        self.rules.take_answer(request.answer.clone());
        let call = request.call();
        let ledger = self.engine.ledger();
        let gate = Gate {
            rules: &self.rules,
            facts: self.facts(),
            ledger,
        };
        let effect = Calling {
            rules: &self.rules,
            request,
            call: &call,
            ledger,
            effect,
        };
        carry_out(&gate, &call, effect)
    }

    fn facts(&self) -> Facts<'_> {
        facts(&self.host, self.engine.mode(), SystemTime::now(), &[], None)
    }
}

/// Describes a recorded call, if it was made and has a key.
fn keyed(id: &str, body: &Value) -> Option<KeyedCall> {
    let text = |at: &str| body.pointer(at)?.as_str().map(str::to_owned);
    let is_made = text("/verdict").as_deref() == Some("allow");
    let caller = match text("/served/tenant") {
        Some(tenant) => format!("{tenant}/{}", text("/served/caller").unwrap_or_default()),
        None => "local".to_owned(),
    };
    let keyed = || {
        Some(KeyedCall {
            caller,
            key: text("/key")?,
            call: format!("{} {}", text("/tool")?, text("/digest")?),
            end: format!("the end of {id} is unknown"),
        })
    };
    is_made.then(keyed).flatten()
}

impl Engine {
    /// Compiles the rules of the sandbox that a tool runs in, as profiles and policies are now,
    /// without its credentials.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn tool_rules(&self, sandbox: &CreateSandbox) -> Result<ToolRules<'_>, Failure> {
        let (rules, host) = match &sandbox.workspace {
            Workspace::Directory(workspace) => self.rules_in(sandbox, workspace)?,
            Workspace::Own(_) => self.rules_of_served(sandbox)?,
        };
        Ok(ToolRules {
            engine: self,
            rules,
            host,
        })
    }

    /// Reads the tokens that have to carry the calls of a session.
    ///
    /// # Errors
    /// When one of them is not valid, or is bound to something else.
    pub fn tool_tokens(
        &self,
        paths: &[PathBuf],
        session: &RunId,
        workspace: &Path,
    ) -> Result<Option<ToolTokens>, Failure> {
        let state = self.state_dir();
        given::read(paths, state, session, None, workspace, &Network::default())
    }

    /// Marks a session as this process's, before its first call.
    ///
    /// # Errors
    /// When that cannot be noted.
    pub fn open_calls(&self, session: &RunId) -> Result<OpenCalls, Failure> {
        let opened = self.ledger().open_calls(session);
        opened.doing("the session of tools cannot be noted")
    }

    /// Returns the calls with keys of the last day, the oldest first.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn keyed_calls(&self) -> Result<Vec<KeyedCall>, Failure> {
        let unread = "the ledger cannot be read";
        let since = SystemTime::now().checked_sub(KEYS_KEPT);
        let filter = Filter {
            since: since.map(format_time),
            ..Filter::default()
        };
        let mut calls = BTreeMap::<(RunId, u64), KeyedCall>::new();
        for event in Ledger::events(self.state_dir(), filter).doing(unread)? {
            let Event {
                kind, run, body, ..
            } = event.doing(unread)?;
            let number = body.get("call").and_then(Value::as_u64);
            let (Some(run), Some(number)) = (run, number) else {
                continue;
            };
            let id = format!("{run}/tool/{number}");
            if kind == "tool.closed"
                && let Some(call) = calls.get_mut(&(run.clone(), number))
            {
                let end = body.get("end").and_then(Value::as_str).unwrap_or("unknown");
                call.end = format!("{id} ended as {end}");
            } else if kind == "tool.opened"
                && let Some(keyed) = keyed(&id, &body)
            {
                calls.insert((run, number), keyed);
            }
        }
        Ok(calls.into_values().collect())
    }

    /// Records that a breaker has changed: by a call of a session, or by a person.
    ///
    /// # Errors
    /// When it is not recorded.
    pub fn record_breaker(
        &self,
        session: Option<&RunId>,
        of: &str,
        state: &str,
        why: Option<&str>,
    ) -> Result<(), Failure> {
        let mut body = json!({ "of": of, "state": state });
        if let (Some(why), Some(body)) = (why, body.as_object_mut()) {
            body.insert("why".to_owned(), json!(why));
        }
        let durability = match session {
            Some(_) => Durability::Buffered,
            None => Durability::Durable,
        };
        let recorded = self
            .ledger()
            .record(session, "breaker.changed", body, durability);
        recorded.map(drop).doing("the breaker cannot be recorded")
    }

    /// Records that a call was rejected: its arguments are none of the tool's, or a limit is in its
    /// way.
    ///
    /// # Errors
    /// When it is not recorded.
    pub fn reject_tool(
        &self,
        session: &RunId,
        number: u32,
        tool: &ToolName,
        why: &[String],
    ) -> Result<(), Failure> {
        let body = json!({ "call": number, "tool": tool.as_str(), "why": why.join("; ") });
        let ledger = self.ledger();
        let recorded = ledger.record(Some(session), "tool.rejected", body, Durability::Buffered);
        recorded.map(drop).doing("the call cannot be recorded")
    }
}
