//! The rules and policies that decide a question, the facts that mattered, and the smallest change
//! that would have allowed it. Nothing here has an effect.

pub mod asking;
pub mod change;
pub mod facts;
pub mod past;
pub mod recorded;
pub mod verdict;

use asking::Asking;
use atoll_cedar::{Case, Effect};
use atoll_ledger::{Event, StateDir};
use atoll_model::RunId;
use atoll_policy::Requested;
use past::{Pasts, why_denied};
use recorded::{Found, Opening, Put, ReadOptions};
use serde_json::Value;
use verdict::Sources;

use crate::events::events_of;
use crate::failure::Failure;

/// The most refusals of one run that are explained if none is named.
const REFUSALS_MAX: usize = 8;

/// A question from the ledger, with the rules that decide it now.
pub struct Recorded {
    sources: Sources,
    requested: Requested,
    program: std::ffi::OsString,
    /// The question.
    pub put: Put,
    /// The event that recorded it.
    pub event: Event,
    /// The version of the policy that decided then.
    pub version: Option<String>,
}

impl Recorded {
    /// Puts it again.
    ///
    /// # Errors
    /// As of [`Asking::put`].
    pub fn ask(&self) -> Result<Asking<'_>, Failure> {
        let requested = self.requested.clone();
        Asking::put(
            &self.sources,
            requested,
            &self.program,
            (self.put.case.clone(), self.put.given_up.clone()),
        )
    }
}

/// Returns the refusals of a run, or the decision of one event.
///
/// # Errors
/// When the ledger does not know the run or the event, or it cannot be asked again.
pub fn of_run(
    state: &StateDir,
    run: &RunId,
    number: Option<u64>,
    read: ReadOptions<'_>,
) -> Result<Vec<Recorded>, Failure> {
    let events = events_of(state, run)?;
    let opened = events.iter().find(|event| event.kind == "run.opened");
    let Some(opened) = opened else {
        return Err(
            Failure::new(format!("the ledger knows no beginning of run {run}"))
                .advise("atoll runs lists those that are kept"),
        );
    };
    let mut opening = Opening::of(opened, read).map_err(|why| unusable(run, why))?;
    let version = opened.body.pointer("/decision/policy");
    let version = version.and_then(Value::as_str).map(str::to_owned);
    let is_meant = |event: &&Event| match number {
        Some(number) => event.position.seq == number,
        None => match event.kind.as_str() {
            "run.denied" | "flow.refused" => true,
            "approval.asked" => event.body.get("action").is_none(),
            _ => false,
        },
    };
    let is_there = events.iter().any(|event| is_meant(&event));
    if let (Some(number), false) = (number, is_there) {
        return Err(Failure::new(format!("run {run} has no event {number}"))
            .advise(format!("atoll ledger query --run {run} lists them")));
    }
    let mut pasts = Pasts::before(state, opened)?;
    let mut all: Vec<Recorded> = Vec::new();
    for event in &events {
        opening.take(event);
        pasts.take(event);
        if !is_meant(&event) {
            continue;
        }
        // Other policies may have come while it went on.
        let own = event.body.get("policy").and_then(Value::as_str);
        let version = own.map(str::to_owned).or_else(|| version.clone());
        for put in puts(&opening, event, &pasts, number)? {
            if all.len() < REFUSALS_MAX && all.iter().all(|one| !is_same(&one.put, &put)) {
                all.push(Recorded {
                    sources: Sources::read(&opening.workspace)?,
                    requested: opening.requested.clone(),
                    program: opening.program.clone(),
                    put,
                    event: event.clone(),
                    version: version.clone(),
                });
            }
        }
    }
    Ok(all)
}

/// Describes a run whose decisions cannot be asked again.
fn unusable(run: &RunId, why: &str) -> Failure {
    Failure::new(format!("run {run} cannot be asked about again")).because(why)
}

/// Returns the questions of one event. An event that was named must have one.
fn puts(
    opening: &Opening,
    event: &Event,
    pasts: &Pasts,
    number: Option<u64>,
) -> Result<Vec<Put>, Failure> {
    let run = &opening.run;
    match (opening.questions(event, &pasts.of(run)), number) {
        (Found::Questions(puts), _) => Ok(puts),
        (Found::Unclear(_) | Found::Nothing, None) => Ok(Vec::new()),
        (Found::Unclear(why), Some(number)) => Err(unusable(run, why).advise(format!(
            "atoll ledger query --run {run} shows what event {number} says"
        ))),
        (Found::Nothing, Some(number)) => {
            Err(Failure::new(format!("event {number} decided nothing"))
                .because(format!("it is {}", event.kind))
                .advise(format!("atoll ledger query --run {run} --type flow")))
        }
    }
}

/// Returns the refusals of a run by policies, for its story; empty where that would take long or
/// fails.
pub fn of_story(state: &StateDir, events: &[Event], read: ReadOptions<'_>) -> Vec<Recorded> {
    let is_by_policy = |event: &&Event| {
        let why = event.body.get("why").and_then(Value::as_str);
        event.kind == "run.denied" || why.is_some_and(|why| why.contains("policy "))
    };
    let Some(run) = events
        .iter()
        .find(is_by_policy)
        .and_then(|event| event.run.clone())
    else {
        return Vec::new();
    };
    of_run(state, &run, None, read).unwrap_or_default()
}

fn is_same(one: &Put, two: &Put) -> bool {
    let timeless = |case: &Case| Case {
        time: 0,
        ..case.clone()
    };
    let why = |put: &Put| why_denied(&put.given_up, &put.case);
    timeless(&one.case) == timeless(&two.case) && why(one) == why(two)
}

/// Returns the effect's word in JSON.
#[must_use]
pub fn word(effect: Effect) -> &'static str {
    match effect {
        Effect::Allow => "allow",
        Effect::Ask => "ask",
        Effect::Deny => "deny",
    }
}

/// Describes the question in one line.
#[must_use]
pub fn question(case: &Case) -> String {
    let resource = &case.resource;
    let port = case
        .port
        .map_or_else(String::new, |port| format!(":{port}"));
    match case.action.as_str() {
        "request" => {
            let method = case.method.as_deref().unwrap_or("GET");
            let scheme = case.scheme.as_deref().unwrap_or("https");
            let path = case.path.as_deref().unwrap_or("/");
            format!("{method} {scheme}://{resource}{port}{path}")
        }
        action => format!("{action} {resource}{port}"),
    }
}
