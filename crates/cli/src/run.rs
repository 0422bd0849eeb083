//! `atoll run`: from the command line to a run and the decision about its changes.

mod asking;
mod dry_run;

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io::IsTerminal;
use std::path::Path;
use std::time::SystemTime;

use atoll_engine::configuration::Places;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::git_settings::Listing;
use atoll_engine::run::beginning::{given_tokens, handed, join};
use atoll_engine::run::refused::explain;
use atoll_engine::run::resuming::resumed;
use atoll_engine::run::{
    RunRequest, asked, compiled, facts, own_ledger, own_state, place_of, purpose, read_machine,
    refuse_nesting, refused,
};
use atoll_engine::supervision::OutputFilter;
use atoll_engine::{
    CallError, CallOutcome, ChangeRetention, Request, RequestBase, Tokens, call, configuration,
};
use atoll_ledger::{Ledger, StateDir};
use atoll_model::{Call, Mode, TerminalRights};
use atoll_policy::{EarlierPurposes, Grant, Rules, inputs_of};
use atoll_sandbox::{Declined, Signals, Starting};
use atoll_store::RunRecord;

use crate::LAUNCHER;
use crate::approvals;
use crate::arguments::RunArguments;
use crate::conclusion::{Conclusion, is_scratch, open_json, tell_failure};
use crate::console::{Console, ConsoleSettings};
use crate::downloads;
use crate::escape::EscapeFilter;
use crate::output::Output;
use crate::policy::rereading;
use crate::reached;
use crate::requested::requested;
use crate::terminal::terminal_size;

/// Runs a command in a boundary; returns its exit status.
pub fn run(
    arguments: RunArguments,
    starting: Option<Result<Starting, Failure>>,
    output: &Output,
) -> Result<u8, Failure> {
    // Before anything can fail: a run that never began is told about there too.
    let json = open_json(&arguments)?;
    let starting = starting.unwrap_or_else(begin);
    let ended = carry_out(
        &arguments,
        starting,
        (json.as_ref(), output),
        &mut |_, _| {},
    );
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
    starting: Result<Starting, Failure>,
    (json, output): (Option<&File>, &Output),
    look: Look<'_>,
) -> Result<u8, Failure> {
    let (typed, starting) = (typed(arguments), starting?);
    let (places, state) = own_state()?;
    let (resume, earlier) = going_on(&typed, &state)?;
    let at = place_of(&typed, resume.as_ref())?;
    let host = configuration::host_facts(&places)?;
    let git = Listing::start(&at.workspace, &host.home);
    let mut rules = compiled(&typed, earlier, &places, &state, &at.workspace, &host)?;
    let widening = refused::widening(&rules)?;
    let handed = handed(&typed, &rules, &places, &host, &at.workspace, output)?;
    let (handover, words) = (handed.handover.as_ref(), handed.words);
    let (machine, mode) = read_machine()?;
    let (now, from) = (SystemTime::now(), resume.as_ref());
    rules.take_git(git.finish());
    if arguments.dry_run {
        let call = asked(&typed, &words, None, at, wants_terminal(arguments)?, now);
        let facts = facts(&host, mode, now, &words.environment, handover);
        return dry_run::show(&rules, &call, &facts, arguments, json, output);
    }
    let ledger = own_ledger(&state, output)?;
    let session = join(&typed, &mut rules, &state, &ledger, from, output, now)?;
    let asked = asked(&typed, &words, session, at, wants_terminal(arguments)?, now);
    let tokens = given_tokens(&typed, &state, &asked, &rules, output)?;
    let facts = facts(&host, mode, now, &words.environment, handover);
    asking::ask(&mut rules, (&asked, &facts), arguments, output)?;
    downloads::fetch(inputs_of(&rules), &state, output)?;
    let git_environment = configuration::git_environment();
    let request = Request {
        handover,
        signing: handed.signing.as_ref(),
        terminal: asked.has_terminal().then(terminal_size).flatten(),
        tokens: tokens.as_ref().map(|tokens| tokens as &dyn Tokens),
        unattended: arguments.no_ask,
        resume: from,
        reread: &rereading(&places, asked.workspace()),
        remember: &|to| remember(&places, asked.workspace(), rules.profile(), to),
        filter: &filter,
        ..Request::new(RequestBase {
            call: &asked,
            host: &machine,
            rules: &rules,
            facts,
            git: &git_environment,
            state: &state,
            ledger: &ledger,
            fate: fate(arguments, mode),
            widening: &widening,
        })
    };
    let signals = Signals::take().doing("signals cannot be taken over")?;
    let attach = |grant: &Grant| {
        tell_granted(grant, &ledger, &words.environment, arguments.quiet, output);
        let second = approvals::second_of(&widening);
        console(grant, &state, &asked, (arguments, second), signals)
    };
    let ended = match looked(&request, call(&request, starting, attach), look) {
        // What was left out is told behind what it came to.
        Err(error) => Err(failed(error, (&rules, &asked), &ledger, output).noting(rules.notices())),
        Ok(called) => Conclusion::of(arguments, &request, json, output)
            .draw(called)
            .map_err(|failure| failure.about(asked.run(), rules.profile())),
    };
    crate::ledger::sign_end(&ledger, &state, asked.workspace(), output);
    ended
}

