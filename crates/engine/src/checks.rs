//! Checks of a run's changes before they are taken over.
//!
//! The commands of the profile's `[checks]` run in a fresh sandbox, which begins with copies of the
//! run's layers: the workspace there is what an apply would make of it, but for the files that decide
//! what passes, which are as before the run. The layers are thrown away then. The programs there are
//! the run's own work, and nothing rests on their word but the status of each command.
//!
//! Start reading at [`check`].

mod judge;
mod staging;
mod upper;

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use atoll_layer::{Class, Selection};
use atoll_ledger::{Durability, Ledger, StateDir};
use atoll_model::{Ending, RunId};
use atoll_policy::{Checks, Outputs, PriorAnswer, Requested, checks};
use atoll_store::{LayerKind, RunRecord, lock_run};
use serde_json::json;
use sha2::{Digest, Sha256};

use self::judge::Judge;
use self::staging::stage;
use crate::changes::LayerChanges;
use crate::decision::refuse_conflicts;
use crate::events::seals;
use crate::explain::recorded::{Opening, ReadOptions};
use crate::failure::{Doing, Failure};
use crate::layer_copies::LayerCopies;
use crate::printable::{printable, quoted};
pub use crate::promotion::Checked;
use crate::promotion::checked::{FAILED, PASSED};
use crate::promotion::{Planned, digests, plans};
use crate::sandboxes::{CreateSandbox, Engine, ExecRequest, Sandbox, Workspace};

/// The most bytes of a check's output that are kept, the last ones.
const OUTPUT_BYTES_MAX: usize = 16 << 10;
/// The most lines that are shown of it.
const LINES_MAX: usize = 20;
/// The longest line that is shown, characters.
const LINE_CHARS_MAX: usize = 400;
/// The time to wait for output that programs left behind may still write.
const PATIENCE: Duration = Duration::from_millis(500);

/// The changes to check, and how.
pub struct CheckRequest<'a> {
    /// The engine, of the state in which the run is kept.
    pub engine: &'a Engine,
    /// The run.
    pub record: &'a RunRecord,
    /// Its changes.
    pub all: &'a [LayerChanges],
    /// Those that would be applied.
    pub selection: &'a Selection,
    /// The boundary that the run asked for; its additions to the network do not count.
    pub requested: Requested,
    /// Takes each check as it begins.
    pub progress: &'a dyn Fn(Progress<'_>),
}

/// A check that begins.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Its number, from 1.
    pub number: usize,
    /// The number of checks.
    pub of: usize,
    /// Its command.
    pub command: &'a str,
}

/// The result of checks.
#[derive(Debug)]
pub enum CheckResult {
    /// There is nothing to apply, so that nothing ran.
    Nothing(Checked),
    /// Every check has passed.
    Passed(Checked),
    /// A check has not: nothing may be applied.
    Failed(FailedCheck),
}

/// A check that has not passed.
#[derive(Debug)]
pub struct FailedCheck {
    /// Its command.
    pub command: String,
    /// The way in which it ended.
    pub why: String,
    /// The last lines of its output, printable.
    pub output: Vec<String>,
}

/// Runs the checks of the profile on the result that an apply would make. What came of them is on
/// record, bound to the plans of that apply.
///
/// # Errors
/// When they cannot run, or the result cannot be made exactly.
pub fn check(request: CheckRequest<'_>) -> Result<CheckResult, Failure> {
    let CheckRequest {
        engine,
        record,
        all,
        selection,
        ..
    } = request;
    let (state, ledger) = (engine.state_dir(), engine.ledger());
    let _lock = lock_run(state, &record.run).doing("the run is in use")?;
    let plans = plans(all, selection)?;
    plans.iter().try_for_each(|one| is_exact(one, record))?;
    let digests = digests(&plans)?;
    if plans.iter().all(|one| one.plan.is_empty()) {
        return Ok(CheckResult::Nothing(Checked {
            plans: digests,
            shadowed: None,
            judge: Vec::new(),
        }));
    }
    let mut wanted = wanted(&request, state);
    let (rules, _) = engine.rules_in(&wanted, &record.workspace)?;
    if rules.profile() != record.profile {
        let (then, now) = (&record.profile, rules.profile());
        return Err(Failure::new("the checks cannot run").because(format!(
            "the run had profile {then}, and would have {now} today"
        )));
    }
    let checks = checks(&rules);
    if checks.commands.is_empty() {
        let profile = &record.profile;
        return Err(Failure::new(format!("profile {profile} has no checks"))
            .because("`commands` in its [checks] names none")
            .advise("write there, as an example: commands = [\"cargo test\"]"));
    }
    wanted.requested.timeout = Some(checks.timeout);
    let judge = Judge::read(&checks, &record.workspace)?;
    let staged = stage(state, record, &plans, selection, &judge)?;
    let sandbox = engine.create(&wanted)?;
    let run = sandbox.run().clone();
    let failed = run_all(&sandbox, &checks, request.progress)?;
    drop(sandbox);
    let passed = Checked {
        plans: digests,
        shadowed: None,
        judge: staged.judge.clone(),
    };
    note(ledger, record, &run, &checks, &passed, failed.as_ref())?;
    Ok(match failed {
        Some((_, failed)) => CheckResult::Failed(failed),
        None => CheckResult::Passed(passed),
    })
}

