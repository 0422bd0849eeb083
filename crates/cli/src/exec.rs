//! `atoll exec` and `atoll shell`: a program in a running sandbox, on this terminal.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Instant;

use atoll_engine::configuration::Places;
use atoll_engine::control::{
    BEGINNING, BEGINNING_PAUSE, directory, meant, none_goes_on, refused, unanswered,
};
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::supervision::{
    Answer, ControlError, ExecConnection, ExecDone, ExecRequest, OutputFilter, Runs, exec_in,
    spoken_to,
};
use atoll_ledger::live_runs;
use atoll_model::{Ending, RunId};
use atoll_policy::PriorAnswer;
use atoll_sandbox::{SIGWINCH, Signals};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::arguments::{ExecArguments, ShellArguments};
use crate::console::RawTerminal;
use crate::escape::EscapeFilter;
use crate::output::Output;
use crate::render::limit_name;
use crate::terminal::terminal_size;

/// The shell where the person's own is not there.
const SHELL: &str = "sh";

impl OutputFilter for EscapeFilter {
    fn push(&mut self, written: &[u8], shown: &mut Vec<u8>) {
        Self::push(self, written, shown);
    }

    fn finish(&mut self, shown: &mut Vec<u8>) {
        Self::finish(self, shown);
        self.restore(shown);
    }
}

/// Starts a program in a running sandbox; returns its status.
///
/// # Errors
/// When there is no such run, it does not answer, or the program was refused.
pub fn exec(arguments: &ExecArguments, output: &Output) -> Result<u8, Failure> {
    let request = ExecRequest {
        command: arguments.command.clone(),
        directory: arguments.directory.clone(),
        environment: variables(&arguments.env)?,
        served: None,
        answer: PriorAnswer::Nobody,
        parent: None,
    };
    let has_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if arguments.tty && !has_terminal {
        return Err(Failure::new("--tty needs a terminal")
            .because("standard input or output is something else"));
    }
    let terminal = has_terminal && !arguments.no_tty;
    let done = ran(&arguments.run, &request, terminal)?;
    report(done, &request, output);
    Ok(done.ending.exit_status())
}

/// Opens a shell in a running sandbox; returns its status.
///
/// # Errors
/// As of [`exec`], and where there is no terminal.
pub fn shell(arguments: &ShellArguments, output: &Output) -> Result<u8, Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Failure::new("a shell needs a terminal")
            .because("standard input or output is something else")
            .advise("atoll exec RUN -- COMMAND runs a single command"));
    }
    let own = std::env::var_os("SHELL").filter(|shell| Path::new(shell).is_absolute());
    let request = |shell: OsString| ExecRequest {
        command: vec![shell],
        directory: None,
        environment: Vec::new(),
        served: None,
        answer: PriorAnswer::Nobody,
        parent: None,
    };
    if let Some(own) = own {
        let request = request(own);
        let done = ran(&arguments.run, &request, true)?;
        if done.ending != Ending::NotFound {
            report(done, &request, output);
            return Ok(done.ending.exit_status());
        }
    }
    let request = request(SHELL.into());
    let done = ran(&arguments.run, &request, true)?;
    report(done, &request, output);
    Ok(done.ending.exit_status())
}

/// Checks variables: each has a name and a value.
fn variables(given: &[OsString]) -> Result<Vec<OsString>, Failure> {
    for variable in given {
        let name = variable.as_bytes().split(|byte| *byte == b'=').next();
        let name = name.filter(|name| !name.is_empty() && name.len() < variable.len());
        if name.is_none() {
            return Err(Failure::new(format!(
                "--env {} names no value",
                variable.to_string_lossy()
            ))
            .because("a program in a running sandbox has the run's variables, not yours")
            .advise("--env NAME=VALUE"));
        }
    }
    Ok(given.to_vec())
}

/// Says why a program did not run to its own end; its status alone says the rest.
fn report(done: ExecDone, request: &ExecRequest, output: &Output) {
    let program = request.command.first().map(OsString::as_os_str);
    let program = program.unwrap_or(OsStr::new("")).to_string_lossy();
    match done.ending {
        Ending::Limited { limit } => {
            let whose = if done.with_run { "the run and " } else { "" };
            let limit = limit_name(limit);
            output.warn(&format!(
                "{whose}{program} ended: the {limit} limit was reached"
            ));
        }
        _ if done.with_run => output.warn(&format!("the run has ended, and {program} with it")),
        Ending::NotFound => output.warn(&format!("{program} is not found in the sandbox")),
        Ending::NotExecutable => {
            output.warn(&format!("{program} cannot be executed in the sandbox"));
        }
        Ending::Exited { .. } | Ending::Signalled { .. } | Ending::Interrupted => {}
    }
}

