//! `atoll sessions`, `atoll why --session` and which session is meant: what runs belong
//! together, by the ledger alone.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher};
use std::time::SystemTime;

use atoll_gateway::{is_of_token, take_given_up};
use atoll_ledger::{
    Event, Filter, Ledger, RIGHTS_GIVEN_UP, Session, SessionRun, SessionRunState, StateDir,
    read_host_text,
};
use atoll_model::network::{GivenUp, GivenUps};
use atoll_model::{RunId, SessionId, SessionName};
use atoll_policy::nearest;
use serde_json::{Value, json};

use crate::advice;
use crate::answered;
use crate::arguments::SessionsArguments;
use crate::configuration::Places;
use crate::escape::printable;
use crate::failure::{Doing, Failure};
use crate::output::Output;
use crate::render::{self, Report, Style};
use crate::stop::stop_those;
use crate::why::readable_time;

/// How much of a command a line shows, characters.
const COMMAND_CHARS_MAX: usize = 60;
/// How many names an error tells.
const NAMED_MAX: usize = 5;

/// Lists the sessions.
pub fn sessions(arguments: &SessionsArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let (mut sessions, given_up) = match places.state.exists() {
        true => {
            let state = places.read_state()?;
            let sessions = list(&state)?;
            let given_up = given_up(&state, &sessions)?;
            (sessions, given_up)
        }
        false => Default::default(),
    };
    // The one that went on last first.
    sessions.sort_by(|left, right| last_begin(right).cmp(last_begin(left)));
    if arguments.json {
        let all = sessions.iter().map(|one| session_json(one, &given_up));
        output.json(&json!(all.collect::<Vec<Value>>()));
        return Ok(0);
    }
    if sessions.is_empty() {
        output.say("No sessions yet. `atoll run --session NAME -- COMMAND` begins one.\n");
    }
    for session in &sessions {
        let line = format!(
            "{:<24}  {}  {:>9}  last {}",
            session.name.to_string(),
            session.id,
            render::counted(session.runs.len() as u64, "run", "runs"),
            session.runs.last().map_or_else(String::new, run_line)
        );
        output.result(&format!("{}\n", printable(line.as_bytes())));
        for one in given_up
            .get(&session.id)
            .into_iter()
            .flat_map(GivenUps::iter)
        {
            let line = format!("    given up, for good: {}", one.told());
            output.result(&format!("{}\n", printable(line.as_bytes())));
        }
    }
    Ok(0)
}

/// What the sessions have given up, each that has, by one pass over the ledger.
fn given_up(
    state: &StateDir,
    sessions: &[Session],
) -> Result<BTreeMap<SessionId, GivenUps>, Failure> {
    let runs = sessions.iter().flat_map(|session| {
        let runs = session.runs.iter();
        runs.map(|run| (&run.run, &session.id))
    });
    let of: BTreeMap<&RunId, &SessionId> = runs.collect();
    let filter = Filter {
        kind: Some(RIGHTS_GIVEN_UP.to_owned()),
        ..Filter::default()
    };
    let mut all: BTreeMap<SessionId, GivenUps> = BTreeMap::new();
    for event in Ledger::events(state, filter).doing("the ledger cannot be read")? {
        let event = event.doing("the ledger is damaged there")?;
        let session = event.run.as_ref().and_then(|run| of.get(run));
        if let Some(session) = session.filter(|_| !is_of_token(&event.body)) {
            take_given_up(all.entry((*session).clone()).or_default(), &event.body);
        }
    }
    Ok(all)
}

