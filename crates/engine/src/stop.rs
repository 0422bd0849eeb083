//! The end of runs that go on, by a person.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant, SystemTime};

use atoll_ledger::{Event, Ledger, StateDir, UnresponsiveRun, live_runs};
use atoll_model::{RunId, SessionId, SessionName};
use atoll_policy::{list, nearest};
use atoll_store::end_unanswering;
use serde_json::Value;

use crate::configuration::{Places, own_profiles, principal};
use crate::control::{
    BEGINNING, BEGINNING_PAUSE, Named, absent, directory, done, is_gone, named_of, none_goes_on,
};
use crate::failure::{Doing, Failure};
use crate::finding::{Last, sessions};
use crate::notice::{Notice, Notices, StopEnd};
use crate::printable::printable;
use crate::supervision::{Answer, ControlError, Question, Runs, ask_until, spoken_to};

/// The time for the runs to listen when several are stopped.
const LISTENING: Duration = Duration::from_secs(10);
/// The time for a run to answer once it was told to end.
const ANSWERING: Duration = Duration::from_secs(2);

/// The runs to end.
#[derive(Clone, Copy, Debug)]
pub enum Stopping<'a> {
    /// Those of a session, by name or id.
    Session(&'a str),
    /// Those of a profile.
    Agent(&'a str),
    /// Those that are named.
    Runs(&'a [String]),
    /// All that go on.
    All,
}

/// The surface of the person who ends runs, several at once.
#[derive(Clone, Copy)]
pub struct Person<'a> {
    /// The surface that takes notices.
    pub notices: &'a (dyn Notices + Sync),
    /// The reaction to the run that `last` means.
    pub taking: &'a (dyn Fn(&Last) -> Result<(), Failure> + Sync),
}

/// Ends runs.
///
/// # Errors
/// When there is no such run, or one does not answer; all that can be ended are.
pub fn stop(what: Stopping<'_>, person: Person<'_>) -> Result<(), Failure> {
    match what {
        Stopping::Session(session) => {
            if !Places::read()?.state.exists() {
                return Err(none_goes_on());
            }
            stop_session(session, person)
        }
        Stopping::Agent(agent) => stop_agent(agent, person),
        Stopping::Runs([text]) => stop_one(text, person),
        Stopping::Runs(texts) => stop_named(texts, person),
        Stopping::All => stop_all(person),
    }
}

/// Ends the runs of a session that go on. One that began a moment ago is waited for.
///
/// # Errors
/// When there is no such session, or a run does not answer.
fn stop_session(text: &str, person: Person<'_>) -> Result<(), Failure> {
    let state = Places::read()?.read_state()?;
    let stop = |id: &SessionId| {
        let is_its = |begun: &Event| {
            let session = begun.body.get("session").and_then(Value::as_str);
            session == Some(id.as_str())
        };
        stop_those(&state, &is_its, person).map(|(stopped, _)| stopped)
    };
    // What goes on is ended before all of the ledger is looked through.
    let noted = match (SessionId::parse(text), SessionName::parse(text)) {
        (Ok(id), _) => Some(id),
        (Err(_), Ok(name)) => Ledger::noted_session(&state, &name),
        (Err(_), Err(_)) => None,
    };
    if let Some(id) = &noted
        && stop(id)? > 0
    {
        return Ok(());
    }
    let session = sessions::find(&state, text)?;
    if noted.as_ref() == Some(&session.id) || stop(&session.id)? == 0 {
        person.notices.notice(Notice::NoneOfSession(session.name));
    }
    Ok(())
}

/// Ends several runs, none of which waits for another.
///
/// # Errors
/// When one cannot be ended: the others are.
fn stop_named(texts: &[String], person: Person<'_>) -> Result<(), Failure> {
    let texts = each_once(texts, person)?;
    let ended = scope(|threads| {
        let begun = texts.iter().map(|text| {
            let one = threads.spawn(|| stop_one(text, person));
            (text, one)
        });
        let begun: Vec<_> = begun.collect();
        let ended = begun.into_iter().map(|(text, one)| {
            let lost = |_| {
                let text = printable(text.as_bytes());
                Err(Failure::new(format!("run {text} could not be stopped")))
            };
            one.join().unwrap_or_else(lost)
        });
        ended.collect::<Vec<_>>()
    });
    all_told(ended.into_iter().filter_map(Result::err), person)
}

/// Removes names of a run that an earlier one has named already, as far as that is known now.
/// `last` is resolved by this: meanwhile a further run may begin.
fn each_once(texts: &[String], person: Person<'_>) -> Result<Vec<String>, Failure> {
    let unlisted = "the runs cannot be listed";
    let mut going: BTreeSet<RunId> = BTreeSet::new();
    if let Some(directory) = directory()? {
        going.extend(spoken_to(&directory).doing(unlisted)?);
    }
    let places = Places::read()?;
    if places.state.exists() {
        going.extend(live_runs(&places.read_state()?).doing(unlisted)?);
    }
    let going = Vec::from_iter(going);
    let settled = texts.iter().map(|text| {
        let named = Named::read(text, person.taking).ok();
        let run = named.and_then(|named| named_of(&going, &named).ok().flatten());
        run.map_or_else(|| text.clone(), |run| run.to_string())
    });
    let mut once: Vec<String> = Vec::new();
    for text in settled {
        if !once.contains(&text) {
            once.push(text);
        }
    }
    Ok(once)
}

/// Tells all failures but the last one, which ends the command.
fn all_told(failures: impl Iterator<Item = Failure>, person: Person<'_>) -> Result<(), Failure> {
    let mut last = None;
    for failure in failures {
        if let Some(earlier) = last.replace(failure) {
            person.notices.notice(Notice::Failed(Box::new(earlier)));
        }
    }
    last.map_or(Ok(()), Err)
}

fn stop_one(text: &str, person: Person<'_>) -> Result<(), Failure> {
    let until = Instant::now() + BEGINNING;
    let directory = match listening(until) {
        Ok(directory) => directory,
        Err(failure) => {
            return match Named::read(text, person.taking) {
                Ok(named) => stop_deaf(&named, failure, person),
                // Without any run there is none that was meant.
                Err(_) => Err(failure),
            };
        }
    };
    let named = Named::read(text, person.taking)?;
    loop {
        let all = spoken_to(&directory).doing("the runs cannot be listed")?;
        // Nothing is asked of it before.
        let failure = match named_of(&all, &named)? {
            None => absent(&directory, &named, &all),
            Some(run) => match told(&directory, &run) {
                Err(ControlError::Gone) => is_gone(&directory, &named),
                answer => {
                    person.notices.notice(ended(&run, answer)?);
                    return Ok(());
                }
            },
        };
        // It may have begun a moment ago.
        if Instant::now() >= until {
            return stop_deaf(&named, failure, person);
        }
        sleep(BEGINNING_PAUSE);
    }
}

/// Ends a live run that does not listen; without one, returns the failure.
fn stop_deaf(named: &Named, failure: Failure, person: Person<'_>) -> Result<(), Failure> {
    let places = Places::read()?;
    if !places.state.exists() {
        return Err(failure);
    }
    let alive = live_runs(&places.read_state()?).doing("the runs cannot be listed")?;
    let Some(run) = named_of(&alive, named)? else {
        return Err(failure);
    };
    person.notices.notice(ended(&run, Err(ControlError::Gone))?);
    Ok(())
}

/// Opens the directory of the runs' control sockets. The first live run may have begun a moment
/// ago.
fn listening(until: Instant) -> Result<Runs, Failure> {
    loop {
        if let Some(directory) = directory()? {
            return Ok(directory);
        }
        let places = Places::read()?;
        let goes_on = places.state.exists()
            && !live_runs(&places.read_state()?)
                .doing("the runs cannot be listed")?
                .is_empty();
        if !goes_on || Instant::now() >= until {
            return Err(none_goes_on());
        }
        sleep(BEGINNING_PAUSE);
    }
}

fn stop_all(person: Person<'_>) -> Result<(), Failure> {
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
        Some(state) if !runs.is_empty() => stop_each(&state, runs, person),
        Some(_) | None => {
            person.notices.notice(Notice::NoneGoesOn);
            Ok(())
        }
    }
}