/// Runs a program in the named run, on this process's streams, to its end.
fn ran(run: &str, request: &ExecRequest, terminal: bool) -> Result<ExecDone, Failure> {
    let (directory, run) = found(run)?;
    let signals = Signals::take().doing("signals cannot be taken over")?;
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let streams = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    let size = terminal.then(terminal_size).flatten();
    let ask = || exec_in(&directory, &run, request, streams, size);
    let mut connection = begun(ask).map_err(|error| failed(&run, &error))?;
    let raw = size.and_then(|_| RawTerminal::take(&stdin));
    let answer = attend(&mut connection, &signals);
    if let Some(raw) = raw {
        raw.give_back();
    }
    match answer {
        Ok(Answer::Exec(done)) => Ok(done),
        Ok(Answer::Refused(declined)) => Err(refused(&run, declined)),
        Ok(_) => Err(failed(&run, &ControlError::Strange)),
        // The run has ended, and the program with it.
        Err(error) => Err(failed(&run, &error)),
    }
}

/// Returns the run that is meant, with the directory of sockets; one that began a moment ago is
/// waited for.
fn found(text: &str) -> Result<(Runs, RunId), Failure> {
    let until = Instant::now() + BEGINNING;
    let places = Places::read()?;
    if !places.state.exists() {
        return Err(none_goes_on());
    }
    let state = places.open_state()?;
    loop {
        // Only one that does not listen yet is worth the wait; looked at first, so that one that
        // begins to listen meanwhile is found.
        let runs = live_runs(&state).unwrap_or_default();
        let heard = directory()?.and_then(|runs| spoken_to(&runs).ok());
        let heard = heard.unwrap_or_default();
        let all_listen = runs.iter().all(|run| heard.contains(run));
        let found = directory()?.ok_or_else(none_goes_on).and_then(|runs| {
            let run = meant(&runs, text, &crate::finding::tell)?;
            Ok((runs, run))
        });
        if found.is_ok() || all_listen || Instant::now() >= until {
            return found;
        }
        sleep(BEGINNING_PAUSE);
    }
}

/// Asks a run that may have begun a moment ago, and listens soon.
fn begun(
    ask: impl Fn() -> Result<ExecConnection, ControlError>,
) -> Result<ExecConnection, ControlError> {
    let until = Instant::now() + BEGINNING;
    loop {
        match ask() {
            Err(ControlError::Gone) if Instant::now() < until => sleep(BEGINNING_PAUSE),
            asked => return asked,
        }
    }
}

fn failed(run: &RunId, error: &ControlError) -> Failure {
    match error {
        ControlError::Another(uid) => Failure::new(format!("run {run} is not yours"))
            .because(format!(
                "it is a run of the user {uid}, who would get what you type and what you see"
            ))
            .advise(format!("sudo -u '#{uid}' atoll exec {run} -- …")),
        ControlError::Gone | ControlError::Silent(_) | ControlError::Strange => {
            unanswered(run, error)
        }
    }
}

/// Passes signals and sizes on until the answer comes.
fn attend(connection: &mut ExecConnection, signals: &Signals) -> Result<Answer, ControlError> {
    loop {
        let descriptor = connection.descriptor();
        let on = [descriptor, signals.descriptor()];
        let mut set = on.map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN));
        match poll(&mut set, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(ControlError::Silent(error.into())),
        }
        let is_answered = set.first().is_some_and(|one| !one.revents().is_empty());
        while let Some(number) = signals.next() {
            match (number, u8::try_from(number)) {
                (SIGWINCH, _) => terminal_size()
                    .into_iter()
                    .for_each(|size| connection.resize(size)),
                (_, Ok(number)) => connection.signal(number),
                (_, Err(_)) => {}
            }
        }
        if is_answered && let Some(answer) = connection.answer()? {
            return Ok(answer);
        }
    }
}
