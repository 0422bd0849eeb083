//! Execs in a running sandbox: the same path as a run's own, from the request to the record of its
//! end. Only the right that the ledger makes starts one.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use atoll_ledger::{Armed, ClosedExec, Ledger, LedgerError, Refused};
use atoll_model::{Action, Call, CallId, Ending, Exec, Place, Reason, TerminalRights, Verdict};
use atoll_policy::{ExecGrant, Facts, PriorAnswer, Rules, agreement};
use atoll_sandbox::Declined;
use serde_json::{Value, json};

use crate::asking::{Rereading, declined};
use crate::call::{CallError, Effect, Gate, NeedsApproval, carry_out};
use crate::request::MakeFilter;
use crate::supervision::{Answer, AskedExec, ExecGate, ExecRequest, OutputFilter};

/// The gate of a run's execs.
pub(crate) struct Execs<'a> {
    /// The call of the sandbox, and the rules in force.
    pub(crate) rereading: &'a Rereading<'a>,
    /// The labels of the data that the session has touched by now.
    pub(crate) labels: &'a RefCell<BTreeSet<String>>,
    pub(crate) ledger: &'a Ledger,
    /// Takes note of what could not be recorded. Returns whether the run may go on.
    pub(crate) noted: &'a dyn Fn(Result<(), LedgerError>) -> bool,
    pub(crate) filter: MakeFilter<'a>,
    /// The programs' rights to a person's terminal.
    pub(crate) rights: TerminalRights,
}

/// Starting one more program: by whoever holds the right to.
struct Opening<'a> {
    rules: &'a Rules,
    call: &'a Call,
    answer: &'a PriorAnswer,
}

impl Effect for Opening<'_> {
    type Grant = ExecGrant;
    type Done = Armed<ExecGrant>;
    type Error = CallError;

    fn consider(&mut self, verdict: &Verdict<ExecGrant>) -> Result<(), CallError> {
        let is_unasked = self.call.served().is_some() && *self.answer == PriorAnswer::Nobody;
        match verdict {
            // It comes again with an approver's answer: nothing is decided before.
            Verdict::Ask(reasons) if is_unasked => Err(CallError::NeedsApproval(NeedsApproval {
                agreement: agreement(self.rules, self.call, reasons),
                reasons: reasons.clone(),
            })),
            Verdict::Allow(_) | Verdict::Ask(_) | Verdict::Deny(_) => Ok(()),
        }
    }

    fn told(&self, verdict: &Verdict<ExecGrant>) -> Value {
        described(self.rules.digest(), verdict, self.answer)
    }

    fn carry_out(self, armed: Armed<ExecGrant>) -> Result<Armed<ExecGrant>, CallError> {
        Ok(armed)
    }
}

/// Returns the call for an exec in a sandbox.
fn exec_call(of: &Call, asked: &AskedExec<'_>) -> Call {
    let request = asked.request;
    let directory = request.directory.as_ref().map(PathBuf::from);
    // Without parts that mean the same place.
    let directory = directory.map(|named| of.directory().join(named).components().collect());
    // Who starts it need not be who made the sandbox.
    let starts = request.served.clone().unwrap_or_default();
    let place = match &of.place {
        Place::Served(served) => Place::Served(Box::new((**served).clone().by(&starts))),
        place @ Place::Directory { .. } => place.clone(),
    };
    Call {
        id: CallId {
            run: of.run().clone(),
            exec: Some(asked.exec),
            tool: None,
        },
        parent: request.parent.clone(),
        place,
        action: Action::Exec(Box::new(Exec {
            command: request.command.clone(),
            directory: directory.unwrap_or_else(|| of.directory().to_owned()),
            terminal: asked.terminal,
            variables: names(&request.environment),
            by_uid: asked.by.uid,
            by_pid: asked.by.pid,
            served: request.served.clone(),
        })),
        ..of.clone()
    }
}

