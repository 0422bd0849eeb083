//! `atoll run`: from what was typed to a run and the decision about its changes.

use std::hash::{BuildHasher, Hasher};
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_gateway::{CallError, Called, Request, call};
use atoll_model::{Call, Reason, RunId, parse_duration, parse_limit};
use atoll_policy::{Facts, Grant, Requested, Rules, compile};
use atoll_sandbox::{Host, Signals, detect_groups, remove_leftover_groups};
use atoll_store::{Ledger, Refused, RunRecord, RunState, StateDir, find_run, load_run};
use rustix::fs::OFlags;
use serde_json::json;

use crate::arguments::RunArguments;
use crate::configuration::{self, Places, PolicyFiles};
use crate::console::{Console, ConsoleSettings, terminal_size};
use crate::decision::{self, Decision};
use crate::failure::{Doing, Failure, STATUS_DENIED};
use crate::output::Output;
use crate::render::{self, Afterwards};
use crate::upkeep::requested_profile;
use crate::{LAUNCHER, changes};

/// Runs a command in a boundary; returns its exit status.
pub fn run(arguments: RunArguments, output: &Output) -> Result<u8, Failure> {
    refuse_nesting()?;
    if arguments.discard && arguments.resume.is_some() {
        return Err(Failure::new("--resume and --discard contradict each other")
            .because("the earlier run's changes would be thrown away with this one's")
            .advise("atoll discard RUN throws them away knowingly"));
    }
    let places = Places::read()?;
    let state = places.open_state()?;
    let resume = match &arguments.resume {
        None => None,
        Some(text) => Some(find_run(&state, text).and_then(|run| load_run(&state, &run)).doing(
            "there is no run to resume",
        )?),
    };
    let (workspace, directory) = workspace_of(&arguments, resume.as_ref())?;
    let host = configuration::host_facts(&places)?;
    let files = PolicyFiles::read(&places, Some(&workspace))?;
    let requested = requested(&arguments)?;
    let program = arguments.command.first().cloned().unwrap_or_default();
    let rules = compile(&files.sources(), &requested, &program, &host)
        .doing("the rules of this run cannot be made")?;
    for notice in rules.notices() {
        output.warn(&notice.to_string());
    }
    let terminal = wants_terminal(&arguments)?;
    let json = match arguments.json.as_deref() {
        None => None,
        Some(path) if path == Path::new("-") => None,
        Some(path) => Some(open_json(path)?),
    };
    let ledger = open_ledger(&state)?;
    for interrupted in ledger.interrupted() {
        output.warn(&format!(
            "run {} was interrupted earlier; `atoll diff {0}` shows what it had done",
            interrupted.run
        ));
    }
    let now = SystemTime::now();
    let asked = Call {
        run: new_run_id(now),
        principal: configuration::principal(),
        command: arguments.command.clone(),
        workspace,
        directory,
        terminal,
    };
    let environment = configuration::environment();
    let request = Request {
        call: &asked,
        rules: &rules,
        facts: Facts { host: &host, environment: &environment },
        state: &state,
        ledger: &ledger,
        launcher: LAUNCHER,
        terminal: if terminal { terminal_size() } else { None },
        scratch: is_scratch(&arguments),
        resume: resume.as_ref(),
        now,
    };
    let signals = Signals::take().doing("signals cannot be taken over")?;
    let attach = |grant: &Grant| console(grant, &state, &asked, arguments.discard, signals);
    let called = call(&request, attach).map_err(|error| explain(error, &rules, &asked))?;
    for notice in &called.notices {
        output.warn(notice);
    }
    let json = json.as_ref();
    let with = Concluding { arguments: &arguments, state: &state, ledger: &ledger, output, json };
    conclude(&with, called)
}

/// Opens the ledger, and clears away what interrupted runs have left of control
/// groups, where nobody was left to do it.
///
/// # Errors
/// When the ledger cannot be opened.
pub fn open_ledger(state: &StateDir) -> Result<Ledger, Failure> {
    let ledger = Ledger::open(state, SystemTime::now).doing("the ledger cannot be opened")?;
    if !ledger.interrupted().is_empty() && let Ok(host) = Host::read() {
        let held = detect_groups(&host);
        for interrupted in ledger.interrupted() {
            remove_leftover_groups(&held, &interrupted.run);
        }
    }
    Ok(ledger)
}

/// Whether nothing of the run is kept, and nobody asks what it changed.
fn is_scratch(arguments: &RunArguments) -> bool {
    arguments.discard && arguments.json.is_none() && !arguments.live
}

/// A sandbox inside a sandbox needs what the outer one has taken away.
fn refuse_nesting() -> Result<(), Failure> {
    match std::env::var_os("ATOLL_RUN") {
        None => Ok(()),
        Some(run) => Err(Failure::new("atoll run does not work inside atoll run")
            .because(format!("this shell runs inside run {}", run.to_string_lossy()))
            .advise("end that run first; what is started inside is contained already")),
    }
}

