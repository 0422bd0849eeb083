//! Sessions by name or id, and the session that a run begins in.

use std::hash::{BuildHasher, Hasher};
use std::time::SystemTime;

use atoll_ledger::{Ledger, Session, SessionRun, SessionRunState, StateDir};
use atoll_model::{RunId, SessionId, SessionName};
use atoll_policy::nearest;

use crate::failure::{Doing, Failure};
use crate::printable::printable;

/// The most names an error lists.
const NAMED_MAX: usize = 5;

/// Finds a session by its name or its id.
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

/// Returns a session's name, and its live runs.
///
/// # Errors
/// When there is none.
pub fn running(state: &StateDir, text: &str) -> Result<(SessionName, Vec<RunId>), Failure> {
    let session = find(state, text)?;
    let is_running = |run: &SessionRun| run.state == SessionRunState::Running;
    let runs = session.runs.into_iter().filter(is_running);
    Ok((session.name, runs.map(|run| run.run).collect()))
}

/// Describes an unknown session, listing those there are, the newest first.
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

/// Returns the session of this name or id, if it has begun.
///
/// # Errors
/// When the ledger cannot be read.
pub fn known(state: &StateDir, text: &str) -> Result<Option<SessionId>, Failure> {
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

/// Returns the session of this name, for a run that begins now.
///
/// # Errors
/// When the name is invalid, or the ledger cannot be used.
pub fn begin(
    name: &str,
    state: &StateDir,
    ledger: &Ledger,
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
            atoll_ledger::SessionError::Ledger(error) => failure.advise(error),
            atoll_ledger::SessionError::Private(_) => failure.advise(
                "the directory sessions of Atoll's state only saves time and can be moved away",
            ),
        }
    })
}

/// Returns all sessions, the oldest first.
///
/// # Errors
/// When the ledger cannot be read.
pub fn list(state: &StateDir) -> Result<Vec<Session>, Failure> {
    Ledger::sessions(state).doing("the ledger cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Hint;

    #[test]
    fn an_unknown_session_is_told_with_those_there_are() {
        let told = |text: &str, known: &[&str]| {
            let failure = unknown(text, known);
            let text = |hint| match hint {
                Hint::Text(text) => text,
                other => panic!("{other:?}"),
            };
            let hints: Vec<String> = failure.hints.into_iter().map(text).collect();
            (failure.why.unwrap_or_default(), hints)
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