/// Ends all runs of a profile, also of one that was removed.
///
/// # Errors
/// Also when none is live and there is no profile of that name.
fn stop_agent(profile: &str, person: Person<'_>) -> Result<(), Failure> {
    let places = Places::read()?;
    if !places.state.exists() {
        is_known(profile, &places)?;
        person.notices.notice(Notice::NoneGoesOn);
        return Ok(());
    }
    let state = places.read_state()?;
    let profile_of = |begun: &Event| {
        let profile = begun.body.pointer("/decision/profile");
        profile
            .and_then(|profile| profile.as_str())
            .map(str::to_owned)
    };
    let is_its = |begun: &Event| profile_of(begun).as_deref() == Some(profile);
    let (stopped, others) = stop_those(&state, &is_its, person)?;
    if stopped == 0 {
        is_known(profile, &places)?;
        let others: BTreeSet<String> = others.iter().filter_map(profile_of).collect();
        person.notices.notice(Notice::NoneOfProfile {
            profile: profile.to_owned(),
            others: Vec::from_iter(others),
        });
    }
    Ok(())
}

/// Checks that there is a profile of that name, if no live run has it.
///
/// # Errors
/// When there is none, as the name of an agent that was meant is misspelt.
fn is_known(profile: &str, places: &Places) -> Result<(), Failure> {
    let all = list(&own_profiles(places)).doing("the profiles cannot be listed")?;
    let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    // A profile that is a file is told by its path.
    if names.contains(&profile) || Path::new(profile).exists() {
        return Ok(());
    }
    let shown = printable(profile.as_bytes());
    let failure = Failure::new(format!("no run of profile {shown} goes on"))
        .because("there is no profile of that name");
    Err(match nearest(profile, names) {
        Some(near) => failure.advise(format!("did you mean {near}?")),
        None => failure.advise("atoll profile list lists them, atoll runs those that go on"),
    })
}

