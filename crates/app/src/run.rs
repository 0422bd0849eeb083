//! `atoll run`: from what was typed to a run and the decision about its changes.

use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_gateway::{CallError, Request, call};
use atoll_model::{Call, InvalidLimit, LimitKey, Reason, RunId, parse_duration, parse_limit};
use atoll_policy::{Facts, Grant, ProfileError, Requested, Rules, compile, nearest};
use atoll_sandbox::{Host, RunGroup, Signals, Starting, run_groups};
use atoll_store::{Ledger, Refused, RunRecord, StateDir, settle_run};

use crate::LAUNCHER;
use crate::advice::{self, About};
use crate::arguments::RunArguments;
use crate::conclusion::{Conclusion, is_scratch, open_json, tell_failure};
use crate::configuration::{self, Places, PolicyFiles};
use crate::console::{Console, ConsoleSettings, terminal_size};
use crate::failure::{Doing, Failure, STATUS_DENIED};
use crate::output::Output;
use crate::upkeep::requested_profile;

/// Runs a command in a boundary; returns its exit status.
pub fn run(arguments: RunArguments, output: &Output) -> Result<u8, Failure> {
    // Before anything can fail: a run that never began is told about there too.
    let json = open_json(&arguments)?;
    let ended = carry_out(&arguments, json.as_ref(), output);
    if let Err(failure) = &ended {
        tell_failure(&arguments, json.as_ref(), failure, output);
    }
    ended
}

fn carry_out(
    arguments: &RunArguments,
    json: Option<&File>,
    output: &Output,
) -> Result<u8, Failure> {
    refuse_nesting()?;
    let starting = Starting::begin(LAUNCHER);
    let places = Places::read()?;
    let state = places.open_state()?;
    let resume = resumed(arguments, &state)?;
    let (workspace, directory) = workspace_of(arguments, resume.as_ref())?;
    let host = configuration::host_facts(&places)?;
    let files = PolicyFiles::read(&places, Some(&workspace))?;
    let requested = requested(arguments)?;
    let program = arguments.command.first().cloned().unwrap_or_default();
    let rules =
        compile(&files.sources(), &requested, &program, &host).map_err(|error| no_rules(&error))?;
    for notice in rules.notices() {
        output.warn(&notice.to_string());
    }
    let terminal = wants_terminal(arguments)?;
    let ledger = open_ledger(&state)?;
    tell_interrupted(&ledger, output);
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
        facts: Facts {
            host: &host,
            environment: &environment,
        },
        state: &state,
        ledger: &ledger,
        terminal: if terminal { terminal_size() } else { None },
        scratch: is_scratch(arguments),
        resume: resume.as_ref(),
        now,
    };
    let signals = Signals::take().doing("signals cannot be taken over")?;
    let attach = |grant: &Grant| {
        // The rules' own have been told.
        for notice in grant.notices().iter().skip(rules.notices().len()) {
            output.warn(&notice.to_string());
        }
        console(grant, &state, &asked, arguments.discard, signals)
    };
    let called =
        call(&request, starting, attach).map_err(|error| explain(error, &rules, &asked))?;
    for notice in &called.notices {
        output.warn(notice);
    }
    Conclusion {
        arguments,
        state: &state,
        ledger: &ledger,
        output,
        json,
    }
    .draw(called)
    .map_err(|failure| failure.about(&asked.run, rules.profile()))
}

fn no_rules(error: &ProfileError) -> Failure {
    Failure::new("the rules of this run cannot be made")
        .because(error)
        .advise(advice::profile(error))
}

/// Opens the ledger, and clears away what interrupted runs have left of control
/// groups, where nobody was left to do it.
///
/// # Errors
/// When the ledger cannot be opened.
pub fn open_ledger(state: &StateDir) -> Result<Ledger, Failure> {
    let ledger = Ledger::open(state, SystemTime::now).map_err(|error| {
        Failure::new("the ledger cannot be opened")
            .because(&error)
            .advise(advice::ledger(&error))
    })?;
    if !ledger.interrupted().is_empty()
        && let Ok(host) = Host::read()
    {
        let is_interrupted =
            |group: &RunGroup| ledger.interrupted().iter().any(|one| one.run == group.run);
        for group in run_groups(&host)
            .iter()
            .filter(|group| is_interrupted(group))
        {
            // One that still has a process is for `atoll gc`.
            let _ = group.remove();
        }
    }
    Ok(ledger)
}