/// The workspace and where in it the program starts, free of symbolic links.
fn workspace_of(
    arguments: &RunArguments,
    resume: Option<&RunRecord>,
) -> Result<(PathBuf, PathBuf), Failure> {
    let current = std::env::current_dir()
        .doing("the current directory cannot be used; it may have been removed")?;
    let chosen = match (&arguments.workspace, resume) {
        (Some(chosen), _) => chosen.clone(),
        (None, Some(earlier)) => earlier.workspace.clone(),
        (None, None) => current.clone(),
    };
    let workspace = readable_directory(&chosen)?;
    let directory = match current.canonicalize() {
        Ok(current) if current.starts_with(&workspace) => current,
        _ => resume.map_or(workspace.clone(), |earlier| earlier.directory.clone()),
    };
    Ok((workspace, directory))
}

fn readable_directory(path: &Path) -> Result<PathBuf, Failure> {
    let unusable = |why: String| {
        Failure::new(format!("the workspace {} cannot be used", path.display()))
            .because(why)
            .advise("atoll run --workspace DIR names another one")
    };
    let real = path.canonicalize().map_err(|error| unusable(error.to_string()))?;
    if !real.is_dir() {
        return Err(unusable("it is not a directory".to_owned()));
    }
    std::fs::read_dir(&real).map_err(|error| unusable(error.to_string()))?;
    Ok(real)
}

/// What was asked for, in the types of policy.
fn requested(arguments: &RunArguments) -> Result<Requested, Failure> {
    let mut limits = Vec::with_capacity(arguments.limit.len());
    for text in &arguments.limit {
        let (key, value) = parse_limit(text)
            .doing("--limit is not usable")
            .map_err(|failure| failure.advise("atoll run --limit memory=2GiB -- …"))?;
        limits.push((key, value.to_owned()));
    }
    let timeout = match &arguments.timeout {
        None => None,
        Some(text) => Some(parse_duration(text).doing("--timeout is not usable")?),
    };
    let mut read_only_dirs = Vec::with_capacity(arguments.ro.len());
    for path in &arguments.ro {
        read_only_dirs.push(
            path.canonicalize().doing(&format!("--ro {} cannot be read", path.display()))?,
        );
    }
    Ok(Requested {
        profile: arguments.profile.as_ref().map(|name| requested_profile(name)).transpose()?,
        live: arguments.live,
        read_only_dirs,
        limits,
        timeout,
        environment: arguments.env.clone(),
    })
}

fn wants_terminal(arguments: &RunArguments) -> Result<bool, Failure> {
    let has = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if arguments.tty && !has {
        return Err(Failure::new("--tty needs a terminal")
            .because("standard input or output is something else"));
    }
    Ok(has && !arguments.no_tty)
}

fn new_run_id(now: SystemTime) -> RunId {
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    // The standard library's hash seeds come from the kernel's random numbers.
    let random = std::hash::RandomState::new().build_hasher().finish();
    RunId::new(seconds, random as u32)
}

fn console(
    grant: &Grant,
    state: &StateDir,
    asked: &Call,
    discard: bool,
    signals: Signals,
) -> Console {
    let boundary = grant.boundary();
    let settings = ConsoleSettings {
        terminal: asked.terminal,
        rights: boundary.terminal,
        keep_in: (!discard).then(|| state.run_dir(&asked.run).join("output")),
        keep_bytes_max: boundary.limits.output_bytes,
    };
    Console::new(settings, Some(signals))
}

/// A refusal or a failure, for the person.
fn explain(error: CallError, rules: &Rules, asked: &Call) -> Failure {
    match error {
        CallError::Refused(Refused::Denied(refusal)) => {
            denied("the policy denies this run", &refusal.reasons, asked)
        }
        CallError::Refused(Refused::NeedsApproval(refusal)) => {
            denied("this run needs a person's yes", &refusal.reasons, asked)
        }
        other => Failure::new("the run failed")
            .because(other)
            .advise(format!("atoll doctor; the profile was {}", rules.profile())),
    }
}

fn denied(what: &str, reasons: &[Reason], asked: &Call) -> Failure {
    let lines: Vec<String> = reasons
        .iter()
        .map(|reason| format!("{}: {} ({})", reason.what, reason.why, reason.rule))
        .collect();
    let mut failure = Failure::new(what).because(lines.join("\n")).with_status(STATUS_DENIED);
    failure.advice = reasons.iter().map(|reason| reason.how_to_ask.clone()).collect();
    failure.advise(format!("atoll why {}", asked.run))
}

