//! `atoll run`: from the command line to a run and the decision about its changes.

mod asking;
mod beginning;
mod purpose;
mod refused;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_engine::configuration::{self, Places, PolicyFiles};
use atoll_engine::credentials::Words;
use atoll_engine::events::open_ledger;
use atoll_engine::failure::{Doing, Failure, Kind};
use atoll_engine::{CallError, Called, Fate, Request, Tokens, call, kept_labels};
use atoll_ledger::{Ledger, StateDir};
use atoll_model::{Call, Mode, RunId, SessionId};
use atoll_policy::{EarlierPurposes, Facts, Grant, HostFacts, ProfileError, Requested, Rules};
use atoll_sandbox::{Handover, Host, Signals, Starting};
use atoll_store::RunRecord;
use beginning::{given_tokens, handed, recall, session};
use refused::explain;

use crate::LAUNCHER;
use crate::advice;
use crate::approvals;
use crate::arguments::RunArguments;
use crate::conclusion::{Conclusion, is_scratch, open_json, tell_failure};
use crate::console::{Console, ConsoleSettings};
use crate::output::Output;
use crate::policy::rereading;
use crate::reached;
use crate::requested::requested;
use crate::resuming::resumed;
use crate::terminal::terminal_size;

/// Runs a command in a boundary; returns its exit status.
pub fn run(arguments: RunArguments, output: &Output) -> Result<u8, Failure> {
    // Before anything can fail: a run that never began is told about there too.
    let json = open_json(&arguments)?;
    let ended = carry_out(&arguments, (json.as_ref(), output), &mut |_, _| {});
    if let Err(failure) = &ended {
        tell_failure(&arguments, json.as_ref(), failure, output);
    }
    ended
}

/// A callback for a run that has ended, while its files are still there.
pub type Look<'a> = &'a mut dyn FnMut(&Request<'_>, &RunRecord);

/// Carries out a run, without JSON output if it never began.
pub fn carry_out(
    arguments: &RunArguments,
    (json, output): (Option<&File>, &Output),
    look: Look<'_>,
) -> Result<u8, Failure> {
    let starting = begin()?;
    let (places, state) = own_state()?;
    let resume = resumed(arguments, &state)?;
    let earlier = purpose::earlier(arguments, &state, resume.as_ref())?;
    let at = place_of(arguments, resume.as_ref())?;
    let host = configuration::host_facts(&places)?;
    let found = (&places, &state, at.workspace.as_path());
    let mut rules = compiled((arguments, earlier), found, &host)?;
    let widening = refused::widening(&rules)?;
    let handed = handed(arguments, &rules, (&places, &host), &at.workspace, output)?;
    let (handover, words) = (handed.handover.as_ref(), handed.words);
    let terminal = wants_terminal(arguments)?;
    let ledger = own_ledger(&state, output)?;
    let (machine, mode) = read_machine()?;
    let now = SystemTime::now();
    let session = session(arguments, &state, &ledger, now)?;
    recall(&mut rules, (&state, now), (&session, &resume), output)?;
    let asked = asked((arguments, &words), session, at, terminal, now);
    let tokens = given_tokens(arguments, &state, &asked, (&rules, output))?;
    let facts = facts((&host, mode, now), &words.environment, handover);
    asking::ask(&mut rules, (&asked, &facts), arguments, output)?;
    let request = Request {
        call: &asked,
        host: &machine,
        rules: &rules,
        facts,
        git: &configuration::git_environment(),
        state: &state,
        ledger: &ledger,
        handover,
        signing: handed.signing.as_ref(),
        terminal: if terminal { terminal_size() } else { None },
        tokens: tokens.as_ref().map(|tokens| tokens as &dyn Tokens),
        fate: fate(arguments, mode),
        unattended: arguments.no_ask,
        widening: &widening,
        resume: resume.as_ref(),
        reread: &rereading(&places, &asked.workspace),
        now,
    };
    let signals = Signals::take().doing("signals cannot be taken over")?;
    let attach = |grant: &Grant| {
        tell_granted(grant, &ledger, &words.environment, output);
        let second = approvals::second_of(&widening);
        console(grant, &state, &asked, (arguments, second), signals)
    };
    let ended = match looked(&request, call(&request, starting, attach), look) {
        // What was left out is told behind what it came to.
        Err(error) => Err(failed(error, (&rules, &asked), &ledger, output).noting(rules.notices())),
        Ok(called) => Conclusion {
            arguments,
            mode,
            rules: &rules,
            state: &state,
            ledger: &ledger,
            output,
            json,
            asked_for: &rules.limits_asked_for(),
            absent: rules.absent(request.facts.placeholders),
        }
        .draw(called)
        .map_err(|failure| failure.about(&asked.run, rules.profile())),
    };
    crate::ledger::sign_end(&ledger, &state, &asked.workspace, output);
    ended
}

/// Returns the facts a decision is made on besides the rules.
fn facts<'a>(
    (host, mode, now): (&'a HostFacts, Mode, SystemTime),
    environment: &'a [(OsString, OsString)],
    handover: Option<&'a Handover>,
) -> Facts<'a> {
    Facts {
        host,
        mode,
        environment,
        now,
        placeholders: handover.map_or(&[], Handover::placeholders),
    }
}

/// Explains why there is no run, after reporting events that the ledger lost.
fn failed(
    error: CallError,
    (rules, asked): (&Rules, &Call),
    ledger: &Ledger,
    output: &Output,
) -> Failure {
    tell_losses(ledger, output);
    explain(error, rules, asked)
}

/// Shows a run that has ended to the callback.
fn looked(
    request: &Request<'_>,
    called: Result<Called<Console>, CallError>,
    look: Look<'_>,
) -> Result<Called<Console>, CallError> {
    called.inspect(|called| look(request, &called.record))
}

