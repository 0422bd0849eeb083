//! `atoll sessions` and `atoll why --session`: the runs of each session, from the ledger alone.

use std::collections::BTreeMap;
use std::ffi::OsString;

use atoll_engine::configuration::Places;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::finding::sessions::{find, list};
use atoll_engine::printable::printable;
use atoll_engine::{is_of_token, take_given_up};
use atoll_ledger::{
    Filter, Ledger, RIGHTS_GIVEN_UP, Session, SessionRun, StateDir, read_host_text,
};
use atoll_model::network::{GivenUp, GivenUps};
use atoll_model::{RunId, SessionId};
use serde_json::{Value, json};

use crate::answered;
use crate::arguments::SessionsArguments;
use crate::output::Output;
use crate::render::{self, Report, Style};

/// The most of a command that a line shows, characters.
const COMMAND_CHARS_MAX: usize = 60;

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

/// Collects the dropped rights of the sessions, each that has any, by one pass over the ledger.
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
    report.line("begun", &render::readable_time(&session.opened));
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

fn last_begin(session: &Session) -> &str {
    let last = session.runs.last();
    last.map_or(session.opened.as_str(), |run| run.opened.as_str())
}

/// Formats a run: its id, state and command.
fn run_line(run: &SessionRun) -> String {
    let words = run.command.as_array().into_iter().flatten();
    let words: Vec<OsString> = words.filter_map(read_host_text).collect();
    let command = atoll_engine::printable::shortened(
        &atoll_engine::shell::command_line(&words),
        COMMAND_CHARS_MAX,
    );
    format!("{} {}: {command}", run.run, how_it_is(run))
}

/// Describes a run's state; of one that ended, its ending.
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
