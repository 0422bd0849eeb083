//! The control of running runs: their sockets, the run that a name means, and the failures for one
//! that does not answer or declines.

use std::thread::sleep;
use std::time::{Duration, Instant};

use atoll_ledger::{Ledger, Seals, StateDir, live_runs};
use atoll_model::RunId;
use atoll_sandbox::Declined;
use atoll_store::control_directory;
use serde_json::Value;

use crate::configuration::{Places, user_name, user_number};
use crate::failure::{Doing, Failure, Kind};
use crate::finding::{RUN_LAST, Taking, find_in_ledger};
use crate::printable::{printable, shortened};
use crate::supervision::{Answer, ControlError, Frozen, Question, Runs, ask, freeze, spoken_to};

/// The longest wait for a run that has only just begun, before it is reported as gone.
pub const BEGINNING: Duration = Duration::from_secs(2);
/// The time between two looks for such a run.
pub const BEGINNING_PAUSE: Duration = Duration::from_millis(20);
/// The longest part of a command shown beside a run's id, characters.
const COMMAND_CHARACTERS_MAX: usize = 40;
/// The events that end a run.
const ENDS: [&str; 4] = ["run.closed", "run.denied", "run.failed", "run.interrupted"];

/// Returns the directory of the control sockets of the caller's own runs, if there is one.
pub fn directory() -> Result<Option<Runs>, Failure> {
    let places = Places::read()?;
    if !places.state.exists() {
        return Ok(None);
    }
    let state = places.read_state()?;
    let directory = control_directory(&state, false).doing("runs cannot be spoken to")?;
    Ok(directory.map(Runs::Own))
}

/// Returns the control sockets of another user's runs, for an approver named there; the caller's
/// own where no other user is meant.
pub fn runs_of(user: Option<&str>) -> Result<Option<Runs>, Failure> {
    let own = rustix::process::getuid().as_raw();
    match user {
        None => directory(),
        Some(user) => match user.parse().ok().or_else(|| user_number(user)) {
            Some(uid) if uid == own => directory(),
            Some(uid) => Ok(Some(Runs::Of(uid))),
            None => Err(
                Failure::new(format!("there is no user {}", printable(user.as_bytes())))
                    .because("/etc/passwd has none of that name")
                    .advise("--of takes a user's number as well"),
            ),
        },
    }
}

/// A run as a person named it, with `last` resolved at once, since another run may start before it
/// is looked up again.
#[derive(Debug)]
pub struct Named {
    wanted: String,
    is_last: bool,
}

impl Named {
    /// Reads a run's name as typed.
    ///
    /// # Errors
    /// `last` is meant, and the ledger cannot be read or has none.
    pub fn read(text: &str, taking: Taking<'_>) -> Result<Self, Failure> {
        let wanted = text.trim().to_ascii_lowercase();
        let is_last = wanted == RUN_LAST;
        let wanted = match is_last {
            true => find_in_ledger(&Places::read()?.read_state()?, RUN_LAST, taking)?.to_string(),
            false => wanted,
        };
        Ok(Self { wanted, is_last })
    }
}

/// Returns the running run that a typed name means.
pub fn meant(directory: &Runs, text: &str, taking: Taking<'_>) -> Result<RunId, Failure> {
    // Their ledger is theirs: of those that hear one it is the newest.
    if let Runs::Of(_) = directory
        && text.trim().eq_ignore_ascii_case(RUN_LAST)
    {
        let runs = spoken_to(directory).doing("the runs cannot be listed")?;
        let absent = || {
            let wanted = RUN_LAST.to_owned();
            let is_last = true;
            absent(directory, &Named { wanted, is_last }, &[])
        };
        return runs.into_iter().next().ok_or_else(absent);
    }
    going_on(directory, &Named::read(text, taking)?)
}

