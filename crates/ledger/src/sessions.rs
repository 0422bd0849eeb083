//! Sessions: groups of runs of one task, independent of the processes that carry them. The ledger
//! alone knows which there are; a file for each name only records the place in the ledger, and is
//! made anew if it is missing or does not agree.

use std::collections::BTreeMap;

use atoll_model::{RunId, SessionId, SessionName};
use rustix::fs::Dir;
use serde_json::{Value, json};

use crate::event::{CLOSING_KINDS, Draft, SESSION_OPENED};
use crate::journal::Journal;
use crate::open_runs::OpenRuns;
use crate::private::{PrivateDirectory, replace_file_soon};
use crate::read::{Events, Filter};
use crate::remains::SESSION_FILE_END;
use crate::state::SESSIONS;
use crate::{Event, LedgerError, Position, PrivateFault, Seals, StateDir, TreeHash};

/// The most files of where sessions began that are looked through: beyond, the ledger is read from
/// its beginning.
const SESSION_FILES_MAX: usize = 10_000;
/// The largest file of where a session began, bytes.
const PLACE_BYTES_MAX: u64 = 256;

/// A session, as recorded in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The session's id.
    pub id: SessionId,
    /// The name that its person gave it.
    pub name: SessionName,
    /// The time at which it began, as RFC 3339, UTC, with microseconds.
    pub opened: String,
    /// Its runs, in the order in which they began.
    pub runs: Vec<SessionRun>,
}

/// A run of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRun {
    /// The run.
    pub run: RunId,
    /// The time at which it began, as RFC 3339, UTC, with microseconds.
    pub opened: String,
    /// Its program and arguments, as [`crate::host_text()`] writes them.
    pub command: Value,
    /// The run's state.
    pub state: SessionRunState,
    /// The members `ending` and `details` of `run.closed`, where it has them.
    pub closed: Option<Value>,
}

/// The state of a session's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionRunState {
    /// A living process carries it.
    Running,
    /// Its program ended.
    Ended,
    /// The run was denied.
    Denied,
    /// Atoll could not carry it out.
    Failed,
    /// The process that carried it is gone.
    Interrupted,
}