/// The run whose layers this one goes on with.
fn resumed(arguments: &RunArguments, state: &StateDir) -> Result<Option<RunRecord>, Failure> {
    let Some(text) = &arguments.resume else {
        return Ok(None);
    };
    if arguments.discard {
        return Err(Failure::new("--resume and --discard contradict each other")
            .because("the earlier run's changes would be thrown away with this one's")
            .advise("atoll discard RUN throws them away knowingly"));
    }
    let run = crate::finding::find(state, text)
        .map_err(|failure| failure.advise("atoll run --resume RUN goes on with one of them"))?;
    settle_run(state, &run)
        .map(Some)
        .doing("there is no run to resume")
        .map_err(|failure| failure.advise("atoll runs lists those that can be resumed"))
}

fn tell_interrupted(ledger: &Ledger, output: &Output) {
    for interrupted in ledger.interrupted() {
        output.warn(&format!(
            "run {} was interrupted earlier; `atoll diff {0}` shows what it had done",
            interrupted.run
        ));
    }
}

/// A sandbox inside a sandbox needs what the outer one has taken away.
fn refuse_nesting() -> Result<(), Failure> {
    match std::env::var_os("ATOLL_RUN") {
        None => Ok(()),
        Some(run) => Err(Failure::new("atoll run does not work inside atoll run")
            .because(format!(
                "this shell runs inside run {}",
                run.to_string_lossy()
            ))
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
    let real = path
        .canonicalize()
        .map_err(|error| unusable(error.to_string()))?;
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
        let (key, value) = parse_limit(text).map_err(|error| limit_mistake(text, &error))?;
        limits.push((key, value.to_owned()));
    }
    let timeout = match &arguments.timeout {
        None => None,
        Some(text) => Some(parse_duration(text).doing("--timeout is not usable")?),
    };
    let mut read_only_dirs = Vec::with_capacity(arguments.ro.len());
    for path in &arguments.ro {
        read_only_dirs.push(
            path.canonicalize()
                .doing(&format!("--ro {} cannot be read", path.display()))?,
        );
    }
    Ok(Requested {
        profile: arguments
            .profile
            .as_ref()
            .map(|name| requested_profile(name))
            .transpose()?,
        live: arguments.live,
        read_only_dirs,
        limits,
        timeout,
        environment: arguments.env.clone(),
    })
}

fn limit_mistake(text: &str, error: &InvalidLimit) -> Failure {
    let meant = match error {
        InvalidLimit::Unknown(name) => nearest(name, LimitKey::names()),
        InvalidLimit::Form(_) | InvalidLimit::Value { .. } => None,
    };
    let value = text.split_once('=').map_or("", |(_, value)| value);
    Failure::new("--limit is not usable")
        .because(error)
        .advise(match meant {
            Some(name) => format!("did you mean --limit {name}={value}?"),
            None => "atoll run --limit memory=2GiB -- …".to_owned(),
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
    let seconds = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
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
        other => {
            let profile = rules.profile();
            let advice = About {
                call: asked,
                profile,
            }
            .advice(&other);
            Failure::new("the run failed").because(other).advise(advice)
        }
    }
    .about(&asked.run, rules.profile())
}

fn denied(what: &str, reasons: &[Reason], asked: &Call) -> Failure {
    let lines: Vec<String> = reasons
        .iter()
        .map(|reason| format!("{}: {} ({})", reason.what, reason.why, reason.rule))
        .collect();
    let mut failure = Failure::new(what)
        .because(lines.join("\n"))
        .with_status(STATUS_DENIED);
    failure.advice = reasons
        .iter()
        .map(|reason| reason.how_to_ask.clone())
        .collect();
    failure.reasons = reasons.to_vec();
    failure.advise(format!("atoll why {}", asked.run))
}
