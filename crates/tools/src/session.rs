//! A session of a caller: the tools that it is offered, and its calls.

mod asked;
mod bounds;
mod keyed;
mod listing;
mod shadow;
mod typed;
mod upstreams;
mod verdicts;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atoll_engine::failure::Failure;
use atoll_engine::sandboxes::{CreateSandbox, Engine, PriorAnswer};
use atoll_engine::tools::{
    Called, NotCalled, OpenCalls, ToolRequest, ToolRules, ToolTokens, new_tool_session,
};
use atoll_model::{CallId, CallTool, Reason, RunId, Shadow};
use atoll_policy::ToolGrant;
use serde_json::Value;

use crate::answer::{Answer, Refusal};
use crate::budget::Spent;
use crate::exec::Cancel;
use crate::recording::Recording;
use crate::registry::{Registry, ToolSwitches};
use crate::results::Part;
use crate::runner::Runner;
use crate::shadow::Approver;
use crate::tool::{Command, Tool, Work};
use crate::undoing;
use crate::upstream::connection::Connection;
use crate::upstream::frames::{Answers, Askable, Said};
use asked::Pending;
pub use listing::{ChangedLists, Listing, Seen};
use typed::Typed;

/// The longest time that calls under way have to end in when their session does.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// A session of tools. All calls of it are recorded by its id.
pub struct Session<R> {
    id: RunId,
    engine: Engine,
    tools: Arc<ToolSwitches>,
    runner: R,
    /// The names by which a tool may say that it is for this caller; `None` for a person.
    caller: Option<Vec<String>>,
    calls: AtomicU32,
    under_way: Mutex<UnderWay>,
    /// Told when a call ends.
    ended: Condvar,
    /// Its mark in the state, from its first call on.
    open: Mutex<Option<OpenCalls>>,
    /// Its recording, if there is one.
    recording: Option<Recording>,
    /// The tokens that have to carry its calls.
    tokens: Option<ToolTokens>,
    /// The upstreams that were started, by their names.
    connections: Mutex<BTreeMap<String, Slot>>,
    /// The calls whose upstreams wait for answers.
    pending: Pending,
    /// The part of its budget that is used up.
    spent: Mutex<Spent>,
}

/// The calls that are being made.
struct UnderWay {
    is_over: bool,
    /// The limit by which it is over, if it is one.
    limit: Option<String>,
    calls: BTreeMap<u32, Cancel>,
    /// The time of its begin, and at which the last one has ended.
    began: Instant,
    used: Instant,
}

/// One of them, until it is dropped.
struct Making<'a, R> {
    session: &'a Session<R>,
    number: u32,
}

impl<R> Drop for Making<'_, R> {
    fn drop(&mut self) {
        let mut under_way = locked(&self.session.under_way);
        under_way.calls.remove(&self.number);
        under_way.used = Instant::now();
        drop(under_way);
        self.session.ended.notify_all();
    }
}

/// The place of one connection, held while it is made.
type Slot = Arc<Mutex<Option<Arc<Connection>>>>;

/// A call that is on record, and may be carried out.
struct Begun<'a> {
    tool: &'a Tool,
    arguments: &'a Value,
    id: CallId,
    timeout: Duration,
    cancel: &'a Cancel,
    listener: Option<&'a dyn Fn(Said)>,
    answers: Option<&'a Answers>,
    askable: Askable,
    /// The runs on a copy that come first.
    shadow: Option<Shadow>,
    approver: Option<Approver<'a>>,
    /// Set where it has failed before its upstream answered.
    is_fault: &'a Cell<bool>,
}

impl Begun<'_> {
    fn number(&self) -> u32 {
        self.id.tool.unwrap_or_default()
    }
}

/// A request for a call.
pub struct Asked<'a> {
    /// The tool's name.
    pub name: &'a str,
    /// The arguments, as JSON text.
    pub arguments: &'a str,
    /// The name by which the call is made once.
    pub key: Option<&'a str>,
    /// The answer of an approver, if one was asked.
    pub answer: &'a PriorAnswer,
    /// The word by which the caller ends it.
    pub cancel: &'a Cancel,
    /// Takes what an upstream says meanwhile, if the caller listens.
    pub listener: Option<&'a dyn Fn(Said)>,
    /// The answers to what the upstream asked when the call was made before.
    pub answers: Option<&'a Answers>,
    /// The questions that an upstream may ask the caller.
    pub askable: Askable,
    /// Asks a person about the change set of a shadow run, if one can be asked.
    pub approver: Option<Approver<'a>>,
}

/// The verdict on a call that is not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum May {
    /// Carried out.
    Yes,
    /// An approver would be asked, for these reasons.
    Ask(Vec<Reason>),
    /// Refused, for these reasons.
    No(Vec<Reason>),
}