/// Returns the running run that a resolved name means. `last` is the run started last, as
/// everywhere, and never an older one that still goes on: what is done to a run cannot be undone.
pub fn going_on(directory: &Runs, named: &Named) -> Result<RunId, Failure> {
    let run = named_there(directory, named)?;
    // What a run that was killed has left is removed by asking it.
    match named.is_last && !is_there(directory, &run) {
        true => Err(is_gone(directory, named)),
        false => Ok(run),
    }
}

/// Returns the run with a control socket that a resolved name means, without asking whether it is
/// still there.
pub fn named_there(directory: &Runs, named: &Named) -> Result<RunId, Failure> {
    let all = spoken_to(directory).doing("the runs cannot be listed")?;
    named_of(&all, named)?.ok_or_else(|| absent(directory, named, &all))
}

/// Returns the one of these runs that was named.
///
/// # Errors
/// When the name matches several.
pub fn named_of(all: &[RunId], named: &Named) -> Result<Option<RunId>, Failure> {
    let wanted = &named.wanted;
    let is_meant = |run: &&RunId| {
        let name = run.as_str();
        !wanted.is_empty() && (name.starts_with(wanted) || name.ends_with(wanted))
    };
    let runs: Vec<RunId> = all.iter().filter(is_meant).cloned().collect();
    match <[RunId; 1]>::try_from(runs) {
        Ok([run]) => Ok(Some(run)),
        Err(runs) if runs.is_empty() => Ok(None),
        Err(runs) => {
            let names: Vec<&str> = runs.iter().map(RunId::as_str).collect();
            Err(
                Failure::new(format!("{wanted:?} can be any of {} runs", names.len()))
                    .because(names.join(", "))
                    .advise("name more of its id"),
            )
        }
    }
}

/// Returns the failure for a run that has left a socket and no longer answers.
pub fn is_gone(directory: &Runs, named: &Named) -> Failure {
    match spoken_to(directory).doing("the runs cannot be listed") {
        Ok(all) => absent(directory, named, &all),
        Err(failure) => failure,
    }
}

fn is_there(directory: &Runs, run: &RunId) -> bool {
    !matches!(
        ask(directory, run, &Question::Ports {}),
        Err(ControlError::Gone)
    )
}

/// Returns the failure for a named run that cannot be reached, listing those that can.
pub fn absent(directory: &Runs, named: &Named, all: &[RunId]) -> Failure {
    let shown = printable(named.wanted.as_bytes());
    if let Runs::Of(uid) = directory {
        let user = user_name(*uid);
        return Failure::new(format!("no run {shown} of {user} hears you"))
            .because("no run goes on there that names you among its `approvers`")
            .advise(format!("atoll approvals list --of {user}"));
    }
    let state = || Places::read().ok()?.read_state().ok();
    let (Ok(run), Some(state)) = (RunId::parse(&named.wanted), state()) else {
        return Failure::new(format!("no run {shown} goes on"))
            .because("no run that goes on has such an id")
            .advise("atoll runs lists them");
    };
    let shown = match named.is_last {
        true => format!("the last run, {run},"),
        false => format!("run {run}"),
    };
    let kinds: Vec<String> = Ledger::show(&state, &run)
        .into_iter()
        .flatten()
        .filter_map(|event| Some(event.ok()?.kind))
        .collect();
    let has = |wanted: &[&str]| kinds.iter().any(|kind| wanted.contains(&kind.as_str()));
    if has(&["run.opened"]) && !has(&ENDS) {
        return Failure::new(format!("{shown} cannot be spoken to yet"))
            .because("it began a moment ago, or is in a fence that has no network to watch")
            .advise("try again in half a second");
    }
    let going: Vec<&RunId> = all
        .iter()
        .filter(|other| **other != run && is_there(directory, other))
        .collect();
    let failure = match has(&ENDS) {
        true => Failure::new(format!("{shown} has ended")),
        false => Failure::new(format!("no {shown} goes on")),
    };
    let Some(first) = going.first() else {
        return failure
            .because("no run goes on")
            .advise("atoll runs lists them");
    };
    let going: Vec<String> = going.iter().map(|run| with_command(&state, run)).collect();
    failure
        .because(format!("still going: {}", going.join(", ")))
        .advise(format!("name the one that is meant, such as {first}"))
}