/// Tells the story of a session: its runs, and how each went.
pub fn why(text: &str, as_json: bool, output: &Output) -> Result<u8, Failure> {
    let state = Places::read()?.read_state()?;
    let session = find(&state, text)?;
    let given_up = given_up(&state, std::slice::from_ref(&session))?;
    if as_json {
        output.json(&session_json(&session, &given_up));
        return Ok(0);
    }
    let mut report = Report::new(output.paint);
    report.title(&format!("Session {}", session.name), session.id.as_str());
    report.line("begun", &readable_time(&session.opened));
    for one in given_up.values().flat_map(GivenUps::iter) {
        report.styled("given up", &one.told(), Some(Style::Bad));
    }
    for run in &session.runs {
        report.line("run", &run_line(run));
    }
    if let Some(last) = session.runs.last() {
        report.command("more", &format!("atoll why {}", last.run));
    }
    let more = format!("atoll ledger query --session {}", session.name);
    report.command("more", &more);
    output.result(&report.finish());
    Ok(0)
}

/// Ends the runs of a session that go on. One that began a moment ago is waited for.
///
/// # Errors
/// When there is no such session, or a run does not answer.
pub fn stop(text: &str, output: &Output) -> Result<u8, Failure> {
    let state = Places::read()?.read_state()?;
    let stop = |id: &SessionId| {
        let is_its = |begun: &Event| {
            let session = begun.body.get("session").and_then(Value::as_str);
            session == Some(id.as_str())
        };
        stop_those(&state, &is_its, output).map(|(stopped, _)| stopped)
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
        return Ok(0);
    }
    let session = find(&state, text)?;
    if noted.as_ref() == Some(&session.id) || stop(&session.id)? == 0 {
        output.say(&format!("No run of session {} goes on.\n", session.name));
    }
    Ok(0)
}

/// A session's name, and its runs that go on.
///
/// # Errors
/// When there is none.
pub(crate) fn running(state: &StateDir, text: &str) -> Result<(SessionName, Vec<RunId>), Failure> {
    let session = find(state, text)?;
    let is_running = |run: &SessionRun| run.state == SessionRunState::Running;
    let runs = session.runs.into_iter().filter(is_running);
    Ok((session.name, runs.map(|run| run.run).collect()))
}

/// The session that is meant by its name or its id.
///
/// # Errors
/// When there is none.
pub fn find(state: &StateDir, text: &str) -> Result<Session, Failure> {
    let sessions = list(state)?;
    let is_it = |one: &&Session| one.name.as_str() == text || one.id.as_str() == text;
    match sessions.iter().find(is_it) {
        Some(session) => Ok(session.clone()),
        None => {
            let known: Vec<&str> = sessions.iter().rev().map(|one| one.name.as_str()).collect();
            Err(unknown(text, &known))
        }
    }
}

/// That there is no such session, with those there are, the newest first.
fn unknown(text: &str, known: &[&str]) -> Failure {
    let named: Vec<&str> = known.iter().copied().take(NAMED_MAX).collect();
    let further = match known.len() - named.len() {
        0 => String::new(),
        further => format!(" and {further} more"),
    };
    let there_are = match &named[..] {
        [] => "there is none yet".to_owned(),
        [only] => format!("there is only {only}"),
        [_, ..] => format!("there are {}{further}", named.join(", ")),
    };
    let shown = printable(text.as_bytes());
    let failure = Failure::new(format!("there is no session {shown}")).because(there_are);
    let failure = match nearest(text, known.iter().copied()) {
        Some(meant) => failure.advise(format!("did you mean {meant}?")),
        None => failure,
    };
    failure.advise("atoll sessions lists them")
}

/// The session of this name, for a run that begins now.
///
/// # Errors
/// When it is no name, or the ledger cannot be used.
pub fn begin(
    name: &str,
    (state, ledger): (&StateDir, &Ledger),
    now: SystemTime,
) -> Result<SessionId, Failure> {
    let usable = || Failure::new("--session is not usable");
    // By its id as well: then it has to be there.
    let name = match SessionId::parse(name) {
        Ok(_) => find(state, name)?.name,
        Err(_) => SessionName::parse(name).map_err(|error| {
            usable()
                .because(error)
                .advise("atoll run --session fix-login -- COMMAND")
        })?,
    };
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.unwrap_or_default().as_secs();
    // The standard library's hash seeds come from the kernel's random numbers.
    let random = std::hash::RandomState::new().build_hasher().finish();
    let fresh = SessionId::new(seconds, random as u32);
    ledger.open_session(state, &name, fresh).map_err(|error| {
        let failure = Failure::new("the session cannot be gone on with").because(&error);
        match error {
            atoll_ledger::SessionError::Ledger(error) => failure.advise(advice::ledger(&error)),
            atoll_ledger::SessionError::Private(_) => failure.advise(
                "the directory sessions of Atoll's state only saves time and can be moved away",
            ),
        }
    })
}

