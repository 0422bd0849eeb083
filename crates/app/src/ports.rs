//! `atoll ports` and `atoll publish`: what runs that go on are asked.

use std::time::{Duration, Instant};

use atoll_model::RunId;
use atoll_model::network::{Listener, ListensAt, Network, Published, PublishedPort};
use atoll_sandbox::{
    Answer, ControlError, Declined, Flows, Question, Runs, ask, ask_until, spoken_to,
};
use atoll_store::{Ledger, Seals, StateDir, control_directory};
use serde_json::{Value, json};

use crate::approvals::{persons, same_port};
use crate::arguments::{PortsArguments, PublishArguments, RUN_LAST};
use crate::ask_key::AskKey;
use crate::configuration::{Places, user_name, user_number};
use crate::escape::printable;
use crate::failure::{Doing, Failure, STATUS_DENIED};
use crate::finding::find_in_ledger;
use crate::output::Output;
use crate::render::shortened;

/// How many ports the end of a run names.
const SHOWN_MAX: usize = 5;
/// From this port on the kernel hands out those that nobody has asked for (ip(7)).
const HANDED_OUT: u16 = 32_768;
/// How long a run may take to say what listens in it.
const ANSWERING: Duration = Duration::from_secs(5);
/// How much of a command is shown beside a run's id, characters.
const COMMAND_CHARACTERS_MAX: usize = 40;
/// The events that end a run.
const ENDS: [&str; 4] = ["run.closed", "run.denied", "run.failed", "run.interrupted"];

/// Shows what listens inside of runs that go on.
///
/// # Errors
/// When there is no such run, or it does not answer.
pub fn ports(arguments: &PortsArguments, output: &Output) -> Result<u8, Failure> {
    let Some(directory) = directory()? else {
        return nothing(arguments, output);
    };
    let runs = match &arguments.run {
        Some(text) => vec![meant(&directory, text)?],
        None => spoken_to(&directory).doing("the runs cannot be listed")?,
    };
    let mut told = Vec::new();
    for run in runs {
        let until = Instant::now() + ANSWERING;
        match ask_until(&directory, &run, &Question::Ports {}, until) {
            Ok(Answer::Ports {
                listening,
                published,
            }) => told.push((run, listening, published)),
            Ok(Answer::Refused(declined)) => return Err(refused(&run, declined)),
            Ok(
                Answer::Published(_)
                | Answer::Approvals { .. }
                | Answer::Approval(_)
                | Answer::GivenUp { .. }
                | Answer::Compared { .. }
                | Answer::Reloaded(_)
                | Answer::Done {}
                | Answer::Agreed(_),
            ) => {
                return Err(unanswered(&run, &ControlError::Strange));
            }
            // One of several has ended meanwhile.
            Err(ControlError::Gone) if arguments.run.is_none() => {}
            Err(ControlError::Silent(_)) if arguments.run.is_none() => output.warn(&format!(
                "run {run} does not answer, and is left out; atoll stop {run} ends it"
            )),
            Err(error) => return Err(unanswered(&run, &error)),
        }
    }
    if told.is_empty() {
        return nothing(arguments, output);
    }
    if arguments.json {
        let told = told.iter().map(|(run, listening, published)| {
            let published = published.iter().map(published_json).collect::<Vec<_>>();
            json!({ "run": run, "listening": listening, "published": published })
        });
        output.json(&told.collect());
        return Ok(0);
    }
    for (run, listening, published) in &told {
        output.result(&table(run, listening, published));
    }
    Ok(0)
}

/// Publishes a port of a run that goes on.
///
/// # Errors
/// When there is no such run, or it refuses.
pub fn publish(arguments: &PublishArguments, output: &Output) -> Result<u8, Failure> {
    let port = PublishedPort {
        outside: arguments.to.unwrap_or(arguments.port),
        inside: arguments.port,
    };
    let directory = runs_of(arguments.of.as_deref())?.ok_or_else(none_goes_on)?;
    let run = meant(&directory, &arguments.run)?;
    match ask(&directory, &run, &Question::Publish(port)) {
        Ok(Answer::Agreed(_)) if arguments.json => {
            output.json(&json!({ "inside": port.inside, "agreed": true }));
        }
        Ok(Answer::Agreed(second)) => output.say(&format!(
            "Agreed. It takes two persons: port {} is published once {} says the same within two \
             minutes:\n  {}\n",
            port.inside,
            persons(&second),
            same_port(&run, port, second.owner)
        )),
        Ok(Answer::Published(published)) if arguments.json => {
            output.json(&published_json(&published));
        }
        Ok(Answer::Published(published)) => output.result(&door(published.port)),
        Ok(Answer::Refused(declined)) => return Err(refused(&run, declined)),
        Ok(
            Answer::Ports { .. }
            | Answer::Approvals { .. }
            | Answer::Approval(_)
            | Answer::GivenUp { .. }
            | Answer::Compared { .. }
            | Answer::Reloaded(_)
            | Answer::Done {},
        ) => {
            return Err(unanswered(&run, &ControlError::Strange));
        }
        Err(error) => return Err(unanswered(&run, &error)),
    }
    Ok(0)
}