/// Returns the directories Atoll uses, and the state directory opened.
fn own_state() -> Result<(Places, StateDir), Failure> {
    let places = Places::read()?;
    let state = places.open_state()?;
    Ok((places, state))
}

/// Starts the launcher, as early as possible.
fn begin() -> Result<Starting, Failure> {
    refuse_nesting()?;
    Ok(Starting::begin(LAUNCHER))
}

/// Returns the retention of the run's changes, as far as it is known before the run.
fn fate(arguments: &RunArguments, mode: Mode) -> Fate {
    match (is_scratch(arguments, mode), arguments.discard) {
        (true, _) => Fate::Scratch,
        (false, true) => Fate::Discarded,
        (false, false) => Fate::Open,
    }
}

/// Returns the call for the run.
fn asked(
    (arguments, words): (&RunArguments, &Words),
    session: Option<SessionId>,
    at: At,
    terminal: bool,
    now: SystemTime,
) -> Call {
    Call {
        run: new_run_id(now),
        session,
        principal: configuration::principal(),
        command: words.command.clone(),
        options: arguments.boundary_options(),
        workspace: at.workspace,
        directory: at.directory,
        terminal,
    }
}

/// Prints the notices once it is certain that the program will run.
fn tell_granted(
    grant: &Grant,
    ledger: &Ledger,
    environment: &[(OsString, OsString)],
    output: &Output,
) {
    tell_losses(ledger, output);
    tell(grant.notices(), output);
    let network = &grant.boundary().network;
    tell(reached::unused_proxy(network, environment), output);
    output.say(&reached::doors(network));
}

/// Compiles the rules of the request.
fn compiled(
    (arguments, earlier): (&RunArguments, EarlierPurposes),
    (places, state, workspace): (&Places, &StateDir, &Path),
    host: &HostFacts,
) -> Result<Rules, Failure> {
    let files = PolicyFiles::read(places, Some(workspace))?;
    let mut requested = Requested {
        earlier,
        ..requested(arguments)?
    };
    let program = arguments.command.first().cloned().unwrap_or_default();
    let compile = |requested: &Requested| {
        let rules = files.compile(requested, &program, host);
        rules.map_err(|error| no_rules(&error))
    };
    let mut rules = compile(&requested)?;
    let labels = match arguments.discard || arguments.root {
        true => BTreeSet::new(),
        false => kept_labels(state, rules.profile()),
    };
    if !labels.is_empty() && !rules.notes_labels() {
        // It goes on with what earlier runs have left, as one of their session.
        requested.in_session = true;
        rules = compile(&requested)?;
    }
    rules.take_labels(labels);
    configuration::take_repository(&mut rules, workspace, host);
    rules.take_real_paths(workspace, configuration::real_path);
    refuse_unseen(arguments, &rules)?;
    Ok(rules)
}

/// Changes that a person has to look at are not applied by an option.
fn refuse_unseen(arguments: &RunArguments, rules: &Rules) -> Result<(), Failure> {
    match rules.applies_unseen() {
        Err(why) if arguments.apply => Err(Failure::new("--apply is refused")
            .because(why)
            .advise("leave out --apply; atoll apply RUN takes the changes over afterwards")
            .of_kind(Kind::Denied)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Reads what this host supports, and selects the mode.
fn read_machine() -> Result<(Host, Mode), Failure> {
    let machine = Host::read().doing("this host cannot hold a program")?;
    let mode = machine.mode().doing("this host cannot hold a program")?;
    Ok((machine, mode))
}

/// Prints warnings.
fn tell<Line: Display>(notices: impl IntoIterator<Item = Line>, output: &Output) {
    for notice in notices {
        output.warn(&notice.to_string());
    }
}

fn no_rules(error: &ProfileError) -> Failure {
    Failure::new("the rules of this run cannot be made")
        .because(error)
        .advise(advice::profile(error))
}

/// Warns of events that the ledger lost, before anything is shown.
fn tell_losses(ledger: &Ledger, output: &Output) {
    let recorded = |loss: String| format!("{loss}; that is recorded (atoll ledger verify)");
    tell(ledger.losses().into_iter().map(recorded), output);
}

/// Opens the ledger, with a warning about interrupted runs.
fn own_ledger(state: &StateDir, output: &Output) -> Result<Ledger, Failure> {
    let ledger = open_ledger(state)?;
    for interrupted in ledger.interrupted() {
        output.warn(&format!(
            "run {} was interrupted earlier; `atoll diff {0}` shows what it had done",
            interrupted.run
        ));
    }
    Ok(ledger)
}

/// Refuses to run inside a sandbox, which does not permit what a sandbox of its own needs.
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

/// The workspace of a program, and the directory in it where the program starts.
struct At {
    workspace: PathBuf,
    directory: PathBuf,
}

/// Returns the workspace and the directory in it where the program starts, free of symbolic links.
fn place_of(arguments: &RunArguments, resume: Option<&RunRecord>) -> Result<At, Failure> {
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
    Ok(At {
        workspace,
        directory,
    })
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
    (arguments, second): (&RunArguments, Option<String>),
    signals: Signals,
) -> Console {
    let boundary = grant.boundary();
    let settings = ConsoleSettings {
        run: asked.run.clone(),
        terminal: asked.terminal,
        rights: boundary.terminal,
        keep_in: (!arguments.discard).then(|| state.run_dir(&asked.run).join("output")),
        keep_bytes_max: boundary.limits.output_bytes,
        ask_key: arguments.ask_key.unwrap_or_default(),
        second,
    };
    Console::new(settings, Some(signals))
}