/// The session of this name or id, where it has begun.
///
/// # Errors
/// When the ledger cannot be read.
pub(crate) fn known(state: &StateDir, text: &str) -> Result<Option<SessionId>, Failure> {
    let name = match (SessionId::parse(text), SessionName::parse(text)) {
        (Ok(id), _) => return Ok(Some(id)),
        (Err(_), Ok(name)) => name,
        // That it is none is told by whoever begins it.
        (Err(_), Err(_)) => return Ok(None),
    };
    if let Some(id) = Ledger::noted_session(state, &name) {
        return Ok(Some(id));
    }
    let mut sessions = list(state)?.into_iter();
    Ok(sessions.find(|one| one.name == name).map(|one| one.id))
}

fn list(state: &StateDir) -> Result<Vec<Session>, Failure> {
    Ledger::sessions(state).doing("the ledger cannot be read")
}

fn last_begin(session: &Session) -> &str {
    let last = session.runs.last();
    last.map_or(session.opened.as_str(), |run| run.opened.as_str())
}

/// A run, how it is and what it runs.
fn run_line(run: &SessionRun) -> String {
    let words = run.command.as_array().into_iter().flatten();
    let words: Vec<OsString> = words.filter_map(read_host_text).collect();
    let command = render::shortened(&render::command_line(&words), COMMAND_CHARS_MAX);
    format!("{} {}: {command}", run.run, how_it_is(run))
}

/// How far a run is; of one that ended, how.
fn how_it_is(run: &SessionRun) -> String {
    let said = |member: &str| run.closed.as_ref().and_then(|closed| closed.get(member));
    if let Some(stopped) = answered::stopped_of_event(said("details")) {
        return stopped;
    }
    let ending = said("ending").cloned();
    let ending = ending.and_then(|ending| serde_json::from_value(ending).ok());
    ending.map_or_else(|| run.state.name().to_owned(), render::describe_ending)
}

fn session_json(session: &Session, given_up: &BTreeMap<SessionId, GivenUps>) -> Value {
    let given_up = given_up
        .get(&session.id)
        .into_iter()
        .flat_map(GivenUps::iter);
    let runs = session.runs.iter().map(|run| {
        json!({
            "run": run.run,
            "opened": run.opened,
            "state": run.state.name(),
            "command": run.command,
        })
    });
    json!({
        "session": session.id,
        "name": session.name,
        "opened": session.opened,
        "given-up": given_up.map(GivenUp::told).collect::<Vec<_>>(),
        "runs": runs.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_session_is_told_with_those_there_are() {
        let told = |text: &str, known: &[&str]| {
            let failure = unknown(text, known);
            (failure.why.unwrap_or_default(), failure.advice)
        };
        let lists = "atoll sessions lists them".to_owned();
        let none = ("there is none yet".to_owned(), vec![lists.clone()]);
        assert_eq!(told("fix", &[]), none);
        let only = ("there is only real".to_owned(), vec![lists.clone()]);
        assert_eq!(told("fix", &["real"]), only);
        let known = ["one", "two", "three", "four", "five", "fix-login"];
        let (why, advice) = told("fix-logn", &known);
        assert_eq!(why, "there are one, two, three, four, five and 1 more");
        let meant = "did you mean fix-login?".to_owned();
        assert_eq!(advice, [meant, lists]);
        let (why, _) = told("elsewhere", &["one", "two"]);
        assert_eq!(why, "there are one, two");
    }
}