impl Execs<'_> {
    /// Returns the answer for who asked for an exec that is not started.
    fn answer(&self, error: CallError, is_served: bool) -> Box<Answer> {
        match error {
            CallError::NeedsApproval(NeedsApproval { agreement, reasons }) => {
                Box::new(Answer::NeedsApproval { agreement, reasons })
            }
            CallError::Refused(Refused::Denied(refusal) | Refused::NeedsApproval(refusal)) => {
                match is_served {
                    true => Box::new(Answer::Denied(refusal.reasons)),
                    false => refused(declined(refusal.reasons)),
                }
            }
            CallError::Refused(Refused::Ledger(error)) | CallError::Ledger(error) => {
                let why = error.to_string();
                (self.noted)(Err(error));
                refused(of_ledger(why))
            }
            other => refused(of_ledger(other.to_string())),
        }
    }
}

impl ExecGate for Execs<'_> {
    fn open(&self, asked: &AskedExec<'_>) -> Result<Armed<ExecGrant>, Box<Answer>> {
        is_found_as_decided(asked.request).map_err(refused)?;
        let call = exec_call(&self.rereading.call(), asked);
        let (answer, labels) = (&asked.request.answer, self.labels.borrow());
        let opened = self.rereading.with(|rules, facts| {
            let mut rules = Cow::Borrowed(rules);
            if *answer != PriorAnswer::Nobody {
                rules.to_mut().take_answer(answer.clone());
            }
            let gate = Gate {
                rules: &rules,
                facts: Facts {
                    labels: Some(&labels),
                    ..*facts
                },
                ledger: self.ledger,
            };
            let effect = Opening {
                rules: &rules,
                call: &call,
                answer,
            };
            carry_out(&gate, &call, effect)
        });
        opened.map_err(|error| self.answer(error, call.served().is_some()))
    }

    fn close(
        &self,
        armed: Armed<ExecGrant>,
        ending: Result<Ending, &str>,
        wall_clock: Duration,
    ) -> Result<ClosedExec, LedgerError> {
        self.ledger.close_exec(armed, ending, wall_clock)
    }

    fn settle(&self, closed: Result<ClosedExec, LedgerError>) -> bool {
        (self.noted)(closed.and_then(ClosedExec::settle))
    }

    fn filter(&self) -> Box<dyn OutputFilter> {
        (self.filter)(self.rights)
    }
}

/// Refuses another PATH for a program that is looked for: policies decide by the run's own.
fn is_found_as_decided(request: &ExecRequest) -> Result<(), Declined> {
    let is_path = |variable: &OsString| variable.as_bytes().starts_with(b"PATH=");
    let named = request.command.first();
    let is_looked_for = named.is_some_and(|name| !name.as_bytes().contains(&b'/'));
    match is_looked_for && request.environment.iter().any(is_path) {
        false => Ok(()),
        true => Err(Declined {
            why: "a program is looked for in the run's own PATH".to_owned(),
            advice: "name it by its whole path beside --env PATH=…".to_owned(),
        }),
    }
}

fn refused(declined: Declined) -> Box<Answer> {
    Box::new(Answer::Refused(declined))
}

fn of_ledger(why: String) -> Declined {
    Declined {
        why,
        advice: "atoll ledger verify".to_owned(),
    }
}

/// Returns the names of variables; their values may be secret.
fn names(environment: &[OsString]) -> Vec<String> {
    let name = |variable: &OsString| {
        let text = variable.to_string_lossy();
        text.split('=').next().unwrap_or_default().to_owned()
    };
    environment.iter().map(name).collect()
}

/// Describes the basis of a verdict for the ledger.
fn described(policy: &str, verdict: &Verdict<ExecGrant>, answer: &PriorAnswer) -> Value {
    let mut decision = json!({ "policy": policy });
    let Some(members) = decision.as_object_mut() else {
        return decision;
    };
    match verdict {
        Verdict::Allow(grant) => {
            let by = grant.wall_clock_by();
            members.extend(by.map(|by| ("wall-clock-by".to_owned(), json!(by))));
            if let PriorAnswer::Agreed(agreement) = answer {
                members.insert("agreed".to_owned(), json!(agreement));
            }
        }
        Verdict::Ask(reasons) | Verdict::Deny(reasons) => {
            let rules: Vec<&str> = reasons.iter().map(|Reason { rule, .. }| &**rule).collect();
            members.insert("rules".to_owned(), json!(rules));
        }
    }
    decision
}
