//! Execs in a running sandbox: the same path as a run's own, from the request to the record of its
//! end. Only the right that the ledger makes starts one.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use atoll_ledger::{ArmedExec, ClosedExec, ExecCall, Ledger, LedgerError, RefusedExec};
use atoll_model::{Call, Ending, Reason, TerminalRights, Verdict};
use atoll_policy::{ExecGrant, PriorAnswer};
use atoll_sandbox::Declined;
use serde_json::{Value, json};

use crate::supervision::{Answer, AskedExec, ExecGate, ExecRequest, OutputFilter};

/// Makes a filter for what programs write to a person's terminal.
pub type MakeFilter<'a> = &'a dyn Fn(TerminalRights) -> Box<dyn OutputFilter>;

/// Decides on an exec by the rules in force.
pub(crate) type DecideExec<'a> = &'a dyn Fn(&Call, &BTreeSet<String>, &PriorAnswer) -> DecidedExec;

/// A verdict on an exec.
pub(crate) struct DecidedExec {
    pub(crate) verdict: Verdict<ExecGrant>,
    /// The version of the rules.
    pub(crate) policy: String,
    /// The digest of what a person would approve, where policies ask.
    pub(crate) agreement: Option<String>,
}

/// The gate of a run's execs.
pub(crate) struct Execs<'a> {
    /// Returns the call of the sandbox, as it is now.
    pub(crate) call: &'a dyn Fn() -> &'a Call,
    /// Decides by the rules in force, and describes the basis of the verdict.
    pub(crate) decide: DecideExec<'a>,
    /// The labels of the data that the session has touched by now.
    pub(crate) labels: &'a RefCell<BTreeSet<String>>,
    pub(crate) ledger: &'a Ledger,
    /// Takes note of what could not be recorded. Returns whether the run may go on.
    pub(crate) noted: &'a dyn Fn(Result<(), LedgerError>) -> bool,
    pub(crate) filter: MakeFilter<'a>,
    /// The programs' rights to a person's terminal.
    pub(crate) rights: TerminalRights,
}

impl ExecGate for Execs<'_> {
    fn open(&self, asked: &AskedExec<'_>) -> Result<ArmedExec<ExecGrant>, Box<Answer>> {
        let AskedExec {
            request,
            terminal,
            exec,
            by,
        } = *asked;
        is_found_as_decided(request).map_err(refused)?;
        let of = (self.call)();
        let directory = request.directory.as_ref().map(PathBuf::from);
        // Without parts that mean the same place.
        let directory = directory.map(|named| of.directory.join(named).components().collect());
        // Who starts it need not be who made the sandbox.
        let starts = request.served.clone().unwrap_or_default();
        let served = of.served.clone();
        let call = ExecCall {
            call: Call {
                command: request.command.clone(),
                directory: directory.unwrap_or_else(|| of.directory.clone()),
                terminal,
                options: Vec::new(),
                served: served.map(|served| served.by(&starts)),
                ..of.clone()
            },
            exec,
            variables: names(&request.environment),
            by_uid: by.uid,
            by_pid: by.pid,
            served: request.served.clone(),
        };
        let DecidedExec {
            verdict,
            policy,
            agreement,
        } = (self.decide)(&call.call, &self.labels.borrow(), &request.answer);
        let is_unasked = call.served.is_some() && request.answer == PriorAnswer::Nobody;
        if let (Verdict::Ask(reasons), Some(agreement), true) = (&verdict, agreement, is_unasked) {
            // It comes again with an approver's answer: nothing is decided before.
            return Err(Box::new(Answer::NeedsApproval {
                agreement,
                reasons: reasons.clone(),
            }));
        }
        let decision = described(&policy, &verdict, &request.answer);
        let entry = self.ledger.open_exec(&call, &verdict, decision);
        let armed = entry
            .map_err(RefusedExec::from)
            .and_then(|entry| entry.arm(verdict));
        armed.map_err(|error| match error {
            RefusedExec::Denied(reasons) if call.served.is_some() => {
                Box::new(Answer::Denied(reasons))
            }
            RefusedExec::Denied(reasons) => refused(declined(reasons)),
            RefusedExec::Contradiction => refused(of_ledger(error.to_string())),
            RefusedExec::Ledger(error) => {
                let why = error.to_string();
                (self.noted)(Err(error));
                refused(of_ledger(why))
            }
        })
    }

    fn close(
        &self,
        armed: ArmedExec<ExecGrant>,
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

/// Returns the refusal for these reasons.
pub(crate) fn declined(reasons: Vec<Reason>) -> Declined {
    let whys = reasons
        .iter()
        .map(|one| format!("{}: {} ({})", one.what, one.why, one.rule));
    let advice = reasons.first().map(|one| one.how_to_ask.clone());
    Declined {
        why: whys.collect::<Vec<_>>().join("; "),
        advice: advice.unwrap_or_default(),
    }
}