/// Refuses a plan whose result is not the run's: what is left out of it may be what checks need.
fn is_exact(planned: &Planned<'_>, record: &RunRecord) -> Result<(), Failure> {
    refuse_conflicts(&planned.plan, record)?;
    match planned.plan.leaves_out() {
        true => Err(Failure::new("the checks cannot run")
            .because("some of the changes cannot be applied, so the result would be another one")
            .advise(format!("atoll apply {} names them", record.run))),
        false => Ok(()),
    }
}

/// Returns the request for the sandbox: the boundary of the run, without what was added to the
/// network or published.
fn wanted(request: &CheckRequest<'_>, state: &StateDir) -> CreateSandbox {
    let record = request.record;
    CreateSandbox {
        workspace: Workspace::Directory(record.workspace.clone()),
        requested: Requested {
            login: None,
            live: false,
            outputs: Outputs::None,
            keep_caches: false,
            allow: Vec::new(),
            allowed: Vec::new(),
            tunnel: Vec::new(),
            presets: Vec::new(),
            in_session: true,
            host_ports: Vec::new(),
            publish: Vec::new(),
            learn: false,
            ..request.requested.clone()
        },
        discard: true,
        is_attended: false,
        home: None,
        template: None,
        frozen: None,
        made_at: None,
        system: None,
        answer: PriorAnswer::Nobody,
        parent: None,
        begins_with: Some(Box::new(LayerCopies {
            of: record.clone(),
            directory: staging::place(state, record),
        })),
    }
}

/// Runs one check after the other, up to the first that fails.
fn run_all(
    sandbox: &Sandbox,
    checks: &Checks,
    progress: &dyn Fn(Progress<'_>),
) -> Result<Option<(usize, FailedCheck)>, Failure> {
    let (begun, of) = (Instant::now(), checks.commands.len());
    for (number, command) in (1..).zip(&checks.commands) {
        progress(Progress {
            number,
            of,
            command,
        });
        let (ending, output) = run(sandbox, command)?;
        let is_late = begun.elapsed() >= checks.timeout;
        let why = match ending {
            Ok(Ending::Exited { status: 0 }) => continue,
            _ if is_late => {
                format!("the checks took longer than {} s", checks.timeout.as_secs())
            }
            Ok(Ending::Exited { status }) => format!("it exited with {status}"),
            Ok(Ending::Signalled { signal }) => format!("signal {signal} ended it"),
            Ok(ending) => format!("it did not come to its end ({ending:?})"),
            Err(failure) => match failure.why {
                Some(why) => format!("{}: {why}", failure.what),
                None => failure.what,
            },
        };
        let failed = FailedCheck {
            command: printable(command.as_bytes()),
            why: printable(why.as_bytes()),
            output: last_lines(&output),
        };
        return Ok(Some((number, failed)));
    }
    Ok(None)
}

/// Runs a command to its end. Returns what it ended with, and the last of its output.
fn run(sandbox: &Sandbox, command: &str) -> Result<(Result<Ending, Failure>, Vec<u8>), Failure> {
    let request = ExecRequest {
        command: ["sh", "-c", command].map(Into::into).into(),
        directory: None,
        environment: Vec::new(),
        served: None,
        answer: PriorAnswer::Nobody,
        parent: None,
    };
    let pipe = || io::pipe().doing("no pipe can be made");
    let ((nothing, input), (from, out)) = (pipe()?, pipe()?);
    drop(input);
    let err = out.try_clone().doing("no pipe can be made")?;
    let streams = [nothing.into(), out.into(), err.into()];
    let exec = sandbox.start(request, streams, None);
    let tail = Arc::new(Mutex::new(VecDeque::new()));
    let all_read = keep_last(from, Arc::clone(&tail));
    let ending = exec.and_then(|mut exec| exec.wait());
    // What it has started may hold the pipe for longer.
    let _ = all_read.recv_timeout(PATIENCE);
    let tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((ending, tail.iter().copied().collect()))
}

/// Reads a pipe to its end on another thread, and keeps the last of it.
fn keep_last(mut from: impl Read + Send + 'static, tail: Arc<Mutex<VecDeque<u8>>>) -> Receiver<()> {
    let (done, is_done) = channel();
    std::thread::spawn(move || {
        let mut block = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut block) {
            let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
            tail.extend(block.iter().take(count));
            let more = tail.len().saturating_sub(OUTPUT_BYTES_MAX);
            tail.drain(..more);
        }
        let _ = done.send(());
    });
    is_done
}