impl SessionRunState {
    /// Returns the word for people and for JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ended => "ended",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A session cannot be gone on with.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The ledger cannot be read or added to.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The files of where sessions begin cannot be used.
    #[error(transparent)]
    Private(#[from] PrivateFault),
}

/// Returns the session of a run.
pub(crate) fn of_run(state: &StateDir, run: &RunId) -> Result<Option<SessionId>, LedgerError> {
    let filter = Filter {
        run: Some(run.clone()),
        kind: Some("run.opened".to_owned()),
        ..Filter::default()
    };
    let opening = Events::from_start(state, filter)?.find_map(Result::ok);
    Ok(opening.and_then(|opening| {
        let session = opening.body.get("session")?.as_str()?;
        SessionId::parse(session).ok()
    }))
}

/// Returns the session of this name; begins one if there is none.
pub(crate) fn open(
    state: &StateDir,
    journal: &Journal,
    name: &SessionName,
    fresh: SessionId,
) -> Result<SessionId, SessionError> {
    let directory = PrivateDirectory::of_state(state, SESSIONS, true)?;
    let Some(directory) = directory else {
        return Ok(fresh);
    };
    if let Some(id) = noted(state, &directory, name)? {
        return Ok(id);
    }
    // Two runs that begin one at the same time begin the same one.
    let _lock = directory.lock()?;
    if let Some(id) = noted(state, &directory, name)? {
        return Ok(id);
    }
    let (id, position) = match first(state, name)? {
        Some(found) => found,
        None => {
            let body = json!({ "name": name.as_str(), "session": fresh.as_str() });
            let position = journal.append_buffered(&Draft::new(SESSION_OPENED, None, &body)?)?;
            (fresh, position)
        }
    };
    let place = format!(
        "{id} {} {} {}\n",
        position.segment, position.offset, position.leaf
    );
    // It only saves time: without it the ledger is searched.
    let _ = replace_file_soon(
        directory.descriptor(),
        directory.path(),
        &file_name(name),
        place.as_bytes(),
    );
    Ok(id)
}

/// Returns the name of a session's file; its ending keeps it apart from other files there.
fn file_name(name: &SessionName) -> String {
    format!("{name}{SESSION_FILE_END}")
}

/// Returns the session of this name that a file records.
pub(crate) fn noted_of(
    state: &StateDir,
    name: &SessionName,
) -> Result<Option<SessionId>, SessionError> {
    match PrivateDirectory::of_state(state, SESSIONS, false)? {
        Some(directory) => noted(state, &directory, name),
        None => Ok(None),
    }
}

/// Returns the session that a file records, if the ledger agrees at that place.
fn noted(
    state: &StateDir,
    directory: &PrivateDirectory,
    name: &SessionName,
) -> Result<Option<SessionId>, SessionError> {
    // One that cannot be read says nothing, and another takes its place.
    let Ok(Some(bytes)) = directory.read(&file_name(name), PLACE_BYTES_MAX) else {
        return Ok(None);
    };
    let Some((id, place, leaf)) = read_place(&bytes) else {
        return Ok(None);
    };
    let mut events = Events::from_place(state, Filter::default(), place)?;
    let Some(Ok(event)) = events.next() else {
        return Ok(None);
    };
    let is_it = event.position.leaf == leaf && opening(&event) == Some((id.clone(), name.clone()));
    Ok(is_it.then_some(id))
}

/// Returns the place at which a session begins in the ledger, if a file records it and the ledger
/// agrees; otherwise the ledger's beginning. No event of the session is before it.
pub(crate) fn place_of(state: &StateDir, session: &SessionId) -> Result<(u32, u64), LedgerError> {
    let start = (1, 0);
    let Ok(Some(directory)) = PrivateDirectory::of_state(state, SESSIONS, false) else {
        return Ok(start);
    };
    let Ok(names) = Dir::read_from(directory.descriptor()) else {
        return Ok(start);
    };
    for name in names.flatten().take(SESSION_FILES_MAX) {
        let Ok(name) = name.file_name().to_str() else {
            continue;
        };
        // One that cannot be read says nothing.
        let Ok(Some(bytes)) = directory.read(name, PLACE_BYTES_MAX) else {
            continue;
        };
        let Some((id, place, leaf)) = read_place(&bytes) else {
            continue;
        };
        if id != *session {
            continue;
        }
        let mut events = Events::from_place(state, Filter::default(), place)?;
        let is_it = |event: &Event| {
            let begins = opening(event).is_some_and(|(id, _)| id == *session);
            event.position.leaf == leaf && begins
        };
        if events
            .next()
            .and_then(Result::ok)
            .is_some_and(|event| is_it(&event))
        {
            return Ok(place);
        }
    }
    Ok(start)
}

fn read_place(bytes: &[u8]) -> Option<(SessionId, (u32, u64), TreeHash)> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let mut words = text.split(' ');
    let id = SessionId::parse(words.next()?).ok()?;
    let place = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let leaf = TreeHash::parse(words.next()?).ok()?;
    words.next().is_none().then_some((id, place, leaf))
}

/// Returns the session's id and name, from an event that opens one.
fn opening(event: &Event) -> Option<(SessionId, SessionName)> {
    if event.kind != SESSION_OPENED || event.run.is_some() {
        return None;
    }
    let text = |member: &str| event.body.get(member).and_then(Value::as_str);
    let id = SessionId::parse(text("session")?).ok()?;
    Some((id, SessionName::parse(text("name")?).ok()?))
}

