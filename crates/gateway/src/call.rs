use std::time::{Duration, SystemTime};

use atoll_model::{Call, Outcome, Verdict};
use atoll_policy::{Facts, Grant, Rules, decide};
use atoll_sandbox::{
    Attachment, Held, Host, Native, SandboxError, Size, Starting, detect_groups, start,
};
use atoll_store::{
    Armed, Durability, Ledger, LedgerError, RECORD_VERSION, Refused, RunError, RunRecord, RunState,
    StateDir, create_run, create_scratch, release_end, remove_scratch, reserve_end, update_run,
};
use serde_json::{Value, json};

use crate::PlaceError;
use crate::place::{Placed, place};

/// Everything that one call needs.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// What is asked for.
    pub call: &'a Call,
    /// The rules that decide.
    pub rules: &'a Rules,
    /// What is true now.
    pub facts: Facts<'a>,
    /// Where runs are kept.
    pub state: &'a StateDir,
    /// Where everything is recorded.
    pub ledger: &'a Ledger,
    /// The terminal's size, if the program gets one.
    pub terminal: Option<Size>,
    /// Nothing of the run is kept but what the ledger says; not for live or
    /// resumed runs.
    pub scratch: bool,
    /// The run whose layers this one goes on with.
    pub resume: Option<&'a RunRecord>,
    /// The time of the call.
    pub now: SystemTime,
}

/// How a call ended.
#[derive(Debug)]
pub struct Called<A> {
    /// The other end of the program's input and output, done with.
    pub attachment: A,
    /// What came of it.
    pub outcome: Outcome,
    /// The record of the run, as it is kept.
    pub record: RunRecord,
    /// What the person should know.
    pub notices: Vec<String>,
}

/// A call that did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Policy refused it; the refusal is recorded.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The sandbox could not be made or failed.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The ledger could not record it.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The run's own files could not be made.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The run's layers could not be made.
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// Carries a call out: the main path. `attach` makes the other end of the
/// program's input and output, once it is known that it will run. The launcher is
/// begun by the caller as early as it can: it takes as long as all the rest, and
/// until it is sent an armed grant's description it does nothing.
///
/// # Errors
/// [`CallError`]. Whatever it is, no sandbox is left and the ledger says so.
pub fn call<A: Attachment>(
    request: &Request<'_>,
    starting: Starting,
    attach: impl FnOnce(&Grant) -> A,
) -> Result<Called<A>, CallError> {
    let verdict = decide(request.rules, request.call, &request.facts);
    let decision = describe(request.rules, &verdict);
    let entry = request.ledger.open_call(request.call, &verdict, decision)?;
    let armed = entry.arm(verdict)?;
    let mut attachment = attach(armed.grant());
    match carry_out(request, starting, &armed, &mut attachment) {
        Ok((outcome, record, notices)) => {
            request.ledger.close(armed, &outcome, closing(&outcome))?;
            Ok(Called {
                attachment,
                outcome,
                record,
                notices,
            })
        }
        Err(error) => {
            request.ledger.close_failed(
                armed,
                "the run was not carried out",
                &error.to_string(),
            )?;
            Err(error)
        }
    }
}

/// Between arming and closing: the run's own files, the sandbox, its end.
fn carry_out(
    request: &Request<'_>,
    starting: Starting,
    armed: &Armed<Grant>,
    attachment: &mut dyn Attachment,
) -> Result<(Outcome, RunRecord, Vec<String>), CallError> {
    let boundary = armed.grant().boundary();
    let host = Host::read()?;
    let held = detect_groups(&host);
    let mut record = new_record(request, armed.grant());
    if request.scratch {
        create_scratch(request.state, &record.run)?;
    } else {
        create_run(request.state, &record)?;
    }
    let run = (|| {
        let placed = place(request, boundary, &host, &mut record)?;
        if !request.scratch {
            reserve_end(request.state, &record.run)?;
        }
        let outcome = execute(request, starting, armed, &host, &held, &placed, attachment)?;
        Ok((outcome, placed.notices))
    })();
    if request.scratch {
        remove_scratch(request.state, &record.run)?;
    } else {
        release_end(request.state, &record.run);
    }
    match run {
        Ok((outcome, notices)) => {
            record.ending = Some(outcome.ending);
            record.exit = Some(outcome.ending.exit_status());
            let record = note_end(request, record, RunState::Kept)?;
            Ok((outcome, record, notices))
        }
        Err(error) => {
            note_end(request, record, RunState::Failed)?;
            Err(error)
        }
    }
}

/// Writes down what became of a run, unless nothing is kept of it.
fn note_end(
    request: &Request<'_>,
    mut record: RunRecord,
    state: RunState,
) -> Result<RunRecord, CallError> {
    record.state = state;
    if request.scratch {
        record.state = RunState::Discarded;
        return Ok(record);
    }
    let ended = |kept: &mut RunRecord| kept.clone_from(&record);
    Ok(update_run(
        request.state,
        &record.run,
        Durability::Buffered,
        ended,
    )?)
}

fn execute(
    request: &Request<'_>,
    starting: Starting,
    armed: &Armed<Grant>,
    host: &Host,
    held: &Held,
    placed: &Placed,
    attachment: &mut dyn Attachment,
) -> Result<Outcome, CallError> {
    let native = Native {
        host,
        held,
        placement: &placed.placement,
        terminal: request.terminal,
    };
    Ok(start(&native, starting, armed, request.call)?.attend(attachment)?)
}

fn new_record(request: &Request<'_>, grant: &Grant) -> RunRecord {
    let call = request.call;
    let started = request
        .now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    RunRecord {
        v: RECORD_VERSION,
        run: call.run.clone(),
        command: call.command.clone(),
        workspace: call.workspace.clone(),
        directory: call.directory.clone(),
        profile: grant.boundary().profile.clone(),
        mode: grant.boundary().workspace,
        base: None,
        layers: Vec::new(),
        started_at_ms: u64::try_from(started.as_millis()).unwrap_or(u64::MAX),
        state: RunState::Running,
        exit: None,
        ending: None,
        changes: None,
        resumed_from: request.resume.map(|earlier| earlier.run.clone()),
    }
}

/// What the verdict was reached on, for the ledger.
fn describe(rules: &Rules, verdict: &Verdict<Grant>) -> Value {
    let mut decision = json!({ "profile": rules.profile(), "policy": rules.digest() });
    if let (Verdict::Allow(grant), Some(fields)) = (verdict, decision.as_object_mut()) {
        let boundary = grant.boundary();
        let limits = &boundary.limits;
        let milliseconds = |time: Option<Duration>| {
            time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
        };
        fields.insert("workspace-mode".to_owned(), json!(boundary.workspace));
        fields.insert("network".to_owned(), json!("none"));
        fields.insert(
            "limits".to_owned(),
            json!({
                "memory-bytes": limits.memory_bytes,
                "swap-bytes": limits.swap_bytes,
                "processes": limits.processes,
                "open-files": limits.open_files,
                "disk-bytes": limits.disk_bytes,
                "inodes": limits.inodes,
                "tmp-bytes": limits.tmp_bytes,
                "cpu-millis": limits.cpu_millis,
                "wall-clock-ms": milliseconds(limits.wall_clock),
                "idle-ms": milliseconds(limits.idle),
                "output-bytes": limits.output_bytes,
                "dangerous-unenforced": limits.dangerous_unenforced_limits,
            }),
        );
    }
    decision
}

/// What else the closing event says.
fn closing(outcome: &Outcome) -> Value {
    json!({ "exit": outcome.ending.exit_status() })
}