/// A line for a port that is published.
pub(crate) fn door(port: PublishedPort) -> String {
    let PublishedPort { outside, inside } = port;
    format!("atoll: http://127.0.0.1:{outside} leads to port {inside} inside\n")
}

/// What a person at the run's terminal is told of a program that listens.
pub(crate) fn told(run: &RunId, listener: &Listener, key: Option<AskKey>) -> String {
    let named = named(listener);
    let port = listener.port;
    let by_key = key.map_or(String::new(), |key| format!("{key} here, or "));
    match listener.at {
        ListensAt::Loopback | ListensAt::Everywhere => format!(
            "atoll: listening inside: {named}; not reachable from here until {by_key}\
             `atoll publish {run} {port}` in another terminal"
        ),
        ListensAt::Elsewhere => format!(
            "atoll: listening inside: {named}, at an address that nothing leads to: let it listen \
             at 127.0.0.1"
        ),
    }
}

/// What a person at the run's terminal is told of a port that they wanted to have published.
/// Nothing where that takes another person, which is told with who they are.
pub(crate) fn done(
    port: PublishedPort,
    done: &Result<Option<Published>, Declined>,
) -> Option<String> {
    let told = match done {
        Ok(None) => return None,
        Ok(Some(published)) => door(published.port).trim_end().to_owned(),
        Err(Declined { why, advice }) => {
            let why = printable(why.as_bytes());
            format!(
                "atoll: port {} is not published: {why}; {advice}",
                port.inside
            )
        }
    };
    Some(told)
}