/// Finds the first session of this name, and the position of its opening.
fn first(
    state: &StateDir,
    name: &SessionName,
) -> Result<Option<(SessionId, Position)>, LedgerError> {
    let mut found = None;
    each(state, SESSION_OPENED, |event| {
        if let Some((id, _)) = opening(&event).filter(|(_, own)| own == name)
            && found.is_none()
        {
            found = Some((id, event.position));
        }
    })?;
    Ok(found)
}

/// Calls `show` for each sound event of a type. Damage is for `verify` to report.
fn each(state: &StateDir, kind: &str, mut show: impl FnMut(Event)) -> Result<(), LedgerError> {
    let filter = Filter {
        kind: Some(kind.to_owned()),
        ..Filter::default()
    };
    for event in Events::from_start(state, filter)? {
        match event {
            Ok(event) => show(event),
            Err(LedgerError::Damaged { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Lists all sessions with their runs.
pub(crate) fn list(state: &StateDir) -> Result<Vec<Session>, LedgerError> {
    let mut sessions: Vec<Session> = Vec::new();
    each(state, SESSION_OPENED, |event| {
        let Some((id, name)) = opening(&event) else {
            return;
        };
        // The first of a name is the one; nothing of Atoll's writes another.
        if sessions.iter().all(|one| one.name != name && one.id != id) {
            sessions.push(Session {
                id,
                name,
                opened: event.time,
                runs: Vec::new(),
            });
        }
    })?;
    if !sessions.is_empty() {
        add_runs(state, &mut sessions)?;
    }
    Ok(sessions)
}

fn add_runs(state: &StateDir, sessions: &mut [Session]) -> Result<(), LedgerError> {
    let places: BTreeMap<String, usize> = sessions
        .iter()
        .enumerate()
        .map(|(at, one)| (one.id.to_string(), at))
        .collect();
    let mut begun: BTreeMap<RunId, (usize, usize)> = BTreeMap::new();
    // Where the keys cannot be read, what is sealed is told as that.
    let seals = Seals::read(state).unwrap_or_default();
    each(state, "run", |event| {
        let Some(run) = event.run.clone() else {
            return;
        };
        if let Some(end) = ending(&event.kind) {
            let run = begun.get(&run).and_then(|(session, at)| {
                let session = sessions.get_mut(*session)?;
                session.runs.get_mut(*at)
            });
            if let Some(run) = run {
                run.state = end;
                if end == SessionRunState::Ended {
                    let member = |name: &str| event.body.get(name).cloned();
                    run.closed = Some(json!({
                        "ending": member("ending"),
                        "details": member("details"),
                    }));
                }
            }
            return;
        }
        let session = event.body.get("session").and_then(Value::as_str);
        let at = session.and_then(|session| places.get(session).copied());
        let named = at.and_then(|at| Some((at, sessions.get_mut(at)?)));
        if let Some((at, session)) = named.filter(|_| event.kind == "run.opened") {
            let event = seals.open(event);
            begun.insert(run.clone(), (at, session.runs.len()));
            session.runs.push(SessionRun {
                run,
                opened: event.time,
                command: event.body.get("command").cloned().unwrap_or_default(),
                state: SessionRunState::Running,
                closed: None,
            });
        }
    })?;
    let open_runs = OpenRuns::open(state)?;
    let runs = sessions.iter_mut().flat_map(|one| &mut one.runs);
    for run in runs.filter(|run| run.state == SessionRunState::Running) {
        if !open_runs.is_alive(&run.run)? {
            run.state = SessionRunState::Interrupted;
        }
    }
    Ok(())
}

/// Returns the state of a run after an event of this type, if the type ends a run.
fn ending(kind: &str) -> Option<SessionRunState> {
    CLOSING_KINDS.contains(&kind).then_some(match kind {
        "run.denied" => SessionRunState::Denied,
        "run.failed" => SessionRunState::Failed,
        "run.interrupted" => SessionRunState::Interrupted,
        _ => SessionRunState::Ended,
    })
}