impl<R: Runner> Session<R> {
    /// Begins a session of a caller, with the names by which a tool may say that it is for them;
    /// `None` if it is the person whom everything is for.
    #[must_use]
    pub fn new(
        engine: Engine,
        tools: Arc<ToolSwitches>,
        runner: R,
        caller: Option<Vec<String>>,
    ) -> Self {
        Self {
            id: new_tool_session(),
            engine,
            tools,
            runner,
            caller,
            calls: AtomicU32::new(0),
            under_way: Mutex::new(UnderWay {
                is_over: false,
                limit: None,
                calls: BTreeMap::new(),
                began: Instant::now(),
                used: Instant::now(),
            }),
            ended: Condvar::new(),
            open: Mutex::default(),
            recording: None,
            tokens: None,
            connections: Mutex::default(),
            pending: Pending::default(),
            spent: Mutex::default(),
        }
    }

    /// Has its calls recorded, or answered by a recording.
    #[must_use]
    pub fn with(self, recording: Option<Recording>) -> Self {
        Self { recording, ..self }
    }

    /// Has tokens carry its calls, besides policies.
    #[must_use]
    pub fn carried_by(self, tokens: Option<ToolTokens>) -> Self {
        Self { tokens, ..self }
    }

    /// Returns its id, by which the ledger has its calls.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// Returns the sandboxes.
    pub fn runner(&self) -> &R {
        &self.runner
    }

