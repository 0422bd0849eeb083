//! `atoll stop`: a person ends runs that go on.

use std::thread::sleep;
use std::time::{Duration, Instant};

use atoll_model::RunId;
use atoll_sandbox::{ControlError, Question, ask};
use atoll_store::{StateDir, live_runs};

use crate::approvals::{BEGINNING, BEGINNING_PAUSE, done};
use crate::arguments::StopArguments;
use crate::configuration::Places;
use crate::failure::{Doing, Failure};
use crate::output::Output;
use crate::ports::{Named, directory, going_on, none_goes_on};

/// How long runs of which several are stopped are given to listen.
const LISTENING: Duration = Duration::from_secs(10);

/// Ends a run, those of a session, or all.
///
/// # Errors
/// When there is no such run, or one does not answer.
pub fn stop(arguments: &StopArguments, output: &Output) -> Result<u8, Failure> {
    if let Some(session) = &arguments.session {
        return crate::sessions::stop(session, output);
    }
    match &arguments.run {
        Some(text) => stop_one(text, output),
        None if arguments.all => stop_all(output),
        None => Err(Failure::new("no run is named")
            .because("atoll stop ends what you name, and nothing by itself")
            .advise("atoll stop last ends the run started last")
            .advise("atoll stop --session NAME ends the runs of a session")
            .advise("atoll stop --all ends all that go on")),
    }
}

fn stop_one(text: &str, output: &Output) -> Result<u8, Failure> {
    let directory = directory()?.ok_or_else(none_goes_on)?;
    let named = Named::read(text)?;
    let until = Instant::now() + BEGINNING;
    loop {
        let stopped = going_on(&directory, &named).and_then(|run| {
            let answer = ask(&directory, &run, &Question::Stop {});
            done(&run, answer).map(|()| run)
        });
        match stopped {
            Ok(run) => {
                output.say(&format!("Stopped {run}.\n"));
                return Ok(0);
            }
            // It may have begun a moment ago.
            Err(_) if Instant::now() < until => sleep(BEGINNING_PAUSE),
            Err(failure) => return Err(failure),
        }
    }
}

fn stop_all(output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let state = match places.state.exists() {
        true => Some(places.read_state()?),
        false => None,
    };
    let runs = match &state {
        Some(state) => live_runs(state).doing("the runs cannot be listed")?,
        None => Vec::new(),
    };
    match state {
        Some(state) if !runs.is_empty() => stop_each(&state, runs, output),
        Some(_) | None => {
            output.say("No run goes on.\n");
            Ok(0)
        }
    }
}

/// Ends these runs, also those that have only just begun and do not listen yet.
///
/// # Errors
/// When one goes on and does not answer: the others are ended.
pub fn stop_each(state: &StateDir, mut runs: Vec<RunId>, output: &Output) -> Result<u8, Failure> {
    let until = Instant::now() + LISTENING;
    let mut failed = None;
    loop {
        let directory = directory()?;
        let mut is_over = |run: &RunId| {
            let Some(directory) = &directory else {
                return false;
            };
            match ask(directory, run, &Question::Stop {}) {
                Err(ControlError::Gone) => return false,
                answer => match done(run, answer) {
                    Ok(()) => output.say(&format!("Stopped {run}.\n")),
                    Err(failure) => failed = Some(failure),
                },
            }
            true
        };
        runs.retain(|run| !is_over(run));
        // One that nobody hears at either has ended by itself.
        let alive = live_runs(state).doing("the runs cannot be listed")?;
        runs.retain(|run| alive.contains(run));
        let Some(deaf) = runs.first() else {
            break;
        };
        if Instant::now() > until {
            let seconds = LISTENING.as_secs();
            return Err(Failure::new(format!("run {deaf} could not be stopped"))
                .because(format!("it goes on, and has not listened for {seconds} s"))
                .advise(format!("atoll stop {deaf} tries once more")));
        }
        sleep(BEGINNING_PAUSE);
    }
    failed.map_or(Ok(0), Err)
}