/// At a run's end, what has listened inside and was not reachable; nothing where there is none.
pub(crate) fn listened(flows: &Flows, network: &Network) -> Option<String> {
    let published = network.publish.iter().chain(&flows.published_later);
    let published: Vec<u16> = published.map(|one| one.port.inside).collect();
    let is_told = |one: &&Listener| one.port < HANDED_OUT && !published.contains(&one.port);
    let mut told: Vec<&Listener> = flows.listened.iter().filter(is_told).collect();
    told.sort_by_key(|one| one.port);
    told.dedup_by_key(|one| one.port);
    let first = told.first()?.port;
    let shown: Vec<String> = told.iter().take(SHOWN_MAX).map(|one| named(one)).collect();
    let more = match told.len().saturating_sub(SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown = shown.join(", ");
    Some(format!(
        "{shown}{more} listened inside; --publish {first} makes it reachable"
    ))
}

/// The same for machines.
pub(crate) fn listened_json(flows: &Flows) -> Value {
    json!(flows.listened)
}

pub(crate) fn published_json(one: &Published) -> Value {
    json!({ "port": one.port.outside, "inside": one.port.inside })
}

/// A port, and who listens there as far as that is known.
fn named(listener: &Listener) -> String {
    let port = listener.port;
    match &listener.program {
        Some(program) => format!("{port} ({})", printable(program.as_bytes())),
        None => port.to_string(),
    }
}

fn table(run: &RunId, listening: &[Listener], published: &[Published]) -> String {
    let mut lines = vec![format!("run {run}")];
    for one in listening {
        let named = named(one);
        let doors = published.iter().filter(|it| it.port.inside == one.port);
        let doors: Vec<String> = doors
            .map(|it| format!("http://127.0.0.1:{}", it.port.outside))
            .collect();
        let how = match (doors.is_empty(), one.at) {
            (false, _) => format!("published: {}", doors.join(", ")),
            (true, ListensAt::Loopback) => "on the loopback, not published".to_owned(),
            (true, ListensAt::Everywhere) => "at every address, not published".to_owned(),
            (true, ListensAt::Elsewhere) => "at an address that nothing leads to".to_owned(),
        };
        lines.push(format!("  {named}: {how}"));
    }
    if listening.is_empty() {
        lines.push("  nothing listens inside".to_owned());
    }
    let is_quiet = |one: &&Published| listening.iter().all(|it| it.port != one.port.inside);
    for one in published.iter().filter(is_quiet) {
        let PublishedPort { outside, inside } = one.port;
        lines.push(format!(
            "  {inside}: nothing listens there yet, published: http://127.0.0.1:{outside}"
        ));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn nothing(arguments: &PortsArguments, output: &Output) -> Result<u8, Failure> {
    match &arguments.run {
        Some(_) => Err(none_goes_on()),
        None if arguments.json => {
            output.json(&json!([]));
            Ok(0)
        }
        None => {
            output.say("No run goes on that can be asked.\n");
            Ok(0)
        }
    }
}

/// Where runs are spoken to, if any was.
pub(crate) fn directory() -> Result<Option<Runs>, Failure> {
    let places = Places::read()?;
    if !places.state.exists() {
        return Ok(None);
    }
    let state = places.read_state()?;
    let directory = control_directory(&state, false).doing("runs cannot be spoken to")?;
    Ok(directory.map(Runs::Own))
}

/// Where runs of another user are spoken to by who is named for it; one's own where no other
/// user is meant.
pub(crate) fn runs_of(user: Option<&str>) -> Result<Option<Runs>, Failure> {
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

/// A run as somebody named it, with `last` settled: while it is looked for again another one
/// may start.
#[derive(Debug)]
pub(crate) struct Named {
    wanted: String,
    is_last: bool,
}

impl Named {
    /// Reads what was typed.
    ///
    /// # Errors
    /// `last` is meant, and the ledger cannot be read or has none.
    pub(crate) fn read(text: &str) -> Result<Self, Failure> {
        let wanted = text.trim().to_ascii_lowercase();
        let is_last = wanted == RUN_LAST;
        let wanted = match is_last {
            true => find_in_ledger(&Places::read()?.read_state()?, RUN_LAST)?.to_string(),
            false => wanted,
        };
        Ok(Self { wanted, is_last })
    }
}

/// The run that is meant, of those that go on.
pub(crate) fn meant(directory: &Runs, text: &str) -> Result<RunId, Failure> {
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
    going_on(directory, &Named::read(text)?)
}

/// The same of one that was read already. `last` is the run started last, as everywhere, and
/// never an older one that still goes on: what is done to a run is not taken back.
pub(crate) fn going_on(directory: &Runs, named: &Named) -> Result<RunId, Failure> {
    let run = named_there(directory, named)?;
    // What a run that was killed has left is removed by asking it.
    match named.is_last && !is_there(directory, &run) {
        true => Err(is_gone(directory, named)),
        false => Ok(run),
    }
}

/// The same, without asking whether it is still there.
pub(crate) fn named_there(directory: &Runs, named: &Named) -> Result<RunId, Failure> {
    let all = spoken_to(directory).doing("the runs cannot be listed")?;
    named_of(&all, named)?.ok_or_else(|| absent(directory, named, &all))
}

/// The one of these runs that was named.
///
/// # Errors
/// When it can be any of several.
pub(crate) fn named_of(all: &[RunId], named: &Named) -> Result<Option<RunId>, Failure> {
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

/// Why a run that has left a socket cannot be asked.
pub(crate) fn is_gone(directory: &Runs, named: &Named) -> Failure {
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

/// Why a run that is named cannot be asked, with those that can.
pub(crate) fn absent(directory: &Runs, named: &Named, all: &[RunId]) -> Failure {
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

/// A run's id, and what it runs where that is known.
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

pub(crate) fn none_goes_on() -> Failure {
    Failure::new("no run goes on")
        .because("none was started yet, or none that can be spoken to")
        .advise("atoll runs lists them")
}

pub(crate) fn unanswered(run: &RunId, error: &ControlError) -> Failure {
    Failure::new(format!("run {run} cannot be asked"))
        .because(error)
        .advise("atoll runs says what became of it")
}

pub(crate) fn refused(run: &RunId, declined: Declined) -> Failure {
    Failure::new(format!("run {run} does not do that"))
        .because(printable(declined.why.as_bytes()))
        .advise(printable(declined.advice.as_bytes()))
        .with_status(STATUS_DENIED)
}