struct Concluding<'a> {
    arguments: &'a RunArguments,
    state: &'a StateDir,
    ledger: &'a Ledger,
    output: &'a Output,
    json: Option<&'a File>,
}

/// After the program: what changed, what becomes of it, the summary.
fn conclude(with: &Concluding<'_>, called: Called<Console>) -> Result<u8, Failure> {
    let Called { attachment, outcome, mut record, .. } = called;
    let removed_sequences = attachment.finish();
    let status = outcome.ending.exit_status();
    let arguments = with.arguments;
    let all = if is_scratch(arguments) {
        // Gone already: nobody looks at what is thrown away.
        record.layers.clear();
        Vec::new()
    } else {
        changes::read(with.state, &record)?
    };
    let groups = changes::grouped(&all);
    let decision = if arguments.discard && !is_scratch(arguments) {
        Decision::Discard
    } else if is_scratch(arguments) {
        Decision::Gone
    } else if arguments.apply {
        Decision::Apply
    } else if arguments.keep || groups.total() == 0 || !with.output.can_ask {
        Decision::Keep
    } else {
        let text = summary_text(with, &record, &outcome, &groups, &removed_sequences, Afterwards::Kept);
        with.output.say(&text);
        decision::ask(&all, with.output)?
    };
    let asked = with.output.can_ask && !arguments.discard && !arguments.apply && !arguments.keep && groups.total() > 0;
    let work = decision::Work { state: with.state, ledger: with.ledger, output: with.output };
    let afterwards = work.carry_out(decision, &mut record, &all, &groups)?;
    if asked {
        with.output.say(&decision::said(with.output, &record, afterwards));
    } else {
        let text = summary_text(with, &record, &outcome, &groups, &removed_sequences, afterwards);
        with.output.say(&text);
    }
    if let Some(path) = &arguments.json {
        let text = format!("{:#}\n", as_json(&record, &outcome, &groups));
        match with.json {
            None => with.output.say(&text),
            Some(file) => write_json(file, path, &text)?,
        }
    }
    if outcome.usage.memory_kills > 0 {
        with.output.warn(&format!(
            "the memory limit was reached: the kernel ended {}",
            render::counted(outcome.usage.memory_kills, "process", "processes")
        ));
    }
    if outcome.ending == atoll_model::Ending::NotFound {
        with.output.warn(&decision::not_found_hint(&record));
    }
    Ok(if status == 0 && arguments.apply && record.state != RunState::Applied && groups.total() > 0 {
        crate::arguments::STATUS_OWN_ERROR
    } else {
        status
    })
}

fn summary_text(
    with: &Concluding<'_>,
    record: &RunRecord,
    outcome: &atoll_model::Outcome,
    groups: &render::Changes,
    removed_sequences: &std::collections::BTreeMap<&'static str, u64>,
    afterwards: Afterwards,
) -> String {
    render::summary(
        with.output.error_paint,
        &render::Summary {
            run: &record.run,
            ending: outcome.ending,
            usage: outcome.usage,
            enforcement: &outcome.enforcement,
            changes: groups,
            denied: &[],
            removed_sequences,
            afterwards,
        },
    )
}

/// Opens the file for `--json` before the program runs: a link that the program
/// puts in its place afterwards leads nowhere.
fn open_json(path: &Path) -> Result<File, Failure> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let failed = format!("--json {} cannot be written", path.display());
    let file = File::options()
        .write(true)
        .create(true)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(path)
        .doing(&failed)?;
    if file.metadata().doing(&failed)?.is_file() {
        Ok(file)
    } else {
        Err(Failure::new(failed).because("it is not a regular file"))
    }
}

fn write_json(mut file: &File, path: &Path, text: &str) -> Result<(), Failure> {
    file.set_len(0)
        .and_then(|()| file.write_all(text.as_bytes()))
        .doing(&format!("--json {} cannot be written", path.display()))
}

/// How a run went, for machines.
fn as_json(
    record: &RunRecord,
    outcome: &atoll_model::Outcome,
    groups: &render::Changes,
) -> serde_json::Value {
    let milliseconds = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let group = |group: &render::Group| {
        json!({ "added": group.added, "changed": group.changed, "removed": group.removed })
    };
    json!({
        "run": record.run,
        "state": record.state,
        "profile": record.profile,
        "workspace": record.workspace.to_string_lossy(),
        "exit": outcome.ending.exit_status(),
        "ending": outcome.ending,
        "wall-clock-ms": milliseconds(outcome.usage.wall_clock),
        "cpu-ms": milliseconds(outcome.usage.cpu),
        "memory-peak-bytes": outcome.usage.memory_peak_bytes,
        "limits-held-by": outcome.enforcement,
        "changes": {
            "workspace": group(&groups.workspace),
            "control": group(&groups.control),
            "caches": group(&groups.caches),
            "ignored": group(&groups.ignored),
        },
    })
}