    /// Returns the registry as its files are now.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.tools.registry()
    }

    /// Returns the tools that the caller may call, by their names. One whose boundary cannot be made
    /// is not among them, as it cannot be called.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<Tool>> {
        let registry = self.registry();
        let mut all = Vec::new();
        // Tools of one boundary have the same rules.
        let mut compiled = BTreeMap::new();
        for tool in registry.tools() {
            let boundary = self.runner.boundary(tool);
            let rules = match compiled.entry(format!("{:?}", boundary.requested)) {
                Entry::Occupied(rules) => rules.into_mut(),
                Entry::Vacant(none) => none.insert(self.engine.tool_rules(&boundary).ok()),
            };
            if let Some(rules) = rules
                && self.offers(tool, &boundary, rules)
            {
                all.push(Arc::clone(tool));
            }
        }
        all
    }

    /// Notes that a call is being made, if the session goes on.
    fn begin(&self, number: u32, cancel: &Cancel) -> Result<Making<'_, R>, Failure> {
        let mut under_way = locked(&self.under_way);
        if under_way.is_over {
            return Err(Failure::new("the session of tools has ended"));
        }
        under_way.calls.insert(number, cancel.clone());
        Ok(Making {
            session: self,
            number,
        })
    }

    /// Calls a tool: parsed and checked, decided, recorded, carried out, recorded again.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn call(&self, asked: &Asked<'_>) -> Result<Answer, Refusal> {
        keyed::refuse_undo(asked.key)?;
        self.call_keyed(asked)
    }

    /// Calls a tool, by whatever key.
    pub(crate) fn call_keyed(&self, asked: &Asked<'_>) -> Result<Answer, Refusal> {
        let registry = self.registry();
        let tool = registry
            .tool(asked.name)
            .ok_or_else(|| unknown(asked.name))?;
        let boundary = self.runner.boundary(tool);
        let rules = self.engine.tool_rules(&boundary).map_err(failed)?;
        if !self.offers(tool, &boundary, &rules) {
            return Err(unknown(asked.name));
        }
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let admitted = self.admit(&registry, tool, number)?;
        let is_fault = Cell::new(false);
        let place = || self.place(tool, &boundary);
        let typed = Typed::read(tool, asked.arguments, asked.key, asked.answers, place);
        let typed = typed.and_then(|typed| {
            self.pending.check(tool, &typed.arguments, asked.answers)?;
            Ok(typed)
        });
        let judged = typed.as_ref().map(|typed| typed.call.text.clone()).ok();
        let called = match typed {
            Ok(typed) => self.within_budget(&registry, typed, |typed| {
                self.decide(asked, typed, &boundary, rules, number, &is_fault)
            }),
            Err(why) => Err(self.reject(tool, number, why)),
        };
        if let Err(Refusal::NeedsApproval { .. }) = &called {
            admitted.take_back();
            return called;
        }
        if let Some(recording) = &self.recording {
            let arguments = judged.as_deref().unwrap_or(asked.arguments);
            recording
                .note(asked.name, arguments, &called)
                .map_err(failed)?;
        }
        if let Ok(answer) = &called
            && !answer.rest.is_empty()
        {
            let rest = answer.rest.clone();
            self.tools.results().keep(&self.id, number, rest);
        }
        let bytes = called.as_ref().map_or(0, Answer::bytes);
        let changed = admitted.ended(bounds::went(&called, is_fault.get()), bytes);
        // A ledger that is not written refuses the next call.
        let _ = self.record(&changed.unwrap_or_default());
        called
    }

    /// Records that a call is none that the tool takes.
    fn reject(&self, tool: &Tool, number: u32, why: Vec<String>) -> Refusal {
        match self.engine.reject_tool(&self.id, number, &tool.name, &why) {
            Ok(()) => Refusal::Invalid(why),
            Err(failure) => failed(failure),
        }
    }

    /// Has a call that is counted decided, recorded and carried out.
    fn decide(
        &self,
        asked: &Asked<'_>,
        typed: &Typed<'_>,
        boundary: &CreateSandbox,
        rules: ToolRules<'_>,
        number: u32,
        is_fault: &Cell<bool>,
    ) -> Result<Answer, Refusal> {
        let Typed {
            tool,
            call,
            arguments,
        } = typed;
        let making = self.begin(number, asked.cancel).map_err(failed)?;
        let request = ToolRequest {
            session: &self.id,
            number,
            sandbox: boundary,
            call,
            answer: asked.answer,
            tokens: self.tokens.as_ref(),
        };
        let taken = match asked.key.map(|key| self.take_key(key, &request)) {
            None => None,
            Some(Ok(taken)) => Some(taken),
            Some(Err(again)) => return self.again(again, number, &tool.name),
        };
        self.open_calls().map_err(failed)?;
        let (id, directory) = (request.id(), boundary.workspace.directory());
        let effect = |grant: &ToolGrant| {
            self.renew_budget(typed);
            let most = grant.wall_clock().unwrap_or(tool.timeout);
            let begun = Begun {
                tool,
                arguments,
                id,
                timeout: most.min(tool.timeout),
                cancel: asked.cancel,
                listener: asked.listener,
                answers: asked.answers,
                askable: asked.askable,
                shadow: tool.shadow.max(grant.shadow()),
                approver: asked.approver,
                is_fault,
            };
            let replayed = self.recording.as_ref();
            let replayed = replayed.and_then(|one| one.answer(asked.name, arguments, number));
            let called = match replayed {
                Some(called) => Ok(called),
                None => self.carry_out(&begun, directory),
            };
            let mut called = called.unwrap_or_else(|failure| {
                is_fault.set(true);
                Answer::of_failure(number, &failure)
            });
            let told = grant.notices().iter().map(ToString::to_string);
            called.answer.told.extend(told);
            called
        };
        let called = rules.call(&request, effect);
        drop(making);
        let called = called.map_err(|not| refusal(not, call));
        if let (Some(taken), Ok(_) | Err(Refusal::Failed(_))) = (taken, &called) {
            taken.answered(called.as_ref().ok());
        }
        called
    }

    /// Carries a call out, with its way back noted before and after it.
    fn carry_out(&self, begun: &Begun<'_>, directory: &Path) -> Result<Called<Answer>, Failure> {
        let going = undoing::before(&self.engine, &self.id, begun.tool, begun.number())?;
        let called = match (shadow::shadows(begun), &begun.tool.work) {
            (Some(times), _) => Ok(shadow::shadowed(self, begun, times, directory)),
            (None, Work::Command(command)) => self.run(begun, command, directory),
            (None, Work::Upstream(upstream, of)) => self.call_upstream(begun, upstream, of),
        };
        let mut called = called.unwrap_or_else(|failure| {
            begun.is_fault.set(true);
            Answer::of_failure(begun.number(), &failure)
        });
        if let Some(Err(failure)) = going.map(|going| going.after(begun.arguments, &called)) {
            // It has happened: only the way back is in doubt.
            let why = failure.why.map_or(String::new(), |why| format!(": {why}"));
            called.answer.told.push(format!("{}{why}", failure.what));
        }
        Ok(called)
    }

    /// Returns the sandboxes' engine.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Runs the program of a call.
    fn run(
        &self,
        begun: &Begun<'_>,
        command: &Command,
        directory: &Path,
    ) -> Result<Called<Answer>, Failure> {
        let program = begun.program(command, directory)?;
        let ran = self.runner.run(begun.tool, &program)?;
        Ok(Answer::of(
            begun.tool,
            begun.number(),
            &ran,
            program.timeout,
        ))
    }

    /// Ends it: no further call is made, those under way are ended and waited for, and so are the
    /// connections with upstreams.
    pub fn end(&self) {
        let mut under_way = locked(&self.under_way);
        under_way.is_over = true;
        under_way.calls.values().for_each(Cancel::cancel);
        let until = Instant::now() + ENDS_WITHIN;
        while !under_way.calls.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.ended.wait_timeout(under_way, left);
            under_way = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(under_way);
        locked(&self.connections).clear();
        locked(&self.open).take();
        self.tools.results().forget(&self.id);
        self.tools.guard().forget(self.id.as_str());
    }

    /// Reads on in the result of a call that was cut, from so many bytes after the cut on; `None`
    /// where nothing of it is kept.
    #[must_use]
    pub fn rest_of(&self, call: u32, from: usize) -> Option<Part> {
        self.tools.results().read(&self.id, call, from)
    }
}

fn locked<T>(one: &Mutex<T>) -> MutexGuard<'_, T> {
    one.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unknown(name: &str) -> Refusal {
    Refusal::Unknown(name.to_owned())
}

fn failed(failure: Failure) -> Refusal {
    Refusal::Failed(Box::new(failure))
}

fn refusal(not: NotCalled, call: &CallTool) -> Refusal {
    match not {
        NotCalled::NeedsApproval(asked) => Refusal::NeedsApproval {
            asked,
            arguments: call.text.clone(),
        },
        NotCalled::Denied(reasons) => Refusal::Denied(reasons),
        NotCalled::Failed(failure) => failed(failure),
    }
}