/// Allows a host for the project from its next run on.
fn remember(places: &Places, workspace: &Path, profile: &str, to: &str) -> Result<(), Declined> {
    let written = configuration::allow_for_project(places, workspace, profile, to);
    written.map_err(|failure| Declined {
        why: format!(
            "it is allowed for this run alone: {}{}",
            failure.what,
            failure.why.map_or(String::new(), |why| format!(": {why}"))
        ),
        advice: "start the next run with --allow".to_owned(),
    })
}

/// Returns the run that this one continues, if any, and the purposes of those before it.
fn going_on(
    typed: &RunRequest<'_>,
    state: &StateDir,
) -> Result<(Option<RunRecord>, EarlierPurposes), Failure> {
    let resume = resumed(typed, state, &crate::finding::tell)?;
    let earlier = purpose::earlier(typed, state, resume.as_ref())?;
    Ok((resume, earlier))
}

/// Makes a filter of a program's output for a person's terminal.
fn filter(rights: TerminalRights) -> Box<dyn OutputFilter> {
    Box::new(EscapeFilter::new(rights))
}

/// Returns the request for the run, as typed.
fn typed(arguments: &RunArguments) -> RunRequest<'_> {
    RunRequest {
        requested: Box::new(|| requested(arguments)),
        command: &arguments.command,
        options: arguments.boundary_options(),
        session: arguments.session.as_deref(),
        resume: arguments.resume.as_deref(),
        purpose: arguments.purpose.as_deref(),
        workspace: arguments.workspace.as_deref(),
        tokens: &arguments.token,
        login: arguments.login(),
        root: arguments.root,
        discard: arguments.discard,
        apply: arguments.apply,
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
    called: Result<CallOutcome<Console>, CallError>,
    look: Look<'_>,
) -> Result<CallOutcome<Console>, CallError> {
    called.inspect(|called| look(request, &called.record))
}

/// Starts the launcher, as early as possible.
///
/// # Errors
/// When this is inside a sandbox.
pub fn begin() -> Result<Starting, Failure> {
    refuse_nesting()?;
    Ok(Starting::begin(LAUNCHER))
}

/// Returns the retention of the run's changes, as far as it is known before the run.
fn fate(arguments: &RunArguments, mode: Mode) -> ChangeRetention {
    match (is_scratch(arguments, mode), arguments.discard) {
        (true, _) => ChangeRetention::Scratch,
        (false, true) => ChangeRetention::Discarded,
        (false, false) => ChangeRetention::Open,
    }
}

/// Prints the notices once it is certain that the program will run.
fn tell_granted(
    grant: &Grant,
    ledger: &Ledger,
    environment: &[(OsString, OsString)],
    quiet: bool,
    output: &Output,
) {
    if quiet {
        return;
    }
    tell_losses(ledger, output);
    tell(grant.notices(), output);
    let network = &grant.boundary().network;
    tell(reached::unused_proxy(network, environment), output);
    output.say(&reached::doors(network));
}

/// Prints warnings.
fn tell<Line: Display>(notices: impl IntoIterator<Item = Line>, output: &Output) {
    for notice in notices {
        output.warn(&notice.to_string());
    }
}

/// Warns of events that the ledger lost, before anything is shown.
fn tell_losses(ledger: &Ledger, output: &Output) {
    let recorded = |loss: String| format!("{loss}; that is recorded (atoll ledger verify)");
    tell(ledger.losses().into_iter().map(recorded), output);
}

fn wants_terminal(arguments: &RunArguments) -> Result<bool, Failure> {
    let has = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if arguments.tty && !has {
        return Err(Failure::new("--tty needs a terminal")
            .because("standard input or output is something else"));
    }
    Ok(has && !arguments.no_tty)
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
        run: asked.run().clone(),
        terminal: asked.has_terminal(),
        rights: boundary.terminal,
        keep_in: (!arguments.discard).then(|| state.run_dir(asked.run()).join("output")),
        keep_bytes_max: boundary.limits.output_bytes,
        ask_key: arguments.ask_key.unwrap_or_default(),
        quiet: arguments.quiet,
        second,
        host_ports: boundary.network.host_ports.clone(),
    };
    Console::new(settings, Some(signals))
}