/// Ends the live runs whose first event matches: recorded ones at once, then those that are just
/// beginning. Returns the number ended, and the first events of the other runs.
///
/// # Errors
/// When the runs cannot be listed, or one does not answer: the others are ended.
fn stop_those(
    state: &StateDir,
    is_its: &dyn Fn(&Event) -> bool,
    person: Person<'_>,
) -> Result<(usize, Vec<Event>), Failure> {
    let unlisted = "the runs cannot be listed";
    let until = Instant::now() + BEGINNING;
    let mut known = BTreeSet::new();
    let (mut stopped, mut others) = (0, Vec::new());
    loop {
        let (mut its, mut has_unknown) = (Vec::new(), false);
        for run in live_runs(state).doing(unlisted)? {
            if known.contains(&run) {
                continue;
            }
            match Ledger::beginning(state, &run).doing(unlisted)? {
                None => has_unknown = true,
                Some(begun) => {
                    known.insert(run.clone());
                    match is_its(&begun) {
                        true => its.push(run),
                        false => others.push(begun),
                    }
                }
            }
        }
        stopped += its.len();
        stop_each(state, its, person)?;
        if !has_unknown || Instant::now() >= until {
            return Ok((stopped, others));
        }
        sleep(BEGINNING_PAUSE);
    }
}

/// Tells a run to end, and gives it a while to say that it does.
fn told(directory: &Runs, run: &RunId) -> Result<Answer, ControlError> {
    let until = Instant::now() + ANSWERING;
    ask_until(directory, run, &Question::Stop {}, until)
}

/// Tells several runs to end at once, so that none waits for another.
fn told_all(directory: &Runs, runs: &[RunId]) -> Vec<(RunId, Result<Answer, ControlError>)> {
    scope(|threads| {
        let asked = runs
            .iter()
            .map(|run| (run, threads.spawn(|| told(directory, run))));
        let asked: Vec<_> = asked.collect();
        let answers = asked.into_iter().map(|(run, asked)| {
            let answer = asked.join().unwrap_or(Err(ControlError::Gone));
            (run.clone(), answer)
        });
        answers.collect()
    })
}

/// Ensures that a run has ended after it was told to: one that does not answer, because it is
/// suspended or stuck, is killed.
fn ended(run: &RunId, answer: Result<Answer, ControlError>) -> Result<Notice, Failure> {
    let stopped = |how| Notice::Stopped {
        run: run.clone(),
        how,
    };
    let why = match answer {
        Err(why) => why,
        answer => return done(run, answer).map(|()| stopped(StopEnd::Told)),
    };
    let state = Places::read()?.open_state()?;
    let by = format!(
        "it was stopped by {} (atoll stop), whom it did not answer",
        principal().name
    );
    match end_unanswering(&state, SystemTime::now, run, &by) {
        Ok(UnresponsiveRun::Killed) => Ok(stopped(match why {
            ControlError::Gone => StopEnd::KilledDeaf,
            ControlError::Silent(_) | ControlError::Another(_) | ControlError::Strange => {
                StopEnd::KilledSilent
            }
        })),
        Ok(UnresponsiveRun::Over) => Ok(stopped(StopEnd::ByItself)),
        Ok(UnresponsiveRun::StillThere) => Err("its process is still there".to_owned()),
        Ok(UnresponsiveRun::NotFound) => Err("nobody knows which process it is".to_owned()),
        Err(error) => Err(error.to_string()),
    }
    .map_err(|error| {
        Failure::new(format!("run {run} could not be stopped"))
            .because(format!("{why}; {error}"))
            .advise(format!("atoll stop {run} tries once more"))
    })
}

/// Ends these runs, also those that have only just begun and do not listen yet.
///
/// # Errors
/// When one stays alive and does not answer: the others are ended.
fn stop_each(state: &StateDir, mut runs: Vec<RunId>, person: Person<'_>) -> Result<(), Failure> {
    let until = Instant::now() + LISTENING;
    let mut failed = Vec::new();
    loop {
        if let Some(directory) = directory()? {
            for (run, answer) in told_all(&directory, &runs) {
                if matches!(answer, Err(ControlError::Gone)) {
                    continue;
                }
                runs.retain(|one| *one != run);
                match ended(&run, answer) {
                    Ok(told) => person.notices.notice(told),
                    Err(failure) => failed.push(failure),
                }
            }
        }
        // One that nobody hears at either has ended by itself.
        let alive = live_runs(state).doing("the runs cannot be listed")?;
        runs.retain(|run| alive.contains(run));
        let Some(deaf) = runs.first() else {
            break;
        };
        if Instant::now() > until {
            match ended(deaf, Err(ControlError::Gone)) {
                Ok(told) => person.notices.notice(told),
                Err(failure) => failed.push(failure),
            }
            runs.swap_remove(0);
        }
        sleep(BEGINNING_PAUSE);
    }
    all_told(failed.into_iter(), person)
}