/// Returns the last lines of output, which a run's programs have written.
fn last_lines(output: &[u8]) -> Vec<String> {
    let lines: Vec<&[u8]> = output.trim_ascii_end().split(|one| *one == b'\n').collect();
    let first = lines.len().saturating_sub(LINES_MAX);
    let lines = lines.iter().skip(first).filter(|_| !output.is_empty());
    let shown = lines.map(|line| printable(line.trim_ascii_end()));
    shown
        .map(|line| line.chars().take(LINE_CHARS_MAX).collect())
        .collect()
}

/// Records what came of checks, on disk before it returns.
fn note(
    ledger: &Ledger,
    record: &RunRecord,
    sandbox: &RunId,
    checks: &Checks,
    checked: &Checked,
    failed: Option<&(usize, FailedCheck)>,
) -> Result<(), Failure> {
    let mut hash = Sha256::new();
    for text in checks.commands.iter().chain(&checks.judge) {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    let digest = hash.finalize();
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let plans: Vec<String> = checked.plans.iter().map(ToString::to_string).collect();
    let mut body = json!({
        "commands": format!("sha256:{digest}"),
        "judge": checked.judge.len(),
        "plans": plans,
        "sandbox": sandbox,
    });
    if let (Some(body), Some((number, _))) = (body.as_object_mut(), failed) {
        body.insert("failed".to_owned(), json!(number));
    }
    let kind = if failed.is_some() { FAILED } else { PASSED };
    let recorded = ledger.record(Some(&record.run), kind, body, Durability::Durable);
    recorded.map(drop).doing("the checks could not be recorded")
}

/// Returns the boundary that a run asked for, as the ledger has it.
///
/// # Errors
/// When it cannot be read any more.
pub fn requested(
    state: &StateDir,
    run: &RunId,
    read: ReadOptions<'_>,
) -> Result<Requested, Failure> {
    let unknown = "the checks cannot run: what the run was started with is not known";
    let events = Ledger::show(state, run).doing(unknown)?;
    let is_opening = |event: &atoll_ledger::Event| event.kind == "run.opened";
    let opened = events.filter_map(Result::ok).find(is_opening);
    let opened = opened.ok_or("the ledger has no beginning of it");
    let opened = opened.map(|event| seals(state).map(|seals| seals.open(event)));
    let opened = opened.doing(unknown)??;
    let opening = Opening::of(&opened, read).doing(unknown)?;
    Ok(opening.requested)
}

/// Returns why these changes are never applied without a person, whatever checks say.
#[must_use]
pub fn needs_person(all: &[LayerChanges]) -> Option<&'static str> {
    let is_control = |one: &LayerChanges| {
        let mut changes = one.set.changes.iter();
        changes.any(|change| change.class == Class::Control)
    };
    let is_outside = |one: &LayerChanges| one.layer.kind == LayerKind::Home && !one.set.is_empty();
    match (all.iter().any(is_control), all.iter().any(is_outside)) {
        (true, _) => Some("control files, which other programs run, are among the changes"),
        (false, true) => Some("files outside the workspace are among the changes"),
        (false, false) => None,
    }
}

/// Returns why changes that have passed their checks need a person, if the run has changed what
/// decides.
#[must_use]
pub fn changed_judge(checked: &Checked) -> Option<String> {
    let (first, rest) = checked.judge.split_first()?;
    let first = quoted(first.as_os_str().as_encoded_bytes());
    let more = match rest.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "the run changed files that decide the checks: {first}{more}"
    ))
}