/// Returns a run's id, with its command where that is known.
fn with_command(state: &StateDir, run: &RunId) -> String {
    let opened = Ledger::show(state, run)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .find(|event| event.kind == "run.opened");
    // Where the keys cannot be read, what is sealed is told as that.
    let seals = Seals::read(state).unwrap_or_default();
    let opened = opened.map(|event| seals.open(event));
    let Some(command) = opened.and_then(|event| event.body.get("command").cloned()) else {
        return run.to_string();
    };
    let words = command.as_array().into_iter().flatten();
    let words: Vec<&str> = words.filter_map(Value::as_str).collect();
    let shown = shortened(&words.join(" "), COMMAND_CHARACTERS_MAX);
    format!("{run} ({})", printable(shown.as_bytes()))
}

/// Checks that a run has done what it was asked.
pub fn done(run: &RunId, answer: Result<Answer, ControlError>) -> Result<(), Failure> {
    match answer {
        Ok(Answer::Done {}) => Ok(()),
        Ok(Answer::Refused(declined)) => Err(refused(run, declined)),
        Ok(
            Answer::Ports { .. }
            | Answer::Published(_)
            | Answer::Approvals { .. }
            | Answer::Approval(_)
            | Answer::GivenUp { .. }
            | Answer::Compared { .. }
            | Answer::Reloaded(_)
            | Answer::Executing { .. }
            | Answer::Exec(_)
            | Answer::Denied(_)
            | Answer::NeedsApproval { .. }
            | Answer::Agreed(_),
        ) => Err(unanswered(run, &ControlError::Strange)),
        Err(error) => Err(unanswered(run, &error)),
    }
}

/// Stops all processes of a running sandbox, so that its changes can be read; `None` for a run that
/// has ended by now.
///
/// # Errors
/// When nothing can stop them, or the run does not answer.
pub fn stand_still(state: &StateDir, run: &RunId) -> Result<Option<Frozen>, Failure> {
    let until = Instant::now() + BEGINNING;
    loop {
        let frozen = match directory()? {
            Some(runs) => freeze(&runs, run),
            None => Err(ControlError::Gone),
        };
        match frozen {
            Ok(Ok(frozen)) => return Ok(Some(frozen)),
            Ok(Err(declined)) => {
                return Err(
                    Failure::new(format!("run {run} cannot be read while it goes on"))
                        .because(printable(declined.why.as_bytes()))
                        .advise(format!(
                            "atoll stop {run} ends it; its changes are there then"
                        )),
                );
            }
            Err(ControlError::Gone) => {
                let alive = live_runs(state).doing("the runs cannot be listed")?;
                if !alive.contains(run) {
                    return Ok(None);
                }
                if Instant::now() >= until {
                    return Err(unanswered(run, &ControlError::Gone));
                }
                sleep(BEGINNING_PAUSE);
            }
            Err(error) => return Err(unanswered(run, &error)),
        }
    }
}

/// Returns the failure where no run goes on.
#[must_use]
pub fn none_goes_on() -> Failure {
    Failure::new("no run goes on")
        .because("none was started yet, or none that can be spoken to")
        .advise("atoll runs lists them")
}

/// Returns the failure for a run that gives no answer.
#[must_use]
pub fn unanswered(run: &RunId, error: &ControlError) -> Failure {
    Failure::new(format!("run {run} cannot be asked"))
        .because(error)
        .advise("atoll runs says what became of it")
}

/// Returns the failure for a run that has declined.
#[must_use]
pub fn refused(run: &RunId, declined: Declined) -> Failure {
    Failure::new(format!("run {run} does not do that"))
        .because(printable(declined.why.as_bytes()))
        .advise(printable(declined.advice.as_bytes()))
        .of_kind(Kind::Denied)
}
